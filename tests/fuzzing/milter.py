"""Any bytes as a mail server's side of milter, against a reading of the protocol as simple as can be.

The first two bytes choose: the size of the pieces that arrive, and what is done to mail. The rest are commands for
packets, a letter, a length in a byte and data, or with RAW in the second byte the packets themselves. What is checked:
what is answered are whole packets of the protocol, each mail has one answer, as many mails are dropped as the
quarantine has more, all memory is given back, and nothing fails beside it.
"""

import asyncio
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_network
from pathlib import Path
from tempfile import TemporaryDirectory

from spamfilter.bayes.verdict import Action, Policy
from spamfilter.config.sections import Feedback, Limits
from spamfilter.config.settings import Settings
from spamfilter.learning.automatic_rules import Automatic
from spamfilter.learning.filter import Filter
from spamfilter.learning.mark_queue import MarkQueue
from spamfilter.relay.journal import Journal
from spamfilter.relay.judging import Judge
from spamfilter.relay.milter.connection import Connection
from spamfilter.relay.next_hops import Maildir
from spamfilter.relay.next_hops.maildir import MaildirNextHop
from spamfilter.relay.relay import Relay
from tests.fuzzing.target import Run, without_faults
from tests.fuzzing.wires import Transport, feed, loop
from tests.support.made import follow
from tests.support.memory_store import open_store

ACTIONS: tuple[Action, ...] = ("pass", "tag", "reject", "quarantine", "defer")
RAW, EAGER, FEEDBACK = 64, 32, 16
"""Bits of the second byte: packets as they are; all steps are offered; there is a feedback address."""
LIMITS = Limits().model_copy(update={"message_size": 3000, "recipients": 3})
"""Small, so that short inputs reach them."""
ENDS = (b"c", b"d", b"y")


def framed(text: bytes) -> Iterator[bytes]:
    """The packets that commands stand for."""
    at = 0
    while at + 1 < len(text):
        length = text[at + 1]
        data = text[at + 2 : at + 2 + length]
        yield struct.pack(">I", 1 + len(data)) + text[at : at + 1] + data
        at += 2 + length


def packets(written: bytes) -> list[tuple[bytes, bytes]]:
    """Letter and data of each packet. Raises AssertionError where something is none."""
    found = []
    at = 0
    while at < len(written):
        (length,) = struct.unpack_from(">I", written, at)
        assert 0 < length <= len(written) - at - 4
        found.append((written[at + 4 : at + 5], written[at + 5 : at + 4 + length]))
        at += 4 + length
    return found


def check(answers: list[tuple[bytes, bytes]]) -> None:
    for letter, data in answers:
        if letter == b"y":
            lines = data[:-1].split(b"\r\n")
            assert data.endswith(b"\0")
            assert {line[:1] for line in lines} <= {b"4", b"5"}
            assert all(line[3:4] == b"-" for line in lines[:-1])
            assert lines[-1][3:4] == b" "
        elif letter in (b"i", b"m"):
            assert data[4:].count(b"\0") == 2, data
            assert b"\r" not in data[4:] or letter == b"m"
        else:
            assert letter in (b"c", b"d", b"O"), letter


@contextmanager
def target() -> Iterator[Run]:
    filter = Filter(open_store("memory:"), Settings().voices())
    desk = MarkQueue(filter, Feedback(), learnt=lambda: follow(filter))

    with TemporaryDirectory() as folder, loop() as running:
        quarantine = Path(folder, "quarantine")

        def relay(chosen: int) -> Relay:
            action = ACTIONS[chosen % len(ACTIONS)]
            return Relay(
                judge=Judge(filter, Policy(actions={"ham": action, "unsure": action, "spam": action}, reject_after=0)),
                journal=Journal(filter.store),
                next_hop=MaildirNextHop(Path(folder, "mail")),
                quarantine_folder=Maildir(quarantine),
                limits=LIMITS,
                trusted=[ip_network("127.0.0.0/8")],
                domains=frozenset(),
                hostname="relay.test",
                mark_queue=desk,
                feedback=Feedback(spam_addresses=["spam@relay.test"] if chosen & FEEDBACK else []),
                automatic=Automatic(desk, filter.store),
            )

        made = {chosen: relay(chosen) for chosen in (*range(len(ACTIONS)), *range(FEEDBACK, FEEDBACK + len(ACTIONS)))}

        def run(data: bytes) -> None:
            piece, chosen = data[:2].ljust(2, b"\1")
            used = made[chosen % FEEDBACK % len(ACTIONS) + (chosen & FEEDBACK)]
            steps = 0x1FFFFF if chosen & EAGER else 0
            offer = struct.pack(">IcIII", 13, b"O", 6, 0x1FF, steps)
            sent = data[2:] if chosen & RAW else offer + b"".join(framed(data[2:]))
            heard = bytearray()

            async def talk() -> None:
                connection = Connection(used)
                transport = Transport(connection)
                connection.connection_made(transport)
                await feed(connection, transport, sent, 1 + piece * 8)
                while not transport.is_closing() or used.background_tasks:
                    await asyncio.sleep(0)
                await asyncio.sleep(0)
                heard.extend(transport.written)

            running.run(talk())
            answers = packets(bytes(heard))
            check(answers)
            kept = [*(quarantine / "new").iterdir()]
            for file in kept:
                file.unlink()
            dropped = sum(letter == b"d" for letter, _ in answers)
            assert dropped <= len(kept) or chosen & FEEDBACK  # a mail server that has hung up hears no answer
            assert used.memory.used == 0
            assert sum(used.shared.connections.all) == 0

        with without_faults(run) as watched:
            yield watched
        desk.close()
