"""The table of metrics: counting, wrong names, several processes together, and the documentation."""

import re
from pathlib import Path

import pytest

from spamfilter.bayes.labels import AUTOMATIC, BULK, CANARY, COUNTERPART, IMPORT
from spamfilter.relay.limits.limit_log import LimitLog
from spamfilter.relay.metrics import FAILURES, METRICS, SOURCES, Metrics, merged
from spamfilter.service.control_socket.mark_requests import SOURCES as SOCKET_SOURCES
from spamfilter.service.metrics_endpoint import PREFIX

PAGE = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text(encoding="utf-8")
NEXT_HOPS = Path(__file__).parents[2] / "spamfilter" / "relay" / "next_hops"


def test_what_the_table_does_not_have_is_an_error() -> None:
    metrics = Metrics()
    with pytest.raises(KeyError):
        metrics.count("mesages", "ham", "pass")
    with pytest.raises(KeyError):
        metrics.count("messages", "ham")
    with pytest.raises(KeyError):
        metrics.count("messages", "ham", "<script>")
    with pytest.raises(KeyError):
        metrics.read_by("learnt", lambda: 1, "unsure")


def test_a_value_falls_into_the_bucket_of_the_next_bound() -> None:
    metrics = Metrics()
    for score in (0.0, 0.5, 0.95, 0.951, 1.0):
        metrics.observe("score", score)
    *buckets, total = metrics.snapshot()["score"][()]
    found = {bound: number for bound, number in zip(METRICS["score"].bounds, buckets, strict=False) if number}
    assert found == {0.001: 1, 0.5: 1, 0.95: 1, 0.99: 1, 1.0: 1}
    assert total == pytest.approx(3.401)
    metrics.observe("judge_seconds", 1e6)
    assert metrics.snapshot()["judge_seconds"][()][-2:] == [1, 1e6]


def test_several_processes_are_one() -> None:
    one, other = Metrics(), Metrics()
    for metrics, number in ((one, 1), (other, 2)):
        metrics.count("messages", "ham", "pass", by=number)
        metrics.observe("score", 0.5)
        metrics.read_by("connections", lambda number=number: number)  # type: ignore[misc]  # a default binds it
    both = merged([one.snapshot(), other.snapshot()])
    assert both["messages"]["ham", "pass"] == [3]
    assert both["score"][()][7] == 2
    assert both["score"][()][-1] == 1.0
    assert both["connections"][()] == [3]
    assert merged([one.snapshot()]) == one.snapshot()
    assert one.snapshot()["messages"]["ham", "pass"] == [1]


def test_every_source_is_counted_by_its_name() -> None:
    nobodys = {BULK, AUTOMATIC, COUNTERPART, CANARY, IMPORT}
    assert {*nobodys, *SOCKET_SOURCES, "address", "release", "web"} == set(SOURCES) - {"other"}


def test_every_kind_of_failure_is_one_that_a_next_hop_names() -> None:
    sources = "".join(path.read_text(encoding="utf-8") for path in NEXT_HOPS.glob("*.py"))
    named = set(re.findall(r'"(unreachable|timeout|closed|protocol|tls|disk)"', sources))
    assert {*named, "4xx", "5xx"} == set(FAILURES)


def test_the_page_and_the_table_name_the_same() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| ([^|]*)\| ([^|]+?) \|$", PAGE, re.MULTILINE)
    documented = [(name, kind, tuple(re.findall(r"`(\w+)`", labels)), help) for name, kind, labels, help in rows]
    table = [
        (PREFIX + name + ("_total" if metric.kind == "counter" else ""), metric.kind, tuple(metric.labels), metric.help)
        for name, metric in METRICS.items()
    ]
    assert documented == table


def test_the_page_and_the_table_name_the_same_values_of_labels() -> None:
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \|$", PAGE.partition("## Labels")[2], re.MULTILINE)
    documented = {name: set(re.findall(r"`(\w+)`", values)) for name, values in rows}
    table: dict[str, set[str]] = {}
    for metric in METRICS.values():
        for label, values in metric.labels.items():
            table.setdefault(label, set()).update(values)
    assert documented.pop("limit") == {"marks_a_day", "automatic"}
    table.pop("limit")
    assert documented == table


def test_a_flood_is_one_line_and_then_one_a_period(caplog: pytest.LogCaptureFixture) -> None:
    excess = LimitLog()
    for number in range(100):
        excess.noted("connections", f"client {number}")
    excess.noted("errors", "another")
    assert caplog.messages == ["limit connections: client 0", "limit errors: another"]
    excess.sum_up()
    assert caplog.messages[2:] == ["limit connections: 99 times more in the last 10 s"]
    excess.noted("connections", "goes on")
    excess.noted("errors", "once more")
    assert caplog.messages[3:] == ["limit errors: once more"]
    excess.sum_up()
    excess.sum_up()
    excess.noted("connections", "again")
    assert caplog.messages[4:] == ["limit connections: 1 times more in the last 10 s", "limit connections: again"]
    assert excess.metrics.value("limits_hit", "connections") == 102
