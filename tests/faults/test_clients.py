"""A client that breaks off at every byte, sends one byte a second, or never reads: only its own mail waits."""

import contextlib
import itertools
import socket
import sqlite3
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.faults.account import Account
from tests.faults.client import Answer, Client, mail_of, stuffed
from tests.faults.daemon import Daemon, daemon
from tests.faults.fault import Hold
from tests.faults.hop import Hop
from tests.integration.servers import wait_until
from tests.support.doors import EACH_RELAYING_DOOR, Door

COMMANDS = "%s client.test\r\nMAIL FROM:<a@example.org>\r\nRCPT TO:<b@example.test>\r\nDATA\r\n"
IDLE = 2.0
"""Seconds of both limits on clients here; between the bytes of a slow client pass fewer."""


@pytest.fixture(scope="module")
def one_relay(one_hop: Hop, door: Door, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    limits = {"idle_seconds": IDLE, "data_seconds": IDLE}
    with daemon(tmp_path_factory.mktemp("relay"), one_hop, door=door, limits=limits) as server:
        yield server


def commands(relay: Daemon) -> bytes:
    return (COMMANDS % relay.door.client.hello).encode()


@EACH_RELAYING_DOOR
@pytest.mark.parametrize("end", ["reset", "close", "half"])
def test_a_client_that_breaks_off_at_each_byte(hop: Hop, relay: Daemon, account: Account, end: str) -> None:
    step = {"reset": 1, "close": 3, "half": 3}[end]
    whole = commands(relay) + stuffed(mail_of(account.name()))
    account.answers.clear()
    for sent in range(0, len(whole), step):
        name = account.name()
        raw = (commands(relay) + stuffed(mail_of(name)))[:-1][:sent]  # never its last byte
        with relay.connect() as client:
            client.say(raw)
            if end == "reset":
                client.reset()
            elif end == "half":
                client.half()
                while client.reply().raw:
                    pass
        account.note(name, Answer(None))
    relay.restart()  # it finishes what it has begun
    account.finish(relay.port)


@EACH_RELAYING_DOOR
@pytest.mark.parametrize("end", ["reset", "close"])
def test_a_client_that_breaks_off_after_the_dot(hop: Hop, relay: Daemon, account: Account, end: str) -> None:
    """The message is on its way by then, and the client will send it again: the honest exception."""
    hop.faults["DOT"] = hold = Hold()
    name = account.name(doubtful=True)
    with relay.connect() as client:
        client.say(commands(relay) + stuffed(mail_of(name)))
        assert hold.reached.wait(20)
        if end == "reset":
            client.reset()
    account.note(name, Answer(None))
    hold.release.set()
    wait_until(lambda: bool(hop.copies(name)), "the hand-over that goes on without the client")
    relay.restart()
    with contextlib.closing(sqlite3.connect(relay.database)) as connection:
        query = "SELECT reply FROM journal WHERE message_id = ?"
        assert connection.execute(query, (f"<{name}@example.org>",)).fetchall() == [("250 2.0.0 kept",)]
    account.finish(relay.port)


@EACH_RELAYING_DOOR
def test_a_client_that_half_closes_after_the_dot_still_gets_its_answer(
    hop: Hop, relay: Daemon, account: Account
) -> None:
    hop.faults["DOT"] = hold = Hold()
    name = account.name()
    with relay.connect() as client:

        def half(now: str) -> None:
            if now == "ANSWER":
                client.half()
                assert hold.reached.wait(20)
                time.sleep(0.1)  # for the relay to see the end of what comes
                hold.release.set()

        answer = client.deliver(mail_of(name), before=half)
    assert account.note(name, answer).code == 250
    account.settle()


def test_a_client_that_sends_its_mail_drop_by_drop(hop: Hop, relay: Daemon, account: Account) -> None:
    """Within the limits between blocks it is served; others do not wait for it."""
    slow = account.name()
    with relay.connect() as client, ThreadPoolExecutor(1) as others:

        def send() -> list[int | None]:
            return [account.send(relay.port).code for _ in range(4)]

        def drip(now: str) -> None:
            if now == "MIDDLE":
                quick = others.submit(send)
                for drops in itertools.count():
                    if drops >= 4 and quick.done():
                        break
                    client.say(b"x")
                    time.sleep(IDLE / 3)
                assert quick.result() == [250] * 4

        account.note(slow, client.deliver(mail_of(slow), before=drip))
    assert account.answers[slow][0].code == 250
    account.settle()


@EACH_RELAYING_DOOR
@pytest.mark.parametrize("stage", ["EHLO", "DATA", "MIDDLE"])
def test_a_client_that_falls_silent_is_told_so(hop: Hop, relay: Daemon, account: Account, stage: str) -> None:
    name = account.name()
    said: list[Answer] = []
    with relay.connect() as client:

        def wait(now: str) -> None:
            if now == stage:
                said.append(client.reply())

        client.deliver(mail_of(name), before=wait)
    assert account.note(name, said[0]).raw.startswith(b"421 4.4.2")
    account.finish(relay.port)


def test_a_command_of_one_byte_a_second_meets_the_idle_limit(hop: Hop, relay: Daemon, account: Account) -> None:
    with relay.connect() as client:
        for byte in b"MAIL FROM:<a@example.org>":
            client.say(bytes([byte]))
            time.sleep(IDLE / 3)
            if b"421" in peek(client.socket):
                break
        assert client.reply().code == 421
    assert account.send(relay.port).code == 250
    account.settle()


def peek(sock: socket.socket) -> bytes:
    try:
        return sock.recv(512, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return b""


def test_a_client_that_never_reads_loses_its_place_and_holds_up_nobody(
    hop: Hop, relay: Daemon, account: Account
) -> None:
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.connect(("127.0.0.1", relay.port))
    with Client(relay.port, sock) as client:
        client.socket.settimeout(0.2)
        sent = 0
        try:
            while sent < 50_000_000:  # far more than all buffers on the way hold
                sent += client.socket.send(b"EHLO x\r\n" * 1000)
        except (TimeoutError, ConnectionError):
            pass
        assert account.send(relay.port).code == 250
        client.socket.settimeout(20)
        # Closed by the relay: the rest of what was sent is refused with RST, or what it said ends.
        wait_until(lambda: relay_has_closed(client.socket), "the relay to give up on it")
    assert account.send(relay.port).code == 250
    account.settle()


def relay_has_closed(sock: socket.socket) -> bool:
    try:
        sock.send(b"\r\n", socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return False


def test_more_connections_than_allowed_hear_421_at_once(hop: Hop, tmp_path_factory: pytest.TempPathFactory) -> None:
    account = Account(hop)
    limits = {"connections": 3}
    with daemon(tmp_path_factory.mktemp("few"), hop, limits=limits) as relay:
        clients = [Client(relay.port) for _ in range(3)]
        assert [client.greeting.code for client in clients] == [220] * 3
        assert account.send(relay.port).code == 421
        for client in clients:
            client.close()
        wait_until(lambda: account.send(relay.port).code == 250, "a free place")
        account.finish(relay.port)


def test_a_client_with_too_many_errors_hears_421(hop: Hop, relay: Daemon, account: Account) -> None:
    with relay.connect() as client:
        client.ask("EHLO client.test")
        codes = [client.ask("XYZZY").code for _ in range(21)]
    assert codes == [500] * 20 + [421]
    assert account.send(relay.port).code == 250
    account.settle()
