"""Mails read ahead in other processes: from files to tokens, in the order of the mails.

Guarantee: the readings are those that this process would make, however many processes there are. Where the processes
fail, this process reads the mails, also if one is killed while it hands over: each has a pipe of its own, which ends
with it. The processes write nothing, and end with their parent, whatever ends it.
Gain: `train` takes a third less time on two cores (benchmarks/learning_speed.py).
"""

import multiprocessing
import os
import queue
import signal
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from itertools import cycle, islice
from multiprocessing.connection import Connection
from multiprocessing.context import ForkProcess

from spamfilter.bayes.token_codec import packed_tokens
from spamfilter.errors import InputError
from spamfilter.learning.transaction import Reading
from spamfilter.mail.mailboxes import Mail
from spamfilter.system.process import uninterrupted

CHUNK = 16
"""Mails that a process reads at a time: about half a megabyte of readings."""
WAITING = 64
"""Chunks that are being read or wait for this process: some thirty megabytes, so that reading goes on while this
process writes a transaction. Of several processes each has its share."""
FEWEST = 200
"""Mails for which other processes are started: a start takes some milliseconds."""
MOST_PROCESSES = 3
"""Processes that are worth their memory: one process learns what two or three can read."""
NICE = 5
"""What is added to the niceness of a reading process: the process that learns goes first where cores are few."""

Read = Callable[[Mail], Reading]


def told_apart(readings: Iterable[Reading | InputError]) -> Iterator[Reading | InputError]:
    """Equal messages as different ones: each but the first gets another digest, which is the same in each run."""
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
            suppress(EOFError, OSError),  # no room for processes, or one was killed
            closing(_of_processes(read, mails, processes)) as readings,
        ):
            for reading in readings:
                yield reading
                done += 1
    for mail in islice(mails, done, None):
        yield _reading(read, mail)


def _of_processes(read: Read, mails: Sequence[Mail], processes: int) -> Generator[Reading | InputError, None, None]:
    fork = multiprocessing.get_context("fork")  # reading a mail is a closure, which only a fork can take along
    made: list[tuple[ForkProcess, Connection]] = []
    try:
        with _forking():
            for number in range(processes):
                receiving, sending = fork.Pipe(duplex=False)
                starts = range(number * CHUNK, len(mails), processes * CHUNK)
                ahead = max(1, WAITING // processes)
                process = fork.Process(target=_read_chunks, args=(read, mails, starts, sending, ahead), daemon=True)
                with sending:  # closed here, or the pipe of a process that was killed would not end
                    process.start()
                made.append((process, receiving))
        for _, (_, receiving) in zip(range(0, len(mails), CHUNK), cycle(made), strict=False):
            yield from receiving.recv()
    finally:
        with uninterrupted():  # in the midst of this wait it would leave processes that Python waits for in vain
            for process, receiving in made:
                process.kill()
                process.join()
                receiving.close()


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


def _read_chunks(read: Read, mails: Sequence[Mail], starts: Iterable[int], sending: Connection, ahead: int) -> None:
    """What a process does. ahead: the number of chunks that wait while one is handed over."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # the handler of the process that learns is not for this one
    os.nice(NICE)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    found: queue.Queue[list[Reading | InputError] | None] = queue.Queue(ahead)
    handing_over = threading.Thread(target=_hand_over, args=(found, sending))
    handing_over.start()
    try:
        for start in starts:
            found.put([_reading(read, mail) for mail in mails[start : start + CHUNK]])
    except Exception:
        os._exit(1)  # the parent meets the defect itself, where it can be raised
    found.put(None)
    handing_over.join()


def _hand_over(found: "queue.Queue[list[Reading | InputError] | None]", sending: Connection) -> None:
    try:
        while (readings := found.get()) is not None:
            sending.send(readings)
    except Exception:
        os._exit(1)  # as above


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None, "this is a child"
    parent.join()
    os._exit(1)


def _reading(read: Read, mail: Mail) -> Reading | InputError:
    """A mail with its tokens found, and packed as the ledger keeps them."""
    try:
        reading = read(mail)
    except InputError as error:
        return error
    return Reading(reading.digest, packed_tokens(reading.tokens))
