"""Ask a running relay over its feedback socket: one JSON object a line, the bytes of a mail behind it if it has any.

Light, since it runs at every click: no database, no counts, and no libraries beyond Python's own.
"""

import json
import socket
from pathlib import Path
from typing import Any

from spamfilter.errors import InputError, Refused, SpamfilterError, StoreBusy

TIMEOUT = 60.0
"""Seconds for an answer: a mark waits for marks before it, and for a database that others hold."""
_ERRORS = {error.exit_code: error for error in (InputError, Refused, StoreBusy)}


class NoRelay(Exception):
    """Nobody listens on the socket, or it is not ours to use."""


class SocketClient:
    """A connection to a running relay. Raises NoRelay where there is none."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(TIMEOUT)
        try:
            self._socket.connect(str(path))
        except OSError as error:
            self._socket.close()
            raise NoRelay(f"{path}: {error.strerror or error}") from error
        self._answers = self._socket.makefile("rb")

    def ask(self, request: dict[str, object], mail: bytes | None = None) -> dict[str, Any]:
        """The relay's answer. Raises the error that it answers with, and StoreBusy where it breaks off."""
        if mail is not None:
            request = {**request, "size": len(mail)}
        try:
            self._socket.sendall(json.dumps(request).encode() + b"\n" + (mail or b""))
            line = self._answers.readline()
        except OSError as error:
            raise StoreBusy(f"{self._path}: {error.strerror or 'no answer'}; try again") from error
        if not line:
            raise StoreBusy(f"{self._path}: the relay hung up; try again")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise _ERRORS.get(answer.get("exit_code", 2), SpamfilterError)(answer["error"])
        return answer

    def close(self) -> None:
        self._answers.close()
        self._socket.close()
