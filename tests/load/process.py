"""Processes: their children, a pause of all of them, and what they cost, as proc(5) has it."""

import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


def family(pid: int) -> list[int]:
    """A process and its children."""
    told = (task / "children" for task in Path(f"/proc/{pid}/task").iterdir())
    return [pid, *(int(child) for file in told for child in file.read_text().split())]


@contextmanager
def paused(pid: int) -> Iterator[None]:
    """A process and its children stand still; one that was ending may be gone by then, or afterwards."""
    processes = family(pid)
    try:
        for each in processes:
            with suppress(ProcessLookupError):
                os.kill(each, signal.SIGSTOP)
        yield
    finally:
        for each in processes:
            with suppress(ProcessLookupError):
                os.kill(each, signal.SIGCONT)


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
