"""The journal of several processes, written by one of them: what the others send, and the collector that writes it.

Guarantee: a batch is answered after it is in the store; who has no answer keeps it and sends it again, to the next
collector if need be, and the store takes each entry once. All sockets are pairs, which nobody else can reach; what
comes through them is of our own making, and pickled.
"""

import asyncio
import logging
import pickle
import socket
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import fields
from datetime import datetime
from operator import attrgetter

from spamfilter.bayes.voices import Packed, pack_seen
from spamfilter.errors import StoreBusy, StoreError
from spamfilter.stores import JournalEntry, Store

log = logging.getLogger(__name__)

ANSWER_SECONDS = 25.0
"""The database's busy timeout for our batch and for another's before it, and room; who waits longer sends it again."""
SIZE = 8
"""Bytes of the number that says how long what follows is."""


_VALUES = attrgetter(*(field.name for field in fields(JournalEntry)))


def _sent(entries: Iterable[JournalEntry]) -> bytes:
    """Entries as their values, of which the last is the tokens, packed: as they are they take six times as long."""
    rows = (_VALUES(entry) for entry in entries)
    return pickle.dumps([(*facts, None if tokens is None else pack_seen(tokens)) for *facts, tokens in rows])


def _received(batch: bytes) -> list[JournalEntry]:
    rows = pickle.loads(batch)  # noqa: S301 - of our own process
    return [JournalEntry(*(*facts, None if tokens is None else Packed(tokens))) for *facts, tokens in rows]


class Sending:
    """What a process' journal writes to instead of a store. meeting: where collectors look for connections.

    For one thread.
    """

    def __init__(self, meeting: socket.socket) -> None:
        self._meeting = meeting
        self._line: socket.socket | None = None

    def write_journal(self, entries: Sequence[JournalEntry]) -> None:
        """As a store's. Raises StoreError, too, where the collector does not answer."""
        try:
            error = self._answer(_sent(entries))
        except (OSError, EOFError) as error:
            self.close()
            raise StoreError(f"the process that writes the journal does not answer: {error or 'it ended'}") from error
        if error is not None:
            raise error

    def close(self) -> None:
        """Hang up; whatever is written after that calls anew."""
        if self._line is not None:
            self._line.close()
            self._line = None

    def _answer(self, batch: bytes) -> Exception | None:
        if self._line is None:
            self._line, theirs = socket.socketpair()
            self._line.settimeout(ANSWER_SECONDS)
            with theirs:
                socket.send_fds(self._meeting, [b"journal"], [theirs.fileno()], socket.MSG_DONTWAIT)
        self._line.sendall(len(batch).to_bytes(SIZE, "big") + batch)
        with self._line.makefile("rb") as answers:
            size = int.from_bytes(answers.read(SIZE), "big")
            error = pickle.loads(answers.read(size))  # noqa: S301 - of our own process; EOFError where there is none
        return error if isinstance(error, Exception) else None

    def expire(self, tokens_before: datetime, entries_before: datetime, tokens_bytes: int) -> None:
        """Nothing: the collector's process does that."""

    def sweep(self, source: str, before: datetime) -> None:
        """Nothing, likewise."""


class Collector:
    """Writes what comes by the connections that are handed over at the meeting, one batch after the other.

    trouble: why nothing could be written when last tried, '' while it can.
    """

    def __init__(self, store: Store, meeting: socket.socket) -> None:
        self.trouble = ""
        self._store = store
        self._meeting = meeting
        self._thread = ThreadPoolExecutor(1, "collector")
        self._failed_at = float("-inf")
        self._senders: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        self._meeting.setblocking(False)
        asyncio.get_running_loop().add_reader(self._meeting, self._meet)

    async def stop(self) -> None:
        """Write what has come, of senders that have all ended."""
        asyncio.get_running_loop().remove_reader(self._meeting)
        self._meet()
        if self._senders:
            await asyncio.wait(self._senders, timeout=ANSWER_SECONDS)
        self._thread.shutdown()

    def _meet(self) -> None:
        try:
            _, descriptors, _, _ = socket.recv_fds(self._meeting, 16, 1)
        except BlockingIOError:
            return
        for descriptor in descriptors:
            task = asyncio.create_task(self._serve(socket.socket(fileno=descriptor)))
            self._senders.add(task)
            task.add_done_callback(self._senders.discard)

    async def _serve(self, sock: socket.socket) -> None:
        reader, writer = await asyncio.open_unix_connection(sock=sock)
        loop = asyncio.get_running_loop()
        with closing(writer):
            while True:
                try:
                    size = int.from_bytes(await reader.readexactly(SIZE), "big")
                    batch = await reader.readexactly(size)
                    answer = await loop.run_in_executor(self._thread, self._written, batch, time.monotonic())
                    writer.write(len(answer).to_bytes(SIZE, "big") + answer)
                    await writer.drain()
                except (asyncio.IncompleteReadError, ConnectionError):
                    return  # it ended; what it had sent in part is nobody's any more

    def _written(self, batch: bytes, came_at: float) -> bytes:
        """Write a batch. Returns the answer: None, or the error."""
        if (
            came_at < self._failed_at
        ):  # it has waited while another batch failed: do not wait for the locked database again
            return pickle.dumps(StoreBusy(self.trouble))
        try:
            self._store.write_journal(_received(batch))
        except StoreError as error:
            self.trouble, self._failed_at = str(error), time.monotonic()
            return pickle.dumps(error)
        except Exception as error:
            return pickle.dumps(ValueError(repr(error)))  # any other may be nothing that can be sent
        self.trouble = ""
        return pickle.dumps(None)
