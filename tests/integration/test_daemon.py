"""The relay as a process: feedback seen within a second, signals, a database in trouble."""

import contextlib
import json
import re
import signal
import smtplib
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from spamfilter.config.settings import load
from spamfilter.system.ids import new_id
from tests.faults.daemon import Daemon
from tests.faults.hop import next_hop
from tests.integration.servers import Relay, relay, seconds_until, sink, wait_until

SPAM = "From: shop@example.org\r\nSubject: cheap pills\r\n\r\nbuy cheap pills now, limited offer {}\r\n"
ATTEMPTS = 2
"""How often it is tried what the relay promises: a busy machine may be too slow once."""
_SCORE = re.compile(rb"X-Spam-Status: \S+ score=([0-9.]+)")


def send(port: int, mail: str) -> None:
    with smtplib.SMTP("127.0.0.1", port, "client.example", timeout=30) as client:
        client.sendmail("a@example.org", ["b@example.test"], mail.encode())


def delivered(server: Relay) -> list[bytes]:
    """The mails in the built-in Maildir, oldest first."""
    folder = server.state / "mail" / "new"
    return [file.read_bytes() for file in sorted(folder.iterdir(), key=lambda file: file.stat().st_mtime_ns)]


def score(mail: bytes) -> float:
    match = _SCORE.search(mail)
    assert match
    return float(match.group(1))


def learnt_anew(server: Relay) -> str:
    """Send one more mail; what its header says of the counts that it was judged by."""
    send(server.port, SPAM.format(0))
    match = re.search(rb" learnt=(\S+)", delivered(server)[-1])
    assert match
    return match.group(1).decode()


def id_of(mail: bytes) -> str:
    match = re.search(rb"X-Spamfilter-Id: (\S+)", mail)
    assert match
    return match.group(1).decode()


def test_a_mark_by_id_in_another_process_is_seen_within_a_second(tmp_path: Path) -> None:
    with relay(tmp_path / "relay") as server:
        send(server.port, SPAM.format(1))
        first = delivered(server)[0]

        def until_seen(command: str, learnt: str) -> float:
            done = server.command(command, id_of(first))
            assert done.returncode == 0, done.stderr
            return seconds_until(lambda: learnt_anew(server) == learnt, f"learnt={learnt}")

        def marked_and_forgotten() -> float:
            marked = until_seen("mark-spam", "0/1")
            assert score(delivered(server)[-1]) > score(first) + 0.05
            forgotten = until_seen("forget", "0/0")
            assert score(delivered(server)[-1]) == score(first)
            return max(marked, forgotten)

        assert any(marked_and_forgotten() < 1 for _ in range(ATTEMPTS))


def test_training_in_bulk_reaches_a_running_relay(tmp_path: Path) -> None:
    for label, words in (("spam", "cheap pills"), ("ham", "lunch at noon")):
        (tmp_path / label).mkdir()
        for number in range(20):
            (tmp_path / label / f"{number}.eml").write_text(f"Subject: {words} {number}\n\n{words}, {number}\n")
    with relay(tmp_path / "relay") as server:
        done = server.command("train", "--spam", str(tmp_path / "spam"), "--ham", str(tmp_path / "ham"))
        assert "learnt 20 ham and 20 spam" in done.stdout, done.stderr
        wait_until(lambda: learnt_anew(server) == "20/20", "the training")
        assert b"X-Spam-Flag: YES" in delivered(server)[-1]


def test_sighup_changes_thresholds_without_dropping_a_connection(tmp_path: Path) -> None:
    with relay(tmp_path / "relay") as server, smtplib.SMTP("127.0.0.1", server.port, "c", timeout=30) as client:
        marked = server.command("mark-ham", input="Subject: lunch\n\nat noon\n")
        assert marked.returncode == 0, marked.stderr
        wait_until(lambda: learnt_anew(server) == "1/0", "the mark")
        before = len(delivered(server))
        client.sendmail("a@x.example", ["b@y.example"], SPAM.format(1).encode())
        # Nothing of this mail is known, which leaves much in doubt.
        server.config.write_text(server.config.read_text() + "\n[verdict]\nunsure = 1e-5\nspam = 2e-5\n")
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "reloaded" in server.log(), "the reload")
        client.sendmail("a@x.example", ["b@y.example"], SPAM.format(2).encode())
        assert [b"X-Spam-Flag: YES" in mail for mail in delivered(server)[before:]] == [False, True]
        # A file that is wrong changes nothing, and says why.
        server.config.write_text("[verdict]\nspma = 0.4\n")
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "unknown key verdict.spma" in server.log(), "the complaint")
        client.sendmail("a@x.example", ["b@y.example"], SPAM.format(3).encode())
        assert b"X-Spam-Flag: YES" in delivered(server)[-1]


def test_the_prefix_of_tagged_mail_is_not_learnt_by_a_mark(tmp_path: Path) -> None:
    """Of a mail that the journal does not know any more; a reload changes the prefix."""
    with relay(tmp_path / "relay", verdict={"subject_prefix": "[JUNK]"}) as server:
        for number, prefix in enumerate(("[JUNK]", "[MUCK]")):
            tagged = f"X-Spamfilter-Id: {new_id()}\nSubject: {prefix} pills {number}\n\nbuy pills {number}\n"
            assert server.command("mark-spam", input=tagged).returncode == 0
            server.config.write_text(server.config.read_text().replace("[JUNK]", "[MUCK]"))
            server.process.send_signal(signal.SIGHUP)
            wait_until(lambda: "reloaded" in server.log(), "the reload")
        known = [
            json.loads(line) for line in server.command("word", "--json", "pills", "junk", "muck").stdout.splitlines()
        ]
        assert [bool(word["evidence"]) for word in known] == [True, False, False]


@pytest.mark.parametrize("workers", [1, 2])
def test_sighup_amid_a_start_is_obeyed_after_it(tmp_path: Path, workers: int) -> None:
    """And does not end it: systemd would take that for a clean end."""
    with next_hop() as hop:
        server = Daemon(tmp_path, f"smtp://127.0.0.1:{hop.port}", relay={"workers": workers})
        server.launch()
        status = Path(f"/proc/{server.process.pid}/status")
        blocked = re.compile(r"^SigBlk:\t[0-9a-f]*[13579bdf]$", re.MULTILINE)  # SIGHUP is the lowest bit
        wait_until(lambda: blocked.search(status.read_text()) is not None, "the start")
        server.process.send_signal(signal.SIGHUP)
        said = re.compile(r"ready: send mail to.* reloaded", re.DOTALL)
        wait_until(lambda: said.search(server.log()) is not None, "the relay")
        server.stop()


def test_sighup_takes_over_lists_and_names_what_waits_for_a_restart(tmp_path: Path) -> None:
    settings = {"trusted": ["192.0.2.0/24"], "domains": ["old.example"]}
    with relay(tmp_path / "relay", relay=settings) as server, smtplib.SMTP("127.0.0.1", server.port, "c") as client:
        client.ehlo()
        assert not client.has_extn("xforward")
        client.mail("a@x.example")
        assert (client.rcpt("b@old.example")[0], client.rcpt("b@new.example")[0]) == (250, 554)
        text = server.config.read_text()
        changed = '[limits]\nfinal_seconds = 70\n[[recipients]]\nto = ["c@x.example"]\non_spam = "pass"\n'
        server.config.write_text(f"{text.replace('old.example', 'new.example')}\n{changed}")
        doctor = server.command("doctor", "--no-canary").stdout
        assert "limits.final_seconds, relay.domains, recipients" in doctor
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "reloaded" in server.log(), "the reload")
        assert "what changed in limits.final_seconds waits for a restart" in server.log()
        assert (client.rcpt("b@old.example")[0], client.rcpt("b@new.example")[0]) == (554, 250)
        server.config.write_text(server.config.read_text().replace("192.0.2.0/24", "127.0.0.0/8"))
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: server.log().count("reloaded") == 2, "the second reload")
        client.ehlo()
        assert client.has_extn("xforward")


def test_sigterm_lets_a_running_transaction_finish_and_turns_new_ones_away(tmp_path: Path) -> None:
    with relay(tmp_path / "relay") as server:
        busy, idle = (smtplib.SMTP("127.0.0.1", server.port, "c", timeout=30) for _ in range(2))
        with busy, contextlib.suppress(smtplib.SMTPServerDisconnected), idle:
            idle.ehlo()
            busy.ehlo()
            busy.mail("a@x.example")
            busy.rcpt("b@y.example")
            busy.docmd("DATA")
            server.process.terminate()
            assert idle.getreply()[0] == 421
            with pytest.raises(ConnectionRefusedError):
                smtplib.SMTP("127.0.0.1", server.port, timeout=10)
            busy.send(SPAM.format(1).encode() + b".\r\n")
            assert busy.getreply()[0] == 250
            assert busy.getreply()[0] == 421
        assert server.process.wait(30) == 0
        assert len(delivered(server)) == 1
        with sqlite3.connect(server.state / "spamfilter.db") as database:
            assert database.execute("SELECT count(*) FROM journal").fetchone() == (1,)
        database.close()


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    database = sqlite3.connect(path, isolation_level=None)
    try:
        database.execute("BEGIN EXCLUSIVE")
        yield
        database.execute("ROLLBACK")
    finally:
        database.close()


def test_a_locked_database_delays_no_mail_and_loses_no_journal(tmp_path: Path) -> None:
    with relay(tmp_path / "relay") as server:
        send(server.port, SPAM.format(0))
        with locked(server.state / "spamfilter.db"):
            for number in range(5):
                send(server.port, SPAM.format(number + 1))
            assert len(delivered(server)) == 6
        ids = {id_of(mail) for mail in delivered(server)}

        def journalled() -> set[str]:
            with contextlib.closing(sqlite3.connect(server.state / "spamfilter.db")) as database:
                return {row[0] for row in database.execute("SELECT id FROM journal")}

        wait_until(lambda: journalled() == ids, "the journal of what passed meanwhile")


@pytest.mark.parametrize("damage", ["garbage", "gone", "full of zeros"])
def test_a_destroyed_database_leaves_the_relay_judging_from_memory(tmp_path: Path, damage: str) -> None:
    with relay(tmp_path / "relay") as server:
        send(server.port, SPAM.format(1))
        assert server.command("mark-spam", id_of(delivered(server)[0])).returncode == 0
        wait_until(lambda: learnt_anew(server) == "0/1", "the mark")
        before = len(delivered(server))
        file = server.state / "spamfilter.db"
        if damage == "gone":
            for path in server.state.glob("spamfilter.db*"):
                path.unlink()
        else:
            for path in server.state.glob("spamfilter.db*"):
                # SQLite maps the -shm, and the system ends whoever looks at what was cut off of it: written in place.
                with path.open("r+b" if path.name.endswith("-shm") else "wb") as whole:
                    whole.write((b"\0" if damage == "full of zeros" else b"garbage ") * 20_000)
        for number in range(3):
            send(server.port, SPAM.format(number + 2))
            time.sleep(0.7)  # a few looks at the ledger
        assert file.exists() or damage == "gone"
        assert all(score(mail) > 0.5 for mail in delivered(server)[before:])
        assert len(delivered(server)) == before + 3
        assert "Traceback" not in server.log()
        if damage == "gone":
            # Once for the ledger, and once for the journal of each worker.
            assert server.log().count("the database is gone") <= 1 + load(server.config).workers()


def test_a_restored_backup_takes_the_place_of_the_database_under_a_running_relay(tmp_path: Path) -> None:
    with relay(tmp_path / "relay") as server:
        send(server.port, SPAM.format(1))
        assert server.command("mark-ham", input="Subject: lunch\n\nlunch at noon\n").returncode == 0
        copy = tmp_path / "copy.db"
        assert server.command("backup", str(copy)).returncode == 0
        assert server.command("mark-spam", id_of(delivered(server)[0])).returncode == 0
        wait_until(lambda: scored_anew(server) > 0.6, "the mark")
        for path in server.state.glob("spamfilter.db*"):
            path.unlink()
        copy.rename(server.state / "spamfilter.db")
        wait_until(lambda: "was replaced or rebuilt; loading all counts anew" in server.log(), "the restored database")
        wait_until(lambda: scored_anew(server) < 0.6, "the counts of the restored database")
        assert "has learnt 1 ham and 0 spam, fewer than the 1 and 1 that judged until now" in server.log()
        # And the new one is followed and written, too.
        assert server.command("mark-spam", id_of(delivered(server)[-1])).returncode == 0
        wait_until(lambda: scored_anew(server) > 0.6, "the mark in the restored database")


def test_a_schema_that_changes_under_a_running_relay_is_said_with_what_to_do(tmp_path: Path) -> None:
    with relay(tmp_path / "relay") as server:
        send(server.port, SPAM.format(1))
        back = server.command("migrate", "--revision", "0002", "--yes")
        assert (back.returncode, back.stdout.count("\n")) == (0, 1)
        assert back.stderr == (
            "warning: a relay runs on it that needs another schema, and learns nothing: stop it, or run `spamfilter"
            " migrate`\n"
        )
        wait_until(lambda: "judging with what was learnt before" in server.log(), "the relay's complaint")
        forth = server.command("migrate")
        assert (forth.returncode, forth.stderr) == (0, "")
        assert forth.stdout.endswith("the relay that runs on it knows this schema, and goes on within seconds\n")
        wait_until(lambda: "can be read again" in server.log(), "the recovery")
        assert server.command("mark-spam", id_of(delivered(server)[0])).returncode == 0
        wait_until(lambda: scored_anew(server) > 0.52, "the mark")


def test_a_database_is_not_moved_from_under_a_running_relay(tmp_path: Path) -> None:
    with relay(tmp_path / "relay") as server:
        moved = server.command("migrate", "--to", f"sqlite:///{tmp_path}/moved.db")
        assert (moved.returncode, "a relay learns into it; stop it first" in moved.stderr) == (2, True)
        (link := tmp_path / "link").symlink_to(server.state)
        by_link = ("migrate", "--from", f"sqlite:///{link}/spamfilter.db", "--to", f"sqlite:///{tmp_path}/moved.db")
        moved = server.command(*by_link)
        assert (moved.returncode, "a relay learns into it; stop it first" in moved.stderr) == (2, True)
    assert not (tmp_path / "moved.db").exists()
    assert server.command("migrate", "--to", f"sqlite:///{tmp_path}/moved.db").returncode == 0


def scored_anew(server: Relay) -> float:
    """Send one more mail; its score."""
    number = len(delivered(server))
    send(server.port, SPAM.format(number + 1))
    return score(delivered(server)[number])


def test_a_ledger_row_that_cannot_be_read_is_logged_once_and_followed_past(tmp_path: Path) -> None:
    with relay(tmp_path / "relay") as server:
        send(server.port, SPAM.format(1))
        with contextlib.closing(sqlite3.connect(server.state / "spamfilter.db")) as database:
            database.execute("INSERT INTO amounts VALUES (1, 0, '{\"fields\": 1}', '[0,0,0,0]')")
            database.execute(
                "INSERT INTO ledger (at, digest, label, tokens, source, by) VALUES"
                " ('2026-01-01 00:00:00', x'00', 'spam', x'0011', 'cli', '')"
            )
            database.commit()
            wait_until(lambda: "judging with what was learnt before" in server.log(), "the complaint")
            time.sleep(1)  # a few more looks at the ledger
            database.execute("DELETE FROM ledger")
            database.commit()
        assert server.log().count("judging with what was learnt before") == 1
        wait_until(lambda: "can be read again" in server.log(), "the recovery")
        assert server.command("mark-spam", id_of(delivered(server)[0])).returncode == 0
        wait_until(lambda: scored_anew(server) > 0.52, "the mark")


def test_two_daemons_on_one_address_the_second_says_so_and_ends_with_2(tmp_path: Path) -> None:
    with relay(tmp_path / "relay") as server:
        server.config.write_text(server.config.read_text().replace(":0", f":{server.port}"))
        done = subprocess.run(
            [sys.executable, "-m", "spamfilter", "serve"],
            env=server.environment, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 2
        assert f"relay.listen = '127.0.0.1:{server.port}'" in done.stderr
        assert "Traceback" not in done.stderr
        send(server.port, SPAM.format(1))


def test_many_clients_at_once_lose_nothing(tmp_path: Path) -> None:
    with sink() as target, relay(tmp_path / "relay", relay={"next_hop": f"smtp://127.0.0.1:{target.port}"}) as server:

        def deliver(first: int) -> None:
            with smtplib.SMTP("127.0.0.1", server.port, "c", timeout=60) as client:
                for number in range(first, first + 50):
                    client.sendmail("a@x.example", ["b@y.example"], f"Subject: {number}\r\n\r\nhello\r\n".encode())

        threads = [threading.Thread(target=deliver, args=(50 * worker,)) for worker in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        subjects = sorted(int(mail.values("Subject")[0]) for mail in target.wait(400))
        assert subjects == list(range(400))
        report = server.command("stats", "--json")
        assert report.returncode == 0, report.stderr
