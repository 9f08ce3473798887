"""A backup that was put in place by somebody else than the user of the relay, or while the relay runs."""

import contextlib
import os
import sqlite3
from pathlib import Path

import pytest

from tests.faults.account import Account
from tests.faults.client import mail_of
from tests.faults.daemon import NOBODY, Daemon, daemon
from tests.faults.databases import await_journal, judged_with, teach
from tests.faults.hop import next_hop
from tests.integration.servers import wait_until, workshop
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


def test_a_backup_that_is_written_into_the_file_in_use_is_judged_by(tmp_path: Path) -> None:
    """As by `sqlite3 spamfilter.db ".restore copy.db"`: the file stays the same one, and the ledger ends earlier."""
    with next_hop() as hop, daemon(tmp_path / "relay", hop) as relay:
        account = Account(hop)
        teach(relay)
        assert relay.command("backup", str(tmp_path / "copy.db")).returncode == 0
        for name in ("later", "last"):
            relay.ask({"command": "mark", "label": "spam", "name": "x"}, mail_of(name, f"{name} pills"))
        wait_until(lambda: judged_with(relay, account) == "0/3", "what was marked")
        await_journal(relay)
        with (
            contextlib.closing(sqlite3.connect(tmp_path / "copy.db")) as copy,
            contextlib.closing(sqlite3.connect(relay.database, timeout=30)) as database,
        ):
            copy.backup(database)
        wait_until(lambda: judged_with(relay, account) == "0/1", "the counts of the backup")
        assert "its ledger ends at entry 1, and entry 3 was counted: an older backup was restored" in relay.log()
        relay.ask({"command": "mark", "label": "spam", "name": "x"}, mail_of("anew", "cheap pills"))
        wait_until(lambda: judged_with(relay, account) == "0/2", "what was marked after the restoring")
        account.settle()
        assert relay.problems() == []
