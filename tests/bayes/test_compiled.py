"""The compiled helpers: built without a warning or not at all, tested when loaded, used together or not at all."""

import os
import re
import shutil
import sqlite3
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from spamfilter.bayes import compiled, tokens
from spamfilter.bayes.compiled import build, score_helper, token_helper
from spamfilter.bayes.compiled.self_test import first_difference
from spamfilter.cli import main
from spamfilter.config.likelihood_settings import Learn
from spamfilter.learning.filter import Filter
from spamfilter.learning.retraining import retrain
from spamfilter.mail.message import parse
from spamfilter.stores import open_store
from tests.support.made import mail
from tests.support.real import require_helpers

PACKAGE = Path(compiled.__file__).parents[2]
TOP = PACKAGE.parent
SAY = "from spamfilter.bayes import compiled; print(compiled.token_helper, compiled.score_helper, compiled.in_words())"


@pytest.fixture
def built() -> None:
    require_helpers()


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The package, without its libraries."""
    copied = tmp_path / PACKAGE.name
    shutil.copytree(PACKAGE, copied, ignore=shutil.ignore_patterns("__pycache__", "*.so", "*.txt"))
    return copied


def said(copy: Path, code: str = SAY, **environment: str) -> str:
    here = {name: value for name, value in os.environ.items() if name != "SPAMFILTER_PLAIN"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=copy.parent, env=here | environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def build_there(copy: Path, **environment: str) -> None:
    """As an installation does."""
    code = (
        "import importlib.util, types\n"
        f"spec = importlib.util.spec_from_file_location('build', {str(copy / 'bayes' / 'compiled' / 'build.py')!r})\n"
        "build = importlib.util.module_from_spec(spec); spec.loader.exec_module(build)\n"
        "hook = types.SimpleNamespace(target_name='wheel')\n"
        "build.CompiledHook.initialize(hook, 'standard', {'artifacts': []})\n"
    )
    said(copy, code, **environment)


def alter(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert text.count(old) == 1
    file.write_text(text.replace(old, new))


@pytest.mark.usefixtures("built")
def test_helpers_built_here_are_used(copy: Path) -> None:
    build_there(copy)
    assert said(copy).endswith("by compiled helpers\n")


SPOILT = {
    "a hash that lost half of its bits": (
        "tokens.c",
        "return hash == 0 ? 1 : hash == -1 ? -2 : (int64_t)hash;",
        "return hash == 0 ? 1 : hash == -1 ? -2 : (int)hash;",
        "hashes",
    ),
    "another word": ("tokens.c", "enum { MAX_WORD = 24, ", "enum { MAX_WORD = 40, ", "find"),
    "another place in the table": ("table.h", "((uint64_t)key >> 32)", "((uint64_t)key >> 31 & 0xFFFFFFFF)", "table"),
    "another share": ("arithmetic.h", "fabs(s - h) / (s + h + purity)", "fabs(s - h) / (s + h + 1)", "soft"),
    "another confidence": ("scores.c", "0.25 / n", "0.5 / n", "eddc"),
}


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize("spoilt", SPOILT.values(), ids=SPOILT)
def test_a_helper_that_does_not_compute_what_python_does_is_refused(
    spoilt: tuple[str, str, str, str], copy: Path, tmp_path: Path
) -> None:
    source, old, new, named = spoilt
    alter(copy / "bayes" / "compiled" / source, old, new)
    build_there(copy)
    assert said(copy).startswith("None None in plain Python, four times slower: the helpers do not compute what Python")
    assert said(copy).rstrip().endswith(named)


@pytest.mark.usefixtures("built")
def test_the_relay_logs_that_a_helper_was_refused(copy: Path, tmp_path: Path) -> None:
    alter(copy / "bayes" / "compiled" / "tokens.c", *SPOILT["a hash that lost half of its bits"][1:3])
    build_there(copy)
    environment = {
        **os.environ,
        "HOME": str(tmp_path),
        "SPAMFILTER_RELAY__LISTEN": '["192.0.2.1:25"]',  # nobody has it (RFC 5737): the relay ends here
        "SPAMFILTER_CONFIG": "",
    }
    relay = subprocess.run(
        [sys.executable, "-m", "spamfilter", "serve"], cwd=copy.parent, env=environment, capture_output=True, text=True
    )
    assert (
        "WARNING judging in plain Python, four times slower: the helpers do not compute what Python does: hashes"
        in (relay.stderr)
    )


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("int undeclared(void) { return not_declared_anywhere(1); }", "not_declared_anywhere"),
        ("static int unused(void) { return 0; }", "unused"),
    ],
)
def test_a_warning_of_the_compiler_builds_no_helper_at_all(code: str, reason: str, copy: Path) -> None:
    """The second helper is the one with the warning: the first is not left behind."""
    with (copy / "bayes" / "compiled" / "scores.c").open("a") as source:
        source.write(f"{code}\n")
    build_there(copy)
    assert not [*(copy / "bayes" / "compiled").glob("*.so*")]
    assert "scores.c could not be compiled when spamfilter was installed" in said(copy)
    assert reason in said(copy)


def test_without_a_compiler_the_reason_is_kept(copy: Path) -> None:
    build_there(copy, CC="no-such-compiler")
    assert said(copy) == (
        "None None in plain Python, four times slower: no C compiler when spamfilter was installed:"
        " no-such-compiler: No such file or directory\n"
    )


@pytest.mark.usefixtures("built")
def test_flags_of_the_user_are_honoured(copy: Path) -> None:
    build_there(copy, CFLAGS="-DSURE_TO_BE_SEEN -Dhash_bytes=hash_bytes_of_the_user", LDFLAGS="-Wl,--no-such-option")
    assert "could not be compiled" in said(copy)
    build_there(copy, CFLAGS="-O0 -g", LDFLAGS="-Wl,-z,now")
    assert said(copy).endswith("by compiled helpers\n")


@pytest.mark.usefixtures("built")
def test_one_helper_alone_is_not_used(copy: Path) -> None:
    build_there(copy)
    for library in (copy / "bayes" / "compiled").glob("_scores*"):
        library.unlink()
    assert said(copy).startswith("None None in plain Python")


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize("newer", compiled.SOURCES)
def test_helpers_of_other_sources_are_not_used(newer: str, copy: Path) -> None:
    """As when sources are updated, and the package is not installed anew."""
    build_there(copy)
    with (copy / "bayes" / "compiled" / newer).open("a") as source:
        source.write("/* newer */\n")
    assert said(copy).endswith("the helpers were built from other sources; install spamfilter again\n")


def test_the_environment_can_refuse_the_helpers(copy: Path) -> None:
    assert said(copy, SPAMFILTER_PLAIN="1").startswith("None None in plain Python, four times slower: SPAMFILTER_PLAIN")


@pytest.mark.usefixtures("built")
def test_a_python_newer_than_the_tests_know_is_plain(copy: Path) -> None:
    build_there(copy)
    newer = f"import sys; sys.version_info = ({sys.version_info.major}, 99, 0, 'final', 0); "
    assert "the helpers are tested up to Python 3." in said(copy, newer + SAY)


def test_the_classifiers_name_the_versions_that_helpers_are_used_with() -> None:
    project = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]
    named = [re.fullmatch(r"Programming Language :: Python :: (3)\.(\d+)", name) for name in project["classifiers"]]
    versions = sorted((int(match[1]), int(match[2])) for match in named if match)
    least = tuple(map(int, project["requires-python"].removeprefix(">=").split(".")))
    assert versions == [(3, minor) for minor in range(least[1], compiled.NEWEST_TESTED[1] + 1)]
    assert least[0] == 3


def test_the_hook_and_the_package_speak_of_the_same_files() -> None:
    assert (build.NAMES, build.SOURCES, build.NOT_BUILT) == (compiled.NAMES, compiled.SOURCES, compiled.NOT_BUILT)
    assert {*build.SOURCES} == {
        file.name for file in Path(compiled.__file__).parent.iterdir() if file.suffix in (".c", ".h")
    }


def test_the_version_says_how_mail_is_judged() -> None:
    said = CliRunner().invoke(main, ["--version"]).output
    assert said.rstrip().endswith(f"judging {compiled.in_words()}")


class Halved:
    """The helper of words as gcc 12 made it of a function that was not declared: hashes lost their upper half."""

    def __getattr__(self, name: str) -> Any:
        return getattr(token_helper, name)

    def find(self, parts: object) -> tuple[bytes, bytes, bytes, bytes]:
        spellings, ends, hashes, times = token_helper.find(parts)
        return spellings, ends, np.frombuffer(hashes, np.int64).astype(np.int32).astype(np.int64).tobytes(), times


@pytest.fixture
def halved(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setattr(tokens, "token_helper", Halved())
    return monkeypatch


@pytest.fixture
def taught(tmp_path: Path) -> Iterator[Filter]:
    """A filter that has learnt forty mails of two kinds."""
    with closing(open_store(f"sqlite:///{tmp_path}/store.db")) as store:
        filter = Filter(store, Learn().chosen())
        for number in range(20):
            filter.learn(filter.read(parse(mail(f"cheap {number}", "cheap pills", f"s{number}"))), "spam", "cli")
            filter.learn(filter.read(parse(mail(f"lunch {number}", "see you there", f"h{number}"))), "ham", "cli")
        yield filter


@pytest.mark.usefixtures("built", "halved")
def test_a_relay_that_follows_knew_nothing_where_words_had_two_hashes(taught: Filter) -> None:
    """Its words are spelt in the ledger, and hashed by Python; those of the mail that it judged, by the helper."""
    follower = Filter(taught.store, taught.voices)
    reading = taught.read(parse(mail("cheap", "cheap pills", "new")))
    assert taught.score(reading).log_odds > 1
    assert follower.score(reading).log_odds == 0


@pytest.mark.usefixtures("built", "halved")
def test_marks_were_written_right_all_the_same(taught: Filter, halved: pytest.MonkeyPatch) -> None:
    """Words are stored as they are spelt. What each mark added was of its score, which is the ledger's to say."""
    halved.undo()
    assert Filter(taught.store, taught.voices).verify() == []


def test_words_written_as_one_are_found_and_a_retraining_mends_them(taught: Filter) -> None:
    """As a bulk training wrote them, where the halves of two hashes were the same."""
    store, file = taught.store, Path(taught.store.where)
    with closing(sqlite3.connect(file)) as database, database:
        database.execute("UPDATE words SET spam = spam + 8 WHERE word = 'cheap' AND voice = 'body'")
        database.execute("DELETE FROM words WHERE word = 'pills' AND voice = 'body'")
    assert any("the words of voice body are not the sum of the ledger" in found for found in taught.verify())
    retrain(store, taught.voices, {}, lambda count: None)
    assert Filter(store, taught.voices).verify() == []


@pytest.mark.usefixtures("built")
def test_such_a_helper_does_not_pass_the_proof() -> None:
    class Both(Halved):
        def hashes(self, lines: bytes) -> bytes:
            return np.frombuffer(token_helper.hashes(lines), np.int64).astype(np.int32).astype(np.int64).tobytes()

    assert first_difference(token_helper, score_helper) == ""
    assert first_difference(Halved(), score_helper) == "find"
    assert first_difference(Both(), score_helper) == "hashes"
    assert first_difference(SimpleNamespace(), score_helper).startswith("hashes: ")
