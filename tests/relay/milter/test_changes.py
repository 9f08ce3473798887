"""The changes that the mail server is told make the header that a next hop would get."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spamfilter.mail.tagging import header_end, is_ours, mark
from spamfilter.relay.milter.changes import changes
from tests.support.mail_server import Field, MailServer, joined, split

OURS = (("X-Spam-Flag", "YES"), ("X-Spam-Status", "Yes, score=0.990"), ("X-Spamfilter-Id", "4711"))
NAMES = (b"Subject", b"SUBJECT", b"X-Spam-Flag", b"x-spam-status", b"X-Spamfilter-Evidence", b"X-Spam-Flag ", b"From",
         b"X-Spam-Level", b"X-Mailer")  # fmt: skip
VALUES = (b" one", b"two", b" \tthree", b" folded\n line", b"\n folded at once", b" ", b"", b" [x] hello", b" a: b")


def told(fields: list[Field], prefix: str) -> list[Field]:
    """The fields after the changes, made one after the other as a mail server makes them."""
    mail = joined(fields, b"text\r\n")
    after, _ = mark(mail, OURS, prefix)
    forged = [name.lower().rstrip() for name, _ in fields if is_ours(name)]
    found = list(fields)
    for packet in changes(forged, mail[: header_end(mail)], bytes(after), leading_space=True):
        (number,) = struct.unpack(">I", packet[5:9])
        name, value, _ = packet[9:].split(b"\0")
        if packet[4:5] == b"i":
            found.insert(number, (name, value))
        else:
            MailServer._change(found, number, name, value)
    return found


@given(st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(VALUES)), max_size=8), st.sampled_from(("", "[x]")))
def test_the_header_is_that_of_the_proxy(fields: list[Field], prefix: str) -> None:
    passed, _ = split(b"".join(mark(joined(fields, b"text\r\n"), OURS, prefix)))
    found = told(fields, prefix)
    if prefix:  # a prefix has one blank before it, whatever the subject had
        passed, found = ([(name, value.lstrip(b" \t")) for name, value in some] for some in (passed, found))
    assert found == passed


@pytest.mark.parametrize("name", [b"X-Spam-Flag", b"x-spam-STATUS", b"X-Spamfilter-Anything", b"X-Spam-Flag \t"])
def test_names_of_ours_are_known(name: bytes) -> None:
    assert is_ours(name)


@pytest.mark.parametrize("name", [b"X-Spam-Level", b"X-Spam", b"Subject", b"", b"AX-Spam-Flag"])
def test_names_of_others_are_left_alone(name: bytes) -> None:
    assert not is_ours(name)
