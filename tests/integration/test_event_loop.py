"""The relay as a process on both event loops: the same mail, the same signals, the same end."""

import signal
import smtplib
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvloop

from spamfilter.system.event_loop import loop_factory
from tests.faults.client import Client, mail_of
from tests.faults.daemon import Daemon
from tests.faults.hop import Hop, next_hop
from tests.integration.servers import wait_until
from tests.support.certificates import client_context, server_context


@pytest.fixture(params=["uvloop", "asyncio"])
def relay(request: pytest.FixtureRequest, hop: Hop, tmp_path: Path) -> Iterator[Daemon]:
    """One that offers STARTTLS."""
    server_context(tmp_path)
    made = Daemon(
        tmp_path / "relay",
        f"smtp://127.0.0.1:{hop.port}",
        relay={"tls_certificate": str(tmp_path / "certificate.pem"), "tls_key": str(tmp_path / "key.pem")},
    )
    if request.param == "asyncio":
        made.environment["SPAMFILTER_PLAIN"] = "1"
    with made.run():
        maps = Path(f"/proc/{made.process.pid}/maps").read_text()
        assert ("uvloop" in maps) == (request.param == "uvloop")
        yield made


@pytest.fixture
def hop() -> Iterator[Hop]:
    with next_hop() as made:
        yield made


def test_uvloop_is_taken_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPAMFILTER_PLAIN", raising=False)
    assert loop_factory() is uvloop.new_event_loop
    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert loop_factory() is None


def test_mail_passes_also_over_tls_and_settings_are_read_anew(relay: Daemon, hop: Hop, tmp_path: Path) -> None:
    with smtplib.SMTP("127.0.0.1", relay.port, timeout=60) as client:
        client.sendmail("a@example.org", "b@example.test", mail_of("large", "a line of text\r\n" * 200_000))
        client.starttls(context=client_context(tmp_path))
        client.sendmail("a@example.org", "b@example.test", mail_of("secret", "a line of text\r\n" * 200_000))
    assert [len(kept.mail) > 3_000_000 for kept in hop.kept] == [True, True]
    relay.process.send_signal(signal.SIGHUP)
    wait_until(lambda: "reloaded" in relay.log(), "the settings to be read anew")


def test_a_transaction_that_runs_at_the_end_is_finished(relay: Daemon, hop: Hop) -> None:
    with Client(relay.port) as client, Client(relay.port) as idle:
        for line in ("EHLO c", "MAIL FROM:<a@example.org>", "RCPT TO:<b@example.test>"):
            assert client.ask(line).code == 250
        relay.process.send_signal(signal.SIGTERM)
        assert idle.reply().code == 421
        assert client.ask("DATA").code == 354
        client.say(mail_of("last") + b".\r\n")
        assert client.reply().code == 250
        assert client.reply().code == 421
    wait_until(lambda: not relay.running, "the end")
    assert len(hop.kept) == 1


def test_a_client_that_resets_its_connection_stops_nothing(relay: Daemon, hop: Hop) -> None:
    for said in (b"", b"EHLO c\r\nMAIL FROM:<a@example.org>\r\n", b"QUIT\r\n"):
        client = Client(relay.port, socket.create_connection(("127.0.0.1", relay.port)))
        client.say(said)
        client.reset()
    with Client(relay.port) as client:
        assert client.deliver(mail_of("after")).code == 250
    assert len(hop.kept) == 1
