"""Is each protection needed? Each is taken out in turn, and a test must fail without it.

benchmarks/protections/AREA.toml lists them: a name, the file, the exact text that protects, what stands there without
the protection, and the test. In a copy of the tree the test must pass; then the protection is taken out of the copy,
the test must fail, and the file is put back. The tree itself is never changed.

    python benchmarks/protections.py [--area NAME] [--only WORDS] [--result FILE]

A test takes some seconds, all of them an hour; those that start servers need root, as in CI.
"""

import argparse
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path

from results import write_result

ROOT = Path(__file__).parents[1]
LISTS = ROOT / "benchmarks" / "protections"
KEYS = {"name", "file", "old", "new", "test"}
SECONDS = 300.0
"""A test that has not ended by then hangs, which is a failure, too: the slowest takes a tenth of it."""
FAILED = 1
"""pytest's exit code where tests were run and some failed; others mean that it could not run them."""
SHOWN = 100
"""Characters of what a test says without a protection."""


@dataclass(frozen=True)
class Protection:
    """One row of the lists. file: relative to the tree."""

    area: str
    name: str
    file: str
    old: str
    new: str
    test: str

    def taken_out(self, source: str) -> str:
        """The source of its file without it. Raises ValueError where the list is out of date."""
        if source.count(self.old) != 1:
            raise ValueError(f"{self.file}: the text of {self.name!r} occurs {source.count(self.old)} times, not once")
        changed = source.replace(self.old, self.new)
        if changed == source:
            raise ValueError(f"{self.file}: without {self.name!r} nothing is changed")
        if self.file.endswith(".py"):
            try:
                compile(changed, self.file, "exec", dont_inherit=True)
            except SyntaxError as error:  # or every test would fail, and nothing be shown
                raise ValueError(f"{self.file}: without {self.name!r} it is no Python: {error}") from error
        return changed


def protections(folder: Path = LISTS) -> list[Protection]:
    """All rows of all lists. Raises ValueError where one is not complete."""
    found = []
    for file in sorted(folder.glob("*.toml")):
        for row in tomllib.loads(file.read_text(encoding="utf-8"))["protection"]:
            if set(row) != KEYS:
                raise ValueError(f"{file}: {row.get('name')}: the keys must be {', '.join(sorted(KEYS))}")
            found.append(Protection(file.stem, **row))
    return found


def copied(folder: Path) -> Path:
    """A copy of the tree, without what was made in it."""
    copy = folder / "tree"
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".*", "__pycache__", "*.pyc", "venv"))
    return copy


def run(copy: Path, test: str) -> tuple[int | None, str]:
    """pytest's exit code, None where it hangs, and what it says."""
    environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", test]
    # Into a file: what a killed test has started may hold a pipe open for ever.
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            command, cwd=copy, env=environment, stdout=output, stderr=output, start_new_session=True
        )
        code: int | None
        try:
            code = process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)  # its fixtures end what they have started
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(SECONDS)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            code = None
        output.seek(0)
        return code, output.read()


def without(copy: Path, protection: Protection) -> tuple[bool, str]:
    """Whether its test fails without it, and what the test says then."""
    file = copy / protection.file
    source = file.read_text(encoding="utf-8")
    file.write_text(protection.taken_out(source), encoding="utf-8")
    try:
        code, said = run(copy, protection.test)
    finally:
        file.write_text(source, encoding="utf-8")
    if code is None:
        return True, f"it does not end within {SECONDS:.0f} s"
    found = re.findall(r"^E +(\S.*)$", said, re.MULTILINE)
    return code == FAILED, found[0] if found else said.strip().splitlines()[-1]


def cell(text: str) -> str:
    """Text that fits into a table."""
    text = re.sub(r"/(?:tmp|dev/shm)/(?:\S+/|\S*\.\.\.)", "", " ".join(text.split()))
    return (text if len(text) <= SHOWN else text[: SHOWN - 1] + "…").replace("|", "\\|").replace("`", "'")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--area", help="only this list")
    parser.add_argument("--only", default="", help="only those with these words in their names")
    parser.add_argument("--result", type=Path, help="write the table to this file, too")
    arguments = parser.parse_args()
    chosen = [
        protection
        for protection in protections()
        if arguments.area in (None, protection.area) and arguments.only in protection.name
    ]
    with tempfile.TemporaryDirectory(prefix="sf-", ignore_cleanup_errors=True) as folder:
        copy = copied(Path(folder))
        passes: dict[str, bool] = {}
        lines, needless = [], []
        for number, protection in enumerate(chosen, 1):
            if protection.test not in passes:
                passes[protection.test] = run(copy, protection.test)[0] == 0
            fails, how = without(copy, protection) if passes[protection.test] else (False, "fails with it, too")
            print(f"{number} of {len(chosen)}: {protection.name}: {fails or how}", file=sys.stderr, flush=True)
            lines.append(
                f"| {protection.area} | {cell(protection.name)} | {protection.file} | {cell(protection.test)}"
                f" | {'yes' if fails else 'NO'} | `{cell(how)}` |"
            )
            needless += [] if fails else [protection.name]
    table = "\n".join(
        ["| area | protection | file | test | fails without it | says |", "|---|---|---|---|---|---|", *lines, ""]
    )
    said = f"No test fails without: {'; '.join(needless)}" if needless else "Every test fails without its protection."
    print(f"{table}\n{said}")
    if arguments.result:
        write_result(arguments.result, "Protections taken out, one at a time", __file__, f"{table}\n{said}\n")
    if needless:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
