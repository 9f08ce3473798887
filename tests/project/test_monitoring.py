"""The alerts and the dashboard: they ask for metrics that there are, and the alerts fire where they should."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spamfilter.relay.metrics import METRICS
from spamfilter.service.metrics_endpoint import PREFIX
from spamfilter.system.packaged_files import shipped
from tests.support.real import require

RULES = shipped("config/prometheus/spamfilter.yml")
DASHBOARD = json.loads(shipped("config/grafana/spamfilter.json").read_text())
SUFFIXES = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}
SERIES = {PREFIX + name + suffix: metric for name, metric in METRICS.items() for suffix in SUFFIXES[metric.kind]}
OTHERS = {"instance", "job", "le"}


def queries(value: Any) -> Iterator[str]:
    """All expressions of a dashboard."""
    if isinstance(value, dict):
        yield from (text for key, text in value.items() if key in ("expr", "definition") and isinstance(text, str))
        for part in value.values():
            yield from queries(part)
    elif isinstance(value, list):
        for part in value:
            yield from queries(part)


@pytest.mark.parametrize(
    "text", [*queries(DASHBOARD), *re.findall(r"expr:((?:.|\n)+?)(?:for|labels):", RULES.read_text())]
)
def test_what_is_asked_for_is_there(text: str) -> None:
    asked = re.findall(rf"({PREFIX}\w+)(?:{{([^}}]*)}})?", text)
    assert asked or "up{" in text
    for name, selected in asked:
        assert name in SERIES, name
        for label, values in re.findall(r'(\w+)[=!]~?"([^"]*)"', selected):
            assert label in OTHERS | SERIES[name].labels.keys(), (name, label)
            if label in SERIES[name].labels:
                assert set(values.split("|")) <= set(SERIES[name].labels[label]), (name, label, values)
    for grouped in re.findall(r"by \(([^)]*)\)", text):
        labels = {label for name, _ in asked for label in SERIES[name].labels} | OTHERS
        assert set(grouped.split(", ")) <= labels, text


def test_every_metric_is_on_the_dashboard() -> None:
    shown = " ".join(queries(DASHBOARD))
    assert [name for name in METRICS if PREFIX + name not in shown] == []


def test_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells


@pytest.mark.parametrize("arguments", [("check", "rules", str(RULES)), ("test", "rules", "alerts.yml")])
def test_the_alerts_fire_where_they_should(arguments: tuple[str, ...]) -> None:
    done = subprocess.run(
        [require("promtool", "prometheus"), *arguments],
        cwd=Path(__file__).parent, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "SUCCESS" in done.stdout


def test_every_alert_says_what_to_do() -> None:
    alerts = RULES.read_text().split("- alert: ")[1:]
    assert len(alerts) > 5
    for alert in alerts:
        assert re.search(r"severity: (page|ticket)", alert), alert
        assert "summary: " in alert
        assert "action: " in alert
