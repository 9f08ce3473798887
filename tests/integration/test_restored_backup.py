"""A database that was put in place by somebody else than the user of the relay."""

import os

import pytest

from tests.faults.account import Account
from tests.faults.daemon import Daemon
from tests.faults.databases import judged_with, teach
from tests.faults.hop import next_hop
from tests.integration.servers import workshop
from tests.support.real import require, require_root


@pytest.mark.parametrize(("mode", "denied"), [(0o644, "no permission to write"), (0o600, "no permission")])
def test_a_restored_backup_of_another_owner_is_refused_at_the_start_in_one_line(mode: int, denied: str) -> None:
    """The relay has run on it before, so that nothing must be written at the start."""
    setpriv = require("setpriv", "util-linux")
    require_root("to run as somebody else")
    nobody = 65534
    with workshop() as folder, next_hop() as hop:
        account = Account(hop)
        relay = Daemon(folder / "relay", f"smtp://127.0.0.1:{hop.port}")
        teach(relay)
        with relay.run():
            assert judged_with(relay, account) == "0/1"
        for path in (relay.state, *relay.state.iterdir()):
            if path != relay.database:
                os.chown(path, nobody, nobody)
        relay.database.chmod(mode)
        relay.launch(setpriv, f"--reuid={nobody}", f"--regid={nobody}", "--clear-groups")
        assert relay.ended() == 2
        assert relay.log().splitlines()[-1] == (
            f"spamfilter: {relay.database}: {denied}: spamfilter.db belongs to root ({mode:04o}); run this as the"
            " owner of the database, or chown its files to the user of the relay"
        )
        assert account.send(relay.port).code is None
        account.settle()
