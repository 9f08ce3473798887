"""Labelled mail: an index of files, and both classes evenly mixed."""

from pathlib import Path

import pytest

from spamfilter.errors import InputError
from spamfilter.learning.bulk.labelled_mail import find_indexed, interleaved
from spamfilter.mail.mailboxes import Mail
from tests.mail.test_mailboxes import MBOX, one, subjects, write


def test_an_index_names_labels_and_paths_relative_to_itself(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        write(tmp_path / "data" / f"inmail {number}", one(number))
    index = write(
        tmp_path / "full" / "index", b"spam ../data/inmail 1\n\nHAM ../data/inmail 2\r\n  ham ../data/inmail 3 \n"
    )
    found = find_indexed(index)
    assert [label for label, _ in found] == ["spam", "ham", "ham"]
    assert subjects([mail for _, mail in found]) == ["mail 1", "mail 2", "mail 3"]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        pytest.param(b"spam a\nspma b\n", "index: line 2: 'spma b' is not", id="unknown-label"),
        pytest.param(b"spam a\n\n\nham\n", "index: line 4: 'ham' is not", id="no-path"),
        pytest.param(b"a spam\n", "index: line 1: 'a spam' is not", id="turned-round"),
        pytest.param(b"spam a\nspam \xff\n", "index: cannot be read as an index: line 2 is not in", id="not-utf-8"),
        pytest.param(MBOX + b"\xa3", "index: is mail, and no index; name mail by --spam and --ham", id="mbox"),
        pytest.param(one(1), "index: is mail, and no index; name mail by --spam and --ham", id="mail"),
    ],
)
def test_a_bad_line_of_an_index_is_named_by_its_number(tmp_path: Path, content: bytes, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        find_indexed(write(tmp_path / "index", content))


def test_a_missing_index_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nowhere: cannot be read as an index"):
        find_indexed(tmp_path / "nowhere")


@pytest.mark.parametrize(("spam", "ham"), [(0, 0), (0, 3), (3, 0), (1, 1), (2, 10), (50, 7), (100, 100)])
def test_both_classes_are_evenly_mixed(spam: int, ham: int) -> None:
    spams = [Mail(f"s{number}", bytes) for number in range(spam)]
    hams = [Mail(f"h{number}", bytes) for number in range(ham)]
    mixed = interleaved(spams, hams)
    assert [mail for label, mail in mixed if label == "spam"] == spams
    assert [mail for label, mail in mixed if label == "ham"] == hams
    seen = 0
    for place, (label, _) in enumerate(mixed, 1):
        seen += label == "spam"
        assert abs(seen - place * spam / (spam + ham)) <= 1
