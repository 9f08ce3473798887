"""The server of the feedback socket: local users mark mail in a running relay without access to its database.

The kernel says which user is connected (SO_PEERCRED); only users in [feedback] proxies may mark for others. A request
is a line with a JSON object, and so is an answer: docs/json.md. Anything else is answered with an error and ends the
connection, so no byte of a mail is ever read as a request.

Guarantee: each user has limits of connections, bytes and time. A mark that has begun is answered, even while the relay
stops.
"""

import asyncio
import json
import logging
import os
import pwd
import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path

from spamfilter.config.sections import Feedback, Limits
from spamfilter.errors import ConfigError, InputError, Refused, SpamfilterError, StoreError, TryAgain
from spamfilter.learning.mark_queue import MarkQueue
from spamfilter.relay.limits.limit_log import LimitLog
from spamfilter.reports import rendering
from spamfilter.service.control_socket.client import LOOKED_AT, Answer
from spamfilter.service.control_socket.mark_requests import LocalUser, make_mark
from spamfilter.system import unix_socket
from spamfilter.system.escaping import printable
from spamfilter.system.threads import Threads

log = logging.getLogger(__name__)

MAX_LINE = 32_768
"""Bytes of a request: the longest path is 4,096 bytes, each of which JSON may write as six; and some more."""
IDLE_SECONDS = 60.0
"""Time for a request to arrive, and for its answer to be read."""
NAMES = 1000
"""Login names that are kept in memory."""
BACKLOG = 50
"""Connections that wait in the kernel, and connections above the limit whose user names are being looked up."""
PAUSE = 0.05
"""Seconds that a user waits after a request that changed nothing, on all connections together: mail comes first."""
STOP_SECONDS = 15.0
"""Time for marks that have begun when the relay stops: longer than the database's busy timeout."""


class _Unreadable(InputError):
    """The input is not a request, so it is not known where the next one begins."""


class FeedbackSocket:
    """The socket and its connections. `settings` and `limits` may be replaced while it runs.

    commands: name -> the function that answers it; only administrators may send them.
    """

    def __init__(
        self,
        path: Path,
        mark_queue: MarkQueue,
        settings: Feedback,
        commands: Mapping[str, Callable[[Answer], Awaitable[Answer]]],
        limits: Limits,
        limit_log: LimitLog,
    ) -> None:
        self.path = path
        self.mark_queue = mark_queue
        self.settings = settings
        self.limits = limits
        self.limit_log = limit_log
        self.commands = commands
        self._server: asyncio.Server | None = None
        self._file: tuple[int, int] | None = None
        self._connections: dict[asyncio.Task[None], _Connection] = {}
        self._turns: dict[int, asyncio.Lock] = {}
        self._names: dict[int, str] = {}
        # A thread of its own: a name service may be slow, and mail needs the threads of asyncio.
        self._name_service = Threads(1, "names")

    async def start(self) -> None:
        """Listen, unless it does already.

        Raises Occupied if another relay listens there, ConfigError if the socket cannot be made.
        """
        if self._server is not None:
            return
        try:
            sock = unix_socket.bound(self.path)
        except ConfigError as error:
            raise type(error)(f"feedback.socket = {str(self.path)!r}: {error}") from error
        self._file = unix_socket.identity(self.path)
        self._server = await asyncio.start_unix_server(self._serve, sock=sock, limit=MAX_LINE, backlog=BACKLOG)
        log.info("feedback socket %s", self.path)

    async def close(self) -> None:
        """Take no more requests. Marks that have begun are answered; close the MarkQueue at the same time."""
        if self._server is None:
            return
        self._server.close()
        if unix_socket.identity(self.path) == self._file:
            with suppress(OSError):  # the next relay replaces a socket that was left
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
            # `close` has cancelled it; asyncio of Python 3.11 would log that as an error.
        except Exception:
            log.exception("feedback socket: a connection failed")
        finally:
            del self._connections[task]
            writer.close()
            if not any(other.uid == connection.uid for other in self._connections.values()):
                self._turns.pop(connection.uid, None)

    async def name_of(self, uid: int) -> str:
        if uid not in self._names:
            found = await asyncio.get_running_loop().run_in_executor(self._name_service, _name, uid)
            if len(self._names) >= NAMES:
                self._names.clear()
            self._names[uid] = found
        return self._names[uid]

    def turn(self, user: int) -> asyncio.Lock:
        """Held while a request of this user is answered."""
        return self._turns.setdefault(user, asyncio.Lock())

    @property
    def connections(self) -> int:
        return len(self._connections)

    def has_room(self, connection: "_Connection") -> bool:
        """Whether this connection may stay; another one may be closed for it. An administrator's always may."""
        if connection.master:
            return True
        staying = Counter(other.uid for other in self._connections.values() if other.staying)
        own = staying[connection.uid]
        if own >= self.limits.feedback_connections_per_user and not connection.proxy:
            self.limit_log.noted("feedback_connections_per_user", f"{connection.name} has {own} to the feedback socket")
            return False
        if staying.total() < self.limits.feedback_connections:
            return True
        self.limit_log.noted("feedback_connections", f"all are taken, {own} by {connection.name}, who asks for one")
        return self._makes_way(own, staying)

    def _makes_way(self, own: int, staying: Counter[int]) -> bool:
        """Close an idle connection of the user with the most, for a user with `own`; whether there was one."""
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


class _Connection:
    """A connection of a client.

    staying: it was admitted. marking: a mark has begun and its answer is not written yet. last: no more requests are
    read.
    """

    def __init__(self, server: FeedbackSocket, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._server = server
        self._reader = reader
        self._writer = writer
        peer: socket.socket = writer.get_extra_info("socket")
        self.uid = unix_socket.user_of(peer)
        self.master = self.uid in (0, os.getuid())
        self.staying = self.marking = self.last = False
        self._user = ""

    @property
    def name(self) -> str:
        """The user name, for the log."""
        return printable(self._user)

    def give_way(self) -> None:
        """Tell the client that the connection closes now."""
        self.last, self.staying = True, False
        self._writer.write(_line(_error(TryAgain("others need this connection to the feedback socket; try again"))))

    @property
    def proxy(self) -> bool:
        return self._user in self._server.settings.proxies

    async def run(self) -> None:
        """Answer requests until the client or the relay closes the connection."""
        # Where there are still more, not even their users are looked up.
        if self.master or self._server.connections <= self._server.limits.feedback_connections + BACKLOG:
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
        """Answer a request; whether it has changed anything."""
        try:
            answer = await self._answer(request, mail)
        except SpamfilterError as error:
            answer = _error(error)
            if isinstance(error, StoreError):
                self._server.limit_log.metrics.count("faults", "feedback")
        except Exception:
            self._server.limit_log.metrics.count("faults", "feedback")
            log.exception("feedback socket: a request of %s failed", self.name)
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
            self.marking = True
            user = LocalUser(self._user, self.master, self.proxy)
            return await make_mark(request, mail, user, self._server.settings.users, self._server.mark_queue)
        if not isinstance(command, str) or command not in self._server.commands:
            raise InputError(f"unknown command {printable(repr(command), 40)}")
        if not self.master:
            raise Refused(f"{self._user}: only the administrator may ask for {command!r}")
        return await self._server.commands[command](request)


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError):
        return f"uid {uid}"


def _line(answer: Answer) -> bytes:
    return rendering.to_json(answer).encode(errors="replace") + b"\n"


def _error(error: SpamfilterError) -> Answer:
    answer = {"error": str(error), "exit_code": error.exit_code}
    of_database = isinstance(error, StoreError) and error.exit_code == StoreError.exit_code
    return {**answer, "database": True} if of_database else answer
