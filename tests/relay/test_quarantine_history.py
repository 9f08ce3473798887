"""What became of a mail: remembered when its file is gone, and right across crashes."""

import asyncio
import errno
import json
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from spamfilter.errors import InputError, StoreError
from spamfilter.relay.next_hops import Maildir
from spamfilter.relay.quarantine import Quarantine
from spamfilter.relay.quarantine.quarantine import MOST_EXPIRED
from spamfilter.stores import QuarantineEvent, Store, open_store
from spamfilter.system.ids import id_in, new_id
from tests.integration.servers import relay
from tests.project.test_docs import documented
from tests.relay.test_quarantine import TWO, Warder, unflagged, warder
from tests.support.made import journal_entry

__all__ = ["warder"]


def outcomes(store: Store, id: str) -> list[tuple[str, list[str]]]:
    return [(event.outcome, [*event.recipients]) for event in store.quarantine_events([id]).get(id, [])]


async def test_the_history_says_who_delivered_a_mail_that_is_gone(warder: Warder) -> None:
    id, _ = warder.keep(recipients=TWO)
    await warder.release(id)
    (told,) = map(json.loads, (await warder.run("list", "--history", "--json")).stdout.splitlines())
    assert set(told) == documented("quarantine list --history --json")
    assert (told["mail"], told["outcome"], told["recipients"]) == (id, "delivered", ["b@example.net", "c@example.net"])
    shown = await warder.run("show", id)
    assert shown.exit_code == 2
    assert f"delivered to b@example.net, c@example.net by {told['by']}, " in shown.stderr


async def test_a_mail_is_delivered_to_one_recipient_and_stays_for_the_other(warder: Warder) -> None:
    id, kept = warder.keep(recipients=TWO)
    assert await warder.release("--to", "C@example.net", id) == f"{id}: delivered to <c@example.net>\n"
    told = json.loads((await warder.run("list", "--json")).stdout)
    assert told["recipients"] == ["b@example.net"]
    assert [event["outcome"] for event in told["history"]] == ["delivered"]
    assert "delivered to c@example.net by " in (await warder.run("list")).stdout
    assert "was delivered already" in await warder.release("--to", "c@example.net", id, code=2)
    assert await warder.release(id) == f"{id}: delivered to <b@example.net>\n"
    assert warder.arrived() == [unflagged(kept)] * 2
    assert warder.files() == {}


async def test_a_mail_that_a_user_has_deleted_was_not_delivered_to_them(warder: Warder) -> None:
    id, _ = warder.keep(recipients=TWO)
    with warder.shell.store() as store:
        kept = Quarantine(warder.path, store)
        kept.delete(kept.find(id), "digest link: c@example.net", "c@example.net")
    said = await warder.release("--to", "c@example.net", id, code=2)
    assert f"{id}: deleted for c@example.net by digest link: c@example.net, " in said
    assert warder.arrived() == []


async def test_what_the_next_hop_rejects_is_never_noted_as_delivered(warder: Warder) -> None:
    id, _ = warder.keep()
    for when, reply in (("DATA", b"451 later\r\n"), ("DOT", b"550 never\r\n"), ("DOT", b"close")):
        warder.hop.replies = {when: reply}
        await warder.run("release", "--no-learn", id)
        with warder.shell.store() as store:
            assert outcomes(store, id) == []
    assert (await warder.run("list", "--json")).stdout.count(id) == 1


async def test_a_crash_between_note_and_removal_delivers_nothing_twice(
    warder: Warder, monkeypatch: pytest.MonkeyPatch
) -> None:
    id, kept = warder.keep(recipients=TWO)
    unlink = Path.unlink

    def struck(path: Path, missing_ok: bool = False) -> None:
        if id in path.name:
            raise KeyboardInterrupt  # as a kill, it comes after the note and before the removal
        unlink(path, missing_ok)

    with monkeypatch.context() as patch, warder.shell.store() as store:
        patch.setattr(Path, "unlink", struck)
        quarantine = Quarantine(warder.path, store)
        mail = quarantine.find(id)
        with pytest.raises(KeyboardInterrupt):
            await quarantine.release(mail, warder.next_hop(), "anna")
    assert len(warder.files()) == 1
    with warder.shell.store() as store:
        assert outcomes(store, id) == [("delivered", ["b@example.net", "c@example.net"])]
        assert Quarantine(warder.path, store).mails() == []
    assert "by anna" in await warder.release(id, code=2)
    assert warder.arrived() == [unflagged(kept)]


async def test_a_delivery_that_cannot_be_noted_is_a_delivery(warder: Warder, monkeypatch: pytest.MonkeyPatch) -> None:
    id, kept = warder.keep()
    with warder.shell.store() as store:

        def full(events: list[QuarantineEvent]) -> None:
            raise StoreError("disk full")

        monkeypatch.setattr(store, "note_quarantine", full)
        quarantine = Quarantine(warder.path, store)
        released = await quarantine.release(quarantine.find(id), warder.next_hop(), "anna")
    assert released.unnoted == "disk full"
    assert warder.arrived() == [unflagged(kept)]
    assert warder.files() == {}


async def test_what_was_noted_as_deleted_is_kept_while_its_file_is_there(warder: Warder) -> None:
    id, _ = warder.keep()
    with warder.shell.store() as store:
        quarantine = Quarantine(warder.path, store)
        store.note_quarantine([QuarantineEvent(id, datetime.now(UTC), "deleted", (), "anna")])  # and then a crash
        mail = quarantine.find(id)
        quarantine.delete(mail, "otto")
        with pytest.raises(InputError, match=r"deleted by otto, .*\+00:00"):
            quarantine.find(id)


async def test_expiry_is_remembered(warder: Warder) -> None:
    id, _ = warder.keep()
    later = datetime.now(UTC) + timedelta(days=1)
    with warder.shell.store() as store:
        assert Quarantine(warder.path, store).expire(later, later) == 1
        assert outcomes(store, id) == [("expired", [])]


async def test_a_file_that_cannot_be_deleted_keeps_no_other_one_and_is_noted_once(
    warder: Warder, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [warder.keep()[0] for _ in range(3)]
    later = datetime.now(UTC) + timedelta(days=1)
    unlink = Path.unlink

    def immutable(path: Path, missing_ok: bool = False) -> None:
        if ids[0] in path.name:
            raise PermissionError(1, "Operation not permitted", str(path))
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", immutable)
    with warder.shell.store() as store:
        for _ in range(3):
            with pytest.raises(PermissionError, match=ids[0]):
                Quarantine(warder.path, store).expire(later, later)
        assert [outcomes(store, id) for id in ids] == [[("expired", [])]] * 3
        assert [mail.id for mail in Quarantine(warder.path, store).mails()] == ids[:1]


async def test_many_files_that_cannot_be_deleted_do_not_use_up_what_a_look_may_delete(
    warder: Warder, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [warder.keep()[0] for _ in range(MOST_EXPIRED + 2)]
    stuck, later, unlink = ids[:MOST_EXPIRED], datetime.now(UTC) + timedelta(days=1), Path.unlink

    def immutable(path: Path, missing_ok: bool = False) -> None:
        if id_in(path.name) in stuck:
            raise PermissionError(1, "Operation not permitted", str(path))
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", immutable)
    with warder.shell.store() as store:
        quarantine = Quarantine(warder.path, store)
        for _ in range(2):
            with pytest.raises(PermissionError):
                quarantine.expire(later, later, {path.name for path in quarantine.older(later)})
        assert [mail.id for mail in quarantine.mails()] == stuck


async def test_marking_as_ham_says_how_to_deliver(warder: Warder) -> None:
    id, _ = warder.keep()
    with warder.shell.store() as store:
        judged = {"at": datetime.now(UTC), "tokens": {"fields": {b"as": 1, b"judged": 1}}}
        store.write_journal([journal_entry(id=id, **judged)])
    hint = f"{id}: is in quarantine; `spamfilter quarantine release {id}` delivers it\n"
    assert warder.shell.done("mark-ham", id).endswith(hint)
    warder.shell.done("forget", id)
    assert hint not in warder.shell.run("review", stdin=b"s\nu\n").stdout
    assert hint in warder.shell.run("review", stdin=b"h\n").stdout
    await warder.release(id)
    assert hint not in warder.shell.done("mark-ham", id)


async def test_marking_as_ham_says_which_other_host_keeps_the_mail(
    warder: Warder, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = new_id()
    entry = journal_entry(id=id, action="quarantine", host="mx2.test", tokens={"fields": {b"as": 1, b"judged": 1}})
    with warder.shell.store() as store:
        store.write_journal([entry])
    monkeypatch.setenv("SPAMFILTER_RELAY__HOSTNAME", "mx1.test")
    hint = f"; mx2.test has kept it in quarantine: `spamfilter quarantine release {id}` there delivers it"
    assert hint in " ".join(warder.shell.done("mark-ham", id).split())
    assert "mx2.test" not in warder.shell.done("mark-spam", id)
    monkeypatch.setenv("SPAMFILTER_RELAY__HOSTNAME", "mx2.test")
    assert "mx2.test" not in warder.shell.done("mark-ham", id)
    monkeypatch.setenv("SPAMFILTER_RELAY__HOSTNAME", "mx1.test")
    with warder.shell.store() as store:
        store.note_quarantine([QuarantineEvent(id, datetime.now(UTC), "delivered", ("b@example.net",), "anna")])
    assert "mx2.test" not in warder.shell.done("mark-ham", id)


def test_a_relay_says_which_other_host_keeps_a_mail_that_is_marked_as_ham(tmp_path: Path) -> None:
    id = new_id()
    entry = journal_entry(id=id, action="quarantine", host="mx2.test", tokens={"fields": {b"as": 1, b"judged": 1}})
    with relay(tmp_path / "relay") as server:
        with closing(open_store(f"sqlite:///{server.state}/spamfilter.db")) as store:
            store.write_journal([entry])
        done = server.command("mark-ham", id)
    assert "; mx2.test has kept it in quarantine: " in " ".join(done.stdout.split()), done.stderr


async def test_a_mail_is_deleted_for_one_recipient_and_stays_for_the_other(warder: Warder) -> None:
    id, kept = warder.keep(recipients=TWO)
    with warder.shell.store() as store:
        quarantine = Quarantine(warder.path, store)
        before = quarantine.find(id)
        quarantine.delete(before, "bea", "b@example.net")
        assert quarantine.find(id).recipients == ["c@example.net"]
        assert outcomes(store, id) == [("deleted", ["b@example.net"])]
        with pytest.raises(InputError, match="released, deleted or moved"):
            quarantine.delete(before, "bea", "b@example.net")
        with pytest.raises(InputError, match="released, deleted or moved"):
            quarantine.delete(before, "dora", "d@example.net")
    assert "deleted for b@example.net by bea, " in (await warder.run("list")).stdout
    assert await warder.release(id) == f"{id}: delivered to <c@example.net>\n"
    assert warder.arrived() == [unflagged(kept)]
    assert warder.files() == {}


async def test_the_last_recipient_deletes_the_file(warder: Warder) -> None:
    id, _ = warder.keep(recipients=TWO)
    with warder.shell.store() as store:
        quarantine = Quarantine(warder.path, store)
        for address in ("b@example.net", "c@example.net"):
            quarantine.delete(quarantine.find(id), address, address)
        assert outcomes(store, id) == [("deleted", ["b@example.net"]), ("deleted", [])]
        assert quarantine.mails() == []
    assert warder.files() == {}


async def test_after_a_crash_a_deletion_for_one_recipient_counts(
    warder: Warder, monkeypatch: pytest.MonkeyPatch
) -> None:
    id, _ = warder.keep(recipients=TWO)

    def struck(*_: object) -> None:
        raise KeyboardInterrupt

    with warder.shell.store() as store:
        quarantine = Quarantine(warder.path, store)
        with monkeypatch.context() as patch:
            patch.setattr(Maildir, "put", struck)
            with pytest.raises(KeyboardInterrupt):
                quarantine.delete(quarantine.find(id), "bea", "b@example.net")
        assert quarantine.find(id).recipients == ["c@example.net"]
    assert await warder.release(id) == f"{id}: delivered to <c@example.net>\n"


def test_the_latest_mails_come_first(warder: Warder, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = []
    for number, microseconds in enumerate((9, 10, 98_000, 99_000, 100_000, 101_000)):  # all in one second
        monkeypatch.setattr(time, "time_ns", lambda at=microseconds: (1_800_000_000 * 10**6 + at) * 1000)
        ids.append(warder.keep(recipients=TWO[number % 2 :][:1])[0])
    with warder.shell.store() as store:
        quarantine = Quarantine(warder.path, store)
        assert [mail.id for mail in quarantine.mails()] == ids
        assert [mail.id for mail in quarantine.latest(2)] == [ids[5], ids[4]]
        assert [mail.id for mail in quarantine.latest(9)] == ids[::-1]
        quarantine.delete(quarantine.find(ids[3]), "anna")
        assert [mail.id for mail in quarantine.latest(2, "c@example.net")] == [ids[5], ids[1]]
        assert quarantine.latest(2, "d@example.net") == []


async def test_a_mail_that_another_host_has_kept_is_not_gone(warder: Warder, monkeypatch: pytest.MonkeyPatch) -> None:
    id = new_id()
    with warder.shell.store() as store:
        store.write_journal([journal_entry(id=id, action="quarantine", host="mx2.test")])
    monkeypatch.setenv("SPAMFILTER_RELAY__HOSTNAME", "mx1.test")
    assert "mx2.test has kept it: release it there" in await warder.release(id, code=2)
    assert "on mx2.test" in await asyncio.to_thread(warder.shell.done, "show", id)
    monkeypatch.setenv("SPAMFILTER_RELAY__HOSTNAME", "mx2.test")
    assert "it was released or deleted, has expired, or was never kept" in await warder.release(id, code=2)


@pytest.mark.parametrize(
    "told",
    [{"action": "quarantine", "reply": "451 4.3.0 Temporary fault; try again later"}, {"action": "pass"}],
    ids=["deferred", "delivered"],
)
async def test_a_mail_that_was_never_kept_is_neither_gone_nor_on_another_host(
    warder: Warder, monkeypatch: pytest.MonkeyPatch, told: dict[str, str]
) -> None:
    """A mail for a quarantine that could not be written stayed with its client."""
    id = new_id()
    with warder.shell.store() as store:
        store.write_journal([journal_entry(id=id, host="mx2.test", **told)])
    for host in ("mx1.test", "mx2.test"):
        monkeypatch.setenv("SPAMFILTER_RELAY__HOSTNAME", host)
        assert "has kept it" not in await warder.release(id, code=2)
        assert "quarantine: " not in await asyncio.to_thread(warder.shell.done, "show", id)
        assert "has kept it" not in await asyncio.to_thread(warder.shell.done, "mark-ham", id)


async def test_a_mail_that_a_user_may_not_see_is_not_called_gone(
    warder: Warder, monkeypatch: pytest.MonkeyPatch
) -> None:
    id, _ = warder.keep()
    unread = "quarantine: unknown, because the quarantine cannot be read"
    with warder.shell.store() as store:
        store.write_journal([journal_entry(id=id, action="quarantine")])
    (warder.path / "new").rename(warder.path / "away")
    (warder.path / "new").touch()  # no folder, which root cannot read, either
    assert unread in await asyncio.to_thread(warder.shell.done, "show", id)
    (warder.path / "new").unlink()
    (warder.path / "away").rename(warder.path / "new")
    assert "quarantine: kept" in await asyncio.to_thread(warder.shell.done, "show", id)

    def closed(path: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    with monkeypatch.context() as file:
        file.setattr("spamfilter.relay.quarantine.quarantine.looked_at", closed)
        assert unread in await asyncio.to_thread(warder.shell.done, "show", id)
    await warder.release(id)
    (warder.path / "new").rename(warder.path / "away")
    (warder.path / "new").touch()
    assert "quarantine: delivered" in await asyncio.to_thread(warder.shell.done, "show", id)


async def test_without_the_database_nobody_knows_what_became_of_a_mail(
    warder: Warder, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, _ = warder.keep()
    there = new_id()
    with warder.shell.store() as store:
        store.write_journal([journal_entry(id=there, action="quarantine", host="mx2.test")])
    monkeypatch.setenv("SPAMFILTER_RELAY__HOSTNAME", "mx1.test")
    database = warder.shell.folder / "spamfilter.db"
    whole = database.read_bytes()
    database.write_bytes(b"no database" * 100)
    for command in ("show", "release", "delete"):
        result = await warder.run(command, there)
        assert (result.exit_code, result.stdout) == (75, "")
        assert "what became of it, or whether another host keeps it, is not known without the database" in result.stderr
    assert (await warder.run("show", here)).exit_code == 0
    database.write_bytes(whole)
    assert "mx2.test has kept it: release it there" in await warder.release(there, code=2)
