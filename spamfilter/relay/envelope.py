"""The envelope of a transaction."""

from dataclasses import dataclass, field
from typing import Literal

Purpose = Literal["relay", "spam", "ham", "canary"]
"""The purpose of a mail: to be delivered, to teach as spam or ham, or a probe of `doctor`."""


@dataclass(slots=True)
class Transaction:
    """An envelope: paths as the client sent them, without angle brackets. client: the IP address of the real client.

    own: whether the client is in a trusted network or the sender is authenticated; authenticated: only the latter.
    named: whether XFORWARD has named the client; if not, it is the peer, which may be a relay for others. purpose: the
    same for all recipients. refused: codes of the replies to recipients that were deferred or rejected. began: time of
    MAIL by the event loop's clock. size: bytes that the client has declared, or 0.
    """

    sender: bytes
    client: str
    own: bool = False
    authenticated: bool = False
    named: bool = False
    began: float = 0.0
    size: int = 0
    purpose: Purpose = "relay"
    recipients: list[bytes] = field(default_factory=list)
    refused: list[int] = field(default_factory=list)
