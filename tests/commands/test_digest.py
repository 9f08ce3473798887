"""`spamfilter digest --due`: what is put off, broken off or not noted is made up for, and no user hears twice."""

import asyncio
import errno
import json
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from datetime import datetime
from pathlib import Path

import pytest
from click.testing import Result

from spamfilter.errors import StoreBusy, StoreFull
from spamfilter.relay.quarantine import quarantine
from spamfilter.relay.quarantine.kept_mail import Quarantined, looked_at
from spamfilter.reports.digests import Digest
from spamfilter.stores import QuarantineEvent, open_store
from spamfilter.stores.sql import SqlStore
from tests.faults.databases import fill, small_disk
from tests.relay.test_quarantine import TWO, Warder, warder

__all__ = ["warder"]


@pytest.fixture
def digests(warder: Warder, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Awaitable[Result]]:
    """Runs `digest --due` on a host; its users are those of example.net, and every hour is one for digests."""
    monkeypatch.setenv("SPAMFILTER_DIGEST__URL", "http://127.0.0.1:1")
    monkeypatch.setenv("SPAMFILTER_DIGEST__HOURS", json.dumps([*range(24)]))
    monkeypatch.setenv("SPAMFILTER_RELAY__DOMAINS", '["example.net"]')

    async def run(host: str = "mx1.test") -> Result:
        monkeypatch.setenv("SPAMFILTER_RELAY__HOSTNAME", host)
        return await asyncio.to_thread(warder.shell.run, "digest", "--due")

    return run


async def test_a_digest_that_is_put_off_is_tried_at_the_next_run(
    warder: Warder, digests: Callable[..., Awaitable[Result]]
) -> None:
    warder.keep(recipients=(b"b@example.net",))
    warder.hop.replies["MAIL"] = b"451 later\r\n"
    assert (await digests()).exit_code == 75
    warder.hop.replies.clear()
    assert (await digests()).output == "b@example.net: 1 announced\n"
    warder.keep(recipients=(b"b@example.net",))
    assert (await digests()).output == ""


async def test_one_user_whose_digest_is_put_off_gives_nobody_else_another_one(
    warder: Warder, digests: Callable[..., Awaitable[Result]]
) -> None:
    warder.keep(recipients=TWO)
    warder.hop.replies["RCPT TO:<b@example.net>"] = b"452 4.2.2 mailbox full\r\n"
    first = await digests()
    assert (first.exit_code, first.stdout) == (75, "c@example.net: 1 announced\n")
    warder.keep(recipients=TWO)
    again = await digests()
    assert (again.exit_code, again.stdout) == (75, "")
    assert "b@example.net: the digest was not sent" in again.stderr
    warder.hop.replies.clear()
    assert (await digests()).output == "b@example.net: 2 announced\n"
    assert (await digests()).output == ""


async def test_each_host_of_a_fleet_has_its_own_hour_for_digests(
    warder: Warder, digests: Callable[..., Awaitable[Result]]
) -> None:
    for host in ("mx1.test", "mx2.test"):
        warder.keep(recipients=(b"b@example.net",))
        assert "1 announced" in (await digests(host)).output
        assert (await digests(host)).output == ""


async def test_while_the_database_is_full_nobody_gets_a_digest_and_then_everybody_gets_one(
    warder: Warder, digests: Callable[..., Awaitable[Result]], monkeypatch: pytest.MonkeyPatch
) -> None:
    warder.keep(recipients=TWO)
    with small_disk(warder.path.parent / "disk", 4) as small:
        monkeypatch.setenv("SPAMFILTER_STORE__URL", url := f"sqlite:///{small}/s.db")
        warder.shell.done("migrate")
        with closing(open_store(url)) as relay:  # so that the -wal file exists when the disk is full
            relay.get_setting("any")
            filler = fill(small)
            for _ in range(3):
                result = await digests()
                assert (result.exit_code, result.stdout) == (75, "")
                assert "make room on its disk" in result.stderr
            assert warder.hop.messages == []
            filler.unlink()
            assert (await digests()).output == "b@example.net: 1 announced\nc@example.net: 1 announced\n"
            assert (await digests()).output == ""


@pytest.mark.parametrize(
    ("fault", "later"),
    [
        pytest.param(RuntimeError("struck"), "c@example.net: 1 announced\n", id="interrupted"),
        pytest.param(StoreFull("disk full"), "", id="sent-and-not-noted"),
    ],
)
async def test_digests_that_were_broken_off_go_on_with_the_users_who_have_none(
    warder: Warder,
    digests: Callable[..., Awaitable[Result]],
    monkeypatch: pytest.MonkeyPatch,
    fault: Exception,
    later: str,
) -> None:
    warder.keep(recipients=TWO)
    announce = Digest.events

    def struck(one: Digest, now: datetime) -> list[QuarantineEvent]:
        if one.address == "b@example.net":
            return announce(one, now)
        raise fault

    with monkeypatch.context() as patch:
        patch.setattr(Digest, "events", struck)
        result = await digests()
    assert result.exit_code
    assert result.stdout == "b@example.net: 1 announced\n"
    assert (await digests()).output == later
    assert (await digests()).output == ""


@pytest.mark.parametrize(
    ("back", "later"),
    [
        pytest.param(True, ["d", "e"], id="back-at-once"),
        pytest.param(False, ["c", "d", "e"], id="away-until-the-next-run"),
    ],
)
async def test_a_database_that_goes_away_during_digests_makes_at_most_one_user_hear_twice(
    warder: Warder,
    digests: Callable[..., Awaitable[Result]],
    monkeypatch: pytest.MonkeyPatch,
    back: bool,
    later: list[str],
) -> None:
    warder.keep(recipients=tuple(f"{name}@example.net".encode() for name in "bcde"))
    note, put = SqlStore.note_quarantine, SqlStore.put_setting
    away = False

    def noted(store: SqlStore, events: Sequence[QuarantineEvent]) -> None:
        nonlocal away
        if away or "c@example.net" in events[0].recipients:
            away = not back
            raise StoreBusy("postgresql://127.0.0.1/s: cannot be reached: connection refused; try again")
        note(store, events)

    def written(store: SqlStore, name: str, value: object) -> None:
        if away:
            raise StoreBusy("postgresql://127.0.0.1/s: cannot be reached: connection refused; try again")
        put(store, name, value)

    with monkeypatch.context() as patch:
        patch.setattr(SqlStore, "note_quarantine", noted)
        patch.setattr(SqlStore, "put_setting", written)
        result = await digests()
    assert (result.exit_code, result.stdout) == (75, "b@example.net: 1 announced\n")
    (line,) = result.stderr.splitlines()
    assert "c@example.net: sent, but not noted; the other digests wait: postgresql://127.0.0.1/s" in line
    assert len(warder.hop.messages) == 2
    assert (await digests()).output == "".join(f"{name}@example.net: 1 announced\n" for name in later)
    assert (await digests()).output == ""


async def test_no_other_digest_waits_behind_the_last_one(
    warder: Warder, digests: Callable[..., Awaitable[Result]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def noted(store: SqlStore, events: Sequence[QuarantineEvent]) -> None:
        raise StoreBusy("postgresql://127.0.0.1/s: cannot be reached; try again")

    warder.keep()
    with monkeypatch.context() as patch:
        patch.setattr(SqlStore, "note_quarantine", noted)
        result = await digests()
    assert (result.exit_code, result.stdout) == (75, "")
    assert result.stderr.endswith(
        "@example.net: sent, but not noted: postgresql://127.0.0.1/s: cannot be reached; try again\n"
    )


async def test_a_database_that_goes_away_after_a_refused_digest_is_said(
    warder: Warder, digests: Callable[..., Awaitable[Result]], monkeypatch: pytest.MonkeyPatch
) -> None:
    put, written = SqlStore.put_setting, list[str]()

    def broken_at_the_end(store: SqlStore, name: str, value: object) -> None:
        written.append(name)
        if len(written) > 2:
            raise StoreBusy("postgresql://127.0.0.1/s: cannot be reached; try again")
        put(store, name, value)

    warder.keep(recipients=(b"b@example.net",))
    warder.hop.replies["RCPT TO:<b@example.net>"] = b"550 no\r\n"
    monkeypatch.setattr(SqlStore, "put_setting", broken_at_the_end)
    result = await digests()
    assert (result.exit_code, result.stdout) == (75, "")
    assert "b@example.net: " in result.stderr
    assert result.stderr.endswith("postgresql://127.0.0.1/s: cannot be reached; try again\n")


async def test_a_file_that_may_not_be_read_keeps_no_other_mail_from_a_digest(
    warder: Warder, digests: Callable[..., Awaitable[Result]], monkeypatch: pytest.MonkeyPatch
) -> None:
    closed, *_ = [warder.keep()[0] for _ in range(3)]

    def look(path: Path) -> Quarantined | None:
        if closed in path.name:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return looked_at(path)

    monkeypatch.setattr(quarantine, "looked_at", look)
    assert (await digests()).stdout == "b@example.net: 2 announced\n"
