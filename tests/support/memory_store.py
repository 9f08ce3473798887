"""A store in memory: the reference that the others are held against, and a quick store for tests of other things.

It keeps nothing beyond the process and knows one thread.
"""

import copy
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from datetime import date, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from spamfilter import stores
from spamfilter.bayes.calibration import Calibration, is_surprise
from spamfilter.bayes.count_table import HashedTable
from spamfilter.bayes.counts import Counts, Growth
from spamfilter.bayes.labels import COUNTERPART, LABELS, NOBODYS, Label
from spamfilter.bayes.model import State, messages
from spamfilter.bayes.token_codec import pack_seen
from spamfilter.bayes.tokens import Token
from spamfilter.errors import StoreBusy, StoreError
from spamfilter.stores.journal import NAMED, UNJUDGED, Deferral, JournalEntry, Labelled, Wanted
from spamfilter.stores.quarantine_events import QuarantineEvent
from spamfilter.stores.store import ENTRIES, Entry, Holders, Learning, Relearnt, Rewriting, Store, Trainings
from tests.support.memory_sender_lists import MemorySenderLists

POSTGRESQL = "postgresql+psycopg"
KINDS = ("memory", "sqlite", POSTGRESQL)
"""Kinds of stores that tests run on: the one in memory, and those of STORES."""


def open_store(url: str) -> Store:
    """The store of a URL, which may be "memory:"."""
    return MemoryStore() if url == "memory:" else stores.open_store(url)


@contextmanager
def url_of(kind: str, folder: Path) -> Iterator[str]:
    """The URL of a new store of this kind. folder: for its file."""
    if kind == POSTGRESQL:
        from tests.support import postgresql  # the fuzzer uses the store in memory without any server

        with postgresql.server().emptied() as url:
            yield url
    else:
        yield "memory:" if kind == "memory" else f"sqlite:///{folder}/store.db"


@contextmanager
def stored(kind: str, folder: Path | None = None) -> Iterator[Callable[[], Store]]:
    """A function that opens the same store each time, as several processes would. folder: for its file."""
    with ExitStack() as stack:
        url = stack.enter_context(url_of(kind, folder or Path(stack.enter_context(TemporaryDirectory()))))
        opened: list[Store] = []

        def again() -> Store:
            if kind != "memory" or not opened:
                opened.append(stack.enter_context(closing(open_store(url))))
            return opened[-1]

        yield again


def _is_of(entry: Entry, by: str, since: datetime) -> bool:
    return entry.by == by and since <= entry.at <= since + timedelta(days=1)


class MemoryStore(MemorySenderLists, Store):
    """Lists and dicts."""

    def __init__(self) -> None:
        super().__init__()
        self._counts: dict[str, Counts] = {}
        self._ledger: list[Entry] = []
        self._active: dict[bytes, Entry] = {}
        self._calibration = Calibration()
        self._journal: dict[str, JournalEntry] = {}
        self._settings: dict[str, object] = {}
        self._quarantine: list[QuarantineEvent] = []
        self._summaries: dict[date, Mapping[str, Any]] = {}
        self._editions = 0
        self._beside: dict[int, tuple[dict[str, dict[Token, tuple[int, int]]], dict[int, Relearnt]]] = {}

    @contextmanager
    def learning(self) -> Iterator[Learning]:
        learning = _MemoryLearning(self)
        try:
            yield learning
        except BaseException:
            learning.roll_back()
            raise

    def load(self, voices: Iterable[str]) -> State:
        return self._state({voice: self._hashed(self._voice(voice)) for voice in voices})

    def state(self, words: Mapping[str, Iterable[Token]]) -> State:
        return self._state({voice: self._part(voice, some) for voice, some in words.items()})

    def new_edition(self) -> int:
        self._editions += 1
        self._beside = {self._editions: ({}, {})}
        return self._editions

    def write_beside(self, edition: int, state: State, some: Rewriting) -> None:
        if edition not in self._beside:
            raise StoreBusy("another process has begun to rebuild the counts since; this one gives way to it")
        counts, lessons = self._beside[edition]
        for voice, names in some.words.items():
            ham, spam = (state.counts[voice].words[label] for label in LABELS)
            counts.setdefault(voice, {}).update({word: (ham.get(word, 0), spam.get(word, 0)) for word in names})
        lessons.update({lesson.id: lesson for lesson in some.lessons})
        for id in some.gone:
            lessons.pop(id, None)

    def sweep_editions(self) -> None:
        return

    def _voice(self, voice: str) -> Counts:
        if voice not in self._counts:
            self._counts[voice] = Counts()
            self._counts[voice].tally()
        return self._counts[voice]

    def _hashed(self, counts: Counts) -> Counts:
        hashed = copy.deepcopy(counts)
        hashed.kept = HashedTable(counts.vocabulary)
        for label in LABELS:
            words = list(counts.words[label])
            hashed.kept.put(words, label, counts.kept.column(words, label))
        return hashed

    def _part(self, voice: str, words: Iterable[Token]) -> Counts:
        whole, part = self._voice(voice), Counts()
        words = set(words)
        for label in LABELS:
            part.words[label] = {word: count for word in words if (count := whole.words[label].get(word))}
        part.messages, part.occurrences = dict(whole.messages), dict(whole.occurrences)
        part.vocabulary, part.tallies = whole.vocabulary, copy.deepcopy(whole.tallies)
        return part

    def _state(self, counts: dict[str, Counts]) -> State:
        learnt: dict[Label, int] = dict.fromkeys(LABELS, 0)
        for entry in self._active.values():
            for label, number in messages(entry).items():
                learnt[label] += number
        return State(counts, learnt, self._calibration, len(self._ledger))

    def entries_after(self, last: int) -> list[Entry]:
        return self._ledger[last : last + ENTRIES]

    def news(self, last: int) -> tuple[list[Entry], int]:
        return self.entries_after(last), len(self._ledger)

    def learnt(self, digests: Collection[bytes]) -> dict[bytes, Entry]:
        return {digest: self._active[digest] for digest in digests if digest in self._active}

    def learnt_at(self, at: datetime) -> list[Entry]:
        return sorted((entry for entry in self._active.values() if entry.at == at), key=lambda entry: entry.id)

    def holders(self, words: Mapping[str, Collection[Token]], before: int, limit: int) -> Holders:
        older = sorted((entry for entry in self._active.values() if entry.id < before), key=lambda entry: -entry.id)
        seen = older[:limit]
        found = [entry for entry in seen if entry.holds(words)]
        return Holders(found, len(seen), seen[-1].id if len(older) > limit else 0)

    def learnings(self, since: datetime | None = None, source: str | None = None) -> list[Entry]:
        active = sorted(self._active.values(), key=lambda entry: entry.id)
        found = [one for one in active if (since is None or one.at >= since) and source in (None, one.source)]
        return [replace(entry, tokens={}) for entry in found]

    def latest_learnings(self, since: datetime, until: datetime, limit: int) -> list[Entry]:
        found = [entry for entry in self._active.values() if since <= entry.at < until]
        return sorted(found, key=lambda entry: (entry.at, entry.id), reverse=True)[:limit]

    def trainings(self, since: datetime, until: datetime) -> list[Trainings]:
        found = Counter((one.source, one.by, one.label) for one in self._active.values() if since <= one.at < until)
        return [Trainings(*key, number) for key, number in sorted(found.items())]

    def last_entries_by(self, by: str, since: datetime | None = None) -> list[Entry]:
        last = {entry.digest: entry.id for entry in self._ledger}
        return [
            replace(entry, tokens={})
            for entry in self._ledger
            if entry.by == by and (since is None or entry.at >= since) and last[entry.digest] == entry.id
        ]

    def histories(self, digests: Sequence[bytes]) -> dict[bytes, list[Entry]]:
        return {one: [replace(entry, tokens={}) for entry in self._ledger if entry.digest == one] for one in digests}

    def marks_by(self, by: str, since: datetime) -> int:
        return sum(_is_of(entry, by, since) and not entry.undoes for entry in self._ledger)

    def surprises_by(self, by: str, since: datetime, most: int) -> list[Entry]:
        mine = (entry for entry in self._active.values() if _is_of(entry, by, since) and entry.label == "spam")
        found = [entry for entry in mine if is_surprise(entry.calibrated)]
        return sorted(found, key=lambda entry: (entry.at, entry.id))[:most]

    def marks_on_mail(self, by: str, since: datetime, recipient: str, domain: str) -> tuple[int, int]:
        taught = {entry.digest for entry in self._ledger if _is_of(entry, by, since) and not entry.undoes}
        mails = [entry for entry in self._journal.values() if entry.digest in taught]
        received = {one.digest for one in mails if recipient.lower() in map(str.lower, one.recipients)}
        return len(received), len({one.digest for one in mails if one.sender.rpartition("@")[2].lower() == domain})

    def times_of_sources(self) -> dict[str, tuple[datetime, datetime]]:
        entries = sorted(self._ledger, key=lambda entry: entry.at)
        first, last = ({entry.source: entry.at for entry in some} for some in (reversed(entries), entries))
        return {source: (at, last[source]) for source, at in first.items()}

    def sweep(self, source: str, before: datetime) -> int:
        return 0  # entries are counted by their places; what lives no longer than the process may keep them

    def write_journal(self, entries: Sequence[JournalEntry]) -> None:
        for entry in entries:
            self._journal.setdefault(entry.id, entry)

    def find_journal(self, id: str) -> JournalEntry | None:
        return self._journal.get(id)

    def journal(self, since: datetime, until: datetime, host: str = "") -> list[JournalEntry]:
        entries = sorted(self._journal.values(), key=lambda entry: (entry.at, entry.id))
        return [
            replace(entry, tokens=None) for entry in entries if since <= entry.at < until and host in ("", entry.host)
        ]

    def unlearnt(self, since: datetime, until: datetime) -> list[JournalEntry]:
        judged = (entry for entry in self.journal(since, until) if entry.class_ != UNJUDGED)
        return [entry for entry in judged if not self._is_labelled(entry)]

    def _is_labelled(self, entry: JournalEntry) -> bool:
        learnt = self._active.get(entry.digest)
        return learnt is not None and learnt.source != COUNTERPART

    def deferrals(self, since: datetime, until: datetime, host: str = "") -> list[Deferral]:
        deferred = (entry for entry in self.journal(since, until, host) if entry.reply.startswith("4"))
        return [Deferral(one.at, one.reply) for one in deferred if one.class_ == UNJUDGED or one.action != "defer"]

    def search(self, wanted: Wanted, limit: int, before: str = "", after: str = "") -> list[JournalEntry]:
        def place(entry: JournalEntry) -> tuple[bool, str]:
            return wanted.unsure_first and entry.class_ == "unsure", entry.id

        found = sorted((one for one in self._journal.values() if self._is_wanted(one, wanted)), key=place, reverse=True)
        if before or after:
            at = self._journal.get(before or after)
            bound = place(at) if at else (False, before or after)
            found = [one for one in found if (place(one) < bound if before else place(one) > bound)]
        return [replace(entry, tokens=None) for entry in (found[-limit:] if after else found[:limit])]

    def _is_wanted(self, entry: JournalEntry, wanted: Wanted) -> bool:
        learnt = self._active.get(entry.digest)
        marked = learnt is not None and learnt.source not in NOBODYS and learnt.label == wanted.marked
        return (marked or wanted.marked is None) and _is_wanted(entry, wanted)

    def number_found(self, wanted: Wanted) -> int:
        return sum(self._is_wanted(entry, wanted) for entry in self._journal.values())

    def journal_days(self, first: date, last: date, host: str = "") -> dict[date, int]:
        days = (entry.at.date() for entry in self._journal.values() if host in ("", entry.host))
        return dict(Counter(day for day in days if first <= day <= last))

    def labelled(self, since: datetime, until: datetime, without: Collection[str], host: str = "") -> list[Labelled]:
        found = ((entry, self._active.get(entry.digest)) for entry in self.journal(since, until, host))
        return [
            Labelled(entry.at, entry.class_, entry.score, learnt.message_label)
            for entry, learnt in found
            if learnt is not None and learnt.source not in without
        ]

    def unlabelled(
        self, since: datetime, until: datetime, limit: int, host: str = ""
    ) -> tuple[list[JournalEntry], int]:
        found = sorted(self.journal(since, until, host), key=lambda entry: entry.id)
        waiting = {one.digest: one for one in found if one.class_ == "unsure" and not self._is_labelled(one)}
        return sorted(waiting.values(), key=lambda entry: entry.id, reverse=True)[:limit], len(waiting)

    def summaries(self, first: date, last: date) -> dict[date, Mapping[str, Any]]:
        return {day: body for day, body in self._summaries.items() if first <= day <= last}

    def put_summary(self, day: date, body: Mapping[str, Any]) -> None:
        self._summaries[day] = body

    def journal_of(self, digests: Collection[bytes]) -> dict[bytes, JournalEntry]:
        entries = sorted(self._journal.values(), key=lambda entry: entry.id)
        return {entry.digest: replace(entry, tokens=None) for entry in entries if entry.digest in digests}

    def in_journal(self, digests: Collection[bytes], message_ids: Collection[str]) -> set[bytes | str]:
        known = {value for entry in self._journal.values() for value in (entry.digest, entry.message_id)}
        return known & {*digests, *message_ids}

    def journal_named(self, message_id: str) -> list[JournalEntry]:
        entries = sorted(self._journal.values(), key=lambda entry: entry.id, reverse=True)
        return [entry for entry in entries if message_id and entry.message_id == message_id][:NAMED]

    def remove_journal(self, id: str) -> None:
        self._journal.pop(id, None)

    def date_journal_anew(self, after: datetime, now: datetime) -> int:
        later = [entry for entry in self._journal.values() if entry.at > after]
        self._journal |= {entry.id: replace(entry, at=now) for entry in later}
        return len(later)

    def expire(self, tokens_before: datetime, entries_before: datetime, tokens_bytes: int = 2**62) -> tuple[int, int]:
        gone = [id for id, entry in self._journal.items() if entry.at < entries_before]
        for id in gone:
            del self._journal[id]
        old, taken = [], 0
        for entry in sorted(self._journal.values(), key=lambda entry: entry.id, reverse=True):
            if entry.tokens is None:
                continue
            taken += len(pack_seen(entry.tokens)) if entry.at >= tokens_before else 0
            if entry.at < tokens_before or taken > tokens_bytes:
                old.append(entry)
        for entry in old:
            self._journal[entry.id] = replace(entry, tokens=None)
        return len(old), len(gone)

    def note_quarantine(self, events: Sequence[QuarantineEvent]) -> None:
        self._quarantine += events

    def quarantine_events(self, mails: Collection[str]) -> dict[str, list[QuarantineEvent]]:
        found: dict[str, list[QuarantineEvent]] = {}
        for event in self._quarantine:
            if event.mail in mails:
                found.setdefault(event.mail, []).append(event)
        return found

    def all_quarantine_events(self) -> list[QuarantineEvent]:
        return [*self._quarantine]

    def expire_quarantine_events(self, before: datetime) -> int:
        old = [event for event in self._quarantine if event.at < before]
        self._quarantine = [event for event in self._quarantine if event.at >= before]
        return len(old)

    def get_setting(self, name: str) -> object:
        return self._settings.get(name)

    def settings_of(self, kind: str) -> dict[str, object]:
        begin = f"{kind} "
        return {
            name.removeprefix(begin): self._settings[name] for name in sorted(self._settings) if name.startswith(begin)
        }

    def put_setting(self, name: str, value: object) -> None:
        self._settings[name] = value

    def verify(self, quickly: bool = False) -> list[str]:
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


def _is_wanted(entry: JournalEntry, wanted: Wanted) -> bool:
    def has(text: str, part: str) -> bool:
        spellings = part, part.lower(), part.upper(), part.capitalize()
        return any(one.encode().lower() in text.encode().lower() for one in spellings)  # of bytes: ASCII's case alone

    return (
        (wanted.class_ in (None, entry.class_) or (wanted.class_ == "judged" and entry.class_ != UNJUDGED))
        and entry.action == (wanted.action or entry.action)
        and has(f"<{entry.sender}>", wanted.sender)
        and (not wanted.recipient or any(has(f"<{one}>", wanted.recipient) for one in entry.recipients))
        and all(has(entry.subject, word) for word in wanted.subject.split())
        and (entry.client == wanted.client_address if wanted.client_address else has(entry.client, wanted.client))
        and (not wanted.message_id or entry.message_id in wanted.message_ids)
        and (entry.reply.startswith(wanted.reply_code) if wanted.reply_code else has(entry.reply, wanted.reply))
        and (wanted.since is None or entry.at >= wanted.since)
        and (wanted.until is None or entry.at < wanted.until)
        and (wanted.hour is None or entry.at.hour == wanted.hour)
        and wanted.least <= entry.score <= wanted.most
        and wanted.host in ("", entry.host)
    )


class _MemoryLearning(Learning):
    """Changes the store at once, and knows how to take everything back."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._undo: list[Callable[[], object]] = []

    def state(self, words: Mapping[str, Iterable[Token]]) -> State:
        return self._store.state(words)

    def look_up(self, state: State, words: Mapping[str, Iterable[Token]]) -> None:
        for voice, counts in self._store.state(words).counts.items():
            mine = state.counts[voice].words
            for label, found in counts.words.items():
                mine[label].update(found)

    def learnt(self, digests: Collection[bytes]) -> dict[bytes, Entry]:
        return self._store.learnt(digests)

    def history(self, digest: bytes) -> list[Entry]:
        return [entry for entry in self._store._ledger if entry.digest == digest]

    def learnt_at(self, at: datetime) -> list[Entry]:
        return self._store.learnt_at(at)

    def entries_after(self, last: int) -> list[Entry]:
        return self._store.entries_after(last)

    def append(self, entry: Entry, like: int | None = None) -> Entry:
        store = self._store
        tokens = entry.tokens if like is None else store._ledger[like - 1].tokens
        entry = replace(entry, id=len(store._ledger) + 1, tokens=tokens)
        before = store._active.pop(entry.digest, None)
        if not entry.undoes:
            store._active[entry.digest] = entry
        store._ledger.append(entry)
        self._undo.append(lambda: self._take_back(entry, before))
        return entry

    def _take_back(self, entry: Entry, before: Entry | None) -> None:
        self._store._ledger.pop()
        self._store._active.pop(entry.digest, None)
        if before is not None:
            self._store._active[entry.digest] = before

    def change(self, voice: str, label: Label, deltas: Mapping[Token, int], messages: int, growth: Growth) -> None:
        counts = self._store._voice(voice)
        counts.add(label, deltas, messages)
        self._undo.append(lambda: counts.subtract(label, deltas, messages))

    def calibrate(self, calibration: Calibration) -> None:
        before = self._store._calibration
        self._store._calibration = calibration
        self._undo.append(lambda: setattr(self._store, "_calibration", before))

    def rebuild(self, edition: int, state: State, rest: Rewriting) -> None:
        store = self._store
        before = dict(store._counts), list(store._ledger), dict(store._active), store._calibration
        beside, store._beside = store._beside, copy.deepcopy(store._beside)
        store.write_beside(edition, state, rest)
        words, anew = store._beside[edition]
        store._counts, store._calibration = {}, state.calibration
        for voice, counts in state.counts.items():
            store._counts[voice] = kept = copy.deepcopy(counts)
            for at, label in enumerate(LABELS):
                kept.words[label] = {word: pair[at] for word, pair in words.get(voice, {}).items() if pair[at]}
        for at, entry in enumerate(store._ledger):
            lesson = anew.get(entry.id, Relearnt(entry.id, {}, (0, 0, 0, 0), None))
            tokens = entry.tokens if lesson.tokens is None else lesson.tokens
            entry = replace(entry, added=lesson.added, calibrated=lesson.calibrated, tokens=tokens)
            store._ledger[at] = entry
            if entry.id in anew:
                store._active[entry.digest] = entry
        store.generation += 1
        self._undo.append(lambda: self._restore(*before))
        self._undo.append(lambda: setattr(store, "_beside", beside))

    def _restore(
        self, counts: dict[str, Counts], ledger: list[Entry], active: dict[bytes, Entry], calibration: Calibration
    ) -> None:
        store = self._store
        store._counts, store._ledger, store._active, store._calibration = counts, ledger, active, calibration

    def load_anew(self) -> None:
        self._store.generation += 1

    def put_setting(self, name: str, value: object) -> None:
        before = dict(self._store._settings)
        self._store.put_setting(name, value)
        self._undo.append(lambda: setattr(self._store, "_settings", before))

    def roll_back(self) -> None:
        for undo in reversed(self._undo):
            undo()
