"""The metrics of a running relay: they agree with its journal, and their clients cannot harm it."""

import collections
import contextlib
import re
import socket
import sqlite3
from collections.abc import Iterator

import pytest

from spamfilter.relay.metrics import METRICS, STAGES
from spamfilter.service.metrics_endpoint import PLACES
from tests.faults.account import Account
from tests.faults.client import Client, mail_of
from tests.faults.daemon import Daemon, daemon
from tests.faults.fault import Break, Say
from tests.faults.hop import Hop
from tests.integration.servers import wait_until
from tests.relay.limits.scraping import PREFIX, Scraper

VERDICT = {"unsure": 0.5, "spam": 0.8, "reject": 0}
"""Near to each other, since little is taught here."""


@pytest.fixture(scope="module")
def relay(hop: Hop, scraper: Scraper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    folder = tmp_path_factory.mktemp("relay")
    with daemon(folder, hop, verdict=VERDICT, metrics=scraper.settings) as server:
        yield server


def rows(relay: Daemon, query: str) -> list[tuple[object, ...]]:
    with contextlib.closing(sqlite3.connect(relay.database)) as connection:
        return list(connection.execute(query))


def test_what_is_scraped_is_what_the_journal_says(relay: Daemon, scraper: Scraper, hop: Hop) -> None:
    account = Account(hop)
    for word, label in (("lunch", "ham"), ("pills", "spam")):
        for number in range(3):
            mail = mail_of(f"taught-{word}-{number}", f"{word} " * 40)
            assert relay.ask({"command": "mark", "label": label, "size": len(mail)}, mail)["changed"]
    forgotten = mail_of("taught-lunch-0", "lunch " * 40)
    assert relay.ask({"command": "mark", "label": None, "size": len(forgotten)}, forgotten)["changed"]
    learnt = {("ham",): 2.0, ("spam",): 3.0}
    wait_until(lambda: scraper.read()["learnt"] == learnt, "what was taught and what was forgotten behind it")
    for number, body in enumerate(("lunch " * 40, "pills " * 40, "none of these", "pills " * 40, "lunch " * 40)):
        with Client(relay.port) as client:
            if number == 4:
                hop.faults["DOT"] = Say(b"452 4.2.2 full\r\n")
            client.deliver(mail_of(f"mail-{number}", body))
    hop.heal()
    wait_until(lambda: scraper.value("journal_written_total") == 5, "the journal")
    found = scraper.read()
    written = rows(relay, "SELECT class, action, size, score, judge_us, total_us FROM journal")
    classes = collections.Counter((str(row[0]), str(row[1])) for row in written)
    assert len(classes) >= 2, written
    assert {labels: number for labels, number in found["messages_total"].items() if number} == classes
    sizes, scores, judged, handed = ([float(str(row[column])) for row in written] for column in range(2, 6))
    assert found["message_bytes_total"] == {(): sum(sizes)}
    for name, values in (("score", scores), ("judge_seconds", judged), ("hand_over_seconds", handed)):
        unit = 1e6 if name.endswith("seconds") else 1
        assert found[f"{name}_count"] == {(): len(values)}
        assert found[f"{name}_sum"][()] == pytest.approx(sum(values) / unit)
        assert {float(bound): count for (bound,), count in found[f"{name}_bucket"].items()} == {
            bound: sum(value / unit <= bound for value in values) for bound in (*METRICS[name].bounds, float("inf"))
        }
    stages = {stage: found["stage_seconds_count"][stage,] for stage in STAGES}
    assert stages == dict.fromkeys(STAGES, 5)  # of each mail, also of the one that the next hop deferred
    seconds = {stage: found["stage_seconds_sum"][stage,] for stage in STAGES}
    assert min(seconds.values()) > 0
    assert seconds["parse"] + seconds["tokens"] + seconds["score"] <= sum(judged) / 1e6 + 5e-6
    assert seconds["next_hop"] <= (sum(handed) - sum(judged)) / 1e6 + 1e-5
    assert found["marks_total"]["spam", "cli"] == 3
    assert found["marks_total"]["ham", "cli"] == 3
    assert found["marks_total"]["forget", "cli"] == 1
    assert found["learnt"] == learnt
    assert found["words"][()] == rows(relay, "SELECT count(*) FROM words")[0][0]
    assert found["next_hop_failures_total"]["4xx",] == 1
    assert found["sessions_total"] == {(): 5}
    assert found["replies_total"]["2xx",] >= 15
    assert found["replies_total"]["3xx",] == 5
    assert found["replies_total"]["5xx",] == 0
    assert found["replies_total"]["4xx",] == 1
    assert found["resident_bytes"][()] > 10**7
    assert found["ledger_lag_seconds"][()] < 30
    account.settle()


def test_failures_of_the_next_hop_are_counted_by_kind(relay: Daemon, scraper: Scraper, hop: Hop) -> None:
    for fault, kind in ((Break("close"), "closed"), (Break("hang"), "timeout"), (Say(b"nonsense\r\n"), "protocol")):
        before = scraper.value("next_hop_failures_total", kind)
        hop.heal()
        hop.faults["MAIL"] = fault
        with Client(relay.port) as client:
            assert client.deliver(mail_of(f"hop-{kind}")).code == 451
        assert scraper.value("next_hop_failures_total", kind) == before + 1
    assert scraper.hits("command_seconds") == 1
    hop.heal()
    hop.down()
    with Client(relay.port) as client:
        assert client.deliver(mail_of("hop-down")).code == 451
    assert scraper.value("next_hop_failures_total", "unreachable") >= 1
    hop.heal()


def test_exposed_is_what_the_table_has_with_its_help(scraper: Scraper, relay: Daemon) -> None:
    text = scraper.text()
    helps = dict(re.findall(rf"^# HELP {PREFIX}(\w+) (.*)$", text, re.MULTILINE))
    kinds = dict(re.findall(rf"^# TYPE {PREFIX}(\w+) (.*)$", text, re.MULTILINE))
    names = {name + ("_total" if metric.kind == "counter" else ""): metric for name, metric in METRICS.items()}
    assert helps == {name: metric.help for name, metric in names.items()}
    assert kinds == {name: metric.kind for name, metric in names.items()}
    series = scraper.read()
    for name, metric in names.items():
        if metric.kind != "histogram":
            assert set(series[name]) == set(metric.series()), name


def answer(scraper: Scraper, request: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", scraper.port), 30) as sock:
        sock.sendall(request)
        found = b""
        with contextlib.suppress(ConnectionError):  # it closes the connection before it has read everything
            while block := sock.recv(65_536):
                found += block
    return found


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        pytest.param(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", b"200 OK", id="plain"),
        pytest.param(b"GET /metrics?name=x HTTP/1.0\r\n\r\n", b"200 OK", id="query"),
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", b"404 Not Found", id="elsewhere"),
        pytest.param(b"GET /metrics/../etc/passwd HTTP/1.1\r\n\r\n", b"404 Not Found", id="path"),
        pytest.param(b"POST /metrics HTTP/1.1\r\n\r\n", b"405 Method Not Allowed", id="post"),
        pytest.param(b"\x16\x03\x01\x02\x00\r\n\r\n", b"400 Bad Request", id="tls"),
        pytest.param(b"EHLO client.test\r\n\r\n", b"400 Bad Request", id="smtp"),
        pytest.param(b"\r\n\r\n", b"400 Bad Request", id="nothing"),
        pytest.param(b"GET /metrics HTTP/1.1\r\nX: " + b"x" * 9_000 + b"\r\n\r\n", b"400 Bad Request", id="long"),
    ],
)
def test_a_request_and_its_answer(relay: Daemon, scraper: Scraper, request_: bytes, status: bytes) -> None:
    found = answer(scraper, request_)
    assert found.startswith(b"HTTP/1.1 " + status + b"\r\n")
    assert (b"spamfilter_messages_total" in found) == (status == b"200 OK")
    assert request_[:40] not in found.replace(b"\r\n\r\n", b"")


def test_a_head_has_no_body(relay: Daemon, scraper: Scraper) -> None:
    found = answer(scraper, b"HEAD /metrics HTTP/1.1\r\n\r\n")
    assert found.startswith(b"HTTP/1.1 200 OK\r\n")
    assert found.endswith(b"\r\n\r\n")


def test_who_dawdles_takes_no_place_from_who_asks(relay: Daemon, scraper: Scraper, hop: Hop) -> None:
    with contextlib.ExitStack() as stack:
        slow = [
            stack.enter_context(socket.create_connection(("127.0.0.1", scraper.port), 30)) for _ in range(4 * PLACES)
        ]
        for sock in slow:
            with contextlib.suppress(ConnectionError):
                sock.sendall(b"GET /metrics HTTP/1.1\r\nX: ")
        assert scraper.value("resident_bytes") > 0
        for sock in slow[-PLACES + 2 :]:  # some still have their place; one asks and never reads
            with contextlib.suppress(ConnectionError):
                sock.sendall(b"x\r\n\r\n")
        account = Account(hop)
        assert account.send(relay.port).code == 250
        account.settle()
        assert scraper.value("sessions_total") > 0
        for sock in slow[:PLACES]:
            with contextlib.suppress(ConnectionError):
                assert sock.recv(1) == b""
    assert "Traceback" not in relay.log()


def test_without_an_address_there_is_no_endpoint(hop: Hop, tmp_path_factory: pytest.TempPathFactory) -> None:
    with daemon(tmp_path_factory.mktemp("silent"), hop) as silent:
        assert "metrics at" not in silent.log()
