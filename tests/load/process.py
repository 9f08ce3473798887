"""Processes: their children, a pause of all of them, and what they cost, as proc(5) has it."""

import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.integration.servers import wait_until

TICKS = os.sysconf("SC_CLK_TCK")


def family(pid: int) -> list[int]:
    """A process and its children."""
    found = [pid]
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread that has ended meanwhile
            found += map(int, (task / "children").read_text().split())
    return found


@contextmanager
def paused(pid: int) -> Iterator[None]:
    """A process and its children stand still, all their threads; one that was ending may be gone by then, or later."""
    processes = family(pid)
    try:
        for each in processes:
            with suppress(ProcessLookupError):
                os.kill(each, signal.SIGSTOP)
        # Each thread goes on until it has its turn, or is back from the disk.
        wait_until(lambda: all(map(_stands, processes)), "the stop of all threads")
        yield
    finally:
        for each in processes:
            with suppress(ProcessLookupError):
                os.kill(each, signal.SIGCONT)


def _stands(pid: int) -> bool:
    """Whether all threads of a process are stopped or gone."""
    with suppress(FileNotFoundError, ProcessLookupError):
        tasks = [task.read_text() for task in Path(f"/proc/{pid}/task").glob("*/stat")]
        return all(text.rpartition(")")[2].split()[0] in "TtZX" for text in tasks)
    return False  # one of them has just ended, so look again


def cpu_seconds(pid: int) -> float:
    """Processor time that a process has used, of all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def machine_seconds() -> float:
    """Processor time that all processes of the machine have used, with the kernel's own."""
    user, nice, system, _, _, irq, softirq, *_ = map(int, Path("/proc/stat").read_text().split("\n")[0].split()[1:])
    return (user + nice + system + irq + softirq) / TICKS


def anonymous_bytes(pid: int) -> int:
    """RssAnon: memory of its own in RAM; mapped files, such as the database's and the libraries', are not counted."""
    return _kilobytes(Path(f"/proc/{pid}/status"), "RssAnon")


def proportional_bytes(pid: int) -> int:
    """Pss: all its memory in RAM, its share of what others map, too."""
    return _kilobytes(Path(f"/proc/{pid}/smaps_rollup"), "Pss")


def descriptors(pid: int) -> int:
    """How many file descriptors it has open."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def threads(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/task"))


def _kilobytes(file: Path, name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+) kB", file.read_text(), re.MULTILINE)
    if found is None:
        raise ValueError(f"{file} has no {name}")
    return int(found.group(1)) * 1024
