"""Verdicts: the table of the policy, and the header fields that tell about them."""

import math
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spamfilter.bayes.labels import Label
from spamfilter.bayes.model import Score
from spamfilter.bayes.verdict import ACTIONS, CLASSES, Action, Class, Policy, Verdict
from spamfilter.bayes.voices import Evidence
from spamfilter.system.escaping import printable
from tests.support.made import some

ENOUGH: dict[Label, int] = {"ham": 200, "spam": 200}
DEFAULT = Policy()


def on(**actions: Action) -> Policy:
    return Policy(actions={**DEFAULT.actions, **actions})  # type: ignore[dict-item]  # names are classes


@pytest.mark.parametrize(
    ("policy", "posterior", "learnt", "class_", "action"),
    [
        pytest.param(DEFAULT, 0.0, ENOUGH, "ham", "pass", id="zero"),
        pytest.param(DEFAULT, 0.4999999, ENOUGH, "ham", "pass", id="below-unsure"),
        pytest.param(DEFAULT, 0.5, ENOUGH, "unsure", "pass", id="at-unsure"),
        pytest.param(DEFAULT, 0.8999999, ENOUGH, "unsure", "pass", id="below-spam"),
        pytest.param(DEFAULT, 0.9, ENOUGH, "spam", "tag", id="at-spam"),
        pytest.param(DEFAULT, 0.9989999, ENOUGH, "spam", "tag", id="below-reject"),
        pytest.param(DEFAULT, 0.999, ENOUGH, "spam", "reject", id="at-reject"),
        pytest.param(DEFAULT, 1.0, ENOUGH, "spam", "reject", id="one"),
        pytest.param(DEFAULT, 1.0, {"ham": 199, "spam": 900}, "spam", "tag", id="too-little-ham-learnt"),
        pytest.param(DEFAULT, 1.0, {"ham": 900, "spam": 199}, "spam", "tag", id="too-little-spam-learnt"),
        pytest.param(replace(DEFAULT, reject_after=0), 1.0, {"ham": 1, "spam": 0}, "spam", "reject", id="at-once"),
        pytest.param(replace(DEFAULT, reject=0), 1.0, ENOUGH, "spam", "tag", id="reject-switched-off"),
        pytest.param(replace(DEFAULT, may_reject=False), 1.0, ENOUGH, "spam", "tag", id="after-the-queue"),
        pytest.param(replace(DEFAULT, spam=1.0, reject=1.0), 1.0, ENOUGH, "spam", "reject", id="all-thresholds-one"),
        pytest.param(replace(DEFAULT, unsure=0.0), 0.0, ENOUGH, "unsure", "pass", id="no-ham-at-all"),
        pytest.param(replace(DEFAULT, unsure=0.9), 0.89, ENOUGH, "ham", "pass", id="no-unsure-at-all"),
        pytest.param(on(ham="tag"), 0.1, ENOUGH, "ham", "tag", id="ham-tagged"),
        pytest.param(on(unsure="defer"), 0.6, ENOUGH, "unsure", "defer", id="unsure-deferred"),
        pytest.param(on(unsure="quarantine"), 0.6, ENOUGH, "unsure", "quarantine", id="unsure-quarantined"),
        pytest.param(on(unsure="reject"), 0.6, ENOUGH, "unsure", "reject", id="unsure-rejected"),
        pytest.param(on(unsure="reject"), 0.6, {"ham": 1, "spam": 1}, "unsure", "tag", id="unsure-not-rejected-yet"),
        pytest.param(on(spam="reject"), 0.95, ENOUGH, "spam", "reject", id="spam-rejected"),
        pytest.param(on(spam="reject"), 0.95, {"ham": 1, "spam": 0}, "spam", "tag", id="spam-not-rejected-yet"),
        pytest.param(DEFAULT, 0.95, {"ham": 0, "spam": 9}, "unsure", "pass", id="nothing-is-spam-before-a-ham"),
        pytest.param(replace(on(spam="reject"), may_reject=False), 0.95, ENOUGH, "spam", "tag", id="spam-after-queue"),
        pytest.param(on(spam="quarantine"), 1.0, ENOUGH, "spam", "quarantine", id="quarantine-beats-reject"),
        pytest.param(on(spam="pass"), 0.95, ENOUGH, "spam", "pass", id="spam-passed"),
        pytest.param(on(spam="pass"), 1.0, ENOUGH, "spam", "pass", id="only-what-would-be-tagged-is-refused"),
    ],
)  # fmt: skip
def test_a_posterior_becomes_a_class_and_an_action(
    policy: Policy, posterior: float, learnt: dict[Label, int], class_: Class, action: Action
) -> None:
    assert policy.classify(Score(0.0, posterior), learnt) == class_
    assert policy.decide(Score(0.0, posterior), learnt) == (class_, action)


@pytest.mark.parametrize(
    ("posterior", "doubt", "class_", "action"),
    [
        pytest.param(0.9999, 0.0, "spam", "reject", id="sure-spam"),
        pytest.param(0.9999, 3.0, "spam", "tag", id="not-sure-enough-to-reject"),
        pytest.param(0.99, 4.0, "unsure", "pass", id="spam-in-doubt"),
        pytest.param(0.9, 0.01, "unsure", "pass", id="not-quite-spam"),
        pytest.param(0.01, 0.0, "ham", "pass", id="sure-ham"),
        pytest.param(0.05, 8.0, "unsure", "pass", id="ham-in-doubt"),
        pytest.param(0.05, 4.0, "ham", "pass", id="ham-in-less-doubt"),
    ],
)
def test_what_is_in_doubt_counts_against_each_class(
    posterior: float, doubt: float, class_: Class, action: Action
) -> None:
    assert DEFAULT.decide(Score(0.0, posterior, doubt=doubt), ENOUGH) == (class_, action)


@some(100)
@given(st.floats(1e-9, 1 - 1e-9), st.floats(0, 30))
def test_doubt_is_half_as_large_towards_spam_as_towards_ham(posterior: float, doubt: float) -> None:
    score = Score(0.0, posterior, doubt=doubt)
    assert score.least <= posterior * (1 + 1e-12)
    assert score.most >= posterior * (1 - 1e-12)

    def log_odds(p: float) -> float:
        return math.log(p / (1 - p))

    if score.least > 1e-6 and score.most < 1 - 1e-6:
        assert log_odds(score.most) - log_odds(posterior) == pytest.approx(score.doubt / 2, abs=1e-6)
        assert log_odds(posterior) - log_odds(score.least) == pytest.approx(score.doubt, abs=1e-6)


@some(200)
@given(
    st.floats(0, 1),
    st.sampled_from(ACTIONS),
    st.integers(0, 300),
    st.booleans(),
    st.sampled_from([0.0, 0.95, 1.0]),
)
def test_nothing_is_refused_without_leave(
    posterior: float, action: Action, learnt: int, may_reject: bool, reject: float
) -> None:
    policy = Policy(actions=dict.fromkeys(CLASSES, action), may_reject=may_reject, reject=reject)
    decided = policy.decide(Score(0.0, posterior), {"ham": learnt, "spam": 1000})[1]
    if decided == "reject":
        assert may_reject
        assert learnt >= policy.reject_after
    if posterior < policy.spam and action != "reject":
        assert decided == action


VERDICT = Verdict(
    score=Score(-3.4, 0.03149),
    class_="ham",
    action="pass",
    threshold=0.9,
    learnt={"ham": 812, "spam": 944},
    evidence=[Evidence("subject:lunch", "fields", 3, 0, -1.234), Evidence("grün", "fields", 0, 2, 0.5)],
    size=100,
    scanned=100,
)
STATUS = "No, score=0.031 class=ham threshold=0.900 learnt=812/944"


@pytest.mark.parametrize(
    ("verdict", "with_evidence", "fields"),
    [
        pytest.param(VERDICT, False, [("X-Spam-Status", STATUS)], id="ham"),
        pytest.param(
            replace(VERDICT, class_="spam", score=Score(5.0, 0.99)),
            False,
            [
                ("X-Spam-Flag", "YES"),
                ("X-Spam-Status", "Yes, score=0.990 class=spam threshold=0.900 learnt=812/944"),
            ],
            id="spam",
        ),
        pytest.param(
            replace(VERDICT, class_="unsure", score=Score(0.0, 0.5)),
            False,
            [("X-Spam-Status", "No, score=0.500 class=unsure threshold=0.900 learnt=812/944")],
            id="unsure",
        ),
        pytest.param(
            replace(VERDICT, size=70_000, scanned=65_536),
            False,
            [("X-Spam-Status", STATUS + " scanned=65536/70000")],
            id="too-large-to-scan-all",
        ),
        pytest.param(
            replace(VERDICT, fault="Value\r\nError"),
            False,
            [("X-Spam-Status", STATUS + " fault=Value\\r\\nError")],
            id="fault",
        ),
        pytest.param(
            VERDICT,
            True,
            [("X-Spam-Status", STATUS), ("X-Spamfilter-Evidence", "subject:lunch -1.23; gr\\xfcn +0.50")],
            id="evidence",
        ),
        pytest.param(replace(VERDICT, evidence=()), True, [("X-Spam-Status", STATUS)], id="no-evidence-to-show"),
    ],
)
def test_the_header_fields_tell_the_verdict(
    verdict: Verdict, with_evidence: bool, fields: list[tuple[str, str]]
) -> None:
    assert verdict.fields("ID", with_evidence) == [*fields, ("X-Spamfilter-Id", "ID")]


@some(200)
@given(st.lists(st.text(max_size=300), max_size=5), st.text(max_size=300))
def test_header_values_are_printable_ascii_whatever_the_mail_held(tokens: list[str], fault: str) -> None:
    evidence = [Evidence(token, "fields", 0, 0, 1.0) for token in tokens]
    for name, value in replace(VERDICT, evidence=evidence, fault=fault).fields("ID", True):
        assert all(" " <= letter <= "~" for letter in name + value)
        assert len(name) + len(value) + 2 <= 998


@some(300)
@given(st.text(st.characters(), max_size=200), st.integers(0, 150))
def test_printable_text_is_short_ascii_without_line_breaks(text: str, most: int) -> None:
    shown = printable(text, most)
    assert all(" " <= letter <= "~" for letter in shown)
    assert len(shown) <= most


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        pytest.param("a\r\nBcc: x", "a\\r\\nBcc: x", id="line-break"),
        pytest.param("\x00\x1b[31m\x7f", "\\x00\\x1b[31m\\x7f", id="terminal-control"),
        pytest.param("\u2028\u202e", "\\u2028\\u202e", id="unicode-line-break-and-turn"),
        pytest.param("\udc80", "\\udc80", id="lone-surrogate"),
        pytest.param("\\n", "\\\\n", id="backslash-cannot-be-mistaken"),
    ],
)
def test_what_is_not_printable_is_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown


@pytest.mark.parametrize("on_spam", ACTIONS)
@pytest.mark.parametrize("reject", [0, 0.99])
@pytest.mark.parametrize("may_reject", [True, False])
@pytest.mark.parametrize("ham", [0, 9, 10])
def test_what_is_said_of_rejecting_is_what_is_done(on_spam: Action, reject: float, may_reject: bool, ham: int) -> None:
    actions = {**Policy().actions, "spam": on_spam}
    policy = Policy(reject=reject, reject_after=10, actions=actions, may_reject=may_reject)
    learnt: dict[Label, int] = {"ham": ham, "spam": 10}
    done = [at for at in (0.95, 0.995) if policy.decide(Score(0, at), learnt)[1] == "reject"]
    said = re.match(r"rejects spam from ([0-9.]+) on", policy.rejecting(learnt))
    assert done == [at for at in (0.95, 0.995) if said and at >= float(said[1])]
