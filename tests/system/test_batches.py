"""Work in pieces."""

from spamfilter.system.batches import in_time


def test_no_further_piece_is_begun_after_the_time_but_the_first_is() -> None:
    assert list(in_time("abc", 60.0)) == ["a", "b", "c"]
    assert list(in_time("abc", 0.0)) == ["a"]
    assert list(in_time("", 0.0)) == []
