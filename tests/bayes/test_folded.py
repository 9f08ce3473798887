"""Folded tokens are what they were before, and take less room."""

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import example, given

from spamfilter.bayes import folded as module
from spamfilter.bayes import tokens as features
from spamfilter.bayes.compiled import token_helper
from spamfilter.bayes.folded import folded
from spamfilter.bayes.token_arrays import Seen
from spamfilter.bayes.voices import Packed, View, pack
from spamfilter.mail.message import parse
from tests.mail.test_message import MAILS
from tests.support.made import mail, some
from tests.support.real import missing

VOICES = ("fields", "phrases", "body", "attributes")


@pytest.fixture(autouse=True)
def built() -> None:
    if token_helper is None:
        missing("the compiled helper is missing: install a C compiler and Python's headers, then the package again")


def packed(data: bytes) -> Packed:
    view = View(VOICES, parse(data))
    return Packed(pack(view), view)


def arrays(seen: Seen) -> Iterator[object]:
    yield seen.spellings.text
    for array in (seen.spellings.ends, seen.spellings.hashes, seen.times):
        yield array.dtype, array.tolist()


@some(200)
@given(MAILS)
@example(b"")
@example(b"Subject: twice twice\n\n")
@example(b"\nonly only text\n")
def test_they_are_what_was_folded(data: bytes) -> None:
    module._unfolded.cache_clear()
    tokens = packed(data)
    found = folded(tokens, ("body", "fields"))
    assert found is not None
    assert found.keys() == {"body", "fields"}
    for voice, few in found.items():
        whole = tokens[voice]
        assert isinstance(whole, Seen)
        assert [*arrays(few)] == [*arrays(whole)]
        assert few.parts() == whole.parts()
        assert len(few) == len(whole)
        assert dict(few) == dict(whole)
        assert [*few.with_times(np.full(len(few), 3))] == [*whole]


def test_only_what_is_known_by_hashes_is_folded(monkeypatch: pytest.MonkeyPatch) -> None:
    assert folded(packed(mail()), ("fields", "attributes")) is None
    monkeypatch.setattr(features, "token_helper", None)
    assert folded(packed(mail()), ("fields",)) is None


def test_they_take_less_room() -> None:
    tokens = packed(mail(body="".join(f"word{at} of a text\r\n" for at in range(300))))
    whole = [some for voice in ("fields", "body") if isinstance(some := tokens[voice], Seen)]
    arrays = [array for some in whole for array in (some.spellings.ends, some.spellings.hashes, some.times)]
    room = sum(array.nbytes for array in arrays) + sum(len(some.spellings.text) for some in whole)
    hashes = sum(some.spellings.hashes.nbytes for some in whole)
    assert hashes + len(tokens.packed()) < 0.6 * room
