"""The real parts that tests need: programs of other packages, root, and corpora of real mail.

Guarantee: where one is missing the test is skipped with the line that would bring it; with CI=true it fails instead,
so that nothing goes untested unnoticed.
"""

import os
import shutil
from pathlib import Path
from typing import NoReturn

import pytest
from corpora import unpacked

from spamfilter.bayes.compiled import token_helper

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


def require_helpers() -> None:
    """The compiled helpers, which there is nothing to compare with Python without."""
    if os.environ.get("SPAMFILTER_PLAIN"):
        pytest.skip("SPAMFILTER_PLAIN is set")
    if token_helper is None:
        missing("the compiled helpers are missing: install a C compiler and Python's headers, then the package again")


def require_root(reason: str) -> None:
    if os.geteuid() != 0:
        missing(f"needs root: {reason}")


def corpus(name: str) -> Path:
    """The folder of one corpus of real mail."""
    try:
        return unpacked(name)
    except FileNotFoundError as error:
        missing(str(error))


def corpora() -> Path:
    """The folder with every corpus unpacked, each in a folder of its name."""
    archives = Path(os.environ.get("SPAMFILTER_CORPORA") or "/nonexistent").glob("*.tar.xz")
    folders = [corpus(archive.name.removesuffix(".tar.xz")) for archive in archives]
    return folders[0].parent if folders else corpus("spamassassin").parent
