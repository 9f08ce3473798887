"""Reads single keys from a terminal."""

import os
import re
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager

_SEQUENCE = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|O[ -~]|[ -~])?")
"""The bytes of arrows, function keys and keys pressed with Alt: ECMA-48 section 5.4."""
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
