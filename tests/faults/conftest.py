"""A next hop, and a relay in front of it that all tests of a file share."""

from collections.abc import Iterator

import pytest

from tests.faults.account import Account
from tests.faults.case import case, is_recorded, recorded
from tests.faults.daemon import Daemon, daemon
from tests.faults.hop import Hop, next_hop
from tests.support.doors import DOORS, Door


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


@pytest.fixture(autouse=True)
def its_case(request: pytest.FixtureRequest) -> Iterator[None]:
    """What each test has seen is noted, where that is asked for."""
    test, _, id = request.node.name.partition("[")
    with recorded(request.node.path.stem, test, id.removesuffix("]")):
        yield


@pytest.fixture
def account(hop: Hop, request: pytest.FixtureRequest) -> Iterator[Account]:
    """The account of a test; after its fault the next mail must pass, unless the test has seen to that itself."""
    account = Account(hop)
    if "relay" in request.fixturenames:
        relay = request.getfixturevalue("relay")
        account.port, account.connect = relay.port, relay.client
    yield account
    if account.port and not case().recoveries:
        account.recover()


@pytest.fixture(scope="module")
def door(request: pytest.FixtureRequest) -> Door:
    """The door of the relay: SMTP, except where a test is run for EACH_DOOR."""
    return DOORS[getattr(request, "param", "smtp")]


@pytest.fixture(scope="module")
def one_relay(one_hop: Hop, door: Door, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with daemon(tmp_path_factory.mktemp("relay"), one_hop, door=door) as server:
        yield server


@pytest.fixture
def relay(one_relay: Daemon) -> Iterator[Daemon]:
    """A relay that runs, whatever the test before did to it."""
    if not one_relay.running:
        one_relay.start()
    yield one_relay
    if is_recorded():
        one_relay.problems()
