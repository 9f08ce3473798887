"""What a stranger writes leaves no trace that says more than that: in our header fields, ids, log and journal."""

import base64
import email
import email.policy
import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spamfilter.mail.tagging import mark
from tests.faults.daemon import Daemon, daemon
from tests.faults.fault import Say
from tests.faults.hop import Hop, next_hop
from tests.integration.servers import wait_until
from tests.support.doors import DOORS, EACH_DOOR, Door
from tests.support.made import some

OURS = ("X-Spam-Flag", "X-Spam-Status", "X-Spamfilter-Id", "X-Spamfilter-Evidence", "X-Spamfilter-Sender")
FORGED_ID = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
FORGED = {
    "plain": b"X-Spam-Flag: YES\r\nX-Spam-Status: No, score=0.000 class=ham\r\n",
    "upper case": b"X-SPAM-FLAG: YES\r\nX-SPAMFILTER-ID: %s\r\n" % FORGED_ID.encode(),
    "mixed case": b"x-sPaM-fLaG: YES\r\n",
    "blanks before the colon": b"X-Spam-Flag   : YES\r\nX-Spam-Status\t: No\r\n",
    "folded before the colon": b"X-Spam-Flag\r\n : YES\r\nX-Spam-Status \r\n\t\r\n :No\r\n",
    "NUL before the colon": b"X-Spam-Flag\0: YES\r\n",
    "NBSP before the colon": b"X-Spam-Flag\xa0: YES\r\n",
    "folded value": b"X-Spam-Flag:\r\n YES\r\nX-Spamfilter-Id:\r\n\t%s\r\n \r\n" % FORGED_ID.encode(),
    "twenty times": b"X-Spamfilter-Id: %s\r\n" % FORGED_ID.encode() * 20,
    "no value": b"X-Spam-Flag:\r\nX-Spamfilter-Id:\r\n",
    "any of our names": b"X-Spamfilter-Anything-At_All!: 1\r\nX-Spamfilter-Sender: <a@b>\r\n",
    "behind a line that is no field": b"this is no field\r\nX-Spam-Flag: YES\r\n",
    "behind a folded line": b"X-Other: one\r\n two\r\nX-Spam-Flag: YES\r\n",
    "behind an mbox line": b"From a@example.org Thu Jan  1 00:00:00 2026\r\nX-Spam-Flag: YES\r\n",
}
HARMLESS = {
    "in the text": (b"Subject: x\r\n", b"X-Spam-Flag: YES\r\nX-Spamfilter-Id: %s\r\n" % FORGED_ID.encode()),
    "in the header of a part": (
        b'Subject: x\r\nMIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary="b"\r\n',
        b"--b\r\nX-Spam-Flag: YES\r\nContent-Type: text/plain\r\n\r\nhi\r\n--b--\r\n",
    ),
    "in an attached mail": (
        b'Subject: x\r\nMIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary="b"\r\n',
        b"--b\r\nContent-Type: message/rfc822\r\n\r\nX-Spam-Flag: YES\r\nSubject: inner\r\n\r\nhi\r\n--b--\r\n",
    ),
    "in another field": (
        b"Subject: x X-Spam-Flag: YES\r\nX-Other: X-Spam-Flag: YES\r\n X-Spam-Flag: YES\r\n",
        b"hi\r\n",
    ),
}
HEAD = b"From: a@example.org\r\nTo: b@example.test\r\nSubject: mail of %s\r\nMessage-ID: <%s@example.org>\r\n"
NASTY = "evil\r\nINFO forged: all is well\n\x1b[2J\x1b]0;evil\x07\u202egnp.exe\u2069\x9b2J\u2028\0\x7f end"


@pytest.fixture(scope="module")
def one_hop() -> Iterator[Hop]:
    with next_hop() as hop:
        yield hop


@pytest.fixture
def hop(one_hop: Hop) -> Hop:
    one_hop.heal()
    return one_hop


@pytest.fixture(scope="module")
def door(request: pytest.FixtureRequest) -> Door:
    return DOORS[getattr(request, "param", "smtp")]


@pytest.fixture(scope="module")
def server(one_hop: Hop, door: Door, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    folder, verdict = tmp_path_factory.mktemp("traces"), {"evidence_header": True}
    with daemon(folder, one_hop, door=door, verdict=verdict, log={"level": "debug"}) as running:
        yield running


def passed(server: Daemon, hop: Hop, mail: bytes) -> bytes:
    """A mail as it arrives at the next hop."""
    known = len(hop.kept)
    with server.connect() as client:
        assert client.deliver(mail).code == 250
    return hop.kept[known].mail


@EACH_DOOR
@pytest.mark.parametrize("name", FORGED)
@pytest.mark.parametrize("place", ["first", "in the middle", "last"])
def test_a_field_with_one_of_our_names_is_removed(server: Daemon, hop: Hop, place: str, name: str) -> None:
    if server.door.listen == "milter" and b"\0" in FORGED[name]:
        return  # by milter NUL ends a name
    key = re.sub(r"\W", "-", f"{name}-{place}").encode()
    lines = HEAD % (key, key)
    at = {"first": 0, "in the middle": lines.index(b"To:"), "last": len(lines)}[place]
    arrived = passed(server, hop, lines[:at] + FORGED[name] + lines[at:] + b"\r\nhi\r\n")
    for policy in (email.policy.compat32, email.policy.default):
        parsed = email.message_from_bytes(arrived, policy=policy)
        fields = [field for field in parsed.keys() if field.lower().strip("\0 \t\xa0").startswith("x-spam")]  # noqa: SIM118
        assert fields == ["X-Spam-Status", "X-Spamfilter-Id"], arrived
        assert str(parsed["X-Spamfilter-Id"]).split()[0] in server.ids()
    head, _, body = arrived.partition(b"\r\n\r\n")
    assert FORGED_ID.encode() not in head
    assert not re.search(rb"\bYES\b", head)  # three letters that an id of ours may have, too
    assert body == b"hi\r\n"


@EACH_DOOR
@pytest.mark.parametrize("name", HARMLESS)
def test_what_is_no_field_of_the_header_stays_and_says_nothing(server: Daemon, hop: Hop, name: str) -> None:
    head, body = HARMLESS[name]
    arrived = passed(server, hop, head + b"\r\n" + body)
    assert arrived.endswith(head + b"\r\n" + body)
    parsed = email.message_from_bytes(arrived)
    assert parsed["X-Spam-Flag"] is None
    assert len(parsed.get_all("X-Spamfilter-Id", [])) == 1


@EACH_DOOR
def test_a_forged_id_makes_no_mark_hit_another_mail(server: Daemon, hop: Hop, tmp_path: Path) -> None:
    """Neither on its way through, nor where a mail with it never passed here."""
    arrived = passed(server, hop, HEAD % (b"the-victim", b"victim") + b"\r\nShall we meet for lunch on Tuesday?\r\n")
    victim = re.findall(rb"X-Spamfilter-Id: (\w+)", arrived)[0]
    evil = (
        b"X-Spamfilter-Id: " + victim + b"\r\n" + HEAD % (b"evil", b"evil") + b"\r\nCheap pills, buy them now here!\r\n"
    )
    (tmp_path / "passed.eml").write_bytes(passed(server, hop, evil))
    (tmp_path / "straight.eml").write_bytes(evil)
    wait_until(lambda: victim.decode() in journal(server), "the victim in the journal")
    for name in ("straight.eml", "passed.eml"):
        done = server.command("mark-spam", "--json", str(tmp_path / name))
        assert done.returncode == 0, done.stderr
        assert victim.decode() not in done.stdout
    with closing(sqlite3.connect(server.database)) as database:
        (digest,) = database.execute("SELECT digest FROM journal WHERE id = ?", (victim.decode(),)).fetchone()
        assert database.execute("SELECT count(*) FROM ledger WHERE digest = ?", (digest,)).fetchone() == (0,)
        assert database.execute("SELECT count(*) FROM ledger").fetchone() != (0,)


def journal(server: Daemon, sender: str = "%") -> list[str]:
    """The ids of mails from senders like this."""
    with closing(sqlite3.connect(server.database)) as database:
        return [str(row[0]) for row in database.execute("SELECT id FROM journal WHERE sender LIKE ?", (sender,))]


@pytest.fixture(scope="module")
def nasty(server: Daemon, one_hop: Hop, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """The id of a mail that has NASTY wherever it can, and a file with it; the next hop's reply has some of it, too."""
    one_hop.heal()
    word = "=?utf-8?b?" + base64.b64encode(NASTY.encode()).decode() + "?="
    raw = "evil\x1b[2J\u202e\x9b\x07\x7f\0".encode()
    mail = (
        f"From: {word} <a@example.org>\r\nTo: b@example.test\r\nSubject: {word}\r\n".encode()
        + b"Message-ID: <%s@example.org>\r\nX-Mailer: %s\r\nContent-Type: text/plain; charset=%s\r\n\r\n"
        % (raw, raw, raw)
        + NASTY.replace("\r\n", "\n").replace("\n", "\r\n").encode()
        + b"\r\n"
    )
    one_hop.faults["DOT"] = Say(b"250 2.0.0 \x1b[2J\xff " + "\u202eok\r\n".encode())
    sender = '"evil\u202e\u2028\x85"@example.org'.encode()
    with server.connect() as client:
        client.sender, client.name = sender, "\u202eclient\x9b2J".encode()
        assert client.deliver(mail).code == 250
    if server.door.listen != "milter":
        with server.connect() as client:
            hello = client.hello.encode()
            for line in (hello + b" \x1b[2J", hello + b" c", b"MAIL FROM:<\x1b[2J@example.org>", NASTY.encode()):
                client.say(line + b"\r\n")
            client.say(b"\x9b2J\xe2\x80\xae\r\n")
    one_hop.heal()
    wait_until(lambda: bool(journal(server, "%evil%")), "the mail in the journal")
    (id,) = journal(server, "%evil%")
    file = tmp_path_factory.mktemp("nasty") / "nasty.eml"
    file.write_bytes(mail)
    return id, file


@EACH_DOOR
def test_each_line_of_the_log_is_ours(server: Daemon, nasty: tuple[str, Path]) -> None:
    log = (server.folder / "log").read_bytes()
    assert f"INFO {nasty[0]}: client=".encode() in log
    lines = log.decode("ascii").splitlines()
    assert [line for line in lines if not line.isprintable()] == []
    assert [line for line in lines if not re.match(r"\S+Z (DEBUG|INFO|WARNING|ERROR) ", line)] == []
    assert [line for line in lines if re.match(r"(\S+Z )?INFO forged", line)] == []


@pytest.mark.parametrize(
    "words",
    [
        ("stats",),
        ("stats", "--json"),
        ("review",),
        ("review", "--json"),
        ("judge", "--explain", "FILE"),
        ("judge", "--explain", "--json", "ID"),
        ("mark-ham", "ID"),
        ("forget", "--json", "ID"),
        ("doctor",),
    ],
    ids=" ".join,
)
def test_no_command_shows_more_than_text(server: Daemon, nasty: tuple[str, Path], words: tuple[str, ...]) -> None:
    id, file = nasty
    done = server.command(*[{"ID": id, "FILE": str(file)}.get(word, word) for word in words], input="w\nw\nq\n")
    assert done.stdout
    if "--json" in words:
        assert done.stdout.isascii()
        for line in done.stdout.splitlines():
            json.loads(line)
    shown = (done.stdout + done.stderr).replace("\n", "").replace("\t", "")
    assert shown.isprintable(), [letter for letter in shown if not letter.isprintable()]


FIELDS = (
    b"X-Spam-Flag: YES\r\n",
    b"X-Spam-Flag\r\n : Y\r\n folded\r\n",
    b"A: b\r\n",
    b"\tfolded\r\n",
    b"Subject: s\r\n",
    b":\r\n",
)


@some(100)
@given(st.lists(st.sampled_from(FIELDS), max_size=12).map(b"".join), st.integers(0, 40), st.sampled_from(["", "[S]"]))
def test_a_header_in_pieces_is_marked_as_one(head: bytes, piece: int, prefix: str) -> None:
    mail, fields = b"Z: z\r\n" + head + b"\r\nbody\r\n", [("X-Spamfilter-Id", "1")]
    whole = mark(mail, fields, prefix)[0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("spamfilter.mail.tagging.PIECE", piece)
        assert mark(mail, fields, prefix)[0] == whole
