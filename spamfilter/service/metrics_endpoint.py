"""The metrics over HTTP, as Prometheus reads them: GET /metrics.

Guarantee: each client has limits of bytes and time, and when PLACES connections are open a new one replaces the oldest.
So a client that asks and reads at once is always served, however many slow ones there are. No mail waits for any.
Format: https://prometheus.io/docs/instrumenting/exposition_formats/, by the library prometheus-client.
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from spamfilter.relay.metrics import METRICS, Snapshot

log = logging.getLogger(__name__)

PREFIX = "spamfilter_"
TEXT = "text/plain; version=0.0.4; charset=utf-8"
"""The format that every Prometheus reads."""
MAX_REQUEST = 8192
"""Bytes of a request with its header: what web servers allow."""
SECONDS = 5.0
"""Time for a request to arrive and its answer to be read: half of what Prometheus waits."""
PLACES = 20
"""Connections at a time; a scraper needs one for some milliseconds."""


class MetricsFrontEnd(Collector):
    """Serves the metrics that `snapshot` returns on any number of sockets."""

    def __init__(self, snapshot: Callable[[], Snapshot]) -> None:
        self._snapshot = snapshot
        self._servers: list[asyncio.Server] = []
        self._open: list[asyncio.StreamWriter] = []

    async def start(self, sockets: Sequence[socket.socket]) -> None:
        """Serve on these sockets, bound already."""
        for sock in sockets:
            self._servers.append(await asyncio.start_server(self._serve, sock=sock, limit=MAX_REQUEST))

    def close(self) -> None:
        """End every connection at once."""
        for server in self._servers:
            server.close()
        for writer in self._open:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._open) >= PLACES:
            self._open.pop(0).transport.abort()
        self._open.append(writer)
        writer.transport.set_write_buffer_limits(0)  # so that drain waits until all is sent
        try:
            async with asyncio.timeout(SECONDS):
                writer.write(self._answer(await _request(reader)))
                await writer.drain()
            writer.close()
        except (ConnectionError, TimeoutError, EOFError):
            writer.transport.abort()
        except Exception:
            log.exception("metrics: a request failed")
            writer.transport.abort()
        finally:
            if writer in self._open:
                self._open.remove(writer)

    def _answer(self, request: bytes) -> bytes:
        method, _, rest = request.partition(b" ")
        path, _, version = rest.partition(b" ")
        if not version.startswith(b"HTTP/1."):
            return _response("400 Bad Request", b"not HTTP\n")
        if method not in (b"GET", b"HEAD"):
            return _response("405 Method Not Allowed", b"GET alone\n", "Allow: GET, HEAD\r\n")
        if path.partition(b"?")[0] != b"/metrics":
            return _response("404 Not Found", b"see /metrics\n")
        return _response("200 OK", generate_latest(self), whole=method == b"GET")

    def collect(self) -> Iterator[Metric]:
        """The metrics of METRICS as the library wants them."""
        for name, rows in self._snapshot().items():
            metric = METRICS[name]
            if metric.kind == "histogram":
                bounds = [*map(str, metric.bounds), "+Inf"]
                histogram = HistogramMetricFamily(PREFIX + name, metric.help, labels=list(metric.labels))
                for labels, (*buckets, total) in rows.items():
                    histogram.add_metric(list(labels), list(zip(bounds, accumulate(buckets), strict=True)), total)
                yield histogram
                continue
            family = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
            plain = family(PREFIX + name, metric.help, labels=list(metric.labels))
            for labels, (value,) in rows.items():
                plain.add_metric(list(labels), value)
            yield plain


async def _request(reader: asyncio.StreamReader) -> bytes:
    """The first line of a request, once its header has arrived; empty if that is too long. Raises EOFError."""
    try:
        header = await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError:
        return b""
    return header.partition(b"\r\n")[0]


def _response(status: str, body: bytes, fields: str = "", *, whole: bool = True) -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {TEXT}\r\nContent-Length: {len(body)}\r\n{fields}"
        "Connection: close\r\nX-Content-Type-Options: nosniff\r\nCache-Control: no-store\r\n\r\n"
    )
    return head.encode("ascii") + (body if whole else b"")
