"""`spamfilter doctor` on a whole installation: silent on a healthy one, and each planted fault is found, alone.

The relay runs as a user of its own and doctor as root, as on a real host.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import smtplib
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from spamfilter import __version__
from spamfilter.doctor import CHECKS
from spamfilter.system.packaged_files import shipped
from tests.integration.installed import copy_checkout
from tests.integration.servers import Relay, Sink, free_port, relay, sink, wait_until, workshop
from tests.support.real import missing, require, require_root

USER = "mail"
"""A user of every Debian, as which the relay runs."""
DOVECOT = "/etc/dovecot/spamfilter"
SENDER = "a@example.org"
OLD_VERSION = "0.0.9"
MAILS = {
    "spam": ("cheap pills", "limited offer of cheap pills"),
    "ham": ("lunch at noon", "the minutes of the meeting"),
}


@dataclass
class Installation:
    """A relay that runs as USER, has learnt of both classes and delivered a mail, and Dovecot's configuration."""

    server: Relay
    dovecot: Path
    hop: ExitStack

    @property
    def database(self) -> Path:
        return self.server.state / "spamfilter.db"

    def doctor(self, *arguments: str) -> tuple[int, dict[str, Any]]:
        """Exit code and answer of doctor."""
        done = self.server.command("doctor", "--json", "--dovecot", str(self.dovecot), *arguments, seconds=180)
        assert done.stdout, done.stderr
        assert "Traceback" not in done.stderr
        return done.returncode, json.loads(done.stdout)

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        """One statement on the database, and what it answers."""
        with contextlib.closing(sqlite3.connect(self.database, timeout=30)) as connection:
            found = connection.execute(statement).fetchall()
            connection.commit()
        return found

    def send(self) -> None:
        """A mail through the relay."""
        with smtplib.SMTP("127.0.0.1", self.server.port, "c", timeout=30) as client:
            client.sendmail(SENDER, ["b@example.test"], b"Subject: hello\r\n\r\nIs this spam?\r\n")

    def counts(self) -> list[list[tuple[Any, ...]]]:
        """All that judging depends on, and the journal."""
        return [
            sorted(self.execute(f"SELECT {columns} FROM {table}"))
            for table, columns in (
                ("words", "voice, word, ham, spam"), ("classes", "*"), ("vocabularies", "*"), ("tallies", "*"),
                ("settings", "*"), ("journal", "id"),
            )
        ]  # fmt: skip

    def stats(self) -> dict[str, Any]:
        """The report, but for its moment, the size of the file, and hours without mail: they move with the clock."""
        report: dict[str, Any] = json.loads(self.server.command("stats", "--json").stdout)
        hours = [(hour["at"], hour["classes"], hour["actions"]) for hour in report.pop("timeline")]
        with_mail = [hour for hour in hours if any(count for counts in hour[1:] for count in counts.values())]
        assert with_mail, "the mail of the installation is in no hour"
        for moving in ("since", "until", "before_since", "size"):
            del report[moving]
        return report | {"hours": with_mail}


Prepare = Callable[[Path, ExitStack], tuple[str, ...]]


@contextlib.contextmanager
def installation(prepare: Prepare | None = None, **settings: Mapping[str, Any]) -> Iterator[Installation]:
    """prepare: given the folder before the relay starts; returns what to put before its command."""
    require_root("the relay runs as another user than doctor")
    setpriv = require("setpriv", "util-linux")
    with workshop() as folder, ExitStack() as stack, ExitStack() as hop:
        target: Sink = hop.enter_context(sink())
        state = folder / "relay" / "state"
        state.mkdir(parents=True, mode=0o700)
        before = prepare(folder, stack) if prepare else ()
        shutil.chown(state, USER, USER)
        state.chmod(0o700)
        dovecot = connected(folder, state / "feedback.sock")
        ours = {"listen": [f"127.0.0.1:{free_port()}"], "next_hop": f"smtp://127.0.0.1:{target.port}"}
        prefix = (*before, setpriv, f"--reuid={USER}", f"--regid={USER}", "--clear-groups")
        settings = {**settings, "relay": {**ours, **settings.get("relay", {})}}
        server = stack.enter_context(relay(folder / "relay", prefix, **settings))
        for label, texts in MAILS.items():
            for number, text in enumerate(texts):
                done = server.command(
                    f"mark-{label}", "--source", "imap", input=f"Subject: {text}\n\n{text} {number}\n"
                )
                assert done.returncode == 0, done.stderr
        installed = Installation(server, dovecot, hop)
        installed.send()
        wait_until(lambda: installed.execute("SELECT count(*) FROM journal") == [(1,)], "the journal")
        yield installed


def connected(folder: Path, socket: Path, version: str = "2.3") -> Path:
    """Dovecot's configuration with the shipped files in it, their paths exchanged for places in this folder."""
    dovecot, program = folder / "dovecot", folder / "spamfilter"
    scripts = dovecot / "spamfilter"
    (dovecot / "conf.d").mkdir(parents=True)
    shutil.copytree(shipped("config/dovecot"), scripts)
    for settings in scripts.glob("90-spamfilter-*.conf"):
        if settings.name == f"90-spamfilter-{version}.conf":
            text = settings.read_text().replace(DOVECOT, str(scripts))
            (dovecot / "conf.d" / "90-spamfilter.conf").write_text(text)
        settings.unlink()
    for script in scripts.glob("*.sieve"):
        script.with_suffix(".svbin").touch()
    mark = scripts / "spamfilter-mark"
    text = mark.read_text().replace("/usr/local/bin/spamfilter", str(program))
    mark.write_text(text.replace("/run/spamfilter/feedback.sock", str(socket)))
    program.write_text(f"#!/bin/sh\nexec {sys.executable} -m spamfilter\n")
    for place in (folder, *folder.glob("dovecot/**/*"), dovecot, program):
        place.chmod(0o755)
    return dovecot


def wrong_owner(there: Installation) -> None:
    os.chown(there.database, 0, 0)


def read_only(there: Installation) -> None:
    there.database.chmod(0o400)


def missing_script(there: Installation) -> None:
    (there.dovecot / "spamfilter" / "learn-ham.sieve").unlink()


def hop_down(there: Installation) -> None:
    there.hop.close()


def full(there: Installation) -> None:
    found = os.statvfs(there.server.state)
    size = found.f_bavail * found.f_frsize - found.f_blocks * found.f_frsize // 50
    with (there.server.state / "filling").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, size)


def corrupt_page(there: Installation) -> None:
    """Overwrite the page of an index that nothing but an altered mail is looked up in."""
    there.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    ((page,),) = there.execute("SELECT rootpage FROM sqlite_master WHERE name = 'journal_message_id'")
    ((size,),) = there.execute("PRAGMA page_size")
    with there.database.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"garbage " * (size // 8))


def schema_behind(there: Installation) -> None:
    done = there.server.command("migrate", "--yes", "--revision", "0002")
    assert done.returncode == 0, done.stderr


def wrong_counts(there: Installation) -> None:
    there.execute("UPDATE words SET spam = spam + 1 WHERE word = 'pills' AND voice = 'body'")


def class_never_learnt(there: Installation) -> None:
    for number, text in enumerate(MAILS["ham"]):
        done = there.server.command("forget", input=f"Subject: {text}\n\n{text} {number}\n")
        assert "forgotten as ham" in done.stdout, done.stderr


def silent_path(there: Installation) -> None:
    """As if the last move was a month ago, and all marks since were made by commands."""
    there.execute("UPDATE ledger SET source = 'cli' WHERE id > 1")
    there.execute("UPDATE ledger SET at = datetime(at, '-30 days') || '.000000' WHERE id = 1")


def socket_gone(there: Installation) -> None:
    (there.server.state / "feedback.sock").unlink()


def quarantine_without_a_part(there: Installation) -> None:
    (there.server.state / "quarantine" / "tmp").rmdir()


def restored_by_root(there: Installation) -> None:
    for name in ("one", "two"):
        file = there.server.state / "quarantine" / "new" / name
        file.touch(mode=0o600)


def nothing(there: Installation) -> None:
    """What is wrong was so before the relay started."""


def old_program(folder: Path, stack: ExitStack) -> tuple[str, ...]:
    """A relay of another version, which runs on while the program beside it is new."""
    checkout = copy_checkout(folder / "old")
    package = checkout / "spamfilter" / "__init__.py"
    package.write_text(package.read_text().replace(__version__, OLD_VERSION))
    return "env", "-C", str(checkout), f"PYTHONPATH={checkout}"


def small_disk(folder: Path, stack: ExitStack) -> tuple[str, ...]:
    """The state directory on a file system of its own, of 48 MB."""
    state = folder / "relay" / "state"
    command = ["mount", "-t", "tmpfs", "-o", "size=48m,mode=0700", "tmpfs", str(state)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        missing(f"a file system cannot be mounted here: {done.stderr.strip()}")
    stack.callback(subprocess.run, ["umount", str(state)], timeout=60, check=True)
    return ()


@dataclass(frozen=True)
class Fault:
    """plant: makes it. check, status, said: the line that must name it, and the only one that is not ok."""

    plant: Callable[[Installation], None]
    check: str
    said: str
    status: str = "failed"
    arguments: tuple[str, ...] = ()
    prepare: Prepare | None = None
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


FAULTS = {
    "wrong-owner": Fault(wrong_owner, "database", rf"spamfilter\.db belongs to root, but the relay runs as {USER}"),
    "read-only-database": Fault(read_only, "database", rf"{USER} may not write spamfilter\.db"),
    "mail-of-another-user": Fault(
        restored_by_root,
        "quarantine",
        rf"quarantine/new/one and 1 more: {USER} may not read this mail",
        status="warning",
    ),
    "quarantine-without-a-part": Fault(
        quarantine_without_a_part, "quarantine", r"state/quarantine/tmp: no such folder"
    ),
    "missing-sieve-script": Fault(missing_script, "dovecot", r"learn-ham\.sieve: no such file"),
    "stale-process": Fault(
        nothing, "process", rf"runs version {OLD_VERSION}; this program is {__version__}", prepare=old_program
    ),
    "next-hop-down": Fault(hop_down, "next_hop", r"the next hop 127\.0\.0\.1:\d+ refuses connections"),
    "disk-nearly-full": Fault(
        full, "disk", r"state \(database, quarantine\): [01]\.\d MB free, [12]\.\d %", prepare=small_disk
    ),
    "corrupt-page": Fault(corrupt_page, "integrity", r"spamfilter\.db: .*[Pp]age"),
    "schema-behind": Fault(schema_behind, "schema", r"schema 0002 is old; this version needs \d{4}"),
    "counts-that-do-not-match-the-ledger": Fault(
        wrong_counts, "ledger", "the words of voice body are not the sum of the ledger", arguments=("--verify",)
    ),
    "class-never-learnt": Fault(
        class_never_learnt,
        "classes",
        "0 ham, 2 spam learnt: nothing is judged spam before ham is learnt",
        status="warning",
    ),
    "feedback-path-silent": Fault(silent_path, "feedback", r"imap: no mark for 30 days", status="warning"),
    "socket-unreachable": Fault(socket_gone, "feedback_socket", r"no answer: .*feedback\.sock: No such file"),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_planted_fault_is_named_and_no_other(fault: Fault) -> None:
    with installation(fault.prepare, **fault.settings) as there:
        fault.plant(there)
        code, answer = there.doctor(*fault.arguments)
        (line,) = [line for line in answer["lines"] if line["status"] != "ok"]
        assert (line["check"], line["status"]) == (fault.check, fault.status), line
        assert re.search(fault.said, line["found"]), line
        assert line["advice"]
        assert (code, answer["status"]) == ({"warning": 1, "failed": 2}[fault.status], fault.status)
        done = there.server.command("doctor", "--no-canary", "--dovecot", str(there.dovecot), *fault.arguments)
        found = re.search(
            rf"^{fault.status} +{fault.check.replace('_', ' ')}  .*\n +-> (.*)$", done.stdout, re.MULTILINE
        )
        assert found, done.stdout
        assert found[1] == line["advice"]


def test_a_folder_that_the_relay_may_not_enter_is_named_and_not_the_files_in_it() -> None:
    with installation() as there:
        there.server.state.chmod(0)
        _, answer = there.doctor()
        there.server.state.chmod(0o700)
        (found,) = [line for line in answer["lines"] if (line["check"], line["status"]) == ("database", "failed")]
        assert found["found"] == f"{there.server.state}: {USER} may not write in this folder, as SQLite must"


def test_a_healthy_installation_is_all_ok_and_the_canary_leaves_no_trace() -> None:
    with installation() as there:
        counts, stats, owners = there.counts(), there.stats(), owners_in(there.server.state)
        code, answer = there.doctor("--verify")
        assert [line for line in answer["lines"] if line["status"] != "ok"] == []
        assert (code, answer["status"], answer["not_tried"]) == (0, "ok", {})
        assert [line["check"] for line in answer["lines"]] == list(CHECKS)
        assert (there.counts(), there.stats()) == (counts, stats)
        # Neither has root, who asked, left files of its own in the relay's folder.
        assert owners_in(there.server.state) == owners == {USER}
        ((active,),) = there.execute(
            "SELECT count(*) FROM ledger WHERE source = 'canary' AND undoes IS NULL"
            " AND id NOT IN (SELECT undoes FROM ledger WHERE undoes IS NOT NULL)"
        )
        assert active == 0
        # The probe went through the relay, and was delivered to nobody.
        assert "reply=250 2.0.0 Ok: canary" in there.server.log()
        done = there.server.command("doctor", "--verify", "--dovecot", str(there.dovecot))
        assert done.returncode == 0, done.stdout
        *lines, last = done.stdout.splitlines()
        assert [line.split()[0] for line in lines] == ["ok"] * len(CHECKS)
        assert last == f"{len(CHECKS)} ok"


def as_user(there: Installation, name: str) -> tuple[int, dict[str, Any]]:
    """Exit code and answer of doctor to another user than root."""
    command = [require("setpriv", "util-linux"), f"--reuid={name}", f"--regid={name}", "--clear-groups"]
    command += [sys.executable, "-m", "spamfilter", "doctor", "--json", "--dovecot", str(there.dovecot)]
    done = subprocess.run(
        command, env=there.server.environment, capture_output=True, text=True, timeout=180, check=False
    )
    assert done.stdout, done.stderr
    assert "Traceback" not in done.stderr
    return done.returncode, json.loads(done.stdout)


def test_the_user_of_the_relay_sees_what_root_sees() -> None:
    with installation() as there:
        _, roots = there.doctor()
        code, answer = as_user(there, USER)
        assert [line for line in answer["lines"] if line["status"] != "ok"] == []
        assert (code, answer["not_tried"]) == (0, {})
        told = [[line["found"] for line in said["lines"] if line["check"] == "database"] for said in (roots, answer)]
        assert told[0][0].partition(", ")[0] == told[1][0].partition(", ")[0]


def test_a_configuration_of_dovecot_that_the_user_of_the_relay_may_not_read_hides_no_other_way_of_feedback() -> None:
    with installation() as there:
        (folder := there.dovecot / "conf.d").chmod(0o700)
        code, answer = as_user(there, USER)
        reason = f"{folder / '90-spamfilter.conf'}: Permission denied"
        assert (code, answer["not_tried"]) == (0, {"dovecot": reason})
        assert [line["status"] for line in answer["lines"] if line["check"] == "feedback"] == ["ok"]


def test_any_other_user_is_told_whom_to_ask_as() -> None:
    require_root("the relay runs as another user than doctor")
    with workshop() as open_to_all:
        shutil.chown(open_to_all, USER)
        with installation(feedback={"socket": str(open_to_all / "feedback.sock")}) as there:
            code, answer = as_user(there, "games")
        lines = {line["check"]: line for line in answer["lines"]}
        assert lines["process"]["status"] == "warning"
        assert "games: only the administrator" in lines["process"]["found"]
        assert lines["process"]["advice"] == "run this as root, or as the user of the relay"
        closed = "only root and the user of the relay may look"
        assert {answer["not_tried"][check] for check in ("judging", "database", "quarantine")} == {closed}
        assert answer["not_tried"].keys() >= {"integrity", "following", "canary"}
        # Its script names another socket.
        assert {line["check"] for line in answer["lines"] if line["status"] == "failed"} == {"dovecot"}
        assert code == 2


def test_a_relay_that_cannot_follow_the_ledger_is_found() -> None:
    with installation() as there:
        there.execute("INSERT INTO amounts VALUES (1000, 0, 'no JSON', '[0,0,0,0]')")
        there.execute(
            "INSERT INTO ledger (id, at, digest, label, tokens, source, by) VALUES"
            " (1000, '2026-01-01 00:00:00', x'00', 'spam', x'0011', 'cli', '')"
        )
        wait_until(lambda: "judging with what was learnt before" in there.server.log(), "the relay's complaint")
        code, answer = there.doctor()
        failed = {line["check"]: line["found"] for line in answer["lines"] if line["status"] == "failed"}
        assert failed["following"] == "the relay cannot read the ledger, and judges by older counts"
        assert "following" in answer["not_tried"]["canary"]
        assert code == 2


def owners_in(folder: Path) -> set[str]:
    return {path.owner() for path in folder.rglob("*")}


def test_no_relay_at_all_is_one_failed_line() -> None:
    with installation() as there:
        there.server.process.terminate()
        there.server.process.wait(60)
        code, answer = there.doctor()
        assert [(line["check"], line["found"]) for line in answer["lines"] if line["status"] != "ok"] == [
            ("process", "no relay is running")
        ]
        assert {"smtp", "feedback_socket", "canary"} <= answer["not_tried"].keys()
        assert code == 2
        assert owners_in(there.server.state) == {USER}


def test_a_relay_that_still_uses_another_database_is_stale() -> None:
    with installation() as there:
        config = there.server.config
        other = there.server.state / "other.db"
        there.server.command("backup", str(other))
        shutil.chown(other, USER, USER)
        config.write_text(config.read_text() + f'\n[store]\nurl = "sqlite:///{other}"\n')
        code, answer = there.doctor()
        found = [line for line in answer["lines"] if line["status"] != "ok"]
        assert [(line["check"], line["status"]) for line in found] == [("process", "failed"), ("process", "warning")]
        assert f"uses the database {there.database}; the configuration names {other}" in found[0]["found"]
        assert "the configuration has changed since the relay read it: store.url" in found[1]["found"]
        assert code == 2


def test_a_database_that_is_named_by_a_link_is_that_of_the_relay() -> None:
    with installation() as there:
        link, config = there.server.state.parent / "link", there.server.config
        link.symlink_to(there.server.state)
        url = f"sqlite:///{link}/{there.database.name}"
        config.write_text(config.read_text() + f'\n[store]\nurl = "{url}"\n')
        _, answer = there.doctor()
        assert "uses the database" not in str(answer["lines"])
        assert "following" not in answer["not_tried"]


def test_another_configuration_than_that_of_the_relay_is_named_with_the_way_to_read_that() -> None:
    with installation() as there:
        config = there.server.config
        copied = shutil.copy(config, config.with_name("other.toml"))
        answer = json.loads(there.server.command("--config", str(copied), "doctor", "--json", seconds=180).stdout)
        (line,) = [line for line in answer["lines"] if line["check"] == "process"]
        assert line["found"].endswith(f"was started with {config}, and this command with {copied}")
        assert line["advice"] == f"run this command with --config {config}"


def test_a_configuration_under_another_name_is_that_of_the_relay() -> None:
    with installation() as there:
        config = there.server.config
        (link := config.with_name("link.toml")).symlink_to(config)
        for name in (link, there.server.state / ".." / config.name):
            done = there.server.command("--config", str(name), "doctor", "--json", "--no-canary", seconds=180)
            assert [line["status"] for line in json.loads(done.stdout)["lines"] if line["check"] == "process"] == ["ok"]


def test_the_probe_is_taken_where_the_doctor_is_not_trusted() -> None:
    with installation(relay={"trusted": ["192.0.2.0/24"], "domains": ["example.test"]}) as there:
        counts = there.counts()
        code, answer = there.doctor()
        assert [line for line in answer["lines"] if line["status"] != "ok"] == []
        assert code == 0
        assert there.counts() == counts


@pytest.mark.parametrize("trusted", ["127.0.0.0/8", "192.0.2.0/24"])
def test_doctor_is_a_client_as_the_proxy_protocol_wants_it(tmp_path: Path, trusted: str) -> None:
    section = {"proxy_protocol": True, "trusted": [trusted], "domains": ["example.test"]}
    with relay(tmp_path / "relay", relay=section) as server:
        answer = json.loads(server.command("doctor", "--json", seconds=180).stdout)
    assert [line["status"] for line in answer["lines"] if line["check"] in ("smtp", "canary")] == ["ok", "ok"]


def test_a_relay_that_judges_by_other_counts_than_the_database_has_is_found_by_the_probe() -> None:
    with installation() as there:
        there.execute("INSERT INTO words VALUES (0, 'body', 'delivered', 0, 800)")
        words = there.execute("SELECT count(*), sum(ham), sum(spam) FROM words")
        _, answer = there.doctor()
        (line,) = [line for line in answer["lines"] if line["status"] != "ok"]
        assert line["check"] == "canary"
        assert "learning: the relay's score is not the database's: " in line["found"]
        assert there.execute("SELECT count(*), sum(ham), sum(spam) FROM words") == words


def test_a_locked_database_fails_the_probe_and_the_relay_removes_it_when_it_can() -> None:
    with installation() as there:
        counts = there.counts()
        holder = sqlite3.connect(there.database, isolation_level=None)
        with contextlib.closing(holder):
            holder.execute("BEGIN IMMEDIATE")
            code, answer = there.doctor()
            holder.execute("ROLLBACK")
        (line,) = [line for line in answer["lines"] if line["status"] != "ok"]
        assert line["check"] == "canary"
        assert "finding it in the journal" in line["found"]
        assert "removing the probe: not done yet" in line["found"]
        assert code == 2
        assert "reply=250 2.0.0 Ok: canary" in there.server.log()
        there.send()  # whose entry is written behind the probe's
        wait_until(lambda: there.execute("SELECT sender FROM journal") == 2 * [(SENDER,)], "the probe's removal")
        there.execute("DELETE FROM journal WHERE id = (SELECT max(id) FROM journal)")
        assert there.counts() == counts


def test_an_interrupted_doctor_leaves_nothing() -> None:
    with installation() as there:
        counts = there.counts()
        holder = sqlite3.connect(there.database, isolation_level=None)
        with contextlib.closing(holder):
            holder.execute("BEGIN IMMEDIATE")  # so that it waits for the probe to be in the journal
            command = [sys.executable, "-m", "spamfilter", "doctor", "--dovecot", str(there.dovecot)]
            with subprocess.Popen(command, env=there.server.environment, stdout=subprocess.PIPE) as doctor:
                wait_until(lambda: "reply=250 2.0.0 Ok: canary" in there.server.log(), "the probe")
                doctor.send_signal(signal.SIGINT)
                assert doctor.wait(60) == 130
            holder.execute("ROLLBACK")
        there.send()
        wait_until(lambda: there.execute("SELECT sender FROM journal") == 2 * [(SENDER,)], "the probe's removal")
        there.execute("DELETE FROM journal WHERE id = (SELECT max(id) FROM journal)")
        assert there.counts() == counts
