"""The metrics of a running relay, as Prometheus would read them."""

import urllib.request
from collections.abc import Mapping
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from spamfilter.relay.metrics import METRICS
from tests.faults.daemon import Daemon
from tests.integration.servers import free_port, wait_until

PREFIX = "spamfilter_"


class Scraper:
    """A place where a relay shows its metrics. settings: to be given to the relay."""

    def __init__(self) -> None:
        self.port = free_port()
        self.settings: Mapping[str, Any] = {"listen": f"127.0.0.1:{self.port}"}

    def text(self) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=30) as answer:
            content: bytes = answer.read()
        return content.decode()

    def read(self) -> dict[str, dict[tuple[str, ...], float]]:
        """Name without prefix -> values of the labels -> number."""
        found: dict[str, dict[tuple[str, ...], float]] = {}
        for family in text_string_to_metric_families(self.text()):
            for sample in family.samples:
                name = sample.name.removeprefix(PREFIX)
                metric = METRICS.get(name.removesuffix("_total"))
                labels = tuple(metric.labels) if metric else tuple(sample.labels)  # the library sorts them
                found.setdefault(name, {})[tuple(sample.labels[label] for label in labels)] = sample.value
        return found

    def value(self, name: str, *labels: str) -> float:
        return self.read()[name][labels]

    def hits(self, limit: str) -> float:
        """How often a limit was hit."""
        return self.value("limits_hit_total", limit)


def assert_hit(relay: Daemon, scraper: Scraper, limit: str, before: float = 0) -> None:
    """A limit was hit once more than `before`, or more often, and the log names it."""
    wait_until(lambda: scraper.hits(limit) > before, f"{limit} in the metrics")
    assert f"limit {limit}: " in relay.log()
