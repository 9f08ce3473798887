"""Fixtures that any test may use."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import real


@pytest.fixture(scope="session")
def corpora() -> Path:
    """The folder with every corpus unpacked; skips where there is none."""
    return real.corpora()


@pytest.fixture(scope="session")
def corpus() -> Callable[[str], Path]:
    """The folder of one corpus by name; skips where it is missing."""
    return real.corpus
