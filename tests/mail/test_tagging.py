"""Tagging: our header fields are added, forged ones removed, and all other bytes unchanged."""

import email
import email.policy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spamfilter.bayes.model import Score
from spamfilter.bayes.verdict import Verdict
from spamfilter.bayes.voices import Evidence
from spamfilter.mail.message import parse
from spamfilter.mail.tagging import header_end, header_id, mark, untagged
from spamfilter.system.ids import new_id
from tests.support.made import some

OURS = [("X-Spam-Flag", "YES"), ("X-Spam-Status", "Yes, score=1.000"), ("X-Spamfilter-Id", "01ABC")]
OURS_BYTES = b"X-Spam-Flag: YES\r\nX-Spam-Status: Yes, score=1.000\r\nX-Spamfilter-Id: 01ABC\r\n"
REST = b"From: a@x\r\nSubject: hello\r\n\r\nX-Spam-Flag: YES\r\nbody\r\n"


def marked(mail: bytes, prefix: str = "") -> bytes:
    return b"".join(mark(mail, OURS, prefix))


@pytest.mark.parametrize(
    "forged",
    [
        pytest.param(b"X-Spam-Flag: NO\r\n", id="plain"),
        pytest.param(b"x-SPAM-flag: NO\r\n", id="case"),
        pytest.param(b"X-Spam-Flag : NO\r\n", id="space-before-colon"),
        pytest.param(b"X-Spam-Flag\t \t:NO\r\n", id="tabs-before-colon"),
        pytest.param(b"X-Spam-Flag:\r\n NO\r\n", id="folded"),
        pytest.param(b"X-Spam-Flag: NO,\r\n\tvery\r\n much\r\n", id="folded-twice"),
        pytest.param(b"X-Spam-Flag: NO\r\n \r\n", id="folded-into-nothing"),
        pytest.param(b"X-Spam-Flag:\r\n", id="empty"),
        pytest.param(b"X-Spam-Flag: NO\r\nX-Spam-Flag: NO\r\n", id="twice"),
        pytest.param(b"X-Spam-Status: No, score=-9\r\n", id="status"),
        pytest.param(b"X-Spamfilter-Id: 01FORGED\r\n", id="id"),
        pytest.param(b"X-Spamfilter-Evidence: none\r\n", id="evidence"),
        pytest.param(b"X-SPAMFILTER-Future: x\r\n", id="any-name-of-ours"),
        pytest.param(b"X-Spam-Flag: \xff\x00\r\n", id="bytes"),
    ],
)
@pytest.mark.parametrize(
    "place",
    [
        pytest.param(0, id="first"),
        pytest.param(REST.index(b"Subject"), id="in-the-middle"),
        pytest.param(REST.index(b"\r\n\r\n") + 2, id="last"),
    ],
)
def test_a_forged_field_is_removed(forged: bytes, place: int) -> None:
    assert marked(REST[:place] + forged + REST[place:]) == OURS_BYTES + REST


@pytest.mark.parametrize(
    "mail",
    [
        pytest.param(REST, id="usual"),
        pytest.param(b"X-Spam: 1\r\nX-Spam-Level: **\r\nX-Spamfilters: x\r\n\r\n", id="fields-of-others"),
        pytest.param(b"A: 1\r\n X-Spam-Flag: in a folded line\r\n\r\nb\r\n", id="name-in-a-folded-line"),
        pytest.param(b"A:  two  spaces \t\r\n\tfolded\r\nb:x\r\n\r\n\r\n\r\n", id="odd-spaces"),
        pytest.param(b"A: \xff\xfe\r\n\r\n\x00\x01\x80", id="bytes-and-no-last-line-end"),
        pytest.param(b"A: 1\r\n", id="header-only"),
        pytest.param(b"A: 1\r\n\r\n", id="empty-body"),
        pytest.param(b"\r\nbody\r\n", id="no-header"),
        pytest.param(b"\r\nX-Spam-Flag: NO\r\n\r\n", id="body-that-looks-like-a-header"),
        pytest.param(b"", id="nothing-at-all"),
    ],
)
def test_everything_else_stays_byte_for_byte(mail: bytes) -> None:
    assert marked(mail) == OURS_BYTES + mail


NAMES = st.sampled_from([b"A", b"Subject", b"X-Spam", b"X-Spam-Flags", b"DKIM-Signature", b"x"])
FORGED = st.sampled_from([b"X-Spam-Flag", b"x-spam-STATUS", b"X-Spamfilter-Id", b"X-Spamfilter-", b"x-spamFILTER-q "])
VALUE = st.binary(max_size=12).map(lambda value: value.replace(b"\n", b"").replace(b"\r", b""))
FOLDED = st.lists(VALUE, min_size=1, max_size=3).map(b"\r\n ".join)


@some(300)
@given(st.lists(st.tuples(st.booleans(), NAMES, FORGED, FOLDED), max_size=8), st.binary(max_size=40))
def test_without_our_fields_the_output_is_the_input_without_the_forged_ones(
    fields: list[tuple[bool, bytes, bytes, bytes]], body: bytes
) -> None:
    sent = b"".join((b if forged else a) + b":" + value + b"\r\n" for forged, a, b, value in fields)
    kept = b"".join(name + b":" + value + b"\r\n" for forged, name, _, value in fields if not forged)
    head, rest = mark(sent + b"\r\n" + body, OURS)
    assert head.startswith(OURS_BYTES)
    assert head.removeprefix(OURS_BYTES) + rest == kept + b"\r\n" + body


def test_a_leading_mbox_line_stays_the_first() -> None:
    line = b"From a@x Sun Mar  1 12:00:00 2026\r\n"
    assert marked(line + b"X-Spam-Flag: NO\r\n" + REST) == line + OURS_BYTES + REST
    assert marked(b">" + line + REST) == b">" + line + OURS_BYTES + REST


def test_the_body_is_not_copied() -> None:
    mail = REST
    _, rest = mark(mail, OURS)
    assert rest.obj is mail


@pytest.mark.parametrize(
    ("prefix", "subject", "result"),
    [
        pytest.param("[SPAM]", b"Subject: hello", b"Subject: [SPAM] hello", id="ascii"),
        pytest.param("[SPAM]", b"subject:hello", b"subject:[SPAM] hello", id="no-space"),
        pytest.param("[SPAM]", b"SUBJECT \t: hello", b"SUBJECT \t: [SPAM] hello", id="space-before-colon"),
        pytest.param("[SPAM]", b"Subject: [SPAM] hello", b"Subject: [SPAM] hello", id="not-twice"),
        pytest.param("[SPAM]", b"Subject: Re: [SPAM] x", b"Subject: [SPAM] Re: [SPAM] x", id="answer"),
        pytest.param("[SPAM]", b"Subject:", b"Subject:[SPAM] ", id="empty"),
        pytest.param("[SPAM]", b"Subject: a\r\n folded", b"Subject: [SPAM] a\r\n folded", id="folded"),
        pytest.param(
            "[SPAM]", b"Subject: =?utf-8?q?gr=C3=BCn?=", b"Subject: [SPAM] =?utf-8?q?gr=C3=BCn?=", id="encoded-word"
        ),
        pytest.param("[SPAM]", b"A: Subject: x", b"Subject: [SPAM]\r\nA: Subject: x", id="no-subject"),
        pytest.param(
            "[SPAM]", b"A: 1\r\n Subject: x", b"Subject: [SPAM]\r\nA: 1\r\n Subject: x", id="in-a-folded-line"
        ),
        pytest.param("[MÜLL]", b"Subject: hello", b"Subject: =?utf-8?b?W03DnExMXQ==?= hello", id="not-ascii"),
        pytest.param(
            "[MÜLL]", b"Subject: =?utf-8?q?gr=C3=BCn?=",
            b"Subject: =?utf-8?b?W03DnExMXSA=?= =?utf-8?q?gr=C3=BCn?=", id="not-ascii-encoded-word",
        ),
    ],
)  # fmt: skip
def test_the_subject_gets_its_prefix(prefix: str, subject: bytes, result: bytes) -> None:
    mail = subject + b"\r\nTo: b@x\r\n\r\nSubject: body\r\n"
    assert marked(mail, prefix) == OURS_BYTES + result + b"\r\nTo: b@x\r\n\r\nSubject: body\r\n"


@pytest.mark.parametrize("prefix", ["[SPAM]", "[MÜLL]"])
@pytest.mark.parametrize("line_end", [b"\r\n", b"\n"])
@pytest.mark.parametrize(
    "subject",
    [
        b"Subject: hello\r\n",
        b"SUBJECT \t: a\r\n folded\r\n",
        b"Subject: =?utf-8?q?gr=C3=BCn?=\r\n",
        b"Subject:\r\n a\r\n",
    ],
)
def test_a_prefix_of_ours_can_be_taken_away_and_that_of_others_stays(
    prefix: str, line_end: bytes, subject: bytes
) -> None:
    mail = b"To: b@x\r\n" + subject + b"\r\nSubject: [SPAM] body\r\n"
    tagged = b"".join(mark(mail, [("X-Spamfilter-Id", new_id())], prefix)).replace(b"\r\n", line_end)
    assert parse(tagged).field(b"subject").startswith(prefix)
    assert parse(untagged(tagged, {"(other)", prefix})).fields == parse(mail).fields
    assert untagged(tagged, {"(other)"}) == tagged
    by_others = marked(mail, prefix)
    assert untagged(by_others, {prefix}) == by_others


@pytest.mark.parametrize(
    "prefix",
    [
        pytest.param("[SPAM]", id="ascii"),
        pytest.param("[MÜLL]", id="one-umlaut"),
        pytest.param("垃圾", id="chinese"),
        pytest.param("a" * 60, id="long"),
        pytest.param("\N{PILE OF POO}" * 60, id="long-in-utf-8"),
        pytest.param(" [SPAM]", id="leading-space"),
        pytest.param("[SPAM] ", id="trailing-space"),
    ],
)
@pytest.mark.parametrize(
    "mail",
    [
        pytest.param(b"Subject: hello\r\n\r\nbody\r\n", id="subject"),
        pytest.param(b"Subject:\r\n folded\r\n\r\nbody\r\n", id="folded-at-once"),
        pytest.param(b"To: x\r\n\r\nbody\r\n", id="no-subject"),
        pytest.param(b"\r\nbody\r\n", id="no-header"),
    ],
)
def test_a_prefix_is_put_in_once_and_keeps_the_lines(mail: bytes, prefix: str) -> None:
    once = marked(mail, prefix)
    assert marked(once, prefix) == once
    head = once[: header_end(once)]
    assert head.isascii()
    assert head.count(b"\n") == head.count(b"\r\n")
    parsed = email.message_from_bytes(once, policy=email.policy.default)
    assert str(parsed["Subject"]).strip().startswith(prefix.strip())
    encoded = marked(b"Subject: =?utf-8?q?gr=C3=BCn?=" + b"\r\n\r\n", prefix)
    assert marked(encoded, prefix) == encoded
    assert str(email.message_from_bytes(encoded, policy=email.policy.default)["Subject"]) == f"{prefix.strip()} grün"
    assert parsed.get_content().rstrip() == "body"


@some(200)
@given(st.lists(st.text(st.characters(), max_size=40), min_size=1, max_size=5))
def test_evidence_cannot_inject_a_header_or_a_body(tokens: list[str]) -> None:
    verdict = Verdict(
        Score(9.0, 1.0),
        "spam",
        "tag",
        0.9,
        {"ham": 1, "spam": 1},
        [Evidence(token, "fields", 0, 1, 1.0) for token in tokens],
    )
    lines = b"".join(mark(REST, verdict.fields("01ABC", with_evidence=True))).split(b"\r\n")
    names = [line.partition(b":")[0] for line in lines[: lines.index(b"")]]
    assert names == [
        b"X-Spam-Flag", b"X-Spam-Status", b"X-Spamfilter-Evidence", b"X-Spamfilter-Id", b"From", b"Subject",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("mail", "end"),
    [
        pytest.param(b"A: 1\r\n\r\nbody", 6, id="usual"),
        pytest.param(b"\r\nbody", 0, id="no-header"),
        pytest.param(b"A: 1\r\n", 6, id="no-empty-line"),
        pytest.param(b"A: 1\n\nB: 2\r\n\r\n", 12, id="only-crlf-ends-a-line"),
        pytest.param(b"", 0, id="nothing"),
    ],
)
def test_the_header_ends_before_the_first_empty_line(mail: bytes, end: int) -> None:
    assert header_end(mail) == end


@pytest.mark.parametrize(
    "head",
    [
        pytest.param(b"X-Spamfilter-" + b" " * 1_000_000, id="blanks"),
        pytest.param(b"X-Spamfilter-" + b"a" * 1_000_000, id="letters"),
        pytest.param(b"X-Spam-Flag\r\n" * 100_000, id="no-colon"),
        pytest.param(b"X-Spam-Flag:\r\n" + b" \r\n" * 300_000 + b"x", id="folds"),
        pytest.param(b"Subject" + b"\t" * 1_000_000, id="subject"),
    ],
)
def test_a_header_of_a_megabyte_made_to_confuse_is_marked_at_once(head: bytes) -> None:
    """Quadratic time would take a quarter of an hour here."""
    new, rest = mark(b"To: x\r\n" + head + b"\r\n\r\nbody\r\n", [("X-Spam-Status", "No")], "[SPAM]")
    assert b"X-Spam-Status: No\r\n" in new
    assert bytes(rest).endswith(b"body\r\n")


def test_of_two_prefixes_the_whole_one_is_taken_away_that_was_put_there() -> None:
    mail = b"Subject: hello\r\n\r\nbody\r\n"
    for prefix in (both := ["[SPAM]", "[SPAM] [sales]"]):
        tagged = b"".join(mark(mail, [("X-Spamfilter-Id", new_id())], prefix))
        for prefixes in (both, both[::-1]):
            assert parse(untagged(tagged, prefixes)).fields == parse(mail).fields


@pytest.mark.parametrize(
    "mail",
    [
        pytest.param("Subject: a\n\nbody\r\n{field}\r\n", id="text-with-other-line-ends"),
        pytest.param("Subject: a\r\n\nbody\r\n{field}\r\n", id="blank-line-with-another-line-end"),
        pytest.param("Subject: a\r\n {field}\r\n\r\nbody\r\n", id="folded-line"),
        pytest.param("Subject: a\r{field}\n\nbody\n", id="behind-a-lone-cr"),
    ],
)
def test_what_is_no_header_field_is_no_id(mail: str) -> None:
    data = mail.format(field=f"X-Spamfilter-Id: {new_id()}").encode()
    assert b"x-spamfilter-id" not in dict(parse(data).fields)
    assert header_id(data) == ""
    assert untagged(data + b"\nSubject: [SPAM] b\n", {"[SPAM]"}).endswith(b"[SPAM] b\n")


def test_a_field_has_the_same_id_whatever_the_line_ends() -> None:
    for mail in (b"A: b\nX-Spamfilter-Id : %b\n\nc\r\n", b"A: b\r\nX-Spamfilter-Id: %b\r\n\nc\n"):
        assert header_id(mail % (id := new_id()).encode()) == id
