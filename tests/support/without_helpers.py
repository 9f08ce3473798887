"""Judging without the compiled helpers, in a process that has them."""

import sys

import pytest


def without_helpers(patch: pytest.MonkeyPatch) -> None:
    """From now on, until it is undone, Python does all of it."""
    for name, module in [*sys.modules.items()]:
        if name.startswith("spamfilter."):
            for helper in ("token_helper", "score_helper"):
                if getattr(module, helper, None) is not None:
                    patch.setattr(module, helper, None)
