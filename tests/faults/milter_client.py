"""A mail server that asks a milter, and takes what passes to the next hop itself before it answers its client."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from tests.faults.client import RECIPIENTS, Answer, Client
from tests.support.mail_server import CLIENT, MailServer, Outcome, joined, split


class MilterClient(Client):
    """One connection of the mail server to the milter. next_hop: the port that it delivers to.

    A milter that is stopping ends the connection, and the mail server's settings say what its client hears.
    """

    turned_away = None

    def __init__(self, port: int, next_hop: int) -> None:
        self._next_hop = next_hop
        self._loop = asyncio.Runner()
        try:
            self._server = self._loop.run(self._agreed(port))
        except BaseException:
            self._loop.close()
            raise
        self.greeting = Answer(220)

    @classmethod
    def to(cls, next_hop: str) -> Callable[[int], Client]:
        return partial(cls, next_hop=int(next_hop.rpartition(":")[2]))

    @staticmethod
    def as_sent(mail: bytes) -> bytes:
        return joined(*split(mail))

    @staticmethod
    async def _agreed(port: int) -> MailServer:
        server = MailServer(*await asyncio.open_connection("127.0.0.1", port))
        await server.agree()
        return server

    def reply(self) -> Answer:
        """What the milter says unasked: nothing but the end of the connection."""
        assert self._loop.run(self._server.packet()) == (b"", b"")
        return Answer(None)

    def deliver(
        self, mail: bytes, recipients: Sequence[str] = RECIPIENTS, before: Callable[[str], None] = lambda stage: None
    ) -> Answer:
        try:
            outcome, text, accepted = self._loop.run(self._asked(mail, recipients, before))
        except OSError:
            return Answer(None)
        if outcome.reply:
            return Answer(int(outcome.reply[:3]), outcome.reply.encode())
        with Client(self._next_hop) as hop:
            return hop.deliver(joined(outcome.fields, text), accepted)

    async def _asked(
        self, mail: bytes, recipients: Sequence[str], before: Callable[[str], None]
    ) -> tuple[Outcome, bytes, list[str]]:
        server, outcome = self._server, Outcome()
        before("EHLO")
        await server.step(b"C", CLIENT.replace(b"mail.example", self.name))
        before("MAIL")
        outcome.reply = await server.step(b"M", b"<%b>\0" % self.sender)
        before("RCPT")
        accepted = [name for name in recipients if not await server.step(b"R", f"<{name}>\0".encode())]
        before("DATA")
        await server.step(b"T", b"")
        before("BODY")
        outcome.fields, text = split(mail)
        await server.send_header(outcome.fields)
        await server.send_text(text[: len(text) // 2])
        before("MIDDLE")
        await server.send_text(text[len(text) // 2 :])
        before("ANSWER")
        await server.end(outcome)
        return outcome, text, accepted

    def close(self) -> None:
        self._server.close()
        self._loop.close()
