"""Files that travel with the package: migrations, the sample configuration, units.

In a wheel they lie inside the package, in a checkout beside it.
"""

from pathlib import Path

from spamfilter.errors import InputError

_INSIDE = Path(__file__).parent / "shipped_files"
_BESIDE = Path(__file__).parent.parent
FOLDERS = ("config", "migrations", "systemd")


def shipped(name: str) -> Path:
    """The path of a shipped file or folder, as in 'config/spamfilter.toml'. Raises InputError."""
    for root in (_INSIDE, _BESIDE):
        path = root / name
        if name.split("/")[0] in FOLDERS and ".." not in name and path.exists():
            return path
    raise InputError(f"{name}: no such file comes with this package; `spamfilter sample-config --list` names them")


def samples() -> list[str]:
    """Names of the samples for an administrator: configuration files and units."""
    found = []
    for folder in ("config", "systemd"):
        root = shipped(folder)
        found += [f"{folder}/{path.relative_to(root)}" for path in root.rglob("*") if path.is_file()]
    return sorted(found)
