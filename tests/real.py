"""The real parts that tests need: programs of other packages, root, and corpora of real mail.

Guarantee: where one is missing the test is skipped with the line that would bring it; with CI=true it fails instead,
so that nothing goes untested unnoticed.
"""

import os
import shutil
import tarfile
import tempfile
from pathlib import Path
from typing import NoReturn

import pytest

SERVER_FOLDERS = ("/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/lib/postfix/sbin", "/usr/libexec/postfix")
"""Where distributions put servers, which an ordinary user's PATH leaves out."""


def missing(sentence: str) -> NoReturn:
    if os.environ.get("CI") == "true":
        pytest.fail(sentence)
    pytest.skip(sentence)


def require(program: str, package: str, *folders: str) -> str:
    """The path of a program, looked for in PATH, the servers' folders and the folders given."""
    path = os.pathsep.join((os.environ.get("PATH", ""), *SERVER_FOLDERS, *filter(None, folders)))
    found = shutil.which(program, path=path)
    if found is None:
        missing(f"{program} is not installed: apt-get install {package}")
    return found


def require_root(reason: str) -> None:
    if os.geteuid() != 0:
        missing(f"needs root: {reason}")


def corpus(name: str) -> Path:
    """The folder of one corpus, unpacked from NAME.tar.xz in the folder that SPAMFILTER_CORPORA names.

    Unpacked once into a cache outside the tree; under another name first, so that a half-unpacked one is never used.
    """
    archives = os.environ.get("SPAMFILTER_CORPORA")
    if not archives:
        missing("SPAMFILTER_CORPORA is not set: it names the folder of the corpora's .tar.xz archives")
    archive = Path(archives) / f"{name}.tar.xz"
    if not archive.is_file():
        missing(f"{archive} is missing")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "spamfilter" / "corpora"
    folder = cache / name
    if folder.is_dir():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix=f".{name}-") as unpacking:
        with tarfile.open(archive) as tar:
            tar.extractall(f"{unpacking}/{name}", filter="data")
        try:
            Path(unpacking, name).rename(folder)
        except OSError:  # another run was first, and its copy is as good
            if not folder.is_dir():
                raise
    return folder


def corpora() -> Path:
    """The folder with every corpus unpacked, each in a folder of its name."""
    archives = Path(os.environ.get("SPAMFILTER_CORPORA") or "/nonexistent").glob("*.tar.xz")
    folders = [corpus(archive.name.removesuffix(".tar.xz")) for archive in archives]
    return folders[0].parent if folders else corpus("spamassassin").parent
