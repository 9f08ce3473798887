"""Any bytes as a next hop's side of the dialogue: the client hears 250 only if the next hop said 2xx after the dot.

NUL separates what is said at each turn: at the connection, and after each command or message of ours.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from spamfilter.errors import NextHopError
from spamfilter.relay.next_hops import Conversation, Reply
from spamfilter.relay.next_hops.connection import Connection
from spamfilter.relay.next_hops.smtp import SmtpConversation, SmtpNextHop
from tests.fuzzing.dialogue import replies
from tests.fuzzing.target import Run, without_faults
from tests.fuzzing.wires import Transport, loop

MAIL = b"Subject: dots\r\n\r\n.\r\n..\r\nend\r\n"
SENT = b"Subject: dots\r\n\r\n..\r\n...\r\nend\r\n"
COMMANDS = (b"MAIL FROM:<a@example.org>", b"RCPT TO:<b@example.test>")

END = re.compile(rb"(?:\A|\r\n)\.\r\n\Z")
_ENDS = re.compile(rb"(?:\A|\n)(?![^\n]{3}-)[^\n]*\n\Z")
"""What ends with a line that is no reply's first or middle one."""
_POSITIVE = re.compile(rb"(?:(2[0-9][0-9])-[^\n]*\n)*2[0-9][0-9](?: [^\n]*)?\r?\n")


class _Mouth:
    """Says the next piece whenever a turn of ours ends, and hangs up after the last."""

    def __init__(self, data: bytes, connection: Connection) -> None:
        self.turns = data.split(b"\0")
        self.said: list[bytes] = []
        self._connection = connection
        self._message = False

    def heard(self, block: bytes) -> None:
        if self._message:
            if not END.search(block):
                return
            self._message = False
        elif block == b"DATA\r\n":
            self._message = bool(self.turns) and self.turns[0].startswith(b"354")
        self.speak()

    def speak(self) -> None:
        self.said.append(b"")
        while self.turns:
            piece = self.turns.pop(0)
            self._connection.received(piece)
            self.said[-1] += piece
            if _ENDS.search(self.said[-1]):
                return
        self._connection.eof_received()  # what is not whole by now never will be, and we would wait for it


async def _through(data: bytes) -> None:
    """One transaction with a next hop that says this."""
    connection = Connection()
    mouth = _Mouth(data, connection)
    transport = Transport(connection, mouth.heard)
    connection.connection_made(transport)
    hop = SmtpNextHop("192.0.2.1", 25, "relay.test")
    conversation = SmtpConversation(hop, connection)
    mouth.speak()
    try:
        with suppress(NextHopError):
            await conversation.greet()
            await _transaction(conversation, transport, mouth)
        conversation.release()
    finally:
        hop.close()
        conversation.abort()


async def _transaction(conversation: Conversation, transport: Transport, mouth: _Mouth) -> None:
    for line in COMMANDS:
        _check(await conversation.command(line))
    transport.written.clear()
    reply = await conversation.data([MAIL])
    _check(reply)
    written = bytes(transport.written)
    if reply.positive:
        assert written == b"DATA\r\n" + SENT + b".\r\n"
        assert _POSITIVE.match(mouth.said[-1]), mouth.said
    elif written.endswith(b"\r\n.\r\n"):
        assert reply.code >= 400


def _check(reply: Reply) -> None:
    """What is passed on to a client is one reply, whatever came."""
    assert len(replies(reply.raw.replace(b" \r\n", b"\r\n").replace(b"\r\n", b" \r\n"))) == 1, reply
    assert reply.raw.endswith(b"\r\n")
    assert "\n" not in reply.text


@contextmanager
def target() -> Iterator[Run]:
    with loop() as running:

        def run(data: bytes) -> None:
            running.run(_through(data))

        with without_faults(run) as watched:
            yield watched
