"""Limits of time, exceeded by silent clients, and by clients that send a byte now and then."""

import select
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.account import Account
from tests.faults.client import Answer, Client, mail_of, stuffed
from tests.faults.daemon import Daemon, daemon
from tests.faults.fault import Drip, Hold, Say
from tests.faults.hop import Hop
from tests.integration.servers import wait_until
from tests.relay.limits.scraping import Scraper, assert_hit
from tests.support.certificates import write_certificate

LIMITS = {
    "idle_seconds": 3.0, "data_seconds": 3.0, "tls_seconds": 2.0, "transaction_seconds": 6.0, "session_seconds": 8.0,
    "command_seconds": 20.0, "final_seconds": 20.0,
}  # fmt: skip
STEP = 0.3
"""Seconds between two bytes or commands of a client that keeps every limit but that for all."""
ENOUGH = 60
"""Steps after which a limit was not kept."""


@pytest.fixture(autouse=True)
def healed(hop: Hop) -> Iterator[None]:
    """The next hop behaves at the beginning of each test, and again after it."""
    hop.heal()
    yield
    hop.heal()


@pytest.fixture(scope="module")
def relay(hop: Hop, scraper: Scraper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    folder = tmp_path_factory.mktemp("hasty")
    certificate, key = write_certificate(folder)
    tls = {"tls_certificate": str(certificate), "tls_key": str(key)}
    with daemon(folder / "relay", hop, relay=tls, limits=LIMITS, metrics=scraper.settings) as server:
        yield server


def begin(client: Client, *lines: str) -> None:
    for line in ("EHLO client.test", "MAIL FROM:<a@example.org>", "RCPT TO:<b@example.test>", *lines):
        assert client.ask(line).code in (250, 354)


def dripped(client: Client, raw: bytes) -> Answer:
    """What is heard when these bytes are said again and again, one after the other, a step apart."""
    for number in range(ENOUGH):
        client.say(raw[number % len(raw) : number % len(raw) + 1])
        if select.select([client.socket], [], [], STEP)[0]:
            return client.reply()
    raise AssertionError("nothing was heard")


def ended(client: Client) -> bool:
    return client.reply().code is None


def test_silence_instead_of_a_command(relay: Daemon, scraper: Scraper) -> None:
    with Client(relay.port) as client:
        assert client.reply().raw == b"421 4.4.2 Timeout; closing connection\r\n"
        assert ended(client)
    assert_hit(relay, scraper, "idle_seconds")


def test_a_command_that_never_ends(relay: Daemon, scraper: Scraper) -> None:
    before = scraper.hits("idle_seconds")
    with Client(relay.port) as client:
        assert dripped(client, b"EHLO aaaaaaaaa").code == 421
    assert_hit(relay, scraper, "idle_seconds", before)


def test_silence_in_the_midst_of_a_message(relay: Daemon, scraper: Scraper, hop: Hop) -> None:
    with Client(relay.port) as client:
        begin(client, "DATA")
        client.say(b"Subject: x\r\n")
        assert client.reply().raw == b"421 4.4.2 Timeout in DATA; closing connection\r\n"
        assert ended(client)
    assert hop.kept == []
    assert_hit(relay, scraper, "data_seconds")


def test_a_message_that_comes_byte_by_byte(relay: Daemon, scraper: Scraper, hop: Hop) -> None:
    with Client(relay.port) as client:
        begin(client, "DATA")
        assert dripped(client, b"x").raw == b"421 4.4.2 This message takes too long; closing connection\r\n"
        assert ended(client)
    assert hop.kept == []
    assert_hit(relay, scraper, "transaction_seconds")


def stepping(client: Client, line: str) -> Answer:
    """The first answer to a command that is no 250, if it is given again and again, a step apart."""
    for _ in range(ENOUGH):
        time.sleep(STEP)
        if (answer := client.ask(line)).code != 250:
            return answer
    raise AssertionError("nothing but 250")


def test_recipients_without_end(relay: Daemon, scraper: Scraper) -> None:
    before = scraper.hits("transaction_seconds")
    with Client(relay.port) as client:
        begin(client)
        assert stepping(client, "RCPT TO:<b@example.test>").code == 421
        assert ended(client)
    assert_hit(relay, scraper, "transaction_seconds", before)


def test_a_next_hop_that_takes_its_time_for_each_recipient(relay: Daemon, scraper: Scraper, hop: Hop) -> None:
    before = scraper.hits("transaction_seconds")
    hop.faults["RCPT"] = Drip(1.5 / len("250 2.0.0 ok\r\n"))
    with Client(relay.port) as client:
        begin(client)
        client.say(b"RCPT TO:<b@example.test>\r\n" * 10)
        answers = [client.reply().code for _ in range(10)]
    assert 421 in answers[:5]
    assert set(answers[answers.index(421) + 1 :]) == {None}
    assert_hit(relay, scraper, "transaction_seconds", before)


def test_a_session_without_end(relay: Daemon, scraper: Scraper) -> None:
    with Client(relay.port) as client:
        assert stepping(client, "NOOP").raw == b"421 4.4.2 This session takes too long; closing connection\r\n"
        assert ended(client)
    assert_hit(relay, scraper, "session_seconds")


def test_the_end_of_a_session_waits_for_its_message(relay: Daemon, scraper: Scraper, hop: Hop) -> None:
    """The time of the session, and that of the transaction, pass while the next hop has the message."""
    account = Account(hop)
    name = account.name()
    before = scraper.hits("session_seconds")
    hold = hop.faults["DOT"] = Hold()
    with Client(relay.port) as client:
        begin(client, "DATA")
        client.say(stuffed(mail_of(name)))
        assert hold.reached.wait(30)
        time.sleep(LIMITS["session_seconds"])
        hold.release.set()
        assert account.note(name, Answer(client.reply().code, recipients=("b@example.test",))).code == 250
        assert client.ask("NOOP").code in (421, None)
    account.settle()
    assert_hit(relay, scraper, "session_seconds", before)


def test_a_tls_handshake_that_never_comes(relay: Daemon, scraper: Scraper) -> None:
    with Client(relay.port) as client:
        client.ask("EHLO client.test")
        assert client.ask("STARTTLS").code == 220
        assert ended(client)
    assert_hit(relay, scraper, "tls_seconds")


def test_a_tls_handshake_that_comes_byte_by_byte(relay: Daemon, scraper: Scraper) -> None:
    before = scraper.hits("tls_seconds")
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context()
    handshake = context.wrap_bio(incoming, outgoing, server_hostname="relay.test")
    with pytest.raises(ssl.SSLWantReadError):
        handshake.do_handshake()
    hello = outgoing.read()
    with Client(relay.port) as client:
        client.ask("EHLO client.test")
        assert client.ask("STARTTLS").code == 220
        for byte in hello[:ENOUGH]:
            client.say(bytes([byte]))
            time.sleep(0.1)
        assert ended(client)
    assert_hit(relay, scraper, "tls_seconds", before)


def test_the_end_of_the_relay_waits_for_no_handshake(hop: Hop, tmp_path: Path) -> None:
    certificate, key = write_certificate(tmp_path)
    tls = {"tls_certificate": str(certificate), "tls_key": str(key)}
    patient = {"tls_seconds": 600.0, "drain_seconds": 600.0, "idle_seconds": 600.0}
    with daemon(tmp_path / "relay", hop, relay=tls, limits=patient) as server, Client(server.port) as client:
        client.ask("EHLO client.test")
        assert client.ask("STARTTLS").code == 220
        server.stop()  # within the time that tests wait for an end
        assert ended(client)


def test_the_end_of_the_relay_cuts_off_what_does_not_end(hop: Hop, tmp_path: Path) -> None:
    with daemon(tmp_path / "relay", hop, limits={"drain_seconds": 1.0}) as server, Client(server.port) as client:
        begin(client, "DATA")
        server.stop()
        assert client.reply().code == 421
        assert "limit drain_seconds: " in server.log()


def test_a_next_hop_that_is_too_busy_for_ehlo_is_not_asked_by_helo(hop: Hop, relay: Daemon) -> None:
    hop.faults["EHLO"] = Say(b"450 4.3.2 too busy\r\n")
    hop.hang_up()
    commands = len(hop.commands)
    with Client(relay.port) as client:
        client.ask("EHLO client.test")
        assert client.ask("MAIL FROM:<a@example.org>").code == 451
    wait_until(lambda: len(hop.commands) > commands, "an EHLO")
    assert {line.split(" ")[0] for line in hop.commands[commands:]} - {"QUIT"} == {"EHLO"}
