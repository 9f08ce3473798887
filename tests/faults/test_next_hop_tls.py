"""TLS to the next hop that fails in every way: no mail goes in the clear, and none is lost."""

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.account import Account
from tests.faults.daemon import Daemon, daemon
from tests.faults.fault import Break, Fault, Say
from tests.faults.hop import Hop
from tests.support.certificates import server_context

HANDSHAKES: dict[str, dict[str, Fault]] = {
    "refused": {"STARTTLS": Say(b"454 4.7.0 no\r\n")},
    "answered with nonsense": {"STARTTLS": Say(b"yes\r\n")},
    "no handshake": {"TLS": Say(b"this is no handshake\r\n")},
    "reset": {"TLS": Break("reset")},
    "half closed": {"TLS": Break("half")},
    "silent": {"TLS": Break("hang")},
    "preceded by a reply in the clear": {"STARTTLS": Say(b"220 go on\r\n250 injected\r\n")},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tls")


@pytest.fixture(scope="module")
def trusted(folder: Path) -> ssl.SSLContext:
    """For a next hop whose certificate the relay trusts."""
    return server_context(folder)


@pytest.fixture(scope="module")
def tls_relay(one_hop: Hop, folder: Path, trusted: ssl.SSLContext) -> Iterator[Daemon]:
    settings = {"next_hop_tls": "starttls", "next_hop_ca": str(folder / "certificate.pem")}
    limits = {"connect_seconds": 2.0}
    with daemon(folder / "relay", one_hop, relay=settings, limits=limits) as server:
        yield server


@pytest.fixture
def account(account: Account, hop: Hop, trusted: ssl.SSLContext) -> Account:
    """A next hop that behaves offers TLS here."""

    def heal() -> None:
        hop.heal()
        hop.tls = trusted

    account.heal = heal
    return account


@pytest.fixture
def nothing_in_the_clear(hop: Hop, account: Account) -> Iterator[None]:
    """What is said before TLS, or without it, is no mail."""
    hop.commands.clear()
    yield
    assert not [line for line in hop.commands if line[:4] in ("MAIL", "RCPT", "DATA")]


@pytest.mark.usefixtures("nothing_in_the_clear")
@pytest.mark.parametrize("fault", HANDSHAKES)
def test_tls_that_fails(hop: Hop, tls_relay: Daemon, account: Account, trusted: ssl.SSLContext, fault: str) -> None:
    hop.tls = trusted
    hop.faults.update(HANDSHAKES[fault])
    assert account.send(tls_relay.port).code == 451
    account.settle()


@pytest.mark.usefixtures("nothing_in_the_clear")
def test_tls_that_is_not_offered(hop: Hop, tls_relay: Daemon, account: Account) -> None:
    assert account.send(tls_relay.port).code == 451
    account.settle()


@pytest.mark.usefixtures("nothing_in_the_clear")
def test_a_certificate_of_somebody_else(hop: Hop, tls_relay: Daemon, account: Account, tmp_path: Path) -> None:
    hop.tls = server_context(tmp_path)
    assert account.send(tls_relay.port).code == 451
    account.settle()


def test_tls_that_works(hop: Hop, tls_relay: Daemon, account: Account, trusted: ssl.SSLContext) -> None:
    hop.tls = trusted
    assert account.send(tls_relay.port).code == 250
    account.settle()
