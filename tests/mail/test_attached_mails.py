"""The mails attached to a feedback mail."""

import base64
import quopri
from email import message_from_bytes
from email.message import Message
from email.mime.message import MIMEMessage
from email.mime.multipart import MIMEMultipart
from email.mime.text import MIMEText

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spamfilter.errors import InputError
from spamfilter.mail.attached_mails import MAX_DEPTH, MAX_FEEDBACK_DEPTH, MAX_MAILS, addresses_in, is_mail, mails_of
from tests.support.made import mail, some

AUTHOR = "anna@example.org"
ADDRESSES = ("spam@example.org", "ham@example.org")
PLAIN = b"Content-Type: message/rfc822\r\n\r\n"
WRAPPER = b"From: Anna <anna@example.org>\r\nTo: spam@example.org\r\n"


def about(sent: bytes) -> list[bytes]:
    return mails_of(sent, AUTHOR, ADDRESSES)


def multipart(*parts: bytes, kind: bytes = b"mixed", boundary: bytes = b"=_b", header: bytes = WRAPPER) -> bytes:
    """A mail of these parts, each with its own header."""
    lines = b"".join(b"--%s\r\n%s\r\n" % (boundary, part) for part in parts)
    return b'%sContent-Type: multipart/%s; boundary="%s"\r\n\r\n%s--%s--\r\n' % (
        header,
        kind,
        boundary,
        lines,
        boundary,
    )


def encoded(content: bytes, encoding: str) -> bytes:
    """A message/rfc822 part in a transfer encoding, which RFC 2046 forbids and mail programs use."""
    body = {"base64": base64.encodebytes, "quoted-printable": quopri.encodestring}[encoding](content)
    head = f"Content-Type: message/rfc822\r\nContent-Transfer-Encoding: {encoding}\r\n\r\n".encode()
    return head + body.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")


ONE, TWO = mail(name="one"), mail(name="two", body="--=_b is no boundary\r\n\r\nother text")
PASSED = multipart(
    b"\r\nbuy pills\r\n",
    PLAIN + ONE,
    boundary=b"=_p",
    header=b"X-Spamfilter-Id: 01KAH3V5E8M6Q2T0J9Z4R7X1CN\r\n" + WRAPPER,
)
"""A spam that says it is a mail of the author to us; the relay has passed it on, as it does with no such mail."""
RESENT = b"Resent-To: spam@example.org\r\n"
CASES = {
    "passed on, attached": (multipart(PLAIN + PASSED), [PASSED]),
    "passed on, redirected": (RESENT + PASSED, [RESENT + PASSED]),
    "attached": (multipart(b"\r\nsee there\r\n", PLAIN + ONE), [ONE]),
    "a file of a mail": (
        multipart(
            b"Content-Type: application/octet-stream;\r\n name=\"Buy it.EML\"\r\nContent-Transfer-Encoding: base64\r\n"
            b"\r\n" + base64.encodebytes(ONE),
            b"Content-Type: application/octet-stream; name=notes.eml.txt\r\n\r\n" + TWO,
            b"Content-Type: application/octet-stream; name=\"=?\xe9?q?a?=.eml\"\r\n\r\n" + TWO,  # no charset
            b"Content-Type: application/octet-stream; name=\"=?utf-8?b?a?=.eml\"\r\n\r\n" + TWO,  # no base64
            b"Content-Type: application/octet-stream\r\nContent-Disposition: attachment;\r\n"
            b" filename*0=\"look at \"; filename*1=this.eml\r\n\r\n" + TWO,
            b"Content-Type: application/octet-stream; name=\"=?UTF-8?B?YS5lbWw=?=\"\r\n\r\n" + TWO,
        ),
        [ONE, TWO, TWO],
    ),
    "a file of a mail, of another type": (
        multipart(
            b"Content-Type: text/plain; name=a.eml\r\n\r\n" + ONE,
            b"Content-Type: application/eml\r\nContent-Disposition: attachment; filename=b.eml\r\n\r\n" + TWO,
        ),
        [ONE, TWO],
    ),
    "blank lines before a header": (multipart(PLAIN + b"\r\n\n\r\n" + ONE), [ONE]),
    "several": (multipart(PLAIN + ONE, PLAIN + TWO, PLAIN + ONE), [ONE, TWO, ONE]),
    "nested": (multipart(multipart(PLAIN + ONE, boundary=b"=_b2", header=b""), PLAIN + TWO), [ONE, TWO]),
    "base64": (multipart(encoded(ONE, "base64")), [ONE]),
    "base64, cut off": (
        multipart(PLAIN[:-2] + b"Content-Transfer-Encoding: BASE64\r\n\r\nQTogYg0KDQpj\r\nZ"),
        [b"A: b\r\n\r\nc"],
    ),
    "quoted-printable": (multipart(encoded(TWO, "quoted-printable")), [TWO]),
    "global": (multipart(b"Content-Type: message/global\r\n\r\n" + ONE), [ONE]),
    "digest": (multipart(b"\r\n" + ONE, b"Content-Type: text/plain\r\n\r\nx", kind=b"digest"), [ONE]),
    "case, comment, folded": (multipart(b"CONTENT-TYPE : Message\r\n\t/RFC822; name=x\r\n\r\n" + ONE), []),
    "case and parameters": (multipart(b"CONTENT-TYPE: Message/RFC822;\r\n\tname=x\r\n\r\n" + ONE), [ONE]),
    "the mail itself is of that kind": (WRAPPER + PLAIN + ONE, [ONE]),
    "boundary without quotes": (multipart(PLAIN + ONE, boundary=b"b").replace(b'"b"', b"b"), [ONE]),
    "boundary in pieces": (
        multipart(PLAIN + ONE, boundary=b"bc").replace(b'boundary="bc"', b'boundary*0="b"; boundary*1="c"'),
        [ONE],
    ),
    "blanks behind the boundary": (multipart(PLAIN + ONE).replace(b"--=_b\r\n", b"--=_b \t\r\n"), [ONE]),
    "end is missing": (multipart(PLAIN + ONE).removesuffix(b"\r\n--=_b--\r\n"), [ONE]),
    "what follows the end": (multipart(PLAIN + ONE) + b"--=_b\r\n" + PLAIN + TWO, [ONE]),
    "unix line ends": (multipart(PLAIN + ONE).replace(b"\r\n", b"\n"), [ONE.replace(b"\r\n", b"\n")]),
    "inline": (WRAPPER + b"\r\n> " + ONE.replace(b"\r\n", b"\r\n> "), []),
    "text that looks so": (WRAPPER + b"\r\n--=_b\r\n" + PLAIN + ONE, []),
    "part without header": (multipart(b"\r\n" + ONE), []),
    "no boundary": (WRAPPER + b"Content-Type: multipart/mixed\r\n\r\n--\r\n" + PLAIN + ONE, []),
    "unknown charset of the boundary": (
        multipart(PLAIN + ONE).replace(b'boundary="=_b"', b"boundary*=undefined''=_b"),
        [ONE],
    ),
    "nothing": (b"", []),
    "no body": (WRAPPER + b'Content-Type: multipart/mixed; boundary="b"', []),
    "resent": (b"Resent-From: anna@example.org\r\n" + ONE, [b"Resent-From: anna@example.org\r\n" + ONE]),
    "resent by id": (b"resent-message-id: <r@x>\r\n" + ONE, [b"resent-message-id: <r@x>\r\n" + ONE]),
    "resent to us, with an attachment": (
        multipart(PLAIN + ONE, header=b"Resent-To: <Spam@Example.org>\r\nFrom: b@example.net\r\n"),
        [multipart(PLAIN + ONE, header=b"Resent-To: <Spam@Example.org>\r\nFrom: b@example.net\r\n")],
    ),
    "the author's own, resent": (b"Resent-To: spam@example.org\r\n" + WRAPPER + b"\r\nquoted", []),
    "a feedback mail attached": (multipart(PLAIN + multipart(PLAIN + ONE, PLAIN + TWO, boundary=b"i")), [ONE, TWO]),
    "somebody else's attached": (
        multipart(PLAIN + multipart(PLAIN + ONE, boundary=b"i", header=b"From: b@example.net\r\n")),
        [multipart(PLAIN + ONE, boundary=b"i", header=b"From: b@example.net\r\n")],
    ),
    "a spam that says to be the author's": (multipart(PLAIN + WRAPPER + b"\r\nbuy"), [WRAPPER + b"\r\nbuy"]),
}  # fmt: skip


@pytest.mark.parametrize(("sent", "expected"), CASES.values(), ids=CASES)
def test_a_mail_is_about(sent: bytes, expected: list[bytes]) -> None:
    assert about(sent) == expected


def test_what_pythons_library_attaches_is_found() -> None:
    outer = MIMEMultipart()
    outer.attach(MIMEText("see there"))
    alternative = MIMEMultipart("alternative")
    alternative.attach(MIMEMessage(Message()))
    inner = multipart(b"\r\ntext", PLAIN + TWO, header=b"Subject: =?utf-8?q?gr=C3=BCn?=\r\n").replace(b"\r\n", b"\n")
    outer.attach(MIMEMessage(message_from_bytes(inner)))
    outer.attach(alternative)
    assert about(outer.as_bytes()) == [inner, b""]


@some(200)
@given(
    st.lists(
        st.tuples(st.binary(max_size=300), st.sampled_from(["7bit", "base64", "quoted-printable"])),
        min_size=1,
        max_size=5,
    )
)
def test_attached_mails_come_out_byte_for_byte(contents: list[tuple[bytes, str]]) -> None:
    # In hexadecimal, as quopri cannot keep a lone CR or a blank at a line's end.
    mails = [
        (b"A: " + (content.hex().encode() if encoding == "quoted-printable" else content.replace(b"\n--=_b", b"")))
        for content, encoding in contents
    ]
    parts = [
        PLAIN + one if encoding == "7bit" else encoded(one, encoding)
        for one, (_, encoding) in zip(mails, contents, strict=True)
    ]
    assert about(multipart(*parts)) == mails


@some(300)
@given(
    st.lists(
        st.sampled_from(
            [b"--b\r\n", b"--b--\r\n", b"--bb\r\n", b"\r\n", b"\n", b"\r", PLAIN, PLAIN[:-2], b"a: b\r\n", b'"',
             b"=", b";", b"Content-Type: multipart/mixed; boundary=b\r\n",
             b"Content-Type: multipart/digest; boundary=bb\r\n\r\n",
             b"Content-Transfer-Encoding: base64\r\n", b"Resent-To: spam@example.org\r\n", WRAPPER, b"\xff\x00",
             b"QQ=="]
        ),
        max_size=30,
    ).map(b"".join)
)  # fmt: skip
def test_no_bytes_raise_anything(sent: bytes) -> None:
    assert all(isinstance(one, bytes) for one in about(sent))


def test_a_hundred_mails_can_be_attached_and_no_more() -> None:
    assert len(about(multipart(*[PLAIN + ONE] * MAX_MAILS))) == MAX_MAILS
    for many in (MAX_MAILS + 1, 10_000):
        with pytest.raises(InputError, match="more than 100 mails are attached; send them in several"):
            about(multipart(*[PLAIN + ONE] * many))


def test_mails_within_feedback_mails_are_counted_too() -> None:
    packet = multipart(*[PLAIN + ONE] * 60, boundary=b"i")
    assert len(about(multipart(PLAIN + packet))) == 60
    with pytest.raises(InputError, match="more than 100 mails"):
        about(multipart(PLAIN + packet, PLAIN + packet))


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param([b""] * 100_000, id="parts"),
        pytest.param([b"\r\n--=_bb" * 100_000], id="false-boundaries"),
        pytest.param([multipart(*[b""] * 10, boundary=b"i", header=b"")] * 10_000, id="parts-of-parts"),
    ],
)
def test_a_bomb_of_parts_is_refused(parts: list[bytes]) -> None:
    with pytest.raises(InputError, match="more than 2000 parts"):
        about(multipart(*parts))


def test_nesting_is_followed_to_a_bound() -> None:
    sent = PLAIN + ONE
    for level in range(MAX_DEPTH):
        sent = multipart(sent, boundary=b"=_%d" % level, header=b"")
    assert about(sent) == [ONE]
    for level in range(MAX_DEPTH, 20_000):
        sent = b"Content-Type: multipart/mixed; boundary=%d\r\n\r\n--%d\r\n" % (level, level) + sent
    assert about(sent) == []


def test_feedback_mails_within_each_other_are_followed_to_a_bound() -> None:
    sent = ONE
    for level in range(MAX_FEEDBACK_DEPTH + 1):
        sent = multipart(PLAIN + sent, boundary=b"=_%d" % level)
    assert about(sent) == [ONE]
    with pytest.raises(InputError, match="more than 2 of your mails to us are within each other; attach the mail its"):
        about(multipart(PLAIN + sent, boundary=b"x"))


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"Content-Type: multipart/mixed; " + b'";' * 1_000_000 + b"\r\n\r\n", id="parameters"),
        pytest.param(b"Content-Type: multipart/mixed\r\n" * 100_000 + b"\r\n", id="fields"),
        pytest.param(WRAPPER + b"X: y\r\n" * 1_000_000, id="header"),
        pytest.param(b"To: " + b"(" * 1_000_000 + b"\r\n\r\n", id="comments"),
    ],
)
def test_a_monstrous_header_is_read_in_part(sent: bytes) -> None:
    assert about(sent) == []


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"Spam@Example.org", {"spam@example.org"}),
        (b'"spam@x, you" <nospam@example.org>, H <ham@x>', {"spam@x", "nospam@example.org", "ham@x"}),
        (b"undisclosed-recipients:;", set()),
        ("Grün <grün@example.org>".encode(), {"grün@example.org"}),
    ],
)  # fmt: skip
def test_addresses_of_a_field(value: bytes, expected: set[str]) -> None:
    assert addresses_in([(b"to", value), (b"cc", b"other@example.org")], b"to") == expected


@pytest.mark.parametrize(
    ("attached", "expected"),
    [(ONE, True), (b"From a@b Sun Mar  1 12:00:00 2026\nA: b", True), (b"X-A :b", True),
     (b"", False), (b"\r\nbody", False), (b"only text: yes", False), (b": x", False)],
)  # fmt: skip
def test_a_mail_begins_with_a_header_field(attached: bytes, expected: bool) -> None:
    assert is_mail(attached) is expected
