"""Imports point one way: a module may import from lines above its own, never below, nor from neighbours in a plural."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "spamfilter"

ORDER = (
    "errors",
    "shipped",
    "redaction",
    "compiled",
    "line_ends",
    "charsets",
    "message",
    "attributes",
    "seen",
    "features",
    "labels",
    "sources",
    "words",
    "counts",
    "likelihoods",
    "compression",
    "voices",
    "folded",
    "calibration",
    "model",
    "verdict",
    "marking",
    "forwarded",
    "evaluation",
    "intervals",
    "drift",
    "cycles",
    "terminal",
    "logs",
    "places",
    "unix_socket",
    "rights",
    "tls",
    "metrics",
    "excess",
    "shared",
    "memory",
    "ids",
    "stores",
    "summaries",
    "figures",
    "filter",
    "judging",
    "journal",
    "feedback",
    "turning_point",
    "provenance",
    "desk",
    "report",
    "addresses",
    "accounts",
    "learning_rules",
    "sections",
    "config",
    "automatic",
    "resolver",
    "connection",
    "next_hops",
    "quarantine",
    "front_ends",
    "canary",
    "mailboxes",
    "ahead",
    "reader",
    "rounds",
    "batches",
    "first_round",
    "training",
    "retraining",
    "undoing",
    "reviewing",
    "contenders",
    "protocols",
    "evaluating",
    "plots",
    "explanation",
    "rendering",
    "report_text",
    "report_html",
    "report_mail",
    "socket_client",
    "socket_server",
    "listening",
    "event_loop",
    "drop_in",
    "host",
    "following",
    "collecting",
    "status",
    "supervisor",
    "running",
    "daemon",
    "doctor",
    "web",
    "commands",
    "cli",
    "manual",
    "__main__",
)
"""The lines, from the top. The law: code follows it, or it is changed here with a reason in the commit."""

PLURALS = {
    "likelihoods": {"likelihood"},
    "stores": {"store", "schema"},
    "next_hops": {"next_hop", "stuffing"},
    "front_ends": {"front_end"},
    "doctor": {"examination"},
    "web": {"looking", "site", "teaching"},
    "commands": {"command", "subjects"},
    "compiled": {"proof"},
}
"""Package -> the modules in it that its rows may import: what a row must be, and the tables of SQL."""

EXCEPTIONS = {
    ("stores.migrating", "stores.sql"): "migrations run on the engine of the SQL store, and on nothing else",
    ("commands.subjects", "commands.command"): "a mail that is piped in is read alike by all",
}

CORE = ORDER[: ORDER.index("intervals") + 1]
PURE = {
    "abc", "annotated_types", "binascii", "codecs", "collections", "dataclasses", "email", "encodings", "functools",
    "hashlib", "itertools", "json", "math", "numpy", "re", "typing", "zlib",
}  # fmt: skip
"""What the core may import besides itself. None of it reads a file, a socket or a clock."""
IMPURE = {
    "shipped": {"pathlib"},
    "compiled": {"array", "importlib", "os", "pathlib", "sys", "zlib"},
    "compression": {"isal", "os", "zlib"},
}
"""Modules of the core that are about files, and those that look whether there is one."""
BUILD = "compiled.build"
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


def imported(module: str, source: str, is_package: bool = False) -> Iterator[str]:
    """Full dotted names that a module imports anywhere, in functions too."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = ["spamfilter", *filter(None, module.split("."))]
            if node.level:
                above = above[: len(above) - node.level + is_package]
                origin = ".".join([*above, *filter(None, [node.module])])
            else:
                origin = node.module or ""
            for alias in node.names:
                inner = f"{origin}.{alias.name}"
                yield inner if inner.removeprefix("spamfilter.") in MODULES else origin


def complaints(module: str, source: str, is_package: bool = False) -> list[str]:
    """What is wrong with the imports of one module, a sentence each."""
    line = module.split(".")[0]
    if line not in ORDER:
        return [f"spamfilter/{line} has no line yet: choose one in ORDER, below what it imports, above who imports it"]
    found = []
    for name in imported(module, source, is_package):
        first, _, target = name.partition(".")
        if first != "spamfilter":
            if line in CORE and first not in PURE | IMPURE.get(line, set()):
                found.append(f"{module} is core and imports {first}, which is not known to be pure")
            if first in SQL and line != "stores":
                found.append(f"{module} imports {first}: only stores/ knows SQL")
        elif target and target.split(".")[0] not in ORDER:
            found.append(f"{module} imports {target}, which has no line")
        elif target and not _may(module, target):
            found.append(f"{module} imports {target}, which is not above it")
    return found


def _may(module: str, target: str) -> bool:
    ours, theirs = module.split("."), target.split(".")
    if ours[0] != theirs[0]:
        return ORDER.index(theirs[0]) < ORDER.index(ours[0])
    if len(ours) == 1:
        return len(theirs) > 1  # the table imports its rows
    if len(theirs) == 1:
        return False  # a row does not import the table it stands in
    if ours[1] == theirs[1]:
        return True
    return (theirs[1] in PLURALS[ours[0]] and ours[1] not in PLURALS[ours[0]]) or (module, target) in EXCEPTIONS


@pytest.mark.parametrize("module", [name for name in MODULES if name])
def test_a_module_imports_only_from_above(module: str) -> None:
    is_package = (PACKAGE / module.replace(".", "/")).is_dir()
    assert complaints(module, MODULES[module], is_package) == []


def test_the_package_itself_imports_nothing() -> None:
    assert list(imported("", MODULES[""], True)) == []


def test_every_line_has_its_module_and_every_plural_is_a_package() -> None:
    assert {name.split(".")[0] for name in MODULES if name} == set(ORDER)
    assert {name.split(".")[0] for name in MODULES if "." in name} == set(PLURALS)


def test_every_exception_is_still_needed() -> None:
    for module, target in EXCEPTIONS:
        assert f"spamfilter.{target}" in set(imported(module, MODULES[module]))


def test_what_counts_as_pure_is_of_the_standard_library_but_for_numpy_and_bounds() -> None:
    assert PURE - {"numpy", "annotated_types"} <= sys.stdlib_module_names


@pytest.mark.parametrize(
    ("module", "source", "complaint"),
    [
        pytest.param("counts", "from spamfilter.filter import Filter", "filter, which is not above", id="below"),
        pytest.param("counts", "from spamfilter import filter", "filter, which is not above", id="from-the-package"),
        pytest.param("counts", "import spamfilter.filter as f", "filter, which is not above", id="import-as"),
        pytest.param("counts", "from . import filter", "filter, which is not above", id="relative"),
        pytest.param("counts", "from .stores.sql import SqlStore", "stores.sql, which is not", id="relative-deep"),
        pytest.param("counts", "def f():\n    import spamfilter.cli", "cli, which is not above", id="in-a-function"),
        pytest.param("counts", "if 0:\n  from spamfilter.cli import x", "cli, which is not above", id="in-a-condition"),
        pytest.param("counts", "from spamfilter.counts import Counts", "counts, which is not above", id="itself"),
        pytest.param("likelihoods.soft", "import spamfilter.likelihoods.multinomial", "multinomial", id="neighbour"),
        pytest.param("likelihoods.soft", "from spamfilter.likelihoods import Likelihood", "likelihoods", id="table"),
        pytest.param("likelihoods.likelihood", "import spamfilter.likelihoods.soft", "soft", id="interface-to-row"),
        pytest.param("stores.store", "import spamfilter.stores.schema", "schema", id="interface-to-schema"),
        pytest.param("stores.sql", "import spamfilter.stores.migrating", "migrating", id="exception-backwards"),
        pytest.param("front_ends.smtp.wire", "import spamfilter.front_ends", "front_ends", id="row-package-to-table"),
        pytest.param("counts", "import time", "core and imports time", id="clock"),
        pytest.param("counts", "import datetime", "core and imports datetime", id="calendar"),
        pytest.param("message", "from pathlib import Path", "core and imports pathlib", id="files"),
        pytest.param("marking", "def f():\n    import logging", "core and imports logging", id="logging-in-function"),
        pytest.param("evaluation", "import asyncio.events", "core and imports asyncio", id="asyncio"),
        pytest.param("cli", "import sqlalchemy.orm", "only stores/ knows SQL", id="sql-outside"),
        pytest.param("novelty", "", "novelty has no line yet: choose one", id="new-module"),
        pytest.param("cli", "import spamfilter.novelty", "novelty, which has no line", id="import-of-new-module"),
    ],
)
def test_a_wrong_import_is_found(module: str, source: str, complaint: str) -> None:
    (found,) = complaints(module, source)
    assert complaint in found


@pytest.mark.parametrize(
    ("module", "source"),
    [
        pytest.param("cli", "from spamfilter import __version__, config", id="version-and-module"),
        pytest.param("stores.sql", "from spamfilter.stores import schema", id="schema-in-stores"),
        pytest.param("likelihoods", "from spamfilter.likelihoods.soft import Soft", id="table-to-row"),
        pytest.param("front_ends.smtp.session", "from spamfilter.front_ends.smtp import xforward", id="one-row"),
        pytest.param("shipped", "import pathlib", id="the-part-about-files"),
    ],
)
def test_a_right_import_is_let_through(module: str, source: str) -> None:
    assert complaints(module, source) == []
