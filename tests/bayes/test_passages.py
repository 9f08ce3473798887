"""Passages: spam is found beside other text, and where nothing is hidden the whole message is judged."""

from collections.abc import Sequence

import pytest

from spamfilter.bayes import model
from spamfilter.bayes.labels import Label
from spamfilter.bayes.likelihoods import LIKELIHOODS
from spamfilter.bayes.passages import LEAST, MARGIN, most_telling
from spamfilter.bayes.token_arrays import by_hash
from spamfilter.bayes.voices import BELIEVED, Voice, Voices, believed_of, heard_of, together, view, voice_scores
from spamfilter.config.settings import Settings
from spamfilter.mail.message import parse
from tests.support.without_helpers import without_helpers

DEFAULT = Settings().voices()


def text(kind: str, first: int, last: int) -> str:
    return " ".join(f"{kind}{number}" for number in range(first, last))


def mail(*texts: str) -> bytes:
    return ("Subject: hello\nFrom: someone@example.org\n\n" + "\n".join(texts) + "\n").encode()


def state(voices: Voices = DEFAULT) -> model.State:
    """What is known after twenty mails of each class, of three hundred words each."""
    made = model.empty(voices)
    for number in range(40):
        label: Label = "spam" if number % 2 else "ham"
        tokens = view(voices, parse(mail(text(label, 0, 300))))
        model.taught(voices, tokens, label, made, model.score(voices, tokens, made))
    return made


def score(parts: Sequence[str], voices: Voices = DEFAULT) -> model.Score:
    return model.score(voices, view(voices, parse(mail(*parts))), state(voices))


HAM, SPAM, NEW = text("ham", 0, 240), text("spam", 0, 120), text("new", 0, 240)


@pytest.mark.parametrize(
    ("parts", "passages"),
    [
        pytest.param((HAM, SPAM), ("end",), id="ham-before"),
        pytest.param((SPAM, HAM), ("beginning",), id="ham-behind"),
        pytest.param((text("ham", 0, 120), SPAM, text("ham", 120, 240)), ("middle",), id="ham-around"),
        pytest.param((NEW, SPAM), ("end",), id="made-up-words-before"),
        pytest.param((text("ham", 0, 60), text("spam", 0, 120)), ("last two thirds", "end"), id="a-little-ham-before"),
        pytest.param((NEW, text("spam", 0, 60)), ("last sixth",), id="a-short-spam-behind"),
        pytest.param((text("spam", 0, 60), NEW), ("first sixth",), id="a-short-spam-before"),
        pytest.param((text("new", 0, 480), text("spam", 0, 50)), ("last twelfth",), id="a-shorter-spam-behind"),
        pytest.param((text("spam", 0, 50), text("new", 0, 480)), ("first twelfth",), id="a-shorter-spam-before"),
    ],
)
def test_spam_is_found_beside_other_text(parts: Sequence[str], passages: Sequence[str]) -> None:
    found = score(parts)
    assert found.passage in passages
    assert found.posterior > 0.9
    assert found.least > 0.9


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param((HAM,), id="ham"),
        pytest.param((SPAM,), id="spam"),
        pytest.param((NEW,), id="nothing-known"),
        pytest.param((text("ham", 0, LEAST // 2 - 1), text("spam", 0, LEAST // 2 - 1)), id="too-short-to-be-cut"),
        pytest.param(("",), id="empty"),
    ],
)
def test_where_nothing_is_hidden_the_whole_is_judged(parts: Sequence[str]) -> None:
    found, made = score(parts), state()
    said = voice_scores(DEFAULT, view(DEFAULT, parse(mail(*parts))), made.counts)
    assert found.passage == ""
    assert found.log_odds == together(heard_of(said), believed_of(made.learnt))


@pytest.mark.parametrize("helpers", [True, False])
def test_a_passage_is_its_words_alone(helpers: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        if not helpers:
            without_helpers(patch)
        made, whole = state(), view(DEFAULT, parse(mail(HAM, SPAM)))
        found, evidence = model.explained(DEFAULT, whole, made, None)
        words = {item.token.removeprefix("^").split()[0] for item in evidence}
        assert found.passage == "end"
        assert any(word.startswith("spam") for word in words)
        assert not any(word.startswith("ham") for word in words)
        weights = sum(item.weight for item in evidence)
        assert found.log_odds == pytest.approx(weights - MARGIN, abs=1e-9)  # both classes have learnt as much: no prior
        assert found.log_odds == pytest.approx(score((SPAM,)).log_odds - MARGIN, abs=1.5)
        said = voice_scores(DEFAULT, whole, made.counts)
        assert {voice: each.own for voice, each in found.voices.items()} == {
            voice.name: opinion.own for voice, opinion, _ in said
        }  # by which it learns: passages are for judging


@pytest.mark.parametrize("name", sorted(LIKELIHOODS.keys() - {"soft", "eddc"}))
def test_a_likelihood_of_the_textbook_is_never_cut(name: str) -> None:
    voices = (Voice("fields", LIKELIHOODS[name]()),)
    made = state(voices)
    said = voice_scores(voices, view(voices, parse(mail(HAM, SPAM))), made.counts)
    assert most_telling(said, 0.0, BELIEVED).name == ""
    assert most_telling(said, 0.0, BELIEVED).log_odds == together(heard_of(said), BELIEVED)


def test_tokens_without_spellings_are_heard_whole() -> None:
    voices = tuple(voice for voice in DEFAULT if voice.name != "phrases")  # which are told apart by their spelling
    made, tokens = state(voices), view(voices, parse(mail(HAM, SPAM)))
    hashes = {name: by_hash(tokens[name]) for name in tokens}
    for known, passage in ((tokens, "end"), (hashes, "")):
        assert most_telling(voice_scores(voices, known, made.counts), 0.0, BELIEVED).name == passage
