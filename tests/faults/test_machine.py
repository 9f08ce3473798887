"""The machine in trouble: a clock that jumps, no descriptors, no memory, no DNS; and faults of our own."""

import contextlib
import re
import resource
import select
import signal
import socket
import sqlite3
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from spamfilter.mail.message import SCANNED
from tests.faults.account import Account
from tests.faults.case import case
from tests.faults.client import Client, mail_of
from tests.faults.daemon import ROOT, Daemon, daemon
from tests.faults.hop import Hop
from tests.integration.servers import wait_until
from tests.support.month import Calendar
from tests.support.real import require

MEGABYTE = 2**20
DESCRIPTORS = 48
"""What the relay has open without clients is a quarter of it."""
PLANTED = {
    "judging": """
from spamfilter.learning.filter import Filter
def read(self, message, group=""):
    raise RecursionError("planted")
Filter.read = read
""",
    "marking": """
from spamfilter.relay import delivery
def mark(*arguments):
    raise RecursionError("planted")
delivery.mark = mark
""",
    "journalling": """
from spamfilter.relay.journal import Journal
def add(self, entry):
    raise RecursionError("planted")
Journal.add = add
""",
}
"""Defects in our own code, for the process of the relay."""


def header(mail: bytes, name: bytes) -> bytes:
    lines = mail.partition(b"\r\n\r\n")[0].split(b"\r\n")
    return b"".join(line for line in lines if line.startswith(name + b":"))


def learnt(relay: Daemon, number: int) -> bool:
    return relay.learnt() == number


def test_a_clock_that_jumps(hop: Hop, tmp_path: Path, account: Account) -> None:
    """The clock of the calendar; the one that never jumps is left alone, as by every correction of the time."""
    calendar, today = Calendar(tmp_path), datetime.now(UTC)
    calendar.set(today)
    relay = Daemon(tmp_path / "relay", f"smtp://127.0.0.1:{hop.port}")
    relay.environment |= calendar.environment
    with relay.run():
        for number, days in enumerate((0, 400, -400)):
            calendar.set(today + timedelta(days=days))
            assert account.send(relay.port).code == 250
            answer = relay.ask({"command": "mark", "label": "spam", "id": relay.ids()[-1]})
            assert answer["changed"]
            wait_until(partial(learnt, relay, number + 1), "what was taught")
        account.settle()
        assert len(set(relay.ids())) == 3
    with contextlib.closing(sqlite3.connect(relay.database)) as connection:
        rows = connection.execute("SELECT at FROM journal ORDER BY rowid").fetchall()
    moments = [datetime.fromisoformat(row[0]).replace(tzinfo=UTC) for row in rows]
    assert max(moments) - min(moments) > timedelta(days=790)
    assert abs(moments[0] - datetime.now(UTC)) < timedelta(hours=1)
    assert relay.problems() == []


@contextlib.contextmanager
def crowded(relay: Daemon) -> Iterator[list[socket.socket]]:
    """More connections than the relay has descriptors for; some of them it has greeted, or turned away."""
    relay.start(require("prlimit", "util-linux"), f"--nofile={DESCRIPTORS}:{DESCRIPTORS}")
    try:
        relay.process.send_signal(signal.SIGSTOP)  # so that it meets them all at once
        crowd = [socket.create_connection(("127.0.0.1", relay.port)) for _ in range(2 * DESCRIPTORS)]
        relay.process.send_signal(signal.SIGCONT)
        try:
            wait_until(lambda: len(greeted(crowd)) >= DESCRIPTORS // 3, "the descriptors to be used up")
            yield crowd
        finally:
            for client in crowd:
                client.close()
    finally:
        relay.kill()


def greeted(clients: list[socket.socket]) -> list[socket.socket]:
    return select.select(clients, [], [], 0)[0]


def test_file_descriptors_at_their_limit(hop: Hop, tmp_path: Path, account: Account) -> None:
    relay = Daemon(tmp_path / "relay", f"smtp://127.0.0.1:{hop.port}")
    with crowded(relay) as crowd:
        assert f"only {DESCRIPTORS} are allowed" in relay.log()
        with Client(relay.port, greeted(crowd)[0]) as client:
            # For now there may be none left for the next hop; when the others were turned away, there are.
            wait_until(lambda: sent(account, client) == 250, "the mail of one who was let in")
            account.settle()
        for sock in crowd:
            sock.close()
        case().fault_ends()
        wait_until(lambda: account.send(relay.port).code == 250, "a free place")
        account.finish(relay.port)


def sent(account: Account, client: Client) -> int | None:
    """What a client hears to a new message over its connection."""
    name = account.name()
    code = account.note(name, client.deliver(mail_of(name))).code
    assert code in (250, 451)
    return code


def test_the_log_at_the_limit_of_descriptors_stays_readable(hop: Hop, tmp_path: Path) -> None:
    """asyncio tries again and again to accept a client that it has no descriptor for, and complains each time."""
    relay = Daemon(tmp_path / "relay", f"smtp://127.0.0.1:{hop.port}")
    with crowded(relay):
        time.sleep(1)
        log = relay.log()
    lines, tracebacks = log.count("\n"), log.count("Traceback")
    assert (tracebacks, lines < 1000) == (0, True)


def test_memory_at_its_limit(hop: Hop, tmp_path: Path, account: Account) -> None:
    """What does not fit is refused for now; what is left of such a mail must not be taken for commands."""
    relay = Daemon(tmp_path / "relay", f"smtp://127.0.0.1:{hop.port}", relay={"workers": 1})
    relay.start()
    try:
        overfeed(hop, relay, account)
    finally:
        relay.kill()  # its log may have a traceback, if for once


def overfeed(hop: Hop, relay: Daemon, account: Account) -> None:
    assert account.send(relay.port).code == 250
    stowaway = account.name()
    lines = f"MAIL FROM:<stowaway@example.org>\r\nRCPT TO:<c@example.test>\r\nDATA\r\n{mail_of(stowaway).decode()}\r\n"
    name = account.name()
    body = lines * (45 * MEGABYTE // len(lines))
    with little_memory(relay, 40 * MEGABYTE), Client(relay.port) as client:
        answer = account.note(name, client.deliver(mail_of(name, body)))
        assert answer.code in (421, 451, 452)
        assert account.send(relay.port).code == 250  # a small one has room
    account.settle()
    assert not [line for line in hop.commands if "stowaway" in line]


@contextlib.contextmanager
def little_memory(relay: Daemon, more: int) -> Iterator[None]:
    """So many bytes of address space beyond what it has."""
    used = int(Path(f"/proc/{relay.process.pid}/statm").read_text().split()[0]) * resource.getpagesize()
    unlimited = resource.RLIM_INFINITY
    resource.prlimit(relay.process.pid, resource.RLIMIT_AS, (used + more, unlimited))
    try:
        yield
    finally:
        resource.prlimit(relay.process.pid, resource.RLIMIT_AS, (unlimited, unlimited))


def test_names_that_do_not_resolve(tmp_path: Path, account: Account) -> None:
    relay = Daemon(tmp_path / "relay", "smtp://next-hop.invalid:25")
    with relay.run():
        assert [account.send(relay.port).code for _ in range(3)] == [451] * 3
        account.settle()
        assert "next-hop.invalid" in relay.log()


@contextlib.contextmanager
def planted(defect: str, hop: Hop, folder: Path) -> Iterator[Daemon]:
    """A relay with a defect."""
    (folder / "sitecustomize.py").write_text(PLANTED[defect])
    relay = Daemon(folder / "relay", f"smtp://127.0.0.1:{hop.port}")
    relay.environment["PYTHONPATH"] = f"{folder}:{ROOT}"
    relay.start()
    try:
        yield relay
    finally:
        relay.kill()  # its log has a traceback, as it should


def test_a_mail_that_cannot_be_judged_is_delivered_as_unsure(hop: Hop, tmp_path: Path, account: Account) -> None:
    """The mail pays nothing for a defect of ours."""
    with planted("judging", hop, tmp_path) as relay:
        assert account.send(relay.port).code == 250
        account.settle()
        status = header(hop.kept[-1].mail, b"X-Spam-Status")
        assert b"class=unsure" in status
        assert b"fault=RecursionError" in status
        assert f"{relay.ids()[-1]}: cannot be judged, passed on as unsure" in relay.log()


def test_a_mail_that_cannot_be_marked_stays_with_the_client(hop: Hop, tmp_path: Path, account: Account) -> None:
    with planted("marking", hop, tmp_path) as relay:
        answer = account.send(relay.port)
        assert (answer.code, answer.raw[:9]) == (451, b"451 4.3.0")
        assert b"planted" not in answer.raw
        (id,) = relay.ids()  # it is journalled all the same
        assert id.encode() in answer.raw
        account.settle()


def test_a_mail_that_cannot_be_journalled_is_delivered_and_the_client_told(
    hop: Hop, tmp_path: Path, account: Account
) -> None:
    """The next hop has it by then: whoever heard 451 would send it again."""
    with planted("journalling", hop, tmp_path) as relay:
        assert account.send(relay.port).code == 250
        account.settle()


def test_a_mail_that_is_too_large_to_scan_passes_and_says_so(hop: Hop, relay: Daemon, account: Account) -> None:
    name = account.name()
    with Client(relay.port) as client:
        answer = client.deliver(mail_of(name, "some words in a row\r\n" * (SCANNED // 19)))
    assert account.note(name, answer).code == 250
    account.settle()
    said = re.search(rb"scanned=([0-9]+)/([0-9]+)", header(hop.kept[-1].mail, b"X-Spam-Status"))
    assert said
    assert SCANNED < int(said[1]) < SCANNED + 1_000 < int(said[2])


@pytest.mark.parametrize("declared", [True, False], ids=["at MAIL", "after the dot"])
def test_a_mail_that_is_too_large_to_relay_hears_552(
    hop: Hop, tmp_path: Path, account: Account, declared: bool
) -> None:
    with daemon(tmp_path / "relay", hop, limits={"message_size": 65_536}) as relay, Client(relay.port) as client:
        name = account.name()
        mail = mail_of(name, "x" * 66_000)
        if declared:
            client.ask("EHLO client.test")
            answer = client.ask(f"MAIL FROM:<a@example.org> SIZE={len(mail)}")
        else:
            answer = client.deliver(mail)
        assert account.note(name, answer).code == 552
        account.settle()
        other = account.name()
        assert account.note(other, client.deliver(mail_of(other))).code == 250
        account.settle()
