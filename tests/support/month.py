"""A month of mail through a real relay, with a calendar of its own and users who mark what was judged wrong.

And its journal and ledger counted in another way than the report counts them.
"""

import heapq
import json
import random
import re
import smtplib
import sqlite3
from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from spamfilter.bayes.labels import Label
from spamfilter.errors import SpamfilterError
from tests.faults.daemon import Daemon
from tests.faults.databases import await_journal
from tests.faults.hop import Hop
from tests.support.planted import planted
from tests.support.real import require

START = datetime(2026, 3, 1, tzinfo=UTC)
DAYS = 30
USERS = ("ann", "bob", "carol")
NIGHT = 0.1
"""Share of a day's mail that comes before six."""
MARKS = {("ham", "spam"): 0.8, ("spam", "ham"): 0.9, ("unsure", "spam"): 0.6, ("unsure", "ham"): 0.5}
"""Verdict and truth -> how often a user says so."""

_ID = re.compile(rb"[0-9A-Z]{26}")
_STATUS = re.compile(rb"^X-Spam-Status: [^\r\n]* class=([a-z]+)", re.MULTILINE)


SLEEP = """
import select, time
time.sleep = lambda seconds: select.select([], [], [], seconds)
"""
"""Under faketime that leaves one clock alone, Python's sleep is an error, and a command that waits for a lock fails."""


class Calendar:
    """The time that a process is told; how long something takes is measured by another clock, which is left alone.

    code: what the process runs before its own.
    """

    def __init__(self, folder: Path, code: str = "") -> None:
        require("faketime", "faketime")
        self._file = folder / "calendar"
        self.environment = {
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            # Else each wait of a thread for another ends at once, and both of them spin.
            "FAKETIME_FORCE_MONOTONIC_FIX": "0",
            "LD_PRELOAD": next(str(file) for file in Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1")),
            "TZ": "UTC",
            "PYTHONPATH": planted(folder / "planted", SLEEP + code),
        }
        self.set(START)

    def set(self, now: datetime) -> None:
        """It stands still there."""
        new = self._file.with_suffix(".new")
        new.write_text(f"{now:%Y-%m-%d %H:%M:%S}\n")
        new.rename(self._file)


@dataclass
class Month:
    """What was sent, and what users have said of it: id -> label. refused: those that a user may not change."""

    sent: int = 0
    marked: dict[str, Label] = field(default_factory=dict)
    refused: int = 0


def moment(share: float) -> datetime:
    """When so much of the month's mail has come: by day more than at night."""
    day, part = divmod(share * DAYS, 1)
    hours = 60 * part if part < NIGHT else 6 + 18 * (part - NIGHT) / (1 - NIGHT)
    return START + timedelta(days=day, hours=hours)


def replay(relay: Daemon, hop: Hop, calendar: Calendar, mails: Iterable[tuple[Label, bytes]], number: int) -> Month:
    """Send each of `number` mails at its time, and mark at theirs what users have seen."""
    month, chance = Month(), random.Random(1)
    to_mark: list[tuple[datetime, str, Label, str]] = []
    with smtplib.SMTP("127.0.0.1", relay.port, "client.test", timeout=60) as client:
        for place, (label, mail) in enumerate(mails):
            now = moment(place / number)
            while to_mark and to_mark[0][0] <= now:
                _mark(relay, calendar, month, *heapq.heappop(to_mark))
            calendar.set(now)
            sender = re.search(rb"^From:[^\r\n]*?([\w.+-]+@[\w.-]+)", mail, re.MULTILINE | re.IGNORECASE)
            envelope = sender.group(1).decode("ascii", "replace") if sender and sender.group(1).isascii() else ""
            recipient = f"{chance.choice(USERS)}@example.net"
            try:
                client.sendmail(envelope, [recipient], mail)
                passed = hop.kept[-1].mail
            except smtplib.SMTPDataError as error:
                passed = bytes(error.smtp_error) if isinstance(error.smtp_error, bytes) else error.smtp_error.encode()
            month.sent += 1
            found = _STATUS.search(passed)
            class_ = found.group(1).decode() if found else "spam"
            id = _ID.search(passed)
            if id and chance.random() < MARKS.get((class_, label), 0):
                later = timedelta(hours=chance.expovariate(1 / 6))
                heapq.heappush(to_mark, (now + later, id.group().decode(), label, recipient.partition("@")[0]))
            hop.kept.clear()
    end = START + timedelta(days=DAYS)
    while to_mark and to_mark[0][0] < end:
        _mark(relay, calendar, month, *heapq.heappop(to_mark))
    await_journal(relay)
    calendar.set(end + timedelta(hours=1))
    return month


def _mark(relay: Daemon, calendar: Calendar, month: Month, at: datetime, id: str, label: Label, user: str) -> None:
    calendar.set(at)
    try:
        relay.ask({"command": "mark", "label": label, "id": id, "by": user})
    except SpamfilterError:  # another one has marked the same mail
        month.refused += 1
    else:
        month.marked[id] = label


def counted(database: Path, since: datetime, until: datetime) -> dict[str, Any]:
    """The figures of a report, counted row by row."""
    with closing(sqlite3.connect(database)) as connection:
        connection.row_factory = sqlite3.Row
        bounds = [f"{moment:%Y-%m-%d %H:%M:%S.%f}" for moment in (since, until)]
        mails = connection.execute("SELECT * FROM journal WHERE at >= ? AND at < ?", bounds).fetchall()
        taken_back = {row[0] for row in connection.execute("SELECT undoes FROM ledger WHERE undoes IS NOT NULL")}
        learnt = [
            row
            for row in connection.execute("SELECT id, at, digest, label, source, by FROM ledger WHERE undoes IS NULL")
            if row["id"] not in taken_back
        ]
    people = {row["digest"]: row["label"] for row in learnt if row["source"] not in ("train", "automatic", "canary")}
    known = {row["digest"] for row in learnt}
    pairs = Counter((mail["class"], people.get(mail["digest"], "")) for mail in mails)
    truth = {
        "ham": pairs["ham", ""] + sum(pairs[class_, "ham"] for class_ in ("ham", "unsure", "spam")),
        "spam": pairs["spam", ""] + sum(pairs[class_, "spam"] for class_ in ("ham", "unsure", "spam")),
    }
    inside = [row for row in learnt if bounds[0] <= row["at"] < bounds[1]]
    return {
        "messages": len(mails),
        "bytes": sum(mail["size"] for mail in mails),
        "classes": Counter(mail["class"] for mail in mails),
        "actions": Counter(mail["action"] for mail in mails),
        "replies": Counter(
            {"2": "accepted", "4": "deferred", "5": "rejected"}.get(mail["reply"][:1], "") for mail in mails
        ),
        "ham_rate": (pairs["spam", "ham"], truth["ham"]),
        "spam_rate": (pairs["ham", "spam"], truth["spam"]),
        "unsure_settled": {label: pairs["unsure", label] for label in ("ham", "spam")},
        "days": Counter((mail["at"][:10], mail["class"]) for mail in mails),
        "hours": Counter((mail["at"][11:13], mail["class"]) for mail in mails),
        "waiting_in_all": len({m["digest"] for m in mails if m["class"] == "unsure" and m["digest"] not in known}),
        "senders": Counter(mail["sender"].rpartition("@")[2].lower() for mail in mails),
        "recipients": Counter(name for mail in mails for name in json.loads(mail["recipients"])),
        "trainings": Counter((row["source"], row["by"], row["label"]) for row in inside),
        "learnings": len(inside),
    }


def differences(report: dict[str, Any], count: dict[str, Any]) -> list[str]:
    """The figures of `stats --json` that are others than those counted."""
    found = [name for name in ("messages", "bytes", "waiting_in_all", "learnings") if report[name] != count[name]]
    found += [
        name
        for name in ("classes", "actions", "replies", "unsure_settled")
        if {key: number for key, number in report[name].items() if number}
        != {key: number for key, number in count[name].items() if number}
    ]
    for name in ("ham_rate", "spam_rate"):
        if (report[name]["errors"], report[name]["messages"]) != count[name]:
            found.append(name)
    for name in ("days", "hours"):
        slots = {(slot["at"], class_): number for slot in report[name] for class_, number in slot["classes"].items()}
        if {key: number for key, number in slots.items() if number} != dict(count[name]):
            found.append(name)
    trainings = {(row["source"], row["by"], row["label"]): row["number"] for row in report["trainings"]}
    if trainings != dict(count["trainings"]):
        found.append("trainings")
    # Those that lead a month lead its days, so that what is kept of each day is all there is of them.
    found += [row["name"] for row in report["recipients"] if row["messages"] != count["recipients"][row["name"]]]
    return found
