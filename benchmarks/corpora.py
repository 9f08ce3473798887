"""Real mail for benchmarks and tests: archives unpacked once, outside the tree.

SPAMFILTER_CORPORA names the folder of the .tar.xz archives.
"""

import os
import tarfile
import tempfile
from pathlib import Path


def unpacked(name: str) -> Path:
    """The folder of one corpus. Raises FileNotFoundError with a sentence where its archive is missing.

    Unpacked under another name first, so that a half-unpacked one is never used.
    """
    archives = os.environ.get("SPAMFILTER_CORPORA")
    if not archives:
        raise FileNotFoundError("SPAMFILTER_CORPORA is not set: it names the folder of the corpora's .tar.xz archives")
    archive = Path(archives) / f"{name}.tar.xz"
    if not archive.is_file():
        raise FileNotFoundError(f"{archive} is missing")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "spamfilter" / "corpora"
    folder = cache / name
    if folder.is_dir():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix=f".{name}-") as unpacking:
        with tarfile.open(archive) as tar:
            tar.extraction_filter = getattr(tarfile, "data_filter", None)  # which Debian 12's Python 3.11.2 lacks
            tar.extractall(f"{unpacking}/{name}")
        try:
            Path(unpacking, name).rename(folder)
        except OSError:  # another run was first, and its copy is as good
            if not folder.is_dir():
                raise
    return folder
