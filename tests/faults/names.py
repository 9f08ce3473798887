"""A name server that can be told to misbehave, and a process that asks it and no other."""

import contextlib
import itertools
import os
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from tests.support.real import require, require_root

Mood = Literal["answers", "silent", "garbage", "foreign", "truncated", "failing"]
"""What it does with a question: answer it; nothing; send bytes that are no answer, or an answer to another question, or
one that is cut off; or say SERVFAIL."""

_ADDRESS = 1
_numbers = itertools.count(1)


class NameServer:
    """Says that every name has the address 127.0.0.1. asked: the questions that came, retries too: (name, type)."""

    def __init__(self) -> None:
        self.mood: Mood = "answers"
        self.asked: list[tuple[str, int]] = []
        # Resolvers know port 53 only; loopback has room for one each.
        self.address = f"127.{100 + os.getpid() % 100}.{os.getpid() // 100 % 256}.{next(_numbers) % 250 + 1}"
        self._socket: socket.socket | None = None
        self._thread: threading.Thread | None = None

    def up(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((self.address, 53))
        self._thread = threading.Thread(target=self._serve, args=(self._socket,), daemon=True)
        self._thread.start()

    def down(self) -> None:
        """Listen no more: who asks hears from the kernel that nobody is there."""
        if self._socket is None or self._thread is None:
            return
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # or recvfrom() would not wake
        self._thread.join(10)
        self._socket.close()
        self._socket = self._thread = None

    def _serve(self, sock: socket.socket) -> None:
        while True:
            try:
                question, client = sock.recvfrom(4096)
            except OSError:
                return
            if not client:
                return
            answer = self._answer(question)
            if answer:
                with contextlib.suppress(OSError):
                    sock.sendto(answer, client)

    def _answer(self, question: bytes) -> bytes:
        end = question.index(b"\0", 12) + 5
        kind = struct.unpack("!H", question[end - 4 : end - 2])[0]
        self.asked.append((_dotted(question[12 : end - 4]), kind))
        id, asked = question[:2], question[12:end]
        if self.mood == "silent":
            return b""
        if self.mood == "garbage":
            return id + os.urandom(200)
        if self.mood == "failing":
            return id + struct.pack("!HHHHH", 0x8182, 1, 0, 0, 0) + asked
        if self.mood == "foreign":
            id = bytes(255 - byte for byte in id)
        found = kind == _ADDRESS
        head = id + struct.pack("!HHHHH", 0x8180, 1, int(found), 0, 0)
        record = struct.pack("!HHHIH", 0xC00C, _ADDRESS, 1, 0, 4) + bytes([127, 0, 0, 1])
        whole = head + asked + (record if found else b"")
        return whole[:20] if self.mood == "truncated" else whole


def _dotted(labels: bytes) -> str:
    names = []
    while labels and labels[0]:
        names.append(labels[1 : 1 + labels[0]].decode("ascii", "replace"))
        labels = labels[1 + labels[0] :]
    return ".".join(names)


@contextlib.contextmanager
def name_server() -> Iterator[NameServer]:
    """A name server that answers until it is told otherwise."""
    require_root("port 53, where name servers are asked")
    server = NameServer()
    server.up()
    try:
        yield server
    finally:
        server.down()


def asking(server: NameServer, folder: Path, *options: str) -> list[str]:
    """The beginning of a command whose process asks this server. options: further lines of resolv.conf(5)."""
    unshare, mount = require("unshare", "util-linux"), require("mount", "mount")
    resolv, nsswitch = folder / "resolv.conf", folder / "nsswitch.conf"
    resolv.write_text("\n".join([f"nameserver {server.address}", *options, ""]))
    nsswitch.write_text("passwd: files\ngroup: files\nhosts: files dns\n")
    script = f'{mount} --bind "$1" /etc/resolv.conf && {mount} --bind "$2" /etc/nsswitch.conf && shift 2 && exec "$@"'
    return [unshare, "--mount", "sh", "-c", script, "sh", str(resolv), str(nsswitch)]
