"""Dumps of other filters: recognised by their first line, read into counts of words.

Guarantee: a file is read whole or not at all; an InputError names the file, the line and what is expected there.
DUMPS is the table of filters; each dump has the numbers of messages, and of words in them, which are the counts of the
voice that has the filter's name (bayes/imported).
"""

import csv
import io
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from spamfilter.bayes.counts import MAX_COUNT
from spamfilter.bayes.imported import bogofilter, spambayes
from spamfilter.bayes.labels import LABELS, Label
from spamfilter.errors import InputError, file_errors
from spamfilter.mail.mailboxes import compression_of

_CONTROL = re.compile(rb"[\x00-\x1f\x7f]")
FIRST = 4096
"""Bytes in which the first line is looked for."""
LONGEST = 1000
"""Bytes of the longest word that is taken over; no filter here makes such words."""


@dataclass(slots=True)
class Dump:
    """What another filter has learnt. passed_over: words that can be in no mail, such as those with control
    characters."""

    filter: str
    messages: dict[Label, int] = field(default_factory=dict)
    counts: dict[Label, dict[bytes, int]] = field(default_factory=lambda: {label: {} for label in LABELS})
    passed_over: int = 0

    def add(self, word: bytes, ham: int, spam: int) -> None:
        """Add to the counts of a word: two spellings may be one word here."""
        if not word or len(word) > LONGEST or _CONTROL.search(word):
            self.passed_over += 1
            return
        for counts, number in ((self.counts["ham"], ham), (self.counts["spam"], spam)):
            if number:
                counts[word] = counts.get(word, 0) + number


class DumpError(InputError):
    """A line of a dump cannot be read."""

    def __init__(self, file: Path, number: int, text: str) -> None:
        super().__init__(f"{file}:{number}: {text}; nothing was learnt")


def read_dump(file: Path) -> Dump:
    """The dump in a file. Raises InputError where it is of no known filter, or a line cannot be read."""
    with file_errors(file):
        data = file.read_bytes()
    if not data.strip():
        raise InputError(f"{file}: is empty; nothing was learnt")
    first = data[:FIRST].split(b"\n", 1)[0].rstrip(b"\r")
    for filter, (begins, read) in DUMPS.items():
        if begins.fullmatch(first):
            dump = read(file, data)
            if lacking := [label for label in LABELS if not dump.messages[label]]:
                raise InputError(
                    f"{file}: {filter} has learnt no {lacking[0]}, so its counts tell nothing apart; nothing was learnt"
                )
            return dump
    if kind := compression_of(data):
        raise InputError(f"{file}: is compressed by {kind}; unpack it first; nothing was learnt")
    if data[BERKELEY_AT : BERKELEY_AT + 4] in BERKELEY:
        raise InputError(f"{file}: {REFUSED_BERKELEY}; nothing was learnt")
    if data.startswith(b"SQLite format 3"):
        raise InputError(f"{file}: {REFUSED_SQLITE}; nothing was learnt")
    if any(sign in data[:FIRST] for sign in _RSPAMD):
        raise InputError(f"{file}: {REFUSED_RSPAMD}; nothing was learnt")
    raise DumpError(file, 1, f"begins no dump of {', '.join(DUMPS)}, and no export of spamfilter")


def _number(file: Path, number: int, text: bytes, what: str) -> int:
    if not text.isdigit() or len(text) > len(str(MAX_COUNT)) or int(text) > MAX_COUNT:
        shown = text[:40].decode("utf-8", "replace")
        raise DumpError(file, number, f"{what} is {shown!r}, not a number of messages")
    return int(text)


def _both(file: Path, number: int, ham: bytes, spam: bytes) -> tuple[int, int]:
    return _number(file, number, ham, "the ham count"), _number(file, number, spam, "the spam count")


def _utf8(word: bytes) -> bytes:
    """A word in UTF-8: older databases have the bytes of the mail, mostly of Latin-1."""
    try:
        word.decode()
    except UnicodeDecodeError:
        return word.decode("latin-1").encode()
    return word


def _bogofilter(file: Path, data: bytes) -> Dump:
    """`bogoutil -d wordlist.db`: word, spam, ham and perhaps a date in a line; .MSG_COUNT has the messages."""
    dump = Dump("bogofilter")
    for number, line in _lines(data):
        match = _BOGOFILTER.fullmatch(line)
        if match is None:
            raise DumpError(file, number, "expected 'word spam ham date', as `bogoutil -d` writes it")
        word = match.group(1)
        ham, spam = _both(file, number, match.group(3), match.group(2))
        if word == b".MSG_COUNT":
            dump.messages = {"ham": dump.messages.get("ham", 0) + ham, "spam": dump.messages.get("spam", 0) + spam}
        elif not word.startswith(b"."):
            dump.add(bogofilter.counted(_utf8(word)), ham, spam)
    if not dump.messages:
        raise InputError(f"{file}: has no line .MSG_COUNT; is it the whole output of `bogoutil -d`? Nothing was learnt")
    return dump


def _spamassassin(file: Path, data: bytes) -> Dump:
    """`sa-learn --backup`: lines of a kind and fields between tabs; v has totals, t a hash, s a message."""
    dump = Dump("spamassassin")
    totals: dict[bytes, int] = {}
    for number, line in _lines(data):
        kind, *fields = line.split(b"\t")
        if kind == b"v" and len(fields) == 2:
            totals[fields[1].split(b" ")[0]] = _number(file, number, fields[0], "the total")
        elif kind == b"t" and len(fields) == 4 and _HASH.fullmatch(fields[3]):
            ham, spam = _both(file, number, fields[1], fields[0])
            dump.add(fields[3], ham, spam)
        elif kind != b"s":
            raise DumpError(file, number, "expected a line of `sa-learn --backup`: t, spam, ham, time and hash")
    if not {b"num_spam", b"num_nonspam"} <= totals.keys():
        raise InputError(f"{file}: has no num_spam and num_nonspam; is it the whole output? Nothing was learnt")
    dump.messages = {"ham": totals[b"num_nonspam"], "spam": totals[b"num_spam"]}
    return dump


def _spambayes(file: Path, data: bytes) -> Dump:
    """`sb_dbexpimp -e`: the numbers of ham and spam, then word, ham and spam in a line, as CSV."""
    dump = Dump("spambayes")
    rows = csv.reader(io.StringIO(data.decode("latin-1"), newline=""))
    try:
        for at, row in enumerate(rows):
            number = rows.line_num
            if len(row) != (3 if at else 2):
                raise DumpError(file, number, "expected 'word,ham,spam', as sb_dbexpimp writes it")
            *word, of_ham, of_spam = (text.encode("latin-1") for text in row)
            ham, spam = _both(file, number, of_ham, of_spam)
            if at:
                dump.add(spambayes.counted(_utf8(word[0])), ham, spam)
            else:
                dump.messages = {"ham": ham, "spam": spam}
    except csv.Error as error:
        raise DumpError(file, rows.line_num, f"is no CSV ({error})") from error
    return dump


def _lines(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The lines that are not empty, each with its number."""
    for number, line in enumerate(data.split(b"\n"), 1):
        if line := line.rstrip(b"\r"):
            yield number, line


_HASH = re.compile(rb"[0-9a-f]{10}")
_BOGOFILTER = re.compile(rb"(\S+) ([0-9]+) ([0-9]+)(?: [0-9]+)?")
_RSPAMD = (b"REDIS", b"RS_", b"BAYES_SPAM", b"BAYES_HAM")
REFUSED_RSPAMD = (
    "looks like statistics of rspamd, which are hashes of pairs of words, made with a key of their own: no word can be"
    " had of them; train with the mail instead"
)

BERKELEY_AT = 12
"""Where in a file of Berkeley DB its sign stands."""
BERKELEY = {sign.to_bytes(4, order) for sign in (0x00053162, 0x00061561) for order in ("big", "little")}
"""The signs of its trees and hashes, in the order of bytes of the machine that made the file."""
REFUSED_BERKELEY = (
    "is a database of Berkeley DB, and no dump; `bogoutil -d wordlist.db` writes one of bogofilter, `sa-learn --backup`"
    " one of SpamAssassin"
)
REFUSED_SQLITE = (
    "is a database of SQLite, and no dump; `bogoutil -d wordlist.db` writes one of bogofilter; a backup of spamfilter"
    " replaces its database (docs/operation.md); that of rspamd has hashes instead of words, so train with the mail"
)

DUMPS: dict[str, tuple[re.Pattern[bytes], Callable[[Path, bytes], Dump]]] = {
    "bogofilter": (_BOGOFILTER, _bogofilter),
    "spamassassin": (re.compile(rb"v\t[0-9]+\t\w+.*"), _spamassassin),
    "spambayes": (re.compile(rb"[0-9]{1,15},[0-9]{1,15}"), _spambayes),
}
"""Filter -> how the first line of its dump looks, and what reads the dump."""
