"""What a command prints, fitted to the terminal: sentences folded, rows of a table cut, classes and faults in colours.

Guarantee: in a pipe or a file a line stays whole and has no colours. With NO_COLOR or TERM=dumb a terminal gets none.
"""

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import click

from spamfilter.system.escaping import harmless
from spamfilter.system.terminal import WIDTH, columns, folded, shortened

COLOURS = {
    "spam": "red", "unsure": "yellow", "ham": "green",
    "failed": "red", "warning": "yellow", "ok": "green",
    "block": "red", "allow": "green",
}  # fmt: skip
"""Word -> colour. The text says the same without it."""

TOLD_EVERY = 10.0
"""Seconds between two lines of progress in a log: often enough to see that a command works."""


def coloured(word: str, room: int = 0) -> str:
    """A word of COLOURS in its colour, any other as it is; filled to this many columns."""
    return click.style(word, fg=COLOURS[word]) + " " * (room - len(word)) if word in COLOURS else f"{word:<{room}}"


def sentence(text: str, err: bool = False, indent: int = 2) -> None:
    """Print a sentence; on a terminal its further lines are indented."""
    click.echo(folded(text, columns(sys.stderr if err else sys.stdout), indent), err=err)


def row(text: str) -> None:
    """Print a row of a table; on a terminal its end is cut."""
    click.echo(shortened(text, columns(sys.stdout)))


def rows(lines: Iterable[str]) -> None:
    """Print lines about one thing, of which the first, with its id and its score, is folded where it does not fit."""
    first, *others = lines
    sentence(first, indent=4)
    for line in others:
        row(line)


def table_width() -> int:
    """The columns of a table that is made to fit: those of the terminal, at most 100, which is what a pipe gets."""
    return min(columns(sys.stdout) or WIDTH, WIDTH)


@contextmanager
def progress(label: str, steps: int) -> Iterator[Callable[[int], None]]:
    """A bar on standard error; the function takes how many further steps are done. Where standard error is no terminal,
    as in a log, a line each TOLD_EVERY seconds."""
    told = time.monotonic()
    with click.progressbar(length=steps, label=label, file=sys.stderr) as bar:

        def tell(done: int) -> None:
            nonlocal told
            bar.update(done)
            if not sys.stderr.isatty() and time.monotonic() - told >= TOLD_EVERY:
                told = time.monotonic()
                click.echo(f"{label}: {bar.pct:.0%} done", err=True)

        yield tell


def judgement(text: str, class_: str) -> None:
    """Print a verdict and what explains it."""
    first, *lines = text.split("\n")
    sentence(first.replace(f": {class_}, score", f": {coloured(class_)}, score", 1))
    for line in lines:
        sentence(line, indent=6)


def complain(text: str) -> None:
    """Print what failed, or what was passed over, on standard error."""
    sentence(f"{click.style('spamfilter:', fg='red')} {harmless(text)}", err=True)


def note(text: str) -> None:
    """Print what a user should know on standard error."""
    sentence(f"{click.style('spamfilter:', fg='yellow')} {harmless(text)}", err=True)


def warn(text: str) -> None:
    sentence(f"{click.style('warning:', fg='yellow')} {harmless(text)}", err=True)
