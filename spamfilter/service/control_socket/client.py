"""The client of the feedback socket: a request is a line of JSON, followed by the bytes of a mail if it has one.

It runs at every click in a mail program, so it imports no database, no counts, and no library outside Python's own.
"""

import json
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from spamfilter.errors import InputError, Refused, SpamfilterError, StoreError, TryAgain

TIMEOUT = 60.0
"""Seconds for an answer: a mark waits for earlier marks, and for a locked database."""
LOOKED_AT = 196_608
"""Bytes of a mail that are sent: the relay reads 65,536 behind the header, and each may be an LF that becomes CR LF."""
Answer = dict[str, Any]
"""A request or an answer."""
_ERRORS = {error.exit_code: error for error in (InputError, Refused, TryAgain)}


class NoRelay(Exception):
    """Nothing listens on the socket, or this user may not connect."""


class SocketClient:
    """A connection to a running relay. Raises NoRelay if there is none, TryAgain if it does not accept in time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(TIMEOUT)
        try:
            self._connect(str(path))
        except (OSError, ValueError) as error:
            self._socket.close()
            raise NoRelay(f"{path}: {getattr(error, 'strerror', None) or error}") from error
        self._answers = self._socket.makefile("rb")

    def _connect(self, path: str) -> None:
        give_up = time.monotonic() + TIMEOUT
        while True:
            try:
                self._socket.connect(path)
            except BlockingIOError:  # the queue of connections is full: unix(7)
                if time.monotonic() > give_up:
                    self._socket.close()
                    raise TryAgain(f"{path}: the relay does not answer; try again") from None
                time.sleep(0.05)
            else:
                return

    def ask(self, request: Answer, mail: bytes | None = None) -> Answer:
        """The relay's answer. Raises the error that it answers with, or TryAgain if the connection breaks."""
        if mail is not None:
            mail = mail[:LOOKED_AT]
            request = {**request, "size": len(mail)}
        try:
            with suppress(BrokenPipeError, ConnectionResetError):  # the relay hung up, and its last answer says why
                self._socket.sendall(json.dumps(request).encode() + b"\n" + (mail or b""))
            line = self._answers.readline()
        except OSError as error:
            raise TryAgain(f"{self._path}: {error.strerror or 'no answer'}; try again") from error
        if not line.endswith(b"\n"):  # nothing, or half an answer
            raise TryAgain(f"{self._path}: the relay hung up; try again")
        try:
            answer = json.loads(line)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            raise SpamfilterError(f"{self._path}: what listens there is no relay; see [feedback] socket")
        if "error" in answer:
            kind = _ERRORS.get(answer.get("exit_code", 2), SpamfilterError)
            raise (StoreError if answer.get("database") else kind)(answer["error"])
        return answer

    def close(self) -> None:
        self._answers.close()
        self._socket.close()
