"""The package as a user gets it: built, and installed into an environment of its own outside the checkout."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SHIPPED = (
    *("spamfilter", "migrations", "config", "systemd", "docs", "benchmarks", "tests"),
    *("pyproject.toml", "README.md"),
)


def copy_checkout(target: Path) -> Path:
    """What a clone would hold."""
    target.mkdir()
    for name in SHIPPED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, target / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        else:
            shutil.copy(source, target / name)
    return target


def clean_environment(home: Path) -> dict[str, str]:
    """The environment of a user who has nothing set, with a home of their own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPAMFILTER_", "PYTHON", "XDG_"))}
    kept.pop("STATE_DIRECTORY", None)
    kept.pop("VIRTUAL_ENV", None)
    return kept | {"HOME": str(home), "PYTHONUNBUFFERED": "1"}


def install_wheel(folder: Path) -> Path:
    """Build the wheel, make an empty environment, install into it; returns the environment's bin folder."""
    checkout = copy_checkout(folder / "checkout")
    run(sys.executable, "-m", "build", "--wheel", "--outdir", str(folder / "dist"), str(checkout))
    (wheel,) = (folder / "dist").glob("*.whl")
    shutil.rmtree(checkout)
    run(sys.executable, "-m", "venv", str(folder / "venv"))
    binaries = folder / "venv" / "bin"
    run(str(binaries / "pip"), "install", "--quiet", "--disable-pip-version-check", str(wheel))
    return binaries


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout
