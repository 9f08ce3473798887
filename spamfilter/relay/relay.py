"""The parts of a running relay that every front end is given."""

import asyncio
import logging
import ssl
from collections.abc import Coroutine, Iterable, MutableSet, Sequence
from dataclasses import dataclass, field
from typing import Any

from spamfilter.config.addresses import Network, is_in
from spamfilter.config.sections import Feedback, Limits
from spamfilter.errors import NextHopError
from spamfilter.learning.automatic_rules import Automatic
from spamfilter.learning.mark_queue import MarkQueue
from spamfilter.relay.journal import Journal
from spamfilter.relay.judging import Judge
from spamfilter.relay.limits.budget import Budget, Memory, conversations
from spamfilter.relay.limits.connections import LIMIT_REPLIES, Crowd
from spamfilter.relay.limits.limit_log import LimitLog
from spamfilter.relay.limits.shared_counters import Shared
from spamfilter.relay.metrics import Metrics
from spamfilter.relay.next_hops import Maildir, NextHop, Reply
from spamfilter.relay.sender_lists.decision import Lists
from spamfilter.stores import UNJUDGED, JournalEntry
from spamfilter.system.logs import Event

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Relay:
    """The parts of a running relay. trusted, domains, feedback, limits, lists, normalise and tls may change while it
    runs.

    trusted: networks whose clients may send mail to any address, and may name other clients by XFORWARD.
    proxy_protocol: whether clients in these networks begin with a PROXY header, which names another client.
    domains: the domains that all other clients may send mail to, in lower case.
    lists: allowed and blocked senders.
    background_tasks: hand-overs of messages, feedback mail that is being learnt, and answers to it; they go on when the
    client's connection ends.
    canaries: addresses of probes, in lower case; a mail to one of them is judged and journalled, but not delivered.
    memory, conversations: the budgets for all mails in flight, and for conversations with the next hop.
    crowd: the connected clients of all front ends. limit_log: the log of limits that are hit.
    shared: numbers and addresses in memory that all processes of the relay share, among them canaries and memory.
    """

    judge: Judge
    journal: Journal
    next_hop: NextHop
    quarantine_folder: Maildir
    limits: Limits
    trusted: Sequence[Network]
    domains: frozenset[str]
    hostname: str
    mark_queue: MarkQueue
    feedback: Feedback
    automatic: Automatic
    lists: Lists = field(default_factory=Lists)
    tls: ssl.SSLContext | None = None
    normalise: bool = False
    proxy_protocol: bool = False
    draining: bool = False
    background_tasks: set[asyncio.Task[Any]] = field(default_factory=set)
    shared: Shared = field(default_factory=Shared)
    limit_log: LimitLog = field(default_factory=LimitLog)
    metrics: Metrics = field(init=False)
    memory: Memory = field(init=False)
    conversations: Budget = field(init=False)
    canaries: MutableSet[str] = field(init=False)
    crowd: Crowd = field(init=False)

    def __post_init__(self) -> None:
        self.metrics = self.limit_log.metrics
        self.canaries = self.shared.canaries
        self.crowd = Crowd(self.shared)
        self.memory = Memory(self.limits.memory_bytes, self.shared, self.limits.message_size)
        self.conversations = conversations(self.shared)
        self.metrics.read_by("connections", lambda: len(self.crowd))
        self.metrics.read_by("memory_bytes", lambda: self.memory.own)
        self.metrics.read_by("handovers", lambda: len(self.background_tasks))

    def failed(self, error: NextHopError) -> None:
        """Count a failure of the next hop. The caller logs it."""
        if error.kind:
            self.metrics.count("next_hop_failures", error.kind)
        if error.limit:
            self.metrics.count("limits_hit", error.limit)

    def record(self, entry: JournalEntry, defects: Iterable[str] = ()) -> None:
        """Write a mail into log and journal. defects: of its structure."""
        facts: dict[str, str | int | float] = {
            "client": entry.client,
            "from": entry.sender,
            "to": entry.recipients[0] if entry.recipients else "",
            "recipients": len(entry.recipients),
        }
        if entry.class_ == UNJUDGED:
            facts |= {"class": UNJUDGED, "action": entry.action}
        else:
            facts |= {
                "size": entry.size,
                "class": entry.class_,
                "score": entry.score,
                "action": entry.action,
                "listed": entry.listed.replace(" ", ",") or "-",
                "judge_us": entry.judge_us,
                "total_us": entry.total_us,
                "defects": ",".join(defects) or "-",
            }
        log.info(Event(entry.id, {**facts, "reply": entry.reply}))
        self.journal.add(entry)

    def over(self, limit: str, client: str) -> Reply:
        """Count a client's excess over a limit, and return the reply that the client hears."""
        reply = LIMIT_REPLIES[limit]
        self.limit_log.noted(limit, f"{client} hears {reply.text}")
        return reply

    def replied(self, code: int) -> None:
        self.metrics.count("replies", f"{code // 100}xx")

    def trusts(self, address: str) -> bool:
        """Whether this IP address, as text, is in a trusted network."""
        return is_in(address, self.trusted)

    def in_background(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Start a task that does not end with its client; the relay waits for it when it stops."""
        task = asyncio.ensure_future(work)
        self.background_tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self.background_tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.debug("a task in the background ended with %r", task.exception())
