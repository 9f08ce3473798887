"""Dumps of other filters: recognised by their first line, read into counts of words.

Guarantee: a file is read whole or not at all; an InputError names the file, the line and what is expected there.
DUMPS is the table of filters; each dump has the numbers of messages, and of words in them, which are the counts of the
voice that has the filter's name (bayes/imported).
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from spamfilter.bayes.counts import LABELS, MAX_COUNT, Label
from spamfilter.bayes.imported_tokens import without_case
from spamfilter.errors import InputError

Line = tuple[int, bytes]
"""The number of a line, from 1 on, and its text without its end."""

_CONTROL = re.compile(rb"[\x00-\x1f\x7f]")
LONGEST = 1000
"""Bytes of the longest word that is taken over; no filter here makes such words."""


@dataclass(slots=True)
class Dump:
    """What another filter has learnt. passed_over: words that can be in no mail, such as those with control
    characters."""

    filter: str
    messages: dict[Label, int]
    counts: dict[Label, dict[bytes, int]] = field(default_factory=lambda: {label: {} for label in LABELS})
    passed_over: int = 0

    @property
    def words(self) -> int:
        return len(self.counts["ham"].keys() | self.counts["spam"].keys())

    def add(self, word: bytes, ham: int, spam: int) -> None:
        """Add to the counts of a word: two spellings may be one word here."""
        if not word or len(word) > LONGEST or _CONTROL.search(word):
            self.passed_over += 1
            return
        for label, number in (("ham", ham), ("spam", spam)):
            if number:
                counts = self.counts[label]  # type: ignore[index]  # both are labels
                counts[word] = counts.get(word, 0) + number


class DumpError(InputError):
    """A line of a dump cannot be read."""

    def __init__(self, file: Path, number: int, text: str) -> None:
        super().__init__(f"{file}:{number}: {text}; nothing was learnt")


def read_dump(file: Path) -> Dump:
    """The dump in a file. Raises InputError where it is of no known filter, or a line cannot be read."""
    try:
        lines = enumerate(file.read_bytes().splitlines(), 1)
    except OSError as error:
        raise InputError(f"{file}: {error.strerror}") from error
    every = [(number, line) for number, line in lines if line.strip()]
    if not every:
        raise InputError(f"{file}: is empty; nothing was learnt")
    for filter, (begins, read) in DUMPS.items():
        if begins.match(every[0][1]):
            dump = read(file, iter(every))
            _check(file, filter, dump)
            return dump
    if any(sign in every[0][1][:200] for sign in _RSPAMD):
        raise InputError(f"{file}: {REFUSED_RSPAMD}; nothing was learnt")
    raise DumpError(file, every[0][0], f"this begins no dump of {', '.join(DUMPS)}, nor an export of spamfilter")


def _check(file: Path, filter: str, dump: Dump) -> None:
    for label in LABELS:
        if not dump.messages[label]:
            raise InputError(
                f"{file}: {filter} has learnt no {label}, so its counts tell nothing apart; nothing was learnt"
            )


def _number(file: Path, number: int, text: bytes, what: str) -> int:
    if not text.isdigit() or int(text) > MAX_COUNT:
        shown = text[:40].decode("utf-8", "replace")
        raise DumpError(file, number, f"{what} is {shown!r}, not a number of messages")
    return int(text)


def _utf8(word: bytes) -> bytes:
    """A word in UTF-8: older databases have the bytes of the mail, mostly of Latin-1."""
    try:
        word.decode()
    except UnicodeDecodeError:
        return word.decode("latin-1").encode()
    return word


def _bogofilter(file: Path, lines: Iterator[Line]) -> Dump:
    """`bogoutil -d wordlist.db`: word, spam, ham and perhaps a date in a line; .MSG_COUNT has the messages."""
    dump = Dump("bogofilter", dict.fromkeys(LABELS, 0))
    counted = False
    for number, line in lines:
        match = _BOGOFILTER.fullmatch(line)
        if match is None:
            raise DumpError(file, number, "expected 'word spam ham date', as `bogoutil -d` writes it")
        word = match.group(1)
        spam, ham = (_number(file, number, match.group(at), f"the {what} count") for at, what in ((2, "spam"), (3, "ham")))
        if word == b".MSG_COUNT":
            dump.messages = {"ham": ham, "spam": spam}
            counted = True
        elif not word.startswith(b"."):
            dump.add(without_case(_utf8(word)), ham, spam)
    if not counted:
        raise InputError(f"{file}: has no line .MSG_COUNT; is it the whole output of `bogoutil -d`? Nothing was learnt")
    return dump


_BOGOFILTER = re.compile(rb"(\S+) ([0-9]+) ([0-9]+)(?: [0-9]+)?")
_RSPAMD = (b"REDIS", b"RS_", b"BAYES_SPAM", b"BAYES_HAM", b"SQLite format 3")
REFUSED_RSPAMD = (
    "looks like statistics of rspamd, which are hashes of pairs of words, made with a key of their own: no word can be"
    " had of them; train with the mail instead"
)

DUMPS: dict[str, tuple[re.Pattern[bytes], Callable[[Path, Iterator[Line]], Dump]]] = {
    "bogofilter": (_BOGOFILTER, _bogofilter),
}
"""Filter -> how the first line of its dump looks, and what reads the dump."""
