"""What the compiled helper does in learning is what Python does; hostile arguments are refused."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spamfilter import voices, words
from spamfilter.compiled import _learning
from spamfilter.counts import LABELS, Counts, Growth, Hashed, Label, Spelled
from spamfilter.errors import CountError
from spamfilter.features import Tokens
from spamfilter.likelihoods import likelihood, soft
from spamfilter.likelihoods.soft import Soft
from spamfilter.seen import Integers, Seen, Spellings
from spamfilter.stores.sql.learning import SqlLearning
from spamfilter.stores.sql.queries import TOGETHER
from spamfilter.voices import pack, unpack
from spamfilter.words import Words
from tests.made import some
from tests.real import missing

WORD = st.sampled_from([b"a", b"b", b"c", "grün".encode(), b"^head", b"x" * 30, b"0", b""])
AMOUNT = st.integers(1, 20) | st.sampled_from([words.NARROW - 1, words.NARROW, likelihood.FEW])
CHANGES = st.lists(
    st.tuples(st.sampled_from(LABELS), st.dictionaries(WORD, AMOUNT, max_size=5), st.sampled_from([1, 1, -1])),
    max_size=12,
)


@pytest.fixture(autouse=True)
def built() -> None:
    """Without the helper there is nothing to compare; where everything must be there, it must."""
    if _learning is None:
        missing("the compiled helper is missing: install a C compiler and Python's headers, then the package again")


def arrays(tokens: dict[bytes, int]) -> Seen:
    """The same as the helper gives it."""
    spelt = Spellings.of(list(tokens))
    return Seen(spelt.text, spelt.end_bytes, spelt.hash_bytes, np.array([*tokens.values()], np.uint32).tobytes())


def seen(deltas: dict[bytes, int]) -> Seen:
    """Changes of counts, in arrays."""
    return arrays(dict.fromkeys(deltas, 1)).with_times(np.array([*deltas.values()], np.int64))


def table(counts: Counts) -> list[list[int]]:
    assert isinstance(counts.kept, Hashed)
    return [column.tolist() for column in counts.kept.hashes()]


@some(300)
@given(CHANGES)
def test_counts_change_alike_in_one_step_and_in_several(
    changes: list[tuple[Label, dict[bytes, int], int]],
) -> None:
    one, several = Counts(Hashed()), Counts(Hashed())
    for label, deltas, sign in changes:
        outcomes = []
        for counts, those in ((one, seen(deltas)), (several, deltas)):
            try:
                outcomes.append((counts.add if sign > 0 else counts.subtract)(label, those))
            except CountError as error:
                outcomes.append(str(error))  # type: ignore[arg-type]
        assert outcomes[0] == outcomes[1]
        assert table(one) == table(several)
        assert (one.messages, one.occurrences, one.vocabulary) == (
            several.messages, several.occurrences, several.vocabulary,
        )  # fmt: skip


def test_a_table_that_is_full_grows_and_loses_nothing() -> None:
    counts = Counts(Hashed())
    for number in range(60):
        counts.add("spam", seen({b"%d %d" % (number, at): at + 1 for at in range(50)}))
    assert counts.vocabulary == len(counts.kept.hashes()[0]) == 3000
    assert counts.get(b"59 49", "spam") == 50
    for number in range(60):
        counts.subtract("spam", seen({b"%d %d" % (number, at): at + 1 for at in range(50)}))
    assert counts == Counts(Hashed())


class Rows(SqlLearning):
    """The rows of words of a transaction that has no database."""

    def __init__(self) -> None:
        super().__init__(None)  # type: ignore[arg-type]

    def then(self, id: int, label: Label, deltas: Seen | dict[bytes, int]) -> None:
        self._last = id
        self.change("fields", label, deltas, 1, Growth(0))

    def rows(self) -> tuple[list[list[object]], list[tuple[object, ...]]]:
        return self._rows("fields", self._words["fields"], self._parts.get("fields", []))


@some(200)
@given(
    st.lists(st.tuples(st.sampled_from(LABELS), st.dictionaries(WORD, st.integers(-9, 9)), st.booleans()), min_size=1)
)
def test_rows_of_words_are_the_same_however_they_are_summed(
    changes: list[tuple[Label, dict[bytes, int], bool]],
) -> None:
    quick, mixed, slow = Rows(), Rows(), Rows()
    for id, (label, deltas, which) in enumerate(changes, 1):
        deltas = {word: delta for word, delta in deltas.items() if delta}
        quick.then(id, label, seen(deltas))
        mixed.then(id, label, seen(deltas) if which else deltas)
        slow.then(id, label, deltas)
    assert quick.rows() == mixed.rows() == slow.rows()


def test_many_rows_are_in_groups_in_the_order_of_their_words() -> None:
    quick, slow = Rows(), Rows()
    deltas = {b"%d" % number: 1 for number in range(TOGETHER * 2 + 3)}
    quick.then(7, "ham", seen(deltas))
    slow.then(7, "ham", deltas)
    more, less = quick.rows()
    assert (more, less) == slow.rows()
    assert [len(group) for group in more] == [5 * TOGETHER] * 2 + [15]
    assert [row for group in more for row in group[1::5]] == sorted(word.decode() for word in deltas)
    assert less == []


@some(200)
@given(st.dictionaries(WORD, st.integers(1, 12) | st.just(2**32 - 1), max_size=8), st.booleans())
def test_tokens_are_packed_alike_with_and_without_the_helper(tokens: dict[bytes, int], broken: bool) -> None:
    if broken:
        tokens[b"line\nend"] = 2
    quick: dict[str, Seen] = {"fields": arrays(tokens), "phrases": arrays({}), "body": arrays({b"word": 3})}
    slow = {name: dict(some) for name, some in quick.items()}
    packed = pack(quick)
    assert packed == pack(slow) == pack({**quick, "phrases": {}})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(voices, "_learning", None)
        assert pack(quick) == packed
    assert unpack(packed) == slow


def test_lines_are_words_again() -> None:
    assert _learning.unlined(b"one\ntwo\n\nlast", 1, 2) == (b"two", np.array([3, 3], np.uint32).tobytes())
    assert _learning.unlined(b"one\ntwo\n\nlast", 3, 1) == (b"last", np.array([4], np.uint32).tobytes())
    assert _learning.unlined(b"one\n", 0, 2) == (b"one", np.array([3, 3], np.uint32).tobytes())
    assert _learning.unlined(b"one", 1, 0) == (b"", b"")


WORDS = range(40)
MESSAGES = st.lists(st.tuples(st.sets(st.sampled_from(WORDS)), st.sampled_from(LABELS), st.integers(0, 3)), max_size=12)
COUNTED = st.lists(
    st.tuples(*2 * [st.integers(0, 60) | st.integers(0, 10_000) | st.just(soft.COMMON)]), max_size=len(WORDS)
)
RULES = [Soft(), Soft(rate=0.07), Soft(rate=0.06251), Soft(scale=1e6), Soft(prior=1e-6, purity=1e6)]


def both_ways(counted: list[tuple[int, int]]) -> list[tuple[Callable[[dict[bytes, int]], Tokens], Counts]]:
    """The same counts of numbers as words, where the helper learns and where Python does, with how each has tokens."""
    found: list[tuple[Callable[[dict[bytes, int]], Tokens], Counts]] = [(seen, Counts(Hashed())), (dict, Counts())]
    for _, counts in found:
        for word, both in enumerate(counted):
            for label, count in zip(LABELS, both, strict=True):
                counts.kept.put([b"%d" % word], label, np.array([count]))
    return found


@some(300)
@given(MESSAGES, COUNTED, st.lists(st.integers(0, Soft.most), min_size=4, max_size=4), st.sampled_from(RULES))
def test_another_look_at_many_messages_is_one_at_each(
    messages: list[tuple[set[int], Label, int]], counted: list[tuple[int, int]], before: list[int], rule: Soft
) -> None:
    """Some messages are the same one, some have words that have no slot, or counts that are not common."""
    labels, places = [label for _, label, _ in messages], np.array([place for *_, place in messages], np.int64)
    found = []
    for made, counts in both_ways(counted):
        tokens = [made({b"%d" % word: 1 for word in words}) for words, *_ in messages]
        amounts = np.array(before)
        rule.reinforce(tokens, labels, counts, amounts, places)
        found.append((amounts.tolist(), [column.tolist() for column in counts.kept.hashes()]))
    assert found[0] == found[1]


@some(300)
@given(MESSAGES, COUNTED, st.sampled_from(RULES))
def test_many_messages_are_learnt_as_one_by_one(
    messages: list[tuple[set[int], Label, int]], counted: list[tuple[int, int]], rule: Soft
) -> None:
    labels = [label for _, label, _ in messages]
    found = []
    for made, counts in both_ways(counted):
        learnt = rule.learn([made({b"%d" % word: 1 for word in some}) for some, *_ in messages], labels, counts)
        totals = counts.messages, counts.occurrences, counts.vocabulary
        found.append((learnt, totals, [column.tolist() for column in counts.kept.hashes()]))
    assert found[0] == found[1]


def test_what_is_learnt_at_once_finds_room_in_a_full_table_and_in_one_of_small_counts() -> None:
    counts = Counts(Hashed())
    messages = [seen({b"%d %d" % (number, at): 1 for at in range(50)}) for number in range(60)]
    Soft().learn(messages, ["spam"] * 60, counts)
    assert len(counts.kept.hashes()[0]) == counts.vocabulary == 3000
    assert counts.messages == {"ham": 0, "spam": 60}
    counts.kept.put([b"0 0"], "ham", np.array([words.NARROW - 1]))
    Soft().reinforce(messages[:1], ["ham"], counts, np.zeros(1, np.int64), np.zeros(1, np.int64))
    assert counts.get(b"0 0", "ham") > words.NARROW


@pytest.mark.parametrize("made", [dict[bytes, int], seen], ids=["a-dict", "arrays"])
@pytest.mark.parametrize("table", [Spelled, Hashed])
def test_without_the_helper_messages_are_looked_at_one_by_one(
    monkeypatch: pytest.MonkeyPatch, table: type[Words], made: Callable[[dict[bytes, int]], Tokens]
) -> None:
    monkeypatch.setattr(words, "_learning", None)
    counts = Counts(table())
    counts.add("spam", {b"cheap": 200})
    messages, amounts = [made({b"cheap": 1}), made({b"new": 1}), made({b"new": 1})], np.array([0, 15])
    Soft().reinforce(messages, ["spam", "ham", "ham"], counts, amounts, np.array([0, 1, 1]))
    assert amounts.tolist() == [0, 16]
    assert (counts.get(b"new", "ham"), counts.get(b"cheap", "spam")) == (1, 200)
    Soft().reinforce(messages[1:2], ["spam"], counts, np.array([0]), np.array([0]))
    assert counts.messages == {"ham": 0, "spam": 2}


def test_without_the_helper_a_table_is_changed_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words, "_learning", None)
    counts = Counts(Hashed())
    assert counts.add("ham", seen({b"a": 3})) == Counts().add("ham", {b"a": 3})


TABLE: Integers = np.zeros((2, 4, 2), np.int64)
ONE: Integers = np.ones(1, np.int64)
ENDS = np.array([4], np.uint32)
NONE: Integers = np.zeros(0, np.int64)
TWO: Integers = np.zeros(2, np.int64)
FIRST = ONE.copy(), ONE - 1
RULE = np.ones(1), 1.0, 1.0, 1.0, 1.0, 16, 1.0


@pytest.mark.parametrize(
    ("name", "given"),
    [
        pytest.param("change", (TABLE.reshape(4, 4), ONE, ONE, 0, 1, 8, 9), id="no slots"),
        pytest.param("change", (TABLE.reshape(4, 2, 2), ONE, ONE, 0, 1, 8, 9), id="half a bucket"),
        pytest.param("change", (TABLE, ONE, np.ones(2, np.int64), 0, 1, 8, 9), id="a key is missing"),
        pytest.param("change", (TABLE, ONE, ONE, 2, 1, 8, 9), id="no column"),
        pytest.param("change", (TABLE, ONE, ONE, 0, 2, 8, 9), id="no sign"),
        pytest.param("rows", ("a", [(b"word", ENDS + 1, ONE, ONE, 0, 1)], 8), id="a word beyond the text"),
        pytest.param("rows", ("a", [(b"word", ENDS, ONE, ONE, 2, 1)], 8), id="no class"),
        pytest.param("rows", ("a", [(b"word", ENDS[:0], ONE, ONE, 0, 1)], 8), id="a word without an end"),
        pytest.param("rows", ("a", [(b"word", ENDS, ONE, ONE * 2**62, 0, 1)] * 2, 8), id="beyond 64 bits"),
        pytest.param("rows", ("a", [(b"\xff\xff\xff\xff", ENDS, ONE, ONE, 0, 1)], 8), id="no UTF-8"),
        pytest.param("lines", ([(b"1", (b"word", ENDS + 1, b"", ENDS))],), id="a line beyond the text"),
        pytest.param("lines", ([(b"1", (b"word", ENDS - 1, b"", ENDS))],), id="text beyond the lines"),
        pytest.param("lines", ([(b"1", (b"word", ENDS[:0], b"", ENDS[:0]))],), id="text without a line"),
        pytest.param("lines", ([(b"1", (b"word", ENDS, b"", ENDS[:0]))],), id="a line without occurrences"),
        pytest.param("lines", ([(b"1", (b"word", b"12345", b"", b"12345"))],), id="a number without an end"),
        pytest.param("unlined", (b"one\ntwo", 0, 3), id="a line too many"),
        pytest.param("unlined", (b"one\ntwo", 2, 1), id="no line there"),
        pytest.param("unlined", (b"one\ntwo", 0, 2**62), id="lines without number"),
        pytest.param("unlined", (b"one\ntwo", -1, 1), id="a line before the first"),
        pytest.param("unlined", (b"one\ntwo", 0, -1), id="less than no line"),
        pytest.param("learn", (TABLE, [ONE], b"", FIRST, 0, RULE, 8, NONE, NONE), id="a label is missing"),
        pytest.param("learn", (TABLE, [ONE], b"\1", (ONE, NONE), 0, RULE, 8, NONE, NONE), id="a place is missing"),
        pytest.param("learn", (TABLE, [ONE], b"\1", (ONE, ONE), 0, RULE, 8, NONE, NONE), id="a place beyond amounts"),
        pytest.param("learn", (TABLE, [ONE], b"\1", (ONE, -ONE), 0, RULE, 8, NONE, NONE), id="a place before amounts"),
        pytest.param("learn", (TABLE, [ONE], b"\1", FIRST, -1, RULE, 8, NONE, NONE), id="before the first"),
        pytest.param("learn", (TABLE, [ONE], b"\1", FIRST, 0, RULE, 8, ONE, NONE), id="odds without words"),
        pytest.param("learn", (TABLE, [ONE] * 2, b"\1\1", (ONE, TWO), 0, RULE, 8, ONE, ONE), id="odds are missing"),
    ],
)
def test_what_does_not_fit_is_refused(name: str, given: tuple[object, ...]) -> None:
    with pytest.raises(ValueError, match=r"whole buckets|each|ends where|so many lines|beyond 64|invalid start byte"):
        getattr(_learning, name)(*given)
    assert not TABLE.any()


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("change", (b"", ONE, ONE, 0, 1, 8, 9)),
        ("rows", ("a", (), 8)),
        ("rows", (b"a", [], 8)),
        ("rows", ("a", [[]], 8)),
        ("lines", (1,)),
        ("lines", ([1],)),
        ("lines", ([(b"1", (b"word", "1234", b"", ENDS))],)),
        ("lines", ([(b"1", [b"word", ENDS, b"", ENDS])],)),
        ("unlined", ("text", 0, 1)),
        ("learn", (TABLE, ["text"], b"\1", FIRST, 0, RULE, 8, NONE, NONE)),
        ("learn", (TABLE, [ONE], b"\1", (b"12345678", ONE - 1), 0, RULE, 8, NONE, NONE)),
        ("learn", (TABLE, [ONE], b"\1", FIRST, 0, RULE, 8, b"12345678", b"12345678")),
    ],
)
def test_a_wrong_type_is_a_type_error(name: str, given: tuple[object, ...]) -> None:
    with pytest.raises((TypeError, BufferError)):
        getattr(_learning, name)(*given)


def test_a_change_that_has_no_room_or_leaves_the_range_changes_nothing() -> None:
    table = TABLE.copy()
    two = np.array([5, 6], np.int64)
    assert _learning.change(table, two, two, 0, 1, 1, 100) is None
    assert _learning.change(table, two, two, 0, 1, 8, 5) is None
    assert _learning.change(table, two, two, 0, -1, 8, 100) is None
    assert not table.any()
    assert _learning.change(table, two, two, 0, 1, 2, 100) == (2, 2)
    assert _learning.change(table, two, two, 1, 1, 0, 100) == (0, 0)
    assert _learning.change(table, two, two, 0, -1, 0, 100) == (0, 0)
    assert _learning.change(table, two, two, 1, -1, 0, 100) == (-2, 0)
    assert not table[:, :, 1].any()


def test_a_full_table_is_left_as_it_is() -> None:
    table = np.zeros((2, 4, 2), np.int64)
    table[:, :, 0] = np.arange(1, 9).reshape(2, 4)
    before = table.copy()
    nine: Integers = np.array([9], np.int64)
    assert _learning.change(table, nine, nine, 0, 1, 8, 100) is None
    assert np.array_equal(table, before)


def test_a_table_with_less_room_than_it_is_said_to_have_is_refused() -> None:
    table = np.zeros((2, 4, 2), np.int64)
    table[:, :, 0] = np.arange(8).reshape(2, 4)
    two = np.array([8, 9], np.int64)
    with pytest.raises(ValueError, match="room"):
        _learning.change(table, two, two, 0, 1, 8, 100)


def test_a_count_of_32_bits_never_gets_more() -> None:
    table, key = TABLE.copy(), np.array([5], np.int64)
    assert _learning.change(table, key, key * 2**32, 0, 1, 8, 2**62) is None
    assert _learning.change(table, key, np.array([words.NARROW]), 0, 1, 8, 2**62) == (1, 1)
    assert _learning.change(table, key, ONE, 0, 1, 8, 2**62) is None


HOSTILE = st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 20)
NUMBERS = st.floats() | st.sampled_from([0.0, 1.0, 8.0])


@some(300)
@given(
    st.lists(HOSTILE, min_size=32, max_size=32), st.lists(HOSTILE, max_size=9), HOSTILE, st.lists(NUMBERS, max_size=9),
    st.tuples(NUMBERS, NUMBERS, NUMBERS, NUMBERS, HOSTILE, NUMBERS), st.sampled_from([2, 4]), st.booleans(),
    st.integers(0, 40),
)  # fmt: skip
def test_learning_anything_reads_and_writes_nothing_else(
    numbers: list[int], keys: list[int], amount: int, logarithms: list[float], rule: tuple[Any, ...], slots: int,
    asked: bool, room: int,
) -> None:  # fmt: skip
    table = np.array(numbers, np.int64).reshape(-1, 4, slots)[:, :, :3].copy()
    amounts, key = np.array([7, amount, 7]), np.array(keys, np.int64)
    known = np.array(logarithms, np.float64)
    odds, grown = (np.zeros(1), np.zeros(1, np.int64)) if asked else (NONE, NONE)
    try:
        learnt, used = _learning.learn(table, [key], b"\1", (amounts, ONE), 0, (known, *rule), room, odds, grown)
    except ValueError:
        assert room > np.count_nonzero(table[:, :, 0] == 0)
    else:
        assert (learnt, 0 <= used <= len(keys)) in ((0, True), (1, True))
    assert (amounts[0], amounts[2]) == (7, 7)
    before = np.array(numbers, np.int64).reshape(-1, 4, slots)[:, :, 0]
    assert ((table[:, :, 0] == before) | (before == 0)).all()
