"""An SMTP client on a bare socket, which can break off in every way."""

import contextlib
import re
import socket
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType

ANSWER_SECONDS = 30.0
"""Longer than every limit of the relay in these tests: who has no answer by then gets none."""
RECIPIENTS = ("b@example.test",)


@dataclass(frozen=True)
class Answer:
    """What a client heard in the end. code: None without an answer; recipients: those that were accepted."""

    code: int | None
    raw: bytes = b""
    recipients: tuple[str, ...] = ()


class Client:
    """A connection, greeted. Raises OSError where there is no relay.

    hello: the command that begins a session. turned_away: what is heard of a relay that is stopping. name, sender: what
    it says of itself and of its mails.
    """

    hello = "EHLO"
    name = b"client.test"
    sender = b"a@example.org"
    turned_away: int | None = 421

    @classmethod
    def to(cls, next_hop: str) -> "Callable[[int], Client]":
        """Such clients of a relay with this next hop."""
        return cls

    @staticmethod
    def as_sent(mail: bytes) -> bytes:
        """A mail as the relay gets it from this client."""
        return mail

    def __init__(self, port: int, sock: socket.socket | None = None) -> None:
        self.socket = sock or socket.create_connection(("127.0.0.1", port))
        self.socket.settimeout(ANSWER_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file = self.socket.makefile("rb")
        self.greeting = self.reply()

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def reply(self) -> Answer:
        """The next reply, all its lines; without a code at the end of the connection."""
        raw = b""
        with contextlib.suppress(OSError):
            while line := self._file.readline():
                raw += line
                if line[3:4] != b"-":
                    break
        whole = re.fullmatch(rb"(?:[2-5][0-9][0-9]-.*\r\n)*([2-5][0-9][0-9])( .*)?\r\n", raw)
        return Answer(int(whole.group(1)) if whole else None, raw)

    def say(self, raw: bytes) -> None:
        """Send, if there is still somebody there."""
        with contextlib.suppress(OSError):
            self.socket.sendall(raw)

    def ask(self, line: str | bytes) -> Answer:
        self.say((line.encode() if isinstance(line, str) else line) + b"\r\n")
        return self.reply()

    def deliver(
        self, mail: bytes, recipients: Sequence[str] = RECIPIENTS, before: Callable[[str], None] = lambda stage: None
    ) -> Answer:
        """One transaction; the first refusal that ends it, or the reply after the dot.

        before: called before each of the stages EHLO, MAIL, RCPT, DATA, BODY, MIDDLE (half of the mail is sent),
        ANSWER.
        """
        accepted: list[str] = []
        for stage, lines in (
            ("EHLO", [self.hello.encode() + b" " + self.name]),
            ("MAIL", [b"MAIL FROM:<%b>" % self.sender]),
            ("RCPT", [f"RCPT TO:<{recipient}>".encode() for recipient in recipients]),
            ("DATA", [b"DATA"]),
        ):
            before(stage)
            answers = [self.ask(line) for line in lines]
            if stage == "RCPT":
                accepted = [name for name, answer in zip(recipients, answers, strict=True) if answer.code == 250]
            if not any(answer.code in (250, 354) for answer in answers):
                return answers[-1]
        before("BODY")
        raw = stuffed(mail)
        self.say(raw[: len(raw) // 2])
        before("MIDDLE")
        self.say(raw[len(raw) // 2 :])
        before("ANSWER")
        return self.outcome(accepted)

    def outcome(self, accepted: Sequence[str]) -> Answer:
        """What is heard after the dot. accepted: the recipients."""
        answer = self.reply()
        return Answer(answer.code, answer.raw, tuple(accepted))

    def half(self) -> None:
        """Say that nothing more comes; replies can still be read."""
        self.socket.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        """Break off with RST."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def close(self) -> None:
        self._file.close()
        self.socket.close()


def mail_of(name: str, body: str = "Shall we meet for lunch?") -> bytes:
    """A small mail of this name."""
    return (
        f"Message-ID: <{name}@example.org>\r\nFrom: a@example.org\r\nTo: b@example.test\r\n"
        f"Subject: mail {name}\r\n\r\n{body}\r\n"
    ).encode()


def stuffed(mail: bytes) -> bytes:
    """A mail as it is sent after DATA, with its end."""
    return re.sub(rb"(?m)^\.", b"..", mail) + b".\r\n"


class LmtpClient(Client):
    """A client of LMTP."""

    hello = "LHLO"

    def outcome(self, accepted: Sequence[str]) -> Answer:
        """The reply for those who have the mail, else the first; as many are heard as recipients were accepted."""
        answers = [self.reply() for _ in accepted]
        delivered = [name for name, answer in zip(accepted, answers, strict=True) if answer.code == 250]
        answer = next((answer for answer in answers if answer.code == 250), answers[0])
        return Answer(answer.code, answer.raw, tuple(delivered or accepted))
