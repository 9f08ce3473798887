"""What a fuzz target is, and how one sees the faults that the code under test survives."""

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

Run = Callable[[bytes], None]
Target = Callable[[], AbstractContextManager[Run]]
"""Sets up what many runs share. A run raises AssertionError, or whatever else should not have been raised."""


class _Faults(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[BaseException] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1]:
            self.found.append(record.exc_info[1])


@contextmanager
def without_faults(run: Run) -> Iterator[Run]:
    """The same run, which raises also what was caught and logged: what the relay survives is a defect all the same."""
    logger = logging.getLogger("spamfilter")
    level, propagate = logger.level, logger.propagate
    faults = _Faults()
    logger.addHandler(faults)
    logger.setLevel(logging.ERROR)
    logger.propagate = False

    def watched(data: bytes) -> None:
        run(data)
        if faults.found:
            fault = faults.found[0]
            faults.found.clear()
            raise fault

    try:
        yield watched
    finally:
        logger.setLevel(level)
        logger.propagate = propagate
        logger.removeHandler(faults)
