"""Fixtures that any test may use."""

from collections.abc import Callable
from pathlib import Path

import pytest

from spamfilter.learning import marks
from spamfilter.system import paths
from tests.support import real
from tests.support.shell import Shell


@pytest.fixture(scope="session")
def corpora() -> Path:
    """The folder with every corpus unpacked; skips where there is none."""
    return real.corpora()


@pytest.fixture(scope="session")
def corpus() -> Callable[[str], Path]:
    """The folder of one corpus by name; skips where it is missing."""
    return real.corpus


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """A user in an empty folder, whose configuration is the default one; ids can be marked at once."""
    monkeypatch.setattr(paths, "SYSTEM_FILE", tmp_path / "none.toml")
    monkeypatch.setattr(marks, "WRITTEN_WITHIN", 0.0)
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path))
    monkeypatch.delenv("SPAMFILTER_CONFIG", raising=False)
    monkeypatch.chdir(tmp_path)
    return Shell(tmp_path)
