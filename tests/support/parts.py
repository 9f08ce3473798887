"""Both neighbours of the relay on real sockets: a client, and a next hop that can be told to misbehave."""

import asyncio
import ipaddress
import re
import ssl
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from spamfilter.bayes.verdict import Policy
from spamfilter.config.addresses import Network
from spamfilter.config.sections import Feedback, Limits
from spamfilter.config.settings import Settings
from spamfilter.learning.automatic_rules import Automatic
from spamfilter.learning.filter import Filter
from spamfilter.learning.mark_queue import MarkQueue
from spamfilter.relay.front_ends import FrontEnds
from spamfilter.relay.journal import Journal
from spamfilter.relay.judging import Judge
from spamfilter.relay.next_hops import Maildir, NextHop, Timeouts, open_next_hop
from spamfilter.relay.relay import Relay
from spamfilter.relay.sender_lists.decision import Lists
from spamfilter.service.listening import bound
from spamfilter.stores import JournalEntry, Store
from tests.support.made import follow
from tests.support.memory_store import open_store

KEYWORDS = ("PIPELINING", "SIZE 10240000", "8BITMIME", "SMTPUTF8", "DSN", "ENHANCEDSTATUSCODES")
LOCAL = (ipaddress.ip_network("127.0.0.0/8"),)


class Hop:
    """A next hop. replies: first word or whole line -> what to answer instead of the usual.

    An answer may be bytes (whole lines), or 'close', 'hang'; delays: seconds before it. received: command
    lines; messages: what came after DATA, as on the wire, without the end. A client that says LHLO gets a reply to the
    message for each recipient, 'DOT TO:<b@example.test>' in replies.
    """

    def __init__(self, keywords: tuple[str, ...] = KEYWORDS) -> None:
        self.keywords = keywords
        self.replies: dict[str, bytes] = {}
        self.received: list[bytes] = []
        self.messages: list[bytes] = []
        self.delays: dict[str, float] = {}
        self.connections = 0
        self.open = 0
        self.aborted = 0
        self.before_final: Callable[[], Awaitable[None]] | None = None
        self.tls: ssl.SSLContext | None = None
        self.port = 0
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "Hop":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=2**20)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        self.open += 1
        try:
            await self._dialogue(reader, writer)
        except (ConnectionError, ssl.SSLError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            self.open -= 1
            writer.close()

    async def _dialogue(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not await self._answer(writer, "CONNECT", b"220 hop.test ESMTP\r\n"):
            return
        recipients: list[str] = []
        lmtp = False
        while line := await reader.readline():
            line = line.rstrip(b"\r\n")
            self.received.append(line)
            verb = line.split(b" ")[0].upper().decode("ascii", "replace")
            usual = b"250 2.0.0 Ok\r\n"
            if verb in ("EHLO", "LHLO"):
                lmtp = verb == "LHLO"
                usual = b"".join(b"250-%s\r\n" % word.encode() for word in ("hop.test", *self.keywords))
                usual += b"250 HELP\r\n"
            elif verb == "DATA":
                usual = b"354 go on\r\n"
            elif verb == "STARTTLS" and self.tls is not None:
                writer.write(b"220 go ahead\r\n")
                await writer.start_tls(self.tls)
                continue
            elif verb == "QUIT":
                usual = b"221 bye\r\n"
            name = line.decode("utf-8", "replace")
            known = name if name in self.replies else verb
            if not await self._answer(writer, known, usual):
                return
            if verb in ("MAIL", "RSET"):
                recipients.clear()
            elif verb == "RCPT" and self.replies.get(known, usual).startswith(b"2"):
                recipients.append(name[5:].partition(" ")[0])
            if verb == "DATA" and self.replies.get("DATA", b"354")[:3] == b"354":
                await self._message(reader, writer, recipients if lmtp else [""])

    async def _message(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, recipients: Sequence[str]
    ) -> None:
        content = b"\r\n"
        while not content.endswith(b"\r\n.\r\n"):
            block = await reader.read(65536)
            if not block:
                self.aborted += 1
                raise ConnectionError
            content += block
        self.messages.append(content[2:-3])
        if self.before_final is not None:
            await self.before_final()
        for recipient in recipients:
            name = f"DOT {recipient}"
            known = name if name in self.replies else "DOT"
            if not await self._answer(writer, known, b"250 2.0.0 Ok: queued as 4711\r\n"):
                raise ConnectionError

    async def _answer(self, writer: asyncio.StreamWriter, name: str, usual: bytes) -> bool:
        answer = self.replies.get(name, usual)
        await asyncio.sleep(self.delays.get(name.split(" ")[0], 0))
        if answer == b"close":
            return False
        if answer == b"hang":
            await asyncio.sleep(3600)
        writer.write(answer)
        await writer.drain()
        return True


class Client:
    """A client of SMTP or LMTP that sees every byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, hello: str = "EHLO") -> None:
        self.hello = hello
        self.reader = reader
        self.writer = writer

    async def reply(self) -> bytes:
        """The next reply, all its lines; b'' at the end of the connection."""
        reply = b""
        while line := await asyncio.wait_for(self.reader.readline(), 20):
            reply += line
            if line[3:4] != b"-":
                break
        return reply

    async def ask(self, *lines: bytes | str) -> bytes:
        """Send lines and return the reply to the last of them; the others' are read and dropped."""
        reply = b""
        for line in lines:
            self.writer.write((line.encode() if isinstance(line, str) else line) + b"\r\n")
            await self.writer.drain()
            reply = await self.reply()
        return reply

    async def envelope(self, sender: str = "a@example.org", *recipients: str) -> bytes:
        """EHLO or LHLO, MAIL and RCPT; the reply to the last."""
        names = recipients or ("b@example.test",)
        return await self.ask(
            f"{self.hello} client.example", f"MAIL FROM:<{sender}>", *(f"RCPT TO:<{name}>" for name in names)
        )

    async def send(self, mail: bytes, sender: str = "a@example.org", *recipients: str) -> bytes:
        """A whole transaction with a mail whose lines end with CR LF; the reply after the dot."""
        await self.envelope(sender, *recipients)
        assert (await self.ask("DATA")).startswith(b"354")
        self.writer.write(re.sub(rb"(?m)^\.", b"..", mail) + b".\r\n")
        await self.writer.drain()
        return await self.reply()

    def close(self) -> None:
        self.writer.close()


class Running:
    """A relay that runs in this event loop, on a port or on a path. connect: a new client, greeted."""

    def __init__(self, relay: Relay, store: Store, port: int, path: Path | None = None, door: str = "smtp") -> None:
        self.door = door
        self.relay = relay
        self.store = store
        self.port = port
        self.path = path
        self.clients: list[Client] = []

    async def connect(self, *, greet: bool = True, tls: ssl.SSLContext | None = None) -> Client:
        hello = {"smtp": "EHLO", "lmtp": "LHLO"}[self.door]
        if self.path is not None:
            client = Client(*await asyncio.open_unix_connection(self.path, limit=2**20), hello)
        else:
            client = Client(*await asyncio.open_connection("127.0.0.1", self.port, limit=2**20), hello)
        self.clients.append(client)
        if greet:
            assert (await client.reply()).startswith(b"220 ")
        return client

    def journal(self) -> list[str]:
        """Actions of the journal's entries, oldest first."""
        return [entry.action for entry in self.entries()]

    def entries(self) -> list[JournalEntry]:
        """The journal, oldest first: what was written, and what waits to be."""
        self.relay.journal.write()
        now = datetime.now(UTC)
        return self.store.journal(now - timedelta(days=1), now + timedelta(days=1))


@asynccontextmanager
async def relaying(
    folder: Path,
    next_hop: NextHop | str,
    *,
    policy: Policy | None = None,
    limits: Limits | None = None,
    timeouts: Timeouts | None = None,
    trusted: Sequence[Network] = LOCAL,
    domains: frozenset[str] = frozenset(),
    normalise: bool = False,
    tls: ssl.SSLContext | None = None,
    filter: Filter | None = None,
    feedback: Feedback | None = None,
    submission: bool = False,
    proven: bool = False,
    proxy_protocol: bool = False,
    policies: Mapping[str, Policy] | None = None,
    lists: Lists | None = None,
    door: str = "smtp",
    path: bool = False,
) -> AsyncIterator[Running]:
    """A relay with a store in memory in front of a next hop, on a free port.

    submission: for authenticated senders. proven: for those of a mail server that the kernel knows, on a path. door: a
    row of FRONT_ENDS. path: it listens on a path.
    """
    store = filter.store if filter else open_store("memory:")
    hop = (
        open_next_hop(next_hop, "relay.test", None, timeouts or Timeouts(2, 2, 2))
        if isinstance(next_hop, str)
        else next_hop
    )
    filter = filter or Filter(store, Settings().voices())
    desk = MarkQueue(filter, Feedback(), learnt=lambda: follow(filter))
    relay = Relay(
        judge=Judge(filter, policy or Policy(), policies),
        journal=Journal(store),
        next_hop=hop,
        quarantine_folder=Maildir(folder / "quarantine"),
        limits=limits or Limits(),
        trusted=trusted,
        domains=domains,
        hostname="relay.test",
        mark_queue=desk,
        feedback=feedback or Feedback(),
        lists=lists or Lists(),
        automatic=Automatic(desk, store),
        tls=tls,
        normalise=normalise,
        proxy_protocol=proxy_protocol,
    )
    short = tempfile.TemporaryDirectory()  # a test's own folder may have too long a name for a socket
    Path(short.name).chmod(0o755)
    place = Path(short.name) / "x.sock" if proven or path else None
    (sock,) = bound("relay.listen", "127.0.0.1:0" if place is None else f"unix:{place}")
    front_ends = FrontEnds(relay)
    await front_ends.start(door, [sock], submission=submission or proven)
    running = Running(relay, store, 0 if place else sock.getsockname()[1], place, door)
    try:
        yield running
    finally:
        for client in running.clients:
            client.close()
        front_ends.close()
        hop.close()
        for _ in range(100):
            if not relay.background_tasks:
                break
            await asyncio.sleep(0.05)
        relay.automatic.close()
        await asyncio.to_thread(desk.close)
        await asyncio.sleep(0.02)
        short.cleanup()
