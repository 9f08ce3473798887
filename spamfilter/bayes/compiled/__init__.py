"""The compiled helpers: judging is four times faster with them, and gives the same results without them.

`token_helper` finds the words of a message and their places in a table of counts; `score_helper` looks words up and
does the arithmetic of the default likelihoods. Both are None, and Python does the same work, where WHY_PLAIN says why.

Guarantee: the helpers are used together or not at all, and only if they were built from the sources in this folder, for
a Python that the tests run under, and passed `self_test` when they were loaded.
"""

import importlib
import os
import sys
import zlib
from pathlib import Path
from typing import Any, NamedTuple

from spamfilter.bayes.compiled.self_test import first_difference

NAMES = ("tokens", "scores")
SOURCES = ("arithmetic.h", "table.h", "tokens.c", "scores.c")
NEWEST_TESTED = (3, 14)
"""The newest Python that the tests run under, as in the classifiers of pyproject.toml."""
NOT_BUILT = "not-built.txt"
"""Where build.py says why there are no helpers."""


def checksum() -> int:
    """The checksum of the C sources. A helper of other sources could find other words than Python does."""
    return zlib.crc32(b"".join(Path(__file__).with_name(source).read_bytes() for source in SOURCES))


class _Loaded(NamedTuple):
    """The helpers by name. why: the reason for having none. refused: they were built, and cannot be trusted."""

    helpers: dict[str, Any]
    why: str = ""
    refused: bool = False


def _loaded() -> _Loaded:
    if os.environ.get("SPAMFILTER_PLAIN"):
        return _Loaded({}, "SPAMFILTER_PLAIN is set")
    if sys.version_info[:2] > NEWEST_TESTED:
        return _Loaded({}, f"the helpers are tested up to Python {'.'.join(map(str, NEWEST_TESTED))}")
    try:
        helpers = {name: importlib.import_module(f"spamfilter.bayes.compiled._{name}") for name in NAMES}
    except ImportError as error:
        reason = Path(__file__).with_name(NOT_BUILT)
        if reason.exists():
            return _Loaded({}, reason.read_text().strip())
        return _Loaded({}, f"the helpers cannot be loaded: {error}", refused=True)
    if any(checksum() != helper.SOURCE for helper in helpers.values()):
        return _Loaded({}, "the helpers were built from other sources; install spamfilter again", refused=True)
    if difference := first_difference(**helpers):
        return _Loaded({}, f"the helpers do not compute what Python does: {difference}", refused=True)
    return _Loaded(helpers)


_helpers, WHY_PLAIN, REFUSED = _loaded()
token_helper: Any = _helpers.get("tokens")
score_helper: Any = _helpers.get("scores")


def in_words() -> str:
    """How mail is judged here, for people."""
    return f"in plain Python, four times slower: {WHY_PLAIN}" if WHY_PLAIN else "by compiled helpers"
