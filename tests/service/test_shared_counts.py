"""Counts that several processes share: readers have what the writer has, and a writer may be killed at any moment."""

import mmap
import os
import re
import resource
import signal
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from spamfilter.bayes.count_table import NARROW
from spamfilter.bayes.likelihoods import LIKELIHOODS
from spamfilter.bayes.voices import Voice
from spamfilter.learning.filter import Filter
from spamfilter.learning.transaction import Reading
from spamfilter.mail.message import parse
from spamfilter.service import shared_counts
from spamfilter.service.shared_counts import LEAST, SharedCounts
from spamfilter.service.shared_filter import ReadingFilter, WritingFilter
from spamfilter.stores import Entry
from tests.support.made import VOICE, follow, mail, reading
from tests.support.memory_store import MemoryStore

KINDS = [(Voice("fields", kind()),) for kind in LIKELIHOODS.values()]


def shared(store: MemoryStore, voices: tuple[Voice, ...] = VOICE) -> tuple[WritingFilter, ReadingFilter, SharedCounts]:
    counts = SharedCounts()
    counts.replace(Filter(store, voices).loaded(), voices)
    return WritingFilter(store, voices, counts), ReadingFilter(store, voices, counts), counts


def learn(store: MemoryStore, voices: tuple[Voice, ...], numbers: Iterable[int], words: int = 20) -> None:
    """Every third mail is forgotten again."""
    filter = Filter(store, voices, whole=False)
    for number in numbers:
        each = reading(f"m{number}", *(f"word{number * 7 + at}" for at in range(words)))
        filter.learn(each, "spam" if number % 2 else "ham", "cli")
        if number % 3 == 0:
            filter.forget(each, "cli")


def bytes_of(counts: SharedCounts) -> int:
    """The memory that the system has given for them, by proc(5), of what this process has looked at."""
    _, _, mine = Path("/proc/self/smaps").read_text().partition(f"{counts._address:x}-")
    return int(re.findall(r"^Rss: +(\d+) kB", mine, re.MULTILINE)[0]) * 1024


def fork_and_kill(work: Iterator[None]) -> None:
    """Do this work in another process, and kill that when it yields."""
    pid = os.fork()
    if not pid:
        next(work)
        os.kill(os.getpid(), signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL


@pytest.mark.parametrize("voices", KINDS, ids=LIKELIHOODS)
def test_a_reader_has_what_the_writer_has_learnt_and_forgotten(voices: tuple[Voice, ...]) -> None:
    store = MemoryStore()
    writer, reader, _ = shared(store, voices)
    for first in range(0, 200, 50):  # the table grows from 768 words on
        learn(store, voices, range(first, first + 50))
        follow(writer)
        plain = Filter(store, voices)
        assert (reader.last, reader.learnt, reader.vocabulary) == (plain.last, plain.learnt, plain.vocabulary)
        assert reader._all().counts == plain._all().counts
        assert reader._all().calibration == plain._all().calibration
        asked = reading("asked", "word7", f"word{7 * first}", "unknown")
        assert reader.explained(asked) == plain.explained(asked)
        assert reader.score(asked) == plain.score(asked)


def test_other_processes_read_them() -> None:
    store = MemoryStore()
    writer, reader, _ = shared(store)
    before = reader.score(asked := reading("asked", "word0", "word8"))
    begin, end = os.pipe()
    pid = os.fork()
    if not pid:
        deadline = time.monotonic() + 30
        while reader.learnt["spam"] < 67 and time.monotonic() < deadline:
            time.sleep(0.001)
        os.write(end, repr(reader.score(asked)).encode())
        os._exit(0)
    learn(store, VOICE, range(200))
    follow(writer)
    said = os.read(begin, 65536).decode()
    os.waitpid(pid, 0)
    assert said == repr(Filter(store, VOICE).score(asked)) == repr(reader.score(asked)) != repr(before)


def test_a_table_that_grows_gives_the_memory_of_the_old_one_back() -> None:
    store = MemoryStore()
    writer, reader, counts = shared(store)
    sizes = []
    for first in range(0, 500, 100):
        learn(store, VOICE, range(first, first + 100), words=100)
        follow(writer)
        reader.vocabulary  # noqa: B018 - maps the new one
        sizes.append(bytes_of(counts))
    (place,) = counts._taken
    assert place.start > shared_counts.TABLES  # it has grown
    assert place.end - place.start <= sizes[-1] <= place.end - place.start + 2 * 65_536


def test_counts_that_need_more_room_get_it() -> None:
    store = MemoryStore()
    writer, reader, counts = shared(store)
    learn(store, VOICE, [1, 2])
    follow(writer)
    state = writer._all()
    with counts.changing(state, VOICE):
        state.counts["fields"].add("spam", {b"word7": NARROW})
    assert reader._all().counts["fields"].get(b"word7", "spam") > NARROW


def test_a_reader_changes_nothing() -> None:
    store = MemoryStore()
    _, reader, _ = shared(store)
    with pytest.raises(ValueError, match="read-only"):
        reader._all().counts["fields"].add("ham", {b"lunch": 1})


@pytest.mark.parametrize("grows", [False, True])
def test_of_a_writer_that_is_killed_nothing_is_left_once_another_has_loaded(grows: bool) -> None:
    store = MemoryStore()
    writer, reader, counts = shared(store)
    learn(store, VOICE, range(0, 200, 2))
    follow(writer)
    size, known = bytes_of(counts), reader.last
    asked = reading("asked", "word14", "word15")

    def half() -> Iterator[None]:
        state = writer._all()
        with counts.changing(state, VOICE):
            deltas: Mapping[bytes, int] = {b"more%d" % at: 1 for at in range(20_000 if grows else 20)}
            state.counts["fields"].add("ham", {**deltas, b"word14": 5})
            yield

    fork_and_kill(half())
    assert reader.last == known  # and they judge meanwhile
    assert reader.score(asked).known == 1.0
    learn(store, VOICE, range(1, 200, 2))
    following = WritingFilter(store, VOICE, counts)
    assert following.last == known
    following.adopt(following.loaded())
    plain = Filter(store, VOICE)
    assert reader._all().counts == plain._all().counts
    assert reader.score(asked) == plain.score(asked)
    assert (reader.last, reader.learnt) == (plain.last, plain.learnt)
    assert bytes_of(counts) <= size + 2 * 65_536


def test_of_a_record_that_is_half_written_nothing_is_read() -> None:
    store = MemoryStore()
    writer, reader, counts = shared(store)
    learn(store, VOICE, [1, 2])
    follow(writer)
    number = counts.held().number
    start = counts._start(number + 1)
    counts._records[start : start + 64] = bytes(range(64))
    assert counts._record(number + 1) is None
    assert counts._record(number - 1) is None
    assert reader.learnt == Filter(store, VOICE).learnt


def test_an_error_while_a_learning_is_written_is_not_shown() -> None:
    store = MemoryStore()
    writer, reader, _ = shared(store)
    learn(store, VOICE, [1])
    follow(writer)

    def wrong(entry: Entry) -> Entry:
        return replace(entry, id=entry.id + 1, undoes=entry.id, tokens={"fields": {b"never": 1}})

    with pytest.raises(Exception, match="below zero"):
        writer.take_in([wrong(entry) for entry in store.entries_after(0)])
    assert reader.learnt == {"ham": 0, "spam": 1}
    writer.adopt(writer.loaded())
    assert reader._all().counts == Filter(store, VOICE)._all().counts


def test_a_message_that_was_read_before_a_rebuild_is_judged_by_the_new_voices() -> None:
    store = MemoryStore()
    writer, reader, _ = shared(store)
    read = reader.read(parse(mail(body="cheap pills")))
    voices = (Voice("body", LIKELIHOODS["multinomial"]()),)
    other = MemoryStore()
    plain = Filter(other, voices)
    plain.learn(Reading(b"1" * 16, {"body": {b"cheap": 1}}), "spam", "cli")
    plain.learn(Reading(b"2" * 16, {"body": {b"lunch": 1}}), "ham", "cli")
    writer.adopt(Filter(other, voices).loaded(), voices)
    assert [voice.name for voice in reader.voices] == ["body"]
    assert reader.score(read).voices.keys() == {"body"}
    assert reader.score(read) == plain.score(plain.read(parse(mail(body="cheap pills"))))


def test_a_message_is_judged_by_counts_that_stand_still() -> None:
    store = MemoryStore()
    writer, _, counts = shared(store)
    learn(store, VOICE, range(2))
    seen: list[int] = []

    def work(held: shared_counts.Held) -> int:
        if not seen:
            follow(writer)  # as if in another process
        seen.append(held.state.last)
        return held.state.last

    assert counts.steady(work) == writer.last
    assert seen == [0, writer.last]


def test_address_space_is_used_again_and_never_more_than_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_counts, "SIZE", shared_counts.TABLES + 5 * 2**14)  # a small table has 2**14 bytes
    store = MemoryStore()
    writer, reader, _ = shared(store)
    learn(store, VOICE, range(6))
    for _ in range(9):
        writer.adopt(writer.loaded())
        assert reader._all().counts == Filter(store, VOICE)._all().counts
    learn(store, VOICE, range(6, 9), words=4000)
    with pytest.raises(MemoryError):
        writer.adopt(writer.loaded())
    assert reader.learnt["spam"] == 2


def test_where_address_space_is_limited_less_of_it_is_asked_for() -> None:
    """As with vm.overcommit_memory = 2, or a limit of the service manager."""
    pid = os.fork()
    if not pid:
        resource.setrlimit(resource.RLIMIT_AS, (2**33, 2**33))
        store = MemoryStore()
        writer, reader, _ = shared(store)
        learn(store, VOICE, range(50))
        follow(writer)
        os._exit(0 if reader.last == writer.last > 0 else 1)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def test_as_much_address_space_as_the_counts_take_is_left_for_all_else() -> None:
    """A relay whose counts took nearly all started, and had no room for its threads."""
    pid = os.fork()
    if not pid:
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + 2 * LEAST + 2**25, resource.RLIM_INFINITY))
        counts = SharedCounts()
        mmap.mmap(-1, LEAST).close()
        os._exit(0 if counts.held().number == 0 else 1)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
