"""Transactions that end here: mail to a feedback address, and `doctor`'s canary.

Their recipients are ours, so the next hop hears no RCPT. It has heard MAIL, as of every mail: where it is down, MAIL
says 451 and such mail waits at the client with the rest. Guarantee: none of it is ever handed on.
"""

import logging
import time
from collections.abc import Callable

from spamfilter.errors import StoreError
from spamfilter.relay.delivery import record
from spamfilter.relay.envelope import Purpose, Transaction
from spamfilter.relay.envelope_paths import mailbox_of
from spamfilter.relay.feedback_addresses import learn
from spamfilter.relay.next_hops import Reply
from spamfilter.relay.relay import Relay
from spamfilter.system.escaping import printable
from spamfilter.system.ids import new_id

log = logging.getLogger(__name__)

MAX_SENDER = 254
"""Bytes of the longest address that a path of RFC 5321 section 4.5.3.1.3 holds; it becomes an author's name."""


def purpose_of(relay: Relay, path: str) -> Purpose:
    """What a recipient is for."""
    address = mailbox_of(path)
    if address in relay.feedback.spam_addresses:
        return "spam"
    if address in relay.feedback.ham_addresses:
        return "ham"
    return "canary" if address in relay.canaries else "relay"


def refusal(transaction: Transaction, purpose: Purpose) -> Reply | None:
    """The reply to a recipient that this transaction cannot have, None where it can."""
    # A canary's address is a secret that only the administrator is told: who knows it may use it, from anywhere.
    if purpose in ("spam", "ham"):
        if not transaction.own:
            return Reply.of("550 5.7.1 This address is for our own users; their mail comes from trusted networks")
        # A name without domain might be that of a local user, who teaches by other ways.
        if b"@" not in transaction.sender or len(transaction.sender) > MAX_SENDER:
            return Reply.of("550 5.7.1 Feedback needs a sender, an address with its domain")
    if transaction.recipients and transaction.purpose != purpose:
        return Reply.of("452 4.5.3 Recipients of another kind; send to this one separately")
    return None


async def end_here(relay: Relay, transaction: Transaction, mail: bytes, gone: Callable[[], bool]) -> Reply:
    """Do with a mail what its recipients are for; returns what the client shall hear.

    Raises nothing but cancellation. What fails is a 451: learning it again changes nothing.
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
    """Judge and journal as any mail that passes. Each address is good for one mail."""
    addresses = {mailbox_of(path.decode("utf-8", "replace")) for path in transaction.recipients}
    if not addresses <= relay.canaries:
        return Reply.of("550 5.7.1 This address was used already")
    relay.canaries -= addresses
    began = time.perf_counter()
    id = new_id()
    judgement = relay.judge.judge(mail, id).passed()
    reply = Reply.of(f"250 2.0.0 Ok: canary {id}")
    microseconds = int((time.perf_counter() - began) * 1e6)
    record(relay, transaction, mail, judgement, id, reply, microseconds, microseconds)
    return reply
