"""Databases of any size, made in no time: so many words, learnings and journal rows, all consistent in their totals."""

import os
import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

from spamfilter.bayes.token_codec import pack
from spamfilter.config.likelihood_settings import Learn
from spamfilter.learning.bulk_training import Outcome, train
from spamfilter.learning.filter import Filter
from spamfilter.mail.mailboxes import Mail
from spamfilter.stores import open_store

SHARES = {"fields": 0.5, "phrases": 0.4, "body": 0.1}
"""Of the words, by voice: as they are after 2,000 mails of TREC 2007."""
JOURNALLED = timedelta(days=30)
LEDGER_WORDS = 150
"""Distinct words of each voice in a learning that is made up."""


def some_mails(count: int, words: int = 50_000) -> list[Mail]:
    """Mails of some hundred words, of so many, that are all different."""
    chance = random.Random(1)

    def text(number: int) -> bytes:
        said = " ".join(f"word{chance.randrange(words)}" for _ in range(150))
        head = f"Message-ID: <{number}@example.org>\r\nFrom: a@example.org\r\nSubject: letter {number}\r\n"
        return f"{head}\r\n{said}\r\n".encode()

    texts = [text(number) for number in range(count)]
    return [Mail(f"mail {number}", lambda number=number: texts[number]) for number in range(count)]  # type: ignore[misc]


def make(path: Path, words: int, ledger: int = 0, journal: int = 0) -> None:
    """A database that has learnt 20 mails, filled up with words, ledger and journal rows."""
    with closing(open_store(f"sqlite:///{path}")) as store:
        mails = some_mails(20)
        labelled = [("spam" if number % 2 else "ham", mail) for number, mail in enumerate(mails)]
        train(Filter(store, Learn().chosen()), labelled, "benchmark", lambda count: None, Outcome())  # type: ignore[arg-type]
    with closing(sqlite3.connect(path)) as connection, connection:
        for voice, share in SHARES.items():
            _fill(connection, voice, round(words * share))
        connection.executemany(f"INSERT INTO ledger VALUES ({', '.join('?' * 10)})", _learnings(ledger))
        connection.executemany(f"INSERT INTO journal VALUES ({', '.join('?' * 18)}, '')", _verdicts(journal))


def _fill(connection: sqlite3.Connection, voice: str, size: int) -> None:
    (known,) = connection.execute("SELECT count(*) FROM words WHERE voice = ?", (voice,)).fetchone()
    rows = (
        (voice, f"{number:x}!{number * 7919 % 1000}", 8 * (number % 2), 8 - 8 * (number % 2))
        for number in range(known, size)
    )
    connection.executemany("INSERT INTO words VALUES (?, ?, ?, ?, 1)", sorted(rows))
    connection.execute("UPDATE vocabularies SET words = max(words, ?) WHERE voice = ?", (size, voice))
    for label in ("ham", "spam"):
        (total,) = connection.execute(f"SELECT sum({label}) FROM words WHERE voice = ?", (voice,)).fetchone()
        connection.execute("UPDATE classes SET words = ? WHERE voice = ? AND class = ?", (total, voice, label))


def _learnings(size: int) -> Iterator[tuple[object, ...]]:
    """Entries that have added nothing, as most of a filter that errs rarely; their tokens are kept all the same."""
    chance, now = random.Random(2), datetime.now(UTC).replace(tzinfo=None)
    packed = [
        pack(
            {
                voice: {b"%s%d" % (voice.encode(), chance.getrandbits(24)): 1 for _ in range(LEDGER_WORDS)}
                for voice in SHARES
            }
        )
        for _ in range(100)
    ]
    for number in range(size):
        at = now - JOURNALLED * (size - number) / size
        yield (
            1_000 + number, at.isoformat(sep=" ", timespec="microseconds"), os.urandom(16),
            "spam" if number % 2 else "ham", "{}", "[0, 0, 0, 0]", packed[number % 100], "cli", "benchmark", None,
        )  # fmt: skip


def _verdicts(size: int) -> Iterator[tuple[object, ...]]:
    now = datetime.now(UTC).replace(tzinfo=None)
    evidence = str([[f"subject:word{number}", -0.5] for number in range(8)]).replace("'", '"')
    for number in range(size):
        at = now - JOURNALLED * (size - number) / size
        yield (
            f"{number:026d}", at.isoformat(sep=" ", timespec="microseconds"), os.urandom(16),
            f"<{number}@example.org>", "a@example.org", '["b@example.net"]', f"letter {number}", 5_000, "192.0.2.1",
            -1.5, 0.25, ("ham", "spam", "ham", "unsure")[number % 4], "pass", "250 2.0.0 Ok", 500, 2_000, evidence,
            None,
        )  # fmt: skip
