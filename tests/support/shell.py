"""The commands as a user types them."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from click.testing import CliRunner, Result

from spamfilter.bayes.labels import Label
from spamfilter.cli import main
from spamfilter.config.settings import Settings
from spamfilter.learning.filter import Filter
from spamfilter.stores import Store, open_store

TALKATIVE = ("train", "mark-spam", "mark-ham", "forget", "import")
"""Commands that say on standard error into which database they learn, or what the relay rejects then."""


@dataclass(frozen=True)
class Shell:
    """A user with a folder of their own, and a database in it."""

    folder: Path

    @property
    def url(self) -> str:
        return f"sqlite:///{self.folder}/spamfilter.db"

    def run(self, *words: object, stdin: bytes = b"") -> Result:
        return CliRunner().invoke(main, [str(word) for word in words], input=stdin)

    def done(self, *words: object, stdin: bytes = b"") -> str:
        """Runs a command that must succeed; returns its output."""
        result = self.run(*words, stdin=stdin)
        assert (result.exit_code, result.stderr) == (0, result.stderr if words[0] in TALKATIVE else "")
        return result.stdout

    def fails(self, *words: object, stdin: bytes = b"", code: int = 2) -> str:
        """Runs a command that must fail with one line on standard error; returns that."""
        result = self.run(*words, stdin=stdin)
        assert isinstance(result.exception, SystemExit)
        assert result.exit_code == code
        assert result.stdout == ""
        assert result.stderr.startswith("spamfilter: ")
        assert result.stderr.count("\n") == 1
        return result.stderr

    def write(self, name: str, content: bytes) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return path

    @contextmanager
    def store(self) -> Iterator[Store]:
        store = open_store(self.url)
        try:
            yield store
        finally:
            store.close()

    def learnt(self) -> tuple[dict[Label, int], list[str]]:
        """Messages learnt of each class; and what a check of the database finds."""
        with self.store() as store:
            return dict(store.load([]).learnt), Filter(store, Settings().voices(), whole=False).verify()

    def rows(self, table: str) -> list[tuple[object, ...]]:
        connection = sqlite3.connect(self.folder / "spamfilter.db")
        try:
            return connection.execute(f"SELECT * FROM {table}").fetchall()
        finally:
            connection.close()
