"""What a relay may take of memory while somebody sends it too much, and that others are served meanwhile."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.faults.client import mail_of
from tests.faults.daemon import Daemon

MEGABYTE = 2**20
MESSAGE_SIZE = 52_428_800
"""The default of limits.message_size."""
BESIDE = 24 * MEGABYTE
"""What may be allocated beside the mail itself: buffers of sockets, the part that is judged, mail of others."""


@dataclass(frozen=True)
class Memory:
    """The highest resident memory of a process since the last `reset`, in bytes."""

    process: int

    def reset(self) -> int:
        Path(f"/proc/{self.process}/clear_refs").write_text("5")
        return self.highest()

    def highest(self) -> int:
        status = Path(f"/proc/{self.process}/status").read_text()
        return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) * 1024


@contextmanager
def bounded(server: Daemon, most: int) -> Iterator[None]:
    """The relay takes no more than `most` bytes meanwhile, and somebody else is served before it ends."""
    memory = Memory(server.process.pid)
    before = memory.reset()
    yield
    served(server)
    taken = memory.highest() - before
    assert taken <= most, f"{taken / MEGABYTE:.0f} MB taken, {most / MEGABYTE:.0f} allowed"


def served(server: Daemon) -> None:
    with server.connect() as other:
        assert other.deliver(mail_of("other")).code == 250
