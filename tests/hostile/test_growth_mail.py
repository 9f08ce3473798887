"""Every regular expression that strangers' bytes come to, and every scanner of a mail, takes linear time.

Each is run on its worst inputs of one length and of sixteen times that: linear work takes sixteen times as long then,
quadratic 256 times. The bound is 64, on processor time, the shortest of several runs, and a noisy machine has several
tries.
"""

import importlib
import math
import pkgutil
import re
import time
from collections.abc import Callable
from typing import Any

import pytest
from starlette.requests import Request

import spamfilter
from spamfilter.bayes.tokens import words
from spamfilter.errors import InputError
from spamfilter.mail import message, text
from spamfilter.mail.attached_mails import mails_of
from spamfilter.mail.charsets import to_utf8
from spamfilter.mail.line_ends import has_bare_newlines, normalised
from spamfilter.mail.tagging import header_id, mark
from spamfilter.relay.sender_lists.decision import Origin
from spamfilter.relay.sender_lists.raw_header import RawHeader
from spamfilter.system.escaping import printable
from spamfilter.web.server import _sent

TIMES = 16
BOUND = 64
TRIES, RUNS = 4, 3
LONG_ENOUGH = 2e-4
"""Seconds that are measured at least, of the shorter input; what is quicker at LONGEST is linear enough."""
SHORTEST, LONGEST = 2_000, 128_000

Worst = tuple[str, str, str]
"""A beginning, what is repeated, an end."""

REGEXES: dict[str, list[Worst]] = {
    "config.addresses._HOST": [("", "a", "-"), ("", "a.", "!")],
    "config.addresses._LOCAL": [("", "a", "@")],
    "config.addresses._URL": [("", "http://", ""), ("http://", "a", "")],
    "system.ids._LED": [("", ": (", ""), ("", " ", ""), ("", "0", ""), ("", " (0", "")],
    "bayes.numeric_attributes._CLOCK": [("", "1", ""), ("", "12:", "")],
    "learning.automatic_rules._MESSAGE_ID": [("", "<", ""), ("<", "a", ""), ("", "<a", " ")],
    "doctor.canary._TAKEN": [("", "canary ", ""), ("canary ", "A", "")],
    "bayes.tokens._CJK": [("", "\u4e2d", ""), ("", "\xe4", "")],
    "mail.attached_mails._ADDRESS": [("", "a", ""), ("", "a@", ""), ("", "a@@", ""), ("", "a ", "@")],
    "mail.attached_mails._A_HEADER": [("From ", "x", ""), ("", "a", ""), ("a", " ", "")],
    "relay.sender_lists.raw_header._COMMENT": [("", "(", ""), ("", "(a", ""), ("(", "a", "")],
    "relay.sender_lists.raw_header._BETWEEN": [("", "a", ""), ("", ",", "")],
    "mail.letters._NOT_SHOWN": [("", "\u200b", ""), ("", "a", "")],
    "mail.letters._LOOK_ALIKE": [("", "a", ""), ("", "\u0430", "")],
    "mail.letters._MIXED": [("", "a", ""), ("", "\u0430", ""), ("", "a\u0430", "")],
    "mail.letters._WORD": [("", "a", ""), ("", "a ", ""), ("", "a\u0430", "")],
    "mail.letters._BETWEEN_WORDS": [("", " ", ""), ("", "a ", ""), ("", "a", "")],
    "relay.feedback_answers._MESSAGE_ID": [("<", "a", ""), ("", "<a", "")],
    "relay.envelope_paths._CONTROL": [("", "a", "")],
    "relay.envelope_paths._ESCAPED": [("", "\\", ""), ("", "a\\", "")],
    "relay.envelope_paths._PATH": [
        ("FROM:<", '"', ">"), ("FROM:<", '"a', ""), ("FROM:<", '"\\', '">'), ("FROM:<", '"a"', ""), ("TO:", "a", "<"),
        ("TO:<", "a", "> x\n"),
    ],
    "relay.envelope_paths._ROUTING": [("", "a", "")],
    "relay.envelope_paths._SIZE": [("", " SIZE=", ""), (" SIZE=", "1", ""), ("", " SIZE=1", "x")],
    "relay.session.xforward._BROKEN_CODE": [("", "+", "x"), ("", "+A", "x")],
    "relay.session.xforward._CONTROL": [("", "a", "")],
    "relay.session.xforward._HEX": [("", "+", ""), ("", "+A", "")],
    "relay.session.xforward._PLAIN": [("", "a", ""), ("", "a", "+")],
    "system.ids._ID": [("", "A", ""), ("", "A" * 25 + " ", "")],
    "mail.mailboxes._QUOTED_FROM": [("", ">", ""), ("", ">\n", ""), ("", ">From ", "")],
    "mail.mailboxes._REMOVED": [("From ", "x", ""), ("From \n", "X-UIDL: x\n", ""), ("From \nX-UIDL: ", "x", "")],
    "mail.mailboxes._SEPARATOR": [
        ("From ", "Mon ", ""), ("From Mon", " ", ""), ("", "\n\nFrom Mon,  1:", ""), ("From Mon ", "11:", ""),
        ("From Mon 11:11", "x", ""), ("", "\n\nFrom " + "Mon " * 80, ""), ("", "\n\nFrom " + "Mon" + " " * 50, ""),
    ],
    "mail.tagging.MBOX_LINE": [("From ", "x", ""), (">From ", "From ", "")],
    "mail.tagging._NEXT_FIELD": [("", "\n", ""), ("", "\n ", "")],
    "mail.tagging._OURS": [
        ("X-Spam-Flag", " ", "x"), ("X-Spamfilter-", "x", ""), ("X-Spamfilter-", "x ", ""),
        ("X-Spam-Flag:\n", " \n", ""), ("", "X-Spam-Flag\n", ""), ("", "X-Spam-Flag:\n", ""),
        ("X-Spam-Flag:", "x", ""), ("", "X-Spam-Flag", ""),
        ("", "x-spam-status \n", ""),
    ],
    "mail.tagging._SUBJECT": [("Subject", " ", "x"), ("", "Subject \n", ""), ("", "Subject", "")],
    "mail.charsets._PAIRS": [("", "\xb0\xa1", "\xb0"), ("", "a\xb0\xa1", "a\xff"), ("\xb0\xa1\xb0\xa1", "a", "\xff")],
    "mail.header._BETWEEN_ENCODED_WORDS": [("?=", " ", "x"), ("", "?= ", ""), ("", "?= =?", "")],
    "mail.header._ENCODED_WORD": [
        ("", "=?", ""), ("", "=?a?q?", ""), ("=?a?q?", "x", ""), ("", "=?" + "a" * 40, ""), ("", "=?a?q?x?", ""),
        ("=?a?q?", "=", "?"),
    ],
    "mail.header._ENCODED_WORDS": [
        ("", "=?", ""), ("", "=?a?q?", ""), ("=?a?q?", "x", ""), ("", "=?" + "a" * 40, ""), ("", "=?a?q?x?", ""),
        ("", "=?a?q?x?=", ""), ("", "=?a?q?x?=", "=?"), ("=?a?q?", "=", "?"),
    ],
    "mail.header._FIELD_END": [("", "\n ", ""), ("", "\n", "")],
    "mail.header.OF_CONTENT": [("Content-Type", " ", ""), ("Content-Type:", "\n ", ""), ("", "Content-Type:\n", "")],
    "mail.header._NAME": [("", "a", ":"), ("", "a", " ")],
    "mail.text._HIDDEN": [
        ("", "<", ""), ("", "<a ", ""), ("<a ", "x", ""), ("", "<a display ", ""), ("<a display", " ", ""),
        ("", "<a display:none", ""), ("<a display:none", "</a ", ""), ("<a display:none></a", " ", ""),
    ],
    "mail.text._NOT_SHOWN": [
        ("", "<!--", ""), ("<!--", "-", ""), ("", "<style", ""), ("<style>", "</style ", ""),
        ("", "<", ""), ("<style></style", " ", ""), ("", "<style>\xff", ""), ("<style>", "\xff", ""),
        ("<style>\xff", "</style ", ""), ("", "<b ", ""), ("<b ", "x", ""), ("", "</", ""),
        ("", "<p", ""), ("<p", "x", ""), ("<p<", "x", ""), ("", "<p<", ">"),
    ],
    "mail.text._TAG": [("", "<", ""), ("", "<a ", ""), ("<a", "x", "")],
    "mail.multipart._PARAMETER": [
        ("boundary", " ", "x"), ("boundary=", " ", ""), ('boundary="', "a", ""), ("", "boundary ", ""),
        ("", "charset=", ""), ("", 'charset="', ""), ("charset=", "a", ""), ("", '"', ""),
        ('"', "a", ""), ("", ";", ""),
    ],
    "mail.header._BLANK_LINE": [("", "\r\n", ""), ("", "\n", ""), ("", "\n\r", ""), ("", "\r", "")],
    "mail.header._LINE_END": [("", "\r\n", ""), ("", "\r", "")],
    "mail.multipart._FIRST_WORD": [("", "(", ""), ("", "()", ""), ("(", "a", ""), ("", " ", ""), ("", "(a) ", "")],
    "relay.next_hops.maildir._ENVELOPE": [
        ("X-Spamfilter-Sender: <", ">", ""), ("X-Spamfilter-Sender: <>\nX-Spamfilter-Recipients: <", "a>,\n <", ""),
        ("X-Spamfilter-Sender: <>\nX-Spamfilter-Recipients: <", ">", ""), ("From ", "x", ""),
    ],
    "relay.next_hops.replies._LINE": [("", "250", "")],
    "relay.quarantine.kept_mail._ENVELOPE": [("From ", "x", ""), ("From ", "x", "\n")],
    "relay.quarantine.kept_mail._NAME": [("", "1", ""), ("1.M", "1", ""), ("", "1.M1", "")],
    "relay.quarantine.kept_mail._SCORE": [
        ("X-Spam-Status: ", "score=", ""), ("X-Spam-Status: ", " s", ""), ("", "X-Spam-Status: \n", ""),
    ],
    "reports.outages._ADDRESS": [("", "<", ""), ("", "<a", ""), ("<", "a", ""), ("", "<a@", ""), ("<a@", "a", "")],
    "stores.sql.postgresql.FAILED": [("", 'connection to server at "a" ', ""), ('connection to server at "', "a ", "")],
    "stores.sql.postgresql.LISTED_HOST": [("- host: '", "', port: '", ""), ("- host: '", "a", "")],
    "system.terminal._SEQUENCE": [("\x1b[", "0", ""), ("", "\x1b[0", ""), ("\x1b[", " ", "\x7f"), ("", "\x1b", "")],
}  # fmt: skip
"""Module and name -> its worst inputs, as far as anybody could think of them."""
MATCHED = frozenset((
    "config.addresses._HOST", "config.addresses._LOCAL", "mail.attached_mails._A_HEADER",
    "relay.envelope_paths._PATH", "mail.tagging.MBOX_LINE", "mail.header._NAME", "relay.next_hops.maildir._ENVELOPE",
    "relay.next_hops.replies._LINE", "relay.quarantine.kept_mail._ENVELOPE", "stores.sql.postgresql.LISTED_HOST",
))  # fmt: skip
"""Those that are tried at one place; the others are looked for everywhere."""
SHORT = ("bayes.imported.",)
"""Those that read only what is kept of a mail, 4,000 bytes of text and 600 of a field: whatever stands there, it takes
less than ten milliseconds for a mail."""
OWN = (
    "learning.transfer.", "config.addresses._HEADER", "config.sender_rules.", "doctor.dovecot.", "config.redaction.",
    "mail.special_folders.", "tables.",
)  # fmt: skip
"""Those that read nothing but the administrator's own files."""


def compiled() -> dict[str, re.Pattern[Any]]:
    """Every regular expression of the package, by the module that it is compiled in."""
    found: dict[str, re.Pattern[Any]] = {}
    seen: set[int] = set()
    for module in pkgutil.walk_packages(spamfilter.__path__, "spamfilter."):
        if not module.name.endswith("__main__"):
            for name, value in vars(importlib.import_module(module.name)).items():
                if isinstance(value, re.Pattern):
                    found[f"{module.name.removeprefix('spamfilter.')}.{name}"] = value
    # One that is imported elsewhere counts where it is listed.
    for name in sorted(found, key=lambda name: name not in REGEXES):
        if id(found[name]) in seen:
            del found[name]
        else:
            seen.add(id(found[name]))
    return found


def test_each_regular_expression_that_strangers_bytes_come_to_has_its_worst_input_here() -> None:
    assert {name for name in compiled() if not name.startswith((*OWN, *SHORT))} ^ set(REGEXES) == set()


def seconds(run: Callable[[], object], runs: int = RUNS) -> float:
    """The shortest of several runs."""
    found = []
    for _ in range(runs):
        began = time.thread_time_ns()
        run()
        found.append((time.thread_time_ns() - began) / 1e9)
    return min(found)


def grows(run: Callable[[int], Callable[[], object]]) -> float:
    """How many times as long TIMES the input takes, both the least of several tries; run: makes one."""
    size = SHORTEST
    while seconds(run(size), 2) < LONG_ENOUGH:
        size *= 2
        if size > LONGEST:
            return TIMES
    for measured in (size, 2 * size):
        long = short = math.inf
        for _ in range(TRIES):
            long = min(long, seconds(run(TIMES * measured)))
            short = min(short, seconds(run(measured), TIMES * RUNS))  # as much time, to meet the machine at its fastest
            if long < BOUND / 2 * short:  # what stutters makes no quadratic work look like this
                break
        if long < BOUND * short:  # what is quadratic is so at the next size, too; a machine that stutters seldom does
            break
    return long / short


CASES = [(name, worst) for name, inputs in REGEXES.items() for worst in inputs]


@pytest.mark.parametrize(("name", "worst"), CASES, ids=[f"{name}-{worst[1][:12]!a}" for name, worst in CASES])
def test_a_regular_expression_is_linear_on_its_worst_input(name: str, worst: Worst) -> None:
    pattern = compiled_once()[name]
    first, repeated, last = worst

    def run(size: int) -> Callable[[], object]:
        text: Any = first + repeated * (size // len(repeated)) + last
        if isinstance(pattern.pattern, bytes):
            text = text.encode("latin-1" if max(text) < "\u0100" else "utf-8")
        if name in MATCHED:
            return lambda: (pattern.match(text), pattern.fullmatch(text))
        return lambda: sum(1 for _ in pattern.finditer(text))

    assert grows(run) < BOUND


_COMPILED: dict[str, re.Pattern[Any]] = {}


def compiled_once() -> dict[str, re.Pattern[Any]]:
    if not _COMPILED:
        _COMPILED.update(compiled())
    return _COMPILED


def test_quadratic_work_would_be_seen() -> None:

    def run(size: int) -> Callable[[], object]:
        text = "a" * (size // 4)  # which is long enough
        return lambda: re.findall(r"[^@]+@", text)

    assert grows(run) > BOUND


def _proof(mail: bytes) -> object:
    return Origin(mail + b"\r\n\r\n", "a@b", "192.0.2.1", {"mx"}).proof("header")


def _mails(mail: bytes) -> None:
    try:
        mails_of(mail, "a@example.org", ("spam@example.org",))
    except InputError:
        return


MULTIPART = b"Content-Type: multipart/mixed; boundary=x\r\n\r\n--x\r\n"
SCANNERS: dict[str, tuple[Callable[[bytes], object], bytes, bytes]] = {
    "parts": (
        lambda body: message._Walk()._parts(body, b"x"),
        b"--x\n", b"\n--xy" * message.MAX_BOUNDARIES,
    ),
    "cookies": (lambda raw: _sent(Request({"type": "http", "headers": [(b"cookie", raw + b'"')]}), "a"), b'a="', b"\\"),
    "base64": (text.decode_base64, b"", b"=!"),
    "tags": (text.without_tags, b"", b"<b "),
    "tags-that-end": (text.without_tags, b"", b"<p>"),
    "comments": (text.without_styles, b"", b"<!-- "),
    "style": (text.without_styles, b"<style>", b"</style "),
    "elements-not-displayed": (text.hidden_apart, b"", b"<a display "),
    "elements-within-elements": (text.hidden_apart, b"", b"<a display:none>"),
    "utf-8": (lambda raw: to_utf8(raw, b""), b"", b"\xed\xa0\x80"),
    "utf-7": (lambda raw: to_utf8(raw, b"utf-7"), b"", b"+ZeU"),
    "idna": (lambda raw: to_utf8(raw, b"idna"), b"", b"a.xn--a"),
    "punycode": (lambda raw: to_utf8(raw, b"punycode"), b"", b"a-9\xff"),
    "hz": (lambda raw: to_utf8(raw, b"hz"), b"", b"~{~"),
    "iso-2022-jp": (lambda raw: to_utf8(raw, b"iso-2022-jp"), b"", b"\x1b$B\x1b"),
    "words": (words, b"", "a\u4e2d".encode()),
    "one word": (words, b"", b"a"),
    "a whole mail": (message.parse, b"Subject: x\n", b"a: =?a?q?b?=\n"),
    "a parameter in sections": (message.parse, b"Content-Type: a/b; boundary*0=a", b"; boundary*1=" + b"a" * 99),
    "senders": (lambda mail: [*RawHeader(mail).fields(b"from")], b"", b"From:\r\n "),
    "who is proved": (_proof, b"", b"Authentication-Results: mx\r\nFrom: a@b\r\n"),
    "what is proved": (_proof, b"From: a@b\r\nAuthentication-Results: mx", b"; a=b c=d ((\\("),
    "attached mails": (_mails, MULTIPART, b"\r\n--x\r\nContent-Type: message/rfc822\r\n\r\n"),
    "attached mails, look-alikes": (_mails, MULTIPART, b"--xy\r\n"),
    "marking": (lambda mail: mark(mail, [("X-Spamfilter-Id", "1")], "[x]"), b"", b"X-Spam-Flag: x\r\n\t\r\n"),
    "marking an mbox line": (lambda mail: mark(mail, [("X-Spamfilter-Id", "1")]), b"From ", b"From "),
    "the id of a header": (header_id, b"\r", b"X-Spamfilter-Id:\r\n"),
    "bare newlines": (has_bare_newlines, b"", b"\r\n\r"),
    "newlines mended": (normalised, b"", b"\r\r\n\n"),
    "printable": (lambda text: printable(text.decode("latin-1"), len(text)), b"", b"\xff\x1b"),
}  # fmt: skip
"""What looks through a mail or a part of it -> how, the beginning of its worst input, what is repeated in it."""


@pytest.mark.parametrize("name", SCANNERS)
def test_what_looks_through_a_mail_is_linear_on_its_worst_input(name: str) -> None:
    scan, first, repeated = SCANNERS[name]

    def run(size: int) -> Callable[[], object]:
        raw = first + repeated * (size // len(repeated))
        return lambda: scan(raw)

    assert grows(run) < BOUND
