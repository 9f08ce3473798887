"""The relay as a process, on a database that is there already."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Running:
    """A relay that is ready. ready, processor: seconds from exec to that; megabytes: resident, now and at most."""

    pid: int
    ready: float
    processor: float
    megabytes: float
    most_megabytes: float


def environment(folder: Path, database: Path) -> dict[str, str]:
    """For commands on this database, and for the relay, one process, whose other files are in `folder`."""
    given = {name: value for name, value in os.environ.items() if not name.startswith(("SPAMFILTER_", "PYTHONDONT"))}
    return given | {
        "SPAMFILTER_STORE__URL": f"sqlite:///{database}",
        "SPAMFILTER_FEEDBACK__SOCKET": str(folder / "socket"),
        "SPAMFILTER_RELAY__WORKERS": "1",
        "SPAMFILTER_RELAY__LISTEN": '["127.0.0.1:0"]',
        "SPAMFILTER_RELAY__NEXT_HOP": f"maildir:{folder}/mail",
        "SPAMFILTER_VERDICT__QUARANTINE": str(folder / "quarantine"),
        "STATE_DIRECTORY": str(folder),
    }


def processor_seconds(pid: int) -> float:
    """Of a process and its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


@contextmanager
def relay(folder: Path, database: Path) -> Iterator[Running]:
    """Start it, and stop it. Raises RuntimeError where it does not come up."""
    began = time.perf_counter()
    command = [sys.executable, "-m", "spamfilter", "serve"]
    with subprocess.Popen(command, env=environment(folder, database), stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said = []
        try:
            for line in process.stderr:
                said.append(line)
                if "ready" in line:
                    break
            else:
                raise RuntimeError("".join(said))
            ready = time.perf_counter() - began
            status = dict(line.split(":", 1) for line in Path(f"/proc/{process.pid}/status").read_text().splitlines())
            sizes = [int(status[name].split()[0]) / 1024 for name in ("VmRSS", "VmHWM")]
            yield Running(process.pid, ready, processor_seconds(process.pid), *sizes)
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate()
