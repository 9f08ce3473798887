"""What `doctor` looks at to say whether the filter runs, and whether it learns: CHECKS.

Guarantee: each check is a few lines of findings, and one that fails, or breaks, hides no other. What a check cannot
look at because of another's finding is named as not tried, and no fault of its own.
Imports: every room from errors to service. Start with examination, which is what a check is given.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from spamfilter import __version__
from spamfilter.doctor import canary, database, delivery, dovecot, learning, process
from spamfilter.doctor.examination import Examination, Finding, NotTried, Status
from spamfilter.errors import StoreBusy

__all__ = ["CHECKS", "STATUSES", "Diagnosis", "Examination", "Line", "examine"]

CHECKS: dict[str, Callable[[Examination], Iterator[Finding]]] = {
    "process": process.process,
    "judging": process.judging,
    "smtp": process.smtp,
    "feedback_socket": process.feedback_socket,
    "next_hop": delivery.next_hop,
    "quarantine": delivery.quarantine,
    "database": database.database,
    "schema": database.schema,
    "integrity": database.integrity,
    "counting": database.counting,
    "ledger": database.ledger,
    "classes": learning.classes,
    "following": learning.following,
    "feedback": learning.feedback,
    "journal": process.journal,
    "limits": process.limits,
    "memory": process.memory,
    "disk": delivery.disk,
    "clock": learning.clock,
    "dovecot": dovecot.dovecot,
    "canary": canary.canary,
}
"""Name -> check, in the order in which they are made; a check may look at the findings of those before it."""

STATUSES: tuple[Status, ...] = ("ok", "warning", "failed")
"""The worst is the last; its place is the exit code, as monitoring programs in Nagios's manner expect."""


@dataclass(frozen=True, slots=True)
class Line:
    """One finding of one check."""

    check: str
    status: Status
    found: str
    advice: str


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All findings. status: the worst of them; not_tried: check -> why."""

    status: Status
    version: str
    lines: list[Line]
    not_tried: dict[str, str]

    @property
    def exit_code(self) -> int:
        return STATUSES.index(self.status)


def examine(examined: Examination, without: tuple[str, ...] = ()) -> Diagnosis:
    """Make all checks but those named."""
    not_tried = {}
    try:
        for name, check in CHECKS.items():
            if name in without:
                continue
            found = examined.findings[name] = []
            try:
                found.extend(_findings(check, examined))
            except NotTried as reason:
                del examined.findings[name]
                not_tried[name] = str(reason)
    finally:
        examined.close()
    lines = [
        Line(name, finding.status, finding.found, finding.advice)
        for name, findings in examined.findings.items()
        for finding in findings
    ]
    worst = max((STATUSES.index(line.status) for line in lines), default=0)
    return Diagnosis(STATUSES[worst], __version__, lines, not_tried)


def _findings(check: Callable[[Examination], Iterator[Finding]], examined: Examination) -> Iterator[Finding]:
    try:
        yield from check(examined)
    except NotTried:
        raise
    except StoreBusy as error:
        yield Finding("warning", str(error), "try again when the other command has ended")
    except Exception as error:  # what cannot be looked at is not well, and must not hide the other checks
        yield Finding("failed", f"cannot be checked: {error or type(error).__name__}", "see the other checks")
