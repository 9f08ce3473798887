"""Subjects of any language are shown as they are, and nothing that hides or moves text is."""

import pytest

from spamfilter.system.escaping import harmless


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("セール\N{IDEOGRAPHIC SPACE}本日限り", "セール 本日限り"),
        ("50\N{NO-BREAK SPACE}%", "50 %"),
        ("می\N{ZERO WIDTH NON-JOINER}خواهم", "می\N{ZERO WIDTH NON-JOINER}خواهم"),
        ("👩\N{ZERO WIDTH JOINER}👧", "👩\N{ZERO WIDTH JOINER}👧"),
        ("via\N{ZERO WIDTH JOINER}gra", r"via\u200dgra"),
        ("\N{ZERO WIDTH JOINER}ж", r"\u200dж"),
        ("ж\N{ZERO WIDTH JOINER}\N{ZERO WIDTH JOINER}ж", r"ж\u200d\u200dж"),
        ("ж\N{ZERO WIDTH SPACE}ж\N{RIGHT-TO-LEFT OVERRIDE}", r"ж\u200bж\u202e"),
        ("a\N{LINE SEPARATOR}b\tc", r"a\u2028b\tc"),
    ],
)  # fmt: skip
def test_what_a_language_needs_stays(text: str, shown: str) -> None:
    assert harmless(text) == shown
