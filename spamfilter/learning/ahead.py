"""Mails read ahead in other processes, where there are cores for them: files to readings, with their tokens.

Guarantee: readings come in the order of the mails and are those that this process would have made, however many
processes there are. What one of them could not do, whatever the reason, is left to whoever asks. They hold nothing
open for writing, keep at most AHEAD bytes of readings waiting, and end with their parent, whatever ends it.
"""

import gc
import mmap
import os
import pickle
import signal
import socket
import struct
import threading
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, NoReturn

from spamfilter.bayes.token_arrays import Seen
from spamfilter.bayes.voices import Packed, pack
from spamfilter.errors import InputError
from spamfilter.learning.filter import Reading
from spamfilter.mail.mailboxes import Mail

CHUNK = 16
"""Mails that a process reads at a time: half a megabyte of readings."""
AHEAD = 32 * 2**20
"""Bytes of readings of a process that wait: about what one transaction of training takes, so that reading goes on
while that is written."""

NICE = 19
"""What a child adds to its own niceness: where there are too few cores, the one that waits for it goes first."""

Read = Callable[[Mail], Reading]
Item = str | tuple[bytes, bytes | None, dict[str, Any]]
"""What a child puts down: why a mail cannot be read; or its digest, its tokens packed, if that was asked for, and by
voice."""
_ReadItem = Callable[[Mail], Item]


def ahead(
    read: Read, mails: Sequence[Mail], processes: int, packs: bool = True
) -> Generator[Reading | InputError | None, None, None]:
    """Each mail as `read` reads it, or why it cannot be read; None where no process has done it.

    packs: whether tokens are packed as well, for the ledger. Forks at the first step, when no connection must be in
    use; the processes are gone when the iterator is closed.
    """
    chunks = [mails[start : start + CHUNK] for start in range(0, len(mails), CHUNK)]
    children: list[_Child] = []
    ignored = processes > 0 and signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN
    if ignored:  # or the numbers of those that have ended were anybody's
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        with suppress(OSError):  # where there is no room for another process, its mails are left
            for number in range(processes):
                with _interrupts_wait():  # until it is known whose they are, and which processes there are
                    children.append(_Child(partial(_item, read, packs), chunks[number::processes], children[:]))
        for number, chunk in enumerate(chunks):
            reader = number % max(processes, 1)
            items = children[reader].next() if reader < len(children) else None
            yield from [None] * len(chunk) if items is None else map(_reading, items)
    finally:
        with _interrupts_wait():
            for child in children:
                child.close()
            if ignored:
                signal.signal(signal.SIGCHLD, signal.SIG_IGN)


@contextmanager
def _interrupts_wait() -> Iterator[None]:
    """An interrupt is heard at the end, and by this process: a child must not do what its parent is to do.

    To block the signal is not enough: other threads would be told of it, as those of numpy, and this one hear it.
    """
    if threading.current_thread() is not threading.main_thread():  # where none is ever heard
        yield
        return
    heard: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: heard.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL if before is None else before)
        if heard:
            signal.raise_signal(signal.SIGINT)


_PLACE = struct.Struct("=QQ")
"""What a child says of a chunk: where its readings begin in the memory of both, and their size; 0 if there is no room
for them."""
_TAKEN = b"."
"""What it is told when the first of them have been taken from there."""


class _Child:
    """A process that reads its chunks, and the memory where it puts what it has read.

    Nothing here waits for the interpreter's lock, as a thread would that takes what comes through a pipe.
    """

    def __init__(self, read: _ReadItem, chunks: Sequence[Sequence[Mail]], others: Sequence["_Child"]) -> None:
        """others: those made before, whose connections are not this one's. Raises OSError."""
        self._pid = 0
        self._memory = mmap.mmap(-1, AHEAD)
        self._ours, its = socket.socketpair()
        try:
            with its, warnings.catch_warnings():
                # Python 3.12 warns of threads. Those there are belong to numpy's linear algebra, which is not used.
                warnings.simplefilter("ignore", DeprecationWarning)
                self._pid = os.fork() or _work(read, chunks, its, self._memory, [*others, self])
        except BaseException:
            self.close()
            raise

    def next(self) -> list[Any] | None:
        """What it has read of the next chunk; None if it has not."""
        try:
            said = self._ours.recv(_PLACE.size, socket.MSG_WAITALL)
        except ConnectionResetError:  # it ended before it heard all
            return None
        start, size = _PLACE.unpack(said) if len(said) == _PLACE.size else (0, 0)
        if not size:
            return None
        with memoryview(self._memory) as memory, memory[start : start + size] as frame:
            items: list[Any] = pickle.loads(frame)  # noqa: S301 - what a child of ours has written
        with suppress(OSError):  # it has ended
            self._ours.send(_TAKEN)
        return items

    def hang_up(self) -> None:
        self._ours.close()

    def close(self) -> None:
        """End it: it has nothing to lose."""
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
        self.hang_up()
        self._memory.close()


class _Room:
    """What a child knows of the memory: which parts are in use, in the order in which they are taken."""

    def __init__(self, size: int) -> None:
        self._size = size
        self.used: deque[tuple[int, int]] = deque()

    def take(self, size: int) -> int | None:
        """The start of so many bytes, in use from now on; None where they do not fit."""
        start = self._free(size)
        if start is not None:
            self.used.append((start, start + size))
        return start

    def _free(self, size: int) -> int | None:
        first, last = (self.used[0][0], self.used[-1][1]) if self.used else (0, 0)
        if self.used and last <= first:
            return last if size <= first - last else None
        if size <= self._size - last:
            return last
        return 0 if size <= first else None


def _work(
    read: _ReadItem, chunks: Sequence[Sequence[Mail]], its: socket.socket, memory: mmap.mmap, others: Sequence[_Child]
) -> NoReturn:
    """The life of a child. Connections to the store that it was born with are neither used nor closed."""
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # its parent hears it, and ends it
        gc.disable()
        os.nice(NICE)
        for other in others:
            other.hang_up()
        room = _Room(len(memory))
        for chunk in chunks:
            frame = pickle.dumps([*map(read, chunk)], pickle.HIGHEST_PROTOCOL)
            with suppress(BlockingIOError):
                _taken(room, its.recv(len(room.used) + 1, socket.MSG_DONTWAIT))
            while (start := room.take(len(frame))) is None and room.used:
                _taken(room, its.recv(1))
            if start is None:
                its.sendall(_PLACE.pack(0, 0))
            else:
                memory[start : start + len(frame)] = frame
                its.sendall(_PLACE.pack(start, len(frame)))
    finally:
        os._exit(0)


def _taken(room: _Room, said: bytes) -> None:
    """So many parts are free again. Raises EOFError if nobody asks any more."""
    if not said:
        raise EOFError
    for _ in said:
        room.used.popleft()


def _item(read: Read, packs: bool, mail: Mail) -> Item:
    try:
        reading = read(mail)
    except InputError as error:
        return str(error)
    tokens = {voice: some.parts() if isinstance(some, Seen) else dict(some) for voice, some in reading.tokens.items()}
    return reading.digest, pack(reading.tokens) if packs else None, tokens


def _reading(item: Item) -> Reading | InputError:
    if isinstance(item, str):
        return InputError(item)
    digest, packed, found = item
    tokens = {voice: Seen(*some) if isinstance(some, tuple) else some for voice, some in found.items()}
    return Reading(digest, tokens if packed is None else Packed(packed, tokens))
