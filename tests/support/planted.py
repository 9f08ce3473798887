"""Code that a process of spamfilter runs before its own: constants that would make a test wait, and defects."""

from pathlib import Path

ROOT = Path(__file__).parents[2]

HOURLY_AT_ONCE = """
from spamfilter.service import expiry
expiry.GRACE_SECONDS = expiry.EXPIRE_EVERY = 0.1
"""
"""The looks of the expiry, a tenth of a second apart instead of an hour."""


def planted(folder: Path, code: str) -> str:
    """A PYTHONPATH by which a process runs this code first."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sitecustomize.py").write_text(code)
    return f"{folder}:{ROOT}"
