"""From a received message to its reply: judge, tag, deliver, write the journal.

Guarantee: the reply is positive only after the next hop's, or after the message is synced to the quarantine. A fault is
a 4xx, and the client keeps the mail.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

from spamfilter.errors import NextHopError
from spamfilter.learning.automatic_rules import Seen
from spamfilter.mail.tagging import header_end, mark
from spamfilter.relay.envelope import Transaction
from spamfilter.relay.envelope_paths import mailbox_of
from spamfilter.relay.judging import Judgement
from spamfilter.relay.next_hops import Conversation, Reply
from spamfilter.relay.relay import Relay
from spamfilter.relay.sender_lists.decision import Origin, use_of
from spamfilter.relay.sender_lists.decision import decided as after_rules
from spamfilter.stores import JournalEntry
from spamfilter.system.escaping import printable
from spamfilter.system.ids import new_id
from spamfilter.system.logs import SELDOM, Event

log = logging.getLogger(__name__)

LARGE_HEADER = 262_144
"""Bytes of a header from which on it is tagged in a thread: one of 50 MB may have millions of forged fields."""


class _NotKept(Exception):
    """The quarantine could not be written; the text says why."""


async def hand_over(
    relay: Relay, conversation: Conversation, transaction: Transaction, mail: bytes, gone: Callable[[], bool]
) -> Reply:
    """Judge a message and do what the verdict says; returns the reply for the client.

    gone: whether the client has hung up; if so, nothing is delivered. Raises nothing but cancellation.
    """
    began = time.perf_counter()
    id = new_id()
    judgement = judged(relay, transaction, mail, id)
    decided = time.perf_counter()
    try:
        reply = await _act(relay, conversation, transaction, mail, judgement, id, gone)
    except NextHopError as error:
        log.warning("%s: %s", id, printable(str(error), 300))
        relay.failed(error)
        conversation.abort()
        reply = Reply.of(f"451 4.4.2 The next hop does not answer; try again later ({id})")
    except _NotKept as error:
        log.error("%s; mail for it is deferred", error, extra=SELDOM)  # noqa: TRY400 - the sentence says it
        relay.metrics.count("faults", "hand_over")
        conversation.abort()
        reply = Reply.of(f"451 4.3.0 Temporary fault; try again later ({id})")
    except Exception:
        log.exception("%s: the hand-over failed", id)
        relay.metrics.count("faults", "hand_over")
        conversation.abort()
        reply = Reply.of(f"451 4.3.0 Temporary fault; try again later ({id})")
    ended = time.perf_counter()
    try:
        record(relay, transaction, mail, judgement, id, reply, int((decided - began) * 1e6), int((ended - began) * 1e6))
        show_to_rules(relay, transaction, judgement, id)
    except Exception:
        log.exception("%s: not journalled", id)  # the client must hear the reply all the same
    return reply


def judged(relay: Relay, transaction: Transaction, mail: bytes, id: str) -> Judgement:
    """The verdict on a mail, after the rules on its sender. Mail of authenticated senders always passes."""
    judgement = relay.judge.judge(mail, id, relay.judge.filter.group_of(mailboxes_of(transaction)))
    if transaction.authenticated:
        return judgement.passed()
    return _listed(relay, transaction, mail, judgement, id) if relay.lists else judgement


def mailboxes_of(transaction: Transaction) -> list[str]:
    """The addresses of the recipients, in lower case."""
    return [mailbox_of(recipient.decode("utf-8", "replace")) for recipient in transaction.recipients]


def _listed(relay: Relay, transaction: Transaction, mail: bytes, judgement: Judgement, id: str) -> Judgement:
    """The judgement after the rules on its sender; a fault leaves it as it is."""
    try:
        origin = Origin(
            mail,
            mailbox_of(transaction.sender.decode("utf-8", "replace")),
            transaction.client,
            relay.lists.results_from if relay.trusts(transaction.peer) else (),
        )
        recipients = mailboxes_of(transaction)
        uses = relay.lists.uses(origin, recipients, datetime.now(UTC))
        return replace(judgement, verdict=after_rules(judgement.verdict, relay.judge.policy, uses))
    except Exception:
        log.exception("%s: the lists of senders cannot be applied", id)
        relay.metrics.count("faults", "judge")
        return judgement


async def _act(
    relay: Relay,
    conversation: Conversation,
    transaction: Transaction,
    mail: bytes,
    judgement: Judgement,
    id: str,
    gone: Callable[[], bool],
) -> Reply:
    verdict, policy = judgement.verdict, relay.judge.policy
    if verdict.action == "reject":
        await conversation.forget()
        if verdict.listed.startswith("blocked=") and verdict.class_ != "spam":
            return Reply.of(f"550 5.7.1 Sender blocked; if that is wrong, tell the postmaster this id: {id}")
        return Reply.of(f"550 5.7.1 Refused as spam; if it is not, tell the postmaster this id: {id}")
    if verdict.action == "defer":
        await conversation.forget()
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
        raise NextHopError("the client hung up before the hand-over", kind="")
    if verdict.action == "quarantine":
        try:
            await asyncio.to_thread(relay.quarantine.write, parts, transaction.sender, transaction.recipients, id)
        except OSError as error:
            raise _NotKept(f"the quarantine {relay.quarantine.path} cannot be written: {error.strerror}") from error
        await conversation.forget()
        return Reply.of(f"250 2.0.0 Ok: {id}")
    began = time.perf_counter()
    reply = await conversation.data(parts)
    relay.metrics.observe("stage_seconds", time.perf_counter() - began, "next_hop")
    if reply.code >= 400:
        relay.metrics.count("next_hop_failures", f"{reply.code // 100}xx")
    return reply


def show_to_rules(relay: Relay, transaction: Transaction, judgement: Judgement, id: str) -> None:
    """Show the mail to the automatic rules, if there are any."""
    if relay.feedback.automatic and judgement.message and judgement.reading:
        seen = Seen(
            id,
            judgement.message,
            judgement.reading,
            transaction.sender.decode("utf-8", "replace"),
            mailboxes_of(transaction),
            transaction.proven,
            transaction.authenticated,
        )
        relay.automatic.saw(seen, relay.feedback)


def record(
    relay: Relay,
    transaction: Transaction,
    mail: bytes,
    judgement: Judgement,
    id: str,
    reply: Reply,
    judge_us: int,
    total_us: int,
) -> None:
    """Record a mail in log, journal and metrics."""
    verdict, message = judgement.verdict, judgement.message
    sender = transaction.sender.decode("utf-8", "replace")
    text = reply.text
    recipients = [recipient.decode("utf-8", "replace") for recipient in transaction.recipients]
    log.info(
        Event(
            id,
            {
                "client": transaction.client,
                "from": sender,
                "to": recipients[0] if recipients else "",
                "recipients": len(recipients),
                "size": len(mail),
                "class": verdict.class_,
                "score": verdict.posterior,
                "action": verdict.action,
                "listed": verdict.listed.replace(" ", ",") or "-",
                "judge_us": judge_us,
                "total_us": total_us,
                "defects": ",".join(message.defects) if message else "-",
                "reply": text,
            },
        )
    )
    relay.journal.add(
        JournalEntry(
            id=id,
            at=datetime.now(UTC),
            digest=judgement.digest,
            message_id=message.field(b"message-id") if message else "",
            sender=sender,
            recipients=recipients,
            subject=message.field(b"subject") if message else "",
            size=len(mail),
            client=transaction.client,
            log_odds=verdict.log_odds,
            score=verdict.posterior,
            class_=verdict.class_,
            action=verdict.action,
            reply=text,
            judge_us=judge_us,
            total_us=total_us,
            listed=verdict.listed,
            evidence=[(item.token, item.weight) for item in verdict.evidence],
            tokens=judgement.reading.tokens if judgement.reading else None,
        )
    )
    metrics = relay.metrics
    metrics.count("messages", verdict.class_, verdict.action)
    if verdict.listed:
        metrics.count("rules_met", use_of(verdict.listed))
    metrics.count("final_replies", f"{reply.code // 100}xx")
    metrics.count("message_bytes", by=len(mail))
    metrics.observe("score", verdict.posterior)
    for stage, seconds in judgement.stages.items():
        metrics.observe("stage_seconds", seconds, stage)
    metrics.observe("judge_seconds", judge_us / 1e6)
    metrics.observe("hand_over_seconds", total_us / 1e6)
    metrics.observe("transaction_seconds", asyncio.get_running_loop().time() - transaction.began)
    if verdict.fault:
        metrics.count("faults", "judge")
