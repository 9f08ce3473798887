"""Mails read ahead by other processes: the same readings in the same order, whatever becomes of the processes."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from spamfilter.bayes.token_codec import pack
from spamfilter.bayes.voices import view
from spamfilter.config.likelihood_settings import Learn
from spamfilter.errors import InputError
from spamfilter.learning.bulk import reading_ahead
from spamfilter.learning.bulk.reading_ahead import CHUNK, read_ahead
from spamfilter.learning.transaction import Reading
from spamfilter.mail.mailboxes import Mail
from spamfilter.mail.message import parse
from spamfilter.system.process import ended_tidily
from tests.support.made import mail

VOICES = Learn().chosen()
COUNT = 5 * CHUNK + 3


def read(item: Mail) -> Reading:
    message = parse(item.read())
    return Reading(message.digest(), view(VOICES, message))


def mails(count: int = COUNT) -> list[Mail]:
    sent = [mail(f"subject {number}", f"some text {number % 7}", str(number)) for number in range(count)]
    return [Mail(str(number), lambda number=number: sent[number]) for number in range(count)]  # type: ignore[misc]


def children() -> list[int]:
    """Processes that this one has made and not yet buried."""
    found = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return [int(pid) for pid in found]


@pytest.fixture(autouse=True)
def _few_are_enough_and_no_process_is_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(reading_ahead, "FEWEST", 10)
    before = children()
    yield
    assert children() == before


def assert_all_read(found: list[Reading | InputError], sent: list[Mail]) -> None:
    assert len(found) == len(sent)
    for item, one in zip(sent, found, strict=True):
        own = read(item)
        assert isinstance(one, Reading)
        assert (one.digest, one.tokens) == (own.digest, own.tokens)
        assert [list(one.tokens[name]) for name in own.tokens] == [list(own.tokens[name]) for name in own.tokens]
        assert pack(one.tokens) == pack(own.tokens)


@pytest.mark.parametrize("waiting", [1, 3, reading_ahead.WAITING])
@pytest.mark.parametrize("processes", [0, 1, 2, 3])
def test_readings_are_those_of_this_process_in_the_order_of_the_mails(
    processes: int, waiting: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading_ahead, "WAITING", waiting)
    assert_all_read([*read_ahead(read, mails(), processes)], mails())


def test_processes_are_made_for_many_mails_only() -> None:
    for count, processes in ((9, 0), (COUNT, 2)):
        before = len(children())  # as a database server of other tests
        with closing(read_ahead(read, mails(count), 2)) as found:
            next(found)
            assert len(children()) >= before + processes
            assert (len(children()) == before) == (processes == 0)
    assert [*read_ahead(read, [], 2)] == []


@pytest.mark.parametrize("processes", [0, 2])
def test_a_mail_that_cannot_be_read_is_told_in_its_place(processes: int) -> None:
    def gone() -> bytes:
        raise InputError("x.eml: No such file or directory")

    sent = mails()
    sent[CHUNK + 1] = Mail("x.eml", gone)
    found = [*read_ahead(read, sent, processes)]
    assert str(found[CHUNK + 1]) == "x.eml: No such file or directory"
    assert sum(isinstance(one, Reading) for one in found) == COUNT - 1


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM])
def test_what_a_killed_process_has_not_read_this_one_reads(sent: signal.Signals) -> None:
    here = os.getpid()

    def read_or_die(item: Mail) -> Reading:
        if item.name == str(2 * CHUNK + 5) and os.getpid() != here:
            os.kill(os.getpid(), sent)
        return read(item)

    with ended_tidily():
        assert_all_read([*read_ahead(read_or_die, mails(), 2)], mails())


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM])
def test_a_process_that_is_killed_while_it_hands_over_is_not_waited_for(sent: signal.Signals) -> None:
    """As by `timeout`, which ends a whole group of processes, or where memory runs out."""
    here = os.getpid()

    def die_in_the_midst() -> None:
        while not any("pipe_write" in thread.read_text() for thread in Path("/proc/self/task").glob("*/wchan")):
            time.sleep(0.001)
        os.kill(os.getpid(), sent)

    def read_and_die(item: Mail) -> Reading:
        if item.name == str(CHUNK) and os.getpid() != here:
            threading.Thread(target=die_in_the_midst).start()
            raise InputError("x" * 3 * 10**8)  # which is longer in the pipe than a thread waits for its turn
        return read(item)

    with ended_tidily():
        assert_all_read([*read_ahead(read_and_die, mails(), 2)], mails())


def test_a_defect_in_a_process_is_raised_here() -> None:
    def broken(item: Mail) -> Reading:
        raise RuntimeError("a defect")

    with pytest.raises(RuntimeError, match="a defect"):
        list(read_ahead(broken, mails(), 2))


def test_where_no_process_can_be_made_this_one_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> int:
        raise BlockingIOError("Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", refused)
    assert_all_read([*read_ahead(read, mails(), 2)], mails())


def test_an_interrupt_from_the_terminal_is_left_to_the_parent() -> None:
    here = os.getpid()

    def interrupted(item: Mail) -> Reading:
        if os.getpid() != here:
            os.kill(os.getpid(), signal.SIGINT)
        return read(item)

    before = signal.getsignal(signal.SIGINT)
    with closing(read_ahead(interrupted, mails(), 2)) as found:
        assert isinstance(next(found), Reading)
        assert signal.getsignal(signal.SIGINT) == before
        assert len(children()) >= 2
        assert_all_read([*read_ahead(read, mails(1), 0), *found], [mails()[0], *mails()[1:]])


def test_processes_are_buried_where_those_that_end_are_ignored() -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        assert_all_read([*read_ahead(read, mails(), 2)], mails())
    finally:
        signal.signal(signal.SIGCHLD, before)


PARENT = """
import time
from tests.learning.bulk.test_reading_ahead import children, mails, read
from spamfilter.learning.bulk.reading_ahead import read_ahead
found = read_ahead(read, mails(2000), 2)
next(found)
print(*children(), flush=True)
time.sleep(600)
"""


def is_there(pid: int) -> bool:
    """Whether a process has not ended; it may do so between two looks."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return bool(Path(f"/proc/{pid}/cmdline").read_bytes())
    return False


def test_processes_end_with_their_parent_whatever_ended_it() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        left = {int(pid) for pid in parent.stdout.readline().split()}
        assert len(left) == 2
        parent.kill()
    deadline = time.monotonic() + 60
    while left and time.monotonic() < deadline:
        left = {pid for pid in left if is_there(pid)}
        time.sleep(0.05)
    assert not left


INTERRUPTED = """
import os, signal
from contextlib import closing
from multiprocessing.process import BaseProcess
from tests.learning.bulk.test_reading_ahead import children, mails, read
from spamfilter.learning.bulk.reading_ahead import read_ahead

join = BaseProcess.join

def interrupted(process):
    os.kill(os.getpid(), signal.SIGINT)
    join(process)

BaseProcess.join = interrupted
try:
    with closing(read_ahead(read, mails(2000), 2)) as found:
        next(found)
except KeyboardInterrupt:
    print("interrupted", children(), flush=True)
"""


def test_an_interrupt_waits_until_the_processes_have_ended() -> None:
    """Python would wait for them at its end, without end."""
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("interrupted []\n", "", 0)
