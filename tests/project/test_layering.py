"""The rooms of the package: a room imports rooms above it in this table, never below, and no room has a cycle."""

import ast
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "spamfilter"

ROOMS = (
    "errors",
    "system",
    "mail",
    "bayes",
    "stores",
    "config",
    "learning",
    "evaluation",
    "tables",
    "relay",
    "reports",
    "service",
    "doctor",
    "web",
    "commands",
    "cli",
    "__main__",
)
"""In the order of a mail's way, from what needs nothing to what people type."""

PURE = {
    "abc", "annotated_types", "binascii", "codecs", "collections", "dataclasses", "email", "encodings", "functools",
    "hashlib", "html", "itertools", "json", "math", "numpy", "operator", "re", "string", "typing", "unicodedata",
    "zlib",
}  # fmt: skip
"""What mail/ and bayes/ may import besides this package. None of it opens a file, a socket or looks at a clock."""
IMPURE = {
    "mail.mailboxes": {"mmap", "os", "pathlib"},
    "bayes": {"importlib"},
    "bayes.estimator": {"sklearn"},
    "bayes.compiled": {"importlib", "os", "pathlib", "sys"},
    "bayes.compiled.self_test": {"array"},
}
"""Modules of these rooms that are about files, and what they need for it."""
BUILD = "bayes.compiled.build"
"""Runs when the package is built, and is no part of the program."""
SQL = {"sqlalchemy", "sqlite3", "alembic"}


def modules() -> dict[str, str]:
    """Dotted name below the package -> source; a package's __init__ has the package's name, '' is the package."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path.read_text(encoding="utf-8")
    del found[BUILD]
    return found


MODULES = modules()


def imported(source: str) -> Iterator[str]:
    """Full dotted names that a module imports anywhere, in functions too."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports name the package"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner.removeprefix("spamfilter.") in MODULES else str(node.module)


def complaints(module: str, source: str) -> list[str]:
    """What is wrong with the imports of one module, a sentence each."""
    room = module.split(".")[0]
    if room not in ROOMS:
        return [f"spamfilter/{room} is no room: put the module into one, or add a row to ROOMS"]
    found = []
    for name in imported(source):
        first, _, target = name.partition(".")
        if first != "spamfilter":
            if room in ("mail", "bayes") and first not in PURE | IMPURE.get(module, set()):
                found.append(f"{module} imports {first}, which is not known to be pure")
            if first in SQL and room != "stores":
                found.append(f"{module} imports {first}: only stores/ knows SQL")
        elif target and (theirs := target.split(".")[0]) != room and theirs not in ROOMS[: ROOMS.index(room)]:
            found.append(f"{module} imports {target}, and {theirs} is not above {room}")
    return found


@pytest.mark.parametrize("module", [name for name in MODULES if name])
def test_a_module_imports_only_from_rooms_above(module: str) -> None:
    assert complaints(module, MODULES[module]) == []


def test_the_package_itself_imports_nothing() -> None:
    assert list(imported(MODULES[""])) == []


def test_every_row_is_a_room() -> None:
    assert {name.split(".")[0] for name in MODULES if name} == set(ROOMS)


@pytest.mark.parametrize("room", [room for room in ROOMS if (PACKAGE / room).is_dir()])
def test_a_room_has_no_cycle(room: str) -> None:
    graph = {
        module: {name.removeprefix("spamfilter.") for name in imported(source) if name.startswith(f"spamfilter.{room}")}
        for module, source in MODULES.items()
        if module.split(".")[0] == room
    }
    try:
        TopologicalSorter({module: names - {module} for module, names in graph.items()}).prepare()
    except CycleError as error:
        pytest.fail(f"a cycle: {error.args[1]}")


@pytest.mark.parametrize("room", [room for room in ROOMS if (PACKAGE / room).is_dir()])
def test_a_room_says_what_happens_in_it(room: str) -> None:
    """In its docstring: what happens here, what it may import, where to start reading."""
    said = ast.get_docstring(ast.parse(MODULES[room])) or ""
    assert len(said.splitlines()) in range(3, 9), f"spamfilter/{room}/__init__.py: three to eight lines"
    assert "Imports" in said
    assert "Start" in said


@pytest.mark.parametrize("folder", sorted({path.parent for path in PACKAGE.rglob("*.py")} - {PACKAGE}), ids=str)
def test_a_folder_is_no_longer_than_a_reader_can_oversee(folder: Path) -> None:
    assert len([*folder.glob("*.py")]) <= 17


@pytest.mark.parametrize(
    ("module", "source", "complaint"),
    [
        pytest.param("bayes.counts", "from spamfilter.learning.filter import Filter", "not above bayes", id="below"),
        pytest.param("bayes.counts", "import spamfilter.learning.filter as f", "not above bayes", id="import-as"),
        pytest.param("bayes.counts", "def f():\n  import spamfilter.stores", "not above bayes", id="in-a-function"),
        pytest.param("bayes.counts", "import time", "not known to be pure", id="clock"),
        pytest.param("bayes.counts", "import socket", "not known to be pure", id="socket"),
        pytest.param("learning.filter", "import sqlalchemy", "only stores/ knows SQL", id="sql"),
        pytest.param("elsewhere", "import re", "is no room", id="no-room"),
        pytest.param("stores.store", "from spamfilter.learning import filter", "not above stores", id="of-a-package"),
    ],
)
def test_a_wrong_import_is_found(module: str, source: str, complaint: str) -> None:
    assert any(complaint in found for found in complaints(module, source))


def test_the_standard_library_is_what_it_is_taken_for() -> None:
    assert {"time", "socket", "os"} <= sys.stdlib_module_names - PURE
