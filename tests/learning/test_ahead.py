"""Mails read ahead by other processes: the same readings in the same order, whatever becomes of the processes."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spamfilter.bayes.voices import pack, view
from spamfilter.config.likelihood_settings import Learn
from spamfilter.errors import InputError
from spamfilter.learning import ahead as module
from spamfilter.learning.ahead import CHUNK, ahead
from spamfilter.learning.filter import Reading
from spamfilter.mail.mailboxes import Mail
from spamfilter.mail.message import parse
from tests.support.made import mail, some

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
def _nobody_is_left() -> Iterator[None]:
    before = children()
    yield
    assert children() == before


@pytest.mark.parametrize("processes", [1, 2, 3])
def test_readings_are_those_of_this_process_in_the_order_of_the_mails(processes: int) -> None:
    found = [*ahead(read, mails(), processes)]
    assert len(found) == COUNT
    for item, reading in zip(mails(), found, strict=True):
        own = read(item)
        assert isinstance(reading, Reading)
        assert (reading.digest, reading.tokens) == (own.digest, own.tokens)
        assert [list(reading.tokens[name]) for name in own.tokens] == [list(own.tokens[name]) for name in own.tokens]
        assert pack(reading.tokens) == pack(own.tokens)


def test_without_processes_all_is_left_to_whoever_asks() -> None:
    assert [*ahead(read, mails(), 0)] == [None] * COUNT
    assert [*ahead(read, [], 2)] == []


def test_a_mail_that_cannot_be_read_is_told_in_its_place() -> None:
    def gone() -> bytes:
        raise InputError("x.eml: No such file or directory")

    sent = mails()
    sent[CHUNK + 1] = Mail("x.eml", gone)
    found = [*ahead(read, sent, 2)]
    assert str(found[CHUNK + 1]) == "x.eml: No such file or directory"
    assert sum(isinstance(one, Reading) for one in found) == COUNT - 1


def killed() -> bytes:
    os.kill(os.getpid(), signal.SIGKILL)
    return b""


def broken() -> bytes:
    raise RuntimeError("a defect")


@pytest.mark.parametrize("end", [killed, broken])
def test_what_a_process_that_ends_has_not_read_is_left_to_whoever_asks(
    end: Callable[[], bytes], capfd: pytest.CaptureFixture[str]
) -> None:
    sent = mails()
    sent[2 * CHUNK + 5] = Mail("end", end)  # of the first of two processes
    found = [*ahead(read, sent, 2)]
    assert [at // CHUNK in (0, 1, 3, 5) for at in range(COUNT)] == [one is not None for one in found]
    assert capfd.readouterr() == ("", "")


def test_where_no_process_can_be_made_all_is_left_to_whoever_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> int:
        raise BlockingIOError("Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", refused)
    assert [*ahead(read, mails(), 2)] == [None] * COUNT


def test_processes_end_when_nobody_asks_any_more() -> None:
    with closing(ahead(read, mails(), 2)) as found:
        assert next(found) is not None
        assert len(children()) >= 2


@pytest.mark.parametrize("room", [45_000, 100_000, 150_001])
def test_readings_wait_in_memory_that_is_used_again_and_again(monkeypatch: pytest.MonkeyPatch, room: int) -> None:
    monkeypatch.setattr(module, "AHEAD", room)
    sent = mails(40 * CHUNK)
    found = [*ahead(read, sent, 2)]
    assert [one.digest for one in found if isinstance(one, Reading)] == [read(item).digest for item in sent]


def test_what_has_no_room_is_left_to_whoever_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AHEAD", 100_000)
    sent = mails()
    sent[CHUNK] = Mail("large", lambda: mail("large", " ".join(map(str, range(20_000))), "large"))
    found = [*ahead(read, sent, 1)]
    assert [at // CHUNK == 1 for at in range(COUNT)] == [one is None for one in found]


@some(200)
@given(st.lists(st.integers(1, 12), max_size=60), st.integers(1, 20), st.randoms(use_true_random=False))
def test_no_part_of_the_memory_is_used_twice(sizes: list[int], size: int, chance: random.Random) -> None:
    room = module._Room(size)
    for wanted in sizes:
        while (start := room.take(wanted)) is None and room.used:
            room.used.popleft()
        assert (start is None) == (wanted > size)
        parts = sorted(room.used)
        assert all(one[1] <= other[0] for one, other in pairwise(parts))
        assert all(0 <= start < end <= size for start, end in parts)
        for _ in range(chance.randint(0, len(room.used))):
            room.used.popleft()


def test_an_interrupt_from_the_terminal_is_left_to_the_parent() -> None:
    def interrupted() -> bytes:
        os.kill(os.getpid(), signal.SIGINT)
        return mail("after", "the interrupt", "after")

    sent = mails()
    sent[3] = Mail("interrupted", interrupted)
    assert None not in [*ahead(read, sent, 1)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGCHLD])
def test_how_the_parent_hears_signals_is_not_changed(number: signal.Signals) -> None:
    heard = []
    before = signal.signal(number, lambda *_: heard.append(number))
    try:
        with closing(ahead(read, mails(), 2)) as found:
            assert next(found) is not None
            signal.raise_signal(number)
            assert number in heard
    finally:
        signal.signal(number, before)


@pytest.mark.parametrize("threads", [0, 1])
def test_an_interrupt_while_a_process_is_made_is_the_parent_s(monkeypatch: pytest.MonkeyPatch, threads: int) -> None:
    """It comes to both, as from a terminal, before the child has had a chance to say that it wants none.

    Any thread may be told of it, and then the first one hears it, whatever that has blocked.
    """
    over = threading.Event()
    for _ in range(threads):
        threading.Thread(target=over.wait).start()
    fork = os.fork

    def interrupted() -> int:
        pid = fork()
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.05)
        return pid

    monkeypatch.setattr(os, "fork", interrupted)
    try:
        with closing(ahead(read, mails(), 2)) as found, pytest.raises(KeyboardInterrupt):
            next(found)
    finally:
        over.set()


def test_an_interrupt_while_processes_are_ended_leaves_none(monkeypatch: pytest.MonkeyPatch) -> None:
    close = module._Child.close

    def interrupted(child: module._Child) -> None:
        signal.raise_signal(signal.SIGINT)
        close(child)

    monkeypatch.setattr(module._Child, "close", interrupted)
    with pytest.raises(KeyboardInterrupt), closing(ahead(read, mails(), 2)) as found:
        next(found)


def test_processes_are_buried_where_those_that_end_are_ignored() -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        assert None not in [*ahead(read, mails(), 2)]
        assert signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGCHLD, before)


PARENT = """
import os, sys, time
from tests.test_ahead import children, mails, read
from spamfilter.learning import ahead
ahead.AHEAD = 100_000  # so that they wait for somebody to take what they have read
found = ahead.ahead(read, mails(2000), 2)
next(found)
print(*children(), flush=True)
time.sleep(600)
"""


def test_processes_end_with_their_parent_whatever_ended_it() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        left = {int(pid) for pid in parent.stdout.readline().split()}
        assert len(left) == 2
        parent.kill()
    deadline = time.monotonic() + 60
    while left and time.monotonic() < deadline:
        left = {
            pid for pid in left if Path(f"/proc/{pid}/cmdline").exists() and Path(f"/proc/{pid}/cmdline").read_bytes()
        }
        time.sleep(0.05)
    assert not left
