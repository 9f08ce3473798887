"""The verdict on a message: its class, the action, and the header fields that tell both.

Guarantee: no byte of the mail enters a header field unescaped; values are printable ASCII.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from spamfilter.bayes.labels import Label
from spamfilter.bayes.model import Score
from spamfilter.bayes.voices import Evidence
from spamfilter.system.escaping import printable

Class = Literal["ham", "unsure", "spam"]
CLASSES: tuple[Class, ...] = get_args(Class)
Action = Literal["pass", "tag", "reject", "quarantine", "defer"]
ACTIONS: tuple[Action, ...] = get_args(Action)

EVIDENCE_SHOWN = 5
"""Tokens in the evidence header and in the journal: as many as fit into a line of a mail client."""


TEST_SCORE = Score(100.0, 1.0)
TEST_EVIDENCE = (Evidence("GTUBE", "", 0.0, 0.0, TEST_SCORE.log_odds),)
"""Score and evidence of a test mail (`Message.is_test`): spam for certain, whatever is learnt."""
PARTLY = " for-all=no"
"""In `Verdict.listed`: the rule is of some recipients, and others decide what becomes of the mail."""
LONGEST_LISTED = 400
"""Characters of the rule on a sender in the header: an address has at most 320."""


@dataclass(frozen=True, slots=True)
class Policy:
    """Thresholds on the posterior, and the action for each class.

    What is in doubt counts against each class: a message is spam, or rejected, if its least posterior reaches the
    threshold, and ham if its highest stays below `unsure`.

    name: the address or domain of recipients that it is for; '' is everybody. table: the first name of their table in
    the configuration, whose recipients share it.
    reject: spam that would be tagged is rejected from this posterior on; 0: never.
    reject_after: messages of each class that must be learnt before anything is rejected.
    may_reject: False where a rejection would become a bounce to a forged sender (after the queue).
    """

    spam: float = 0.9
    unsure: float = 0.5
    reject: float = 0.999
    reject_after: int = 200
    actions: Mapping[Class, Action] = field(default_factory=lambda: {"ham": "pass", "unsure": "pass", "spam": "tag"})
    may_reject: bool = True
    subject_prefix: str = ""
    evidence_header: bool = False
    name: str = ""
    table: str = ""

    def classify(self, score: Score, learnt: Mapping[Label, int]) -> Class:
        """The class of a message; nothing is spam before a ham is learnt, as all mail resembles what is learnt."""
        if score.least >= self.spam:
            return "spam" if learnt["ham"] else "unsure"
        return "unsure" if score.most >= self.unsure else "ham"

    def decide(self, score: Score, learnt: Mapping[Label, int]) -> tuple[Class, Action]:
        """The class of a message, and the action; a rejection that is not allowed becomes a tag."""
        class_ = self.classify(score, learnt)
        return class_, self.action_on(class_, score, learnt)

    def action_on(self, class_: Class, score: Score, learnt: Mapping[Label, int]) -> Action:
        """The action on a message of this class."""
        action = self.actions[class_]
        if class_ == "spam" and action == "tag" and self.reject and score.least >= self.reject:
            action = "reject"
        if action == "reject" and not (self.may_reject and min(learnt.values()) >= self.reject_after):
            action = "tag"
        return action

    def on_fault(self) -> Action:
        """The action on a message that cannot be judged."""
        return "tag" if self.actions["unsure"] == "tag" else "pass"

    def rejecting(self, learnt: Mapping[Label, int]) -> str:
        """A sentence: from which probability spam is rejected with what is learnt, or why none is."""
        by_class = self.actions["spam"] == "reject"
        if not self.may_reject:
            return "rejects nothing, because of mode after-queue"
        if not (by_class or (self.actions["spam"] == "tag" and self.reject)):
            return f'rejects no spam, because of on_spam = "{self.actions["spam"]}" and reject = {self.reject:g}'
        numbers = {label: f"{number:,}" for label, number in learnt.items()}
        if min(learnt.values()) < self.reject_after:
            return (
                f"rejects no spam yet: {numbers['ham']} ham and {numbers['spam']} spam are learnt, of"
                f" {self.reject_after:,} each that it needs (reject_after)"
            )
        threshold = self.spam if by_class else self.reject
        return f"rejects spam from {threshold:g} on: {numbers['ham']} ham and {numbers['spam']} spam are learnt"

    def blocked(self) -> Action:
        """The action for mail of a blocked sender: that for spam, however little is learnt."""
        action = self.actions["spam"]
        return "tag" if action == "reject" and not self.may_reject else action


@dataclass(frozen=True, slots=True)
class Verdict:
    """The decision about one message, and its reasons.

    fault: empty, or why the filter could not judge; the class is then unsure. listed: the rule on the
    sender, as key=value. flagged: whether the mail is flagged as spam; None: by its class. policy: name of the policy;
    for_some: of some recipients only, whom the others need not know.
    """

    score: Score
    class_: Class
    action: Action
    threshold: float
    learnt: Mapping[Label, int]
    evidence: Sequence[Evidence] = ()
    size: int = 0
    scanned: int = 0
    fault: str = ""
    listed: str = ""
    flagged: bool | None = None
    policy: str = ""
    for_some: bool = False

    def fields(self, id: str, with_evidence: bool = False) -> list[tuple[str, str]]:
        """The header fields for the mail; the id is last, where a stray folded line does no harm."""
        flagged = self.class_ == "spam" if self.flagged is None else self.flagged
        flag, score = "Yes" if flagged else "No", self.score
        status = (
            f"{flag}, score={score.posterior:.3f} class={self.class_} threshold={self.threshold:.3f}"
            f" learnt={self.learnt['ham']}/{self.learnt['spam']}"
        )
        if score.doubt or not score.known:
            status += f" known={score.known:.2f}"
        if score.few_ham:
            status += " few-ham=yes"
        if score.passage:
            status += f" passage={score.passage.replace(' ', '-')}"
        if self.scanned < self.size:
            status += f" scanned={self.scanned}/{self.size}"
        if self.fault:
            status += f" fault={printable(self.fault)}"
        if self.policy and not self.for_some:
            status += f" policy={printable(self.policy, LONGEST_LISTED)}"
        if self.listed and PARTLY not in self.listed:  # whom a recipient blocks the others need not know
            status += f" {printable(self.listed, LONGEST_LISTED)}"
        fields = [("X-Spam-Flag", "YES")] if flagged else []
        fields.append(("X-Spam-Status", status))
        if with_evidence and self.evidence:
            shown = "; ".join(f"{printable(item.token)} {item.weight:+.2f}" for item in self.evidence)
            fields.append(("X-Spamfilter-Evidence", shown))
        fields.append(("X-Spamfilter-Id", id))
        return fields
