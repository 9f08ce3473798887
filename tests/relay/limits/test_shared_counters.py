"""Shared memory of processes: limits over all of them, rows that outlive their process, a set of addresses."""

import os
from collections.abc import Callable

import pytest

from spamfilter.config.sections import Limits
from spamfilter.relay.limits.budget import CONVERSATIONS, CONVERSATIONS_EACH, Memory, Reservation, conversations
from spamfilter.relay.limits.connections import Crowd, hash_of
from spamfilter.relay.limits.shared_counters import LONGEST, MOST_PROBES, Addresses, Shared
from spamfilter.relay.metrics import Metrics, merged

LIMITS = Limits(connections=3, connections_per_client=2)
STRANGER, OTHER, THIRD, *MORE = range(1, 20)
"""Hashes of addresses, of which no two share a bucket, as those of real ones do once in a while."""


class Somebody:
    def leave_if_idle(self) -> None: ...
    def leave(self) -> None: ...


def elsewhere(shared: Shared, number: int, work: Callable[[], object]) -> None:
    """Do something in another process, which has ended when this returns."""
    pid = os.fork()
    if not pid:
        shared.own = number
        try:
            work()
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0


def entered(crowd: Crowd, address: str, trusted: bool = False) -> str:
    return crowd.enter(Somebody(), address, LIMITS, trusted=trusted)


def test_connections_of_another_process_count() -> None:
    shared = Shared(2)
    elsewhere(shared, 1, lambda: entered(Crowd(shared), "192.0.2.1"))
    assert (shared.connections.all[0], shared.connections.all[1]) == (0, 1)
    crowd = Crowd(shared)
    assert entered(crowd, "192.0.2.1") == ""
    assert entered(crowd, "192.0.2.1") == "connections_per_client"
    assert entered(crowd, "192.0.2.1", trusted=True) == ""
    assert entered(crowd, "192.0.2.9") == "connections"
    assert len(crowd) == 2


def test_who_is_refused_and_who_leaves_holds_no_place() -> None:
    crowd, guest = Crowd(Shared()), Somebody()
    for _ in range(100):
        assert crowd.enter(guest, "192.0.2.1", LIMITS, trusted=False) == ""
        assert entered(crowd, "192.0.2.1") == ""
        assert entered(crowd, "192.0.2.1") == "connections_per_client"
        for one in crowd:
            crowd.leave(one)
        crowd.leave(guest)
        assert len(crowd) == 0


def test_a_row_whose_process_ended_is_cleared_but_for_what_it_counted() -> None:
    shared = Shared(2)

    def life() -> None:
        entered(Crowd(shared), "192.0.2.1")
        Memory(100, shared, largest=60).take(60, STRANGER)
        metrics = Metrics(shared.figures[1])
        metrics.count("sessions", by=5)
        metrics.read_by("journal_written", lambda: 7)
        metrics.read_by("connections", lambda: 1)
        metrics.publish()

    elsewhere(shared, 1, life)
    assert Memory(100, shared).used == shared.memory.of(STRANGER) == 60
    assert sum(shared.connections.strangers) == shared.connections.of(hash_of("192.0.2.1")) == 1
    shared.clear(1)
    Metrics(shared.figures[1]).clear_gauges()
    assert (Memory(100, shared).used, sum(shared.connections.all)) == (0, 0)
    for counts in (shared.connections, shared.memory):
        assert (sum(counts.strangers), counts.of(STRANGER), counts.of(hash_of("192.0.2.1"))) == (0, 0, 0)
    again = Metrics(shared.figures[1])
    again.count("sessions")
    again.read_by("journal_written", lambda: 2)
    found = merged((Metrics(shared.figures[0]).snapshot(), again.snapshot()))
    assert (found["sessions"][()], found["journal_written"][()], found["connections"][()]) == ([6], [9], [0])


def test_memory_is_that_of_all_processes() -> None:
    shared = Shared(2)
    elsewhere(shared, 1, lambda: Memory(100, shared).take(60))
    memory = Memory(100, shared)
    held = Reservation(memory)
    assert (memory.fits(40), memory.fits(41)) == (True, False)
    assert held.grow(40)
    assert not held.grow(41)
    assert (memory.used, memory.own) == (100, 40)
    held.release()
    assert (memory.used, memory.own) == (60, 0)


def test_strangers_leave_a_reserve_of_memory_and_each_address_has_a_share() -> None:
    shared = Shared(2)
    elsewhere(shared, 1, lambda: Memory(800, shared).take(100, STRANGER))
    memory = Memory(800, shared)
    assert (memory.fits(1, STRANGER), memory.fits(100, OTHER), memory.fits(101, OTHER)) == (False, True, False)
    assert not memory.take(1, STRANGER)
    assert all(memory.take(100, origin) for origin in MORE[:5])
    assert not memory.take(1, THIRD)
    assert memory.take(200)
    assert not memory.take(1)
    memory.take(-200)
    memory.bound(800, 700)  # a single mail of the largest size always fits
    assert memory.take(100, THIRD)


def test_strangers_leave_conversations_for_trusted_clients() -> None:
    budget = conversations(Shared())
    for origin in MORE[: CONVERSATIONS // CONVERSATIONS_EACH]:
        assert [budget.take(1, origin) for _ in range(CONVERSATIONS_EACH + 1)] == [True] * CONVERSATIONS_EACH + [False]
    assert not budget.take(1, STRANGER)
    assert all(budget.take(1) for _ in range(1000))


@pytest.mark.parametrize(("most", "strangers"), [(1, 1), (2, 1), (9, 8), (1000, 900)])
def test_strangers_leave_connections_for_trusted_clients(most: int, strangers: int) -> None:
    """A tenth of all, which 2,000 idle strangers could take as well as the rest."""
    crowd, limits = Crowd(Shared()), Limits(connections=most, connections_per_client=2000)
    heard = [crowd.enter(Somebody(), "192.0.2.1", limits, trusted=False) for _ in range(most + 1)]
    assert heard.count("") == strangers
    trusted = [crowd.enter(Somebody(), "127.0.0.1", limits, trusted=True) for _ in range(most + 1)]
    assert trusted.count("") == most - strangers


def test_addresses_are_a_set_that_other_processes_see() -> None:
    shared = Shared(2)
    shared.canaries.add("one@example.org")
    elsewhere(shared, 1, lambda: shared.canaries.add("two@example.org"))
    elsewhere(shared, 1, lambda: shared.canaries.discard("one@example.org"))
    assert set(shared.canaries) == {"two@example.org"}
    assert "two@example.or" not in shared.canaries
    assert "wo@example.org" not in shared.canaries


def test_addresses_have_room_for_the_longest_and_no_more_than_they_should() -> None:
    addresses, many = Addresses(), [f"{number}@{'x' * (LONGEST - 10)}" for number in range(MOST_PROBES)]
    for address in many:
        addresses.add(address)
        addresses.add(address)
    assert set(addresses) == set(many)
    with pytest.raises(OverflowError):
        addresses.add("another@example.org")
    with pytest.raises(OverflowError):
        Addresses().add("x" * LONGEST)
    addresses -= set(many[1:])
    assert list(addresses) == many[:1]


def test_a_text_is_of_one_process_cut_to_its_room_and_cleared_with_the_row() -> None:
    shared = Shared(3)
    texts = shared.journal_errors
    elsewhere(shared, 0, lambda: texts.__setitem__(0, "the disk is full"))
    texts[1] = "ü" * LONGEST
    assert [texts[number] for number in range(3)] == ["the disk is full", "ü" * (LONGEST // 2), ""]
    texts[1] = "locked"
    shared.clear(0)
    assert [texts[number] for number in range(3)] == ["", "locked", ""]
