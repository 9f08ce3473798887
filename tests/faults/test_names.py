"""A next hop that is known by its name only, and a name server that is silent, dead, or talks nonsense."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.account import Account
from tests.faults.case import case
from tests.faults.client import Client, mail_of
from tests.faults.daemon import Daemon
from tests.faults.databases import teach
from tests.faults.hop import Hop
from tests.faults.names import Mood, NameServer, asking, name_server
from tests.integration.servers import wait_until

NAME = "mail.hop.test"
LIMITS = {"connect_seconds": 2.5}
"""Less than a resolver waits for a name server, which is 5 s, and that twice."""
ONE = {"workers": 1}
"""Each process asks for itself, so that a mail that passes says nothing of the others."""
CROWD = 12
"""Clients at a time: more than asyncio has threads of its own for on a host of few processors."""


@pytest.fixture(scope="module")
def names() -> Iterator[NameServer]:
    with name_server() as server:
        yield server


@pytest.fixture(scope="module")
def one_relay(one_hop: Hop, names: NameServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A relay whose next hop is a name."""
    folder = tmp_path_factory.mktemp("relay")
    relay = Daemon(folder, f"smtp://{NAME}:{one_hop.port}", limits=LIMITS, relay=ONE)
    relay.prefix = asking(names, folder)
    with relay.run():
        yield relay


@pytest.fixture(autouse=True)
def healthy(names: NameServer) -> Iterator[None]:
    """Each test begins and ends with a name server that answers."""
    yield
    names.down()
    names.mood = "answers"
    names.up()


def heal(names: NameServer, relay: Daemon, account: Account) -> None:
    """The name server answers again; questions that were asked before may take their time to be given up."""
    names.mood = "answers"
    case().fault_ends()
    wait_until(lambda: account.send(relay.port).code == 250, "a mail to pass", 60)
    account.finish(relay.port)


def test_a_next_hop_is_found_by_its_name(hop: Hop, relay: Daemon, names: NameServer, account: Account) -> None:
    assert account.send(relay.port).code == 250
    assert (NAME, 1) in names.asked
    account.settle()


@pytest.mark.parametrize("mood", ["silent", "garbage", "foreign", "truncated", "failing"])
def test_a_name_server_that_does_not_answer(
    hop: Hop, relay: Daemon, names: NameServer, account: Account, mood: Mood
) -> None:
    names.mood = mood
    assert account.send(relay.port).code == 451
    account.settle()
    heal(names, relay, account)


def test_a_name_server_that_is_dead(hop: Hop, relay: Daemon, names: NameServer, account: Account) -> None:
    names.down()
    assert account.send(relay.port).code == 451
    account.settle()
    names.up()
    heal(names, relay, account)


def test_clients_that_wait_for_a_silent_name_server_hold_up_nothing_else(
    hop: Hop, relay: Daemon, names: NameServer, account: Account
) -> None:
    """They share one question, which cannot be broken off and lasts longer than each of them waits."""
    before = relay.learnt()
    names.mood = "silent"
    crowd = [(Client(relay.port), account.name()) for _ in range(CROWD)]
    threads = [
        threading.Thread(target=lambda one=client, it=name: account.note(it, one.deliver(mail_of(it))))
        for client, name in crowd
    ]
    asked = len(names.asked)
    for thread in threads:
        thread.start()
    wait_until(lambda: len(names.asked) > asked, "a question")
    # What another process learns is taken in, and the status is told, by threads, too.
    teach(relay, f"learnt-{account.name()}")
    wait_until(lambda: relay.learnt() == before + 1, "what was taught")
    for thread in threads:
        thread.join(60)
    for client, _ in crowd:
        client.close()
    # IPv4 and IPv6, each asked again once while the clients waited; not as often for each of them.
    assert len(names.asked) - asked <= CROWD
    heal(names, relay, account)


def test_a_relay_ends_while_a_name_server_is_silent(
    hop: Hop, names: NameServer, tmp_path: Path, account: Account
) -> None:
    patient = ["options timeout:25 attempts:3"]  # more seconds than an end takes
    relay = Daemon(tmp_path / "relay", f"smtp://{NAME}:{hop.port}", limits=LIMITS, relay=ONE)
    relay.prefix = asking(names, tmp_path, *patient)
    names.mood = "silent"
    with relay.run():
        assert account.send(relay.port).code == 451
        asked = len(names.asked)
    assert len(names.asked) == asked, "the relay waited for the answer to its question"
    names.mood = "answers"
    with relay.run():
        account.finish(relay.port)
