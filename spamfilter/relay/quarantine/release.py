"""The conversation of a release: a kept mail goes to the next hop, with a verdict that says so.

Guarantee: the file goes, or loses a recipient, only after the next hop's 250 for it. Before the text is sent, the file
gets Maildir's flag P ("passed"), and loses it if the next hop rejects the mail.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from spamfilter.errors import NextHopError, Refused, SpamfilterError, StoreError, TryAgain
from spamfilter.mail.tagging import mark
from spamfilter.relay.next_hops import Conversation, Maildir, Reply
from spamfilter.relay.next_hops.maildir import wrapped
from spamfilter.relay.quarantine.kept_mail import Quarantined, flagged, move, readable
from spamfilter.system.escaping import printable

RELEASED = "No, released from quarantine"
"""The X-Spam-Status of a released mail: without score and class, by which a mail server could file it as spam."""


@dataclass(frozen=True, slots=True)
class Released:
    """The result of a release: the mail as it was sent, its recipients, and those that were rejected, with replies.

    unnoted: '', or why the database does not know of the delivery.
    """

    mail: bytes
    delivered: Sequence[bytes]
    refused: Sequence[tuple[bytes, Reply]]
    unnoted: str = ""


async def hand_over(
    conversation: Conversation,
    kept: Quarantined,
    text: bytes,
    sender: bytes,
    recipients: Sequence[bytes],
    others: Sequence[bytes],
    note: Callable[[Sequence[bytes]], None],
) -> Released:
    """Send a mail to these recipients; it stays for those that are rejected, and for the others.

    note: remembers a delivery; raises StoreError.
    """
    parameters = _parameters(conversation, text, (sender, *recipients))
    reply = await conversation.command(b"MAIL FROM:<%s>%s" % (sender, parameters))
    if not reply.positive:
        raise _refusal(kept, reply)
    replies = [await conversation.command(b"RCPT TO:<%s>" % recipient) for recipient in recipients]
    taken = [name for name, reply in zip(recipients, replies, strict=True) if reply.positive]
    refused = [(name, reply) for name, reply in zip(recipients, replies, strict=True) if not reply.positive]
    if not taken:
        raise _refusal(kept, Reply.together(replies))
    marked = flagged(kept.path)
    move(kept.path, marked)
    sent = b"".join(mark(text, (("X-Spam-Status", RELEASED), ("X-Spamfilter-Id", kept.id))))
    try:
        reply = await conversation.data([sent])
    except NextHopError as error:
        raise TryAgain(
            f"{kept.id}: {error}; it may have been delivered nevertheless; it stays in quarantine"
        ) from error
    outcomes = list(zip(taken, reply.for_each(len(taken)), strict=True))
    taken = [name for name, outcome in outcomes if outcome.positive]
    refused += [(name, outcome) for name, outcome in outcomes if not outcome.positive]
    if not taken:
        move(marked, kept.path)
        raise _refusal(kept, reply)
    unnoted = ""
    try:
        note(taken)
    except StoreError as error:
        unnoted = str(error)
    keep_for([name for name, _ in refused] + [*others], kept, marked, text, sender, taken)
    return Released(sent, taken, refused, unnoted)


def keep_for(
    left: Sequence[bytes], kept: Quarantined, file: Path, text: bytes, sender: bytes, taken: Sequence[bytes]
) -> None:
    """Keep a mail for the recipients that are left, and remove its file if there are none.

    Raises StoreError if the file cannot be changed.
    """
    try:
        if left:
            Maildir(file.parent.parent).put(wrapped(text, sender, left), file)
            move(file, kept.path)
        else:
            file.unlink()
    except OSError as error:
        names = ", ".join(f"<{readable(name)}>" for name in taken)
        raise StoreError(
            f"{kept.id}: was delivered to {names}, but {file} cannot be changed and names them still: {error.strerror}"
        ) from error


def _parameters(conversation: Conversation, text: bytes, paths: Sequence[bytes]) -> bytes:
    """The parameters of MAIL that this mail needs, as far as the next hop announces them.

    8-bit text in the header alone needs no SMTPUTF8: most senders send it without, and so did this mail's.
    """
    found = b""
    if not text.isascii() and "8BITMIME" in conversation.keywords:
        found += b" BODY=8BITMIME"
    if not all(path.isascii() for path in paths) and "SMTPUTF8" in conversation.keywords:
        found += b" SMTPUTF8"
    return found


def _refusal(mail: Quarantined, reply: Reply) -> SpamfilterError:
    kind = TryAgain if reply.code < 500 else Refused
    return kind(f"{mail.id}: the next hop says {printable(reply.text, 300)}; it stays in quarantine")
