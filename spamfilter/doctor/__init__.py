"""The checks of `doctor`: whether the filter runs, and whether it learns. CHECKS is their table.

Guarantee: a check that fails, or raises an exception, hides no other. A check that has nothing to look at because of
another finding is listed as not tried.
Imports: every room from errors to service. Start with examination, which every check is given.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from spamfilter import __version__
from spamfilter.doctor import canary, database, delivery, dovecot, learning, process
from spamfilter.doctor.examination import CLOSED, Examination, Finding, NotTried, Status, failed, warning
from spamfilter.errors import StoreBusy, StoreRefused

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
    "outages": delivery.outages,
    "disk": delivery.disk,
    "clock": learning.clock,
    "dovecot": dovecot.dovecot,
    "canary": canary.canary,
}
"""Name -> check, in the order of execution; a check may read the findings of those before it."""

STATUSES: tuple[Status, ...] = ("ok", "warning", "failed")
"""From best to worst. The index of the worst finding is the exit code that Nagios and similar programs expect."""


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
    """Run all checks except those in `without`."""
    not_tried = {}
    try:
        for name, check in CHECKS.items():
            if name in without:
                continue
            found: list[Finding] = []
            try:
                found.extend(check(examined))  # what it has found before an exception stays
            except NotTried as reason:
                not_tried[name] = str(reason)
                continue
            except StoreRefused as error:
                found.append(failed(str(error), "docs/postgresql.md says what it needs"))
            except StoreBusy as error:
                found.append(warning(str(error), "try again when the other command has ended"))
            except Exception as error:  # it must not hide the other checks
                if isinstance(error, PermissionError) and examined.by_another_user:
                    not_tried[name] = CLOSED
                    continue
                found.append(failed(f"cannot be checked: {str(error) or type(error).__name__}", "see the other checks"))
            examined.findings[name] = found
    finally:
        examined.close()
    lines = [
        Line(name, finding.status, finding.found, finding.advice)
        for name, findings in examined.findings.items()
        for finding in findings
    ]
    worst = max((STATUSES.index(line.status) for line in lines), default=0)
    return Diagnosis(STATUSES[worst], __version__, lines, not_tried)
