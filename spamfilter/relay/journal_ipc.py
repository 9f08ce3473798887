"""The journal of several processes: workers send their entries to the keeper, whose collector writes them.

Guarantee: a batch is answered after it is in the store. A worker without an answer keeps the batch and sends it again,
to a restarted keeper if need be, and the store takes each entry once. All sockets are socket pairs, which no other
process can reach, so their content can be pickled.
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
from operator import attrgetter

from spamfilter.bayes.token_codec import Packed, pack_seen
from spamfilter.errors import StoreBusy, StoreError
from spamfilter.stores import JournalEntry, Store

log = logging.getLogger(__name__)

ANSWER_SECONDS = 25.0
"""Longer than the database's busy timeout for two batches, this one and one before it; after that it is sent again."""
SIZE = 8
"""Bytes of the length before each batch and each answer."""
_VALUES = attrgetter(*(field.name for field in fields(JournalEntry)))


def _sent(entries: Iterable[JournalEntry]) -> bytes:
    """A batch: the values of each entry, with packed tokens, which are six times faster to send."""
    rows = (_VALUES(entry) for entry in entries)
    return pickle.dumps([(*facts, None if tokens is None else pack_seen(tokens)) for *facts, tokens in rows])


def _received(batch: bytes) -> list[JournalEntry]:
    rows = pickle.loads(batch)  # noqa: S301 - of our own process
    return [JournalEntry(*(*facts, None if tokens is None else Packed(tokens))) for *facts, tokens in rows]


class Sending:
    """Takes the place of the store in a worker's journal. meeting: the socket by which it opens connections.

    Only one thread may use it.
    """

    def __init__(self, meeting: socket.socket) -> None:
        self._meeting = meeting
        self._line: socket.socket | None = None

    def write_journal(self, entries: Sequence[JournalEntry]) -> None:
        """As of a store. Also raises StoreError if the collector does not answer.

        One that has ended is replaced: what it did not answer is sent to the next one at once, as there may be no
        later write when the relay stops.
        """
        batch = _sent(entries)
        try:
            try:
                error = self._answer(batch)
            except TimeoutError:
                raise
            except (OSError, EOFError):
                self.close()
                error = self._answer(batch)
        except (OSError, EOFError) as error:
            self.close()
            raise StoreError(f"the process that writes the journal does not answer: {error or 'it ended'}") from error
        if error is not None:
            raise error

    def close(self) -> None:
        """Close the connection; the next write opens a new one."""
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


class Collector:
    """Writes the batches of all workers, one after the other. meeting: the socket by which connections come.

    trouble: why the last batch could not be written, '' if it could.
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

    async def answers(self) -> None:
        """Return when the thread has written what it had to; never if it hangs."""
        await asyncio.get_running_loop().run_in_executor(self._thread, int)

    async def stop(self) -> None:
        """Write the batches that have arrived; call it when all workers have exited."""
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
                    return  # the worker has exited; a partial batch is lost

    def _written(self, batch: bytes, came_at: float) -> bytes:
        """Write a batch. Returns the answer: None, or the error."""
        if came_at < self._failed_at:  # another batch has failed meanwhile: the locked database is not waited for again
            return pickle.dumps(StoreBusy(self.trouble))
        try:
            self._store.write_journal(_received(batch))
        except StoreError as error:
            self.trouble, self._failed_at = str(error), time.monotonic()
            return pickle.dumps(error)
        except Exception as error:
            return pickle.dumps(ValueError(repr(error)))  # other errors may not be picklable
        self.trouble = ""
        return pickle.dumps(None)
