"""Reading a mail into a Message: what is read, what is left out, and that no mail makes it raise."""

import base64
import quopri
from collections.abc import Callable
from dataclasses import replace
from unittest.mock import ANY

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from spamfilter.bayes.voices import view
from spamfilter.config.settings import Settings
from spamfilter.mail.header import MAX_FIELDS, MAX_NAME, MAX_VALUE
from spamfilter.mail.letters import as_written
from spamfilter.mail.message import MAX_PARTS, MAX_TEXT, SCANNED, Message, parse
from spamfilter.mail.tagging import mark
from tests.mail.test_charsets import CODECS
from tests.support.made import mail, some

FRAGMENTS = st.sampled_from(
    [
        *(b"Content-Type: text/plain; charset=%s\n" % name.encode() for name in CODECS if "escape" not in name),
        *(b"Content-Type: multipart/mixed; boundary=%s\n" % name for name in (b"a", b"ab", b'"a', b'""', b"")),
        *(b"Content-Transfer-Encoding: %s\n" % name for name in (b"base64", b"quoted-printable", b"8bit", b"x")),
        b"--a\n", b"--a--\n", b"--ab\n", b"\n", b"\n\n", b"\r\n", b"\r", b"From ", b">From a\n", b"Subject:", b" ",
        b":",
        b"Content-Type: message/rfc822\n", b"=?utf-8?q?", b"=?utf-8?b?", b"?=", b"=?hz?b?fn4=?=", b"=", b"=\n", b"=FF",
        b"YWJj", b"YQ==", b"Y", b"\xff\xfe", "中文".encode(), "ü".encode(), b"\0", b"\x1b$B", b"~{", b"+AGE-",
        b"a" * 700,
    ]
)  # fmt: skip
"""Pieces of mails, for mails that nobody would write."""
MAILS = st.one_of(st.binary(max_size=400), st.lists(FRAGMENTS | st.binary(max_size=20), max_size=30).map(b"".join))


@some(400)
@given(MAILS)
def test_any_bytes_are_a_message_of_valid_utf_8(data: bytes) -> None:
    message = parse(data)
    for name, value in (*message.fields, *message.part_fields):
        assert name == name.lower()
        assert name.decode("ascii").strip()
        assert not {ord(":"), ord("\n")} & set(name)
        assert len(value.decode("utf-8").encode()) <= MAX_VALUE
    assert len(message.text.decode("utf-8").encode()) <= MAX_TEXT
    assert (message.size, message.scanned) == (len(data), len(data))
    assert len(message.digest()) == 16


@some(100)
@given(MAILS)
def test_a_packed_message_is_the_same_but_for_its_defects_and_disguises(data: bytes) -> None:
    message = parse(data)
    assert Message.unpacked(message.packed()) == replace(message, defects=(), disguised=())


def test_the_head_is_the_fields_as_they_were_written_and_those_of_the_parts_after_them() -> None:
    mail = b"Subject: a\n b\nX-UID: 1\nContent-Type: multipart/mixed; boundary=x\n\n--x\nX-Part: c\n d\n\n--x--\n"
    assert parse(mail).head == b"Subject: a\n b\nContent-Type: multipart/mixed; boundary=x\nx-part: c d"


def test_all_parts_together_have_one_bound_of_fields() -> None:
    many = b"X: y\n" * (MAX_FIELDS // 2)
    message = parse(b"Content-Type: multipart/mixed; boundary=x\n" + (b"\n--x\n" + many) * 3 + b"\n--x--\n")
    assert len(message.part_fields) == MAX_FIELDS
    assert "many-fields" in message.defects


@some(100)
@given(MAILS.filter(lambda data: b"\r" not in data), MAILS)
def test_only_65536_bytes_behind_the_header_are_looked_at(start: bytes, end: bytes) -> None:
    filled = start + b"\nfiller\n" * (SCANNED // 4) + end
    whole = parse(filled)
    first = parse(filled[: whole.scanned] + b"x")
    assert (whole.fields, whole.part_fields, whole.text) == (first.fields, first.part_fields, first.text)
    assert whole.digest() == first.digest()
    assert SCANNED <= whole.scanned <= len(start) + len(b"\nfiller\n\n") + SCANNED
    assert whole.size == len(filled)


@some(100)
@given(MAILS.filter(lambda data: not data.startswith((b" ", b"\t", b"\r", b"From ", b">From "))))
def test_what_servers_put_on_top_does_not_change_where_the_reading_ends(start: bytes) -> None:
    mail = start + b"".join(b"\nline %05d\n" % number for number in range(SCANNED // 8))
    before, after = parse(mail), parse(b"X-Added: y\n" * 20 + mail)
    assert (after.text, after.shown) == (before.text, before.shown)


def test_a_text_in_front_hides_none_in_a_mail_that_is_not_read_to_its_end() -> None:
    start = b"Content-Type: multipart/mixed; boundary=x\n\n--x\n\n"
    text = b"%s\n%s\n" % (b"some prose\n" * 1_000, b"buy pills\n" * 300)
    picture = b"\n--x\nContent-Type: image/png\nContent-Transfer-Encoding: base64\n\n" + b"AAAA\n" * 50_000
    both = parse(start + text + picture).text
    assert (both.count(b"some prose"), both.count(b"buy pills")) == (2_000 // 11, 2_000 // 10 - 1)
    assert b"buy pills" in parse(b"\n" + b"some prose\n" * 1_000 + b"buy pills\n" * 9_000).text


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"], ids=["lf", "crlf"])
@pytest.mark.parametrize("field", [b"X-Long: %s\n" % (b"x" * 99_000), b"X-Long: x\n" * 12_000], ids=["one", "many"])
def test_a_long_header_hides_no_text_behind_it(field: bytes, line_end: bytes) -> None:
    mail = b"Subject: x\n%s\n" % field + b"buy pills\n" * 8_000
    message = parse(mail.replace(b"\n", line_end))
    assert message.text.startswith(b"buy pills\nbuy")
    assert len(field) < message.scanned < len(mail)


HTML = b"Content-Type: text/html\nContent-Transfer-Encoding: base64\n\nPGI+QnV5IHRoaXMgbm93PC9iPg==\n"
KIND = b"Content-Type: multipart/mixed; boundary=z\n"
FIELDS, BYTES = b"X-Long: x\n" * 300, b"X-Long: %s\n" % (b"x" * 500) * 40


@pytest.mark.parametrize(
    ("header", "part"),
    [
        pytest.param(FIELDS + KIND, HTML, id="many-fields"),
        pytest.param(BYTES + KIND, HTML, id="many-bytes"),
        pytest.param(BYTES + KIND.replace(b"; ", b";\n\t"), HTML, id="many-bytes-and-a-fold"),
        pytest.param(KIND, FIELDS + HTML, id="many-fields-of-a-part"),
        pytest.param(KIND.replace(b"; ", b"; x=%s; " % (b"x" * 700)), HTML, id="long-parameter"),
        pytest.param(KIND.replace(b": ", b": (a) (b)"), HTML, id="comment"),
        pytest.param(KIND, HTML.replace(b" base64", b' (a) "base64"'), id="comment-and-quotes"),
        pytest.param(KIND, b"Content-Type: message/global\n\nSubject: x\n" + HTML, id="mail-with-utf-8-in-its-header"),
        pytest.param(KIND.replace(b"mixed", b"digest"), b"X: y\n\nSubject: x\n" + HTML, id="digest"),
    ],
)
def test_what_a_mail_program_shows_is_read_whatever_stands_before_its_type(header: bytes, part: bytes) -> None:
    message = parse(b"From: ann\n" + header + b"\n--z\n" + part + b"--z--\n")
    assert b"Buy this now" in message.shown
    assert max(len(message.fields), len(message.part_fields)) <= MAX_FIELDS


def test_a_long_header_before_the_fields_of_a_mail_hides_them_neither() -> None:
    long = b"X-Long: %s\n" % (b"x" * 99_000)
    message = parse(long + b"Subject: y\nContent-Transfer-Encoding: base64\n\nYnV5IHBpbGxz\n")
    assert (message.field(b"subject"), message.text) == ("y", b"buy pills")


@some(100)
@given(MAILS.filter(lambda data: b"\r" not in data))
def test_crlf_and_lf_are_the_same_mail(data: bytes) -> None:
    ours, theirs = parse(data), parse(data.replace(b"\n", b"\r\n"))
    assert (ours.fields, ours.part_fields, ours.text) == (theirs.fields, theirs.part_fields, theirs.text)
    assert ours.defects == theirs.defects


def test_as_much_is_looked_at_of_a_mail_with_crlf() -> None:
    start, end = b"Content-Type: multipart/mixed; boundary=x\n\n--x\n\n", b"--x\nX-Late: y\n\n"
    late = (start + b"\n" * (SCANNED - len(start) - len(end)) + end).replace(b"\n", b"\r\n")
    assert parse(late).part_fields == ((b"x-late", b"y"),)


@pytest.mark.parametrize(
    ("encoded", "text"),
    [
        pytest.param(b"YWJj", b"abc", id="whole"),
        pytest.param(b"YW\r\nJj\n", b"abc", id="line-breaks"),
        pytest.param(b"Y!W*J#j", b"abc", id="foreign-characters"),
        pytest.param(b"YWI=", b"ab", id="padded"),
        pytest.param(b"YWI", b"ab", id="padding-missing"),
        pytest.param(b"YWJjY", b"abc", id="one-character-left-over"),
        pytest.param(b"YWI=====", b"ab", id="too-much-padding"),
        pytest.param(b"YWJj=YWJj", b"abcabc", id="padding-where-none-is-needed"),
        pytest.param(b"YWI=YWJj=", b"ababc", id="padding-inside-ends-a-group"),
        pytest.param(b"**?**", b"**?**", id="nothing-left-is-taken-as-it-is"),
        pytest.param(b"", b"", id="nothing-at-all"),
    ],
)
def test_broken_base64_is_read_as_far_as_it_goes(encoded: bytes, text: bytes) -> None:
    assert parse(b"Content-Transfer-Encoding: base64\n\n" + encoded).text == text


@pytest.mark.parametrize(
    ("first", "kept"),
    [
        pytest.param(b"From ann@example.org Sun Mar  1 12:00:00 2026\nSubject: x\n", True, id="mbox-line"),
        pytest.param(b">From ann@example.org Sun Mar  1 12:00:00 2026\nSubject: x\n", True, id="quoted-mbox-line"),
        pytest.param(b"From: ann@example.org\nSubject: x\n", True, id="a-field"),
        pytest.param(b"\nSubject: x\n", False, id="empty-line-ends-the-header"),
    ],
)
def test_a_leading_mbox_line_is_skipped(first: bytes, kept: bool) -> None:
    message = parse(first)
    assert (message.field(b"subject") == "x") is kept
    assert "not-a-field" not in message.defects


@pytest.mark.parametrize(
    "name", [b"", b" ", b"two words", b"x\0", b"x\x7f", "grün".encode(), b"\xff", b"a\x0bb"], ids=ascii
)
def test_what_is_no_name_of_a_field_is_passed_over_with_its_line(name: bytes) -> None:
    message = parse(name + b": value\nSubject: x\n\n")
    assert message.fields == ((b"subject", b"x"),)
    assert message.defects == ("not-a-field",)


@pytest.mark.parametrize(
    ("mail", "text"),
    [
        pytest.param(b"Subject: x\nBuy these pills\nnow\n", b"Buy these pills\nnow", id="no-empty-line-at-all"),
        pytest.param(b"Subject: x\nBuy these\n\npills\n", b"Buy these\n\npills", id="before-the-empty-line"),
        pytest.param(b"Buy these pills\n", b"Buy these pills", id="no-header"),
        pytest.param(
            b"Subject: x\nsee http://a.b\nTo: y\n\npills", b"see http://a.b\nTo: y\n\npills", id="fields-behind-it"
        ),
        pytest.param(
            b"Content-Transfer-Encoding: base64\nQnV5IHRoZXNlIHBpbGxz\n", b"Buy these pills", id="encoded-at-once"
        ),
        pytest.param(
            b"Content-Type: multipart/mixed; boundary=b\n\n--b\nBuy these pills\n--b--\n", b"Buy these pills", id="part"
        ),
        pytest.param(b"Subject: x\nFrom a Sun Mar  1\n>From b\nTo: y\n\npills", b"pills", id="lines-of-mailboxes"),
    ],
)
def test_a_header_that_runs_into_the_text_hides_no_text(mail: bytes, text: bytes) -> None:
    message = parse(mail)
    assert message.text.strip() == message.shown.strip() == text
    assert parse(mail.replace(b"\n", b"\r\n")) == replace(message, size=message.size + mail.count(b"\n"), scanned=ANY)


def test_fields_behind_a_line_that_is_none_count_all_the_same() -> None:
    assert parse(b"A: 1\nno field\nB: 2\n\n").fields == ((b"a", b"1"), (b"b", b"2"))


@pytest.mark.parametrize(
    ("raw", "declared", "read"),
    [
        pytest.param("Grüße".encode(), "iso-8859-1", "Grüße", id="utf-8-whatever-is-declared"),
        pytest.param("Купить".encode("koi8-r"), "koi8-r", "Купить", id="the-charset-of-the-text"),
        pytest.param("Купить".encode("cp1251"), "windows-1251", "Купить", id="another"),
        pytest.param("发票 now".encode("gb18030"), "", "发票 now", id="chinese"),
        pytest.param("发票".encode("gb18030"), "us-ascii", "发票", id="chinese-declared-as-ascii"),
        pytest.param("发票".encode("gb18030"), "utf-8", "发票", id="chinese-declared-as-utf-8"),
        pytest.param("Café à Menü".encode("latin-1"), "", "Café à Menü", id="western"),
        pytest.param("Grüße".encode("latin-1"), "", "Grüße", id="two-in-a-row"),
        pytest.param("Menü".encode("latin-1"), "no-such-charset", "Menü", id="unknown"),
        pytest.param("Menü".encode("latin-1"), "iso-2022-jp", "Menü", id="not-in-the-charset"),
    ],
)
@pytest.mark.parametrize("multipart", [False, True])
def test_a_subject_in_no_declared_charset_is_read(raw: bytes, declared: str, read: str, multipart: bool) -> None:
    kind = f'Content-Type: text/plain; charset="{declared}"\n\ntext\n'.encode()
    if multipart:
        kind = b"Content-Type: multipart/mixed; boundary=b\n\n--b\n" + kind + b"--b--\n"
    message = parse(b"Subject: " + raw + b"\n" + kind)
    assert message.field(b"subject") == read
    assert message.head.startswith(b"Subject: " + read.encode() + b"\n")


@pytest.mark.parametrize("kind", ["text/calendar", "application/ics"])
def test_the_text_of_a_calendar_and_the_name_of_an_attachment_are_read(kind: str) -> None:
    calendar = f"Content-Type: {kind}; name=invite.ics\n\nSUMMARY:cheap pills\n"
    pdf = 'Content-Type: application/pdf; name="bill.pdf"\nContent-Transfer-Encoding: base64\n\nAAAA\n'
    mail = f"Content-Type: multipart/mixed; boundary=b\n\n--b\n{calendar}--b\n{pdf}--b--\n"
    tokens = view(Settings().voices(), parse(mail.encode()))["fields"]
    assert {b"pills", b"content-type:invite", b"content-type:bill", b"content-type:pdf"} <= set(tokens)


def test_the_first_field_of_a_name_is_the_one_that_counts() -> None:
    message = parse(b"Subject: one\nSUBJECT : two\n\n")
    assert message.fields == ((b"subject", b"one"), (b"subject", b"two"))
    assert message.field(b"subject") == "one"
    assert message.field(b"x-none") == ""


@pytest.mark.parametrize("spaces", [0, 1, 69, 70, 500])
def test_spaces_before_the_colon_are_no_part_of_a_name(spaces: int) -> None:
    assert parse(b"Subject" + b" " * spaces + b": x\n\n").fields == ((b"subject", b"x"),)


@pytest.mark.parametrize("size", [MAX_NAME, MAX_NAME + 1, 60_000])
def test_a_name_beyond_its_bound_is_none(size: int) -> None:
    message = parse(b"x" * size + b": y\n\n")
    assert [name for name, _ in message.fields] == ([b"x" * size] if size <= MAX_NAME else [])
    assert ("not-a-field" in message.defects) is (size > MAX_NAME)


def test_a_value_is_unfolded_and_cut_between_characters() -> None:
    message = parse(b"A: one\n\ttwo\n three\nB: x" + "ü".encode() * 400 + b"\nC: " + b"y" * 700 + b"\n\n")
    assert message.field(b"a") == "one two three"
    assert message.field(b"b") == "x" + "ü" * 299
    assert message.field(b"c") == "y" * MAX_VALUE


@pytest.mark.parametrize(("word", "text"), [(b"Y2Fmw6k=", "café"), (b"**", "**")], ids=["base64", "no-base64"])
def test_an_encoded_word_of_base64_is_decoded_or_left(word: bytes, text: str) -> None:
    assert parse(b"Subject: =?utf-8?b?%s?=\n\n" % word).field(b"subject") == text


@pytest.mark.parametrize("charset", ["utf-8", "gb18030", "iso-2022-jp"])
def test_encoded_words_that_divide_a_character_are_read_together(charset: str) -> None:
    raw = "来週の会議についてのお知らせ".encode(charset)
    halves = raw[:13], raw[13:]
    subject = b"\n ".join(b"=?%s?B?%s?=" % (charset.encode(), base64.b64encode(half)) for half in halves)
    assert parse(b"Subject: %s\n\n" % subject).field(b"subject") == "来週の会議についてのお知らせ"


def test_encoded_words_of_several_charsets_stand_side_by_side() -> None:
    words = b"=?utf-8?b?Y2Fmw6k=?= =?iso-8859-1?q?=E0?= =?utf-8*fr?q?_menu?= plain"
    assert parse(b"Subject: %s\n\n" % words).field(b"subject") == "caféà menu plain"


def test_an_encoded_word_that_decodes_to_line_breaks_makes_no_field() -> None:
    message = parse(b"Subject: =?utf-8?q?a=0AX-Spam: b?=\n\nbody")
    assert [name for name, _ in message.fields] == [b"subject"]
    assert message.text == b"body"


def test_of_the_text_of_all_parts_together_beginning_and_end_are_kept() -> None:
    part = b"--x\n\n" + "ü".encode() * 1999 + b"\n"
    message = parse(b"Content-Type: multipart/mixed; boundary=x\n\n" + part * 3 + b"--x--\n")
    assert message.text.decode() == "ü" * 2000
    assert message.shown == message.text


def test_a_character_that_is_cut_at_the_end_is_left_out() -> None:
    assert parse(b"\n" + "ü".encode() * 4000 + b"x").text.decode() == "ü" * 1999 + "x"


def test_of_a_long_part_8000_decoded_bytes_of_its_beginning_and_of_its_end_are_read() -> None:
    assert parse(b"\nbefore" + b"\n" * 16_000 + b"beyond").text.split() == [b"before", b"beyond"]
    assert parse(b"\n" + b"\n" * 8_000 + b"between" + b"\n" * 8_000).text.split() == []


def test_a_long_part_of_base64_is_read_at_both_ends() -> None:
    text = b"".join(b"line %06d\n" % number for number in range(3000))
    read = parse(b"Content-Transfer-Encoding: base64\n\n" + base64.encodebytes(text)).text
    assert read == text[:2000] + text[-2000:]


@pytest.mark.parametrize("length", range(9_000, 9_008))
@pytest.mark.parametrize("charset", ["utf-16-le", "utf-16-be"])
def test_a_long_text_of_wide_characters_is_cut_between_them(charset: str, length: int) -> None:
    text = ("Привет, не был " * length)[:length]
    head = f"Content-Type: text/plain; charset={charset}\nContent-Transfer-Encoding: base64\n\n".encode()
    read = parse(head + base64.encodebytes(text.encode(charset))).text.decode()
    assert len(read) > 1_900
    assert (text.startswith(read[:1000]), text.endswith(read[-1000:])) == (True, True)


@pytest.mark.parametrize("end", ["", "\n", "\n\n", "\nthe end\n"])
@pytest.mark.parametrize("start", ["", "hello\n"])
def test_a_line_that_is_longer_than_what_is_read_is_cut_within(start: str, end: str) -> None:
    text = f"{start}{'cheap pills ' * 3_000}{end}"
    read = parse(f"\n{text}".encode()).text.decode()
    assert len(read) > 3_800
    assert (text.startswith(read[:1_900]), text.endswith(read[-1_900:])) == (True, True)


@pytest.mark.parametrize("charset", ["iso-2022-jp", "shift_jis", "euc-jp", "gb18030", "big5", "koi8-r"])
@pytest.mark.parametrize("encoding", ["base64", "quoted-printable", "8bit"])
def test_a_long_text_is_cut_at_the_end_of_a_line_in_each_charset(charset: str, encoding: str) -> None:
    letters = {"big5": "\u6703\u8b70", "koi8-r": "Привет"}.get(charset, "\u4f1a\u8b70")
    text = f"{letters * 6} {letters}\n" * 700
    body = {"base64": base64.encodebytes, "quoted-printable": quopri.encodestring}.get(encoding, bytes)(
        text.encode(charset)
    )
    head = f"Content-Type: text/plain; charset={charset}\nContent-Transfer-Encoding: {encoding}\n\n"
    assert set(parse(head.encode() + body).text.decode()) == set(text)


@pytest.mark.parametrize(
    "parameters",
    [
        "x-boundary=d; boundary=r",
        'a="; boundary=d"; boundary=r',
        "boundary=r; boundary=d",
        ' name="x"; BOUNDARY = "r"',
        r'name="5\" disk"; boundary="r"',
        'name=5"; boundary=r',
        "boundary*=us-ascii'en'%72",
    ],
)
def test_a_boundary_is_that_which_mail_programs_read(parameters: str) -> None:
    mail = f"Content-Type: multipart/mixed; {parameters}\n\n--d\n\nminutes of meeting\n--d--\n--r\n\npills\n--r--\n"
    assert parse(mail.encode()).text == b"pills"


@pytest.mark.parametrize(
    "parameters",
    ['boundary*0="ab"; boundary*1=c', "boundary*0*=''a%62;\n\tboundary*1=c", "BOUNDARY*0=a;boundary*1*=%62c"],
)
def test_a_boundary_in_sections_is_put_together(parameters: str) -> None:
    part = "Content-Transfer-Encoding: base64\n\n" + base64.b64encode(b"pills").decode()
    assert parse(f"Content-Type: multipart/mixed; {parameters}\n\n--abc\n{part}\n--abc--\n".encode()).text == b"pills"


@pytest.mark.parametrize(
    "header",
    ["text/plain; x-charset=utf-16; charset=utf-8", "text/plain; charset=utf-32", "text/plain; charset=cp037"],
)
def test_a_charset_that_no_mail_program_reads_hides_nothing(header: str) -> None:
    assert parse(f"Content-Type: {header}\n\ncheap pills".encode()).text == b"cheap pills"


@pytest.mark.parametrize("encoding", [b"base64", b"base64;", b"BASE64 (as ever)", b"base64, x"])
def test_an_encoding_ends_where_a_comment_begins(encoding: bytes) -> None:
    assert parse(b"Content-Transfer-Encoding: " + encoding + b"\n\n" + base64.b64encode(b"pills")).text == b"pills"


def test_the_end_of_a_long_text_in_utf_16_is_read_though_its_beginning_has_no_ascii() -> None:
    text = "会议上的" * 2_200 + "\r\n" + "cheap pills\r\n" * 600
    head = b"Content-Type: text/plain; charset=utf-16-le\nContent-Transfer-Encoding: base64\n\n"
    assert b"cheap pills" in parse(head + base64.encodebytes(text.encode("utf-16-le"))).text


@pytest.mark.parametrize(
    "inner",
    [b"Subject: cheap\n\npills\n", b"\n\nSubject: cheap\n\npills\n", b"Subject: cheap\r\n\r\npills\r\n"],
)
@pytest.mark.parametrize("encoding", [b"7bit", b"base64"])
def test_an_attached_mail_is_read_once_however_it_is_attached(inner: bytes, encoding: bytes) -> None:
    body = base64.encodebytes(inner) if encoding == b"base64" else inner
    head = b"Content-Type: message/rfc822\nContent-Transfer-Encoding: " + encoding + b"\n\n"
    message = parse(head + body)
    assert (message.text.split(), message.defects) == ([b"subject:", b"cheap", b"pills"], ())


def test_attached_mails_take_no_text_from_what_follows() -> None:
    attached = b"--a\nContent-Type: message/rfc822\n\nSubject: x\n\none\n" * 11
    message = parse(b"Content-Type: multipart/mixed; boundary=a\n\n" + attached + b"--a\n\npills\n--a--\n")
    assert message.text.count(b"one") == 11
    assert b"pills" in message.text


def test_an_attached_mail_is_read_as_a_mail() -> None:
    inner = b"Subject: cheap\nContent-Type: text/html\nContent-Transfer-Encoding: base64\n\n" + base64.b64encode(
        b"<p>pills</p>"
    )
    head = b"Content-Type: multipart/mixed; boundary=a\n\n--a\nContent-Type: message/rfc822\n\n"
    message = parse(head + inner + b"\n--a--\n")
    assert (
        message.text.strip()
        == b"subject: cheap\ncontent-type: text/html\ncontent-transfer-encoding: base64\n<p>pills</p>"
    )
    assert message.shown.endswith(b"base64\npills")
    assert (message.part_fields, message.defects) == (((b"content-type", b"message/rfc822"),), ())


@pytest.mark.parametrize("shift", range(4))
@pytest.mark.parametrize("encoding", ["base64", "base64 in lines of 74", "quoted-printable", "8bit"])
@pytest.mark.parametrize("sentence", ["Привет, не был ", "来週の会議です。", "Grüße aus Köln "])
def test_a_long_text_is_cut_between_its_letters_at_both_ends(sentence: str, encoding: str, shift: int) -> None:
    text = ("x" * shift + sentence * 3000).encode()[:18_000].decode("utf-8", "ignore").encode()
    if encoding == "base64 in lines of 74":
        whole = base64.b64encode(text)
        encoded = b"\n".join(whole[at : at + 74] for at in range(0, len(whole), 74))
    else:
        encoded = {"base64": base64.encodebytes, "quoted-printable": quopri.encodestring}.get(encoding, bytes)(text)
    head = f"Content-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: {encoding.partition(' ')[0]}\n\n"
    read = parse(head.encode() + encoded)
    assert read.text == read.shown
    beginning, end = (read.text[part].decode("utf-8", "ignore") for part in (slice(1900), slice(-1900, None)))
    assert (text.decode().startswith(beginning), text.decode().endswith(end)) == (True, True)
    letters = set(text.decode()) | {"\N{REPLACEMENT CHARACTER}"}
    assert set(read.text.decode()) <= letters


@pytest.mark.parametrize("size", [4_100, 9_000, 14_000, 20_000])
def test_a_long_style_sheet_hides_no_text(size: int) -> None:
    style = b"<style>" + b"p{margin:0}" * (size // 11) + b"</style>"
    shown = parse(b"Content-Type: text/html\n\n" + style + b"<p>cheap pills</p>\n" * 300).shown
    assert len(shown) > 3_500
    assert shown.startswith(b"cheap pills cheap")
    assert shown.endswith(b"cheap pills")
    assert b"margin" not in shown


@pytest.mark.parametrize(
    ("html", "shown"),
    [
        pytest.param(b"<p>one<p class='x'>two", b"one two", id="tags"),
        pytest.param(b"via<b>gra</b> f<!-- x -->ree", b"viagra free", id="inside-words"),
        pytest.param(b"<style>p {color: red}</style>a<script>b</script>", b"a", id="style-and-script"),
        pytest.param(b"a<style>never closed", b"a", id="style-without-an-end"),
        pytest.param(b"5 &lt; 6 &amp; caf&eacute;", "5 < 6 & café".encode(), id="entities"),
        pytest.param(b"<div style='display: none'>meeting</div>pills", b"pills", id="not-displayed"),
        pytest.param(b"a<img style='display:none'>pills", b"a pills", id="an-image-that-is-not-displayed"),
        pytest.param(b"a<!-->pills<!-- x -->", b"apills", id="a-comment-that-ends-at-once"),
        pytest.param(b'<a title="<!--">pills</a>', b"pills", id="what-looks-like-a-comment-within-a-tag"),
        pytest.param(b'<span title="<style>">pills', b'">pills', id="what-looks-like-a-style-sheet-within-a-tag"),
        pytest.param(b"a <! b", b"a", id="broken"),
        pytest.param(b'<p title="' + b"x" * 3_000 + b'<!--">pills', b"pills", id="a-comment-within-any-tag"),
        pytest.param(b"<p" + b" <q" * 9 + b" <style>pills", b"pills", id="a-style-sheet-far-within-a-tag"),
        pytest.param(b"<img alt='<style '>pills", b"pills", id="a-style-sheet-within-any-tag"),
        pytest.param(b"<style></style x><p>pills", b"pills", id="a-style-sheet-that-ends-with-attributes"),
        pytest.param(b"<script></script/><p>pills", b"pills", id="a-script-that-ends-with-a-slash"),
        pytest.param(b"<style-x>pills</style-x>", b"pills", id="what-only-begins-like-a-style-sheet"),
    ],
)
def test_what_a_reader_sees_of_html(html: bytes, shown: bytes) -> None:
    assert parse(b"Content-Type: text/html\n\n" + html).shown == shown
    assert parse(b"Content-Type: text/plain\n\n" + html).shown == html


@pytest.mark.parametrize(
    ("plain", "text"),
    [
        pytest.param(b"buy cheap pills now", b"buy cheap pills now\n<p>Buy cheap pills now, please", id="the-same"),
        pytest.param(b"short", b"short\n<p>Buy cheap pills now, please", id="too-short-to-hide-anything"),
        pytest.param(
            b"minutes of the last meeting " * 40,
            b"\n<p>Buy cheap pills now, please\n" + b"minutes of the last meeting " * 40,
            id="something-else-and-long",
        ),
    ],
)
def test_of_alternatives_the_last_one_is_shown(plain: bytes, text: bytes) -> None:
    message = parse(
        b"Content-Type: multipart/alternative; boundary=x\n\n--x\nContent-Type: text/plain\n\n" + plain
        + b"\n--x\nContent-Type: text/html\n\n<p>Buy cheap pills now, please\n--x--\n"
    )  # fmt: skip
    assert message.text.lower() == text.lower()
    assert message.shown.strip() == b"Buy cheap pills now, please"


@pytest.mark.parametrize("hidden", [b"pills", b"pills " * 3000], ids=["short", "long"])
def test_what_says_that_it_is_not_displayed_is_read_last(hidden: bytes) -> None:
    message = parse(b"Content-Type: text/html\n\n<p style='display:none;display:block'>" + hidden + b"</p>the minutes")
    assert message.shown == b"the minutes"
    assert b"the minutes" in message.text[:2000]
    assert message.text.endswith(hidden[-1000:])


@pytest.mark.parametrize("kind", [b"text/calendar", b"text/plain", b"text/x-unknown"])
def test_what_follows_a_text_in_an_alternative_and_is_not_html_hides_nothing(kind: bytes) -> None:
    message = parse(
        b"Content-Type: multipart/alternative; boundary=x\n\n--x\nContent-Type: text/html\n\n<p>" + b"pills " * 300
        + b"\n--x\nContent-Type: " + kind + b"\n\nminutes\n--x--\n"
    )  # fmt: skip
    assert b"pills" in message.shown
    assert message.text.startswith(b"<p>pills")


def test_of_a_long_header_what_people_see_is_read_first_and_what_servers_add_last() -> None:
    trace = b"".join(b"Received: by %d.example\n" % number + b"\tid %d\n" % number * 200 for number in range(9))
    signed = b"ARC-Seal: i=1; " + b"x" * 1500 + b"\n"
    people = b"To: " + b"b@c.example, " * 200 + b"\n"
    other = b"X-Other: y\n"
    head = parse(signed + trace + other + people + b"List-Id: <l.example>\nFrom: a@b.example\nSubject: s\n\n").head
    lines = head.split(b"\n")
    assert [line.partition(b":")[0] for line in lines if line[:1] not in b"\t"] == [
        b"ARC-Seal", b"Received", b"Received", b"Received", b"X-Other", b"To", b"List-Id", b"From", b"Subject",
    ]  # fmt: skip
    assert b"Received: by 0.example" in lines
    assert [len(line) for line in lines if line.startswith((b"ARC", b"To"))] == [600, 600]
    assert len(head) == 2500


def test_a_line_that_begins_like_the_boundary_line_before_it_is_the_first_of_the_part() -> None:
    message = parse(b"Content-Type: multipart/mixed; boundary=x\n\n--x\n--xy: z\n\ntext\n--x--\n")
    assert (message.part_fields, message.text) == (((b"--xy", b"z"),), b"text")


def test_beyond_4000_boundary_lines_all_belongs_to_the_part_that_was_begun() -> None:
    message = parse(b"Content-Type: multipart/mixed; boundary=x\n\n--x\n\none\n" + b"--xy\n" * 4000 + b"--x\n\ntwo\n")
    assert message.text.startswith(b"one\n--xy\n")
    assert message.defects == ("many-boundaries",)


@pytest.mark.parametrize("count", [MAX_PARTS - 1, MAX_PARTS, MAX_PARTS + 1, 500])
def test_twelve_parts_of_a_level_are_walked(count: int) -> None:
    parts = b"".join(b"--x\nX-Number: %d\n\npart\n" % number for number in range(count))
    message = parse(b"Content-Type: multipart/mixed; boundary=x\n\n" + parts + b"--x--\n")
    assert [value for _, value in message.part_fields] == [b"%d" % number for number in range(min(count, MAX_PARTS))]
    assert ("many-parts" in message.defects) is (count > MAX_PARTS)


def test_six_levels_are_walked_and_the_seventh_is_text() -> None:
    levels = b"".join(
        b"--b%d\nX-Level: %d\nContent-Type: multipart/mixed; boundary=b%d\n\n" % (level, level + 1, level + 1)
        for level in range(9)
    )
    message = parse(b"Content-Type: multipart/mixed; boundary=b0\n\n" + levels)
    assert [value for name, value in message.part_fields if name == b"x-level"] == [b"%d" % n for n in range(1, 7)]
    assert b"X-Level: 7" in message.text
    assert message.defects == ("deep",)


@pytest.mark.parametrize(
    ("body", "texts"),
    [
        pytest.param(b"--x\n\none\n--x\n\ntwo\n--x--\nafter\n", [b"one", b"two"], id="plain"),
        pytest.param(b"before\n--x\n\none\n--x--\n", [b"one"], id="preamble"),
        pytest.param(b"--x  \t\n\none\n--x--  \n", [b"one"], id="spaces-after"),
        pytest.param(b"--x\n\none\n", [b"one\n"], id="never-closed"),
        pytest.param(b"--x\n\none\n--xy\ntwo\n--x--\n", [b"one\n--xy\ntwo"], id="longer-boundary-inside"),
        pytest.param(b"--x\n\none\n--x-\ntwo\n--x--\n", [b"one\n--x-\ntwo"], id="almost-the-end"),
        pytest.param(b"--x\n\none --x\ntwo\n--x--\n", [b"one --x\ntwo"], id="not-at-the-start-of-a-line"),
        pytest.param(b"--x\n\n--x--\n", [b""], id="empty-part"),
        pytest.param(b"--x\n\none\n--x", [b"one", b""], id="begun-by-the-last-line"),
        pytest.param(b"--x--\n", [b"--x--\n"], id="closed-without-a-part-is-text"),
    ],
)
def test_parts_lie_between_boundary_lines(body: bytes, texts: list[bytes]) -> None:
    assert parse(b"Content-Type: multipart/mixed; boundary=x\n\n" + body).text == b"\n".join(texts)


def _encoded(text: str, encoding: str, line_end: str = "\n") -> bytes:
    raw = text.replace("\n", line_end).encode()
    head = f"Message-ID: <1@x>\nContent-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: {encoding}"
    encoders: dict[str, Callable[[bytes], bytes]] = {
        "8bit": bytes,
        "base64": base64.encodebytes,
        "quoted-printable": quopri.encodestring,
    }
    return head.encode() + b"\n\n" + encoders[encoding](raw)


@some(100)
@given(st.text(st.characters(exclude_categories=("Cs", "Cc")) | st.just("\n"), max_size=300))
@example("ü" * 5000)
@example("soft line breaks " * 600)
@example("trailing space \n.\n\n")
def test_another_transfer_encoding_is_the_same_mail(text: str) -> None:
    digest = parse(_encoded(text, "8bit")).digest()
    assert parse(_encoded(text, "base64")).digest() == digest
    assert parse(_encoded(text, "base64", "\r\n")).digest() == digest
    assert parse(_encoded(text, "quoted-printable")).digest() == digest


ORIGINAL = mail("an offer", "first line\r\nsecond line")


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(b"Received: from x\r\n\tby y; Mon, 2 Mar 2026\r\n" + ORIGINAL, id="received"),
        pytest.param(b"X-Spam-Flag: YES\r\nX-Spam-Status: Yes\r\n" + ORIGINAL, id="x-spam"),
        pytest.param(b"Status: RO\r\nX-Status: F\r\nX-UID: 7\r\n" + ORIGINAL, id="mailbox-status"),
        pytest.param(b"Return-Path: <a@x>\r\nDelivered-To: b@x\r\n" + ORIGINAL, id="delivery"),
        pytest.param(b"DKIM-Signature: v=1; b=abc\r\n" + ORIGINAL, id="signed"),
        pytest.param(b"From a@x Sun Mar  1 12:00:00 2026\r\n" + ORIGINAL, id="mbox-line"),
        pytest.param(ORIGINAL.replace(b"\r\n", b"\n"), id="unix-line-ends"),
        pytest.param(ORIGINAL + b"\r\n\r\n", id="empty-lines-at-the-end"),
        pytest.param(ORIGINAL.replace(b"Subject: ", b"Subject: [SPAM] "), id="subject-prefix"),
        pytest.param(ORIGINAL.replace(b"From: A Sender", b"From: A\r\n  Sender"), id="folded-anew"),
        pytest.param(ORIGINAL.replace(b"From:", b"FROM :"), id="other-spelling-of-the-name"),
        pytest.param(ORIGINAL.replace(b"From: A Sender", b"From: =?us-ascii?q?A_Sender?="), id="encoded-word"),
        pytest.param(b"".join(mark(ORIGINAL, [("X-Spamfilter-Id", "1")], "[SPAM]")), id="marked-by-us"),
    ],
)
def test_what_transit_does_to_a_mail_leaves_its_digest(other: bytes) -> None:
    assert parse(other).digest() == parse(ORIGINAL).digest()


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(ORIGINAL.replace(b"second", b"third"), id="body"),
        pytest.param(ORIGINAL.replace(b"one@", b"two@"), id="message-id"),
        pytest.param(ORIGINAL.replace(b"12:00", b"13:00"), id="date"),
        pytest.param(ORIGINAL.replace(b"A Sender", b"B Sender"), id="from"),
        pytest.param(ORIGINAL.replace(b"From: A", b"From-A: A"), id="from-missing"),
    ],
)
def test_another_mail_has_another_digest(other: bytes) -> None:
    assert parse(other).digest() != parse(ORIGINAL).digest()


def test_the_subject_counts_only_where_there_is_no_message_id() -> None:
    nameless = ORIGINAL.replace(b"Message-ID: <one@example.org>\r\n", b"")
    assert parse(nameless).digest() != parse(nameless.replace(b"an offer", b"another")).digest()
    assert parse(ORIGINAL).digest() == parse(ORIGINAL.replace(b"an offer", b"another")).digest()


def test_words_are_read_as_they_look_and_kept_as_they_were_written() -> None:
    subject, text = "\uff36\u0456agra", "\U0001d402\U0001d421\U0001d41e\U0001d41a\U0001d429 p\u0456lls, va\u00adlium"
    message = parse(f"Subject: {subject}\nTo: Москва\n\n{text}\n".encode())
    assert message.fields == ((b"subject", b"Viagra"), (b"to", "Москва".encode()))
    assert message.text == message.shown == b"Cheap pills, valium\n"
    assert message.field(b"subject") == subject
    assert as_written(message.disguised) == {
        "Viagra": subject,
        "Cheap": "\U0001d402\U0001d421\U0001d41e\U0001d41a\U0001d429",
        "pills": "p\u0456lls",
        "valium": "va\u00adlium",
    }


def test_full_width_brackets_are_text_and_no_markup() -> None:
    message = parse("Content-Type: text/html\n\nbefore \uff1cstyle\uff1e behind".encode())
    assert message.shown == b"before <style> behind"


def test_letters_that_take_more_bytes_when_plain_stay_within_the_bounds() -> None:
    message = parse(f"Subject: {'ﷺ' * 300}\n\n{'ﷺ' * 3000}".encode())
    assert len(message.fields[0][1]) <= MAX_VALUE
    assert len(message.text) <= MAX_TEXT


def test_the_same_field_of_a_part_does_not_stand_for_that_of_the_mail() -> None:
    part = "--x\nSubject: \uff36iagra\n\n--x--\n".encode()
    message = parse(b"Subject: hello\nContent-Type: multipart/mixed; boundary=x\n\n" + part)
    assert message.field(b"subject") == "hello"
