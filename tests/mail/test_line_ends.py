"""Line ends of a mail on the wire: a lone CR or LF is found and replaced."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spamfilter.mail import line_ends
from spamfilter.mail.line_ends import has_bare_newlines, normalised
from tests.support.made import some


@some(500)
@given(st.text("\r\nx", max_size=12).map(str.encode), st.integers(1, 5))
def test_a_cr_or_lf_that_stands_alone_is_found_wherever_blocks_meet(mail: bytes, block: int) -> None:
    rest = mail.replace(b"\r\n", b"")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(line_ends, "BARE_BLOCK", block)
        assert has_bare_newlines(mail) == (b"\r" in rest or b"\n" in rest)


def test_a_lone_lf_becomes_a_line_end_and_a_lone_cr_a_space() -> None:
    assert normalised(b"a\r\nb\nc\rd\r\r\n\n") == b"a\r\nb\r\nc d \r\n\r\n"
