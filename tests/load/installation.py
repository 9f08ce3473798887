"""A relay that is trained and runs, and whether all that went through it is in its books."""

import contextlib
import json
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from spamfilter.config.sections import Limits
from tests.faults.daemon import Daemon
from tests.load.mails import made
from tests.load.sink import Sink

LEARNT = 150
"""Mails of each class that the relay has learnt before the load."""
SHIPPED: Mapping[str, Any] = {
    name: getattr(Limits(), name) for name in ("connect_seconds", "command_seconds", "final_seconds", "drain_seconds")
}
"""The limits of time as they are shipped; those of the fault tests are short."""


@contextlib.contextmanager
def trained(folder: Path, sink: Sink, learnt: int = LEARNT, **limits: float) -> Iterator[Daemon]:
    """A relay before a sink. It refuses no spam, since smtp-source would end at the first refusal."""
    # One process, since what it takes is looked at.
    relay = Daemon(
        folder,
        f"smtp://127.0.0.1:{sink.port}",
        relay={"workers": 1},
        limits={**SHIPPED, **limits},
        verdict={"reject": 0.0},
    )
    for label in ("ham", "spam"):
        mails = folder / label
        mails.mkdir()
        for number in range(learnt):
            (mails / f"{number}.eml").write_bytes(made(f"learnt{number}", label))
    if learnt:
        folders = ("--ham", str(folder / "ham"), "--spam", str(folder / "spam"))
        command = [sys.executable, "-m", "spamfilter", "train", *folders]
        subprocess.run(command, env=relay.environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    relay.start()
    try:
        yield relay
    finally:
        if relay.running:
            relay.kill()


def journalled(relay: Daemon) -> list[str]:
    """The recipients of all rows of the journal."""
    with contextlib.closing(sqlite3.connect(relay.database)) as connection:
        rows = connection.execute("SELECT recipients FROM journal").fetchall()
    return [name for row in rows for name in json.loads(row[0])]


def marked(relay: Daemon) -> int:
    """How many entries of the ledger users have made; doctor's canary is taught and taken back beside them."""
    with contextlib.closing(sqlite3.connect(relay.database)) as connection:
        return int(connection.execute("SELECT count(*) FROM ledger WHERE source = 'cli'").fetchone()[0])


def complaints(relay: Daemon) -> list[str]:
    """What `doctor --verify` takes for failed, while the relay runs."""
    command = [sys.executable, "-m", "spamfilter", "doctor", "--verify", "--json"]
    said = subprocess.run(command, env=relay.environment, capture_output=True, text=True, check=False)
    if not said.stdout:
        raise RuntimeError(f"doctor: {said.stderr}")
    lines = json.loads(said.stdout)["lines"]
    return [f"doctor: {line['check']}: {line['found']}" for line in lines if line["status"] == "failed"]
