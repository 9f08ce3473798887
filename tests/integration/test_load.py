"""The relay under a little load: nothing lost, nothing doubled, all given back; idle connections end in good order.

The same parts under ten minutes of it: benchmarks/load.py.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from spamfilter.relay.next_hops.smtp import KEPT_CONNECTIONS
from tests.faults.daemon import Daemon
from tests.integration.servers import wait_until
from tests.load.beside import Look, Reports, Users, look
from tests.load.idle import Idle
from tests.load.installation import complaints, journalled, marked, trained
from tests.load.mails import made
from tests.load.probe import Probe
from tests.load.process import descriptors
from tests.load.sink import Sink, sink
from tests.load.source import DOMAIN, Source, astray

CONNECTIONS, MESSAGES, LARGE = 20, 100, 60
IDLE, IDLE_SECONDS = 300, 12
MEGABYTE = 10**6
FEW_MORE = KEPT_CONNECTIONS + 15
"""Descriptors of connections to the next hop that are kept for the next client, and of threads' databases."""
ROOM = 32
"""Megabytes for mail in flight: less than what passes, so that each mail must give its room back."""


@dataclass
class Loaded:
    """A relay that has been under load, and stopped. warm: when it had had its first mail; done: after all of it."""

    relay: Daemon
    source: Source
    probe: Probe
    users: Users
    reports: Reports
    arrived: list[str]
    complaints: list[str]
    marked: int
    descriptors: int
    warm: Look
    done: Look

    def sent(self) -> list[str]:
        """The recipients of all that was accepted."""
        accepted = [f"{one.name}@{DOMAIN}" for one in self.probe.samples if one.accepted]
        return [name for one in self.source.rounds for name in one.recipients()] + accepted


@pytest.fixture(scope="module")
def hop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sink]:
    with sink(tmp_path_factory.mktemp("hop") / "notes") as server:
        yield server


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    folder = tmp_path_factory.mktemp("load")
    limits = {"memory_megabytes": ROOM, "message_size": ROOM * MEGABYTE // 2}
    with sink(folder / "notes") as hop, trained(folder / "relay", hop, learnt=20, **limits) as relay:
        source, probe = Source(folder), Probe(relay.port)
        users, reports, before = Users(relay, 0.2), Reports(relay, 1.0), marked(relay)
        unladen = descriptors(relay.process.pid)
        with users, reports, probe:
            for kept in (True, False):
                source.send(relay.port, MESSAGES, CONNECTIONS, kept)
            source.send(relay.port, LARGE, 2, kept=False, mail=large())
            warm = look(relay)
            source.send(relay.port, MESSAGES, 3 * CONNECTIONS, kept=True)
            source.send(relay.port, MESSAGES, CONNECTIONS, kept=False)
            source.send(relay.port, LARGE, 2, kept=False, mail=large())
        # Connections that have just ended are closed a moment later.
        wait_until(lambda: descriptors(relay.process.pid) <= unladen + FEW_MORE, "that descriptors are given back")
        done = look(relay)
        found, by_users = complaints(relay), marked(relay) - before
        relay.stop()
        yield Loaded(
            relay, source, probe, users, reports, hop.end(), found, by_users, unladen, warm, done
        )  # fmt: skip


def large() -> bytes:
    return made("large", "ham") + b"A line of what is not looked at any more.\r\n" * (MEGABYTE // 44)


def test_what_was_accepted_is_at_the_next_hop_exactly_once(loaded: Loaded) -> None:
    assert [one.said for one in loaded.probe.samples if not one.accepted] == []
    assert len(loaded.sent()) > 4 * MESSAGES
    assert astray(loaded.sent(), loaded.arrived) == ([], [], [])


def test_what_was_accepted_is_in_the_journal_exactly_once(loaded: Loaded) -> None:
    assert astray(loaded.sent(), journalled(loaded.relay)) == ([], [], [])


def test_what_users_taught_meanwhile_is_in_the_ledger_and_the_books_are_right(loaded: Loaded) -> None:
    assert loaded.users.failures + loaded.reports.failures + loaded.complaints == []
    assert loaded.users.changed > 0
    assert loaded.marked == loaded.users.entries
    assert loaded.relay.problems() == []


def test_descriptors_are_given_back(loaded: Loaded) -> None:
    assert loaded.done.descriptors <= loaded.descriptors + FEW_MORE


def test_memory_does_not_grow_with_what_has_passed(loaded: Loaded) -> None:
    passed = LARGE * MEGABYTE
    assert loaded.done.anonymous - loaded.warm.anonymous < passed / 3


def test_idle_connections_hear_421_and_are_gone(hop: Sink, tmp_path: Path) -> None:
    with trained(tmp_path / "relay", hop, learnt=0, idle_seconds=IDLE_SECONDS) as relay:
        pid = relay.process.pid
        before = descriptors(pid)
        with Idle(relay.port, IDLE) as silent, Idle(relay.port, CONNECTIONS, hello=True) as greeted:
            # One each, and none at the next hop for those that idle.
            assert descriptors(pid) < before + IDLE + 2 * CONNECTIONS
            ends = silent.ends(5 * IDLE_SECONDS) + greeted.ends(IDLE_SECONDS)
            assert [reply for reply, _ in ends if not reply.startswith(b"421 ")] == []
            assert len(ends) == IDLE + CONNECTIONS
            wait_until(lambda: descriptors(pid) <= before + KEPT_CONNECTIONS + 5, "the descriptors of idle connections")
        relay.stop()


def test_more_connections_than_allowed_hear_421_and_the_others_stay(hop: Sink, tmp_path: Path) -> None:
    with trained(tmp_path / "relay", hop, learnt=0, connections=10) as relay:
        with Idle(relay.port, 10), Idle(relay.port, 5, refused=True) as refused:
            ends = refused.ends(30)
            assert [reply[:4] for reply, _ in ends] == [b"421 "] * 5
        wait_until(lambda: admitted(relay), "the places of those who have gone")
        relay.stop()


def admitted(relay: Daemon) -> bool:
    """Whether a client is let in."""
    try:
        with Idle(relay.port, 1):
            return True
    except RuntimeError:
        return False
