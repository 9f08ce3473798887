"""The disk under the quarantine full: the mail stays with its client, and the log stays small."""

from pathlib import Path

from tests.faults.account import Account
from tests.faults.daemon import daemon
from tests.faults.databases import fill, small_disk
from tests.faults.hop import next_hop


def test_a_disk_that_is_full_under_the_quarantine_leaves_the_mail_with_the_client(tmp_path: Path) -> None:
    actions = {f"on_{name}": "quarantine" for name in ("ham", "unsure", "spam")}
    with small_disk(tmp_path / "disk", 2) as small, next_hop() as hop:
        account = Account(hop)
        quarantine = small / "quarantine"
        verdict = {**actions, "quarantine": str(quarantine)}
        with daemon(tmp_path / "relay", hop, verdict=verdict) as relay:
            filler = fill(small)
            assert [account.send(relay.port).code for _ in range(30)] == [451] * 30
            assert not [*(quarantine / "new").iterdir(), *(quarantine / "tmp").iterdir()]
            assert (
                relay.log().count(f"ERROR the quarantine {quarantine} cannot be written: No space left on device") == 1
            )
            assert relay.log().count("ERROR") == 1
            assert "Traceback" not in relay.log()
            filler.unlink()
            assert account.send(relay.port).code == 250
            assert len(list((quarantine / "new").iterdir())) == 1
