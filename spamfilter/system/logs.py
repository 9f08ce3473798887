"""The format of the log: one line for each event, for people or for programs.

Guarantee: what comes by mail or over the network is escaped, so that it makes no second line and no other field. The
same fault again and again shows its traceback once a minute; what is logged with `extra=SELDOM` is one line a minute.
What fails and recovers again and again is two lines in ten seconds, by `Outages`.
"""

import json
import logging
import os
import sys
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import click

from spamfilter.system.escaping import printable
from spamfilter.system.terminal import colours_wanted

PRIORITIES = ((logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6), (logging.DEBUG, 7))
"""Level -> priority of syslog, which systemd's journal reads at the beginning of a line: sd-daemon(3)."""
COLOURS = {"WARNING": "yellow", "ERROR": "red", "CRITICAL": "red"}
"""Level -> colour on a terminal."""
LONGEST = 200
"""Most characters of a value."""
SELDOM = {"seldom": True}
"""The `extra` of a line that comes again and again, with each mail or in each second: the repetitions are left out."""
QUIET_SECONDS = 60.0
"""Time in which a repetition is left out: a fault that lasts is seen, and a day of it is 200 kB of log."""

OUTAGE_SECONDS = 10.0
"""Time between two outages of a part in the log: one that begins anew each second makes two lines in ten seconds, as
limits do, and one that lasts is in the log ten seconds after its beginning at the latest."""


class Outages:
    """Which outages of a part are logged: one that begins soon after another, only if it lasts."""

    def __init__(self) -> None:
        self._logged = False
        self._at = -OUTAGE_SECONDS

    def fails(self) -> bool:
        """Note that a try has failed. Returns whether to log it: not if this outage is in the log already, nor if an
        outage was logged within the last OUTAGE_SECONDS."""
        now = time.monotonic()
        if self._logged or now < self._at + OUTAGE_SECONDS:
            return False
        self._logged, self._at = True, now
        return True

    def ends(self) -> bool:
        """Note that a try has succeeded. Returns whether to log it: only if the log says that the part fails."""
        logged, self._logged = self._logged, False
        return logged


@dataclass(frozen=True, slots=True)
class Event:
    """An event of a mail, as the message of a log record. id: of the mail. fields: name -> value."""

    id: str
    fields: Mapping[str, str | int | float]

    def __str__(self) -> str:
        """As key=value, addresses in angle brackets."""
        return f"{self.id}: " + " ".join(f"{name}={_value(name, value)}" for name, value in self.fields.items())


def _value(name: str, value: str | float) -> str:
    if isinstance(value, str):
        text = printable(value, LONGEST)
        return f"<{text}>" if name in ("from", "to") else text
    return f"{value:.3f}" if isinstance(value, float) else str(value)


class _Json(logging.Formatter):
    """One object a line: `at`, `level`, and `message`, or `id` and the fields of an event; `traceback` of an error."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        event = record.msg
        said = {"id": event.id, **event.fields} if isinstance(event, Event) else {"message": record.getMessage()}
        body = {"at": at, "level": record.levelname.lower(), **said}
        if record.exc_info and record.exc_info[1]:
            body["traceback"] = "".join(traceback.format_exception(record.exc_info[1]))
        return json.dumps(body)


class _Journald(logging.Formatter):
    """The lines of another formatter, each with its priority before it."""

    def __init__(self, inner: logging.Formatter) -> None:
        super().__init__()
        self._inner = inner

    def format(self, record: logging.LogRecord) -> str:
        priority = next((number for level, number in PRIORITIES if record.levelno >= level), 7)
        return "\n".join(f"<{priority}>{line}" for line in self._inner.format(record).split("\n"))


class Repetitions(logging.Filter):
    """Leaves out the repetitions of SELDOM lines, and the tracebacks of others, within QUIET_SECONDS."""

    def __init__(self) -> None:
        super().__init__()
        self._logged: dict[tuple[str, str, object], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        seldom, error = getattr(record, "seldom", False), record.exc_info and record.exc_info[0]
        if not seldom and not error:
            return True
        kind, now = (record.name, str(record.msg), error), time.monotonic()
        if now < self._logged.get(kind, -QUIET_SECONDS) + QUIET_SECONDS:
            record.exc_info = None
            return not seldom
        self._logged[kind] = now
        return True


class _Text(logging.Formatter):
    """Time, level and message. On a terminal the time is local, and warnings and errors stand out in colours."""

    def __init__(self, terminal: bool = False, colours: bool = False) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s", f"%Y-%m-%dT%H:%M:%S{'%z' if terminal else 'Z'}")
        self.converter = time.localtime if terminal else time.gmtime
        self._colours = COLOURS if colours else {}

    def format(self, record: logging.LogRecord) -> str:
        text, colour = super().format(record), self._colours.get(record.levelname)
        return text.replace(record.levelname, click.style(record.levelname, fg=colour), 1) if colour else text


FORMATS = {"text": _Text(), "json": _Json()}
"""As they are in a pipe or a file."""
_JOURNALD = logging.Formatter("%(levelname)s %(message)s")
"""systemd's journal has the time."""


def set_up(form: str, level: str) -> None:
    """Write the log to standard error in one of FORMATS, with priorities if systemd's journal reads it."""
    formatter, terminal = FORMATS[form], sys.stderr.isatty()
    if _is_journal():
        formatter = _Journald(_JOURNALD if form == "text" else formatter)
    elif form == "text" and terminal:
        formatter = _Text(True, colours_wanted())
    handler = logging.StreamHandler()
    handler.setFormatter(formatter)
    handler.addFilter(Repetitions())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


def _is_journal() -> bool:
    """Whether systemd's journal reads standard error: systemd.exec(5), $JOURNAL_STREAM, which other outputs inherit."""
    try:
        found = os.fstat(sys.stderr.fileno())
    except (OSError, ValueError):
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{found.st_dev}:{found.st_ino}"
