"""How benchmarks write what they measured."""

import os
import platform
import sys
from datetime import UTC, datetime
from pathlib import Path


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
