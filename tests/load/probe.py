"""A client beside the load that sends a message at fixed times and takes the time of each phase of the dialogue.

It does not wait for one message before it sends the next, so that a relay that stands still is seen in all messages
that fall into that time, and not in one.
"""

import asyncio
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.load.mails import made
from tests.load.source import DOMAIN

PHASES = ("connect", "EHLO", "MAIL", "RCPT", "DATA", "dot")
EVERY = 0.1
SIZE = 2_000
GIVE_UP_SECONDS = 120.0


@dataclass(frozen=True)
class Sample:
    """One message. began: seconds since the start; seconds: of each phase that was reached; said: the last reply."""

    name: str
    began: float
    seconds: dict[str, float]
    said: bytes

    @property
    def accepted(self) -> bool:
        return "dot" in self.seconds and self.said.startswith(b"250")


@dataclass
class Probe:
    """Runs in a thread of its own until `stop`. every: seconds between two messages."""

    port: int
    every: float = EVERY
    samples: list[Sample] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> "Probe":
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        assert self._thread is not None
        self.stop.set()
        self._thread.join(2 * GIVE_UP_SECONDS)
        if self._thread.is_alive():
            raise TimeoutError("the probe has not ended")

    async def _run(self) -> None:
        loop, began, number = asyncio.get_running_loop(), time.perf_counter(), 0
        running: set[asyncio.Task[None]] = set()
        due = loop.time()
        while not self.stop.is_set():
            number += 1
            task = asyncio.create_task(self._message(f"{number}probe", time.perf_counter() - began))
            running.add(task)
            task.add_done_callback(running.discard)
            due += self.every
            await asyncio.sleep(max(0.0, due - loop.time()))
        if running:
            await asyncio.wait(running, timeout=GIVE_UP_SECONDS)

    async def _message(self, name: str, began: float) -> None:
        seconds: dict[str, float] = {}
        said = b"no answer"
        try:
            async with asyncio.timeout(GIVE_UP_SECONDS):
                said = await self._dialogue(name, seconds.__setitem__)
        except (OSError, EOFError, TimeoutError) as error:
            said = repr(error).encode()
        self.samples.append(Sample(name, began, seconds, said))

    async def _dialogue(self, name: str, took: Callable[[str, float], None]) -> bytes:
        before = time.perf_counter()
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        lines = {
            "connect": b"",
            "EHLO": b"EHLO probe.test\r\n",
            "MAIL": b"MAIL FROM:<probe@example.org>\r\n",
            "RCPT": f"RCPT TO:<{name}@{DOMAIN}>\r\n".encode(),
            "DATA": b"DATA\r\n",
            "dot": re.sub(rb"(?m)^\.", b"..", mail_of(name)) + b".\r\n",
        }
        reply = b""
        try:
            for phase, sent in lines.items():
                writer.write(sent)
                reply = await _reply(reader)
                now = time.perf_counter()
                took(phase, now - before)
                before = now
                if reply[:1] not in b"23":
                    return reply
            writer.write(b"QUIT\r\n")
        finally:
            writer.close()
        return reply


def mail_of(name: str) -> bytes:
    """The mail of a message of the probe, which its user may mark."""
    return made(name, "ham", SIZE)


async def _reply(reader: asyncio.StreamReader) -> bytes:
    while (line := await reader.readuntil(b"\n"))[3:4] == b"-":
        pass
    return line
