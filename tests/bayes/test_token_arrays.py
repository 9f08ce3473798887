"""What the compiled helper finds is what Python finds, to the last bit."""

import platform
import random
import subprocess

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from spamfilter.bayes import count_table
from spamfilter.bayes import tokens as features
from spamfilter.bayes.compiled import score_helper, token_helper
from spamfilter.bayes.count_table import HashedTable
from spamfilter.bayes.counts import Counts
from spamfilter.bayes.labels import LABELS, Label
from spamfilter.bayes.token_arrays import Integers, TokenArrays, hashed
from spamfilter.bayes.token_codec import pack, unpack
from spamfilter.bayes.tokens import tokenize
from spamfilter.bayes.voices import VOICES, View
from spamfilter.config.likelihood_settings import DEFAULT_VOICES, Learn
from spamfilter.learning.filter import Filter
from spamfilter.mail.message import Message, parse
from tests.mail.test_message import MAILS
from tests.support.made import mail, some
from tests.support.memory_store import MemoryStore
from tests.support.real import missing, require, require_helpers
from tests.support.without_helpers import without_helpers

FAMILIES = [families for families in VOICES.values() if set(families) <= features.COMPILED.keys()]
TEXTS = st.lists(
    st.sampled_from(
        ["word", "Wörter", "漢字", "か", "가", "!", " ", "\n", "\0", "^", "x" * 25, "é" * 70, "y" * 130, ":"]
    )
    | st.text(max_size=5),
    max_size=40,
).map("".join)


@pytest.fixture(autouse=True)
def built() -> None:
    """Skips without the helper; fails where the tests require everything."""
    require_helpers()


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Without helpers, until a test undoes it."""
    without_helpers(monkeypatch)
    return monkeypatch


def test_the_helper_finds_every_family_of_the_default_voices() -> None:
    """A voice with one other family would be read in Python, four times slower, and nothing would say so."""
    assert {family for name in DEFAULT_VOICES for family in VOICES[name]} <= features.COMPILED.keys()


def both(message: Message, families: tuple[str, ...]) -> tuple[TokenArrays, dict[bytes, int]]:
    """Tokens found by the helper, and by Python."""
    quick = tokenize(message, families)
    assert isinstance(quick, TokenArrays)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(features, "token_helper", None)
        return quick, dict(tokenize(message, families))


@pytest.mark.parametrize("families", FAMILIES, ids="+".join)
@some(300)
@given(MAILS)
def test_the_helper_finds_what_python_finds(families: tuple[str, ...], data: bytes) -> None:
    quick, slow = both(parse(data), families)
    assert quick == slow
    assert len(quick) == len(slow) == len(quick.spellings)
    assert quick.spellings.hashes.tolist() == [hash(token) or 1 for token in quick.spellings]
    assert [quick.spellings[at] for at in range(len(quick))] == list(quick.spellings) == quick.spellings[:]
    assert quick.spellings.beginning_with(b"^").tolist() == [token[:1] == b"^" for token in quick.spellings]


@pytest.mark.parametrize("families", FAMILIES, ids="+".join)
@some(300)
@given(st.lists(st.tuples(st.sampled_from([b"subject", b"x-name", b"n" * 76]), TEXTS), max_size=6), TEXTS, TEXTS)
def test_the_helper_finds_what_python_finds_in_any_text(
    families: tuple[str, ...], fields: list[tuple[bytes, str]], head: str, text: str
) -> None:
    read = tuple((name, value.encode("utf-8", "replace")) for name, value in fields)
    written, shown = head.encode("utf-8", "replace"), text.encode("utf-8", "replace")
    quick, slow = both(Message(read[::2], read[1::2], written, shown, shown, 0, 0, ()), families)
    assert [*quick.items()] == [*slow.items()]  # in this order, by which a text is cut into passages


def test_more_words_than_there_is_room_for_at_first() -> None:
    text = b" ".join(b"%d" % number for number in range(50_000))
    quick, slow = both(Message((), (), b"", text, text, 0, 0, ()), ("text",))
    assert quick == slow


@pytest.mark.parametrize(
    "parts",
    [
        *(None, [], (1,), ((1,),)),
        *(((0, b""),), ((0, (b"name",)),), ((0, (("a", "b"),)),)),
        *(((1, "text"),), (("x", b""),)),
    ],
)
def test_what_is_no_message_is_a_type_error(parts: object) -> None:
    assert token_helper is not None
    with pytest.raises(TypeError):
        token_helper.find(parts)


@pytest.mark.parametrize(
    "table",
    [
        b"x" * 64,
        np.zeros((0, 4, 2), np.int64),
        np.zeros((1, 3, 2), np.int64),
        np.zeros((1, 4, 1), np.int64),
        np.zeros((1, 4, 4), np.int64),
        np.zeros((1, 4, 2), np.int32),
        np.zeros((1, 1, 4, 2), np.int64),
    ],
)
def test_a_table_of_the_wrong_shape_is_refused(table: object) -> None:
    assert token_helper is not None
    for found in (token_helper.slots, token_helper.counts, token_helper.insert):
        with pytest.raises((ValueError, BufferError), match=r"whole buckets|not writable"):
            found(table, b"12345678")


def full_table() -> Integers:
    table = np.zeros((4, 4, 2), np.int64)
    table[:, :, 0] = np.arange(1, 17).reshape(4, 4)
    return table


def test_a_full_table_ends_the_search() -> None:
    assert token_helper is not None
    table = full_table()
    assert np.frombuffer(token_helper.slots(table, np.array([99], np.int64)), np.int64).tolist() == [-1]


def test_a_full_table_takes_no_more() -> None:
    assert token_helper is not None
    table = full_table()
    token_helper.insert(table, np.array([16, 1], np.int64))
    with pytest.raises(ValueError, match="full"):
        token_helper.insert(table, np.array([99], np.int64))
    assert np.array_equal(table, full_table())


@pytest.mark.parametrize("lines", [b"", b"\n", b"one", b"one\ntwo", "grün\n\nlast\n".encode()])
def test_lines_are_hashed_as_words_are(lines: bytes) -> None:
    assert token_helper is not None
    assert np.frombuffer(token_helper.hashes(lines), np.int64).tolist() == hashed(lines.split(b"\n")).tolist()


@some(100)
@given(st.lists(st.integers(-(2**63), 2**63 - 1).filter(bool), unique=True, max_size=2000))
def test_the_helper_finds_the_slots_that_python_finds(keys: list[int]) -> None:
    table = HashedTable()
    half = np.array(keys[::2], np.int64)
    if not table._has_room(len(half)):
        table._grow(len(half))
    table._insert(half)
    asked = np.array(keys, np.int64)
    quick = table._find(asked)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(count_table, "token_helper", None)
        slow = table._find(asked)
    assert quick.tolist() == slow.tolist()
    assert (quick >= 0).sum() == len(half)


@some(100)
@given(
    st.lists(st.text("abc", max_size=4).map(str.encode), unique=True, max_size=60),
    st.lists(st.integers(0, 40) | st.just(2**31), min_size=120, max_size=120),
)
def test_the_helper_finds_the_counts_that_python_finds(tokens: list[bytes], drawn: list[int]) -> None:
    table, size = HashedTable(), len(tokens) // 2
    for label, counts in zip(LABELS, (drawn[:60], drawn[60:]), strict=True):
        table.put(tokens[:size], label, np.array(counts[:size], np.int64))
    assert table.numbers(tokens).tolist() == [column.tolist() for column in table.columns(tokens)]


def scores(filter: Filter) -> list[float]:
    found = []
    chance = random.Random(1)
    for number in range(200):
        label: Label = chance.choice(LABELS)
        said = " ".join(f"{label if chance.random() < 0.2 else 'any'}{chance.randrange(300)}" for _ in range(80))
        reading = filter.read(parse(mail(said[:60], said, str(number))))
        score, evidence = filter.explained(reading, 8)
        found += [score.log_odds, score.posterior, *(item.weight for item in evidence)]
        filter.learn(reading, label, "cli")
    return found


def test_scores_and_evidence_are_the_same_without_the_helper(plain: pytest.MonkeyPatch) -> None:
    slow = scores(Filter(MemoryStore(), Learn().chosen()))
    plain.undo()
    assert scores(Filter(MemoryStore(), Learn().chosen())) == slow


FETCHING = {
    "tokens": ("compiled_slots", "compiled_counts", "compiled_insert"),
    "scores": ("scores_soft",),
}
"""Helper -> its functions that look up keys one after the other."""


@pytest.mark.parametrize(("helper", "function"), [(name, each) for name, some in FETCHING.items() for each in some])
def test_a_helper_really_fetches_ahead(helper: str, function: str) -> None:
    """A compiler may leave the prefetches out, and the results are the same. There are two: before a loop and in it."""
    instruction = {"x86_64": "prefetch", "aarch64": "prfm"}.get(platform.machine())
    if instruction is None:
        missing(f"how {platform.machine()} fetches ahead is not written down here: add it")
    file = {"tokens": token_helper, "scores": score_helper}[helper].__file__
    command = [require("objdump", "binutils"), "--disassemble", "--section=.text", file]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    (code,) = [part for part in done.stdout.split("\n\n") if f"<{function}>:" in part.split("\n", 1)[0]]
    assert code.count(instruction) >= 2


@some(100)
@given(MAILS)
@example(b"Subject:\xb4")  # an accent that is two letters as it looks
def test_a_view_that_was_packed_shows_the_same(data: bytes) -> None:
    view = View(VOICES, parse(data))
    again = unpack(view.packed())
    assert isinstance(again, View)
    assert dict(again) == dict(view)


def test_a_view_takes_less_room_than_its_tokens() -> None:
    view = View(("fields", "phrases", "body"), parse(mail(body="A few words of a text.\r\n" * 20)))
    assert len(view.packed()) < 0.6 * len(pack(view))


def test_counts_are_found_by_tokens_and_by_their_arrays_alike() -> None:
    counts = Counts(HashedTable())
    seen = tokenize(parse(mail()), ("header", "text"))
    counts.add("spam", dict.fromkeys(seen, 3))
    assert isinstance(seen, TokenArrays)
    assert [column.tolist() for column in counts.kept.columns(seen.spellings)] == [
        column.tolist() for column in counts.kept.columns(list(seen))
    ]
