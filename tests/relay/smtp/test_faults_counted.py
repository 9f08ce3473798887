"""Faults of the relay are counted by the part that failed."""

from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from spamfilter.learning.filter import Filter
from spamfilter.relay.next_hops.maildir import Maildir, MaildirNextHop
from tests.support.made import mail
from tests.support.parts import relaying


def broken(*arguments: object) -> NoReturn:
    raise RuntimeError("planted")


@pytest.mark.parametrize(
    ("part", "plant", "code"),
    [
        ("judge", lambda patch: patch.setattr(Filter, "read", broken), b"250"),
        ("hand_over", lambda patch: patch.setattr(Maildir, "write", broken), b"451"),
    ],
    ids=["judge", "hand-over"],
)
async def test_a_fault_is_counted(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    part: str,
    plant: Callable[[pytest.MonkeyPatch], None],
    code: bytes,
) -> None:
    async with relaying(tmp_path, MaildirNextHop(tmp_path / "mail")) as running:
        client = await running.connect()
        plant(monkeypatch)
        assert (await client.send(mail())).startswith(code)
        assert running.relay.metrics.value("faults", part) == 1
        assert running.relay.metrics.value("replies", f"{code[:1].decode()}xx") >= 1
