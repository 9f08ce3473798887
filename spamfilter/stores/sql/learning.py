"""A transaction of learning in SQL."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import astuple, replace
from itertools import islice
from typing import Any

from sqlalchemy import Connection, bindparam, delete, insert, update
from sqlalchemy.dialects.sqlite import insert as upsert

from spamfilter.calibration import Calibration
from spamfilter.counts import LABELS, Counts, Growth, Label, move
from spamfilter.errors import CountError
from spamfilter.features import Token
from spamfilter.model import State
from spamfilter.stores.schema import classes, ledger, tallies, vocabularies, words
from spamfilter.stores.sql.queries import (
    REBUILT,
    active,
    bump,
    columns,
    entries_after,
    history,
    part_state,
    put_setting_row,
    setting,
)
from spamfilter.stores.store import Entry, Learning, Relearnt

BATCH = 10_000
"""Rows of one INSERT when all counts are written anew."""


class SqlLearning(Learning):
    """One write transaction; the changes of words are summed, and written at its end or before a look at them."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._words: dict[tuple[str, Token], dict[Label, int]] = {}
        self._classes: dict[tuple[str, Label], list[int]] = {}
        self._vocabulary: dict[str, int] = {}
        self._tallies: dict[tuple[str, Label], dict[int, int]] = {}
        self._learnt: dict[Label, int] = dict.fromkeys(LABELS, 0)
        self._calibration: Calibration | None = None
        self._last = 0

    def state(self, words: Mapping[str, Iterable[Token]]) -> State:
        self.flush()
        return part_state(self._connection, words)

    def active(self, digest: bytes) -> Entry | None:
        return active(self._connection, digest)

    def history(self, digest: bytes) -> list[Entry]:
        return history(self._connection, digest)

    def entries_after(self, last: int) -> list[Entry]:
        return entries_after(self._connection, last)

    def append(self, entry: Entry) -> Entry:
        row = {key: value for key, value in columns(entry).items() if key != "id"}
        if entry.undoes:
            row["tokens"] = None  # they stand in the row that is undone
        written = self._connection.execute(insert(ledger).values(**row)).inserted_primary_key
        assert written is not None
        self._learnt[entry.label] += -1 if entry.undoes else 1
        self._last = int(written[0])
        return replace(entry, id=self._last)

    def change(self, voice: str, label: Label, deltas: Mapping[Token, int], messages: int, growth: Growth) -> None:
        for word, delta in deltas.items():
            change = self._words.setdefault((voice, word), dict.fromkeys(LABELS, 0))
            change[label] += delta
        totals = self._classes.setdefault((voice, label), [0, 0])
        totals[0] += messages
        totals[1] += sum(deltas.values())
        self._vocabulary[voice] = self._vocabulary.get(voice, 0) + growth.vocabulary
        move(self._tallies.setdefault((voice, label), {}), growth.tallies)

    def calibrate(self, calibration: Calibration) -> None:
        self._calibration = calibration

    def rebuild(self, state: State, lessons: Iterable[Relearnt]) -> None:
        write = self._connection.execute
        for changes in (self._words, self._classes, self._vocabulary, self._tallies):
            changes.clear()  # what this transaction has changed before is replaced, too
        self._calibration = None
        for table in (words, classes, vocabularies, tallies):
            write(delete(table))
        for voice, counts in state.counts.items():
            for rows, table in ((_words_of(voice, counts, state.last), words), (_tallies_of(voice, counts), tallies)):
                while batch := list(islice(rows, BATCH)):
                    write(insert(table), batch)
            write(insert(vocabularies), {"voice": voice, "words": counts.vocabulary})
            for label in LABELS:
                total = {"messages": counts.messages[label], "words": counts.occurrences[label]}
                write(insert(classes), {"voice": voice, "class": label, **total})
        write(update(ledger).values(added={}, calibrated=[0, 0, 0, 0]))
        here = ledger.c.id == bindparam("entry")
        amounts = update(ledger).where(here).values(added=bindparam("new_added"), calibrated=bindparam("new_step"))
        tokens = update(ledger).where(here).values(tokens=bindparam("new_tokens"))
        for lesson in lessons:
            write(amounts, {"entry": lesson.id, "new_added": dict(lesson.added), "new_step": list(lesson.calibrated)})
            if lesson.tokens is not None:
                write(tokens, {"entry": lesson.id, "new_tokens": lesson.tokens})
        self.put_setting("calibration", list(astuple(state.calibration)))
        self.put_setting(REBUILT, (setting(self._connection, REBUILT) or 0) + 1)

    def put_setting(self, name: str, value: object) -> None:
        put_setting_row(self._connection, name, value)

    def flush(self) -> None:
        changed = [
            {"voice": voice, "word": word.decode(), **change, "touched": self._last}
            for (voice, word), change in self._words.items()
            if any(change.values())
        ]
        more = [row for row in changed if row["ham"] >= 0 and row["spam"] >= 0]
        less = [row for row in changed if row["ham"] < 0 or row["spam"] < 0]
        if more:
            adding = upsert(words)
            sums = {name: words.c[name] + adding.excluded[name] for name in LABELS}
            self._connection.execute(
                adding.on_conflict_do_update(
                    index_elements=[words.c.voice, words.c.word],
                    set_={**sums, "touched": adding.excluded.touched},
                ),
                more,
            )
        if less:
            self._take_away(less)
        for (voice, label), (messages, total) in self._classes.items():
            bump(self._connection, classes, {"voice": voice, "class": label}, {"messages": messages, "words": total})
        for voice, count in self._vocabulary.items():
            bump(self._connection, vocabularies, {"voice": voice}, {"words": count})
        moved = [
            {"voice": voice, "class": label, "count": count, "words": words}
            for (voice, label), moved in self._tallies.items()
            for count, words in moved.items()
        ]
        if moved:
            self._move(moved)
        if any(self._learnt.values()):
            learnt = setting(self._connection, "learnt") or dict.fromkeys(LABELS, 0)
            totals = {label: learnt[label] + self._learnt[label] for label in LABELS}
            put_setting_row(self._connection, "learnt", totals)
        if self._calibration is not None:
            put_setting_row(self._connection, "calibration", list(astuple(self._calibration)))
        self._words.clear()
        self._classes.clear()
        self._vocabulary.clear()
        self._tallies.clear()
        self._learnt = dict.fromkeys(LABELS, 0)

    def _move(self, moved: list[dict[str, Any]]) -> None:
        """Tallies that words have left, and joined; those that no word has any more go."""
        self._connection.execute(upsert(tallies).on_conflict_do_nothing(), [{**row, "words": 0} for row in moved])
        rows = [{f"new_{key}": value for key, value in row.items()} for row in moved]
        here = tallies.c.count == bindparam("new_count")
        for name in ("voice", "class"):
            here &= tallies.c[name] == bindparam(f"new_{name}")
        self._connection.execute(
            update(tallies).where(here).values(words=tallies.c.words + bindparam("new_words")), rows
        )
        self._connection.execute(delete(tallies).where(here, tallies.c.words == 0), rows)

    def _take_away(self, less: list[dict[str, Any]]) -> None:
        """Changes below zero; words that count nothing any more go, so that undoing leaves no trace."""
        rows = [{f"new_{key}": value for key, value in row.items()} for row in less]
        here = (words.c.voice == bindparam("new_voice")) & (words.c.word == bindparam("new_word"))
        sums = {name: words.c[name] + bindparam(f"new_{name}") for name in LABELS}
        subtracting = update(words).where(here).values(**sums, touched=bindparam("new_touched"))
        if self._connection.execute(subtracting, rows).rowcount != len(rows):
            raise CountError("the words table lacks words of the learning that is to be taken back")
        self._connection.execute(delete(words).where(here, words.c.ham == 0, words.c.spam == 0), rows)


def _words_of(voice: str, counts: Counts, last: int) -> Iterator[dict[str, object]]:
    in_ham, in_spam = counts.words["ham"], counts.words["spam"]
    for word in {**in_ham, **in_spam}:
        ham, spam = in_ham.get(word, 0), in_spam.get(word, 0)
        yield {"voice": voice, "word": word.decode(), "ham": ham, "spam": spam, "touched": last}


def _tallies_of(voice: str, counts: Counts) -> Iterator[dict[str, object]]:
    for label, tally in (counts.tallies or {}).items():
        for count, having in tally.items():
            yield {"voice": voice, "class": label, "count": count, "words": having}
