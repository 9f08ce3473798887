"""What a client has said of the mail that it is about to send."""

from dataclasses import dataclass, field
from typing import Literal

Purpose = Literal["relay", "spam", "ham", "canary"]
"""What becomes of the mail: it goes on, or it ends here, as feedback or as a trial of `doctor`."""


@dataclass(slots=True)
class Transaction:
    """An envelope: paths without their angle brackets, as the client sent them; its real client.

    own: whether that is in a trusted network, or the sender is authenticated; authenticated: the latter. named: whether
    XFORWARD has said who the client is; else it is the peer, which may speak for strangers without saying so.
    purpose: that of the recipients, which is the same for all of them. refused: codes of the replies to recipients
    that were not accepted. began: of the event loop's clock, at MAIL. size: bytes that the client has declared, or 0.
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
