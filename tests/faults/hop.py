"""A next hop that can be told to misbehave at any stage of the dialogue, and at any byte of it.

Threads and blocking sockets, since with these a connection can be half closed, reset, or left unread at a given byte.
"""

import contextlib
import re
import socket
import ssl
import struct
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from spamfilter.relay.next_hops.maildir import unwrapped
from tests.faults.case import case
from tests.faults.fault import Break, Cut, Drip, Fault, Hold, How, Say

HOLD_SECONDS = 60.0
"""The longest that a stage is held: longer than every limit of the relay in these tests."""
DRIPPED = 24
"""Bytes of a reply that come one by one: not all, or a busy machine takes longer for them than the limits allow."""
KEYWORDS = (b"PIPELINING", b"SIZE 104857600", b"8BITMIME", b"SMTPUTF8", b"ENHANCEDSTATUSCODES")

_NAME = re.compile(rb"^Message-ID: <([^@>\r\n]+)@", re.MULTILINE)
_TAKEN = re.compile(rb"2[0-9][0-9] [^\r\n]*\r\n")
_RESET = struct.pack("ii", 1, 0)


@dataclass(frozen=True)
class Kept:
    """A message that this hop has taken: its name, from the Message-ID, its envelope, its bytes."""

    name: str
    sender: str
    recipients: tuple[str, ...]
    mail: bytes


class MaildirHop:
    """A Maildir as next hop, which the relay writes itself."""

    def __init__(self, path: Path) -> None:
        self._new = path / "new"
        self._seen: list[Kept] = []

    @property
    def kept(self) -> list[Kept]:
        """What is in it; where its disk is gone, what was in it last."""
        if self._new.exists():
            self._seen = [_kept(*unwrapped(file.read_bytes())) for file in self._new.iterdir()]
        return self._seen

    def copies(self, name: str) -> list[Kept]:
        return [kept for kept in self.kept if kept.name == name]

    def heal(self) -> None:
        """Nothing can be told to it."""


def _kept(mail: bytes, sender: bytes, recipients: Sequence[bytes]) -> Kept:
    found = _NAME.search(mail)
    name = found.group(1).decode() if found else ""
    return Kept(name, sender.decode(), tuple(recipient.decode() for recipient in recipients), mail)


class Broken(Exception):
    """The connection was ended as ordered."""


class Hop:
    """A server on loopback. faults: stage, or a whole command line, -> what to do there.

    The stages are CONNECT, EHLO, STARTTLS, TLS, MAIL, RCPT, DATA, BODY, DOT, RSET, NOOP, QUIT. LHLO is the stage EHLO,
    and makes it reply to a message for each recipient.
    sent, received: bytes of the last connection.
    """

    def __init__(self) -> None:
        self.faults: dict[str, Fault] = {}
        self.cut: Cut | None = None
        self.tls: ssl.SSLContext | None = None
        self.kept: list[Kept] = []
        self.commands: list[str] = []
        self.sent = 0
        self.received = 0
        self.port = 0
        self._listener: socket.socket | None = None
        self._reserved: socket.socket | None = None
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()

    def up(self) -> None:
        """Listen, on the same port as before."""
        self._listener = self._reserved or self._bound()
        self._reserved = None
        self._listener.listen(512)
        self.port = self._listener.getsockname()[1]
        thread = threading.Thread(target=self._accept, args=(self._listener,), daemon=True)
        thread.start()
        case().fault_ends()

    def down(self) -> None:
        """Listen no more and hang up everywhere."""
        if self._listener is not None:
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)  # or accept() would not wake
            self._listener.close()
            self._listener = None
            self._reserved = self._bound()  # or another test's server could get the port meanwhile
        self.hang_up()

    def end(self) -> None:
        """Down for good, and the port is free."""
        self.down()
        if self._reserved is not None:
            self._reserved.close()
            self._reserved = None

    def _bound(self) -> socket.socket:
        """A socket on the port that does not listen yet, so that connections are refused."""
        bound = socket.socket()
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(("127.0.0.1", self.port))
        return bound

    def hang_up(self) -> None:
        """End every connection, so that the next message comes over a new one."""
        with self._lock:
            sockets, threads, self._threads = list(self._open), self._threads, []
        for sock in sockets:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join(HOLD_SECONDS)

    def heal(self) -> None:
        """Behave from now on, over new connections."""
        for fault in self.faults.values():
            if isinstance(fault, Hold):
                fault.release.set()
        self.faults, self.cut, self.tls = {}, None, None
        if self._listener is None:
            self.up()
        self.hang_up()
        case().fault_ends()

    def copies(self, name: str) -> list[Kept]:
        return [kept for kept in self.kept if kept.name == name]

    def replace(self, old: socket.socket, new: socket.socket) -> None:
        """The same connection, by another object."""
        with self._lock:
            self._open.discard(old)
            self._open.add(new)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(sock,), daemon=True)
            with self._lock:
                self._open.add(sock)
                thread.start()  # before another thread may join it
                self._threads.append(thread)

    def _serve(self, sock: socket.socket) -> None:
        connection = _Connection(self, sock)
        try:
            connection.talk()
        except (Broken, EOFError, OSError, ValueError):
            pass
        finally:
            with self._lock:
                self._open -= {sock, connection.socket}
            self.sent, self.received = connection.sent, connection.received
            connection.socket.close()
            sock.close()


class _Connection:
    def __init__(self, hop: Hop, sock: socket.socket) -> None:
        self.socket = sock
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sent = 0
        self.received = 0
        self._hop = hop
        self._cut = hop.cut
        self._buffer = b""
        self._sender = ""
        self._lmtp = False
        self._recipients: list[str] = []

    def talk(self) -> None:
        self._answer("CONNECT", "", b"220 hop.test ESMTP\r\n")
        while True:
            line = self._line().decode("utf-8", "replace")
            self._hop.commands.append(line)
            verb = line.partition(" ")[0].upper()
            self._lmtp = self._lmtp or verb == "LHLO"
            stage = "EHLO" if verb == "LHLO" else verb
            code = self._answer(stage, line, self._usual(verb))
            if verb == "MAIL" and code == 250:
                self._sender, self._recipients = line[11 : line.index(">")], []
            elif verb == "RCPT" and code == 250:
                self._recipients.append(line[9 : line.index(">")])
            elif verb == "STARTTLS" and code == 220:
                self._start_tls()
            elif verb == "DATA" and code == 354:
                self._take(self._message())
            elif verb == "QUIT":
                return

    def _usual(self, verb: str) -> bytes:
        if verb in ("EHLO", "LHLO"):
            tls = (b"STARTTLS",) if self._hop.tls and not isinstance(self.socket, ssl.SSLSocket) else ()
            return b"".join(b"250-%s\r\n" % word for word in (b"hop.test", *KEYWORDS, *tls)) + b"250 HELP\r\n"
        return {"DATA": b"354 go on\r\n", "STARTTLS": b"220 go on\r\n", "QUIT": b"221 bye\r\n"}.get(
            verb, b"250 2.0.0 ok\r\n"
        )

    def _answer(self, stage: str, line: str, usual: bytes) -> int:
        """Say what is to be said at this stage; its code, 0 where it has none."""
        fault = self._hop.faults.get(line, self._hop.faults.get(stage))
        if isinstance(fault, Break):
            self._send(usual[: fault.after])
            self._end(fault.how)
        if isinstance(fault, Hold):
            self._wait(fault)
        reply = fault.reply if isinstance(fault, Say) else usual
        self._send(reply, fault.seconds if isinstance(fault, Drip) else 0.0)
        if reply.startswith(b"421"):
            self._end("close")
        return int(reply[:3]) if reply[:3].isdigit() else 0

    def _wait(self, hold: Hold) -> None:
        hold.reached.set()
        hold.release.wait(HOLD_SECONDS)

    def _message(self) -> bytes:
        """The message up to its end, dots unstuffed."""
        fault = self._hop.faults.get("BODY")
        if isinstance(fault, Hold):
            self._wait(fault)  # and nothing is read meanwhile
        content = b"\r\n" + self._buffer
        if isinstance(fault, Break):
            while len(content) - 2 < fault.after:
                content += self._receive()
            self._end(fault.how)
        while (end := content.find(b"\r\n.\r\n")) < 0:
            content += self._receive()
        self._buffer = content[end + 5 :]
        return content[: end + 2].replace(b"\r\n.", b"\r\n")[2:]

    def _take(self, mail: bytes) -> None:
        """Keep the message where the reply is positive, before it is said: so does every server."""
        kept = _kept(mail, self._sender.encode(), [recipient.encode() for recipient in self._recipients])
        fault = self._hop.faults.get("DOT")
        if isinstance(fault, Hold):
            self._wait(fault)
        refuses = isinstance(fault, Say) and not _TAKEN.fullmatch(fault.reply)
        if not refuses and not (isinstance(fault, Break) and not fault.keeps):
            self._hop.kept.append(kept)
        for _ in self._recipients if self._lmtp else ("all",):
            self._answer("DOT", "", b"250 2.0.0 kept\r\n")

    def _start_tls(self) -> None:
        fault = self._hop.faults.get("TLS")
        if isinstance(fault, Break):
            self._end(fault.how)
        if isinstance(fault, Say):
            self._send(fault.reply)
        plain, tls = self.socket, self._hop.tls
        if tls is None:
            raise Broken  # healed in the meantime, and the connection is ended
        # The handshake comes after the change of sockets, so that it can be broken off, too.
        secured = tls.wrap_socket(plain, server_side=True, do_handshake_on_connect=False)
        self._hop.replace(plain, secured)
        self.socket = secured
        secured.do_handshake()

    def _line(self) -> bytes:
        while b"\n" not in self._buffer:
            self._buffer += self._receive()
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.rstrip(b"\r")

    def _receive(self) -> bytes:
        most = 65_536
        if self._cut is not None and self._cut.received is not None:
            most = self._cut.received - self.received
            if most <= 0:
                self._end(self._cut.how)
        block = self.socket.recv(most)
        if not block:
            raise EOFError
        self.received += len(block)
        return block

    def _send(self, data: bytes, pause: float = 0.0) -> None:
        if self._cut is not None and self._cut.sent is not None and self.sent + len(data) > self._cut.sent:
            self.socket.sendall(data[: self._cut.sent - self.sent])
            self._end(self._cut.how)
        slow = data[:DRIPPED] if pause else b""
        for piece in [*(bytes([byte]) for byte in slow), data[len(slow) :]]:
            self.socket.sendall(piece)
            self.sent += len(piece)
            time.sleep(pause)

    def _end(self, how: How) -> NoReturn:
        if how == "reset":
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        elif how in ("half", "hang"):
            if how == "half":
                self.socket.shutdown(socket.SHUT_WR)
            while self.socket.recv(65_536):
                pass
        self.socket.close()
        raise Broken


@contextlib.contextmanager
def next_hop() -> Iterator[Hop]:
    """A next hop that behaves until it is told otherwise."""
    hop = Hop()
    hop.up()
    try:
        yield hop
    finally:
        hop.heal()
        hop.end()
