"""A release of several mails to a next hop that is known by its name, while the name server says nothing."""

import subprocess
import sys
from pathlib import Path

from spamfilter.errors import TryAgain
from spamfilter.relay.next_hops import Maildir
from spamfilter.system.ids import new_id
from tests.faults.daemon import Daemon
from tests.faults.names import asking, name_server

NEXT_HOP = "smtp://mail.hop.test:2525"


def test_each_mail_is_tried_and_has_its_own_error(tmp_path: Path) -> None:
    relay = Daemon(tmp_path / "relay", NEXT_HOP, limits={"connect_seconds": 2.5})
    quarantine, ids = Maildir(relay.state / "quarantine"), [new_id(), new_id()]
    for id in ids:
        mail = b"X-Spamfilter-Id: %b\r\nSubject: kept\r\n\r\nkept\r\n" % id.encode()
        quarantine.write([mail], b"a@example.org", [b"b@example.test"], id)
    with name_server() as names:
        names.mood = "silent"
        command = [sys.executable, "-m", "spamfilter", "quarantine", "release", "--no-learn", *ids]
        done = subprocess.run(
            [*asking(names, tmp_path), *command],
            env=relay.environment, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
    assert done.returncode == TryAgain.exit_code
    said = " ".join(done.stderr.split())
    assert [said.count(f"{id}: {NEXT_HOP}: no greeting within 2.5 s") for id in ids] == [1, 1]
    assert "Traceback" not in done.stderr
