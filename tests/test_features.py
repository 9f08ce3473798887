"""A Message to tokens: golden mails, one file of tokens each, and what holds for any mail."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spamfilter.features import FEATURES, MAX_WORD, tokenize, words
from spamfilter.message import MAX_TEXT, SCANNED, parse
from tests.made import mail, some
from tests.test_message import MAILS

GOLDEN = sorted((Path(__file__).parent / "golden").glob("*.eml"))


def golden(path: Path) -> dict[bytes, int]:
    """Token -> occurrences: a token a line, with a tab and the number where it is more than one."""
    found = {}
    for line in path.with_suffix(".tokens").read_bytes().split(b"\n")[:-1]:
        token, _, times = line.partition(b"\t")
        found[token] = int(times or 1)
    return found


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"], ids=["lf", "crlf"])
@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_a_golden_mail_gives_its_tokens(path: Path, line_end: bytes) -> None:
    assert dict(tokenize(parse(path.read_bytes().replace(b"\n", line_end)))) == golden(path)


def test_every_golden_mail_has_its_tokens_and_the_other_way_round() -> None:
    stems = {path.stem for path in GOLDEN}
    assert stems == {path.stem for path in GOLDEN[0].parent.glob("*.tokens")}
    assert stems


@some(300)
@given(MAILS)
def test_tokens_of_any_bytes_are_utf_8_without_line_breaks(data: bytes) -> None:
    message = parse(data)
    names = {name for name, _ in (*message.fields, *message.part_fields)}
    for token in tokenize(message, ["header"]):
        assert token.decode("utf-8")
        assert not {ord("\n"), ord("\r")} & set(token)
        assert b":" in token or token in names
    for token in tokenize(message, ["body"]):
        assert token.decode("utf-8")
        assert not {ord(":"), ord(" "), ord("\n"), ord("\r")} & set(token)


@some(100)
@given(MAILS)
def test_the_families_together_are_all_tokens(data: bytes) -> None:
    message = parse(data)
    each = [tokenize(message, [family]) for family in FEATURES]
    for token, times in tokenize(message).items():
        assert times == sum(tokens.get(token, 0) for tokens in each)
        assert times > 0


@some(200)
@given(st.text(max_size=60))
def test_a_word_is_a_short_run_in_lower_case(text: str) -> None:
    for word in words(text.encode("utf-8", "replace")):
        assert word == word.lower()
        assert len(word) <= MAX_WORD or b"~" in word
        assert set(word) <= set(b"abcdefghijklmnopqrstuvwxyz0123456789'$_-~") | set(range(0x80, 0x100))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        pytest.param("a" * 24, ["a" * 24], id="just-short-enough"),
        pytest.param("A" * 25, ["a~2"], id="too-long"),
        pytest.param("b" * 4000, ["b~400"], id="very-long"),
        pytest.param("ü" * 13, ["ü~2"], id="too-long-in-bytes"),
        pytest.param("x~2", ["x", "2"], id="tilde-is-not-of-words"),
        pytest.param("İ ΑΒΓ É", ["İ", "ΑΒΓ", "É"], id="only-ascii-is-lowered"),
        pytest.param("a_b-c'd$e", ["a_b-c'd$e"], id="joiners"),
        pytest.param("a.b:c@d/e=f", ["a", "b", "c", "d", "e", "f"], id="separators"),
        pytest.param("", [], id="nothing"),
    ],
)
def test_words_are_runs_of_letters_digits_and_a_few_signs(text: str, found: list[str]) -> None:
    assert words(text.encode()) == [word.encode() for word in found]


@pytest.mark.parametrize(
    ("character", "splits"),
    [
        pytest.param("\u303f", False, id="before-hiragana"),
        pytest.param("\u3040", True, id="first"),
        pytest.param("\u9fff", True, id="last-han"),
        pytest.param("\ua000", False, id="after-han"),
        pytest.param("\uabff", False, id="before-hangul"),
        pytest.param("\uac00", True, id="first-hangul"),
        pytest.param("\ud7a3", True, id="last-hangul-syllable"),
        pytest.param("\uf900", False, id="compatibility"),
        pytest.param("\N{GRINNING FACE}", False, id="four-bytes"),
    ],
)
def test_a_character_of_a_script_without_spaces_ends_a_word(character: str, splits: bool) -> None:
    found = [word.decode() for word in words(f"a{character}b".encode())]
    assert found == ([f"a{character}", "b"] if splits else [f"a{character}b"])


def test_a_header_gives_its_name_its_words_and_its_pairs() -> None:
    assert dict(tokenize(parse(b"Subject: a b a b\n\n"))) == {
        b"subject": 1, b"subject:a": 2, b"subject:b": 2, b"subject:a b": 2, b"subject:b a": 1,
    }  # fmt: skip


def test_pairs_do_not_reach_over_two_fields() -> None:
    assert b"subject:a b" not in tokenize(parse(b"Subject: a\nSubject: b\n\n"))


def test_tokens_of_a_usual_mail_stay_few() -> None:
    assert len(tokenize(parse(mail(body="many words " * 10_000)))) < 100


def test_a_mail_of_one_word_fields_gives_no_more_tokens_than_its_bytes() -> None:
    tokens = tokenize(parse(b"".join(b"%x: %x\n" % (number, number) for number in range(10_000)) + b"\n"))
    assert len(tokens) < SCANNED


def test_a_long_field_name_is_not_multiplied_by_the_words_of_its_value() -> None:
    value = b" ".join(b"%03d" % number for number in range(150))
    tokens = tokenize(parse(b"x" * 60_000 + b": " + value + b"\n\n"))
    assert sum(map(len, tokens)) < 16 * (SCANNED + MAX_TEXT)
