"""Each check of `doctor` on real files, databases and sockets; the whole command is tested in tests/integration."""

import asyncio
import gc
import os
import resource
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import psycopg
import pytest

from spamfilter.bayes.labels import BULK
from spamfilter.bayes.token_codec import Packed
from spamfilter.bayes.tokens import TOKENIZER
from spamfilter.config.sections import Feedback
from spamfilter.config.settings import Settings
from spamfilter.doctor import CHECKS, STATUSES, Diagnosis, Line, examine
from spamfilter.doctor import dovecot as dovecot_scripts
from spamfilter.doctor import learning as learning_checks
from spamfilter.doctor.canary import _Probe
from spamfilter.doctor.database import counting, database
from spamfilter.doctor.delivery import free_space, quarantine
from spamfilter.doctor.dovecot import dovecot
from spamfilter.doctor.examination import Examination, Finding, NotTried
from spamfilter.doctor.learning import SILENT, classes, clock, feedback, following
from spamfilter.doctor.process import journal_backlog, limit_hits, memory_use
from spamfilter.errors import InputError, Refused, StoreBusy, StoreError, StoreRefused
from spamfilter.learning.filter import RULES, Filter, rules
from spamfilter.learning.mark_lookup import Subject
from spamfilter.learning.marks import Author, mark
from spamfilter.relay.canary import Canaries
from spamfilter.relay.limits.shared_counters import MOST_PROBES
from spamfilter.service.control_socket.client import SocketClient
from spamfilter.stores import open_store
from spamfilter.stores.sql import postgresql
from spamfilter.system.file_access import ANYBODY, by_mode, may, user_named, user_of
from tests.integration.dovecot import PACKAGES
from tests.integration.servers import workshop
from tests.integration.test_doctor import connected
from tests.project.test_docs import documented
from tests.support.made import journal_entry, mail, reading
from tests.support.parts import Hop, Running, relaying
from tests.support.real import missing, require, require_root

GB = 10**9


def settings(folder: Path, **others: object) -> Settings:
    """Settings whose files are all in this folder."""
    return Settings.model_validate(
        {
            "store": {"url": f"sqlite:///{folder}/spamfilter.db"},
            "relay": {"next_hop": f"maildir:{folder}/mail", "listen": ["127.0.0.1:0"]},
            "verdict": {"quarantine": f"{folder}/quarantine"},
            "feedback": {"socket": f"{folder}/feedback.sock"},
            "learn": {"voices": ["fields"]},
            **others,
        }
    )


def look(check: Callable[[Examination], Iterator[Finding]], examined: Examination) -> list[Finding]:
    try:
        return list(check(examined))
    finally:
        examined.close()


def test_the_answer_and_its_description_name_the_same() -> None:
    assert documented("doctor --json") == {field.name for type in (Diagnosis, Line) for field in fields(type)}


def test_each_check_stands_in_the_description() -> None:
    assert documented("doctor --json: checks") == set(CHECKS)


@pytest.mark.parametrize(("worst", "code"), [("ok", 0), ("warning", 1), ("failed", 2)])
def test_the_exit_code_is_that_of_the_worst_finding(worst: str, code: int) -> None:
    (status,) = (status for status in STATUSES if status == worst)
    assert Diagnosis(status, "", [], {}).exit_code == code


def test_counts_of_an_older_tokenizer_are_usable_and_said(tmp_path: Path) -> None:
    examined = Examination(settings(tmp_path), None)
    with closing(open_store(examined.settings.store_url())) as store:
        store.put_setting(RULES, {**rules(examined.settings.voices()), "tokenizer": TOKENIZER - 1})
    (found,) = look(counting, examined)
    assert (found.status, "earlier version" in found.found, "retrain" in found.advice) == ("warning", True, True)


def test_looking_makes_nothing(tmp_path: Path) -> None:
    diagnosis = examine(Examination(settings(tmp_path), None))
    failed = {line.check: line.found for line in diagnosis.lines if line.status == "failed"}
    assert failed.keys() == {"process", "next_hop", "quarantine", "database"}
    assert failed["database"] == f"{tmp_path}/spamfilter.db: no such file"
    assert {"schema", "integrity", "canary", "smtp"} <= diagnosis.not_tried.keys()
    assert list(tmp_path.iterdir()) == []
    diagnosis = examine(Examination(settings(tmp_path / "none"), None))
    (database,) = (line for line in diagnosis.lines if line.check == "database")
    assert database.found == f"{tmp_path}/none: no such folder"
    assert database.advice.startswith("create it, for ")


def test_a_check_that_breaks_is_a_failed_line_and_hides_no_other(tmp_path: Path) -> None:
    (tmp_path / "spamfilter.db").write_bytes(b"no database " * 1000)
    diagnosis = examine(Examination(settings(tmp_path), None))
    (line,) = (line for line in diagnosis.lines if line.check == "database")
    assert line.status == "failed"
    assert "cannot be opened" in line.found
    assert "file is not a database" in line.found
    assert {line.check for line in diagnosis.lines} >= {"disk", "dovecot"}


def test_a_database_on_a_full_disk_is_not_to_be_replaced_before_there_is_room(tmp_path: Path) -> None:
    chosen = settings(tmp_path)
    open_store(chosen.store_url()).close()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))  # as on a full disk, no file grows
    try:
        (line,) = database(Examination(chosen, None))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert (line.status, "make room on its disk" in line.found) == ("failed", True)
    assert line.advice.startswith("mend that first, and leave the file where it is")


@pytest.mark.parametrize(
    ("said", "advice"),
    [
        ("Connection refused", "start or restart the server"),
        ("FATAL:  sorry, too many clients already", "raise the"),
        ('FATAL:  password authentication failed for user "spamfilter"', "docs/postgresql.md says what it needs"),
    ],
)
def test_a_server_that_is_down_is_to_be_started_and_a_full_one_to_take_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, advice: str
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise psycopg.OperationalError(f'connection to server at "10.0.0.1", port 5432 failed: {said}')

    monkeypatch.setattr(postgresql._Patient, "connect", fails)
    store = {"url": "postgresql+psycopg://spamfilter@10.0.0.1/made"}
    (found,) = look(database, Examination(settings(tmp_path, store=store), None))
    reason = said.removeprefix("FATAL:  ")
    assert (found.status, reason in found.found, found.advice[: len(advice)]) == ("failed", True, advice)


def test_where_a_server_has_the_database_the_owner_of_the_state_is_the_user_of_the_relay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_root("the folder of the state belongs to another user")
    store = {"url": "postgresql+psycopg://spamfilter@127.0.0.1:1/made"}
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path))
    shutil.chown(tmp_path, "mail")
    for folder in ("", "tmp", "new", "cur"):  # as a command of root in a folder of root makes them
        (tmp_path / "quarantine" / folder).mkdir(mode=0o700)
    (found,) = look(quarantine, Examination(settings(tmp_path, store=store), None))
    assert (found.status, "mail may not write there" in found.found) == ("failed", True)


@pytest.mark.parametrize(
    ("error", "status", "found", "advice"),
    [
        (MemoryError(), "failed", "cannot be checked: MemoryError", "see the other checks"),
        (StoreBusy("locked"), "warning", "locked", "try again when the other command has ended"),
        (StoreRefused("wrong password"), "failed", "wrong password", "docs/postgresql.md says what it needs"),
    ],
)
def test_a_check_that_breaks_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, status: str, found: str, advice: str
) -> None:
    def breaks(examined: Examination) -> Iterator[Finding]:
        raise error

    monkeypatch.setitem(CHECKS, "disk", breaks)
    (line,) = (line for line in examine(Examination(settings(tmp_path), None)).lines if line.check == "disk")
    assert (line.status, line.found, line.advice) == (status, found, advice)


def test_a_file_that_is_no_database_is_called_so_and_not_only_readable_by_all(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "spamfilter.db").write_bytes(b"no database " * 1000)
    (tmp_path / "spamfilter.db").chmod(0o644)
    (found,) = look(database, Examination(settings(tmp_path), None))
    assert (found.status, "file is not a database" in found.found) == ("failed", True)


def test_a_database_that_cannot_be_read_is_closed(tmp_path: Path) -> None:
    (tmp_path / "spamfilter.db").write_bytes(b"no database " * 1000)
    gc.disable()  # which would close it, too
    try:
        before = os.listdir("/proc/self/fd")
        assert isinstance(Examination(settings(tmp_path), None).database, StoreError)
        assert os.listdir("/proc/self/fd") == before
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("ham", "spam", "status"),
    [
        (0, 0, "warning"),
        (3, 0, "warning"),
        (0, 3, "warning"),
        (10, 20, "ok"),
        (8, 20, "warning"),
        (20, 1, "ok"),
        (21, 1, "warning"),
    ],
)
def test_classes_must_both_be_known_and_about_equally(tmp_path: Path, ham: int, spam: int, status: str) -> None:
    ours = settings(tmp_path)
    store = open_store(ours.store_url())
    with Filter(store, ours.voices()).training() as training:
        for number in range(ham):
            training.learn(reading(f"h{number}", "lunch"), "ham", "cli")
        for number in range(spam):
            training.learn(reading(f"s{number}", "pills"), "spam", "cli")
    store.close()
    (finding,) = look(classes, Examination(ours, None))
    assert finding.status == status


@pytest.mark.parametrize(
    ("answers", "status", "said"),
    [
        pytest.param([(5, False)], "ok", "up to its last entry, 5", id="there"),
        pytest.param([(1, True), (3, True), (5, False)], "ok", "up to its last entry, 5", id="soon-there"),
        pytest.param([(0, True)] * 3 + [(5, False)], "ok", "up to its last entry, 5", id="loading"),
        pytest.param([(1, False)], "failed", "is at entry 1 of the ledger's 5", id="it-does-not-move"),
        pytest.param([(0, True)], "warning", "catching up: it is at entry 0 of the ledger's 5", id="for-long"),
    ],
)
def test_a_relay_that_catches_up_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers: list[tuple[int, bool]], status: str, said: str
) -> None:
    """answers: what the relay says at one question after the other, the last of them for ever."""
    monkeypatch.setattr(learning_checks, "FOLLOWS_WITHIN", 0.3 if status == "failed" else 600.0)
    monkeypatch.setattr(learning_checks, "CATCHES_UP_WITHIN", 0.3 if status == "warning" else 600.0)
    ours = settings(tmp_path)
    store = open_store(ours.store_url())
    with Filter(store, ours.voices()).training() as training:
        for number in range(5):
            training.learn(reading(f"m{number}", "lunch"), "ham", "cli")
    told = [{"database": store.where, "last": last, "catching_up": more, "following": True} for last, more in answers]
    store.close()
    monkeypatch.setattr(Examination, "ask_status", lambda examined: told.pop(0) if told[1:] else told[0])
    (finding,) = look(following, Examination(ours, None))
    assert (finding.status, said in finding.found) == (status, True), finding.found


NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("judged", "learnt", "said"),
    [
        pytest.param([0], [-2, -1, 0], None, id="in-order"),
        pytest.param([0], [-2, -2.05, 0], None, id="a-correction"),
        pytest.param(
            [24], [-2, -1], "entries in the future: 1, up to 2026-05-02 12:00+00:00, of mx2.test", id="journal-ahead"
        ),
        pytest.param([0], [-2, 24], "entries in the future: 1, up to", id="ledger-ahead"),
        pytest.param([0], [-1, -72, -3], "went back by 3 days on 2026-04-28 12:00", id="leap"),
    ],
)
def test_time_must_go_on(tmp_path: Path, judged: list[float], learnt: list[float], said: str | None) -> None:
    """judged, learnt: hours from now, in the order of writing."""
    ours = settings(tmp_path)
    store = open_store(ours.store_url())
    store.write_journal([journal_entry(at=NOW + timedelta(hours=hours), host="mx2.test") for hours in judged])
    with Filter(store, ours.voices()).training() as training:
        for number, hours in enumerate(learnt):
            training.learn(reading(f"m{number}", "lunch"), "ham", "cli", at=NOW + timedelta(hours=hours))
    store.close()
    (finding,) = look(clock, Examination(ours, None, now=NOW))
    assert finding.status == ("warning" if said else "ok")
    assert (said or "no entry is in the future") in finding.found


def test_a_training_that_a_forgotten_mark_had_replaced_is_no_leap(tmp_path: Path) -> None:
    ours = settings(tmp_path)
    now, hour = datetime.now(UTC), timedelta(hours=1)
    with closing(open_store(ours.store_url())) as store:
        filter = Filter(store, ours.voices())
        one = Subject("one", "", reading("one", "lunch"))
        with filter.training() as training:
            training.learn(one.reading, "spam", BULK, at=now - 3 * hour)
            training.learn(reading("two", "pills"), "spam", "cli", at=now - 2 * hour)
        for label in ("ham", None):
            mark(filter, one, label, Author("ann", "cli"), Feedback())
        assert [entry.at for entry in store.learnings()] == [now - 2 * hour, now - 3 * hour]
    (finding,) = look(clock, Examination(ours, None, now=now))
    assert (finding.status, finding.found[-25:]) == ("ok", "no entry is in the future")


@pytest.mark.parametrize(
    ("made", "heard", "statuses"),
    [
        pytest.param(SILENT / 2, None, ["ok"], id="too-young-to-tell"),
        pytest.param(2 * SILENT, None, ["warning"], id="never-heard-of"),
        pytest.param(2 * SILENT, 1.5 * SILENT, ["warning"], id="silent"),
        pytest.param(2 * SILENT, SILENT / 2, ["ok"], id="heard-of"),
    ],
)
def test_a_path_that_is_set_up_must_be_heard_of(
    tmp_path: Path, made: timedelta, heard: timedelta | None, statuses: list[str]
) -> None:
    ours = settings(tmp_path, feedback={"spam_addresses": ["spam@example.org"]})
    store = open_store(ours.store_url())
    with Filter(store, ours.voices()).training() as training:
        training.learn(reading("first", "lunch"), "ham", "cli", at=NOW - made)
        if heard is not None:
            training.learn(reading("second", "pills"), "spam", "address", at=NOW - heard)
    store.close()
    empty = tmp_path / "dovecot"
    findings = look(feedback, Examination(ours, None, now=NOW, dovecot=empty))
    assert [finding.status for finding in findings] == statuses
    assert ("[feedback] spam_addresses" in findings[0].found) == (statuses == ["warning"])


def test_the_time_of_a_ledger_is_asked_without_its_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = settings(tmp_path, feedback={"spam_addresses": ["spam@example.org"]})
    with closing(open_store(ours.store_url())) as store:
        Filter(store, ours.voices()).learn(reading("first", "lunch"), "ham", "cli")
    read: list[object] = []
    monkeypatch.setattr(Packed, "__init__", lambda self, packed: read.append(packed))
    (finding,) = look(feedback, Examination(ours, None, dovecot=tmp_path))
    assert finding.found.startswith("cli ")
    assert read == []


@pytest.mark.parametrize(
    ("waiting", "dropped", "statuses"),
    [
        (0, 0, ["ok"]), (99, 0, ["ok"]), (100, 0, ["warning"]), (1000, 0, ["failed"]), (0, 5, ["warning"]),
        (1000, 5, ["failed", "warning"]),
    ],
)  # fmt: skip
def test_a_journal_that_waits_or_was_dropped_is_said(waiting: int, dropped: int, statuses: list[str]) -> None:
    assert [finding.status for finding in journal_backlog(waiting, dropped, 1000)] == statuses


def test_a_journal_that_cannot_be_written_is_said_before_much_waits() -> None:
    (finding,) = journal_backlog(1, 0, 1000, failing=True, error="store.db: database or disk is full")
    found = "1 entries wait to be written, of at most 1000; the last try failed: store.db: database or disk is full"
    assert (finding.status, finding.found) == ("failed", found)


@pytest.mark.parametrize(
    ("hits", "status", "said"),
    [
        ({}, "ok", "none was hit"),
        ({"errors": 1, "connections_per_client": 7}, "ok", "connections_per_client 7 times, errors 1 time"),
        ({"errors": 1, "memory_megabytes": 2}, "warning", "errors 1 time, memory_megabytes 2 times"),
    ],
)
def test_a_limit_of_the_whole_relay_that_was_hit_is_a_warning(hits: dict[str, int], status: str, said: str) -> None:
    finding = limit_hits(hits)
    assert (finding.status, said in finding.found) == (status, True)
    assert ("memory_megabytes" in finding.advice) == (status == "warning")


@pytest.mark.parametrize(
    ("free", "size", "status"),
    [
        (0.11 * GB, GB, "ok"), (0.09 * GB, GB, "warning"), (0.02 * GB, GB, "failed"),
        # A tenth of a great disk is room enough, and so are some gigabytes of it.
        (6 * GB, 1000 * GB, "ok"), (4 * GB, 1000 * GB, "warning"), (0.9 * GB, 1000 * GB, "failed"),
        (0, 0, "ok"),  # some file systems in memory or on the network have no size
    ],
)  # fmt: skip
def test_room_is_a_share_of_the_disk_or_enough(free: float, size: int, status: str) -> None:
    assert free_space("/var", int(free), size).status == status


@pytest.mark.parametrize(("held_by", "status"), [(1, "ok"), (5, "warning"), (8, "failed")])
def test_memory_is_a_share_of_the_hosts(held_by: int, status: str) -> None:
    assert memory_use(held_by * GB, 10 * GB).status == status


def test_the_kernel_is_asked_in_the_place_of_a_user() -> None:
    require_root("to be another user")
    with workshop() as folder:
        file = folder / "inner" / "file"
        file.parent.mkdir(mode=0o755)
        file.write_text("x")
        file.chmod(0o640)
        shutil.chown(file, "mail", "mail")
        mail_user, before = user_named("mail"), (os.getresuid(), os.getresgid(), os.getgroups())
        assert mail_user is not None
        assert (may(mail_user, file, os.R_OK | os.W_OK), may(ANYBODY, file, os.R_OK)) == (True, False)
        file.chmod(0o444)
        assert (may(mail_user, file, os.W_OK), may(ANYBODY, file, os.R_OK)) == (False, True)
        assert may(user_of(0), file, os.W_OK)
        file.parent.chmod(0o700)
        assert not may(mail_user, file, os.R_OK)
        assert (os.getresuid(), os.getresgid(), os.getgroups()) == before
    assert user_named("no such user") is None


@pytest.mark.parametrize("mode", [0o000, 0o400, 0o600, 0o040, 0o070, 0o604, 0o646, 0o755, 0o077])
@pytest.mark.parametrize("folder_mode", [0o700, 0o710, 0o711])
def test_the_modes_say_what_the_kernel_says(mode: int, folder_mode: int) -> None:
    require_root("to be another user")
    owner, other = user_named("mail"), user_named("games")
    assert owner
    assert other
    with workshop() as folder:
        file = folder / "inner" / "file"
        file.parent.mkdir()
        file.write_text("x")
        for place, bits in ((file, mode), (file.parent, folder_mode)):
            shutil.chown(place, "mail", "games")
            place.chmod(bits)
        for user in (owner, other, ANYBODY):
            for want in (os.R_OK, os.W_OK, os.X_OK, os.R_OK | os.W_OK):
                assert by_mode(user, file, want) == may(user, file, want), (user, want)


def test_a_user_without_a_name_has_a_number() -> None:
    assert user_of(123_456).name == "uid 123456"


def unlinked(scripts: Path) -> None:
    (scripts / "learn-spam.sieve").unlink()


def no_program(scripts: Path) -> None:
    (scripts / "spamfilter-mark").unlink()


def not_executable(scripts: Path) -> None:
    (scripts / "spamfilter-mark").chmod(0o644)


def unreadable(scripts: Path) -> None:
    (scripts / "learn-ham.sieve").chmod(0o600)


def open_to_all(scripts: Path) -> None:
    (scripts / "spamfilter-mark").chmod(0o777)


def folder_open_to_all(scripts: Path) -> None:
    scripts.chmod(0o1777)


def other_socket(scripts: Path) -> None:
    program = scripts / "spamfilter-mark"
    program.write_text(program.read_text().replace("feedback.sock", "another.sock"))


def no_spamfilter(scripts: Path) -> None:
    (scripts.parent.parent / "spamfilter").unlink()


def old_binary(scripts: Path) -> None:
    for name, at in (("learn-ham.svbin", 1_000_000), ("learn-ham.sieve", 2_000_000)):
        (scripts / name).touch()
        os.utime(scripts / name, (at, at))


def no_binary(scripts: Path) -> None:
    (scripts / "file-spam.svbin").unlink()


def no_folder_of_programs(scripts: Path) -> None:
    fragment = scripts.parent / "conf.d" / "90-spamfilter.conf"
    fragment.write_text(fragment.read_text().replace("sieve_pipe_bin_dir", "#"))


def no_fragment(scripts: Path) -> None:
    (scripts.parent / "conf.d" / "90-spamfilter.conf").unlink()


DOVECOT: list[tuple[Callable[[Path], None], str, str]] = [
    (unlinked, "failed", "learn-spam.sieve: no such file"),
    (no_program, "failed", "spamfilter-mark: no such file"),
    (not_executable, "failed", "spamfilter-mark: every user may not run it"),
    (unreadable, "failed", "learn-ham.sieve: every user may not read it"),
    (open_to_all, "failed", "spamfilter-mark: users other than its owner may change it"),
    (folder_open_to_all, "failed", "dovecot/spamfilter: users other than its owner may change it"),
    (other_socket, "failed", "another.sock, the relay listens on"),
    (no_spamfilter, "failed", "may not run"),
    (old_binary, "warning", "learn-ham.svbin: is older than its source"),
    (no_binary, "warning", "file-spam.svbin: no such file, so each use compiles file-spam.sieve"),
    (no_folder_of_programs, "failed", "sets no sieve_pipe_bin_dir"),
    (no_fragment, "failed", "90-spamfilter.conf: no such file"),
]


@pytest.mark.parametrize(("plant", "status", "said"), DOVECOT, ids=[plant.__name__ for plant, _, _ in DOVECOT])
def test_what_is_wrong_with_dovecots_scripts_is_found(plant: Callable[[Path], None], status: str, said: str) -> None:
    require_root("to see the scripts as those who own the mail do")
    with workshop() as folder:
        place = connected(folder, folder / "feedback.sock")
        examined = Examination(settings(folder), None, dovecot=place)
        assert [finding.status for finding in look(dovecot, examined)] == ["ok"]
        plant(place / "spamfilter")
        findings = look(dovecot, examined)
        assert {finding.status for finding in findings} == {status}
        assert said in findings[0].found
        assert all(finding.advice for finding in findings)


def test_scripts_that_only_the_users_of_mail_may_read_are_not_tried() -> None:
    require_root("to be another user")
    with workshop() as folder:
        folder.chmod(0o755)
        place = connected(folder, folder / "feedback.sock")
        for script in (place / "spamfilter").glob("*.sieve"):
            script.chmod(0o600)
            shutil.chown(script, "mail")
        feedback = {"socket": f"{folder}/feedback.sock", "proxies": ["mail"]}
        examined = Examination(settings(folder, feedback=feedback), None, dovecot=place)
        assert [finding.status for finding in look(dovecot, examined)] == ["ok"]
        os.seteuid(ANYBODY.uid)
        try:
            with pytest.raises(NotTried, match=r"\.sieve: Permission denied"):
                look(dovecot, examined)
        finally:
            os.seteuid(0)


@pytest.mark.parametrize(
    "line", ["mail_uid = mail", "mail_uid = 8", "userdb {\n driver = static\n args = uid=mail gid=mail home=/srv/%u\n}"]
)
def test_who_moves_the_mail_of_all_users_must_be_allowed_to_mark_for_them(line: str) -> None:
    said = subprocess.run(
        [require("dovecot", PACKAGES), "--version"], capture_output=True, text=True, check=True
    ).stdout
    if not said.startswith("2.3"):
        missing("lines of Dovecot 2.3, which is not installed")
    with workshop() as folder:
        place = connected(folder, folder / "feedback.sock")
        (place / "dovecot.conf").write_text(f"{line}\n!include conf.d/*.conf\n")
        for proxies, status in ((["mail"], "ok"), ([], "warning")):
            asked = settings(folder, feedback={"socket": f"{folder}/feedback.sock", "proxies": proxies})
            findings = look(dovecot, Examination(asked, None, dovecot=place))
            assert [finding.status for finding in findings] == [status]
            assert status == "ok" or "belongs to mail, who may not mark for others" in findings[0].found
            assert status == "ok" or '[feedback] proxies = ["mail"]' in findings[0].advice


@pytest.mark.parametrize(
    ("lines", "names"),
    [
        ("  uid = vmail", ["vmail"]),
        (
            "  args = uid=vmail gid=mail\n  default_fields = uid=vmail\n  override_fields = home=/x uid=mail",
            ["vmail", "mail"],
        ),
        ("  args = /etc/dovecot/dovecot-ldap.conf.ext\n  ldap_base = uid=dovecot,ou=daemons,dc=example,dc=org", []),
        ("  ldap_filter = (uid=%{user})\n  query = SELECT home FROM users WHERE uid = 12\n  uid = %{ldap:uid}", []),
        ("mail_uid = \nmail_location = maildir:~/Mail", []),
    ],
)
def test_whom_all_mail_belongs_to_is_read_only_where_dovecot_says_it(lines: str, names: list[str]) -> None:
    found = dovecot_scripts._MAIL_USER.findall(f"a = b\n{lines}\nc = d\n")
    assert list(dict.fromkeys(setting or field for setting, field in found)) == names


def test_settings_for_another_version_of_dovecot_are_found() -> None:
    config = {"2.3": "", "2.4": "dovecot_config_version = 2.4.0\ndovecot_storage_version = 2.4.0\n"}
    command = [require("dovecot", PACKAGES), "--version"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    with workshop() as folder:
        for version in config:
            place = connected(folder / version, folder / "feedback.sock", version)
            (place / "dovecot.conf").write_text(config[said[:3]] + "!include conf.d/*.conf\n")
            findings = look(dovecot, Examination(settings(folder), None, dovecot=place))
            assert [finding.status for finding in findings] == ["ok" if said.startswith(version) else "failed"]


async def test_only_the_probe_is_taught_and_removed(tmp_path: Path) -> None:
    async with Hop() as hop, relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}") as running:
        canaries = Canaries(running.relay, running.store)
        client = await running.connect()
        address = (await canaries.issue({}))["address"]
        name = address.encode()
        # A mail to another recipient with the probe's Message-ID.
        await client.send(mail(name="other").replace(b"<other@example.org>", b"<%s>" % name))
        with pytest.raises(InputError, match="the probe is not in the journal"):
            await canaries.mark({"address": address, "label": "spam"})
        await client.send(mail(name="p").replace(b"<p@example.org>", b"<%s>" % name), address, address)
        assert len(running.entries()) == 2
        marked = await canaries.mark({"address": address, "label": "spam"})
        assert marked["log_odds"] > 0
        assert [entry.source for entry in running.store.learnings()] == ["canary"]
        assert (await canaries.end({"address": address})) == {"removed": True}
        assert [entry.recipients for entry in running.entries()] == [["b@example.test"]]
        assert running.store.learnings() == []
        assert running.relay.canaries == set()
        assert len(hop.messages) == 1
        with pytest.raises(InputError, match="was not issued"):
            await canaries.mark({"address": address, "label": "spam"})


async def probed(running: Running, canaries: Canaries, label: str | None) -> str:
    """The address of a probe that is in the journal and, with a label, learnt."""
    address: str = (await canaries.issue({}))["address"]
    name = address.encode()
    client = await running.connect()
    await client.send(mail(name="p").replace(b"<p@example.org>", b"<%s>" % name), address, address)
    assert len(running.entries()) == 1
    if label is not None:
        await canaries.mark({"address": address, "label": label})
        assert len(running.store.learnings()) == 1
    return address


async def gone(running: Running) -> None:
    """Wait until neither journal nor counts have anything of a probe."""
    for _ in range(1000):
        if not running.entries() and not running.store.learnings():
            break
        await asyncio.sleep(0.02)
    assert running.entries() == []
    assert running.store.learnings() == []
    assert running.relay.judge.filter.rebuilt(10**9).learnt == {"ham": 0, "spam": 0}


async def test_addresses_are_few(tmp_path: Path) -> None:
    async with Hop() as hop, relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}") as running:
        canaries = Canaries(running.relay, running.store)
        addresses = [(await canaries.issue({}))["address"] for _ in range(MOST_PROBES)]
        assert running.relay.canaries == set(addresses)
        with pytest.raises(Refused):
            await canaries.issue({})
        assert (await canaries.end({"address": addresses[0]})) == {"removed": True}
        assert running.relay.canaries == set(addresses[1:])
        await canaries.issue({})
        await canaries.close()
        assert running.relay.canaries == set()
        with pytest.raises(StoreBusy):
            await canaries.issue({})


@pytest.mark.parametrize("label", [None, "spam"])
async def test_what_a_killed_doctor_leaves_is_removed_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, label: str | None
) -> None:
    async with Hop() as hop, relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}") as running:
        canaries = Canaries(running.relay, running.store)
        monkeypatch.setattr("spamfilter.relay.canary.KEPT_SECONDS", 2.0)
        unused = (await canaries.issue({}))["address"]
        used = await probed(running, canaries, label)
        await gone(running)
        assert running.relay.canaries == set()
        for address in (unused, used):
            with pytest.raises(InputError, match="was not issued"):
                await canaries.end({"address": address})
        await canaries.close()


@pytest.mark.parametrize("label", [None, "ham"])
async def test_what_a_doctor_has_left_is_removed_when_the_relay_stops(tmp_path: Path, label: str | None) -> None:
    async with Hop() as hop, relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}") as running:
        canaries = Canaries(running.relay, running.store)
        await probed(running, canaries, label)
        await canaries.close()
        assert running.entries() == []
        assert running.store.learnings() == []


@pytest.mark.parametrize("label", [None, "spam"])
async def test_what_a_killed_relay_has_left_is_removed_at_the_next_start(tmp_path: Path, label: str | None) -> None:
    async with Hop() as hop, relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}") as running:
        await probed(running, Canaries(running.relay, running.store), label)
        client = await running.connect()
        await client.send(mail(name="other"))
        again = Canaries(running.relay, running.store)
        again.start()
        await again.close()
        assert [entry.recipients for entry in running.entries()] == [["b@example.test"]]
        assert running.store.learnings() == []


async def test_the_start_of_one_host_leaves_the_probe_that_runs_on_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Hop() as hop, relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}") as running:
        await probed(running, Canaries(running.relay, running.store), "spam")
        running.relay.hostname = "another.example.org"
        for kept, left in ((300.0, 1), (0.0, 0)):
            monkeypatch.setattr("spamfilter.relay.canary.KEPT_SECONDS", kept)
            starting = Canaries(running.relay, running.store)
            starting.start()
            await starting.close()
            assert (len(running.entries()), len(running.store.learnings())) == (left, left)


async def test_an_address_that_a_killed_process_has_left_is_withdrawn_at_the_next_start(tmp_path: Path) -> None:
    async with Hop() as hop, relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}") as running:
        await Canaries(running.relay, running.store).issue({})
        again = Canaries(running.relay, running.store)
        again.start()
        assert running.relay.canaries == set()
        await again.close()


async def test_a_probe_whose_tokens_are_gone_is_removed(tmp_path: Path) -> None:
    async with Hop() as hop, relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}") as running:
        canaries = Canaries(running.relay, running.store)
        address = await probed(running, canaries, None)
        running.store.expire(datetime.now(UTC) + timedelta(days=1), datetime.now(UTC) - timedelta(days=1))
        assert (await canaries.end({"address": address})) == {"removed": True}
        assert running.entries() == []


async def test_a_probe_that_cannot_be_removed_is_not_said_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Hop() as hop, relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}") as running:
        canaries = Canaries(running.relay, running.store)
        address = await probed(running, canaries, "spam")
        running.store.remove_journal(running.entries()[0].id)
        monkeypatch.setattr("spamfilter.relay.canary.KEPT_SECONDS", 0.1)
        assert (await canaries.end({"address": address})) == {"removed": False}
        again = Canaries(running.relay, running.store)
        again.start()
        await again.close()
        await gone(running)


class _Contended:
    """A relay whose ledger gets an entry of another user before the probe is forgotten, and which follows step by
    step."""

    def __init__(self) -> None:
        self.ledger = [0.0]
        self.last = 1

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        if request["command"] == "canary_mark":
            if request["label"]:
                self.ledger.append(1.0)
            else:
                self.ledger += [0.5, -1.0]
            return {"log_odds": sum(self.ledger)}
        answer = {"log_odds": sum(self.ledger[: self.last]), "posterior": 0.5, "last": self.last}
        self.last = min(self.last + 1, len(self.ledger))
        return answer


def test_a_mark_of_another_user_amid_the_probe_is_no_failure(tmp_path: Path) -> None:
    contended = _Contended()
    probe = _Probe(cast(SocketClient, contended), settings(tmp_path), "a@b", lambda: len(contended.ledger))
    assert probe._taught_and_untaught("01") is None


def test_doctors_at_the_same_time_go_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    tries = iter([None, None, None, Finding("ok", "")])
    monkeypatch.setattr(time, "sleep", pauses.append)
    monkeypatch.setattr(_Probe, "_send", lambda *_: "01")
    monkeypatch.setattr(_Probe, "_judged", lambda *_: {})
    monkeypatch.setattr(_Probe, "_taught_and_untaught", lambda *_: next(tries))
    probe = _Probe(cast(SocketClient, _Contended()), settings(tmp_path), "a@b", lambda: 1)
    assert probe.run("127.0.0.1:1").status == "ok"
    assert pauses[0] == 0 < pauses[1]
    assert len(set(pauses)) == len(pauses) == 4
