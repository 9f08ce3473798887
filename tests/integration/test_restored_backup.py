"""A database that was put in place by somebody else than the user of the relay."""

import os

import pytest

from tests.faults.account import Account
from tests.faults.daemon import NOBODY, Daemon
from tests.faults.databases import judged_with, teach
from tests.faults.hop import next_hop
from tests.integration.servers import workshop
from tests.support.real import require_root


@pytest.mark.parametrize(("mode", "denied"), [(0o644, "no permission to write"), (0o600, "no permission")])
def test_a_restored_backup_of_another_owner_is_refused_at_the_start_in_one_line(mode: int, denied: str) -> None:
    """The relay has run on it before, so that nothing must be written at the start."""
    require_root("to run as somebody else")
    with workshop() as folder, next_hop() as hop:
        account = Account(hop)
        relay = Daemon(folder / "relay", f"smtp://127.0.0.1:{hop.port}")
        teach(relay)
        with relay.run():
            assert judged_with(relay, account) == "0/1"
        for path in (relay.state, *relay.state.iterdir()):
            if path != relay.database:
                os.chown(path, NOBODY, NOBODY)
        relay.database.chmod(mode)
        assert relay.refused_to_nobody() == (
            f"spamfilter: {relay.database}: {denied}: spamfilter.db belongs to root ({mode:04o}); run this as the"
            " owner of the database, or chown its files to the user of the relay"
        )
        assert account.send(relay.port).code is None
        account.settle()
