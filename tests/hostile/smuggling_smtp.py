"""False ends of mail, and what RFC 5321 makes of them.

The expectation is a second, plain implementation: only CR LF . CR LF ends a message. What follows a true end in the
same packet is a second mail that was honestly pipelined; what follows a false one is text.
"""

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise

from tests.hostile.chain_smtp import Chain, codes, heard
from tests.support.doors import DOORS

ENDS = {
    "CR LF": b"\r\n",
    "CR": b"\r",
    "LF": b"\n",
    "CR CR LF": b"\r\r\n",
    "CR LF CR": b"\r\n\r",
    "LF CR": b"\n\r",
    "LF LF": b"\n\n",
    "CR CR": b"\r\r",
    "NUL": b"\0",
    "CR NUL LF": b"\r\0\n",
    "CR LF NUL": b"\r\n\0",
    "NUL CR LF": b"\0\r\n",
    "NEL": "\x85".encode(),
    "FF": b"\f",
    "nothing": b"",
}
DOTS = {
    "a dot": b".",
    "two dots": b"..",
    "dot and NUL": b".\0",
    "NUL and dot": b"\0.",
    "dot and blank": b". ",
    "blank and dot": b" .",
    "dot and backspace": b".\b",
}
PLACES = ("in the body", "first in DATA", "in the header", "at the end of the header")

HIDDEN = b"MAIL FROM:<hidden@example.org>\r\nRCPT TO:<bob@example.test>\r\nDATA\r\nSubject: hidden\r\n\r\nspam\r\n.\r\n"
WORKERS = 8
"""Clients at once, most of whose time is waiting."""

_HEADER_LINE = re.compile(rb"[ \t]|[!-9;-~]+[ \t]*:")


@dataclass(frozen=True)
class Case:
    """What a client sends after the greeting, in packets."""

    name: str
    packets: tuple[bytes, ...]

    @property
    def stream(self) -> bytes:
        return b"".join(self.packets)


@dataclass(frozen=True)
class Mail:
    """A message as it must be judged and received."""

    sender: str
    recipients: tuple[str, ...]
    content: bytes


def case(name: str, end: bytes, place: str = "in the body", cuts: Sequence[int] = ()) -> Case:
    """A mail with this false or true end in it, and another mail's commands behind it.

    cuts: where the packets are divided, counted from the beginning of the end.
    """
    envelope = b"MAIL FROM:<sender@example.org>\r\nRCPT TO:<alice@example.test>\r\nDATA\r\n"
    head = b"From: sender@example.org\r\nTo: alice@example.test\r\nMessage-ID: <1@example.org>\r\nSubject: open\r\n"
    before = {
        "in the body": head + b"\r\nhello",
        "first in DATA": b"",
        "in the header": head.removesuffix(b"\r\n"),
        "at the end of the header": head,
    }[place]
    stream = envelope + before + end + HIDDEN + b"QUIT\r\n"
    borders = [0, *(len(envelope + before) + cut for cut in cuts), len(stream)]
    return Case(name, tuple(stream[start:end] for start, end in pairwise(borders)))


def expected(stream: bytes, normalises: bool) -> tuple[list[int], list[Mail]]:
    """The codes of the replies to a stream of commands, and the messages that are to be handed on."""
    replies: list[int] = []
    mails: list[Mail] = []
    sender, recipients = "", list[str]()
    while stream:
        line, _, stream = stream.partition(b"\n")
        line = line.removesuffix(b"\r")
        verb = line.split(b" ")[0].upper()
        if verb == b"QUIT" and line == b"QUIT":
            return [*replies, 221], mails
        if verb not in (b"MAIL", b"RCPT", b"DATA"):
            replies.append(500)
        elif re.search(rb"[\x00-\x1f\x7f]", line):
            replies.append(501)
        elif verb == b"MAIL":
            replies.append(503 if sender else 250)
            sender = sender or _path(line)
        elif verb == b"RCPT":
            replies.append(250 if sender else 503)
            if sender:
                recipients.append(_path(line))
        elif not recipients:
            replies.append(503)
        else:
            replies.append(354)
            content, _, stream = (b"\r\n" + stream).partition(b"\r\n.\r\n")
            content = re.sub(rb"\r\n\.", b"\r\n", content)[2:] + (b"\r\n" if content else b"")
            if re.search(rb"\r(?!\n)|(?<!\r)\n", content) and not normalises:
                replies.append(550)
            else:
                content = re.sub(rb"\r(?!\n)", b" ", content)
                mails.append(Mail(sender, tuple(recipients), re.sub(rb"(?<!\r)\n", b"\r\n", content)))
                replies.append(250)
            sender, recipients = "", []
    raise AssertionError("the dialogue has no QUIT")


def _path(line: bytes) -> str:
    return line[line.index(b"<") + 1 : line.index(b">")].decode()


def check(servers: Chain, setting: str, cases: Sequence[Case], door: str = "smtp") -> None:
    """Send all cases; what Postfix received must be what was judged, and that what RFC 5321 says was sent."""
    port, greeting = servers.ports[setting, door], f"{DOORS[door].client.hello} client.test\r\n".encode()
    earlier, journalled = len(servers.settled()), len(servers.journal(setting, 0))
    with ThreadPoolExecutor(WORKERS) as workers:
        answers = list(workers.map(lambda one: heard(port, (greeting + one.packets[0], *one.packets[1:])), cases))
    wrong, wanted = [], []
    for one, replies in zip(cases, answers, strict=True):
        said, mails = expected(one.stream, "reject" not in setting)
        if codes(replies)[2:] != said:
            wrong.append(f"{one.name}: {said} expected, but heard {replies[2:]}")
        wanted += [(mail.sender, mail.recipients, len(mail.content), stored(mail.content)) for mail in mails]
    assert not wrong, "\n".join(wrong)
    servers.sink.wait(earlier + len(wanted))
    received = servers.settled()[earlier:]
    judged = servers.journal(setting, journalled + len(wanted))
    assert len(judged) == journalled + len(wanted)
    got = []
    for mail in received:
        (id,) = re.findall(rb"^X-Spamfilter-Id: (\w{26})\r\n", mail.mail, re.MULTILINE)
        row = judged[id.decode()]
        sender = next(line for line in mail.commands if line.startswith("MAIL FROM:<"))[11:].partition(">")[0]
        assert (row.sender, row.recipients) == (sender, tuple(mail.recipients)), mail
        got.append((sender, row.recipients, row.size, stored(mail.mail.partition(id + b"\r\n")[2])))
    assert sorted(got) == sorted(wanted)


def stored(content: bytes) -> bytes:
    """What Postfix keeps of a content: it cuts a header line at a NUL, and sets header and text apart where nobody has.

    An empty line between the two is left out here.
    """
    lines = content.split(b"\r\n")
    end = next((number for number, line in enumerate(lines) if not _HEADER_LINE.match(line)), len(lines))
    head = [line.partition(b"\0")[0] for line in lines[:end]]
    return b"\r\n".join(head + lines[end + (lines[end : end + 1] == [b""]) :])
