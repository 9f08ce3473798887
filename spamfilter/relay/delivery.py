"""From a received message to its reply: judge, tag, deliver, write the journal.

Guarantee: the reply is positive only after the next hop's, or after the message is synced to the quarantine. A fault is
a 4xx, and the client keeps the mail.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from spamfilter.errors import NextHopError
from spamfilter.learning.automatic_rules import Seen
from spamfilter.mail.tagging import header_end, mark
from spamfilter.relay.envelope import Transaction
from spamfilter.relay.judging import Judgement
from spamfilter.relay.next_hops import Conversation, Reply
from spamfilter.relay.relay import Relay
from spamfilter.relay.sender_lists.decision import use_of
from spamfilter.relay.verdicts import Part, for_all, for_each
from spamfilter.stores import JournalEntry
from spamfilter.system.escaping import printable
from spamfilter.system.ids import new_id
from spamfilter.system.logs import SELDOM

log = logging.getLogger(__name__)

LARGE_HEADER = 262_144
"""Bytes of a header from which on it is tagged in a thread: one of 50 MB may have millions of forged fields."""


@dataclass(frozen=True, slots=True)
class JudgedMail:
    """A mail with its verdict, for the recipients of the transaction."""

    transaction: Transaction
    mail: bytes
    judgement: Judgement
    id: str


async def hand_over(
    relay: Relay, conversation: Conversation, transaction: Transaction, mail: bytes, gone: Callable[[], bool]
) -> Reply:
    """Judge a message and do what the verdict says; returns the reply for the client, with `each` for one of LMTP.

    gone: whether the client has hung up; if so, nothing is delivered. Of several verdicts, none is begun later than
    `limits.final_seconds` after the end of the mail: its recipients are deferred. Raises nothing but cancellation.
    """
    began = time.perf_counter()
    id = new_id()
    parts: list[Part]
    if transaction.each and not transaction.authenticated:
        parts = for_each(relay, transaction, mail, id)
    else:
        judgement = relay.judge.judge(mail, id, relay.judge.filter.group_of(transaction.mailboxes()))
        passes = transaction.authenticated  # whatever policies and rules say
        parts = [(judgement.passed() if passes else for_all(relay, transaction, mail, judgement, id), ())]
    if transaction.own and not transaction.sender:
        # A bounce that an own server hands over is lost if it is rejected, and with it the mail that it is about.
        parts = [(judgement.tagged(), numbers) for judgement, numbers in parts]
    judging = time.perf_counter() - began
    if len(parts) == 1:
        judged = JudgedMail(transaction, mail, parts[0][0], id)
        reply = await _carried_out(relay, conversation, judged, gone, judging)
        count_message(relay, mail, reply)
        return reply
    replies: dict[int, Reply] = {}
    end = began + relay.limits.final_seconds

    def late() -> bool:
        """A client that waits no longer for the replies to all would send the mail again to all."""
        return gone() or time.perf_counter() > end

    for judgement, numbers in parts:
        # Each verdict is a mail of its own: another header, another entry in the journal, another id.
        part = transaction.part(numbers)
        judged = JudgedMail(part, mail, judgement, new_id() if replies else id)
        reply = await _carried_out(relay, _Again(conversation, part), judged, late, judging)
        replies.update(zip(numbers, reply.for_each(len(numbers)), strict=True))
    together = Reply.together([replies[number] for number in sorted(replies)])
    count_message(relay, mail, together)
    return together


class _Again:
    """A conversation about some of the recipients that the next hop has accepted: their envelope is said anew."""

    def __init__(self, conversation: Conversation, part: Transaction) -> None:
        self._conversation = conversation
        self._part = part
        self.forget, self.abort = conversation.forget, conversation.abort

    async def data(self, parts: Sequence[bytes | memoryview]) -> Reply:
        """As of a conversation; a recipient that is no longer accepted has the reply that says so."""
        conversation, part = self._conversation, self._part
        await conversation.forget()
        conversation.pipeline([*part.opening, *part.accepted])
        for line in part.opening:
            reply = await conversation.command(line)
        if not reply.positive:
            return reply
        replies = [await conversation.command(line) for line in part.accepted]
        if taken := sum(reply.positive for reply in replies):
            outcomes = iter((await conversation.data(parts)).for_each(taken))
            replies = [next(outcomes) if reply.positive else reply for reply in replies]
        return Reply.together(replies)


async def _carried_out(
    relay: Relay, conversation: Conversation | _Again, judged: JudgedMail, gone: Callable[[], bool], judging: float
) -> Reply:
    """Do what a verdict says, and record it; returns the reply. judging: seconds that the verdicts took.

    Raises nothing but cancellation.
    """
    started = time.perf_counter()
    try:
        reply = await _act(relay, conversation, judged, gone)
    except NextHopError as error:
        log.warning("%s: %s", judged.id, printable(str(error), 300))
        relay.failed(error)
        conversation.abort()
        reply = Reply.of(f"451 4.4.2 The next hop does not answer; try again later ({judged.id})")
    except Exception:
        log.exception("%s: the hand-over failed", judged.id)
        conversation.abort()
        reply = _fault(relay, judged.id)
    times = int(judging * 1e6), int((judging + time.perf_counter() - started) * 1e6)
    try:
        for number, (outcome, part) in enumerate(_by_reply(judged.transaction, reply)):
            named = JudgedMail(part, judged.mail, judged.judgement, new_id() if number else judged.id)
            record(relay, named, outcome, *times)
        _show_to_rules(relay, judged)
    except Exception:
        log.exception("%s: not journalled", judged.id)  # the client must hear the reply all the same
    return reply


def _fault(relay: Relay, id: str) -> Reply:
    """Count a fault of ours; returns the reply for the client."""
    relay.metrics.count("faults", "hand_over")
    return Reply.of(f"451 4.3.0 Temporary fault; try again later ({id})")


def _by_reply(transaction: Transaction, reply: Reply) -> list[tuple[Reply, Transaction]]:
    """First the recipients that have the mail, whose header has its id, with the reply for one of them: Dovecot and
    Cyrus name each in its own. Then the others, by their replies."""
    if len({each.raw for each in reply.each}) < 2:
        return [(reply, transaction)]
    found: dict[bytes, tuple[Reply, list[int]]] = {}
    for number, each in enumerate(reply.each):
        found.setdefault(b"" if each.positive else each.raw, (each, []))[1].append(number)
    groups = sorted(found.values(), key=lambda group: group[0].code)
    return [(each, transaction.part(numbers)) for each, numbers in groups]


async def _act(
    relay: Relay, conversation: Conversation | _Again, judged: JudgedMail, gone: Callable[[], bool]
) -> Reply:
    transaction, mail, verdict, id = judged.transaction, judged.mail, judged.judgement.verdict, judged.id
    policy = relay.judge.policies.get(verdict.policy, relay.judge.policy)
    if verdict.action not in ("pass", "tag"):
        await conversation.forget()
    if verdict.action == "reject":
        if verdict.listed.startswith("blocked=") and verdict.class_ != "spam":
            return Reply.of(f"550 5.7.1 Sender blocked; if that is wrong, tell the postmaster this id: {id}")
        return Reply.of(f"550 5.7.1 Refused as spam; if it is not, tell the postmaster this id: {id}")
    if verdict.action == "defer":
        return Reply.of(f"451 4.7.1 Deferred; try again later ({id})")
    fields = verdict.fields(id, policy.evidence_header)
    if transaction.authenticated:
        fields = fields[-1:]  # the id alone
    prefix = policy.subject_prefix if verdict.action == "tag" else ""
    if header_end(mail) > LARGE_HEADER:
        parts = await asyncio.to_thread(mark, mail, fields, prefix)
    else:
        parts = mark(mail, fields, prefix)
    if gone():
        # The client will send it again, so to deliver it now would duplicate it.
        raise NextHopError("the client hung up, or waits for too long, before the hand-over", kind="")
    if verdict.action == "quarantine":
        folder = relay.quarantine_folder
        try:
            await asyncio.to_thread(folder.write, parts, transaction.sender, transaction.recipients, id)
        except OSError as error:
            why = "the quarantine %s cannot be written: %s; mail for it is deferred"
            log.error(why, folder.path, error.strerror, extra=SELDOM)  # noqa: TRY400 - the sentence says it
            return _fault(relay, id)
        return Reply.of(f"250 2.0.0 Ok: {id}")
    began = time.perf_counter()
    reply = await conversation.data(parts)
    relay.metrics.observe("stage_seconds", time.perf_counter() - began, "next_hop")
    if reply.code >= 400:
        relay.metrics.count("next_hop_failures", f"{reply.code // 100}xx")
    return reply


def _show_to_rules(relay: Relay, judged: JudgedMail) -> None:
    """Show the mail to the automatic rules, if there are any."""
    transaction, judgement = judged.transaction, judged.judgement
    if relay.feedback.automatic and judgement.message and judgement.reading:
        sender, mailboxes = transaction.sender.decode("utf-8", "replace"), transaction.mailboxes()
        proven, authenticated = transaction.proven, transaction.authenticated
        seen = Seen(judged.id, judgement.message, judgement.reading, sender, mailboxes, proven, authenticated)
        relay.automatic.saw(seen, relay.feedback)


def count_message(relay: Relay, mail: bytes, reply: Reply) -> None:
    """Count the bytes of a mail and what its client heard, once for all its recipients, verdicts and replies."""
    best = min(each.code for each in reply.for_each(1))
    relay.metrics.count("final_replies", f"{best // 100}xx")
    relay.metrics.count("message_bytes", by=len(mail))


def record(relay: Relay, judged: JudgedMail, reply: Reply, judge_us: int, total_us: int) -> None:
    """Record a verdict with its reply in log, journal and metrics."""
    transaction, judgement = judged.transaction, judged.judgement
    verdict, message = judgement.verdict, judgement.message
    entry = JournalEntry(
        id=judged.id,
        at=datetime.now(UTC),
        digest=judgement.digest,
        message_id=message.field(b"message-id") if message else "",
        sender=transaction.sender.decode("utf-8", "replace"),
        recipients=[recipient.decode("utf-8", "replace") for recipient in transaction.recipients],
        subject=message.field(b"subject").strip() if message else "",
        size=len(judged.mail),
        client=transaction.client,
        log_odds=verdict.score.log_odds,
        score=verdict.score.posterior,
        class_=verdict.class_,
        action=verdict.action,
        reply=reply.text,
        judge_us=judge_us,
        total_us=total_us,
        listed=verdict.listed,
        host=relay.hostname,
        evidence=[(item.token, item.weight) for item in verdict.evidence],
        tokens=judgement.reading.tokens if judgement.reading else None,
    )
    relay.record(entry, message.defects if message else ())
    metrics = relay.metrics
    metrics.count("messages", verdict.class_, verdict.action)
    if verdict.listed:
        metrics.count("rules_met", use_of(verdict.listed))
    metrics.observe("score", verdict.score.posterior)
    for stage, seconds in judgement.stages.items():
        metrics.observe("stage_seconds", seconds, stage)
    metrics.observe("judge_seconds", judge_us / 1e6)
    metrics.observe("hand_over_seconds", total_us / 1e6)
    metrics.observe("transaction_seconds", asyncio.get_running_loop().time() - transaction.began)
    if verdict.fault:
        metrics.count("faults", "judge")
