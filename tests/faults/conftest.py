"""A next hop, and a relay in front of it that all tests of a file share."""

from collections.abc import Iterator

import pytest

from tests.faults.account import Account
from tests.faults.daemon import Daemon, daemon
from tests.faults.hop import Hop, next_hop


@pytest.fixture(scope="module")
def one_hop() -> Iterator[Hop]:
    with next_hop() as hop:
        yield hop


@pytest.fixture
def hop(one_hop: Hop) -> Iterator[Hop]:
    """A next hop that behaves, at the beginning of each test."""
    one_hop.heal()
    yield one_hop
    one_hop.heal()


@pytest.fixture
def account(hop: Hop) -> Account:
    return Account(hop)


@pytest.fixture(scope="module")
def one_relay(one_hop: Hop, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with daemon(tmp_path_factory.mktemp("relay"), one_hop) as server:
        yield server


@pytest.fixture
def relay(one_relay: Daemon) -> Daemon:
    """A relay that runs, whatever the test before did to it."""
    if not one_relay.running:
        one_relay.start()
    return one_relay
