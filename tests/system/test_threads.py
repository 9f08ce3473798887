"""A pool of threads where the system gives no more threads."""

import os
import resource
import time
from collections.abc import Callable
from threading import Event, Thread, stack_size

import pytest

from spamfilter.errors import NoThread
from spamfilter.system.threads import Threads, start


def test_a_pool_has_a_thread_before_it_has_work() -> None:
    with Threads(2, "tested") as threads:
        assert threads.submit(sum, [1, 2]).result(5) == 3


def _in_process_without_threads(work: Callable[[], bool]) -> bool:
    """The result of work in a process that may have no further thread, by a bound on the memory for its stack."""
    pid = os.fork()
    if not pid:
        try:
            os._exit(0 if work() else 1)
        finally:
            os._exit(2)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status) == 0


def _no_further_thread() -> None:
    with open("/proc/self/statm", encoding="ascii") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    stack_size(2**26)  # larger than the stacks of ended threads, which the C library keeps
    resource.setrlimit(resource.RLIMIT_AS, (used + 2**23, resource.RLIM_INFINITY))


def test_without_a_first_thread_nothing_begins() -> None:
    def work() -> bool:
        _no_further_thread()
        for begin in (Threads, lambda: start(Thread(target=int))):
            with pytest.raises(NoThread, match="ulimit -u"):
                begin()
        return True

    assert _in_process_without_threads(work)


def test_work_that_was_taken_is_done_once_by_the_thread_that_is_there() -> None:
    def work() -> bool:
        threads, go, done = Threads(8), Event(), list[int]()
        first = threads.submit(go.wait, 5)
        while not first.running():
            time.sleep(0.01)
        _no_further_thread()
        futures = [threads.submit(done.append, number) for number in range(5)]
        go.set()
        for future in futures:
            future.result(5)
        return done == [*range(5)]

    assert _in_process_without_threads(work)
