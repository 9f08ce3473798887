"""Mail that is delivered to the relay itself: feedback, and probes of `doctor`.

The next hop hears no RCPT of such a transaction. It has heard MAIL, as of every mail: if it is down, MAIL is answered
with 451, and this mail waits at the client, too. Guarantee: such mail is never sent on.
"""

import logging
import time
from collections.abc import Callable

from spamfilter.errors import StoreError
from spamfilter.relay.delivery import JudgedMail, count_message, record
from spamfilter.relay.envelope import Purpose, Transaction
from spamfilter.relay.envelope_paths import mailbox_of
from spamfilter.relay.feedback_addresses import learn
from spamfilter.relay.next_hops import Reply
from spamfilter.relay.relay import Relay
from spamfilter.system.escaping import printable
from spamfilter.system.ids import new_id

log = logging.getLogger(__name__)

MAX_SENDER = 254
"""Bytes of the longest address by RFC 5321 section 4.5.3.1.3; it becomes an author's name."""


def purpose_of(relay: Relay, path: str) -> Purpose:
    address = mailbox_of(path)
    if address in relay.feedback.spam_addresses:
        return "spam"
    if address in relay.feedback.ham_addresses:
        return "ham"
    return "canary" if address in relay.canaries else "relay"


OTHER_KIND = Reply.of("452 4.5.3 Recipients of another kind; send to this one separately")


def refusal(transaction: Transaction, purpose: Purpose) -> Reply | None:
    """The reply to a recipient that this transaction may not have; None if it may."""
    # The address of a probe is a secret that only administrators get, so it needs no other protection.
    if purpose in ("spam", "ham"):
        if not transaction.own:
            return Reply.of("550 5.7.1 This address is for our own users; their mail comes from trusted networks")
        # A name without a domain might be the login name of a local user, who has other ways to mark.
        if b"@" not in transaction.sender or len(transaction.sender) > MAX_SENDER:
            return Reply.of("550 5.7.1 Feedback needs a sender, an address with its domain")
    if transaction.recipients and transaction.purpose != purpose:
        return OTHER_KIND
    return None


async def end_here(relay: Relay, transaction: Transaction, mail: bytes, gone: Callable[[], bool]) -> Reply:
    """Learn a feedback mail or judge a probe; returns the reply for the client.

    Raises nothing but cancellation. A failure is a 451: learning a mail again changes nothing.
    """
    try:
        if transaction.purpose == "canary":
            return _judge_canary(relay, transaction, mail)
        return await learn(relay, transaction, mail, gone)
    except (StoreError, TimeoutError) as error:
        log.warning("feedback by %s: %s", printable(repr(transaction.sender)), error or "took too long")
        relay.metrics.count("faults", "feedback")
        return Reply.of("451 4.3.0 This cannot be learnt now; try again later")
    except Exception:
        log.exception("a mail for ourselves failed")
        relay.metrics.count("faults", "feedback")
        return Reply.of("451 4.3.0 Temporary fault; try again later")


def _judge_canary(relay: Relay, transaction: Transaction, mail: bytes) -> Reply:
    """Judge and journal a probe like any mail. Each address takes one mail."""
    addresses = {*transaction.mailboxes()}
    if not addresses <= relay.canaries:
        return Reply.of("550 5.7.1 This address was used already")
    relay.canaries -= addresses
    began = time.perf_counter()
    id = new_id()
    judged = JudgedMail(transaction, mail, relay.judge.judge(mail, id).passed(), id)
    reply = Reply.of(f"250 2.0.0 Ok: canary {id}")
    microseconds = int((time.perf_counter() - began) * 1e6)
    record(relay, judged, reply, microseconds, microseconds)
    count_message(relay, mail, reply)
    return reply
