"""Mail on disk: what is found, in which order, and that nothing is changed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from spamfilter.commands.command import named_mails
from spamfilter.errors import InputError, NotMail
from spamfilter.learning.bulk.labelled_mail import find_piles
from spamfilter.mail import mailboxes
from spamfilter.mail.mailboxes import Mail, checked, find
from spamfilter.mail.message import parse
from spamfilter.mail.special_folders import kind_of
from tests.integration.servers import workshop

LINE = b"From ann@example.org Sun Mar  1 12:00:00 2026\n"


def one(number: int, body: bytes = b"text") -> bytes:
    return b"Subject: mail %d\n\n%s\n" % (number, body)


def write(path: Path, content: bytes = b"") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def subjects(mails: list[Mail]) -> list[str]:
    return [parse(mail.read()).field(b"subject") for mail in mails]


def test_a_maildir_gives_what_is_delivered_and_nothing_else(tmp_path: Path) -> None:
    write(tmp_path / "cur" / "1.host:2,S", one(1))
    write(tmp_path / "cur" / "2.host:2,", one(2))
    write(tmp_path / "new" / "3.host", one(3))
    write(tmp_path / "tmp" / "4.host", one(4))
    for name in ("dovecot-uidlist", "dovecot.index.log", "dovecot-keywords", ".lock"):
        write(tmp_path / name, b"not a mail")
    assert subjects(find(tmp_path)) == ["mail 1", "mail 2", "mail 3"]


@pytest.mark.parametrize("name", ["maildirfolder", "maildirsize", "subscriptions", "courierimapuiddb"])
def test_a_file_beside_cur_and_new_of_a_maildir_is_no_mail(tmp_path: Path, name: str) -> None:
    write(tmp_path / "cur" / "1.host:2,S", one(1))
    (tmp_path / "new").mkdir()
    (tmp_path / "tmp").mkdir()
    write(tmp_path / name, b"")
    assert subjects(find(tmp_path)) == ["mail 1"]


def test_folders_within_folders_are_read_in_a_fixed_order(tmp_path: Path) -> None:
    write(tmp_path / "b" / "x.eml", one(3))
    write(tmp_path / "a" / "deep" / "x.eml", one(1))
    write(tmp_path / "a" / "y.eml", one(2))
    write(tmp_path / "c.eml", one(4))
    write(tmp_path / ".Junk" / "cur" / "z", one(0))
    assert subjects(find(tmp_path)) == ["mail 0", "mail 1", "mail 2", "mail 3", "mail 4"]
    assert [mail.name for mail in find(tmp_path)][1] == str(tmp_path / "a" / "deep" / "x.eml")


MBOX = LINE + one(1) + b"\n" + LINE + one(2, b">From the start\n>>From twice\nnot From here") + b"\n" + LINE + one(3)


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"], ids=["lf", "crlf"])
def test_an_mbox_gives_its_mails_one_by_one(tmp_path: Path, line_end: bytes) -> None:
    path = write(tmp_path / "box", MBOX.replace(b"\n", line_end))
    mails = find(path)
    assert subjects(mails) == ["mail 1", "mail 2", "mail 3"]
    assert [mail.name for mail in mails] == [f"{path}:{number}" for number in (1, 2, 3)]
    text = mails[1].read().replace(b"\r\n", b"\n")
    assert text.startswith(LINE)
    assert b"\nFrom the start\n>From twice\nnot From here\n" in text
    assert b"".join(mail.read() for mail in mails).count(line_end) == MBOX.count(b"\n")


@pytest.mark.parametrize(
    ("body", "mails"),
    [
        pytest.param(b"x\n\nFrom now on all is well\n", 1, id="a-sentence-after-an-empty-line"),
        pytest.param(b"x\n\nFrom Monday on\n", 1, id="a-sentence-with-a-day"),
        pytest.param(b"x\nFrom ann@x Sun Mar  1 12:00:00 2026\n", 1, id="no-empty-line-before"),
        pytest.param(b"x\n\nFrom ann@x Sun Mar  1 12:00:00 2026\nA: b\n", 2, id="separator"),
        pytest.param(b"x\n\nFrom  Sun Mar  1 12:00:00 2026\nA: b\n", 2, id="no-sender"),
        pytest.param(b"x\n\nFrom ann@x Sun, 1 Mar 2026 12:00:00 +0100\nA: b\n", 2, id="date-of-a-header"),
        pytest.param(b"x\n\nFrom ann@x Sun Mar  1 12:00 2026\nA: b\n", 2, id="no-seconds"),
    ],
)
def test_only_a_separator_line_separates(tmp_path: Path, body: bytes, mails: int) -> None:
    assert len(find(write(tmp_path / "box", LINE + b"Subject: a\n\n" + body))) == mails


def test_what_stands_before_the_first_whole_separator_is_a_mail_too(tmp_path: Path) -> None:
    file = write(tmp_path / "mbox", b"From ann, without a date\n" + one(1) + b"\n" + LINE + one(2))
    assert subjects(find(file)) == ["mail 1", "mail 2"]


@pytest.mark.parametrize("mails", [1, 3])
@pytest.mark.parametrize("lead", [b"\n", b"\n\n\n", b"\r\n", b"\xef\xbb\xbf", b"\xef\xbb\xbf\r\n"])
def test_blank_lines_or_a_byte_order_mark_before_an_mbox_are_no_part_of_it(
    tmp_path: Path, lead: bytes, mails: int
) -> None:
    path = write(tmp_path / "box", lead + (MBOX if mails > 1 else LINE + one(1)))
    found = find(path)
    assert subjects(found) == [f"mail {number}" for number in range(1, mails + 1)]
    assert found[0].read().startswith(LINE)


def test_a_single_file_is_one_mail_with_or_without_a_from_line(tmp_path: Path) -> None:
    plain = write(tmp_path / "plain.eml", one(1))
    stored = write(tmp_path / "stored", LINE + one(2))
    assert [(mail.name, mail.read()) for mail in find(plain)] == [(str(plain), one(1))]
    assert [(mail.name, mail.read()) for mail in find(stored)] == [(str(stored), LINE + one(2))]


def test_quoted_from_lines_of_a_single_file_are_its_own(tmp_path: Path) -> None:
    content = one(1, b">From the start")
    assert find(write(tmp_path / "plain.eml", content))[0].read() == content


@pytest.mark.parametrize("content", [b"From", b"From ", b"From x", b"\n", b"\xff" * 10])
def test_a_file_without_a_header_is_found_and_refused_when_it_is_read(tmp_path: Path, content: bytes) -> None:
    (mail,) = find(write(tmp_path / "x", content))
    with pytest.raises(NotMail, match="begins with no header field"):
        mail.read()


def test_a_mail_of_an_mbox_that_is_none_is_named_by_its_number(tmp_path: Path) -> None:
    one_mail, none, _ = find(write(tmp_path / "box", LINE + one(1) + b"\n" + LINE + b"\nno header\n\n" + LINE + one(3)))
    assert one_mail.read()
    with pytest.raises(NotMail, match="box:2: begins with no header field"):
        none.read()


@pytest.mark.parametrize("first", [b"", b"From ann\n", b">From ann\n", b"From a:b\r\n"])
@pytest.mark.parametrize("field", [b"Subject: x\n", b"X_odd.one-2 :\r\n", b"received: " + b"x" * 70_000])
def test_what_begins_with_a_header_field_is_a_mail(first: bytes, field: bytes) -> None:
    assert checked("x", first + field) == first + field


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("JUNK", "spam or junk"), (".Spam", "spam or junk"), ("Deleted Items", "deleted mail"),
        ("sent-mail", "sent mail"), (".INBOX.Sent_Items", "sent mail"), ("Papierkorb.mbox", "deleted mail"),
        ("&BBoEPgRABDcEOAQ9BDA-", "deleted mail"), ("&AMk-l&AOk-ments envoy&AOk-s", "sent mail"),
        ("Junk-E-Mail", "spam or junk"), (".[Gmail].Entw&APw-rfe", "drafts"), ("Entwu\u0308rfe", "drafts"),
        ("Courrier indesirable", "spam or junk"), ("Correo electrónico no deseado", "spam or junk"),
        ("Gel&APY-schte Nachrichten", "deleted mail"), ("Itens Enviados", "sent mail"), ("Черновики", "drafts"),
        ("Junkyard", None), (".[Gmail].All Mail", None), ("Sentence", None), ("cur", None), ("new", None),
        ("1.host:2,S", None),
        ("R&-D", None), ("&", None), ("&x", None), ("&2D0-", None), ("&///-", None), ("", None),
    ],
)  # fmt: skip
def test_folders_of_junk_trash_sent_mail_and_drafts_are_known_by_name(name: str, kind: str | None) -> None:
    assert kind_of(name) == kind


def test_nothing_is_modified(tmp_path: Path) -> None:
    write(tmp_path / "cur" / "1.host:2,", one(1))
    write(tmp_path / "new" / "2.host", one(2))
    write(tmp_path / "box", MBOX)

    def state() -> dict[str, tuple[bytes, int]]:
        files = [path for path in tmp_path.rglob("*") if path.is_file()]
        return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}

    before = state()
    for mail in find(tmp_path):
        mail.read()
    assert state() == before


def test_a_mail_is_read_when_its_turn_comes(tmp_path: Path) -> None:
    path = write(tmp_path / "x.eml", one(1))
    (mail,) = find(path)
    path.write_bytes(one(2))
    assert subjects([mail]) == ["mail 2"]
    path.unlink()
    with pytest.raises(InputError, match=r"x\.eml: No such file"):
        mail.read()


@pytest.mark.parametrize("name", ["new/1.host", "cur/1.host", "cur/1.host:2,", "cur/1.host:2,F"])
@pytest.mark.parametrize("flags", ["", "S", "RS"])
def test_a_mail_that_somebody_reads_or_flags_meanwhile_is_found_under_its_new_name(
    tmp_path: Path, name: str, flags: str
) -> None:
    path = write(tmp_path / name, one(1))
    for other in ("new", "cur"):
        (tmp_path / other).mkdir(exist_ok=True)
    write(tmp_path / "cur" / "1.host2:2,S", one(2))
    mails = find(tmp_path)
    path.rename(tmp_path / "cur" / f"1.host:2,{flags}")
    assert sorted(subjects(mails)) == ["mail 1", "mail 2"]


def test_a_mail_that_is_gone_when_its_turn_comes_is_passed_over_and_named(tmp_path: Path) -> None:
    for number in range(3):
        write(tmp_path / "cur" / f"{number}.host:2,", one(number))
    problems: list[str] = []
    mails = named_mails([str(tmp_path)], problems)
    read = [next(mails)]
    (tmp_path / "cur" / "1.host:2,").unlink()
    assert [mail for _, mail in (*read, *mails)] == [one(0), one(2)]
    assert problems == [f"{tmp_path}/cur/1.host:2,: No such file or directory"]


@pytest.mark.parametrize(("was", "becomes"), [("cur/2.host:2,", "cur/2.host:2,S"), ("new/2.host", "cur/2.host:2,S")])
def test_a_mail_that_somebody_reads_while_the_folder_is_listed_is_not_missed(
    tmp_path: Path, was: str, becomes: str
) -> None:
    for name in ("cur/1.host:2,", was, "new/3.host"):
        write(tmp_path / name, one(int(name[4])))

    def looks_at(path: Path) -> bool:
        if path.name == "1.host:2,":
            (tmp_path / was).rename(tmp_path / becomes)
        return False

    assert sorted(subjects(find(tmp_path, looks_at))) == ["mail 1", "mail 2", "mail 3"]


@pytest.mark.parametrize("top", [b"", b"X-Account-Key: account1\nX-UIDL: 1\n"], ids=["imap", "pop"])
@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"])
def test_what_thunderbird_has_deleted_or_moved_away_is_none_of_an_mbox(
    tmp_path: Path, line_end: bytes, top: bytes
) -> None:
    flags = [b"0001", b"0009", b"1008", b"0013", b"000b", b"0000"]
    mails = [
        b"From - Sun Mar  1 12:00:00 2026\n%bX-Mozilla-Status: %b\n%b\n" % (top, flag, one(number))
        for number, flag in enumerate(flags)
    ]
    inbox = write(tmp_path / "Inbox", b"".join(mails).replace(b"\n", line_end))
    assert subjects(find(inbox)) == ["mail 0", "mail 3", "mail 5"]
    assert [mail.name for mail in find(inbox)][1] == f"{inbox}:4"
    for size in (0, 70_000):
        alone = write(tmp_path / "Junk", mails[1] + b"x" * size)
        with pytest.raises(NotMail, match="Junk: no mail in it"):
            find(alone)
    forged = write(tmp_path / "forged", LINE + b"To: x\nX-Mozilla-Status: 0009\n" + one(1))
    assert subjects(find(forged)) == ["mail 1"]


def test_an_mbox_that_shrinks_meanwhile_gives_no_pieces_of_mails(tmp_path: Path) -> None:
    mails = [LINE + one(number) + b"\n" for number in (1, 23, 4)]
    first, second, third = find(write(tmp_path / "mbox", b"".join(mails)))
    (tmp_path / "mbox").write_bytes(b"".join(mails[1:]))
    assert subjects([first]) == ["mail 23"]
    for mail in (second, third):
        with pytest.raises(InputError, match="mbox: a mail in it was removed or changed meanwhile"):
            mail.read()


@pytest.mark.parametrize("first", [b"", b"long " * 100], ids=["shorter", "longer"])
def test_a_mail_that_takes_the_place_of_another_is_read_as_a_whole_and_alone(tmp_path: Path, first: bytes) -> None:
    top, two, three = (LINE + one(number, body) + b"\n" for number, body in ((1, first), (2, b"body"), (3, b"")))
    found, *_ = find(write(tmp_path / "mbox", top + two + three))
    (tmp_path / "mbox").write_bytes(two + three)
    assert found.read() == two


def test_a_mail_that_is_added_behind_the_only_one_is_no_part_of_it(tmp_path: Path) -> None:
    (found,) = find(write(tmp_path / "mbox", LINE + one(1) + b"\n"))
    (tmp_path / "mbox").write_bytes(LINE + one(1) + b"\n" + LINE + one(2) + b"\n")
    assert found.read() == LINE + one(1) + b"\n"


CUT_WHILE_SEARCHED = """
import os, sys
from pathlib import Path
from types import SimpleNamespace
from spamfilter.mail import mailboxes
separator, path = mailboxes._SEPARATOR, Path(sys.argv[1])
def finditer(*searched):
    os.truncate(path, 5000)
    return separator.finditer(*searched)
mailboxes._SEPARATOR = SimpleNamespace(finditer=finditer, search=separator.search)
mailboxes.find(path)
"""


def test_an_mbox_that_is_cut_short_while_it_is_searched_does_not_end_the_process(tmp_path: Path) -> None:
    box = write(tmp_path / "mbox", (LINE + one(1, b"x" * 10_000) + b"\n") * 100)
    subprocess.run([sys.executable, "-c", CUT_WHILE_SEARCHED, str(box)], check=True, timeout=60)


def test_an_mbox_of_many_blocks_has_each_of_its_mails_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mails = [LINE + one(number) + b"x\n" * (number % 7) + b"\n" for number in range(40)]
    monkeypatch.setattr(mailboxes, "FIRST", 200)
    for block in (1, 64, 101, 333):
        monkeypatch.setattr(mailboxes, "BLOCK", block)
        found = find(write(tmp_path / "mbox", b"".join(mails)))
        assert [mail.read() for mail in found] == mails


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        pytest.param("missing", "missing: no such file or folder", id="missing"),
        pytest.param("pipe", "pipe: neither a file nor a folder", id="pipe"),
        pytest.param("empty", "empty: no mail in it", id="empty-folder"),
        pytest.param("maildir", "maildir: no mail in it", id="maildir-without-mail"),
    ],
)
def test_where_there_is_no_mail_the_error_names_the_place(tmp_path: Path, name: str, sentence: str) -> None:
    (tmp_path / "empty").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for folder in ("cur", "new"):
        (tmp_path / "maildir" / folder).mkdir(parents=True)
    write(tmp_path / "maildir" / "tmp" / "1", one(1))
    with pytest.raises(InputError, match=sentence):
        find(tmp_path / name)


def test_a_place_that_nobody_may_look_into_is_not_called_missing() -> None:
    with workshop() as folder:
        (mail := write(folder / "home" / "Maildir" / "mail.eml", one(1))).parent.chmod(0o700)
        as_root = os.geteuid() == 0
        if as_root:
            os.seteuid(65534)  # nobody
        else:
            mail.parent.chmod(0)
        try:
            with pytest.raises(InputError, match=r"mail\.eml: Permission denied"):
                find_piles([mail], [], print)
            problems: list[str] = []
            assert list(named_mails([str(mail)], problems)) == []
            assert problems == [f"{mail}: Permission denied"]
        finally:
            if as_root:
                os.seteuid(0)
            mail.parent.chmod(0o700)


def test_a_line_made_to_confuse_the_search_for_separators_is_read_at_once(tmp_path: Path) -> None:
    """Quadratic time would take three quarters of an hour here."""
    write(tmp_path / "box", b"From " + b"Mon " * 250_000 + b"\n\nbody\n")
    assert len(find(tmp_path / "box")) == 1


def test_links_that_lead_in_circles_multiply_no_mail(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "one.eml").write_bytes(b"Subject: x\n\nx\n")
    (tmp_path / "a" / "up").symlink_to(tmp_path)  # two of them, and there would be no end of it
    assert len(find(tmp_path)) == 1
