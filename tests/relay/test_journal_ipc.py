"""Journals of several processes, written by one, with real sockets, a real database, and processes that exit."""

import asyncio
import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, closing
from datetime import timedelta
from pathlib import Path

import pytest

from spamfilter.errors import CountError, StoreBusy, StoreError
from spamfilter.relay import journal_ipc
from spamfilter.relay.journal import BATCH, Journal
from spamfilter.relay.journal_ipc import Collector, Sending
from spamfilter.stores import JournalEntry, Store, open_store
from tests.support.made import NOON, journal_entry

Meeting = tuple[socket.socket, socket.socket]


@pytest.fixture
def meeting() -> Iterator[Meeting]:
    collectors, senders = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with collectors, senders:
        yield collectors, senders


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with closing(open_store(f"sqlite:///{tmp_path / 'spamfilter.db'}", migrate=True)) as made:
        yield made


@asynccontextmanager
async def collected(store: object, meeting: Meeting) -> AsyncIterator[Collector]:
    collector = Collector(store, meeting[0])  # type: ignore[arg-type]
    collector.start()
    try:
        yield collector
    finally:
        await collector.stop()


def kept(store: Store) -> list[JournalEntry]:
    return store.journal(NOON - timedelta(days=1), NOON + timedelta(days=1))


async def sent(meeting: Meeting, *batches: Sequence[JournalEntry]) -> None:
    """Send these, one after the other."""
    with closing(Sending(meeting[1])) as sending:
        for entries in batches:
            await asyncio.to_thread(sending.write_journal, entries)


async def test_what_is_sent_is_in_the_store_when_it_is_answered(store: Store, meeting: Meeting) -> None:
    entries = [journal_entry(tokens={"body": {b"offer": 2}}) for _ in range(3)]
    async with collected(store, meeting):
        await sent(meeting, entries[:1])
        assert len(kept(store)) == 1
        await sent(meeting, entries[1:2], entries[2:])
    assert {entry.id for entry in kept(store)} == {entry.id for entry in entries}
    found = store.find_journal(entries[0].id)
    assert found is not None
    assert found.tokens == {"body": {b"offer": 2}}


async def test_a_batch_that_comes_again_is_kept_once(store: Store, meeting: Meeting) -> None:
    entries = [journal_entry() for _ in range(3)]
    async with collected(store, meeting):
        await sent(meeting, entries)
        await sent(meeting, entries)
    assert len(kept(store)) == 3


async def test_batches_larger_than_a_sockets_buffer_arrive_whole(store: Store, meeting: Meeting) -> None:
    entries = [journal_entry(subject="x" * 10_000) for _ in range(BATCH)]
    async with collected(store, meeting):
        await sent(meeting, entries)
    assert len(kept(store)) == BATCH


class Refusing:
    def __init__(self, error: Exception) -> None:
        self.error = error

    def write_journal(self, entries: Sequence[JournalEntry]) -> None:
        raise self.error


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        pytest.param(StoreBusy("busy; try again"), StoreBusy, id="busy"),
        pytest.param(CountError("a count"), CountError, id="an entry that cannot be kept"),
        pytest.param(UnicodeEncodeError("utf-8", "x", 0, 1, "surrogates"), ValueError, id="not one of ours"),
    ],
)
async def test_what_the_store_says_is_what_the_sender_hears(
    meeting: Meeting, error: Exception, raised: type[Exception]
) -> None:
    async with collected(Refusing(error), meeting) as collector:
        with pytest.raises(raised):
            await sent(meeting, [journal_entry()])
        assert collector.trouble == (str(error) if isinstance(error, StoreError) else "")


async def test_while_the_database_is_locked_no_batch_waits_for_those_before_it(meeting: Meeting) -> None:
    tried = []

    class Locked:
        def write_journal(self, entries: Sequence[JournalEntry]) -> None:
            tried.append(entries[0].id)
            time.sleep(0.5)
            raise StoreBusy("locked; try again")

    async with collected(Locked(), meeting):
        batches = [sent(meeting, [journal_entry()]) for _ in range(10)]
        answers = await asyncio.gather(*batches, return_exceptions=True)
    assert [type(answer) for answer in answers] == [StoreBusy] * 10
    assert len(tried) < 10


async def test_a_journal_goes_on_with_the_next_collector(store: Store, meeting: Meeting) -> None:
    sending = Sending(meeting[1])
    journal = Journal(sending)
    entries = [journal_entry() for _ in range(5)]
    async with collected(store, meeting):
        journal.add(entries[0])
        await asyncio.to_thread(journal.write)
        sending._line.shutdown(socket.SHUT_RDWR)  # type: ignore[union-attr]  # as the end of the other side looks
    for entry in entries[1:]:
        journal.add(entry)
    writing = asyncio.ensure_future(asyncio.to_thread(journal.write))  # the only one, as at the end of a worker
    await asyncio.sleep(0.1)
    assert not writing.done()
    async with collected(store, meeting):
        await writing
        assert (journal.waiting, journal.written, journal.trouble, journal.faults) == (0, 5, "", 0)
        sending.close()
    assert len(kept(store)) == 5


def test_without_a_collector_entries_are_held_up_to_the_bound(
    meeting: Meeting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_ipc, "ANSWER_SECONDS", 0.01)
    journal = Journal(Sending(meeting[1]), backlog=10)
    for _ in range(100):
        journal.add(journal_entry())
        journal.write()
    assert (journal.waiting, journal.dropped) == (10, 90)


async def test_a_sender_that_dies_amid_a_batch_leaves_nothing_of_it(store: Store, meeting: Meeting) -> None:
    def die() -> None:
        line, theirs = socket.socketpair()
        socket.send_fds(meeting[1], [b"journal"], [theirs.fileno()])
        line.sendall((10**6).to_bytes(8, "big") + b"a part")
        os.kill(os.getpid(), signal.SIGKILL)

    pid = os.fork()
    if not pid:
        die()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    async with collected(store, meeting):
        await sent(meeting, [journal_entry()])
    assert len(kept(store)) == 1


async def test_several_senders_write_beside_each_other(store: Store, meeting: Meeting) -> None:
    async with collected(store, meeting):
        batches = ([journal_entry() for _ in range(50)] for _ in range(5))
        await asyncio.gather(*(sent(meeting, batch) for batch in batches))
    assert len(kept(store)) == 250
