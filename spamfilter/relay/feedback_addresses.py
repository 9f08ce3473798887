"""Feedback by mail: a mail to a feedback address teaches the mails that are attached to it.

Guarantee: the attached mails are learnt, or the mail itself if it was resent, or is a redirected copy of a mail that
the relay has judged; never a text that the sender wrote. 250 only after everything that can be learnt is in the store.
"""

import asyncio
import logging
from collections.abc import Callable

from spamfilter.bayes.labels import Label
from spamfilter.errors import InputError, Refused
from spamfilter.learning.mark_lookup import WRITTEN_WITHIN, by_mail
from spamfilter.learning.marks import Author
from spamfilter.mail.attached_mails import addresses_in, is_mail, mails_of
from spamfilter.mail.folded_addresses import folded
from spamfilter.mail.message import parse
from spamfilter.mail.tagging import header_id
from spamfilter.relay.envelope import Transaction
from spamfilter.relay.feedback_answers import MarkResult, send
from spamfilter.relay.next_hops import Reply
from spamfilter.relay.relay import Relay
from spamfilter.system.escaping import printable

log = logging.getLogger(__name__)

MAX_REPLY = 400
"""Characters of the text of a reply: RFC 5321 section 4.5.3.1.5 allows 512 bytes for the line."""
INLINE = Reply.of(
    "550-5.6.0 No mail is attached to this one, so nothing was learnt.",
    "550-5.6.0 Use 'forward as attachment' of your mail program (one or several mails),",
    "550-5.6.0 or 'redirect' (also called 'bounce' or 'resend'); a quoted mail is not the mail that came.",
    "550 5.6.0 What is within S/MIME, PGP or an .msg file cannot be read here.",
)


async def learn(relay: Relay, transaction: Transaction, mail: bytes, gone: Callable[[], bool]) -> Reply:
    """Learn the mails in a feedback mail. Raises StoreError or TimeoutError; what was learnt before stays learnt."""
    label: Label = "ham" if transaction.purpose == "ham" else "spam"
    sender = folded(transaction.sender.decode("utf-8", "backslashreplace"))
    author = Author(transaction.author(), "address")
    async with asyncio.timeout(relay.limits.final_seconds):
        try:
            if await _is_redirected(relay, transaction, mail, sender):
                mails = [mail]  # what is attached to it, its sender has chosen
            else:
                mails = await asyncio.to_thread(mails_of, mail, sender, _addresses(relay))
        except InputError as error:
            return Reply.of(f"550 5.6.0 {error}")
        if not mails:
            return INLINE
        itself = mails == [mail]
        results = [
            await _learnt(relay, one, "this mail" if itself else f"attached mail {number}", label, author)
            for number, one in enumerate(mails, 1)
        ]
    text = _summary(results, label)
    log.info(
        "feedback: %s by %s (address) from=<%s>: %s",
        label, printable(author.name), printable(sender), printable(text, MAX_REPLY),
    )  # fmt: skip
    if not any(result.marked for result in results):
        return Reply.of(f"550 5.7.1 {printable(results[0].refused, MAX_REPLY)}")
    if relay.feedback.answer and not gone():  # a client that has hung up sends it again, and gets its answer then
        relay.in_background(send(relay, transaction, mail, label, results))
    return Reply.of(f"250 2.0.0 {printable(text, MAX_REPLY)}")


def _addresses(relay: Relay) -> frozenset[str]:
    return frozenset((*relay.feedback.spam_addresses, *relay.feedback.ham_addresses))


async def _learnt(relay: Relay, mail: bytes, name: str, label: Label, author: Author) -> MarkResult:
    if not is_mail(mail):
        return MarkResult(mail, None, f"{name}: no mail, it has no header")
    try:
        return MarkResult(mail, await relay.mark_queue.mark_mail(mail, name, label, author))
    except (Refused, InputError) as error:
        return MarkResult(mail, None, str(error))


async def _is_redirected(relay: Relay, transaction: Transaction, mail: bytes, sender: str) -> bool:
    """Whether this is a copy of a mail that the relay has judged, redirected without a trace in its header.

    A sender's own mail is not, even if it was judged on its way to other recipients.
    """
    if not addresses_in(parse(mail).fields, b"to", b"cc").isdisjoint(_addresses(relay)):
        return False
    filter = relay.judge.filter
    id = (await asyncio.to_thread(by_mail, filter, "", mail)).id
    if not id and header_id(mail):
        await asyncio.sleep(WRITTEN_WITHIN)  # a mailbox rule may redirect a mail before the journal is written
        id = (await asyncio.to_thread(by_mail, filter, "", mail)).id
    entry = await asyncio.to_thread(filter.store.find_journal, id) if id else None
    if entry is None:
        return False
    return folded(entry.sender) != sender or not (transaction.authenticated or relay.trusts(entry.client))


def _summary(results: list[MarkResult], label: Label) -> str:
    """As in: learnt 2 as spam, 1 known before."""
    marked = [result.marked for result in results if result.marked]
    learnt = sum(result.teaches(label) for result in results)
    refused = [result.refused for result in results if result.refused]
    text = f"learnt {learnt} as {label}"
    if learnt < len(marked):
        text += f", {len(marked) - learnt} known before"
    if refused:
        text += f", {len(refused)} refused: {refused[0]}"
    return text
