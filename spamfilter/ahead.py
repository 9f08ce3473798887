"""Mails read ahead in other processes, where there are cores for them: files to readings, with their tokens packed.

Guarantee: readings come in the order of the mails and are those that this process would have made, however many
processes there are. What one of them could not do, whatever the reason, is left to whoever asks. They hold nothing
open for writing, keep at most AHEAD bytes of readings waiting, and end with their parent, whatever ends it.
"""

import fcntl
import gc
import os
import pickle
import signal
import threading
import warnings
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from typing import Any, NoReturn

from spamfilter.errors import InputError
from spamfilter.filter import Reading
from spamfilter.mailboxes import Mail
from spamfilter.seen import Seen
from spamfilter.voices import Packed, pack

CHUNK = 16
"""Mails that a process reads and sends at a time: half a megabyte."""
AHEAD = 32 * 2**20
"""Bytes of readings that wait for one process: about what one transaction of training takes, so that reading goes on
while that is written."""
PIPE = 2**20
"""Bytes of a pipe, where the system allows that: what is given without asking is less than a chunk."""

Read = Callable[[Mail], Reading]


def ahead(read: Read, mails: Sequence[Mail], processes: int) -> Generator[Reading | InputError | None, None, None]:
    """Each mail as `read` reads it, or why it cannot be read; None where no process has done it.

    Forks at the first step, when no connection must be in use; the processes are gone when the iterator is closed.
    """
    chunks = [mails[start : start + CHUNK] for start in range(0, len(mails), CHUNK)]
    children: list[_Child] = []
    try:
        for number in range(processes):
            children.append(_Child(read, chunks[number::processes], [child.pipe for child in children]))
        for child in children:
            child.thread.start()  # once all are there: a process with threads should not fork
        for number, chunk in enumerate(chunks):
            frame = children[number % processes].next() if children else None
            if frame is None:
                yield from [None] * len(chunk)
            else:
                yield from map(_reading, pickle.loads(frame))  # noqa: S301 - what a child of ours has written
    finally:
        for child in children:
            child.close()


class _Child:
    """A process that reads its chunks, and a thread here that takes what it sends. pid: 0 if it could not be made."""

    def __init__(self, read: Read, chunks: Sequence[Sequence[Mail]], others: Sequence[int]) -> None:
        """others: pipes of other children, which are not this one's."""
        self._frames: deque[bytes | None] = deque()
        self._waiting = 0
        self._closed = False
        self._changed = threading.Condition()
        self.pid, self.pipe = _forked(read, chunks, others)
        self.thread = threading.Thread(target=self._take, daemon=True)

    def next(self) -> bytes | None:
        """The next frame, None after the last."""
        with self._changed:
            self._changed.wait_for(lambda: self._frames)
            if self._frames[0] is None:
                return None
            frame = self._frames.popleft()
            self._waiting -= len(frame or b"")
            self._changed.notify_all()
        return frame

    def _take(self) -> None:
        with open(self.pipe, "rb") as pipe:
            while frame := _frame(pipe.read):
                with self._changed:
                    self._changed.wait_for(lambda: self._waiting < AHEAD or self._closed)
                    self._frames.append(frame)
                    self._waiting += len(frame)
                    self._changed.notify_all()
        with self._changed:
            self._frames.append(None)
            self._changed.notify_all()

    def close(self) -> None:
        """End it: it has nothing to lose."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        if self.thread.ident is not None:
            self.thread.join()
        else:
            os.close(self.pipe)


def _frame(read: Callable[[int], bytes]) -> bytes:
    """The next frame of a pipe; empty at its end, and where it breaks off."""
    size = int.from_bytes(read(8), "big")
    frame = read(size)
    return frame if len(frame) == size else b""


def _forked(read: Read, chunks: Sequence[Sequence[Mail]], others: Sequence[int]) -> tuple[int, int]:
    """The child's pid, and the pipe that it writes to."""
    mine, its = os.pipe()
    with suppress(OSError):
        fcntl.fcntl(mine, fcntl.F_SETPIPE_SZ, PIPE)
    pid = 0
    with suppress(OSError), warnings.catch_warnings():
        # Python 3.12 warns of threads. Those there are belong to numpy's linear algebra, which the child does not use.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork() or _work(read, chunks, its, [mine, *others])
    os.close(its)
    return pid, mine


def _work(read: Read, chunks: Sequence[Sequence[Mail]], pipe: int, others: Sequence[int]) -> NoReturn:
    """The life of a child. Connections that it was born with are neither used nor closed."""
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # its parent hears it, and ends it
        gc.disable()
        for other in others:
            os.close(other)
        with open(pipe, "wb") as out:
            for chunk in chunks:
                frame = pickle.dumps([_item(read, mail) for mail in chunk], pickle.HIGHEST_PROTOCOL)
                out.write(len(frame).to_bytes(8, "big"))
                out.write(frame)
                out.flush()
    finally:
        os._exit(0)


Item = str | tuple[bytes, bytes, dict[str, Any]]
"""What goes through a pipe: why a mail cannot be read; or its digest, its tokens packed, and by voice."""


def _item(read: Read, mail: Mail) -> Item:
    try:
        reading = read(mail)
    except InputError as error:
        return str(error)
    tokens = {voice: _parts(some) if isinstance(some, Seen) else dict(some) for voice, some in reading.tokens.items()}
    return reading.digest, pack(reading.tokens), tokens


def _parts(seen: Seen) -> tuple[bytes, bytes, bytes, bytes]:
    spelt = seen.spellings
    return spelt.text, spelt.ends.tobytes(), spelt.hashes.tobytes(), seen.times.tobytes()


def _reading(item: Item) -> Reading | InputError:
    if isinstance(item, str):
        return InputError(item)
    digest, packed, found = item
    tokens = {voice: Seen(*some) if isinstance(some, tuple) else some for voice, some in found.items()}
    return Reading(digest, Packed(packed, tokens))
