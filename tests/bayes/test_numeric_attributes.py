"""Attributes: the numbers of small mails, counted by hand, and nothing where a mail has none of a kind."""

import pytest
from hypothesis import given

from spamfilter.bayes.numeric_attributes import ATTRIBUTES, attributes, scaled
from spamfilter.mail.message import parse
from tests.mail.test_message import MAILS
from tests.support.made import mail, some

ALWAYS = {"text_size"}
"""Attributes that every mail has; the others are left out where there is nothing to measure."""

CASES: dict[str, list[tuple[str, bytes, int | None]]] = {
    "text_size": [
        ("empty", b"", 0),
        ("header-alone", b"Subject: a\n\n", 0),
        ("seven-bytes", b"\n1234567", 300),
        ("bytes-and-not-characters", "\nüüü1".encode(), scaled(7)),
        ("decoded", b"Content-Transfer-Encoding: base64\n\nMTIzNDU2Nw==", 300),
        ("no-more-than-is-read", b"\n" + b"x" * 10_000, scaled(4000)),
    ],
    "markup": [
        ("no-text", b"\n", None),
        ("none", b"\nabc>", 0),
        ("two-of-eight", b"\n<b>x</b>", 250),
    ],
    "subject_size": [
        ("no-field", b"A: 1\n\n", None),
        ("empty", b"Subject:\n\n", None),
        ("five", b"Subject: hello\n\n", 5),
        ("characters-and-not-bytes", b"Subject: =?utf-8?q?=C3=BC?=\n\n", 1),
        ("folded", b"Subject: a\n b\n\n", 3),
    ],
    "hour": [
        ("no-field", b"A: 1\n\n", None),
        ("no-time", b"Date: yesterday\n\n", None),
        ("no-such-time", b"Date: 1 Mar 2026 99:99\n\n", None),
        ("midnight", b"Date: Sun, 1 Mar 2026 00:00:00 +0000\n\n", 0),
        ("in-the-sender's-zone", b"Date: Sun, 1 Mar 2026 23:59:59 -0800\n\n", 23 * 60 + 59),
        ("without-seconds", b"Date: 1 Mar 2026 12:30\n\n", 12 * 60 + 30),
    ],
}  # fmt: skip


def test_every_attribute_has_its_cases() -> None:
    assert CASES.keys() == ATTRIBUTES.keys()


@pytest.mark.parametrize(
    ("name", "sent", "value"),
    [pytest.param(name, sent, value, id=f"{name}-{id}") for name, cases in CASES.items() for id, sent, value in cases],
)
def test_an_attribute_is_the_number_of_its_mail(name: str, sent: bytes, value: int | None) -> None:
    assert attributes(parse(sent)).get(name.encode()) == value


def test_what_a_mail_lacks_is_left_out() -> None:
    assert attributes(parse(b"")) == {name.encode(): 0 for name in ALWAYS}


def test_a_usual_mail_has_all_its_numbers() -> None:
    sent = mail("Cheap pills", "Buy 10 at http://x.example")
    assert attributes(parse(sent)) == {b"text_size": scaled(27), b"markup": 0, b"subject_size": 11, b"hour": 720}


@some(200)
@given(MAILS)
def test_the_attributes_of_any_bytes_are_whole_numbers_of_at_least_zero(data: bytes) -> None:
    found = attributes(parse(data))
    assert {name.encode() for name in ALWAYS} <= found.keys() <= {name.encode() for name in ATTRIBUTES}
    assert all(type(value) is int and value >= 0 for value in found.values())
    assert found.get(b"markup", 0) <= 1000
    assert found.get(b"hour", 0) < 24 * 60
