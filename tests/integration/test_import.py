"""The path of docs/import.md, as it stands there, beside a running relay and with the real filters."""

import os
import subprocess
import sys
from pathlib import Path

from tests.faults.client import Client, mail_of
from tests.faults.daemon import Daemon
from tests.faults.hop import next_hop
from tests.integration.servers import wait_until
from tests.integration.test_readme import ON_PAGES
from tests.support import other_filters, real
from tests.support.other_filters import mails


def test_the_path_from_another_filter_works_while_the_relay_runs(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / ".bogofilter").mkdir(parents=True)
    other_filters.bogofilter(home / ".bogofilter", mails())
    real.require("sa-learn", "spamassassin")
    with next_hop() as hop:
        relay = Daemon(tmp_path / "relay", f"smtp://127.0.0.1:{hop.port}")
        relay.start()
        environment = relay.environment | {"HOME": str(home)}
        environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
        for label, some in mails().items():
            folder = tmp_path / label
            folder.mkdir()
            for at, one in enumerate(some):
                (folder / str(at)).write_bytes(one)
            subprocess.run(["sa-learn", f"--{label}", folder], env=environment, check=True, capture_output=True)
        said = []
        for block in ON_PAGES["import"]:
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", block],
                env=environment, cwd=home, capture_output=True, text=True, timeout=120, check=False,
            )  # fmt: skip
            assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"
            said.append(done.stdout)
        assert "of bogofilter, learnt from 8 ham and 8 spam" in said[0]
        assert "of spamassassin, learnt from 8 ham and 8 spam" in said[1]
        ids = [line.split()[0] for line in said[-1].splitlines()]
        assert len(ids) == 2
        wait_until(lambda: relay.learnt() == 16, "the relay knows both imports")
        spam = other_filters.WORDS["spam"]
        with Client(relay.port) as client:
            client.deliver(mail_of("offer", spam[1]).replace(b"Subject: ", b"Subject: " + spam[0].encode() + b" "))
        wait_until(lambda: bool(hop.copies("offer")), "the mail")
        assert b"class=spam" in hop.copies("offer")[0].mail
        for id in ids:
            assert relay.command("forget", id).returncode == 0
        wait_until(lambda: relay.learnt() == 0, "the relay has forgotten them")
        assert relay.command("doctor", "--verify").stdout.count("not the sum") == 0
        relay.stop()
