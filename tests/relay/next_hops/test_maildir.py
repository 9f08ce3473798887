"""The Maildir: whole files under new/, or nothing."""

import os
import stat
from pathlib import Path

import pytest

from spamfilter.errors import NextHopError, StoreError
from spamfilter.relay.next_hops.maildir import Maildir, MaildirNextHop


async def test_a_message_is_one_private_file_with_its_envelope(tmp_path: Path) -> None:
    conversation = await MaildirNextHop(tmp_path / "mail").open()
    assert (await conversation.command(b"MAIL FROM:<a@x> SIZE=10")).code == 250
    assert (await conversation.command(b"RCPT TO:<b@y>")).code == 250
    assert (await conversation.command(b'RCPT TO:<"c>d"@y> NOTIFY=NEVER')).code == 250
    reply = await conversation.data([b"Subject: x\r\n", memoryview(b"\r\n.body\r\n")])
    (file,) = (tmp_path / "mail" / "new").iterdir()
    assert reply.text == f"250 2.0.0 Ok: stored as {file.name}"
    assert file.read_bytes() == (
        b'X-Spamfilter-Sender: <a@x>\nX-Spamfilter-Recipients: <b@y>,\n <"c>d"@y>\nSubject: x\n\n.body\n'
    )
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert list((tmp_path / "mail" / "tmp").iterdir()) == []


async def test_a_keep_alive_forgets_nobody_and_vrfy_promises_nothing(tmp_path: Path) -> None:
    conversation = await MaildirNextHop(tmp_path / "mail").open()
    for line in (b"MAIL FROM:<a@x>", b"RCPT TO:<b@y>", b"NOOP"):
        assert (await conversation.command(line)).code == 250
    assert (await conversation.command(b"VRFY b")).code == 252
    await conversation.data([b"\r\n"])
    (file,) = (tmp_path / "mail" / "new").iterdir()
    assert b"X-Spamfilter-Recipients: <b@y>\n" in file.read_bytes()


def test_what_a_crash_left_in_tmp_is_in_nobodys_way(tmp_path: Path) -> None:
    maildir = Maildir(tmp_path / "mail")
    left = maildir.path / "tmp" / "one"
    left.write_bytes(b"left")
    maildir.put(b"whole", maildir.path / "new" / "one")
    assert ((maildir.path / "new" / "one").read_bytes(), left.read_bytes()) == (b"whole", b"left")


async def test_rset_forgets_the_recipients(tmp_path: Path) -> None:
    conversation = await MaildirNextHop(tmp_path / "mail").open()
    for line in (b"MAIL FROM:<a@x>", b"RCPT TO:<old@y>", b"RSET", b"MAIL FROM:<>", b"RCPT TO:<new@y>"):
        assert (await conversation.command(line)).code == 250
    await conversation.data([b"\r\n"])
    (file,) = (tmp_path / "mail" / "new").iterdir()
    assert b"old@y" not in file.read_bytes()
    assert b"X-Spamfilter-Sender: <>\n" in file.read_bytes()


async def test_a_disk_that_takes_nothing_is_an_error_of_the_next_hop(tmp_path: Path) -> None:
    next_hop = MaildirNextHop(tmp_path / "mail")
    (tmp_path / "mail" / "tmp").rmdir()
    (tmp_path / "mail" / "tmp").write_text("in the way")
    with pytest.raises(NextHopError, match="Not a directory"):
        await (await next_hop.open()).data([b"x\r\n"])
    assert list((tmp_path / "mail" / "new").iterdir()) == []


def test_the_file_is_synced_before_it_is_renamed_and_the_folder_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    fsync, rename = os.fsync, Path.rename

    def noting_fsync(number: int) -> None:
        done.append("folder" if stat.S_ISDIR(os.fstat(number).st_mode) else "file")
        fsync(number)

    def noting_rename(self: Path, target: Path) -> Path:
        done.append("rename")
        return rename(self, target)

    monkeypatch.setattr(os, "fsync", noting_fsync)
    monkeypatch.setattr(Path, "rename", noting_rename)
    Maildir(tmp_path / "mail").write([b"x\r\n"], b"a@x", [b"b@y"])
    assert done == ["file", "rename", "folder"]


def test_a_path_that_cannot_be_a_maildir_is_refused_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be made a Maildir"):
        Maildir(tmp_path / "file" / "mail")
