"""A store in memory: the reference that the others are held against, and the store of evaluations.

It keeps nothing beyond the process and knows one thread.
"""

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from spamfilter.calibration import Calibration
from spamfilter.counts import LABELS, Counts, Label
from spamfilter.errors import StoreError
from spamfilter.features import Token
from spamfilter.stores.store import ENTRIES, Entry, JournalEntry, Learning, State, Store
from spamfilter.voices import VoiceTokens


class MemoryStore(Store):
    """Lists and dicts."""

    def __init__(self) -> None:
        self._counts: dict[str, Counts] = {}
        self._ledger: list[Entry] = []
        self._active: dict[bytes, Entry] = {}
        self._calibration = Calibration()
        self._journal: dict[str, JournalEntry] = {}
        self._settings: dict[str, object] = {}

    @contextmanager
    def learning(self) -> Iterator[Learning]:
        learning = _MemoryLearning(self)
        yield learning
        learning.commit()

    def load(self, voices: Iterable[str]) -> State:
        return self._state({voice: copy.deepcopy(self._voice(voice)) for voice in voices})

    def state(self, tokens: VoiceTokens) -> State:
        return self._state({voice: self._part(voice, words) for voice, words in tokens.items()})

    def _voice(self, voice: str) -> Counts:
        return self._counts.setdefault(voice, Counts())

    def _part(self, voice: str, words: Iterable[Token]) -> Counts:
        whole, part = self._voice(voice), Counts()
        words = set(words)
        for label in LABELS:
            part.words[label] = {word: count for word in words if (count := whole.get(word, label))}
        part.messages, part.occurrences = dict(whole.messages), dict(whole.occurrences)
        part.vocabulary = whole.vocabulary
        return part

    def _state(self, counts: dict[str, Counts]) -> State:
        learnt: dict[Label, int] = dict.fromkeys(LABELS, 0)
        for entry in self._active.values():
            learnt[entry.label] += 1
        return State(counts, learnt, self._calibration, len(self._ledger))

    def entries_after(self, last: int) -> list[Entry]:
        return self._ledger[last : last + ENTRIES]

    def learnings(self, since: datetime | None = None) -> list[Entry]:
        active = sorted(self._active.values(), key=lambda entry: entry.id)
        return [replace(entry, tokens={}) for entry in active if since is None or entry.at >= since]

    def write_journal(self, entries: Sequence[JournalEntry]) -> None:
        for entry in entries:
            self._journal.setdefault(entry.id, entry)

    def find_journal(self, id: str) -> JournalEntry | None:
        return self._journal.get(id)

    def journal(self, since: datetime, until: datetime) -> list[JournalEntry]:
        entries = sorted(self._journal.values(), key=lambda entry: (entry.at, entry.id))
        return [replace(entry, tokens=None) for entry in entries if since <= entry.at < until]

    def expire(self, tokens_before: datetime, entries_before: datetime) -> tuple[int, int]:
        gone = [id for id, entry in self._journal.items() if entry.at < entries_before]
        for id in gone:
            del self._journal[id]
        old = [entry for entry in self._journal.values() if entry.at < tokens_before and entry.tokens is not None]
        for entry in old:
            self._journal[entry.id] = replace(entry, tokens=None)
        return len(old), len(gone)

    def get_setting(self, name: str) -> object:
        return self._settings.get(name)

    def put_setting(self, name: str, value: object) -> None:
        self._settings[name] = value

    def verify(self) -> list[str]:
        return []

    def backup(self, target: Path) -> None:
        raise StoreError("a store in memory cannot be backed up: set [store] url to a database file")

    def size(self) -> int:
        return 0

    @property
    def where(self) -> str:
        return "memory"

    def close(self) -> None:
        return


class _MemoryLearning(Learning):
    """Collects what is to change and does it at the end, all or nothing."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._entries: list[Entry] = []
        self._changes: list[tuple[str, Label, Mapping[Token, int], int]] = []
        self._calibration: Calibration | None = None

    def state(self, tokens: VoiceTokens) -> State:
        return self._store.state(tokens)

    def active(self, digest: bytes) -> Entry | None:
        for entry in reversed(self._entries):
            if entry.digest == digest:
                return None if entry.undoes else entry
        return self._store._active.get(digest)

    def entries_after(self, last: int) -> list[Entry]:
        return self._store.entries_after(last)

    def append(self, entry: Entry) -> Entry:
        entry = replace(entry, id=len(self._store._ledger) + len(self._entries) + 1)
        self._entries.append(entry)
        return entry

    def change(self, voice: str, label: Label, deltas: Mapping[Token, int], messages: int, vocabulary: int) -> None:
        self._changes.append((voice, label, deltas, messages))

    def calibrate(self, calibration: Calibration) -> None:
        self._calibration = calibration

    def commit(self) -> None:
        done: list[tuple[Counts, Label, Mapping[Token, int], int]] = []
        try:
            for voice, label, deltas, messages in self._changes:
                counts = self._store._voice(voice)
                counts.add(label, deltas, messages)
                done.append((counts, label, deltas, messages))
        except Exception:
            for counts, label, deltas, messages in reversed(done):
                counts.subtract(label, deltas, messages)
            raise
        for entry in self._entries:
            self._store._ledger.append(entry)
            if entry.undoes:
                self._store._active.pop(entry.digest, None)
            else:
                self._store._active[entry.digest] = entry
        self._store._calibration = self._calibration or self._store._calibration
