"""Connections, commands, errors, recipients and sizes beyond their limits: 421, 452 or 552, at once."""

import contextlib
import socket
from collections.abc import Iterator

import pytest

from tests.faults.account import Account
from tests.faults.client import Client, mail_of
from tests.faults.daemon import Daemon, daemon
from tests.faults.hop import Hop
from tests.integration.servers import wait_until
from tests.relay.limits.scraping import Scraper, assert_hit

LIMITS = {
    "connections": 8, "connections_per_client": 3, "commands": 30, "recipients": 20, "errors": 3,
    "message_size": 65_536,
}  # fmt: skip
STRANGERS = ("127.0.0.1", "127.0.0.2", "127.0.0.3")
TRUSTED = "127.0.0.9"


@pytest.fixture(scope="module")
def narrow(hop: Hop, scraper: Scraper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    relay = {"trusted": [f"{TRUSTED}/32"], "domains": ["example.test"]}
    folder = tmp_path_factory.mktemp("narrow")
    with daemon(folder, hop, relay=relay, limits=LIMITS, metrics=scraper.settings) as server:
        yield server


@pytest.fixture
def relay(narrow: Daemon, scraper: Scraper) -> Daemon:
    """Without the clients of the test before."""
    wait_until(lambda: scraper.value("connections") == 0, "the end of the connections")
    return narrow


def client_from(address: str, relay: Daemon) -> Client:
    sock = socket.create_connection(("127.0.0.1", relay.port), source_address=(address, 0))
    return Client(relay.port, sock)


@contextlib.contextmanager
def clients(relay: Daemon, *addresses: str) -> Iterator[list[Client]]:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(client_from(address, relay)) for address in addresses]


def codes(connected: list[Client]) -> list[int | None]:
    return [client.greeting.code for client in connected]


def test_one_client_has_its_share_of_connections(relay: Daemon, scraper: Scraper) -> None:
    one, other, _ = STRANGERS
    with clients(relay, *[one] * 5, other) as connected:
        assert codes(connected) == [220, 220, 220, 421, 421, 220]
        assert connected[3].greeting.raw == b"421 4.7.0 Too many connections from your address; try again later\r\n"
        assert connected[3].reply().code is None
        assert_hit(relay, scraper, "connections_per_client")
        connected[0].close()
        wait_until(lambda: scraper.value("connections") == 3, "the end of a connection")
        with clients(relay, one) as again:
            assert codes(again) == [220]


def test_trusted_networks_share_only_the_whole(relay: Daemon) -> None:
    with clients(relay, *[TRUSTED] * 6) as connected:
        assert codes(connected) == [220] * 6


def test_connections_in_all(relay: Daemon, scraper: Scraper) -> None:
    with clients(relay, *STRANGERS * 2, *[TRUSTED] * 4) as connected:
        assert codes(connected) == [220] * 8 + [421] * 2
        assert connected[-1].greeting.raw == b"421 4.7.0 Too many connections; try again later\r\n"
        assert scraper.value("connections") == 8
        assert_hit(relay, scraper, "connections")
        with connected[0] as client:
            assert client.ask("NOOP").code == 250


def test_commands_of_a_session(relay: Daemon, scraper: Scraper) -> None:
    with clients(relay, STRANGERS[0]) as (client,):
        assert [client.ask("NOOP").code for _ in range(30)] == [250] * 30
        assert client.ask("NOOP").code == 421
        assert client.reply().code is None
    assert_hit(relay, scraper, "commands")


def test_commands_are_counted_from_one_accepted_message_to_the_next(relay: Daemon, hop: Hop) -> None:
    account = Account(hop)
    with clients(relay, STRANGERS[0]) as (client,):
        for _ in range(3):
            assert [client.ask("NOOP").code for _ in range(20)] == [250] * 20
            name = account.name()
            assert account.note(name, client.deliver(mail_of(name))).code == 250
    account.settle()


def test_the_largest_list_of_recipients_needs_no_more_commands_than_there_are(relay: Daemon, hop: Hop) -> None:
    account = Account(hop)
    name = account.name()
    with clients(relay, STRANGERS[0]) as (client,):
        answer = client.deliver(mail_of(name), [f"r{number}@example.test" for number in range(20)])
    assert account.note(name, answer).code == 250
    account.settle()


def test_errors_of_a_session(relay: Daemon, scraper: Scraper) -> None:
    with clients(relay, STRANGERS[0]) as (client,):
        client.ask("EHLO client.test")
        assert [client.ask("WHAT").code for _ in range(4)] == [500, 500, 500, 421]
    assert_hit(relay, scraper, "errors")


def test_recipients_of_a_message(relay: Daemon, scraper: Scraper, hop: Hop) -> None:
    account = Account(hop)
    name = account.name()
    recipients = [f"r{number}@example.test" for number in range(22)]
    with clients(relay, STRANGERS[0]) as (client,):
        answer = account.note(name, client.deliver(mail_of(name), recipients))
    assert answer.code == 250
    assert answer.recipients == tuple(recipients[:20])
    account.settle()
    assert_hit(relay, scraper, "recipients")


def test_the_size_of_a_message(relay: Daemon, scraper: Scraper) -> None:
    with clients(relay, STRANGERS[0]) as (client,):
        client.ask("EHLO client.test")
        assert client.ask("MAIL FROM:<a@example.org> SIZE=65537").code == 552
        assert_hit(relay, scraper, "message_size")
        before = scraper.hits("message_size")
        assert client.deliver(mail_of("large", "x" * 65_536)).code == 552
        assert_hit(relay, scraper, "message_size", before)


def test_a_flood_over_a_limit_is_some_lines_of_log(relay: Daemon, scraper: Scraper) -> None:
    before, began = scraper.hits("connections_per_client"), len(relay.log())
    with clients(relay, *[STRANGERS[0]] * 3):
        for _ in range(300):
            with clients(relay, STRANGERS[0]) as (refused,):
                assert refused.greeting.code == 421
    assert scraper.hits("connections_per_client") == before + 300
    said = relay.log()[began:]
    assert said.count("connections_per_client") < 30


def test_a_flood_of_refused_commands_is_some_lines_of_log(relay: Daemon) -> None:
    began = len(relay.log())
    with clients(relay, STRANGERS[0]) as (client,):
        assert [client.ask("RCPT TO:<a@elsewhere.test>").code for _ in range(3)] == [503] * 3
    with clients(relay, STRANGERS[0]) as (client,):
        client.ask("EHLO client.test")
        client.ask("MAIL FROM:<a@example.org>")
        assert [client.ask("RCPT TO:<a@elsewhere.test>").code for _ in range(28)] == [554] * 28
    wait_until(lambda: "8 further refusals in this session" in relay.log()[began:], "the end of the session in the log")
    assert relay.log()[began:].count("RCPT is answered with 554") == 20
