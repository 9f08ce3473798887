"""Any bytes as a mail: read, marked, and looked through for attached mails."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from spamfilter.errors import InputError
from spamfilter.mail.attached_mails import mails_of
from spamfilter.mail.header import MAX_HEAD, MAX_VALUE
from spamfilter.mail.message import MAX_TEXT, SCANNED, parse
from spamfilter.mail.tagging import header_id, mark
from spamfilter.system.escaping import printable
from spamfilter.system.ids import id_of
from tests.fuzzing.target import Run

ID = "01JCZZZZZZZZZZZZZZZZZZZZZZ"
_OURS = re.compile(rb"(>?From [^\n]*\n)?X-Spamfilter-Id: " + ID.encode() + rb"\r\n")


def _run(data: bytes) -> None:
    message = parse(data)
    for name, value in (*message.fields, *message.part_fields):
        assert name == name.lower()
        assert not set(name) & set(b": \t\r\n\0")
        value.decode("utf-8")
        assert len(value) <= MAX_VALUE
    message.text.decode("utf-8")
    message.head.decode("utf-8")
    assert len(message.text) <= MAX_TEXT
    assert len(message.head) <= MAX_HEAD
    assert message.size == len(data)
    assert min(len(data), SCANNED) <= message.scanned <= len(data)
    digest = message.digest()
    assert len(digest) == 16
    if b"\r" not in data:
        other = parse(data.replace(b"\n", b"\r\n"))
        assert (other.fields, other.text, other.digest()) == (message.fields, message.text, digest)
    id = header_id(data)
    assert id == id_of(id)
    assert printable(message.field(b"subject")).isascii()
    _mark(data)
    try:
        found = mails_of(data, "a@example.org", ("spam@example.org",))
    except InputError:
        return
    assert sum(map(len, found)) <= 4 * len(data) or found == [data]


def _mark(data: bytes) -> None:
    marked = b"".join(mark(data, [("X-Spamfilter-Id", ID)]))
    ours = _OURS.match(marked)
    assert ours, marked[:100]
    rest = (ours.group(1) or b"") + marked[ours.end() :]
    if b"x-spam" in data.lower():
        assert len(rest) <= len(data)
    else:
        assert rest == data
    assert header_id(marked) == ID or ours.group(1)


@contextmanager
def target() -> Iterator[Run]:
    yield _run
