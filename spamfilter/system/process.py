"""The host that a process runs on: its name, its memory, its service manager."""

import ctypes
import os
import resource
import socket
from contextlib import suppress
from pathlib import Path

LARGE = 2**19
"""Bytes of a block of memory that goes back to the system as soon as it is free. Fifty mails of 24 MB that come at once
left gaps of up to 90 MB where it was 2 MB, and leave 30 now: tests/relay/limits/test_memory.py."""
MMAP_THRESHOLD, TRIM_THRESHOLD = -3, -1
"""mallopt(3)'s names for it, as glibc numbers them."""


def own_name() -> str:
    """The host's full name, or its short one where the resolver knows no better than localhost."""
    name = socket.getfqdn()
    return socket.gethostname() if name.startswith("localhost") else name


def resident_bytes() -> int:
    """The memory of this process, as proc(5) has it; 0 where there is no /proc."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * resource.getpagesize()


def return_large_blocks() -> None:
    """Have each large block mapped by itself, and unmapped when it is free.

    glibc keeps blocks of up to 32 MB once one such was freed: then large mails that grow side by side leave gaps, and
    take twice their size. A C library without mallopt(3), as musl, does so anyway.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(MMAP_THRESHOLD, LARGE)
        mallopt(TRIM_THRESHOLD, 2 * LARGE)  # glibc's own proportion; its default would trim at each mail


def proportional_bytes() -> int:
    """The memory of this process, of what it shares with others only its part; takes 7 ms for 100 MB."""
    try:
        rollup = Path("/proc/self/smaps_rollup").read_text(encoding="ascii")
    except OSError:
        return resident_bytes()
    return sum(int(line.split()[1]) * 1024 for line in rollup.splitlines() if line.startswith("Pss:"))


def notify(state: str) -> None:
    """Tell systemd: sd_notify(3). Without systemd, or without its socket, nothing happens."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
        sock.connect("\0" + address[1:] if address.startswith("@") else address)
        sock.send(state.encode())
