"""From the bytes of a mail to a verdict.

Guarantee: never raises. A mail that cannot be parsed, tokenised or scored is unsure and passes; a header field says so,
and the error is in the log. A fault of ours loses no mail.
"""

import hashlib
import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter

from spamfilter.bayes.labels import Label
from spamfilter.bayes.model import Score
from spamfilter.bayes.verdict import EVIDENCE_SHOWN, TEST_EVIDENCE, TEST_SCORE, Action, Class, Policy, Verdict
from spamfilter.bayes.voices import Evidence, View, view
from spamfilter.learning.filter import Filter
from spamfilter.learning.transaction import Reading
from spamfilter.mail.message import Message, parse
from spamfilter.relay.envelope_paths import above, mailbox_of

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict and its input. After a fault, message and reading may be None.

    reading: makes its tokens anew when they are needed. stages: stage -> seconds; empty after a fault.
    """

    verdict: Verdict
    digest: bytes
    message: Message | None
    reading: Reading | None
    stages: Mapping[str, float]

    def passed(self) -> "Judgement":
        """The same judgement with the action "pass"."""
        return replace(self, verdict=replace(self.verdict, action="pass"))

    def tagged(self) -> "Judgement":
        """The same judgement, but what it would reject it tags."""
        return replace(self, verdict=replace(self.verdict, action="tag")) if self.verdict.action == "reject" else self


class Judge:
    """A filter and its policies, which may be replaced at any time.

    policy: of all recipients without one of their own. policies: address or domain of recipients -> their policy.
    """

    def __init__(self, filter: Filter, policy: Policy, policies: Mapping[str, Policy] | None = None) -> None:
        self.filter = filter
        self.policy = policy
        self.policies = policies or {}

    def under(self, judgement: Judgement, policy: Policy) -> Judgement:
        """The judgement by another policy: the same score, another class and action."""
        verdict = judgement.verdict
        class_: Class = "unsure"
        action = policy.on_fault()
        if not verdict.fault:
            is_test = judgement.message is not None and judgement.message.is_test
            class_, action = _decided(policy, verdict.score, verdict.learnt, is_test=is_test)
        verdict = replace(verdict, class_=class_, action=action, threshold=policy.spam, policy=policy.name)
        return replace(judgement, verdict=verdict)

    def judge(self, mail: bytes, id: str, group: str = "") -> Judgement:
        """Judge a mail. id: its name in the log if that fails. group: the one whose own voice speaks, too."""
        message = reading = None
        learnt: dict[Label, int] = {"ham": 0, "spam": 0}
        try:
            learnt = dict(self.filter.learnt)
            began = perf_counter()
            message = parse(mail)
            parsed = perf_counter()
            reading = self.filter.read(message, group)
            if isinstance(reading.tokens, View) and not message.is_test:
                reading.tokens.find()  # now, or the time that it takes would be in the stage "score"
            read = perf_counter()
            evidence: Sequence[Evidence]
            if message.is_test:
                score, evidence = TEST_SCORE, TEST_EVIDENCE
            else:
                score, evidence = self.filter.explained(reading, EVIDENCE_SHOWN)
            class_, action = _decided(self.policy, score, learnt, is_test=message.is_test)
            verdict = Verdict(
                score=score,
                class_=class_,
                action=action,
                threshold=self.policy.spam,
                learnt=learnt,
                evidence=evidence,
                size=message.size,
                scanned=message.scanned,
            )
            stages = {"parse": parsed - began, "tokens": read - parsed, "score": perf_counter() - read}
            # Drop its tokens: until it is in the journal, they would take five times the memory of the message.
            reading = Reading(reading.digest, view(self.filter.voices, message, group))
            return Judgement(verdict, reading.digest, message, reading, stages)
        except Exception as error:
            log.exception("%s: cannot be judged, passed on as unsure", id)
            verdict = Verdict(
                score=Score(0.0, 0.5),
                class_="unsure",
                action=self.policy.on_fault(),
                threshold=self.policy.spam,
                learnt=learnt,
                size=len(mail),
                scanned=len(mail),
                fault=type(error).__name__,
            )
            digest = reading.digest if reading else hashlib.blake2b(mail, digest_size=16).digest()
            return Judgement(verdict, digest, message, reading, {})


def policy_for(recipients: Collection[str], policies: Mapping[str, Policy], everybodys: Policy) -> Policy:
    """The policy of these recipients, as their client wrote them; everybody's where they have several.

    Recipients of one table have one: that of the first of them.
    policies: address or domain, in lower case -> its policy; everybodys: of recipients that have none.
    """
    addresses = (above(mailbox_of(path)) for path in recipients)
    found = [next((policies[name] for name in names if name in policies), everybodys) for names in addresses]
    return found[0] if len({policy.table for policy in found}) == 1 else everybodys


def _decided(policy: Policy, score: Score, learnt: Mapping[Label, int], *, is_test: bool) -> tuple[Class, Action]:
    return ("spam", policy.action_on("spam", score, learnt)) if is_test else policy.decide(score, learnt)
