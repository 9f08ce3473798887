"""Any bytes as a client's side of an SMTP or LMTP dialogue, against a reading of its own, as simple as can be.

The first three bytes choose: the size of the pieces that arrive, what the next hop does, and the settings of the
relay. What is compared: each command has one well-formed reply, a mail by LMTP one for each recipient; as many messages
are at the next hop as were answered with 250, each what was sent but for the relay's own header fields; no task or
callback fails.
"""

import asyncio
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from ipaddress import ip_network
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from spamfilter.bayes.verdict import Policy
from spamfilter.config.sections import Feedback, Limits
from spamfilter.config.settings import Settings
from spamfilter.errors import NextHopError
from spamfilter.learning.automatic_rules import Automatic
from spamfilter.learning.filter import Filter
from spamfilter.learning.mark_queue import MarkQueue
from spamfilter.relay.journal import Journal
from spamfilter.relay.judging import Judge
from spamfilter.relay.next_hops import Conversation, Maildir, NextHop, Reply
from spamfilter.relay.relay import Relay
from spamfilter.relay.smtp import client
from spamfilter.relay.smtp.dialogue import Dialogue
from spamfilter.relay.smtp.lmtp import LmtpDialogue
from tests.fuzzing.target import Run, without_faults
from tests.fuzzing.wires import Transport, feed, loop
from tests.support.made import follow
from tests.support.memory_store import open_store

SPAM = "spam@relay.test"
SCRIPTS: tuple[dict[bytes, bytes], ...] = (
    {},
    {b"MAIL": b"450 4.1.8 not now"},
    {b"RCPT": b"550 5.1.1 nobody"},
    {b"DATA": b"554 5.5.1 no"},
    {b"DOT": b"451 4.3.0 later"},
    {b"DOT": b"552 5.3.4 too large"},
    {b"RCPT": b""},
    {b"DATA": b""},
    {b"CONNECT": b""},
    {b"RSET": b"500 what"},
    {b"RCPT": b"252-2.1.5 two\r\n252 lines", b"DOT": b"250-2.0.0 two\r\n250 lines"},
)
"""What the next hop says instead of 250 to a verb; nothing means that it is gone."""
TRUSTED, NORMALISES, SUBMISSION, TAGS = 1, 2, 4, 8
"""Bits of the third byte."""
LIMITS = Limits().model_copy(update={"message_size": 3000, "recipients": 5, "errors": 5})
"""Small, so that short inputs reach them."""

_REPLY = re.compile(rb"(?:([2-5][0-9][0-9])-[^\r\n\0]*\r\n)*([2-5][0-9][0-9]) [^\r\n\0]*\r\n")
_OURS = re.compile(rb"(>?From [^\n]*\n)?((?:X-Spam[^\r\n]*\r\n)+)")


class _Said(Conversation):
    def __init__(self, hop: "_Hop") -> None:
        self.keywords = {"8BITMIME": "", "SMTPUTF8": "", "DSN": "", "SIZE": "2900", "XFORWARD": "NAME ADDR HELO"}
        self._hop = hop
        self._closed = False

    async def _reply(self, verb: bytes) -> Reply:
        await asyncio.sleep(0)
        assert not self._closed
        said = self._hop.script.get(verb, b"250 2.0.0 Ok")
        if not said:
            raise NextHopError("gone")
        return Reply.of(*said.split(b"\r\n"))

    async def command(self, line: bytes) -> Reply:
        assert not set(line) & set(b"\r\n\0"), line
        return await self._reply(line[:4].upper())

    async def data(self, parts: Sequence[bytes | memoryview]) -> Reply:
        if b"DATA" in self._hop.script:
            return await self._reply(b"DATA")
        reply = await self._reply(b"DOT")
        if reply.positive:
            self._hop.messages.append(b"".join(parts))
        return reply

    async def forget(self) -> None:
        await asyncio.sleep(0)

    def abort(self) -> None:
        self._closed = True


class _Hop(NextHop):
    """A next hop by script, which keeps what it takes."""

    def __init__(self, script: dict[bytes, bytes]) -> None:
        self.script = script
        self.messages: list[bytes] = []

    async def keywords(self) -> Mapping[str, str]:
        return (await self.open()).keywords

    async def open(self) -> Conversation:
        if b"CONNECT" in self.script:
            raise NextHopError("gone")
        return _Said(self)

    def close(self) -> None:
        pass

    @property
    def where(self) -> str:
        return "a script"


def replies(written: bytes) -> list[bytes]:
    """The replies in what a server has written. Raises AssertionError where something is none."""
    found = []
    place = 0
    while place < len(written):
        reply = _REPLY.match(written, place)
        assert reply, written[place : place + 200]
        assert reply.group(1) in (None, reply.group(2))
        found.append(reply.group())
        place = reply.end()
    return found


def taken(sent: bytes, heard: list[bytes], lmtp: bool) -> list[bytes]:
    """The messages that were answered with 250, by LMTP for any recipient, as they were sent, dots single.

    Raises AssertionError where there are other replies than these commands should have.
    """
    greeting, *waiting = heard
    assert greeting[:3] in (b"220", b"421")
    found = []
    place = recipients = 0
    code = greeting[:3]
    while code not in (b"221", b"421"):
        end = sent.find(b"\n", place)
        if end < 0:
            break
        verb = sent[place : place + 4].upper()
        place = end + 1
        code = waiting.pop(0)[:3]
        if verb in (b"MAIL", b"RSET", b"LHLO") and code == b"250":
            recipients = 0
        recipients += verb == b"RCPT" and code[:1] == b"2"
        if code == b"354":
            message = b"\r\n" + sent[place:]
            dot = message.find(b"\r\n.\r\n")
            if dot < 0:
                break
            place += dot + 3
            codes = [waiting.pop(0)[:3] for _ in range(recipients if lmtp else 1)]
            code = codes[-1]
            if b"250" in codes:
                lines = message[2 : dot + 2].split(b"\r\n")
                found.append(b"\r\n".join(line[1:] if line.startswith(b".") else line for line in lines))
    assert not waiting, waiting
    return found


def same_but_for_ours(original: bytes, passed: bytes) -> bool:
    """Whether this is the original with header fields of ours at its top."""
    ours = _OURS.match(passed)
    return ours is not None and (ours.group(1) or b"") + passed[ours.end() :] == original


@contextmanager
def target(kind: type[Dialogue] = Dialogue) -> Iterator[Run]:
    voices = Settings().voices()
    tag = Policy(actions={"ham": "tag", "unsure": "tag", "spam": "tag"}, subject_prefix="[x]", evidence_header=True)

    def empty() -> Filter:
        return Filter(open_store("memory:"), voices)

    def relay(filter: Filter, hop: NextHop, chosen: int) -> Relay:
        store = filter.store
        desk = MarkQueue(filter, Feedback(), learnt=lambda: follow(filter))
        return Relay(
            judge=Judge(filter, tag if chosen & TAGS else Policy()),
            journal=Journal(store),
            next_hop=hop,
            quarantine_folder=quarantine,
            limits=LIMITS,
            trusted=[ip_network("127.0.0.0/8")] if chosen & TRUSTED else [],
            domains=frozenset(("example.test",)),
            hostname="relay.test",
            mark_queue=desk,
            feedback=Feedback(spam_addresses=[SPAM]),
            automatic=Automatic(desk, store),
            normalise=bool(chosen & NORMALISES),
        )

    untaught = empty()
    kept: dict[tuple[int, int], tuple[_Hop, Relay]] = {}  # by script and settings: making one takes as long as talking

    with TemporaryDirectory() as folder, loop() as running, pytest.MonkeyPatch.context() as patch:
        patch.setattr(client, "GREETING_SECONDS", 0.0)
        quarantine = Maildir(Path(folder))

        def run(data: bytes) -> None:
            piece, script, chosen = data[:3].ljust(3, b"\1")
            sent = data[3:]
            script %= len(SCRIPTS)
            teaches = SPAM.encode() in sent.lower().translate(None, b'"\\')  # "s\pam"@relay.test is that address, too
            settings = script, chosen & (TRUSTED | NORMALISES | TAGS)
            if teaches or settings not in kept:
                kept[settings] = (hop := _Hop(SCRIPTS[script])), relay(empty() if teaches else untaught, hop, chosen)
            hop, made = kept.pop(settings) if teaches else kept[settings]
            hop.messages.clear()
            heard = bytearray()

            async def talk() -> None:
                session = kind(made, submission=bool(chosen & SUBMISSION))
                transport = Transport(session)
                session.connection_made(transport)
                while not transport.written:
                    await asyncio.sleep(0)
                await feed(session, transport, sent, 1 + piece * 8)
                while not transport.is_closing() or made.background_tasks:
                    await asyncio.sleep(0)
                heard.extend(transport.written)

            running.run(talk())
            if teaches:
                made.mark_queue.close()
            answered = taken(sent, replies(bytes(heard)), kind is LmtpDialogue)
            if not teaches:
                assert len(hop.messages) == len(answered)
                if not chosen & (NORMALISES | TAGS) and b"x-spam" not in sent.lower():
                    assert all(map(same_but_for_ours, answered, hop.messages))
            assert len(hop.messages) <= len(answered)

        with without_faults(run) as watched:
            yield watched
