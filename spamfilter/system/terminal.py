"""Reads single keys from a terminal, and fits lines to its width."""

import os
import re
import sys
import termios
import tty
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import click

from spamfilter.system.escaping import harmless

_SEQUENCE = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|O[ -~]|[ -~])?")
"""The bytes of arrows, function keys and keys pressed with Alt: ECMA-48 section 5.4."""
WIDTH = 100
"""Columns of a table that goes to no terminal: as many as fit on half of a common screen."""
MOST_KEYS = 64
"""Bytes of one read: more than any key sends, and few of an accidental paste."""


@contextmanager
def keys() -> Iterator[Iterator[str]]:
    """Keys as they are pressed if standard input is a terminal, else the first letter of each line.

    At the end the terminal gets its former settings in any case. Arrows and function keys are ignored.
    """
    if not sys.stdin.isatty():
        yield (line.rstrip("\r\n")[:1] for line in sys.stdin)
        return
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    try:
        # TCSADRAIN, unlike TCSAFLUSH, keeps what was typed ahead.
        tty.setcbreak(terminal, termios.TCSADRAIN)
        yield _pressed(terminal)
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def _pressed(terminal: int) -> Iterator[str]:
    while pressed := os.read(terminal, MOST_KEYS):
        yield from _SEQUENCE.sub(b"", pressed).decode("utf-8", "replace")


def colours_wanted() -> bool:
    """Whether a terminal may get colours: https://no-color.org, and a terminal that can show them."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def columns(stream: IO[Any]) -> int | None:
    """The width of the terminal that a stream leads to, None if it leads elsewhere: there no line is cut or folded."""
    try:
        return os.get_terminal_size(stream.fileno()).columns or None
    except (OSError, ValueError):
        return None


def width(text: str) -> int:
    """The columns that a text takes: none for its colours and combining marks, two for each wide letter of East Asia.

    >>> width("judged"), width("\u5783\u573e"), width("\x1b[31mred\x1b[0m")
    (6, 4, 3)
    """
    plain = click.unstyle(text) if "\x1b" in text else text
    if plain.isascii():
        return len(plain)
    return sum(0 if unicodedata.combining(one) else 1 + (unicodedata.east_asian_width(one) in "WF") for one in plain)


def shortened(text: str, room: int | None) -> str:
    """The text without colours in at most this many columns; dots say that it was cut.

    >>> shortened("a line of a table", 10), shortened("short", 10)
    ('a line ...', 'short')
    """
    if room is None or width(text) <= room:
        return text
    kept = click.unstyle(text)[: max(room - 3, 0)]
    while width(kept) > room - 3 > 0:
        kept = kept[:-1]
    return f"{kept}..."[:room]


def cell(text: str, room: int, fill: bool = False) -> str:
    """A text that came by mail, escaped and in at most this many columns. fill: with blanks up to them.

    >>> cell("gr\u00fcn", 6, fill=True), cell("\u5783\u573e\x07", 6)
    ('gr\u00fcn  ', '\u5783...')
    """
    kept = shortened(harmless(text), room)
    return kept + " " * (room - width(kept)) if fill else kept


def folded(text: str, room: int | None, indent: int = 2) -> str:
    """The text in lines of at most this many columns, broken between words; a longer word has a line for itself.

    >>> folded("  a sentence that goes on", 12, 4)
    '  a sentence\\n    that\\n    goes on'
    """
    if room is None or width(text) <= room:
        return text
    lines: list[str] = []
    line = ""
    for number, word in enumerate(text.split(" ")):
        if not word or not line.strip() or width(line) + 1 + width(word) <= room:
            line = f"{line} {word}" if number else word
        else:
            lines.append(line.rstrip())
            line = " " * indent + word
    return "\n".join([*lines, line.rstrip()])
