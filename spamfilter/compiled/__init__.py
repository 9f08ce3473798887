"""The compiled helpers, if they were built with the package: nothing depends on them but speed.

`_message` reads the header of a mail, closes the gaps of what is digested, and finds line ends that stand alone or
before a dot; `_tokens` finds the words of a message and their places in a table of counts; `_scores` looks words up and
does the arithmetic of the default likelihoods; `_learning` counts the words of a message, makes rows and lines of
them, and words of lines, and learns messages in bulk by the default rule. Each takes a third of Python's time or less.
They are None where no compiler was at hand, or SPAMFILTER_PLAIN is set; then Python does the same.

Guarantee: a helper is made of the sources that lie beside it, or it is not used. One of an older version, left behind
where the sources were updated without a new installation, could find other words than Python.
"""

import importlib
import os
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any

HEADERS = ("arithmetic.h", "table.h")


def _helper(name: str) -> Any:
    if os.environ.get("SPAMFILTER_PLAIN"):
        return None
    with suppress(ImportError, AttributeError, OSError):
        helper = importlib.import_module(f"spamfilter.compiled._{name}")
        sources = b"".join(Path(__file__).with_name(source).read_bytes() for source in (*HEADERS, f"{name}.c"))
        if zlib.crc32(sources) == helper.SOURCE:
            return helper
    return None


_message = _helper("message")
_tokens = _helper("tokens")
_scores = _helper("scores")
_learning = _helper("learning")
