"""A Message to tokens: golden mails, one file of tokens each, and what holds for any mail."""

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spamfilter.bayes.tokens import (
    FEATURES,
    GRAM,
    HEADER_PHRASE,
    MAX_PHRASED,
    MAX_RUN,
    MAX_WORD,
    MIN_PHRASED,
    Tokens,
    tokenize,
    words,
)
from spamfilter.mail.message import MAX_TEXT, SCANNED, Message, parse
from tests.mail.test_message import MAILS
from tests.support.made import mail, some

FOLDER = Path(__file__).parent / "golden"
GOLDEN = sorted(FOLDER.glob("*.eml"))
PHRASED = sorted(FOLDER.glob("*.phrases"))
WORDS = ("header", "text")


def of(message: Message, *families: str) -> Tokens:
    """The tokens of some families, or of header and body, as one."""
    return tokenize(message, families or WORDS)


def golden(path: Path) -> dict[bytes, int]:
    """Token -> occurrences: a token a line, with a tab and the number where it is more than one."""
    found = {}
    for line in path.read_bytes().split(b"\n")[:-1]:
        token, _, times = line.partition(b"\t")
        found[token] = int(times or 1)
    return found


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"], ids=["lf", "crlf"])
@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_a_golden_mail_gives_its_tokens(path: Path, line_end: bytes) -> None:
    assert of(parse(path.read_bytes().replace(b"\n", line_end))) == golden(path.with_suffix(".tokens"))


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"], ids=["lf", "crlf"])
@pytest.mark.parametrize("path", PHRASED, ids=lambda path: path.stem)
def test_a_golden_mail_gives_its_phrases(path: Path, line_end: bytes) -> None:
    mail = path.with_suffix(".eml").read_bytes().replace(b"\n", line_end)
    assert of(parse(mail), "phrases") == golden(path)


def test_every_golden_mail_has_its_tokens_and_the_other_way_round() -> None:
    stems = {path.stem for path in GOLDEN}
    assert stems == {path.stem for path in FOLDER.glob("*.tokens")}
    assert stems > {path.stem for path in PHRASED}
    assert PHRASED


@some(300)
@given(MAILS)
def test_tokens_of_any_bytes_are_utf_8_without_line_breaks(data: bytes) -> None:
    message = parse(data)
    names = {name for name, _ in (*message.fields, *message.part_fields)}
    for token in of(message, "header"):
        assert token.decode("utf-8")
        assert not {ord("\n"), ord("\r")} & set(token)
        assert b":" in token or token in names
    for token in of(message, "text"):
        assert token.decode("utf-8")
        assert not {ord(":"), ord(" "), ord("\n"), ord("\r")} & set(token)
    for token in of(message, "phrases", "grams"):
        assert token.decode("utf-8")
        assert not set(token) & {*range(32), 127}


@some(100)
@given(MAILS)
def test_a_family_is_the_same_whatever_others_are_asked_for(data: bytes) -> None:
    message = parse(data)
    together: Counter[bytes] = Counter()
    for family in FEATURES:
        tokens = tokenize(message, [family])
        assert family == "attributes" or all(times > 0 for times in tokens.values())
        together.update(tokens)
    assert tokenize(message, list(FEATURES)) == together


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
    assert of(parse(b"Subject: a b a b\n\n")) == {
        b"subject": 1, b"subject:a": 2, b"subject:b": 2, b"subject:a b": 2, b"subject:b a": 1,
    }  # fmt: skip


def test_pairs_do_not_reach_over_two_fields() -> None:
    assert b"subject:a b" not in of(parse(b"Subject: a\nSubject: b\n\n"))


def test_tokens_of_a_usual_mail_stay_few() -> None:
    assert len(of(parse(mail(body="many words " * 10_000)))) < 100


def test_a_mail_of_one_word_fields_gives_no_more_tokens_than_its_bytes() -> None:
    tokens = of(parse(b"".join(b"%x: %x\n" % (number, number) for number in range(10_000)) + b"\n"))
    assert len(tokens) < SCANNED


def test_a_long_field_name_is_not_multiplied_by_the_words_of_its_value() -> None:
    value = b" ".join(b"%03d" % number for number in range(150))
    tokens = of(parse(b"x" * 60_000 + b": " + value + b"\n\n"))
    assert sum(map(len, tokens)) < 16 * (SCANNED + MAX_TEXT)


def test_phrases_keep_case_and_signs_and_run_over_line_ends() -> None:
    assert of(parse(b"Subject: Buy\n NOW!\nTo: <a@b>\n\nGet $5,\nfast  \tGet"), "phrases") == {
        b"^Subject:": 1, b"^Buy": 1, b"^NOW!": 1, b"^To:": 1, b"^<a@b>": 1,
        b"^Subject: Buy": 1, b"^Buy NOW!": 1, b"^NOW! To:": 1, b"^To: <a@b>": 1,
        b"Get": 2, b"$5,": 1, b"fast": 1, b"Get $5,": 1, b"$5, fast": 1, b"fast Get": 1,
    }  # fmt: skip


def test_no_phrase_reaches_from_the_header_into_the_text() -> None:
    phrases = of(parse(b"Subject: last\n\nfirst second\n"), "phrases")
    assert set(phrases) == {b"^Subject:", b"^last", b"^Subject: last", b"first", b"second", b"first second"}


def test_phrases_of_the_header_include_the_fields_of_the_parts_and_not_what_other_filters_thought() -> None:
    sent = (
        b"X-Spam-Flag: YES\nContent-Type: multipart/mixed; boundary=x\n\n"
        b"--x\nContent-Type: image/png; name=PIC\n\nbytes\n--x--\n"
    )
    phrases = of(parse(sent), "phrases")
    assert b"^name=PIC" in phrases
    assert not any(b"YES" in phrase or b"bytes" in phrase for phrase in phrases)


@some(300)
@given(MAILS)
def test_phrases_are_runs_of_bytes_and_their_neighbours(data: bytes) -> None:
    message = parse(data)
    for phrase in of(message, "phrases"):
        runs = phrase.split(b" ")  # of a header with its mark; a text may have a run of nothing but that
        assert 1 <= len(runs) <= 2
        assert all(0 < len(run) <= MAX_RUN + len(HEADER_PHRASE) for run in runs)


@pytest.mark.parametrize(
    ("run", "kept"),
    [
        pytest.param("x" * MAX_RUN, "x" * MAX_RUN, id="as-long-as-may-be"),
        pytest.param("x" * (MAX_RUN + 1), "x" * MAX_RUN, id="too-long"),
        pytest.param("ü" * MAX_RUN, "ü" * (MAX_RUN // 2), id="too-long-in-bytes"),
        pytest.param("x" + "ü" * MAX_RUN, "x" + "ü" * ((MAX_RUN - 1) // 2), id="cut-between-characters"),
    ],
)
def test_a_long_run_of_a_phrase_is_cut(run: str, kept: str) -> None:
    assert of(parse(b"\n" + run.encode()), "phrases") == {kept.encode(): 1}


@pytest.mark.parametrize(
    ("header", "text", "room"),
    [
        pytest.param(0, MAX_TEXT, MAX_PHRASED, id="no-header"),
        pytest.param(1_000, MAX_TEXT, MAX_PHRASED - 1_000, id="short-header"),
        pytest.param(10_000, MAX_TEXT, MIN_PHRASED, id="long-header"),
        pytest.param(1_000, 100, 100, id="short-text"),
    ],
)
def test_the_text_gets_the_room_that_the_header_leaves_and_some_in_any_case(header: int, text: int, room: int) -> None:
    head = b"x" + (b"x: " + b"h" * 96 + b"\n") * (header // 100) if header else b""  # with its last line end
    message = parse(head + b"\n" + b"t " * (text // 2))
    assert of(message, "phrases")[b"t"] == room // 2
    letters = b"".join(gram[:1] for gram, times in of(message, "grams").items() for _ in range(times))
    assert abs(letters.count(b"t") - room // 2) < GRAM


@pytest.mark.parametrize(
    ("sent", "found"),
    [
        pytest.param(b"\nabcd", {"  abc": 1, " abcd": 1}, id="text-alone"),
        pytest.param(b"A: b\n\ncd", {"A: b ": 1, ": b  ": 1, " b  c": 1, "b  cd": 1}, id="over-the-empty-line"),
        pytest.param(b"\naaaaaa", {"  aaa": 1, " aaaa": 1, "aaaaa": 2}, id="repeated"),
        pytest.param(b"A: b\n\n", {"A: b ": 1, ": b  ": 1}, id="header-alone"),
        pytest.param("\nüüüüü".encode(), {"  üüü": 1, " üüüü": 1, "üüüüü": 1}, id="characters-and-not-bytes"),
        pytest.param(b"\nAb\tc\x01d", {"  Ab ": 1, " Ab c": 1, "Ab c ": 1, "b c d": 1}, id="control-characters"),
        pytest.param(b"", {}, id="empty"),
        pytest.param(b"\nab", {}, id="short"),
    ],
)
def test_grams_are_each_five_characters_in_a_row(sent: bytes, found: dict[str, int]) -> None:
    assert of(parse(sent), "grams") == {gram.encode(): times for gram, times in found.items()}
