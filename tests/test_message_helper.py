"""What the compiled helper reads of a mail is what Python reads, to the last byte."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from spamfilter import message
from spamfilter.compiled import _message
from spamfilter.message import MAX_NAME, MAX_VALUE, SCANNED, parse
from tests.made import some
from tests.real import missing
from tests.test_message import MAILS

PIECES = st.lists(
    st.sampled_from(
        [
            b"\n", b"\n", b"\n ", b"\n\t", b"\r", b"\r\n", b" ", b"\t", b"\v", b"\x1c", b"\0", b":", b": ", b"Subject:",
            b"X-Spam-Level:", b"From", b"n" * (MAX_NAME - 1), b"v" * (MAX_VALUE - 1), b"=?", b"=\n ?",
            b"=?utf-8?q?=E4?=", "ä".encode(), b"\xff", b"one", b"two",
        ]
    ),
    max_size=40,
).map(b"".join)  # fmt: skip
GAPS = st.lists(st.sampled_from([b" ", b"\t", b"\n", b"\r", b"\v", b"\f", b"\x1c", b"\x85", b"\xa0", b"\0", b"word"]))
BOUNDS = st.integers(0, 4) | st.just(100)


@pytest.fixture(autouse=True)
def built() -> None:
    """Without the helper there is nothing to compare; where everything must be there, it must."""
    if _message is None:
        missing("the compiled helper is missing: install a C compiler and Python's headers, then the package again")


@some(300)
@given(MAILS | PIECES)
def test_a_mail_is_read_alike(data: bytes) -> None:
    quick = parse(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(message, "_message", None)
        assert parse(data) == quick
        digest = parse(data).digest()
    assert quick.digest() == digest


@some(500)
@example(b"a:b\n", 1, 9, 9)  # an empty line is left, which is nothing
@example(b"a:b\nc", 1, 9, 9)
@example(b"a:b\nc:d\n", 9, 1, 9)
@example(b"a:b\n\n", 0, 9, 9)
@given((MAILS | PIECES).filter(lambda data: not data.startswith(b"\n")), BOUNDS, BOUNDS, BOUNDS | st.just(2000))
def test_fields_are_taken_alike_while_there_is_room(block: bytes, lines: int, most: int, size: int) -> None:
    helped = _message.fields(block, lines, most, size, MAX_NAME, MAX_VALUE, message._kept_name, message._value)
    assert helped == message._fields(block, lines, most, size)


@some(200)
@example(b"\r\n" * SCANNED + b"\r")
@example(b"\n" + b"\r\n" * SCANNED)
@example(b"x" * (SCANNED - 1) + b"\r\n")
@given(PIECES)
def test_line_ends_are_made_alike(data: bytes) -> None:
    for whole in (data, data * (2 * SCANNED // max(len(data), 1) + 1)):
        assert _message.unix(bytearray(whole), SCANNED) == whole[: 2 * SCANNED].replace(b"\r\n", b"\n")[:SCANNED]


@some(300)
@given(st.binary() | GAPS.map(b"".join))
def test_gaps_are_closed_alike(text: bytes) -> None:
    assert _message.joined(text) == b" ".join(text.split())


def as_written(raw: bytes) -> tuple[bytes, int]:
    return raw, len(raw)


@pytest.mark.parametrize("value", [b"text", ("text", 4), (b"text", None), (b"text",)])
def test_what_python_says_of_a_value_is_bytes_and_what_they_take(value: object) -> None:
    with pytest.raises(TypeError):
        _message.fields(b"name: =?", 9, 9, 9, 9, 9, bytes.lower, lambda raw: value)


def test_what_python_says_of_a_name_is_bytes() -> None:
    with pytest.raises(TypeError):
        _message.fields(b"name: =?", 9, 9, 9, 9, 9, lambda raw: 1, as_written)


def test_an_error_of_python_is_passed_on() -> None:
    def fails(raw: bytes) -> bytes:
        raise ZeroDivisionError

    for names in ((fails, as_written), (bytes.lower, fails)):
        with pytest.raises(ZeroDivisionError):
            _message.fields(b"name: =?", 9, 9, 9, 9, 9, *names)


@pytest.mark.parametrize("block", [None, "text", bytearray(b"a: b"), memoryview(b"a: b")])
def test_what_is_no_bytes_is_a_type_error(block: object) -> None:
    with pytest.raises(TypeError):
        _message.fields(block, 9, 9, 9, 9, 9, message._kept_name, message._value)


@pytest.mark.parametrize("sizes", [(-1, 9), (9, -1)])
def test_a_size_below_nothing_is_refused(sizes: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="have a size"):
        _message.fields(b"a: b", 9, 9, 9, *sizes, message._kept_name, message._value)
