"""A message between DATA and its dot, in blocks of any size."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spamfilter.relay.next_hops import dot_stuffing
from tests.support.made import some


@some(300)
@given(st.lists(st.text(".\r\nx", max_size=8).map(str.encode), max_size=5), st.integers(1, 4))
def test_blocks_of_any_size_are_sent_as_the_whole_would_be(parts: list[bytes], block: int) -> None:
    whole = b"".join(parts).replace(b"\r\n.", b"\r\n..")
    whole = b"." + whole if whole.startswith(b".") else whole
    whole += b"" if not whole or whole.endswith(b"\r\n") else b"\r\n"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dot_stuffing, "BLOCK", block)
        assert b"".join(dot_stuffing.stuffed(parts)) == whole
