"""Several workers as one relay: what is promised of one holds over all of them."""

import contextlib
import re
import signal
import socket
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.faults.account import Account
from tests.faults.client import Client, mail_of
from tests.faults.daemon import Daemon
from tests.faults.hop import Hop
from tests.integration.processes import accepts, at_each_worker, hop, kill_one, relay, workers
from tests.integration.servers import wait_until
from tests.load.process import cpu_seconds, family
from tests.load.serving import shares
from tests.relay.limits.scraping import Scraper

__all__ = ["hop", "relay"]


def _has_said(relay: Daemon, text: str, times: int) -> bool:
    return relay.log().count(text) >= times


def test_sighup_reaches_all(relay: Daemon) -> None:
    text = relay.config.read_text()
    with at_each_worker(relay) as clients:
        for recipients, code in ((1, 452), (2, 250)):
            relay.config.write_text(text.replace("[limits]", f"[limits]\nrecipients = {recipients}"))
            reloads = relay.log().count("INFO reloaded")
            relay.process.send_signal(signal.SIGHUP)
            wait_until(partial(_has_said, relay, "INFO reloaded", reloads + 1), "the reload")
            for client in clients:
                client.ask("EHLO client.test")
                client.ask("MAIL FROM:<a@example.org>")
                assert client.ask("RCPT TO:<b@example.test>").code == 250
                assert client.ask("RCPT TO:<c@example.test>").code == code
                client.ask("RSET")
    relay.config.write_text(text + "\n[wrong]\n")
    relay.process.send_signal(signal.SIGHUP)
    wait_until(lambda: "not reloaded: " in relay.log(), "the refusal")
    assert relay.log().count("not reloaded: ") == 1


def test_who_takes_a_place_has_the_configuration_of_the_last_sighup(relay: Daemon) -> None:
    text = relay.config.read_text()
    relay.config.write_text(text.replace("[limits]", "[limits]\nrecipients = 1"))
    relay.process.send_signal(signal.SIGHUP)
    wait_until(lambda: "INFO reloaded" in relay.log(), "the reload")
    kill_one(relay)
    with at_each_worker(relay) as clients:
        for client in clients:
            client.ask("EHLO client.test")
            client.ask("MAIL FROM:<a@example.org>")
            assert client.ask("RCPT TO:<b@example.test>").code == 250
            assert client.ask("RCPT TO:<c@example.test>").code == 452


def test_a_mark_is_known_to_all(relay: Daemon, hop: Hop) -> None:
    mail = mail_of("taught", "Cheap pills.")

    def known(client: Client) -> str:
        assert client.deliver(mail_of("asked")).code == 250
        found = re.search(rb"^X-Spam-Status:.* learnt=(\S+)", hop.kept[-1].mail, re.MULTILINE)
        assert found is not None
        return found.group(1).decode()

    with at_each_worker(relay) as clients:
        assert {known(client) for client in clients} == {"0/0"}
        relay.ask({"command": "mark", "label": "spam", "size": len(mail)}, mail)
        wait_until(lambda: {known(client) for client in clients} == {"0/1"}, "the mark")
        kill_one(relay)
    with at_each_worker(relay) as clients:  # of which one has forked off a supervisor that knows nothing of it
        assert {known(client) for client in clients} == {"0/1"}


def test_twenty_connections_are_shared_evenly(relay: Daemon) -> None:
    for _ in range(3):
        with contextlib.ExitStack() as stack:
            for sock in [stack.enter_context(socket.create_connection(("127.0.0.1", relay.port))) for _ in range(20)]:
                assert sock.recv(1000).startswith(b"220 ")
            found = shares(relay.process.pid, relay.port)
            assert found.total() == 20
            assert max(found.values()) <= 12
        wait_until(lambda: shares(relay.process.pid, relay.port).total() == 0, "the end of all connections")


def test_connections_are_limited_over_all(tmp_path: Path, hop: Hop) -> None:
    scraper = Scraper()
    limits = {"connections": 9, "connections_per_client": 5}
    relay = Daemon(
        tmp_path, f"smtp://127.0.0.1:{hop.port}", None,
        relay={"workers": 2, "trusted": ["127.0.0.2/32"]}, limits=limits, metrics=scraper.settings,
    )  # fmt: skip
    with relay.run(), contextlib.ExitStack() as stack:

        def come(address: str) -> int | None:
            sock = socket.create_connection(("127.0.0.1", relay.port), source_address=(address, 0))
            return stack.enter_context(Client(relay.port, sock)).greeting.code

        assert [come("127.0.0.1") for _ in range(7)] == [220] * 5 + [421] * 2
        assert [come("127.0.0.2") for _ in range(6)] == [220] * 4 + [421] * 2
        assert scraper.value("connections") == 9
        assert scraper.hits("connections_per_client") == 2
        assert scraper.hits("connections") == 2
        # Whoever is served by a worker that dies gives its place back.
        kill_one(relay)
        wait_until(lambda: scraper.value("connections") < 9, "the places")
        assert come("127.0.0.2") == 220


def test_memory_is_limited_over_all(tmp_path: Path, hop: Hop) -> None:
    size = 600_000
    limits = {"memory_megabytes": 1, "message_size": 10**6}
    relay = Daemon(tmp_path, f"smtp://127.0.0.1:{hop.port}", relay={"workers": 2}, limits=limits)
    with relay.run(), at_each_worker(relay) as (one, other):
        for client in (one, other):
            client.ask("EHLO client.test")
            client.ask("MAIL FROM:<a@example.org>")
            client.ask("RCPT TO:<b@example.test>")
        assert one.ask("DATA").code == 354
        one.say(b"x" * 70 + b"\r\n" + (b"y" * 70 + b"\r\n") * (size // 72))
        wait_until(lambda: _mail_says(other, size) == 452, "the memory of the other worker")
        one.say(b"\r\n.\r\n")
        assert one.reply().code == 250
        wait_until(lambda: _mail_says(other, size) == 250, "the memory that was given back")


def _mail_says(client: Client, size: int) -> int | None:
    client.ask("RSET")
    return client.ask(f"MAIL FROM:<a@example.org> SIZE={size}").code


def test_the_metrics_are_those_of_all_and_outlive_a_worker(tmp_path: Path, hop: Hop) -> None:
    scraper, account = Scraper(), Account(hop)
    relay = Daemon(
        tmp_path, f"smtp://127.0.0.1:{hop.port}", None, relay={"workers": 2}, metrics=scraper.settings
    )  # fmt: skip
    with relay.run():
        with at_each_worker(relay) as clients:
            for client in clients:
                for _ in range(3):
                    account.note(name := account.name(), client.deliver(mail_of(name)))
            wait_until(lambda: scraper.value("journal_written_total") == 6, "the journal")
            kill_one(relay)
        with at_each_worker(relay) as clients:
            for client in clients:
                account.note(name := account.name(), client.deliver(mail_of(name)))
            wait_until(lambda: scraper.value("journal_written_total") == 8, "the journal")
        assert sum(scraper.read()["messages_total"].values()) == 8
        assert scraper.value("handovers") == 0
        wait_until(lambda: scraper.value("connections") == 0, "the end of all connections")
        assert scraper.value("resident_bytes") > 10**7
    account.settle()


@pytest.mark.parametrize(
    ("section", "key", "said"),
    [
        pytest.param("feedback", "socket", "feedback.socket", id="of-the-keeper"),
        pytest.param("verdict", "quarantine", "taken/file/x: cannot be made a Maildir", id="of-all"),
    ],
)
def test_a_start_that_fails_is_one_error_and_leaves_nobody(
    tmp_path: Path, hop: Hop, section: str, key: str, said: str
) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").touch()
    place = tmp_path / "taken" / ("file/x" if key == "quarantine" else "")
    places: dict[str, Any] = {section: {key: str(place)}}
    relay = Daemon(tmp_path, f"smtp://127.0.0.1:{hop.port}", None, relay={"workers": 2}, **places)
    relay.launch()
    assert relay.process.wait(60) == 2
    lines = [line for line in relay.log().splitlines() if not line.startswith("INFO")]
    assert len(lines) == 1
    assert said in lines[0]
    assert not accepts(relay.port)


def test_one_worker_is_one_process(tmp_path: Path, hop: Hop) -> None:
    relay = Daemon(tmp_path, f"smtp://127.0.0.1:{hop.port}", relay={"workers": 1})
    with relay.run():
        assert family(relay.process.pid) == [relay.process.pid]


def test_workers_that_wait_for_their_last_mail_do_nothing_else(relay: Daemon) -> None:
    with at_each_worker(relay) as clients:
        for client in clients:
            client.ask("EHLO client.test")
            client.ask("MAIL FROM:<a@example.org>")
        before = {pid: cpu_seconds(pid) for pid in workers(relay)}
        relay.process.terminate()
        wait_until(lambda: not accepts(relay.port), "the end of the listening")
        time.sleep(2)
        assert all(cpu_seconds(pid) - used < 0.2 for pid, used in before.items())
        for client in clients:
            assert client.ask("RCPT TO:<b@example.test>").code == 250
            client.ask("RSET")
    assert relay.process.wait(60) == 0
