"""The quarantine: a released mail arrives once and unchanged, or stays; old mail expires."""

import asyncio
import errno
import fcntl
import json
import os
import pty
import re
import signal
import smtplib
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import Result
from hypothesis import given
from hypothesis import strategies as st

from spamfilter.bayes.model import Score
from spamfilter.bayes.verdict import Verdict
from spamfilter.config.settings import load
from spamfilter.errors import InputError, StoreFull
from spamfilter.learning import mark_lookup
from spamfilter.mail.tagging import mark
from spamfilter.relay.next_hops import Maildir, NextHop, next_hop_of
from spamfilter.relay.next_hops.maildir import unwrapped, wrapped
from spamfilter.relay.quarantine import Quarantine, quarantine
from spamfilter.relay.quarantine.kept_mail import Quarantined, looked_at
from spamfilter.stores import open_store
from spamfilter.system import paths as places
from spamfilter.system.escaping import harmless
from spamfilter.system.ids import new_id
from spamfilter.system.moments import moment_text
from tests.faults.databases import fill, small_disk
from tests.integration.servers import relay, wait_until
from tests.project.test_docs import documented
from tests.support.made import journal_entry, mail, some
from tests.support.parts import Hop
from tests.support.planted import HOURLY_AT_ONCE, planted
from tests.support.real import require_root
from tests.support.shell import Shell

TWO = (b"b@example.net", b"c@example.net")


class Warder:
    """A user with a quarantine and a next hop."""

    def __init__(self, folder: Path, hop: Hop) -> None:
        self.shell = Shell(folder)
        self.hop = hop
        self.path = folder / "quarantine"
        self._maildir = Maildir(self.path)

    def keep(
        self, sent: bytes | None = None, sender: bytes = b"a@example.org", recipients: tuple[bytes, ...] = TWO[:1]
    ) -> tuple[str, bytes]:
        """Put a mail there as the relay does; its id, and the mail as it was marked."""
        id = new_id()
        verdict = Verdict(Score(5.0, 0.987), "spam", "quarantine", 0.9, {"ham": 1, "spam": 1})
        parts = mark(sent or mail(), verdict.fields(id))
        self._maildir.write(parts, sender, recipients, id)
        return id, b"".join(parts)

    def files(self) -> dict[str, bytes]:
        """Files by their place below the quarantine, with their content."""
        found = (path for path in self.path.rglob("*") if path.is_file())
        return {str(path.relative_to(self.path)): path.read_bytes() for path in found}

    async def run(self, *words: object) -> Result:
        """A command, while the next hop goes on."""
        return await asyncio.to_thread(self.shell.run, "quarantine", *words)

    async def release(self, *words: object, code: int = 0) -> str:
        """Release without learning; all that was said."""
        result = await self.run("release", "--no-learn", *words)
        assert result.exit_code == code, result.output
        return result.output

    def arrived(self) -> list[bytes]:
        """What the next hop has, dots single."""
        return [message.replace(b"\r\n..", b"\r\n.") for message in self.hop.messages]

    def next_hop(self) -> NextHop:
        return next_hop_of(load())

    def commands(self) -> list[bytes]:
        return [line for line in self.hop.received if line[:4] in (b"MAIL", b"RCPT")]


@pytest.fixture
async def warder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Warder]:
    monkeypatch.setattr(places, "SYSTEM_FILE", tmp_path / "none.toml")
    monkeypatch.setattr(mark_lookup, "WRITTEN_WITHIN", 0.0)
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path))
    monkeypatch.delenv("SPAMFILTER_CONFIG", raising=False)
    async with Hop() as hop:
        monkeypatch.setenv("SPAMFILTER_RELAY__NEXT_HOP", f"smtp://127.0.0.1:{hop.port}")
        warder = Warder(tmp_path, hop)
        warder.shell.done("migrate")
        yield warder


def unflagged(mail: bytes) -> bytes:
    """A mail of the quarantine as a release sends it."""
    assert b"X-Spam-Flag: YES\r\n" in mail
    mail = mail.replace(b"X-Spam-Flag: YES\r\n", b"", 1)
    return re.sub(rb"X-Spam-Status: Yes, [^\n]*\n", b"X-Spam-Status: No, released from quarantine\r\n", mail, count=1)


lines = st.lists(st.binary(max_size=20).map(lambda line: line.translate(None, b"\r\n")), max_size=8)
paths = st.binary(max_size=20).map(lambda path: path.translate(None, b"\r\n"))


@some(300)
@given(
    written=lines,
    first=st.sampled_from(
        [b"", b"From a Sun Mar 1\r\n", b">From a\r\n", b"From: a\r\n", b"X-Spamfilter-Sender: <>\r\n"]
    ),
    sender=paths,
    recipients=st.lists(paths, min_size=1, max_size=4),
)
def test_what_comes_out_is_what_was_put_in(
    written: list[bytes], first: bytes, sender: bytes, recipients: list[bytes]
) -> None:
    whole = first + b"".join(line + b"\r\n" for line in written)
    assert unwrapped(wrapped(whole, sender, recipients)) == (whole, sender, recipients)


def test_a_file_without_an_envelope_is_a_mail_all_the_same() -> None:
    assert unwrapped(mail().replace(b"\r\n", b"\n")) == (mail(), b"", [])


async def test_a_released_mail_arrives_byte_for_byte_and_is_gone(warder: Warder) -> None:
    id, kept = warder.keep(mail(body=".dots\r\n..\r\n. and\ttabs \x7f"), recipients=TWO)
    assert await warder.release(id) == f"{id}: delivered to <b@example.net>, <c@example.net>\n"
    assert warder.arrived() == [unflagged(kept)]
    assert warder.commands() == [
        b"MAIL FROM:<a@example.org>", b"RCPT TO:<b@example.net>", b"RCPT TO:<c@example.net>",
    ]  # fmt: skip
    assert warder.files() == {}


async def test_what_is_released_is_not_called_spam_any_more(warder: Warder) -> None:
    sent = mail(body="X-Spam-Flag: YES\r\n").replace(b"Subject:", b"A: b\r\n X-Spam-Flag: YES\r\nSubject:")
    id, kept = warder.keep(sent)
    await warder.release(id)
    (arrived,) = warder.arrived()
    status, own_id, rest = arrived.split(b"\r\n", 2)
    assert status == b"X-Spam-Status: No, released from quarantine"
    assert own_id == b"X-Spamfilter-Id: " + id.encode()
    assert rest == sent
    assert arrived == unflagged(kept)


async def test_the_null_sender_and_an_mbox_line_survive(warder: Warder) -> None:
    id, kept = warder.keep(b"From a Sun Mar  1 12:00:00 2026\r\n" + mail(), sender=b"")
    await warder.release(id)
    assert warder.arrived() == [unflagged(kept)]
    assert warder.commands()[0] == b"MAIL FROM:<>"


@pytest.mark.parametrize("announced", [True, False], ids=["announced", "not-announced"])
@pytest.mark.parametrize(
    ("sent", "sender", "recipient", "parameters"),
    [
        pytest.param(mail(), b"a@x", b"b@y", b"", id="ascii"),
        pytest.param(mail() + "grün\r\n".encode(), b"a@x", b"b@y", b" BODY=8BITMIME", id="8-bit-text"),
        pytest.param(mail(), "ä@x".encode(), b"b@y", b" SMTPUTF8", id="utf-8-sender"),
        pytest.param(mail() + b"\xff\r\n", b"a@x", "b@ÿ".encode(), b" BODY=8BITMIME SMTPUTF8", id="both"),
    ],
)
async def test_mail_says_what_the_mail_needs_and_the_next_hop_knows(
    warder: Warder, sent: bytes, sender: bytes, recipient: bytes, parameters: bytes, announced: bool
) -> None:
    if not announced:
        warder.hop.keywords = ("PIPELINING",)
    id, kept = warder.keep(sent, sender, (recipient,))
    await warder.release(id)
    assert warder.commands()[0] == b"MAIL FROM:<%s>%s" % (sender, parameters if announced else b"")
    assert warder.arrived() == [unflagged(kept)]


async def test_recipients_that_are_refused_keep_the_mail(warder: Warder) -> None:
    id, kept = warder.keep(recipients=TWO)
    before = warder.files()
    warder.hop.replies["RCPT TO:<b@example.net>"] = b"550 5.1.1 no \x1b[2J such user\r\n"
    said = await warder.release(id, code=1)
    assert said == (
        f"{id}: delivered to <c@example.net>\n"
        f"spamfilter: {id}: stays in quarantine for <b@example.net>: 550 5.1.1 no \\x1b[2J such user\n"
    )
    (name,) = warder.files()
    assert name in before
    assert unwrapped(warder.files()[name]) == (kept, b"a@example.org", [b"b@example.net"])
    warder.hop.replies.clear()
    assert await warder.release(id) == f"{id}: delivered to <b@example.net>\n"
    assert warder.arrived() == [unflagged(kept)] * 2
    assert warder.files() == {}


async def test_mail_for_many_recipients_is_listed_and_released_as_any_other(warder: Warder) -> None:
    many = tuple(b"%060d@example.net" % number for number in range(1000))
    id, _ = warder.keep(recipients=many)
    assert (await warder.run("list")).output.startswith(id)
    assert (await warder.run("show", id)).exit_code == 0
    await warder.release(id)
    assert len(warder.commands()) == 1 + len(many)
    assert warder.files() == {}


async def test_recipients_whose_names_only_look_the_same_are_two(warder: Warder) -> None:
    id, _ = warder.keep(recipients=(b"u\xff@x", rb"u\xff@x"))
    warder.hop.replies[r"RCPT TO:<u\xff@x>"] = b"450 4.2.0 later\r\n"
    await warder.release(id, code=75)
    (left,) = warder.files().values()
    assert unwrapped(left)[2] == [rb"u\xff@x"]
    warder.hop.replies.clear()
    await warder.release(id)
    assert warder.files() == {}


async def test_a_release_to_somebody_else_delivers_nothing_and_says_why(warder: Warder) -> None:
    id, _ = warder.keep(recipients=TWO)
    said = await warder.release(id, "--to", "x@example.net", code=2)
    assert f"{id}: is not for x@example.net; `spamfilter quarantine list` names its recipients" in said
    assert len(warder.files()) == 1


async def test_a_next_hop_by_lmtp_may_have_it_for_some_recipients(
    warder: Warder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPAMFILTER_RELAY__NEXT_HOP", f"lmtp://127.0.0.1:{warder.hop.port}")
    id, kept = warder.keep(recipients=TWO)
    warder.hop.replies["DOT TO:<b@example.net>"] = b"452 4.2.2 full\r\n"
    said = await warder.release(id, code=75)
    assert f"{id}: delivered to <c@example.net>\n" in said
    assert f"{id}: stays in quarantine for <b@example.net>: 452 4.2.2 full\n" in said
    (name,) = warder.files()
    assert unwrapped(warder.files()[name]) == (kept, b"a@example.org", [b"b@example.net"])
    warder.hop.replies.clear()
    assert await warder.release(id) == f"{id}: delivered to <b@example.net>\n"
    assert warder.files() == {}


async def test_what_root_releases_in_part_stays_its_users(warder: Warder) -> None:
    require_root("a file is given to another user")
    id, _ = warder.keep(recipients=TWO)
    (file,) = (warder.path / "new").iterdir()
    os.chown(file, 65534, 65533)
    warder.hop.replies["RCPT TO:<b@example.net>"] = b"550 no\r\n"
    await warder.release(id, code=1)
    assert (file.stat().st_uid, file.stat().st_gid) == (65534, 65533)


@pytest.mark.parametrize("reply", [b"451 4.2.0 later\r\n", b"550 5.7.1 never\r\n"], ids=["4xx", "5xx"])
@pytest.mark.parametrize("when", ["MAIL", "RCPT", "DATA", "DOT"])
async def test_a_next_hop_that_does_not_take_it_changes_nothing(warder: Warder, when: str, reply: bytes) -> None:
    id, _ = warder.keep(recipients=TWO)
    before = warder.files()
    warder.hop.replies[when] = reply
    said = await warder.release(id, code=75 if reply.startswith(b"4") else 1)
    assert said == f"spamfilter: {id}: the next hop says {reply.decode().strip()}; it stays in quarantine\n"
    assert warder.files() == before


async def test_one_recipient_that_is_deferred_is_a_reason_to_try_again(warder: Warder) -> None:
    id, _ = warder.keep(recipients=TWO)
    warder.hop.replies["RCPT TO:<b@example.net>"] = b"450 4.2.0 greylisted\r\n"
    warder.hop.replies["RCPT TO:<c@example.net>"] = b"550 5.1.1 no such user\r\n"
    said = await warder.release(id, code=75)
    assert f"{id}: the next hop says 450 4.2.0 greylisted; it stays in quarantine" in said
    assert len(warder.files()) == 1


@pytest.mark.parametrize("when", ["CONNECT", "MAIL", "RCPT"])
async def test_a_next_hop_that_is_down_changes_nothing(warder: Warder, when: str) -> None:
    id, _ = warder.keep()
    before = warder.files()
    warder.hop.replies[when] = b"close"
    said = await warder.release(id, code=75)
    assert f"{id}: smtp://127.0.0.1:{warder.hop.port}: " in said
    assert said.endswith("; it stays in quarantine, try again\n")
    assert warder.files() == before


async def test_a_next_hop_that_nobody_answers_for_is_an_exit_code_of_75(
    warder: Warder, monkeypatch: pytest.MonkeyPatch
) -> None:
    id, _ = warder.keep()
    before = warder.files()
    monkeypatch.setenv("SPAMFILTER_RELAY__NEXT_HOP", "smtp://127.0.0.1:1")
    assert "127.0.0.1:1" in await warder.release(id, code=75)
    assert warder.files() == before


async def test_a_release_that_was_broken_off_is_told_of_and_can_be_done_again(warder: Warder) -> None:
    id, kept = warder.keep()
    warder.hop.replies["DOT"] = b"close"
    assert "it may have been delivered nevertheless; it stays in quarantine\n" in await warder.release(id, code=75)
    (name,) = warder.files()
    assert name.startswith("cur/")
    assert name.endswith(":2,P")
    assert json.loads((await warder.run("list", "--json")).stdout)["broken_off"] is True
    assert "a release was interrupted: the mail may have been delivered" in (await warder.run("list")).stdout
    # Refused this time: that says nothing of the time before.
    warder.hop.replies["DOT"] = b"451 4.2.0 later\r\n"
    assert "its recipients may get the mail twice" in await warder.release(id, code=75)
    assert list(warder.files()) == [name]
    warder.hop.replies.clear()
    said = await warder.release(id)
    assert said == (
        f"warning: {id}: an earlier release was interrupted; its recipients may get the mail twice\n"
        f"{id}: delivered to <b@example.net>\n"
    )
    assert warder.arrived() == [unflagged(kept)] * 3
    assert warder.files() == {}


async def test_a_release_that_is_killed_before_the_reply_leaves_the_mail_and_says_so(warder: Warder) -> None:
    id, kept = warder.keep()
    words = [sys.executable, "-m", "spamfilter", "quarantine", "release", "--no-learn", id]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    async def kill() -> None:
        os.kill(process.pid, signal.SIGKILL)

    warder.hop.before_final = kill
    said = await asyncio.to_thread(process.communicate)
    assert (process.returncode, said) == (-signal.SIGKILL, (b"", b""))
    warder.hop.before_final = None
    assert "its recipients may get the mail twice" in await warder.release(id)
    assert warder.arrived() == [unflagged(kept)] * 2


async def test_one_mail_is_not_released_twice_at_a_time(warder: Warder, tmp_path: Path) -> None:
    id, _ = warder.keep()
    hasty = planted(
        tmp_path / "planted", "from spamfilter.relay.quarantine import quarantine\nquarantine.PATIENCE = 0.0"
    )

    async def meanwhile() -> None:
        for words in (("release", id), ("delete", id), ("expire",)):
            command = [sys.executable, "-m", "spamfilter", "quarantine", *words]
            environment = {**os.environ, "PYTHONPATH": hasty}
            result = await asyncio.to_thread(subprocess.run, command, capture_output=True, env=environment)
            assert result.returncode == 75
            assert b"something else is being released or deleted; try again" in result.stderr

    warder.hop.before_final = meanwhile
    await warder.release(id)
    assert len(warder.hop.messages) == 1
    assert warder.files() == {}


async def test_a_mail_that_cannot_be_taken_out_after_its_delivery_is_named(
    warder: Warder, monkeypatch: pytest.MonkeyPatch
) -> None:
    id, _ = warder.keep(recipients=TWO)
    monkeypatch.setattr("spamfilter.relay.next_hops.maildir.new_id", lambda: "1")

    async def in_the_way() -> None:
        (name,) = warder.files()
        (warder.path / "tmp" / f"{Path(name).name}.1").mkdir()

    warder.hop.before_final = in_the_way
    warder.hop.replies["RCPT TO:<b@example.net>"] = b"550 no\r\n"
    said = await warder.release(id, code=2)
    assert f"{id}: was delivered to <c@example.net>, but {warder.path}/cur/" in said
    assert "cannot be changed and names them still: Is a directory\n" in said
    assert json.loads((await warder.run("list", "--json")).stdout)["broken_off"] is True


async def test_a_release_teaches_ham_as_it_was_judged(warder: Warder) -> None:
    id, kept = warder.keep()
    judged = {"fields": {b"as": 1, b"judged": 1}}
    with warder.shell.store() as store:
        store.write_journal([journal_entry(id=id, digest=b"d" * 16, tokens=judged)])
    # The digest and the words of the journal differ here, but its Message-ID and its id agree.
    with warder.shell.store() as store:
        store.expire(datetime.now(UTC), datetime(2000, 1, 1, tzinfo=UTC))
    result = await warder.run("release", id)
    assert (result.exit_code, result.stderr) == (0, "")
    assert f"{id}: learnt as ham; score 0.500 -> " in result.stdout
    assert warder.shell.learnt() == ({"ham": 1, "spam": 0}, [])
    with warder.shell.store() as store:
        (learnt,) = store.learnings()
        assert (learnt.source, learnt.digest) == ("release", b"d" * 16)
    assert warder.arrived() == [unflagged(kept)]


async def test_a_release_takes_back_that_it_was_spam_and_without_learning_it_does_not(warder: Warder) -> None:
    (one, _), (two, _) = warder.keep(mail(name="one")), warder.keep(mail(name="two"))
    for name in ("one", "two"):
        warder.shell.done("mark-spam", stdin=mail(name=name))
    assert "learnt as ham (was spam, which is taken back)" in (await warder.run("release", one)).stdout
    await warder.release(two)
    assert warder.shell.learnt() == ({"ham": 1, "spam": 1}, [])


async def test_a_database_in_trouble_is_told_and_the_mail_is_delivered_once(warder: Warder) -> None:
    id, kept = warder.keep()
    (warder.shell.folder / "spamfilter.db").write_bytes(b"no database" * 100)
    result = await warder.run("release", id)
    assert result.exit_code == 2
    assert result.stdout == f"{id}: delivered to <b@example.net>\n"
    assert f"\nspamfilter: {id}: delivered, but not learnt: " in result.stderr
    assert result.stderr.startswith("warning: the history of the quarantine cannot be read or written: ")
    assert f"`spamfilter mark-ham {id}` learns it" in result.stderr
    assert "is not known without the database" in await warder.release(id, code=75)
    assert warder.arrived() == [unflagged(kept)]


async def test_a_recipient_that_is_refused_is_told_though_the_mail_cannot_be_learnt(warder: Warder) -> None:
    id, _ = warder.keep(recipients=TWO)
    (warder.shell.folder / "spamfilter.db").write_bytes(b"no database" * 100)
    warder.hop.replies["RCPT TO:<b@example.net>"] = b"550 5.1.1 no such user\r\n"
    result = await warder.run("release", id)
    assert (result.exit_code, result.stdout) == (1, f"{id}: delivered to <c@example.net>\n")
    assert f"\nspamfilter: {id}: delivered, but not learnt: " in result.stderr
    assert result.stderr.endswith(
        f"spamfilter: {id}: stays in quarantine for <b@example.net>: 550 5.1.1 no such user\n"
    )


async def test_several_are_released_whatever_becomes_of_one_of_them(warder: Warder) -> None:
    (one, _), (two, _) = warder.keep(mail(name="one")), warder.keep(mail(name="two"))
    unknown = new_id()
    said = await warder.release(one, unknown, f"X-Spamfilter-Id: {two.lower()}", code=2)
    assert (
        f"{unknown}: not in the quarantine {warder.path}; it was released or deleted, has expired, or was never kept"
        in said
    )
    assert len(warder.hop.messages) == 2
    assert warder.files() == {}


async def test_the_built_in_maildir_takes_what_is_released(warder: Warder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPAMFILTER_RELAY__NEXT_HOP", "")
    id, kept = warder.keep(recipients=TWO)
    await warder.release(id)
    (file,) = (warder.shell.folder / "mail" / "new").iterdir()
    assert unwrapped(file.read_bytes()) == (unflagged(kept), b"a@example.org", [*TWO])


@pytest.mark.parametrize("first", [b"", b"From a Sun Mar 1\n"], ids=["plain", "mbox-line"])
async def test_what_the_relay_has_not_put_there_is_left_alone(warder: Warder, first: bytes) -> None:
    id = new_id()
    foreign = warder.path / "cur" / "1000000000.M1P1.host:2,S"
    foreign.write_bytes(first + b"X-Spamfilter-Id: %s\nX-Spamfilter-Sender: <>\n\nbody\n" % id.encode())
    before = warder.files()
    assert (await warder.run("list", "--json")).stdout == ""
    for command in ("show", "release", "delete"):
        assert f"{id}: not in the quarantine" in (await warder.run(command, id)).stderr
    assert (await warder.run("expire")).stdout.startswith("0 older than 30 days deleted")
    assert warder.files() == before


async def test_half_an_envelope_is_nobody_to_deliver_to(warder: Warder) -> None:
    id, _ = warder.keep()
    (file,) = (warder.path / "new").iterdir()
    file.write_bytes(file.read_bytes().replace(b"X-Spamfilter-Recipients: <b@example.net>\n", b""))
    assert "has no envelope, so there is nobody to deliver it to" in await warder.release(id, code=2)


async def test_the_list_tells_what_is_there(warder: Warder) -> None:
    assert (await warder.run("list")).stdout == f"the quarantine {warder.path} is empty\n"
    assert (await warder.run("list", "--json")).stdout == ""
    id, _ = warder.keep(mail(subject="=?utf-8?q?gr=C3=BCn=1B=5B2J?="), recipients=TWO)
    told = json.loads((await warder.run("list", "--json")).stdout)
    assert set(told) == documented("quarantine list --json")
    at = datetime.fromisoformat(told.pop("at"))
    assert abs(at - datetime.now(UTC)) < timedelta(minutes=5)
    assert told == {
        "id": id,
        "sender": "a@example.org",
        "author": "A Sender <a@example.org>",
        "recipients": ["b@example.net", "c@example.net"],
        "subject": "grün\x1b[2J",
        "score": 0.987,
        "size": len(next(iter(warder.files().values()))),
        "broken_off": False,
        "history": [],
    }
    shown = (await warder.run("list")).stdout
    assert shown.startswith(f"{id}  {moment_text(at)}  score 0.987  ")
    assert "<a@example.org> to b@example.net, c@example.net\n  grün\\x1b[2J\n" in shown


async def test_what_a_mail_program_has_moved_is_found_and_what_is_no_mail_is_passed_over(warder: Warder) -> None:
    id, _ = warder.keep()
    (file,) = (warder.path / "new").iterdir()
    file.rename(warder.path / "cur" / f"{file.name}:2,FS")
    (warder.path / "cur" / ".hidden").write_bytes(b"")
    (warder.path / "cur" / "folder").mkdir()
    os.mkfifo(warder.path / "cur" / "pipe")
    (warder.path / "cur" / "link").symlink_to(f"{file.name}:2,FS")
    assert json.loads((await warder.run("list", "--json")).stdout)["id"] == id
    warder.hop.replies["DOT"] = b"close"
    await warder.release(id, code=75)
    assert (warder.path / "cur" / f"{file.name}:2,FPS").exists()


async def test_a_mail_is_shown_as_it_is(warder: Warder) -> None:
    id, kept = warder.keep(mail() + b"\xff\x1b[2J\r\n")
    result = await warder.run("show", id)
    assert result.stdout_bytes == kept.replace(b"\r\n", b"\n")


async def test_on_a_terminal_a_mail_does_no_harm(warder: Warder) -> None:
    id, kept = warder.keep(mail() + "grün \x1b[2J\x07 \u202e\r\n".encode() + b"\xff\r\n")
    ours, theirs = pty.openpty()
    words = [sys.executable, "-m", "spamfilter", "quarantine", "show", id]
    with subprocess.Popen(words, stdout=theirs, stdin=theirs, env={**os.environ, "PYTHONUTF8": "1"}) as process:
        os.close(theirs)
        shown = b""
        while block := await asyncio.to_thread(_read, ours):
            shown += block
    os.close(ours)
    assert process.returncode == 0
    expected = kept.replace("grün \x1b[2J\x07 \u202e".encode(), "grün \\x1b[2J\\x07 \\u202e".encode())
    assert shown == expected.replace(b"\xff", b"\\xff")


def _read(terminal: int) -> bytes:
    """A block of output, b'' at its end: Linux says EIO there."""
    try:
        return os.read(terminal, 65536)
    except OSError:
        return b""


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        pytest.param("grün 漢字 😀", "grün 漢字 😀", id="letters"),
        pytest.param("a\tb\nc\rd\x1b\x00\x7f\x9b", "a\\tb\\nc\\rd\\x1b\\x00\\x7f\\x9b", id="controls"),
        pytest.param("\u202e\u2066\u200b\ufeff\ud800", "\\u202e\\u2066\\u200b\\ufeff\\ud800", id="unseen"),
    ],
)
def test_text_of_strangers_is_harmless(text: str, shown: str) -> None:
    assert harmless(text) == shown


def test_many_ids_that_are_not_kept_open_no_file(warder: Warder, monkeypatch: pytest.MonkeyPatch) -> None:
    kept, _ = warder.keep()
    for name in ("one", "two"):
        warder.keep(mail(name=name))
    opened: list[Path] = []

    def look(path: Path) -> Quarantined | None:
        opened.append(path)
        return looked_at(path)

    monkeypatch.setattr(quarantine, "looked_at", look)
    (found,) = Quarantine(warder.path).these({kept, *(new_id() for _ in range(100))})
    assert (found.id, len(opened)) == (kept, 1)
    with pytest.raises(InputError):
        Quarantine(warder.path).find(new_id())
    assert len(opened) == 1


def test_a_mail_is_found_whose_file_has_another_name(warder: Warder) -> None:
    kept, _ = warder.keep()
    (file,) = (warder.path / "new").iterdir()
    file.rename(file.with_name("1.copied.by.hand"))
    assert Quarantine(warder.path).find(kept).id == kept


@pytest.mark.parametrize("which", ["mails", "these", "latest"])
def test_mails_that_another_program_moves_meanwhile_come_once_at_most(
    warder: Warder, monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    ids = [warder.keep(mail(name=name))[0] for name in ("one", "two", "three")]

    def look(path: Path) -> Quarantined | None:
        found = looked_at(path)
        for each in (warder.path / "new").iterdir():
            each.rename(warder.path / "cur" / f"{each.name}:2,S")
        return found

    monkeypatch.setattr(quarantine, "looked_at", look)
    kept = Quarantine(warder.path)
    asked: dict[str, Callable[[], list[Quarantined]]] = {
        "mails": kept.mails, "these": lambda: kept.these(ids), "latest": lambda: kept.latest(10)
    }  # fmt: skip
    assert len(asked[which]()) == 1


async def test_a_file_that_may_not_be_read_hides_no_other_mail(warder: Warder, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = [warder.keep(mail(name=name))[0] for name in ("one", "two", "three")]
    (closed,) = (warder.path / "new").glob(f"*{ids[1]}*")

    def look(path: Path) -> Quarantined | None:
        if path == closed:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return looked_at(path)

    monkeypatch.setattr(quarantine, "looked_at", look)
    kept = Quarantine(warder.path)
    for found in (kept.mails(), kept.these(ids), kept.latest(10)):
        assert {each.id for each in found} == {ids[0], ids[2]}
    assert kept.find(ids[2]).id == ids[2]
    result = await warder.run("show", ids[1])
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"{closed}: Permission denied; give it to the user of the relay" in result.stderr


async def test_a_mail_is_deleted(warder: Warder) -> None:
    (one, _), (two, _) = warder.keep(mail(name="one")), warder.keep(mail(name="two"))
    assert (await warder.run("delete", one)).stdout == f"{one}: deleted\n"
    assert json.loads((await warder.run("list", "--json")).stdout)["id"] == two
    result = await warder.run("delete", one)
    assert result.exit_code == 2
    assert f"{one}: not in the quarantine" in result.stderr


@pytest.mark.parametrize("words", [("show", "x"), ("release", "x"), ("delete", "y")])
async def test_what_is_no_id_is_refused(warder: Warder, words: tuple[str, str]) -> None:
    result = await warder.run(*words)
    assert result.exit_code == 2
    assert f"{words[1]!r}: not an id (26 letters and digits); `spamfilter quarantine list` shows them" in result.stderr


async def test_mail_that_is_gone_by_then_is_named(warder: Warder) -> None:
    id, _ = warder.keep()
    quarantine = Quarantine(warder.path)
    found = quarantine.find(id)
    found.path.unlink()
    for act in (lambda mail: quarantine.delete(mail, "anna"), quarantine.read):
        with pytest.raises(InputError, match=f"{id}: was released, deleted or moved in the meantime"):
            act(found)


def _aged(path: Path, days: float, name: str) -> None:
    moment = datetime.now(UTC) - timedelta(days=days)
    file = path / name.format(int(moment.timestamp()))
    file.write_bytes(wrapped(b"x", b"", TWO))
    os.utime(file, (moment.timestamp(), moment.timestamp()))


async def test_what_is_old_expires(warder: Warder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPAMFILTER_VERDICT__QUARANTINE_DAYS", "10")
    for place, days in (("new", 11), ("cur", 11), ("new", 9), ("tmp", 2), ("tmp", 1)):
        _aged(warder.path / place, days, f"{{}}.{place}{days}")
        _aged(warder.path / place, days, f"named-otherwise-{place}{days}")
    (warder.path / "cur" / "1000000000.folder").mkdir()
    (warder.path / "tmp" / "1000000000.folder").mkdir()
    (warder.path / "cur" / "1000000000.link").symlink_to("1000000000.folder")
    # Copied, its file is new; its name tells how old it is.
    os.utime(next((warder.path / "cur").glob("*.cur11")))
    result = await warder.run("expire")
    assert result.stdout == f"4 older than 10 days deleted from {warder.path}\n"
    assert {name.split(".")[-1].split("-")[-1] for name in warder.files()} == {"new9", "tmp1"}
    assert len(warder.files()) == 4


async def test_whoever_releases_waits_for_another_who_does(warder: Warder) -> None:
    id, _ = warder.keep()
    folder = os.open(warder.path, os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX)
    released = asyncio.create_task(warder.release(id))
    await asyncio.sleep(0.5)
    assert not released.done()
    os.close(folder)
    await released
    assert len(warder.arrived()) == 1


async def test_a_lock_of_a_dead_process_is_none(warder: Warder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quarantine, "PATIENCE", 0.0)
    program = "import fcntl, os, sys, time; fcntl.flock(os.open(sys.argv[1], 0), 2); print(flush=True); time.sleep(600)"
    holder = subprocess.Popen([sys.executable, "-c", program, str(warder.path)], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    holder.stdout.readline()
    assert (await warder.run("expire")).exit_code == 75
    holder.kill()
    holder.communicate()
    assert (await warder.run("expire")).exit_code == 0
    folder = os.open(warder.path, os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(folder)


def test_a_running_relay_expires_and_what_it_keeps_is_released_as_it_would_have_been_delivered(tmp_path: Path) -> None:
    state = tmp_path / "relay" / "state"
    quarantine = state / "quarantine" / "new"
    quarantine.mkdir(parents=True)
    _aged(quarantine, 31, "{}.old")
    _aged(quarantine, 29, "{}.young")
    at_once = ("env", f"PYTHONPATH={planted(tmp_path / 'planted', HOURLY_AT_ONCE)}")
    with relay(tmp_path / "relay", at_once, verdict={"on_ham": "quarantine", "on_unsure": "quarantine"}) as server:
        wait_until(lambda: "quarantine: 1 expired mails deleted" in server.log(), "the expiry")
        (young,) = quarantine.iterdir()
        young.unlink()
        with smtplib.SMTP("127.0.0.1", server.port, "client.example", timeout=30) as client:
            client.sendmail("a@example.org", ["b@example.test", "c@example.test"], mail(body=".dot\r\nlast"))
        (kept,) = quarantine.iterdir()
        content = kept.read_bytes()
        listed = json.loads(server.command("quarantine", "list", "--json").stdout)
        assert listed["id"] in kept.name
        done = server.command("quarantine", "release", listed["id"])
        assert done.returncode == 0, done.stderr
        assert "learnt as ham" in done.stdout
        (delivered,) = (state / "mail" / "new").iterdir()
        verdict = b"X-Spam-Status: No, released from quarantine\n"
        assert delivered.read_bytes() == re.sub(rb"X-Spam-Status: [^\n]*\n", verdict, content, count=1)
        assert list(quarantine.iterdir()) == []


def test_what_cannot_be_deleted_is_not_in_the_history(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 2) as small, closing(open_store(f"sqlite:///{tmp_path}/s.db")) as store:
        kept, id = Quarantine(small / "quarantine", store), new_id()
        mail = b"Subject: x\r\nX-Spamfilter-Id: %s\r\n\r\n" % id.encode()
        Maildir(small / "quarantine").write([mail], b"a@example.org", [b"b@example.test"], id)
        subprocess.run(["mount", "-o", "remount,ro", str(small)], check=True)
        now = datetime.now(UTC)
        with pytest.raises(OSError, match="Read-only file system"):
            kept.delete(kept.find(id), "root")
        with pytest.raises(OSError, match="Read-only file system"):
            kept.expire(now + timedelta(hours=1), now)
        assert store.quarantine_events([id]) == {}
        subprocess.run(["mount", "-o", "remount,rw", str(small)], check=True)
        assert kept.expire(now + timedelta(hours=1), now) == 1


def test_a_quarantine_that_has_filled_its_disk_can_be_emptied(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 2) as small, closing(open_store(f"sqlite:///{small}/s.db")) as store:
        kept, mails = Quarantine(small / "quarantine", store), Maildir(small / "quarantine")
        header = b"Subject: x\r\nX-Spamfilter-Id: %s\r\n\r\n"
        for id in (new_id(), new_id(), new_id()):
            mails.write([header % id.encode()], b"a@example.org", [b"b@example.test"], id)
        fill(small)
        with pytest.raises(StoreFull, match=r"s\.db: .*; make room on its disk"):
            store.put_setting("name", "x" * 100_000)
        kept.delete(kept.mails()[0], "root")
        assert len(kept.mails()) == 2
        fill(small)
        now = datetime.now(UTC)
        assert kept.expire(now + timedelta(hours=1), now) == 2
        assert kept.mails() == []
