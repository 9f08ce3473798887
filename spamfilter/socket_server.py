"""The feedback socket: local users teach a running relay without the right to touch its database.

Who they are, the kernel says (SO_PEERCRED); for others speaks only who is named in [feedback] proxies. One JSON object
a line, answered by one; the commands are the rows of `_Connection.commands`, and docs/json.md describes them.
"""

import asyncio
import json
import logging
import os
import pwd
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from spamfilter import rendering
from spamfilter.config import Feedback
from spamfilter.counts import LABELS, Label
from spamfilter.desk import Desk
from spamfilter.errors import ConfigError, InputError, Refused, SpamfilterError, StoreBusy
from spamfilter.feedback import Author
from spamfilter.verdict import printable

log = logging.getLogger(__name__)

MAX_LINE = 8192
IDLE_SECONDS = 60.0
CONNECTIONS = 100
LONGEST_PATH = 107
"""Bytes of a socket's path: unix(7)."""
SOURCES = ("cli", "imap", "review")
"""Ways that a client may name; the others are not for it to claim."""
_CREDENTIALS = struct.Struct("3i")

Answer = dict[str, Any]


class FeedbackSocket:
    """The socket, and who may use it. `settings` may be replaced while it runs.

    commands: what only the administrator may ask beside marks, by name.
    """

    def __init__(
        self,
        path: Path,
        desk: Desk,
        settings: Feedback,
        message_size: int,
        commands: Mapping[str, Callable[[Answer], Awaitable[Answer]]],
    ) -> None:
        self.path = path
        self.desk = desk
        self.settings = settings
        self.message_size = message_size
        self.masters_commands = commands
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Listen. Raises ConfigError where somebody else does already, or the path is no place for a socket."""
        if len(os.fsencode(self.path)) > LONGEST_PATH:
            raise ConfigError(
                f"feedback.socket = {str(self.path)!r}: longer than the {LONGEST_PATH} bytes of a socket's path"
            )
        if self.path.is_socket():
            if _answers(self.path):
                raise ConfigError(f"feedback.socket = {str(self.path)!r}: another relay listens there")
            self.path.unlink()
        try:
            self._server = await asyncio.start_unix_server(self._serve, str(self.path), limit=2 * MAX_LINE)
            self.path.chmod(0o666)  # the kernel says who comes; what they may do is decided here
        except OSError as error:
            raise ConfigError(f"feedback.socket = {str(self.path)!r}: {error.strerror}") from error

    def close(self) -> None:
        """Take no more requests; what is being learnt is learnt to its end."""
        if self._server is not None:
            self._server.close()
            self.path.unlink(missing_ok=True)
        for task in self._connections:
            task.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            if len(self._connections) > CONNECTIONS:
                _write(writer, _error(StoreBusy("too many connections on the feedback socket; try again")))
                return
            await _Connection(self, reader, writer).run()
        except (ConnectionError, asyncio.IncompleteReadError, TimeoutError):
            pass
        except Exception:
            log.exception("feedback socket: a connection failed")
        finally:
            self._connections.discard(task)
            writer.close()


class _Connection:
    def __init__(self, server: FeedbackSocket, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._server = server
        self._reader = reader
        self._writer = writer
        peer: socket.socket = writer.get_extra_info("socket")
        self._uid = _CREDENTIALS.unpack(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))[1]
        self._user = _name(self._uid)
        self._master = self._uid in (0, os.getuid())

    async def run(self) -> None:
        while True:
            try:
                async with asyncio.timeout(IDLE_SECONDS):
                    line = await self._reader.readline()
            except ValueError:
                _write(self._writer, _error(InputError(f"a request is one line of at most {MAX_LINE} bytes")))
                return
            if not line:
                return
            try:
                answer = await self._answer(line)
            except SpamfilterError as error:
                answer = _error(error)
            except (ConnectionError, asyncio.IncompleteReadError):
                raise
            except Exception:
                log.exception("feedback socket: a request of %s failed", printable(self._user))
                answer = _error(StoreBusy("a fault of the relay, see its log; try again"))
            _write(self._writer, answer)
            await self._writer.drain()

    async def _answer(self, line: bytes) -> Answer:
        try:
            request = json.loads(line)
        except ValueError:
            request = None
        if not isinstance(request, dict):
            raise InputError("a request is a JSON object on one line")
        mail = await self._mail(request.get("size"))
        command = request.get("command")
        if command == "mark":
            return await self._mark(request, mail)
        if not isinstance(command, str) or command not in self._server.masters_commands:
            raise InputError(f"unknown command {printable(repr(command), 40)}")
        if not self._master:
            raise Refused(f"{self._user}: only the administrator may ask for {command!r}")
        return await self._server.masters_commands[command](request)

    async def _mail(self, size: object) -> bytes | None:
        if size is None:
            return None
        if not isinstance(size, int) or isinstance(size, bool) or not 0 < size <= self._server.message_size:
            raise InputError(f"size: not a number from 1 to {self._server.message_size} ([limits] message_size)")
        async with asyncio.timeout(IDLE_SECONDS):
            return await self._reader.readexactly(size)

    async def _mark(self, request: Answer, mail: bytes | None) -> Answer:
        label: Label | None = request.get("label")
        if label is not None and label not in LABELS:
            raise InputError("label: neither 'ham' nor 'spam' nor null")
        author = self._author(request)
        id, name = request.get("id"), request.get("name", "the mail")
        if not isinstance(name, str) or not (id is None or isinstance(id, str)):
            raise InputError("name and id must be text")
        if (mail is None) == (id is None):
            raise InputError("name a mail by its id, or send its size and its bytes")
        desk = self._server.desk
        if mail is not None:
            marked = await desk.mark_mail(mail, name, label, author)
        else:
            marked = await desk.mark_id(str(id), label, author)
        log.info(
            "feedback: %s by %s (%s): %s %s", label or "forget", printable(author.name), author.source,
            marked.subject.id or "a mail not judged here", "learnt" if marked.change.changed else "nothing changed",
        )  # fmt: skip
        subject = marked.subject
        return {
            **rendering.change_json({"id": subject.id} if subject.id else {"file": subject.name}, marked.change),
            "text": rendering.change_text(subject.name, label, marked.change),
        }

    def _author(self, request: Answer) -> Author:
        settings, source, by = self._server.settings, request.get("source", "cli"), request.get("by")
        proxy = self._user in settings.proxies
        if settings.users and not (self._master or proxy or self._user in settings.users):
            raise Refused(f"{self._user}: not among [feedback] users")
        if source not in SOURCES:
            raise InputError(f"source: not one of {', '.join(SOURCES)}")
        if by is None:
            return Author(self._user, source, master=self._master)
        if not isinstance(by, str) or not by or len(by) > 200:
            raise InputError("by: not a name of at most 200 characters")
        if not (self._master or proxy):
            raise Refused(f"{self._user}: may not speak for others; add it to [feedback] proxies if it should")
        return Author(by, source)


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as trial:
        trial.settimeout(1)
        try:
            trial.connect(str(path))
        except OSError:
            return False
        return True


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def _error(error: SpamfilterError) -> Answer:
    return {"error": str(error), "exit_code": error.exit_code}


def _write(writer: asyncio.StreamWriter, answer: Answer) -> None:
    writer.write(rendering.to_json(answer).encode() + b"\n")
