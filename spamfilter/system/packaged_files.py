"""Files that are installed with the package: migrations, the sample configuration, systemd units.

In a wheel they are inside the package, in a checkout beside it.
"""

from pathlib import Path

_INSIDE = Path(__file__).parents[1] / "packaged_files"
_BESIDE = Path(__file__).parents[2]


def shipped(name: str) -> Path:
    """The path of such a folder or file, as in 'config/spamfilter.toml'."""
    inside = _INSIDE / name
    return inside if inside.exists() else _BESIDE / name


def samples() -> list[str]:
    """The names of configuration files and units that an administrator may copy."""
    found = []
    for folder in ("config", "systemd"):
        root = shipped(folder)
        found += [f"{folder}/{path.relative_to(root)}" for path in root.rglob("*") if path.is_file()]
    return sorted(found)
