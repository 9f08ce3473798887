"""A mail server's side of milter on a real socket, which does what it is told and sees every byte."""

import asyncio
import struct
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.parts import Hop, Running, relaying

ALL_ACTIONS, ALL_STEPS = 0x1FF, 0x1FFFFF
"""What Postfix offers, and Sendmail."""
SILENT = {b"C": 0x1000, b"H": 0x2000, b"M": 0x4000, b"R": 0x8000, b"L": 0x80, b"N": 0x40000, b"B": 0x80000}
LEFT_OUT = {b"C": 0x1, b"H": 0x2, b"M": 0x4, b"R": 0x8, b"B": 0x10, b"L": 0x20, b"N": 0x40, b"T": 0x200}
LEADING_SPACE = 0x100000
PIECE = 65_535
CLIENT = b"mail.example\x004\x04\xd2192.0.2.7\0"

MAIL = b"From: a@example.org\r\nSubject: hello\r\nMessage-ID: <1@example.org>\r\n\r\nhello\r\n"

Field = tuple[bytes, bytes]


@asynccontextmanager
async def milter(folder: Path, **settings: Any) -> AsyncIterator[Running]:
    async with (
        Hop() as hop,
        relaying(folder, f"smtp://127.0.0.1:{hop.port}", door="milter", **settings) as running,
    ):
        yield running
        assert hop.connections == 0  # the mail server delivers, not we


@dataclass
class Outcome:
    """What became of a mail. reply: what the client hears, '' if the mail goes on or is dropped."""

    reply: str = ""
    dropped: bool = False
    fields: list[Field] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)

    def values(self, name: str) -> list[str]:
        return [value.decode() for found, value in self.fields if found.decode().lower() == name.lower()]


def split(mail: bytes) -> tuple[list[Field], bytes]:
    """The header fields of a mail, as a mail server knows them, lines separated by LF; and the text."""
    head, _, text = mail.partition(b"\r\n\r\n") if not mail.startswith(b"\r\n") else (b"", b"", mail[2:])
    fields: list[Field] = []
    for line in head.split(b"\r\n") if head else ():
        if line[:1] in (b" ", b"\t"):
            fields[-1] = fields[-1][0], fields[-1][1] + b"\n" + line
        else:
            name, _, value = line.partition(b":")
            fields.append((name, value))
    return fields, text


def joined(fields: Iterable[Field], text: bytes) -> bytes:
    lines = [b"%b:%b\r\n" % (name, value.replace(b"\n", b"\r\n")) for name, value in fields]
    return b"".join(lines) + b"\r\n" + text


class MailServer:
    """One connection. steps: those that were agreed upon."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.steps = 0

    @staticmethod
    async def connect(
        running: Running, *, steps: int = ALL_STEPS, version: int = 6, client: bytes | None = CLIENT
    ) -> "MailServer":
        if running.path is not None:
            server = MailServer(*await asyncio.open_unix_connection(running.path))
        else:
            server = MailServer(*await asyncio.open_connection("127.0.0.1", running.port))
        running.clients.append(server)  # type: ignore[arg-type]  # both are closed
        await server.agree(steps, version)
        if client is not None:
            await server.step(b"C", client)
        return server

    async def agree(self, steps: int = ALL_STEPS, version: int = 6) -> None:
        """Agree upon the steps."""
        self.put(b"O", struct.pack(">III", version, ALL_ACTIONS, steps))
        command, data = await self.packet()
        answered, actions, self.steps = struct.unpack(">III", data)
        assert (command, answered, actions, self.steps & ~steps) == (b"O", version, 0x11, 0)

    def put(self, command: bytes, data: bytes = b"") -> None:
        self.writer.write(struct.pack(">I", len(data) + 1) + command + data)

    async def packet(self) -> tuple[bytes, bytes]:
        """The next packet; (b"", b"") at the end of the connection."""
        try:
            (length,) = struct.unpack(">I", await asyncio.wait_for(self.reader.readexactly(4), 20))
            data = await asyncio.wait_for(self.reader.readexactly(length), 20)
        except (asyncio.IncompleteReadError, ConnectionError):
            return b"", b""
        return data[:1], data[1:]

    async def step(self, command: bytes, data: bytes) -> str:
        """Send a command, if it is wanted; the reply for the client, '' if it goes on. Raises ConnectionError."""
        if self.steps & LEFT_OUT.get(command, 0):
            return ""
        self.put(command, data)
        if self.steps & SILENT.get(command, 0):
            return ""
        answer, data = await self.packet()
        if not answer:
            raise ConnectionResetError("the milter is gone")
        if answer == b"y":
            return data.rstrip(b"\0").decode()
        assert (answer, data) == (b"c", b""), (command, answer, data)
        return ""

    async def send(
        self,
        mail: bytes,
        sender: str = "<a@example.org>",
        recipients: Sequence[str] = ("<b@example.test>",),
        *,
        macros: Mapping[str, str] | None = None,
        parameters: Sequence[str] = (),
        queue_id: str = "4Q1",
    ) -> Outcome:
        """A whole transaction."""
        outcome = Outcome()
        if macros:
            self.put(b"D", b"M" + b"".join(f"{name}\0{value}\0".encode() for name, value in macros.items()))
        outcome.reply = await self.step(b"M", "\0".join((sender, *parameters, "")).encode())
        for recipient in recipients:
            if refused := await self.step(b"R", recipient.encode() + b"\0"):
                outcome.refused[recipient] = refused
        await self.step(b"T", b"")
        outcome.fields, text = split(mail)
        await self.send_header(outcome.fields)
        await self.send_text(text)
        await self.end(outcome, queue_id)
        return outcome

    async def send_header(self, fields: Iterable[Field]) -> None:
        for name, value in fields:
            sent = value if self.steps & LEADING_SPACE else value.removeprefix(b" ")
            await self.step(b"L", name + b"\0" + sent + b"\0")
        await self.step(b"N", b"")

    async def send_text(self, text: bytes) -> None:
        for start in range(0, len(text), PIECE):
            await self.step(b"B", text[start : start + PIECE])

    async def end(self, outcome: Outcome, queue_id: str = "4Q1") -> None:
        """End a mail, and note what it becomes. Raises ConnectionError."""
        self.put(b"D", b"E" + f"i\0{queue_id}\0".encode())
        self.put(b"E")
        while True:
            command, data = await self.packet()
            if not command:
                raise ConnectionResetError("the milter is gone")
            if command == b"c":
                return
            if command == b"d":
                outcome.dropped = True
                return
            if command == b"y":
                outcome.reply = data.removesuffix(b"\0").decode().replace("%%", "%")
                return
            assert command in (b"i", b"m"), (command, data)
            (number,) = struct.unpack(">I", data[:4])
            name, value, rest = data[4:].split(b"\0")
            assert rest == b""
            if not self.steps & LEADING_SPACE and value:
                value = b" " + value
            if command == b"i":
                outcome.fields.insert(number, (name, value))
            else:
                self._change(outcome.fields, number, name, value)

    @staticmethod
    def _change(fields: list[Field], number: int, name: bytes, value: bytes) -> None:
        places = [at for at, (other, _) in enumerate(fields) if other.rstrip().lower() == name.lower()]
        place = places[number - 1]
        if value:
            fields[place] = fields[place][0], value
        else:
            del fields[place]

    def close(self) -> None:
        """Close the connection. What a milter that is gone has not read is dropped, or it would never be closed."""
        self.writer.transport.abort()
