"""Judging never fails: a mail that cannot be judged is unsure and passes, and its header says so."""

import logging
from binascii import b2a_base64
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given

from spamfilter.bayes import voices
from spamfilter.bayes.counts import Counts
from spamfilter.bayes.groups import OWN
from spamfilter.bayes.labels import Label
from spamfilter.bayes.likelihoods.likelihood import LogOdds, TokenShares
from spamfilter.bayes.likelihoods.soft import Soft
from spamfilter.bayes.model import State
from spamfilter.bayes.tokens import Tokens, tokenize
from spamfilter.bayes.verdict import Action, Class, Policy
from spamfilter.bayes.voices import View, Voice
from spamfilter.config.settings import Settings
from spamfilter.errors import StoreError
from spamfilter.learning.filter import Filter
from spamfilter.mail.message import GTUBE, parse
from spamfilter.mail.tagging import mark
from spamfilter.relay import judging
from spamfilter.relay.judging import Judge, policy_for
from tests.mail.test_message import MAILS
from tests.support.made import VOICE, mail, some
from tests.support.memory_store import MemoryStore


class Broken(Soft):
    """Learns, and cannot judge."""

    def judge(self, tokens: Tokens, counts: Counts) -> tuple[LogOdds, TokenShares]:
        raise ZeroDivisionError("a secret of the mail")


class Gone(MemoryStore):
    """A store whose counts cannot be read."""

    def load(self, voices: object) -> State:
        raise StoreError("gone")

    def state(self, words: object) -> State:
        raise StoreError("gone")


LEARNT = 12


def trained() -> Filter:
    filter = Filter(MemoryStore(), VOICE)
    for number in range(LEARNT):
        filter.learn(filter.read(parse(mail("cheap pills", "buy now", f"s{number}"))), "spam", "cli")
        filter.learn(filter.read(parse(mail("our lunch", "see you", f"h{number}"))), "ham", "cli")
    return filter


@pytest.mark.parametrize(
    ("subject", "body", "class_", "action"),
    [
        pytest.param("cheap pills", "buy now", "spam", "tag", id="spam"),
        pytest.param("our lunch", "see you", "ham", "pass", id="ham"),
        pytest.param("cheap lunch", "x", "unsure", "pass", id="unsure"),
    ],
)
def test_a_mail_gets_the_verdict_of_filter_and_policy(subject: str, body: str, class_: Class, action: Action) -> None:
    filter = trained()
    sent = mail(subject, body, "new")
    judgement = Judge(filter, Policy(spam=0.65, unsure=0.4)).judge(sent, "ID")
    verdict = judgement.verdict
    assert (verdict.class_, verdict.action, verdict.fault) == (class_, action, "")
    assert judgement.reading is not None
    score = filter.score(judgement.reading)
    assert (verdict.score.posterior, verdict.score.log_odds) == (score.posterior, score.log_odds)
    assert verdict.learnt == {"ham": LEARNT, "spam": LEARNT}
    assert (verdict.size, verdict.scanned, verdict.threshold) == (len(sent), len(sent), 0.65)
    assert len(verdict.evidence) == 5
    assert judgement.digest == parse(sent).digest()


def test_a_refusal_waits_for_enough_learnt_messages() -> None:
    policy = Policy(spam=0.6, reject=0.6, reject_after=LEARNT + 1)
    filter = trained()
    judge = Judge(filter, policy)
    sent = mail("cheap pills", "buy now", "new")
    assert judge.judge(sent, "ID").verdict.action == "tag"
    labels: tuple[Label, ...] = ("ham", "spam")
    for label in labels:
        filter.learn(filter.read(parse(mail("x", "y", f"one more {label}"))), label, "cli")
    assert judge.judge(sent, "ID").verdict.action == "reject"


@pytest.mark.parametrize(
    ("on_unsure", "action"),
    [("pass", "pass"), ("tag", "tag"), ("reject", "pass"), ("quarantine", "pass"), ("defer", "pass")],
)
def test_what_cannot_be_scored_passes_as_unsure(
    on_unsure: Action, action: Action, caplog: pytest.LogCaptureFixture
) -> None:
    filter = Filter(MemoryStore(), (Voice("fields", Broken()),))
    policy = Policy(actions={"ham": "pass", "unsure": on_unsure, "spam": "reject"}, reject_after=0)
    with caplog.at_level(logging.ERROR):
        judgement = Judge(filter, policy).judge(mail(), "01ID")
    verdict = judgement.verdict
    assert (verdict.class_, verdict.action, verdict.fault) == ("unsure", action, "ZeroDivisionError")
    assert verdict.score.posterior == 0.5
    assert judgement.digest == parse(mail()).digest()
    assert "01ID" in caplog.text
    head, _ = mark(mail(), verdict.fields("01ID"))
    assert b"class=unsure" in head
    assert b"fault=ZeroDivisionError" in head
    assert b"secret" not in head


def test_a_store_that_is_gone_makes_no_mail_wait(caplog: pytest.LogCaptureFixture) -> None:
    verdict = Judge(Filter(Gone(), VOICE), Policy()).judge(mail(), "ID").verdict
    assert (verdict.class_, verdict.action, verdict.fault) == ("unsure", "pass", "StoreError")
    assert "gone" in caplog.text


@some(100)
@given(MAILS)
def test_any_bytes_get_a_verdict_without_fault(data: bytes) -> None:
    judgement = Judge(Filter(MemoryStore(), VOICE), Policy()).judge(data, "ID")
    assert (judgement.verdict.fault, judgement.verdict.class_) == ("", "unsure")


def test_what_waits_for_the_journal_finds_its_tokens_again_if_somebody_asks() -> None:
    filter = Filter(MemoryStore(), (Voice("fields", Soft()),))
    reading = Judge(filter, Policy()).judge(mail(), "ID").reading
    assert reading is not None
    assert isinstance(reading.tokens, View)
    assert reading.tokens._found == {"fields": None}
    assert reading.tokens == filter.read(parse(mail())).tokens


def test_the_seconds_of_each_stage_are_those_of_its_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a clock that stands still but for the work: 1 to parse, 10 for the tokens of a voice, 100 for its score."""
    clock = 0.0

    def takes(seconds: float, work: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any, **named: Any) -> Any:
            nonlocal clock
            clock += seconds
            return work(*arguments, **named)

        return timed

    monkeypatch.setattr(judging, "perf_counter", lambda: clock)
    monkeypatch.setattr(judging, "parse", takes(1, parse))
    monkeypatch.setattr(voices, "tokenize", takes(10, tokenize))
    monkeypatch.setattr(Soft, "judge", takes(100, Soft.judge))
    filter = Filter(
        MemoryStore(), (Voice("fields", Soft()), Voice("body", Soft()), Voice(OWN, Soft(), groups="domain"))
    )
    stages = Judge(filter, Policy()).judge(mail(), "ID", "example.org").stages
    assert stages == {"parse": 1, "tokens": 20, "score": 200}


TEST_MAIL = mail("a test", "Hello,\n" + GTUBE.decode() + "\nand more")


def test_gtube_is_spam_whatever_is_learnt() -> None:
    encoded = TEST_MAIL.partition(b"\r\n\r\n")
    base64 = encoded[0] + b"\r\nContent-Transfer-Encoding: base64\r\n\r\n" + b2a_base64(encoded[2])
    for filter, learnt in ((Filter(MemoryStore(), VOICE), 0), (trained(), LEARNT)):
        for raw in (TEST_MAIL, base64):
            verdict = Judge(filter, Policy(reject_after=LEARNT)).judge(raw, "x").verdict
            assert (verdict.class_, verdict.score.posterior) == ("spam", 1.0)
            assert verdict.action == ("reject" if learnt else "tag")
            assert [item.token for item in verdict.evidence] == ["GTUBE"]
    elsewhere = mail(GTUBE.decode(), GTUBE.decode()[:-1])
    assert Judge(trained(), Policy()).judge(elsewhere, "x").verdict.score.posterior < 1


def test_gtube_does_as_spam_is_done_to() -> None:
    policy = Policy(actions={**Policy().actions, "spam": "quarantine"})
    assert Judge(trained(), policy).judge(TEST_MAIL, "x").verdict.action == "quarantine"


@pytest.mark.parametrize(
    ("recipients", "name"),
    [
        (["Anna@Sales.Example.ORG"], "anna@sales.example.org"),
        (['@mx.example:"bob"@sales.example.org'], "example.org"),
        (["an\\na@sales.example.org."], "anna@sales.example.org"),
        (["bob@example.org", "eve@Example.org"], "example.org"),
        (["anna@sales.example.org", "bob@example.org"], ""),
        (["carl@example.net"], ""),
        ([], ""),
    ],
    ids=[
        "as the client wrote it",
        "a source route",
        "an escape and a dot",
        "two of a domain",
        "two policies",
        "everybody's",
        "nobody",
    ],
)
def test_the_policy_of_recipients(recipients: list[str], name: str) -> None:
    policies = {name: Policy(name=name, table=name) for name in ("anna@sales.example.org", "example.org")}
    assert policy_for(recipients, policies, Policy()).name == name


@pytest.mark.parametrize(
    ("recipients", "threshold"),
    [
        (["anna@example.org", "bob@example.net"], 0.97),
        (["anna@example.org", "carl@example.net"], 0.9),
        (["anna@example.org", "dora@example.com"], 0.9),
    ],
    ids=["one table", "a table and none", "two tables"],
)
def test_recipients_of_one_table_have_one_policy(recipients: list[str], threshold: float) -> None:
    tables = {"anna@example.org": 0.97, "bob@example.net": 0.97, "dora@example.com": 0.99}
    grouped = [{"to": [name for name, own in tables.items() if own == spam], "spam": spam} for spam in (0.97, 0.99)]
    settings = Settings.model_validate({"recipients": grouped})
    assert policy_for(recipients, settings.policies(), settings.policy()).spam == threshold
