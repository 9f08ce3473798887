"""Where benchmarks find corpora and how they write what they measured."""

import os
import platform
import sys
import tarfile
import tempfile
from datetime import UTC, datetime
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "spamfilter" / "corpora"


def corpora(name: str) -> Path:
    """The unpacked folder of a corpus, unpacked into the cache on first use. Exits if it is not there."""
    target = CACHE / name
    if target.is_dir():
        return target
    archive = Path(os.environ.get("SPAMFILTER_CORPORA", "")) / f"{name}.tar.xz"
    if not archive.is_file():
        raise SystemExit(f"{archive}: not there; set SPAMFILTER_CORPORA to the folder of the corpora")
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        with tarfile.open(archive) as tar:
            tar.extractall(folder, filter="data")
        Path(folder).rename(target)
        Path(folder).mkdir()  # the context removes what it made
    return target


def write_result(file: Path, title: str, script: str, text: str) -> None:
    """A result file: what was measured, when, where, by which command, and the figures."""
    command = " ".join(["python", f"benchmarks/{Path(script).name}", *sys.argv[1:]])
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.machine(),
    )
    file.write_text(
        f"# {title}\n\n{datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} cores of {model},"
        f" Python {platform.python_version()}, {platform.system()} {platform.release()}\n\n    {command}\n\n{text}",
        encoding="utf-8",
    )
