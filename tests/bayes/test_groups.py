"""Groups: who belongs together, and a voice of one's own that nobody else hears."""

import pytest

from spamfilter.bayes import model
from spamfilter.bayes.groups import OWN, Groups, digest_in, group_in, group_of, own_tokens
from spamfilter.bayes.token_codec import pack, pack_seen, unpack
from spamfilter.bayes.tokens import tokenize
from spamfilter.bayes.voices import Voices, view
from spamfilter.config.likelihood_settings import Learn
from spamfilter.mail.message import parse
from tests.support.made import mail

VOICES: Voices = Learn(groups="domain").chosen()
LONG = "a" * 300 + "@example.org"


@pytest.mark.parametrize(
    ("addresses", "groups", "group"),
    [
        pytest.param(["a@x.example"], "domain", "x.example", id="domain"),
        pytest.param(["a@x.example"], "mailbox", "a@x.example", id="mailbox"),
        pytest.param(["a@x.example", "b@x.example"], "domain", "x.example", id="two-of-a-domain"),
        pytest.param(["a@x.example", "b@x.example"], "mailbox", "", id="two-mailboxes"),
        pytest.param(["a@x.example", "a@y.example"], "domain", "", id="two-domains"),
        pytest.param(["a@x.example"], "", "", id="off"),
        pytest.param([], "domain", "", id="nobody"),
        pytest.param(["postmaster"], "mailbox", "", id="no-domain"),
        pytest.param(["@postmaster"], "mailbox", "", id="no-name"),
        pytest.param(["a@"], "mailbox", "", id="empty-domain"),
        pytest.param(["a b@x.example"], "mailbox", "", id="space"),
        pytest.param(["a:b@x.example"], "mailbox", "", id="colon"),
        pytest.param(["a\n@x.example"], "mailbox", "", id="control"),
        pytest.param([LONG], "mailbox", "", id="too-long"),
        pytest.param([LONG], "domain", "example.org", id="long-name-in-a-domain"),
    ],
)
def test_addresses_belong_to_one_group_or_to_none(addresses: list[str], groups: Groups, group: str) -> None:
    assert group_of(addresses, groups) == group


def test_the_same_mail_is_another_message_for_each_group() -> None:
    digest = parse(mail()).digest()
    assert len({digest_in(digest, group) for group in ("", "x.example", "y.example")}) == 3
    assert digest_in(digest, "") == digest


def test_the_tokens_of_a_group_are_those_of_fields_after_its_name() -> None:
    message = parse(mail(subject="two lamps", body="two lamps, two shades"))
    fields = tokenize(message, ("header", "text"))
    own = view(VOICES, message, "x.example")[OWN]
    assert dict(own) == {b"x.example " + token: times for token, times in fields.items()}
    assert dict(own_tokens(dict(fields), "x.example")) == dict(own)
    assert OWN not in view(VOICES, message)


def test_the_group_of_a_message_is_kept_in_journal_and_ledger() -> None:
    seen = view(VOICES, parse(mail()), "anna=lists@x.example")
    for packed in (pack_seen(seen), pack(seen)):
        kept = unpack(packed)
        assert (group_in(kept), dict(kept[OWN])) == ("anna=lists@x.example", dict(seen[OWN]))
    assert group_in(unpack(pack_seen(view(VOICES, parse(mail()))))) == ""


def taught_by_everybody() -> model.State:
    state = model.empty(VOICES)
    for number in range(20):
        for label in ("ham", "spam"):
            seen = view(VOICES, parse(mail(subject=f"{label} {number}", body=f"a text of {label} number {number}")))
            model.taught(VOICES, seen, label, state, model.score(VOICES, seen, state))
    return state


def test_only_the_group_hears_what_it_has_taught_and_everything_else_stays_to_the_last_digit() -> None:
    state, letter = taught_by_everybody(), parse(mail(subject="News", body="the newsletter of the month"))
    groups = ("", "x.example", "y.example")
    before = {group: model.score(VOICES, view(VOICES, letter, group), state) for group in groups}
    assert len({repr(score) for score in before.values()}) == 1  # a group that has taught nothing is silent
    calibration, learnt = state.calibration, dict(state.learnt)
    counts = {name: repr(state.counts[name]) for name in state.counts if name != OWN}
    lessons = []
    for _ in range(3):
        seen = view(VOICES, letter, "x.example")
        lessons.append(model.taught(VOICES, seen, "spam", state, model.score(VOICES, seen, state)))
    after = {group: model.score(VOICES, view(VOICES, letter, group), state) for group in groups}
    assert after["x.example"].posterior > max(0.9, before["x.example"].posterior)
    assert repr(after["y.example"]) == repr(before["y.example"])
    assert repr(after[""]) == repr(before[""])
    assert (state.calibration, state.learnt) == (calibration, learnt)
    assert {name: repr(state.counts[name]) for name in state.counts if name != OWN} == counts
    for lesson in lessons:
        model.apply(VOICES, lesson, state, -1)
    assert repr(model.score(VOICES, view(VOICES, letter, "x.example"), state)) == repr(before["x.example"])
    assert state.counts[OWN].vocabulary == 0


def test_a_group_learns_little_of_what_the_filter_knows_already() -> None:
    state = taught_by_everybody()
    known = view(VOICES, parse(mail(subject="spam 3", body="a text of spam number 3")), "x.example")
    news = view(VOICES, parse(mail(subject="ham 3", body="a text of ham number 3")), "x.example")
    agreeing = model.taught(VOICES, known, "spam", state, model.score(VOICES, known, state))
    differing = model.taught(VOICES, news, "spam", state, model.score(VOICES, news, state))
    assert agreeing.added[OWN] < differing.added[OWN]
    assert agreeing.added.keys() == differing.added.keys() == {OWN}


def test_a_passage_is_found_with_a_voice_of_the_group() -> None:
    """A spam behind a quoted ham: the group's voice does not switch passages off."""
    state = taught_by_everybody()
    ham = " ".join(f"meeting{n} agenda{n}" for n in range(100))
    spam = " ".join(f"pills{n} casino{n}" for n in range(50))
    for label, body in (("ham", ham), ("spam", spam)) * 4:
        seen = view(VOICES, parse(mail(subject="x", body=body)))
        model.taught(VOICES, seen, label, state, model.score(VOICES, seen, state))  # type: ignore[arg-type]
    mixed = parse(mail(subject="x", body=f"{ham} {spam}"))
    alone = model.score(VOICES, view(VOICES, mixed), state)
    other = view(VOICES, parse(mail(subject="lunch", body="shall we meet")), "x.example")
    model.taught(VOICES, other, "spam", state, model.score(VOICES, other, state))
    score = model.score(VOICES, view(VOICES, mixed, "x.example"), state)
    assert OWN in score.voices
    assert (score.passage, score.known) == (alone.passage, alone.known)
    assert alone.passage
