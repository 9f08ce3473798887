"""What one test has seen: what became of its mail, how long mail stood still after the fault, what was recounted.

With SPAMFILTER_FAULTS=FILE in the environment each test adds a line of JSON to that file, which
benchmarks/reliability.py makes its table of.
"""

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Protocol

RECORD = "SPAMFILTER_FAULTS"


@dataclass
class Tally:
    """Messages: sent, lost after a 250, doubled; and there twice where RFC 1047 leaves no choice. attempts: to send."""

    sent: int = 0
    attempts: int = 0
    lost: int = 0
    doubled: int = 0
    twice: int = 0


class Tallied(Protocol):
    def tally(self) -> Tally: ...


@dataclass
class Case:
    """One test. recoveries: seconds from the end of a fault until a mail passed. recounts: of the database; wrong: what
    they found."""

    accounts: list[Tallied] = field(default_factory=list)
    recoveries: list[float] = field(default_factory=list)
    recounts: int = 0
    wrong: int = 0
    _ended: float | None = None

    def fault_ends(self) -> None:
        """From here on mail should pass again."""
        self._ended = time.monotonic()

    def mail_passed(self) -> None:
        if self._ended is not None:
            self.recoveries.append(time.monotonic() - self._ended)
            self._ended = None

    def recounted(self, problems: list[str]) -> list[str]:
        self.recounts += 1
        self.wrong += len(problems)
        return problems

    def add_account(self, account: Tallied) -> None:
        """What ended before a test had an account was no fault of its own."""
        self.accounts.append(account)
        self._ended = None


class _Running:
    """The test that is running, for whoever sees a fault end or a mail pass."""

    case = Case()


def case() -> Case:
    """The test that is running."""
    return _Running.case


def is_recorded() -> bool:
    return RECORD in os.environ


@contextmanager
def recorded(module: str, test: str, id: str) -> Iterator[None]:
    """A test from its beginning to its end."""
    _Running.case = now = Case()
    try:
        yield
    finally:
        if is_recorded():
            tallies = [asdict(account.tally()) for account in now.accounts]
            sums = {name: sum(tally[name] for tally in tallies) for name in asdict(Tally())}
            line = {
                "test": f"{module}.{test}", "id": id, **sums,
                "recoveries": now.recoveries, "recounts": now.recounts, "wrong": now.wrong,
            }  # fmt: skip
            with Path(os.environ[RECORD]).open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
