"""A relay whose log is a file on a full disk, as under nohup: it carries mail, and SIGTERM ends it cleanly."""

import signal
from pathlib import Path

import pytest

from tests.faults.client import Client, mail_of
from tests.faults.daemon import Daemon
from tests.faults.hop import next_hop
from tests.integration.servers import greets, wait_until


@pytest.mark.parametrize("workers", [1, 2])
def test_mail_goes_on_and_the_end_is_clean(tmp_path: Path, workers: int) -> None:
    with next_hop() as hop:
        relay = Daemon(tmp_path / "relay", f"smtp://127.0.0.1:{hop.port}", relay={"workers": workers})
        del relay.environment["PYTHONUNBUFFERED"]  # with which Python would forget what it cannot write
        relay.launch("sh", "-c", 'exec "$@" 2>/dev/full', "sh")
        try:
            wait_until(lambda: greets(relay.port), "a start that no log tells of")
            with Client(relay.port) as client:
                assert client.deliver(mail_of("first")).code == 250
        finally:
            code = relay.kill(signal.SIGTERM)
        assert (code, len(hop.kept)) == (0, 1)
