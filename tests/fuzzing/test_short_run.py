"""Some hundred runs of every target under atheris: the fuzzer itself works, and what it meets at once is mended.

Where there is no atheris, which has wheels for Linux only, this is left out, and says so.
"""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzzing.targets import TARGETS
from tests.support.real import missing

ROOT = Path(__file__).parents[2]
RUNS = 250


@pytest.mark.parametrize("name", TARGETS)
def test_a_target_holds_for_some_runs(name: str, tmp_path: Path) -> None:
    if importlib.util.find_spec("atheris") is None:
        missing("atheris is not installed: pip install atheris, which has wheels for Linux")
    command = [
        sys.executable, "benchmarks/fuzz.py", "--target", name, "--runs", str(RUNS), "--nice", "0",
        "--findings", str(tmp_path / "findings"), "--inputs", str(tmp_path / "inputs"),
    ]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    evidence = len(list((ROOT / "tests/evidence" / name).iterdir()))
    assert int(done.stdout.split("|")[2].replace(",", "")) >= evidence, done.stdout
