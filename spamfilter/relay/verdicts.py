"""From one judgement to the verdicts for the recipients of a mail: their policies, and the rules on its sender.

Guarantee: never raises. A fault leaves the judgement as it is, for all recipients.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from spamfilter.relay.envelope import Transaction
from spamfilter.relay.judging import Judgement, policy_for
from spamfilter.relay.relay import Relay
from spamfilter.relay.sender_lists.decision import MILDEST_FIRST, Origin, Use, decided, of_some

log = logging.getLogger(__name__)

MOST_GROUPS = 20
"""Groups of one mail that have verdicts of their own, each a judging and a mail for the next hop. A mail for more of
them, as of a thousand mailboxes, belongs to none."""
Part = tuple[Judgement, Sequence[int]]
"""A judgement, and the numbers of the recipients that it is for."""


def for_all(relay: Relay, transaction: Transaction, mail: bytes, judgement: Judgement, id: str) -> Judgement:
    """One verdict for all recipients: the one with the mildest action of those that each would have.

    If they have several policies, its header, which all of them read, names none, nor a rule of some of them only.
    """
    parts = [part for part, _ in _parts(relay, transaction, mail, judgement, id, each=False)]
    mildest = min(parts, key=lambda part: MILDEST_FIRST.index(part.verdict.action))
    verdict = replace(mildest.verdict, for_some=mildest.verdict.for_some or len(parts) > 1)
    if any(part.verdict.listed != verdict.listed for part in parts):
        verdict = replace(verdict, listed=of_some(verdict.listed))
    return replace(mildest, verdict=verdict)


def for_each(relay: Relay, transaction: Transaction, mail: bytes, id: str) -> list[Part]:
    """The verdicts of all recipients; those of one group with the same policy and rule on the sender share one."""
    groups: dict[str, list[int]] = {}
    for number, mailbox in enumerate(transaction.mailboxes()):
        groups.setdefault(relay.judge.filter.group_of([mailbox]), []).append(number)
    if len(groups) > MOST_GROUPS:
        groups = {"": [*range(len(transaction.recipients))]}
    parts: list[Part] = []
    for group, numbers in groups.items():
        judgement = relay.judge.judge(mail, id, group)
        of_group = _parts(relay, transaction.part(numbers), mail, judgement, id, each=True)
        parts += [(part, [numbers[at] for at in some]) for part, some in of_group]
    return parts


def _parts(
    relay: Relay, transaction: Transaction, mail: bytes, judgement: Judgement, id: str, *, each: bool
) -> list[Part]:
    everybody = range(len(transaction.recipients))
    if not (relay.lists or relay.judge.policies):
        return [(judgement, everybody)]
    parts: list[Part] = []
    try:
        mailboxes = transaction.mailboxes()
        uses = _uses(relay, transaction, mail, mailboxes)
        policies = [policy_for([mailbox], relay.judge.policies, relay.judge.policy) for mailbox in mailboxes]
        groups: dict[tuple[str, Use | None], list[int]] = {}
        for number in everybody:
            groups.setdefault((policies[number].table, uses[number] if each else None), []).append(number)
        for numbers in groups.values():
            policy = policies[numbers[0]]
            part = relay.judge.under(judgement, policy) if policy.name else judgement
            verdict = decided(part.verdict, policy, [uses[number] for number in numbers])
            for_some = len({policies[number].name for number in numbers}) > 1
            parts.append((replace(part, verdict=replace(verdict, for_some=for_some)), numbers))
    except Exception:
        log.exception("%s: the policies and lists of the recipients cannot be applied", id)
        relay.metrics.count("faults", "judge")
        parts = []
    return parts or [(judgement, everybody)]


def _uses(relay: Relay, transaction: Transaction, mail: bytes, mailboxes: Sequence[str]) -> Sequence[Use | None]:
    """The rule on the sender for each recipient."""
    if not relay.lists:
        return [None] * len(mailboxes)
    sender = transaction.sender.decode("utf-8", "replace")
    results_from = relay.lists.results_from if relay.trusts(transaction.peer) else ()
    return relay.lists.uses(Origin(mail, sender, transaction.client, results_from), mailboxes, datetime.now(UTC))
