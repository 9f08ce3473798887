"""The feedback socket: local users teach a running relay without the right to touch its database.

Who they are, the kernel says (SO_PEERCRED); for others speaks only who is named in [feedback] proxies. One JSON object
a line, answered by one; docs/json.md describes them. What is no request is answered and ends the connection, so that
no byte of a mail is ever taken for a request.

Guarantee: a user has a bounded share of connections, bytes and time, whatever they send. A mark that was begun is
answered, also when the relay stops.
"""

import asyncio
import json
import logging
import os
import pwd
import socket
import struct
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from spamfilter.bayes.labels import LABELS, Label
from spamfilter.config.sections import Feedback, Limits
from spamfilter.errors import ConfigError, InputError, Refused, SpamfilterError, StoreError, TryAgain
from spamfilter.learning.mark_queue import Desk
from spamfilter.learning.marks import Author
from spamfilter.relay.limits.limit_log import Excess
from spamfilter.reports import rendering
from spamfilter.service.control_socket.client import LOOKED_AT
from spamfilter.system import unix_socket
from spamfilter.system.escaping import printable

log = logging.getLogger(__name__)

MAX_LINE = 32_768
"""Bytes of a request: the longest path of a file, 4,096 bytes, each six as JSON writes what is not ASCII; and room."""
IDLE_SECONDS = 60.0
"""For a request to come in whole, and for its answer to be read."""
NAMES = 1000
"""Login names that are kept in memory."""
BACKLOG = 50
"""Connections that the kernel holds, that are taken at a time, and whose users are being looked up."""
PAUSE = 0.05
"""Seconds that a user waits after what taught nothing, on all connections together: mail needs the processor, too."""
STOP_SECONDS = 15.0
"""For marks that have begun when the relay stops: longer than the database's busy timeout."""
LONGEST_BY = 200
SOURCES = ("cli", "imap", "review", "web")
"""Ways that a client may name, the last the administrator's web page; the others are not for it to claim."""
_CREDENTIALS = struct.Struct("iII")
"""Process, user and group: unix(7). The latter two are no signed numbers."""

Answer = dict[str, Any]


class _Unreadable(InputError):
    """What came is no request; where the next one begins is not known."""


class FeedbackSocket:
    """The socket, and who may use it. `settings` and `limits` may be replaced while it runs.

    commands: what only the administrator may ask beside marks, by name.
    """

    def __init__(
        self,
        path: Path,
        desk: Desk,
        settings: Feedback,
        commands: Mapping[str, Callable[[Answer], Awaitable[Answer]]],
        limits: Limits | None = None,
        excess: Excess | None = None,
    ) -> None:
        self.path = path
        self.desk = desk
        self.settings = settings
        self.limits = limits or Limits()
        self.excess = excess or Excess()
        self.masters_commands = commands
        self._server: asyncio.Server | None = None
        self._file: tuple[int, int] | None = None
        self._connections: dict[asyncio.Task[None], _Connection] = {}
        self._turns: dict[int, asyncio.Lock] = {}
        self._names: dict[int, str] = {}
        # One at a time, and beside what mail needs threads for: a name service may be slow.
        self._name_service = ThreadPoolExecutor(1, "names")

    async def start(self) -> None:
        """Listen. Raises ConfigError where somebody else does already, or the path is no place for a socket."""
        try:
            sock = unix_socket.bound(self.path)
        except ConfigError as error:
            raise ConfigError(f"feedback.socket = {str(self.path)!r}: {error}") from error
        self._file = unix_socket.identity(self.path)
        self._server = await asyncio.start_unix_server(self._serve, sock=sock, limit=MAX_LINE, backlog=BACKLOG)

    async def close(self) -> None:
        """Take no more requests. Marks that have begun are answered, which the desk must be closed for beside this."""
        if self._server is None:
            return
        self._server.close()
        if unix_socket.identity(self.path) == self._file:
            with suppress(OSError):  # left behind, it is taken over by the next relay
                self.path.unlink()
        for task, connection in self._connections.items():
            connection.last = True
            if not connection.marking:
                task.cancel()
        self._name_service.shutdown(wait=False, cancel_futures=True)
        if self._connections:
            await asyncio.wait(self._connections, timeout=STOP_SECONDS)
        for task in self._connections:
            task.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        connection = self._connections[task] = _Connection(self, reader, writer)
        try:
            await connection.run()
        except (ConnectionError, asyncio.IncompleteReadError, TimeoutError):
            pass
        except asyncio.CancelledError:
            if not connection.last:
                raise
            # By `close`. asyncio of Python 3.11 would log it as a fault.
        except Exception:
            log.exception("feedback socket: a connection failed")
        finally:
            del self._connections[task]
            writer.close()
            if not any(other.uid == connection.uid for other in self._connections.values()):
                self._turns.pop(connection.uid, None)

    async def name_of(self, uid: int) -> str:
        """The login name of a user."""
        if uid not in self._names:
            found = await asyncio.get_running_loop().run_in_executor(self._name_service, _name, uid)
            if len(self._names) >= NAMES:
                self._names.clear()
            self._names[uid] = found
        return self._names[uid]

    def turn(self, user: int) -> asyncio.Lock:
        """Held by the one request of this user that is being answered."""
        return self._turns.setdefault(user, asyncio.Lock())

    @property
    def connections(self) -> int:
        """How many there are."""
        return len(self._connections)

    def has_room(self, connection: "_Connection") -> bool:
        """Whether this one may stay, and if need be another goes for it. The administrator may always."""
        if connection.master:
            return True
        staying = Counter(other.uid for other in self._connections.values() if other.staying)
        own = staying[connection.uid]
        if own >= self.limits.feedback_connections_per_user and not connection.proxy:
            self.excess.noted("feedback_connections_per_user", f"{connection.name} has {own} to the feedback socket")
            return False
        if staying.total() < self.limits.feedback_connections:
            return True
        self.excess.noted("feedback_connections", f"all are taken, {own} by {connection.name}, who asks for one")
        return self._makes_way(own, staying)

    def _makes_way(self, own: int, staying: Counter[int]) -> bool:
        """Take a connection from the user who has most, for one who has `own`; never in the midst of a mark."""
        idle = {
            task: other
            for task, other in self._connections.items()
            if other.staying and not (other.master or other.proxy or other.marking)
        }
        task, victim = max(idle.items(), key=lambda found: staying[found[1].uid], default=(None, None))
        if task is None or victim is None or staying[victim.uid] <= own + 1:
            return False
        victim.give_way()
        task.cancel()
        return True

    def is_overrun(self) -> bool:
        """Whether there are more connections than can be looked at."""
        return len(self._connections) > self.limits.feedback_connections + BACKLOG


class _Connection:
    """A client.

    staying: it was let in; marking: a mark has begun, and its answer is not written; last: there is no next request.
    """

    def __init__(self, server: FeedbackSocket, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._server = server
        self._reader = reader
        self._writer = writer
        peer: socket.socket = writer.get_extra_info("socket")
        self.uid = _CREDENTIALS.unpack(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))[1]
        self.master = self.uid in (0, os.getuid())
        self.staying = self.marking = self.last = False
        self._user = ""

    @property
    def name(self) -> str:
        """Whose it is, for the log."""
        return printable(self._user)

    def give_way(self) -> None:
        """Say that this is the end, which is to follow at once."""
        self.last, self.staying = True, False
        self._writer.write(_line(_error(TryAgain("others need this connection to the feedback socket; try again"))))

    @property
    def proxy(self) -> bool:
        return self._user in self._server.settings.proxies

    async def run(self) -> None:
        """Answer requests until the client goes, or is sent away."""
        if not self._server.is_overrun() or self.master:
            self._user = await self._server.name_of(self.uid)
            self.staying = self._server.has_room(self)
        if not self.staying:
            await self._write(_error(TryAgain("too many connections on the feedback socket; try again")))
            return
        while not self.last:
            try:
                async with asyncio.timeout(IDLE_SECONDS):
                    request, mail = await self._request()
            except _Unreadable as error:
                await self._write(_error(error))
                return
            if not request:
                return
            if self.master or self.proxy:
                await self._served(request, mail)
                continue
            async with self._server.turn(self.uid):
                if not await self._served(request, mail):
                    await asyncio.sleep(PAUSE)

    async def _served(self, request: Answer, mail: bytes | None) -> bool:
        """Answer a request; whether it has taught anything."""
        try:
            answer = await self._answer(request, mail)
        except SpamfilterError as error:
            answer = _error(error)
            if isinstance(error, StoreError):
                self._server.excess.metrics.count("faults", "feedback")
        except Exception:
            self._server.excess.metrics.count("faults", "feedback")
            log.exception("feedback socket: a request of %s failed", printable(self._user))
            answer = _error(TryAgain("a fault of the relay, see its log; try again"))
        await self._write(answer)
        self.marking = False
        return bool(answer.get("changed"))

    async def _write(self, answer: Answer) -> None:
        self._writer.write(_line(answer))
        async with asyncio.timeout(IDLE_SECONDS):
            await self._writer.drain()

    async def _request(self) -> tuple[Answer, bytes | None]:
        """The next request and its mail; an empty one at the end of the connection."""
        try:
            line = await self._reader.readline()
        except ValueError:
            raise _Unreadable(f"a request is one line of at most {MAX_LINE} bytes") from None
        if not line:
            return {}, None
        try:
            request = json.loads(line)
        except (ValueError, RecursionError):
            request = None
        if not isinstance(request, dict) or not request:
            raise _Unreadable("a request is a JSON object on one line")
        size = request.get("size")
        if size is None:
            return request, None
        if not isinstance(size, int) or isinstance(size, bool) or not 0 < size <= LOOKED_AT:
            raise _Unreadable(f"size: not a number from 1 to {LOOKED_AT}; of a longer mail the beginning will do")
        return request, await self._reader.readexactly(size)

    async def _answer(self, request: Answer, mail: bytes | None) -> Answer:
        command = request.get("command")
        if command == "mark":
            return await self._mark(request, mail)
        if not isinstance(command, str) or command not in self._server.masters_commands:
            raise InputError(f"unknown command {printable(repr(command), 40)}")
        if not self.master:
            raise Refused(f"{self._user}: only the administrator may ask for {command!r}")
        return await self._server.masters_commands[command](request)

    async def _mark(self, request: Answer, mail: bytes | None) -> Answer:
        label: Label | None = request.get("label", "")
        if label is not None and label not in LABELS:
            raise InputError("label: neither 'ham' nor 'spam' nor null")
        author = self._author(request)
        id, name = request.get("id"), request.get("name", "the mail")
        if not isinstance(name, str) or not (id is None or isinstance(id, str)):
            raise InputError("name and id must be text")
        if (mail is None) == (id is None):
            raise InputError("name a mail by its id, or send its size and its bytes")
        if not name.isprintable():
            name = printable(name, 200)  # it is shown on terminals
        desk = self._server.desk
        self.marking = True
        if mail is not None:
            marked = await desk.mark_mail(mail, name, label, author)
        else:
            marked = await desk.mark_id(str(id), label, author)
        subject, changed = marked.subject, marked.change.changed
        log.log(
            logging.INFO if changed else logging.DEBUG,
            "feedback: %s by %s (%s): %s %s", label or "forget", printable(author.name), author.source,
            subject.id or "a mail not judged here", "done" if changed else "nothing changed",
        )  # fmt: skip
        return {
            **rendering.change_json({"id": subject.id} if subject.id else {"file": subject.name}, marked.change),
            "text": rendering.change_text(subject.name, label, marked.change),
        }

    def _author(self, request: Answer) -> Author:
        users, source, by = self._server.settings.users, request.get("source", "cli"), request.get("by")
        if users and not (self.master or self.proxy or self._user in users):
            raise Refused(f"{self._user}: not among [feedback] users")
        if source not in SOURCES:
            raise InputError(f"source: not one of {', '.join(SOURCES)}")
        if source == "web" and not self.master:
            raise Refused(f"{self._user}: only the web page, which runs as the user of the relay, is the source 'web'")
        if by is None:
            return Author(self._user, source, master=self.master)
        if not isinstance(by, str) or not by.isprintable() or not 0 < len(by) <= LONGEST_BY:
            raise InputError(f"by: not a name of at most {LONGEST_BY} printable characters")
        if not (self.master or self.proxy or by == self._user):
            raise Refused(f"{self._user}: may not speak for others; add it to [feedback] proxies if it should")
        return Author(by, source, master=self.master and request.get("master") is True)


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError):
        return f"uid {uid}"


def _line(answer: Answer) -> bytes:
    return rendering.to_json(answer).encode(errors="replace") + b"\n"


def _error(error: SpamfilterError) -> Answer:
    return {"error": str(error), "exit_code": error.exit_code}
