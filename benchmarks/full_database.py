"""Databases of any size, made in no time: so many words, learnings and journal rows, all consistent in their totals."""

import os
import random
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path

from sqlalchemy import Connection, func, insert, select, update

from spamfilter.bayes.labels import LABELS
from spamfilter.bayes.token_codec import Packed, pack
from spamfilter.config.likelihood_settings import Learn
from spamfilter.learning.bulk.training import Outcome, train
from spamfilter.learning.filter import Filter
from spamfilter.mail.mailboxes import Mail
from spamfilter.stores import JournalEntry, open_store, schema
from spamfilter.stores.sql import SqlStore
from spamfilter.system.batches import batches

SHARES = {"fields": 0.5, "phrases": 0.4, "body": 0.1}
"""Of the words, by voice: as they are after 2,000 mails of TREC 2007."""
JOURNALLED = timedelta(days=30)
TOGETHER = 10_000
"""Rows of one statement."""
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
        assert isinstance(store, SqlStore)
        with store.writing() as connection:
            for voice, share in SHARES.items():
                _fill(connection, voice, round(words * share))
            for table, rows in ((schema.ledger, _learnings(ledger)), (schema.journal, _verdicts(journal))):
                while some := [*islice(rows, TOGETHER)]:
                    connection.execute(insert(table), some)


def _fill(connection: Connection, voice: str, size: int) -> None:
    """Let a voice have so many words, half of them of each class."""
    words = schema.words
    known = connection.scalar(select(func.count()).where(words.c.voice == voice)) or 0
    names = sorted((f"{number:x}!{number * 7919 % 1000}", number % 2) for number in range(known, size))
    for some in batches(names, TOGETHER):
        rows = [{"word": word, "ham": 8 * odd, "spam": 8 - 8 * odd} for word, odd in some]
        connection.execute(insert(words).values(edition=0, voice=voice), rows)
    kept = schema.vocabularies
    connection.execute(update(kept).where(kept.c.voice == voice).values(words=max(known, size)))
    totals = schema.classes
    for label in LABELS:
        total = connection.scalar(select(func.sum(words.c[label])).where(words.c.voice == voice))
        of_label = totals.c.voice == voice, totals.c["class"] == label
        connection.execute(update(totals).where(*of_label).values(words=total))


def _learnings(size: int) -> Iterator[dict[str, object]]:
    """Entries that have added nothing, as most of a filter that errs rarely; their tokens are kept all the same."""
    chance, now = random.Random(2), datetime.now(UTC)
    some = [
        {
            voice: {b"%s%d" % (voice.encode(), chance.getrandbits(24)): 1 for _ in range(LEDGER_WORDS)}
            for voice in SHARES
        }
        for _ in range(100)
    ]
    packed = [Packed(pack(tokens)) for tokens in some]
    for number in range(size):
        yield {
            "id": 1_000 + number,
            "at": now - JOURNALLED * (size - number) / size,
            "digest": os.urandom(16),
            "label": LABELS[number % 2],
            "tokens": packed[number % 100],
            "source": "cli",
            "by": "benchmark",
        }


def _verdicts(size: int) -> Iterator[dict[str, object]]:
    now = datetime.now(UTC)
    entry = JournalEntry(
        "", now, sender="a@example.org", recipients=["b@example.net"], size=5_000, client="192.0.2.1", log_odds=-1.5,
        score=0.25, reply="250 2.0.0 Ok", judge_us=500, total_us=2_000,
        evidence=[(f"subject:word{number}", -0.5) for number in range(8)],
    )  # fmt: skip
    facts = {name.rstrip("_"): getattr(entry, name) for name in JournalEntry.__dataclass_fields__}
    for number in range(size):
        yield {
            **facts,
            "id": f"{number:026d}",
            "at": now - JOURNALLED * (size - number) / size,
            "digest": os.urandom(16),
            "message_id": f"<{number}@example.org>",
            "subject": f"letter {number}",
            "class": ("ham", "spam", "ham", "unsure")[number % 4],
        }
