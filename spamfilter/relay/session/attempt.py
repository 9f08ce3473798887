"""A mail whose text has not arrived yet: what the journal says of it if the text never arrives."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from spamfilter.relay.envelope_paths import encoded
from spamfilter.relay.local_delivery import OTHER_KIND
from spamfilter.relay.next_hops import Reply
from spamfilter.relay.relay import Relay
from spamfilter.stores import JournalEntry
from spamfilter.system.ids import new_id

LISTED = 20
"""Recipients that an entry names: some kilobytes."""
HUGE = 2**62
"""Declared bytes that the database can still hold."""
ONE_BY_ONE = Reply.of("452 4.5.3 One recipient at a time; send to this one separately")
SEPARATELY = (ONE_BY_ONE, OTHER_KIND)
"""Replies to a recipient to whom the client sends the mail again at once, by itself: nothing is deferred."""
OUT_OF_ORDER = (501, 503)
"""Codes of a command that was wrong here, and says nothing of the mail."""


@dataclass(slots=True)
class Attempt:
    """A transaction until its text has arrived.

    named: recipients so far. refused: those that were not accepted -> their reply. accepted: whether any was. reply: to
    the mail as a whole; at_mail: whether it was the reply to MAIL.
    """

    client: str
    sender: str
    size: int
    named: list[str] = field(default_factory=list)
    refused: dict[str, Reply] = field(default_factory=dict)
    accepted: list[str] = field(default_factory=list)
    reply: Reply | None = None
    at_mail: bool = False

    def heard(self, reply: Reply, recipient: str | None = None) -> None:
        """Note what the client has heard. recipient: the one that it was said of."""
        if recipient is None:
            if not reply.positive and reply.code not in OUT_OF_ORDER and self.reply is None:
                self.reply, self.at_mail = reply, not self.named
            return
        if reply in SEPARATELY:
            return
        if len(self.named) < LISTED:
            self.named.append(recipient)
        if reply.positive:
            self.refused.pop(recipient, None)
            if len(self.accepted) < LISTED:
                self.accepted.append(recipient)
        elif len(self.refused) < LISTED:
            self.refused.setdefault(recipient, reply)

    def record(self, relay: Relay, *, in_part: bool = False) -> None:
        """Record in log, journal and metrics what was not accepted. in_part: the mail goes on to some recipients."""
        found: dict[int, tuple[Reply, list[str]]] = {}
        whole = None if in_part else self.reply
        if whole is not None and self.at_mail:
            found[whole.code // 100] = whole, self.named
        else:
            for recipient, reply in self.refused.items():
                found.setdefault(reply.code // 100, (reply, []))[1].append(recipient)
            if whole is not None and (self.accepted or not self.named):
                found.setdefault(whole.code // 100, (whole, []))[1].extend(self.accepted)
        for reply, recipients in found.values():
            self._record(relay, reply, recipients)
        if found and not in_part and (whole is not None or not self.accepted):
            relay.metrics.count("final_replies", f"{min(found)}xx")

    def _record(self, relay: Relay, reply: Reply, paths: Sequence[str]) -> None:
        sender, *recipients = (encoded(path).decode("utf-8", "replace") for path in (self.sender, *paths))
        entry = JournalEntry(
            new_id(),
            datetime.now(UTC),
            sender=sender,
            recipients=recipients,
            size=min(self.size, HUGE),
            client=self.client,
            action="defer" if reply.code < 500 else "reject",
            reply=reply.text,
            host=relay.hostname,
        )
        relay.record(entry)
