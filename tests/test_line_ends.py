"""Mail as it comes from the wire: which CR and LF stand alone, and where a line begins with a dot."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spamfilter import line_ends
from spamfilter.compiled import _message
from spamfilter.line_ends import first_dot, has_bare_newlines
from tests.made import some
from tests.real import missing


@some(500)
@given(st.text("\r\nx", max_size=12).map(str.encode), st.integers(1, 5))
def test_a_cr_or_lf_that_stands_alone_is_found_wherever_blocks_meet(mail: bytes, block: int) -> None:
    rest = mail.replace(b"\r\n", b"")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(line_ends, "BARE_BLOCK", block)
        patch.setattr(line_ends, "_message", None)
        assert has_bare_newlines(mail) == (b"\r" in rest or b"\n" in rest)


@pytest.fixture
def helper() -> None:
    if _message is None:
        missing("the compiled helper is missing: install a C compiler and Python's headers, then the package again")


AROUND = st.sampled_from([0, 15, 31, 32, 33, 63, 64, 100]) | st.integers(65_530, 65_542) | st.integers(131_066, 131_078)
"""Lengths after which the helper goes on with other bytes: those it takes at once, and its blocks."""


@pytest.mark.usefixtures("helper")
@some(500)
@given(AROUND, st.text("\r\nx", max_size=12).map(str.encode), st.sampled_from([b"", b"x" * 70]))
def test_the_helper_finds_it_wherever_it_looks_at_many_bytes_together(before: int, mail: bytes, after: bytes) -> None:
    rest = mail.replace(b"\r\n", b"")
    bare = b"\r" in rest or b"\n" in rest
    for whole in (b"x" * before + mail + after, b"x" * (before % 2) + b"\r\n" * (before // 2) + mail + after):
        assert has_bare_newlines(whole) == bare


@pytest.mark.usefixtures("helper")
@some(500)
@given(AROUND, st.text("\r\n.x", max_size=12).map(str.encode), st.integers(-1, 20))
def test_the_first_dot_that_begins_a_line_is_found_alike(before: int, text: bytes, start: int) -> None:
    whole, start = bytearray(b"x" * before + text), max(before + start - 4, 0)
    quick = first_dot(whole, start)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(line_ends, "_message", None)
        assert first_dot(whole, start) == quick == whole.find(b"\r\n.", start)
