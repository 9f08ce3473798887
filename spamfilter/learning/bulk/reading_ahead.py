"""Mails read ahead in other processes: from files to tokens, in the order of the mails.

Guarantee: the readings are those that this process would make, however many processes there are. Where the processes
fail, this process reads the mails. The processes write nothing, and end with their parent, whatever ends it.
Gain: `train` takes a third less time on two cores (benchmarks/learning_speed.py).
"""

import multiprocessing
import os
import signal
import threading
import warnings
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager, suppress
from itertools import islice

from spamfilter.bayes.token_codec import packed_tokens
from spamfilter.errors import InputError
from spamfilter.learning.transaction import Reading
from spamfilter.mail.mailboxes import Mail
from spamfilter.system.process import uninterrupted

CHUNK = 16
"""Mails that a process reads at a time: about half a megabyte of readings."""
WAITING = 64
"""Chunks that are being read or wait for this process: some thirty megabytes, so that reading goes on while this
process writes a transaction."""
FEWEST = 200
"""Mails for which other processes are started: a start takes some milliseconds."""
MOST_PROCESSES = 3
"""Processes that are worth their memory: one process learns what two or three can read."""
NICE = 5
"""What is added to the niceness of a reading process: the process that learns goes first where cores are few."""

Read = Callable[[Mail], Reading]


def told_apart(readings: Iterable[Reading | InputError]) -> Iterator[Reading | InputError]:
    """Equal messages as messages of their own: each but the first has another digest, the same in each run."""
    met: Counter[bytes] = Counter()
    for reading in readings:
        if isinstance(reading, Reading):
            met[digest := reading.digest] += 1
            reading = reading.copy(met[digest] - 1)
        yield reading


def processes_here() -> int:
    """Processes that should read ahead on this machine: as many as cores, up to MOST_PROCESSES; none for one core."""
    cores = len(os.sched_getaffinity(0))
    return min(cores, MOST_PROCESSES) if cores > 1 else 0


def read_ahead(read: Read, mails: Sequence[Mail], processes: int) -> Generator[Reading | InputError, None, None]:
    """Each mail as `read` reads it, or why it cannot be read.

    Forks at the first step, when no connection must be in use; the processes end when the generator is closed.
    """
    done = 0
    if processes and len(mails) >= FEWEST:
        with (
            suppress(BrokenProcessPool, OSError, NotImplementedError),  # no room for processes, or one was killed
            closing(_of_processes(read, mails, processes)) as readings,
        ):
            for reading in readings:
                yield reading
                done += 1
    for mail in islice(mails, done, None):
        yield _reading(read, mail)


def _of_processes(read: Read, mails: Sequence[Mail], processes: int) -> Generator[Reading | InputError, None, None]:
    fork = multiprocessing.get_context("fork")  # reading a mail is a closure, which only a fork can take along
    pool = ProcessPoolExecutor(processes, fork, _begin, (read, mails))
    waiting: deque[Future[list[Reading | InputError]]] = deque()
    try:
        with _forking():
            waiting.append(pool.submit(_read_chunk, 0))
        for start in range(CHUNK, len(mails), CHUNK):
            waiting.append(pool.submit(_read_chunk, start))
            if len(waiting) >= WAITING:
                yield from waiting.popleft().result()
        while waiting:
            yield from waiting.popleft().result()
    finally:
        with uninterrupted():  # in the midst of this wait it would leave processes that Python waits for in vain
            pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _forking() -> Iterator[None]:
    """Processes made within ignore an interrupt from the terminal: this process hears it too, and ends them."""
    here = threading.current_thread() is threading.main_thread()  # no other thread may set handlers, nor is interrupted
    before = signal.signal(signal.SIGINT, signal.SIG_IGN) if here else None
    try:
        with warnings.catch_warnings():
            # Python 3.12 warns of threads. Those there are belong to numpy's linear algebra, which is not used.
            warnings.simplefilter("ignore", DeprecationWarning)
            yield
    finally:
        if here:
            signal.signal(signal.SIGINT, signal.SIG_DFL if before is None else before)


_work: tuple[Read, Sequence[Mail]]
"""What a reading process reads, and how."""


def _begin(read: Read, mails: Sequence[Mail]) -> None:
    global _work
    _work = read, mails
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # the handler of the process that learns is not for this one
    os.nice(NICE)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None, "this is a child"
    parent.join()
    os._exit(1)


def _read_chunk(start: int) -> list[Reading | InputError]:
    read, mails = _work
    return [_reading(read, mail) for mail in mails[start : start + CHUNK]]


def _reading(read: Read, mail: Mail) -> Reading | InputError:
    """A mail with its tokens found, and packed as the ledger keeps them."""
    try:
        reading = read(mail)
    except InputError as error:
        return error
    return Reading(reading.digest, packed_tokens(reading.tokens))
