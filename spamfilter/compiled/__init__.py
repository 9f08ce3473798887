"""The compiled helpers, if they were built with the package: nothing depends on them but speed.

`_tokens` finds the words of a message and their places in a table of counts, in a third of the time; `_scores` does
the arithmetic of the default likelihoods in a third of it. They are None where no compiler was at hand, or
SPAMFILTER_PLAIN is set; then Python does the same.
"""

import importlib
import os
from contextlib import suppress
from typing import Any

_tokens: Any = None
_scores: Any = None
if not os.environ.get("SPAMFILTER_PLAIN"):
    with suppress(ImportError):
        _tokens = importlib.import_module("spamfilter.compiled._tokens")
        _scores = importlib.import_module("spamfilter.compiled._scores")
