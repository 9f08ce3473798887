"""The answer to a feedback mail, sent to its sender through the next hop: what was learnt from each mail.

Guarantee: a failure is logged and changes nothing else. Mail programs do not answer it: its reverse-path is empty, and
it has the Auto-Submitted field of RFC 3834.
"""

import asyncio
import logging
import quopri
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.header import Header
from email.utils import format_datetime, make_msgid

from spamfilter.bayes.labels import Label
from spamfilter.config.translation import translator
from spamfilter.errors import NextHopError
from spamfilter.learning.mark_queue import Marked
from spamfilter.mail.message import parse
from spamfilter.relay.envelope import Transaction
from spamfilter.relay.next_hops import offer
from spamfilter.relay.relay import Relay
from spamfilter.system.escaping import printable

log = logging.getLogger(__name__)

MAX_SUBJECT = 80
"""Characters of a subject: enough to recognise the mail."""
Say = Callable[..., str]
"""A translator."""
_MESSAGE_ID = re.compile(r"<[!-;=?-~]{1,300}>")


@dataclass(frozen=True, slots=True)
class MarkResult:
    """The result for one mail of a feedback mail: the mark, or why nothing was learnt."""

    mail: bytes
    marked: Marked | None
    refused: str = ""

    def teaches(self, label: Label) -> bool:
        """Whether its mark has changed the counts, and not only the author of the learning."""
        return self.marked is not None and self.marked.change.changed and self.marked.change.was != label


async def send(
    relay: Relay, transaction: Transaction, mail: bytes, label: Label, results: Sequence[MarkResult]
) -> None:
    """Tell the sender of a feedback mail what was learnt. Raises nothing but cancellation."""
    to = printable(repr(transaction.sender))
    try:
        content = await asyncio.to_thread(_mail, relay, transaction, mail, label, results)
        reply = await offer(relay.next_hop, b"", transaction.sender, content)
        if not reply.positive:
            log.warning("the answer to %s was not sent: %s", to, printable(f"the next hop says {reply.text}"))
    except NextHopError as error:
        log.warning("the answer to %s was not sent: %s", to, printable(str(error)))
    except Exception:
        log.exception("the answer to a feedback mail failed")


def _mail(relay: Relay, transaction: Transaction, mail: bytes, label: Label, results: Sequence[MarkResult]) -> bytes:
    say = translator(relay.feedback.language)
    message_id = _MESSAGE_ID.fullmatch(parse(mail).field(b"message-id"))
    heading = _heading(say, label, results)
    subject = Header(say("Spam filter: {heading}", heading=heading), header_name="Subject").encode(linesep="\r\n")
    fields = [
        f"From: <{transaction.mailboxes()[0]}>",
        f"To: <{transaction.sender.decode('utf-8', 'replace')}>",
        f"Subject: {subject}",
        f"Date: {format_datetime(datetime.now(UTC))}",
        f"Message-ID: {make_msgid(domain=relay.hostname)}",
        *([f"In-Reply-To: {message_id.group()}", f"References: {message_id.group()}"] if message_id else []),
        "Auto-Submitted: auto-replied",
        "MIME-Version: 1.0",
        "Content-Type: text/plain; charset=utf-8",
        "Content-Transfer-Encoding: quoted-printable",
    ]
    paragraphs = ["\n".join(_paragraph(say, number, label, result)) for number, result in enumerate(results, 1)]
    text = "\n\n".join([say("Your mail to the spam filter: {heading}.", heading=heading), *paragraphs]) + "\n"
    body = quopri.encodestring(text.encode("utf-8", "replace")).replace(b"\n", b"\r\n")
    return "\r\n".join(fields).encode("utf-8", "replace") + b"\r\n\r\n" + body


def _heading(say: Say, label: Label, results: Sequence[MarkResult]) -> str:
    """As in: learnt 2 as spam, 1 known before."""
    marked = [result.marked for result in results if result.marked]
    learnt = sum(result.teaches(label) for result in results)
    parts = [
        say("learnt {number} as spam", number=learnt)
        if label == "spam"
        else say("learnt {number} as not spam", number=learnt)
    ]
    if learnt < len(marked):
        parts.append(say("{number} known before", number=len(marked) - learnt))
    if len(marked) < len(results):
        parts.append(say("{number} refused", number=len(results) - len(marked)))
    return ", ".join(parts)


def _paragraph(say: Say, number: int, label: Label, result: MarkResult) -> list[str]:
    """What became of a mail. Why nothing was learnt is told in English, as in the reply and in the log."""
    subject = parse(result.mail).field(b"subject")[:MAX_SUBJECT]
    lines = [f"{number}. {''.join(sign if sign.isprintable() else ' ' for sign in subject) or say('(no subject)')}"]
    if result.marked is None:
        return [*lines, f"   {say('not learnt: {reason}', reason=printable(result.refused, 400))}"]
    change, id = result.marked.change, result.marked.subject.id
    if id:
        lines.append(f"   id {id}")
    if not result.teaches(label):
        known = say("already learnt as spam") if label == "spam" else say("already learnt as not spam")
        return [*lines, f"   {known}; {say('score {score}', score=f'{change.after.posterior:.3f}')}"]
    if change.was:
        said = (
            say("learnt as spam (was not spam, which is taken back)")
            if label == "spam"
            else say("learnt as not spam (was spam, which is taken back)")
        )
    else:
        said = say("learnt as spam") if label == "spam" else say("learnt as not spam")
    score = f"{change.before.posterior:.3f} -> {change.after.posterior:.3f}"
    return [*lines, f"   {said}; {say('score {score}', score=score)}"]
