"""The envelope of a transaction, and the author of the marks that such a mail makes."""

import ipaddress
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Literal

from spamfilter.mail.folded_addresses import folded
from spamfilter.relay.envelope_paths import mailbox_of
from spamfilter.system.escaping import printable

Purpose = Literal["relay", "spam", "ham", "canary"]
"""The purpose of a mail: to be delivered, to teach as spam or ham, or a probe of `doctor`."""

MAX_NAME = 2000
"""Characters of an author's name: more than any escaped address has, so two authors never have the same name."""


@dataclass(slots=True)
class Transaction:
    """An envelope: paths as the client sent them, without angle brackets. client: the IP address of the real client.

    own: whether the client is in a trusted network or the sender is authenticated; authenticated: only the latter.
    login: the name by which it is, where the mail server says so; whether the sender is of that login it does not say.
    peer: the address that the connection comes from, the client's or that of a relay for others. proven: whether the
    peer is the mail server of this host, as the kernel says; only then is the sender more than a claim, because any
    process may connect to a port. purpose: the same for all recipients. refused: codes of the replies to recipients
    that were deferred or rejected. began: time of MAIL by the event loop's clock. size: bytes that the client has
    declared, or 0. origin: number by which memory of the real client is counted, 0 if that is trusted. each: the client
    hears a reply to the mail for each recipient; only then opening and accepted have the commands that the next hop has
    accepted, from XFORWARD to MAIL, and RCPT in the order of the recipients.
    """

    sender: bytes
    client: str
    _: KW_ONLY
    own: bool = False
    authenticated: bool = False
    proven: bool = False
    peer: str = ""
    began: float = 0.0
    size: int = 0
    origin: int = 0
    login: bytes = b""
    purpose: Purpose = "relay"
    recipients: list[bytes] = field(default_factory=list)
    refused: list[int] = field(default_factory=list)
    each: bool = False
    opening: tuple[bytes, ...] = ()
    accepted: list[bytes] = field(default_factory=list)

    def part(self, numbers: Sequence[int]) -> "Transaction":
        """The same for some of the recipients."""
        recipients, accepted = ([lines[number] for number in numbers] for lines in (self.recipients, self.accepted))
        return replace(self, recipients=recipients, accepted=accepted)

    def mailboxes(self) -> list[str]:
        """The addresses of the recipients, in lower case."""
        return [mailbox_of(recipient.decode("utf-8", "replace")) for recipient in self.recipients]

    def author(self) -> str:
        """The author of the marks that this mail makes: login or sender if proven, or else the client's IP address.

        A reverse-path can be forged: with the address of another user one could change that user's marks, with many
        addresses evade `marks_a_day`. On a port for authenticated senders the client's address can be forged, too, but
        not the peer's. The name of a client has blanks and no '@', unlike an address or a login name.
        """
        if self.proven:
            owner = _owner((self.login or self.sender).decode("utf-8", "backslashreplace"))
            # As IMAP has it, so letters of any script stay; what a terminal would obey, and nobody sees, does not.
            return "".join(sign if sign.isprintable() else printable(sign) for sign in owner)[:MAX_NAME]
        address = self.peer if self.authenticated else self.client
        # A zone may be any text; on the loopback, every local user can choose among millions of addresses.
        client = ipaddress.ip_address(address.partition("%")[0])
        return f"mail from {'localhost' if client.is_loopback else client}"


def _owner(sender: str) -> str:
    """The login, or the address of the login that a mail server has let this sender use, however it is written.

    Without quotes, source route and extension (+tag): Postfix looks up the same owner for all of them.
    """
    if "@" not in sender:
        return folded(sender)
    local, _, domain = mailbox_of(sender).replace("\\", "").rpartition("@")
    return f"{local.partition('+')[0] or local}@{domain}"
