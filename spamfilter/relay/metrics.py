"""The metrics of the relay. METRICS is their table, with help and labels.

Guarantee: a metric or a label that is not in the table raises an error, so neither a typing error nor content of a mail
makes a new series. Counting costs a look-up and an addition; everything else happens when the metrics are read.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Literal

from spamfilter.bayes.labels import IMPORT, LABELS
from spamfilter.bayes.verdict import ACTIONS, CLASSES
from spamfilter.config.sections import Limits

Kind = Literal["counter", "gauge", "histogram"]
Labels = tuple[str, ...]
Snapshot = dict[str, dict[Labels, list[float]]]
"""Metric -> label values -> its number; for a histogram the numbers of its buckets, and then the sum."""

SECONDS = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 100.0, 600.0, 3600.0,
)  # fmt: skip
"""From a millisecond, the verdict on a small mail, to an hour, a slow client; Postfix waits 100 s for a filter."""
STAGE_SECONDS = (0.0001, 0.00025, 0.0005, *SECONDS[:-2])
"""A small mail is parsed in a tenth of a millisecond."""
SCORES = (0.001, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 0.999, 1.0)
"""The default thresholds are among them: 0.5, 0.9, 0.999."""

LIMITS = (*Limits.model_fields, "marks_a_day", "automatic")
"""The keys of [limits], and of [feedback] marks_a_day and automatic, whose queue has a fixed length."""
FAILURES = ("unreachable", "timeout", "closed", "protocol", "tls", "disk", "4xx", "5xx")
"""Kinds of failure; the last two are replies of a next hop that defers or rejects a message."""
SOURCES = (
    "train", "cli", "imap", "review", "address", "automatic", "counterpart", "canary", "release", "web", "import",
    "other",
)  # fmt: skip
"""Sources of ledger entries; any other source counts as "other"."""
STAGES = ("receive", "parse", "tokens", "score", "next_hop")
"""The stages of a message, in this order."""
FAULTS = ("journal", "ledger", "feedback", "judge", "hand_over", "session", "background")
"""Parts of the relay that can fail; in the first three the database is the usual cause."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A row of the table.

    labels: name -> every value it may have. bounds: upper ones of a histogram's buckets. Where a relay has several
    processes, its number is the sum of theirs; what is one for all, such as the words, only one process has.
    """

    kind: Kind
    help: str
    labels: Mapping[str, Sequence[str]] = field(default_factory=dict)
    bounds: Sequence[float] = ()

    def series(self) -> Iterable[Labels]:
        """All combinations of label values."""
        return product(*self.labels.values())


METRICS: dict[str, Metric] = {
    "messages": Metric(
        "counter",
        "Verdicts on messages, as many as entries of the journal with one; by LMTP a message may have several.",
        {"class": CLASSES, "action": ACTIONS},
    ),
    "rules_met": Metric(
        "counter",
        "Messages with a rule on their sender, by the lists of senders.",
        {"rule": ("blocked", "allowed", "unproved")},
    ),
    "message_bytes": Metric("counter", "Bytes of the messages judged, of each message once."),
    "sessions": Metric("counter", "Connections of clients that were greeted, and of mail servers by milter."),
    "replies": Metric(
        "counter",
        "SMTP replies to clients, also those that a mail server is told by milter.",
        {"code": ("2xx", "3xx", "4xx", "5xx")},
    ),
    "final_replies": Metric(
        "counter",
        "The final reply to each message, also to one that never came to its text; 2xx if any recipient was accepted,"
        " else 4xx if any was deferred.",
        {"code": ("2xx", "4xx", "5xx")},
    ),
    "limits_hit": Metric("counter", "Times that a limit of the configuration was hit.", {"limit": LIMITS}),
    "next_hop_failures": Metric(
        "counter",
        "Failures of the next hop: it is unreachable, is slow, closes the connection, sends no SMTP, or refuses a"
        " message.",
        {"kind": FAILURES},
    ),
    "marks": Metric(
        "counter",
        "Entries of the ledger that the relay has taken in while it ran: what was learnt, or taken back.",
        {"label": (*LABELS, IMPORT, "forget"), "source": SOURCES},
    ),
    "journal_written": Metric("counter", "Entries of the journal written to the database."),
    "journal_dropped": Metric("counter", "Entries of the journal that were lost for want of a database."),
    "faults": Metric("counter", "Faults of the relay and of its database, by the part that failed.", {"part": FAULTS}),
    "judge_seconds": Metric("histogram", "Seconds to judge a message.", bounds=SECONDS),
    "hand_over_seconds": Metric(
        "histogram", "Seconds from the end of a message to its reply, the verdict included.", bounds=SECONDS
    ),
    "stage_seconds": Metric("histogram", "Seconds of a stage of a message.", {"stage": STAGES}, bounds=STAGE_SECONDS),
    "transaction_seconds": Metric("histogram", "Seconds from MAIL to the reply to the message.", bounds=SECONDS),
    "score": Metric("histogram", "Probabilities of spam of the messages judged.", bounds=SCORES),
    "connections": Metric("gauge", "Connections of SMTP clients, and of mail servers by milter."),
    "feedback_connections": Metric("gauge", "Connections to the feedback socket."),
    "memory_bytes": Metric("gauge", "Bytes of mail in flight: being received, or on their way to the next hop."),
    "handovers": Metric(
        "gauge",
        "Messages that are being judged or handed over, feedback mail that is being learnt, and answers to it that are"
        " being sent.",
    ),
    "journal_waiting": Metric("gauge", "Entries of the journal that wait to be written."),
    "journal_failing": Metric("gauge", "Processes of the relay that could not write their journal at the last try."),
    "ledger_lag_seconds": Metric("gauge", "Seconds since the relay last knew all that was learnt."),
    "words": Metric("gauge", "Words that the relay judges by, of all voices."),
    "learnt": Metric("gauge", "Messages learnt that the relay judges by.", {"label": LABELS}),
    "resident_bytes": Metric("gauge", "Memory of the relay."),
}


def _numbers(metric: Metric) -> int:
    """How many numbers a series of this metric has."""
    return len(metric.bounds) + 2 if metric.bounds else 1


FIGURES = sum(_numbers(metric) for metric in METRICS.values() for _ in metric.series())
"""How many numbers all metrics have together."""


class Metrics:
    """The figures of one process.

    memory: FIGURES numbers in shared memory, which other processes read. Counters go on from the values there.
    """

    def __init__(self, memory: "memoryview[float] | None" = None) -> None:
        figures = memoryview(bytearray(8 * FIGURES)).cast("d") if memory is None else memory
        self._values: dict[str, dict[Labels, memoryview[float]]] = {}
        start = 0
        for name, metric in METRICS.items():
            rows, size = self._values.setdefault(name, {}), _numbers(metric)
            for labels in metric.series():
                rows[labels] = figures[start : start + size]
                start += size
        self._read: dict[tuple[str, Labels], Callable[[], float]] = {}

    def count(self, name: str, *labels: str, by: float = 1) -> None:
        """Add to a counter. Two threads must not count the same series at the same time."""
        self._values[name][labels][0] += by

    def observe(self, name: str, value: float, *labels: str) -> None:
        """Add a value to a histogram."""
        row = self._values[name][labels]
        row[bisect_left(METRICS[name].bounds, value)] += 1
        row[-1] += value

    def read_by(self, name: str, read: Callable[[], float], *labels: str) -> None:
        """Register the function that returns a gauge, or a counter of another part, when the metrics are read."""
        row = self._values[name][labels]
        before = row[0] if METRICS[name].kind == "counter" else 0
        self._read[name, labels] = (lambda: before + read()) if before else read

    def value(self, name: str, *labels: str) -> float:
        read = self._read.get((name, labels))
        return read() if read else self._values[name][labels][0]

    def publish(self) -> None:
        """Write the values of registered functions to the memory."""
        for (name, labels), read in self._read.items():
            self._values[name][labels][0] = read()

    def clear_gauges(self) -> None:
        """Set the gauges of a process that has exited to 0; its counters stay."""
        for name, rows in self._values.items():
            if METRICS[name].kind == "gauge":
                for row in rows.values():
                    row[0] = 0

    def snapshot(self) -> Snapshot:
        """A copy of all figures."""
        self.publish()
        return {name: {labels: list(row) for labels, row in rows.items()} for name, rows in self._values.items()}


def merged(snapshots: Sequence[Snapshot]) -> Snapshot:
    """The figures of several processes together."""
    return {
        name: {labels: [*map(sum, zip(*(each[name][labels] for each in snapshots), strict=True))] for labels in rows}
        for name, rows in snapshots[0].items()
    }
