"""What every front end is given, and what the daemon asks of it."""

import asyncio
import ipaddress
import logging
import socket
import ssl
from abc import ABC, abstractmethod
from collections.abc import Coroutine, MutableSet, Sequence
from dataclasses import dataclass, field
from typing import Any

from spamfilter.config.addresses import Network
from spamfilter.config.sections import Feedback, Limits
from spamfilter.errors import NextHopError
from spamfilter.learning.automatic_rules import Automatic
from spamfilter.learning.mark_queue import MarkQueue
from spamfilter.relay.journal import Journal
from spamfilter.relay.judging import Judge
from spamfilter.relay.limits.limit_log import LimitLog
from spamfilter.relay.limits.memory_budget import Memory
from spamfilter.relay.limits.shared_counters import Shared
from spamfilter.relay.metrics import Metrics
from spamfilter.relay.next_hops import Maildir, NextHop

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Relay:
    """The parts of a running relay. trusted, domains, feedback, limits and normalise may change while it runs.

    trusted: networks whose clients may relay anywhere and speak for others by XFORWARD.
    proxy_protocol: whether those clients begin with a PROXY header, and speak for another client by it.
    domains: what everybody else may address mail to, in lower case.
    handovers: messages on their way to the next hop; they outlive their client's connection.
    canaries: addresses, in lower case, each good for one mail that is judged and journalled and goes no further.
    memory: of all mails that are being received or handed over. excess: takes note of every limit that is hit.
    shared: what is one of all processes of the relay; canaries and memory are of it.
    """

    judge: Judge
    journal: Journal
    next_hop: NextHop
    quarantine: Maildir
    limits: Limits
    trusted: Sequence[Network]
    domains: frozenset[str]
    hostname: str
    mark_queue: MarkQueue
    feedback: Feedback
    automatic: Automatic
    tls: ssl.SSLContext | None = None
    normalise: bool = False
    proxy_protocol: bool = False
    draining: bool = False
    handovers: set[asyncio.Task[Any]] = field(default_factory=set)
    shared: Shared = field(default_factory=Shared)
    limit_log: LimitLog = field(default_factory=LimitLog)
    metrics: Metrics = field(init=False)
    memory: Memory = field(init=False)
    canaries: MutableSet[str] = field(init=False)

    def __post_init__(self) -> None:
        self.metrics = self.limit_log.metrics
        self.canaries = self.shared.canaries
        self.memory = Memory(self.limits.memory_bytes, self.shared)
        self.metrics.read_by("memory_bytes", lambda: self.memory.own)
        self.metrics.read_by("handovers", lambda: len(self.handovers))

    def failed(self, error: NextHopError) -> None:
        """Count a failure of the next hop. Whoever caught it has logged it."""
        if error.kind:
            self.metrics.count("next_hop_failures", error.kind)
        if error.limit:
            self.metrics.count("limits_hit", error.limit)

    def replied(self, code: int) -> None:
        """Count a reply to a client."""
        self.metrics.count("replies", f"{code // 100}xx")

    def trusts(self, address: str) -> bool:
        """Whether this IP address, as text, is in a trusted network."""
        try:
            client = ipaddress.ip_address(address.partition("%")[0])
        except ValueError:
            return False
        return any(client in network for network in self.trusted)

    def started(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Work that goes on by itself; the end of the relay waits for it."""
        task = asyncio.ensure_future(work)
        self.handovers.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self.handovers.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.debug("a hand-over ended with %r", task.exception())


class FrontEnd(ABC):
    """A protocol on listening sockets."""

    @abstractmethod
    async def start(self, sockets: Sequence[socket.socket], submission: Sequence[socket.socket] = ()) -> None:
        """Serve on these sockets, bound already; submission: those that only authenticated senders reach."""

    @abstractmethod
    async def drain(self) -> None:
        """Take no new connections or transactions; return when the running ones are done."""

    @abstractmethod
    def close(self) -> None:
        """End every connection at once."""
