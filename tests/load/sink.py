"""A next hop that accepts everything and notes the recipient of each message, as a process of its own.

    python -m tests.load.sink FILE

writes its port to standard output, and at SIGTERM the recipients to FILE, one a line, in the order of their messages.
It keeps no mail, so that it costs little beside what is measured.
"""

import asyncio
import contextlib
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
END = b"\r\n.\r\n"
GREETING = b"220 sink.test ESMTP\r\n"
KEYWORDS = (b"PIPELINING", b"SIZE 104857600", b"8BITMIME", b"XFORWARD NAME ADDR PROTO HELO", b"ENHANCEDSTATUSCODES")
"""What Postfix announces behind a proxy filter."""
HELLO = b"250-sink.test\r\n" + b"".join(b"250-%s\r\n" % keyword for keyword in KEYWORDS) + b"250 DSN\r\n"
OK = b"250 2.0.0 Ok\r\n"
STOP_SECONDS = 30.0


class Taking(asyncio.Protocol):
    """One session. noted: recipients of whole messages, of all sessions."""

    def __init__(self, noted: list[bytes]) -> None:
        self._noted = noted
        self._recipients: list[bytes] = []
        self._unread = bytearray()
        self._in_mail = False
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(GREETING)

    def data_received(self, data: bytes) -> None:
        self._unread += data
        while (end := self._unread.find(END if self._in_mail else b"\r\n")) >= 0:
            taken = bytes(self._unread[:end])
            # The line end before the first dot of an empty mail would be that of DATA: no mail here is empty.
            del self._unread[: end + (len(END) if self._in_mail else 2)]
            self._say(self._ended() if self._in_mail else self._obeyed(taken))

    def _ended(self) -> bytes:
        self._in_mail = False
        self._noted += self._recipients
        self._recipients = []
        return OK

    def _obeyed(self, line: bytes) -> bytes:
        verb = line[:4].upper()
        if verb == b"EHLO":
            return HELLO
        if verb == b"RCPT":
            self._recipients.append(line[line.index(b"<") + 1 : line.index(b">")])
        elif verb == b"DATA":
            self._in_mail = True
            return b"354 go on\r\n"
        elif verb in (b"RSET", b"MAIL"):
            self._recipients = []
        return OK

    def _say(self, reply: bytes) -> None:
        assert self._transport is not None
        self._transport.write(reply)


async def serve(file: Path) -> None:
    noted: list[bytes] = []
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    server = await loop.create_server(lambda: Taking(noted), "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await stop.wait()
    file.write_bytes(b"".join(name + b"\n" for name in noted))


@dataclass(frozen=True)
class Sink:
    """A sink that runs. file: where its notes are once it has ended."""

    process: "subprocess.Popen[bytes]"
    port: int
    file: Path

    def end(self) -> list[str]:
        """End it; the recipients of all messages it has taken."""
        self.process.terminate()
        if self.process.wait(STOP_SECONDS) != 0:
            raise RuntimeError(f"the sink ended with {self.process.returncode}")
        return self.file.read_text("ascii").splitlines()


@contextlib.contextmanager
def sink(file: Path) -> Iterator[Sink]:
    command = [sys.executable, "-m", "tests.load.sink", str(file)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        yield Sink(process, int(process.stdout.readline()), file)
    finally:
        process.stdout.close()
        if process.poll() is None:
            process.kill()
            process.wait(STOP_SECONDS)


if __name__ == "__main__":
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    asyncio.run(serve(Path(sys.argv[1])))
