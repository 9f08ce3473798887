"""Every command of docs/postgresql.md, as it stands there, in order, on a server of its own."""

import os
import subprocess
import sys
from pathlib import Path

from tests.faults.account import Account
from tests.faults.client import mail_of
from tests.faults.daemon import Daemon
from tests.faults.hop import next_hop
from tests.integration.servers import wait_until
from tests.integration.test_readme import ON_PAGES
from tests.support.postgresql import KIND, server
from tests.support.real import require


def test_every_command_of_the_page_on_a_fleet_works_as_it_stands(tmp_path: Path) -> None:
    database = server()
    programs = [Path(sys.executable).parent, Path(require("initdb", "postgresql", database.programs)).parent]
    shared = {"PGHOST": str(database.folder), "PGUSER": "admin"}
    said: dict[str, str] = {}
    # Without a host in the URL, the environment names the server, for commands of PostgreSQL as for ours.
    url = f"{KIND}://spamfilter@/spamfilter"

    def run(relay: Daemon, block: str) -> None:
        paths = ":".join([*map(str, programs), os.environ["PATH"]])
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", block],
            env={**relay.environment, "PATH": paths}, cwd=tmp_path,
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"
        said[block] = done.stdout

    roles, tables, looks, report, backup, restore, standby = ON_PAGES["postgresql"]
    with next_hop() as hop:
        account = Account(hop)
        fleet = [
            Daemon(tmp_path / name[:3], f"smtp://127.0.0.1:{hop.port}", store={"url": url}, relay={"hostname": name})
            for name in ("mx1.example.org", "mx2.example.org")
        ]
        for relay in fleet:
            relay.environment |= shared
        run(fleet[0], roles.replace("createuser --no-superuser spamfilter\n", ""))  # the tests' server has this role
        run(fleet[0], tables)
        with fleet[0].run(), fleet[1].run():
            assert account.send(fleet[1].port).code == 250
            for label, body in (("ham", "lunch at noon"), ("spam", "cheap pills")):
                fleet[0].ask({"command": "mark", "label": label, "name": label}, mail_of(label, body))
            wait_until(lambda: fleet[1].learnt() == 1, "the mark at the other host")
            wait_until(lambda: "1 message found" in fleet[0].command("search").stdout, "the journal")
            run(fleet[0], looks)
            assert "relay: mx2.example.org" in said[looks]
            run(fleet[0], report)
            assert "Mail        1 message" in said[report]
            run(fleet[0], backup)
        run(fleet[0], restore)
        run(fleet[0], report)
        assert "Mail        1 message" in said[report]
        with fleet[0].run():
            assert fleet[0].learnt() == 1
        run(fleet[0], standby)
        assert (tmp_path / "standby" / "standby.signal").exists()
        account.settle()
