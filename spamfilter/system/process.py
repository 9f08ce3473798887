"""This process: its host's name, its memory, its garbage collector, its service manager."""

import ctypes
import gc
import math
import os
import resource
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

LARGE = 2**19
"""Bytes of a block of memory that goes back to the system as soon as it is free. Fifty mails of 24 MB at once leave
gaps of 30 MB; with 2 MB here they leave up to 90: tests/relay/limits/test_memory.py."""
MMAP_THRESHOLD, TRIM_THRESHOLD = -3, -1
"""Parameters of mallopt(3), as glibc numbers them."""

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""What ends a command: Ctrl-C, another process, and a terminal or an SSH connection that is closed."""

NOTIFY_SECONDS = 1.0
"""Time for systemd to take what it is told, which is at once as a rule; mail waits meanwhile."""


def own_name() -> str:
    """The host's full name, or its short one if the resolver only knows localhost."""
    try:
        name = socket.getfqdn()
    except UnicodeError:  # of a label that no name server can be asked for
        return socket.gethostname()
    return socket.gethostname() if name.startswith("localhost") else name


def resident_bytes() -> int:
    """The memory of this process by proc(5); 0 if there is no /proc."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * resource.getpagesize()


def return_large_blocks() -> None:
    """Have the C library map each large block separately, and unmap it when it is free.

    glibc keeps freed blocks of up to 32 MB, between which large mails leave gaps that take twice their size. C
    libraries without mallopt(3), such as musl, unmap large blocks anyway.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(MMAP_THRESHOLD, LARGE)
        mallopt(TRIM_THRESHOLD, 2 * LARGE)  # the ratio of glibc's defaults; less would trim at each mail


def return_free_memory() -> None:
    """Give the pages of smaller blocks back that are free, by malloc_trim(3) of glibc; takes 10 ms for 100 MB.

    glibc itself returns only what is free at the end of its memory, and one block there keeps all the others.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def proportional_bytes() -> int:
    """The memory of this process, with only its part of shared memory; takes 7 ms for 100 MB."""
    try:
        rollup = Path("/proc/self/smaps_rollup").read_text(encoding="ascii")
    except OSError:
        return resident_bytes()
    return sum(int(line.split()[1]) * 1024 for line in rollup.splitlines() if line.startswith("Pss:"))


@contextmanager
def gc_paused() -> Iterator[None]:
    """No search for reference cycles until the end of the block, in work that makes few of them and much else."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextmanager
def _handled(handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """A handler of ENDING until the end of the block; none of a signal that is ignored. Only the main thread has
    handlers; in others this does nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard = [number for number in ENDING if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, handler) for number in heard}
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, signal.SIG_DFL if former is None else former)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """The signals of ENDING wait until the end of the block."""
    came: list[int] = []
    try:
        with _handled(lambda number, _: came.append(number)):
            yield
    finally:
        for number in came[:1]:
            signal.raise_signal(number)


TIDYING = 30.0
"""Seconds for undoing what was begun: a second Ctrl-C must not interrupt that and leave a half of it."""


@contextmanager
def ended_tidily() -> Iterator[None]:
    """SIGTERM and SIGHUP end this process within the block by an exception, as Ctrl-C does, so that what was begun is
    undone.

    The first one does; further ones, of all kinds, are ignored for TIDYING seconds then, or to the end of the block.
    """
    ended = -math.inf

    def end(number: int, frame: FrameType | None) -> None:
        nonlocal ended
        if time.monotonic() < ended + TIDYING:
            return
        ended = time.monotonic()
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        sys.exit(128 + number)

    with _handled(end):
        yield


def freeze_heap() -> None:
    """The objects made so far stay, in a process that stays: only what is made from now on is searched for garbage.

    To search all of them again and again would take a twentieth of the relay's time, and would make each process copy
    the memory that it shares with the others.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000)  # instead of the program's, which is for a command


def notify(state: str) -> None:
    """Send this state to systemd, as sd_notify(3); nothing happens without systemd, or if it does not listen."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
        sock.settimeout(NOTIFY_SECONDS)
        sock.connect("\0" + address[1:] if address.startswith("@") else address)
        sock.send(state.encode())
