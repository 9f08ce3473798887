"""The memory of a process."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from spamfilter.system.process import ENDING, ended_tidily
from tests.support.real import missing

MEASURED = """
from spamfilter.system.process import LARGE, resident_bytes, return_large_blocks

return_large_blocks()
mail = bytearray(b"x" * 15 * LARGE)  # once this is free, glibc would map no block of its size or less by itself
del mail
before = resident_bytes()
blocks = [bytearray(b"x" * size) for _ in range(20) for size in (LARGE + 1, 1000)]
del blocks[::2]
print(resident_bytes() - before, LARGE)
"""


def test_large_blocks_between_small_ones_go_back_to_the_system() -> None:
    done = subprocess.run([sys.executable, "-c", MEASURED], stdout=subprocess.PIPE, check=True)
    kept, large = map(int, done.stdout.split())
    assert kept < large


def test_numpy_starts_no_threads() -> None:
    """Each process of a relay on many cores would have as many threads."""
    code = "import os, spamfilter.cli, spamfilter.learning.filter; print(len(os.listdir('/proc/self/task')))"
    if len(os.sched_getaffinity(0)) < 2:
        missing("needs a second core, for which numpy would start a thread")
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    done = subprocess.run([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout == "1\n"


@pytest.fixture
def hangup() -> Iterator[None]:
    """SIGHUP ends a process, also where nohup has it ignored for the tests."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("hangup")
@pytest.mark.parametrize("further", ENDING)
@pytest.mark.parametrize(
    ("first", "raised"),
    [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit), (signal.SIGHUP, SystemExit)],
)
def test_a_further_signal_does_not_disturb_what_the_first_one_undoes(
    first: signal.Signals, raised: type[BaseException], further: signal.Signals
) -> None:
    undone: list[signal.Signals] = []

    @contextmanager
    def undoing() -> Iterator[None]:
        try:
            yield
        finally:
            signal.raise_signal(further)
            undone.append(further)

    before = [*map(signal.getsignal, ENDING)]
    with pytest.raises(raised), ended_tidily(), undoing():
        signal.raise_signal(first)
    assert undone == [further]
    assert [*map(signal.getsignal, ENDING)] == before
