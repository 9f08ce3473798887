"""Retraining: rebuild all counts from the ledger, with other voices, likelihoods or another version of the tokenizer.

Guarantee: the new counts are written beside those that judge, and take their place in one short transaction at the end,
which includes what was learnt meanwhile. A relay judges with the old counts until then, and with the new ones a moment
later; marks wait for no longer than a moment. Author, time and source of each learning stay.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from spamfilter.bayes import model
from spamfilter.bayes.count_table import SpelledTable
from spamfilter.bayes.groups import teaches_group
from spamfilter.bayes.imported.voices import with_imported
from spamfilter.bayes.labels import BULK, IMPORT, LABELS, EntryLabel
from spamfilter.bayes.model import Change, Lesson, State
from spamfilter.bayes.token_codec import pack, unpack
from spamfilter.bayes.tokens import Token
from spamfilter.bayes.voices import Voices, VoiceTokens, everybodys
from spamfilter.errors import InputError, StoreBusy, StoreError, StoreFull
from spamfilter.learning.bulk.earlier_runs import UNFINISHED, undecided
from spamfilter.learning.bulk.labelled_mail import mixed
from spamfilter.learning.bulk.rounds import ROUNDS, Message, later_rounds, no_amounts, note
from spamfilter.learning.filter import IMPORTED_VOICES, RULES, ledger, rules
from spamfilter.stores import Entry, Ledger, Relearnt, Rewriting, Store
from spamfilter.system.process import gc_paused

FEW = 100
"""Entries that may be left for the last transaction: fewer than it could learn in a tenth of a second."""

Mails = Mapping[bytes, Callable[[], VoiceTokens]]
"""Digest -> a function that reads its mail for the new voices."""


@dataclass(slots=True)
class Rebuilt:
    """The result. messages: number of learnings that count; reread: how many of them were read from their mail again.

    silent: voice -> number of messages without tokens for it in the ledger, of which it learnt nothing. problems:
    sentences about mails that could not be read, and old counts that could not be deleted.
    """

    messages: int = 0
    reread: int = 0
    silent: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def retrain(store: Store, voices: Voices, mails: Mails, progress: Callable[[int], None]) -> Rebuilt:
    """Learn all of the ledger again, ham and spam evenly mixed; mail of bulk training in rounds, as `train` does.

    mails: for tokens that the ledger does not have. progress: called with numbers of ledger entries, ROUNDS times each.
    Raises StoreBusy if another process has rebuilt the counts meanwhile, or has begun to, and StoreFull before the disk
    is full; then, and at Ctrl-C, what was written is deleted.
    """
    edition = store.new_edition()
    with store.learning():
        generation = store.generation  # read in a transaction, which notices a rebuilding by others
    known = store.state({}).last
    voices = with_imported(voices, store.get_setting(IMPORTED_VOICES))
    rebuilding = _Rebuilding(store, voices, mails, known, progress)
    rebuilding.take_in_mixed()
    rebuilding.take_in(store)
    rebuilding.later_rounds()
    with gc_paused():  # or Python would look for garbage among a million lessons, for seconds, while others wait
        try:
            store.write_beside(edition, rebuilding.state, rebuilding.unwritten())
            while rebuilding.take_in(store) > FEW:
                store.write_beside(edition, rebuilding.state, rebuilding.unwritten())
        except (StoreFull, KeyboardInterrupt):
            with suppress(StoreError):
                store.new_edition()  # which deletes what was written: others need the room
            raise
        with store.learning() as learning:
            if store.generation != generation:
                raise StoreBusy(f"{store.where}: its counts were rebuilt, or another filter's imported; try again")
            rebuilding.take_in(learning)
            learning.rebuild(edition, rebuilding.state, rebuilding.unwritten())
            learning.put_setting(RULES, rules(voices))
            learning.put_setting(UNFINISHED, undecided(store))
    done = rebuilding.rebuilt()
    try:
        store.sweep_editions()
    except StoreError as error:
        done.problems.append(f"{error}; the new counts judge, and the next retrain deletes the old ones")
    return done


class _Rebuilding:
    """A rebuilding in memory. known: the last entry when it began; later ones count until they are undone."""

    def __init__(self, store: Store, voices: Voices, mails: Mails, known: int, progress: Callable[[int], None]) -> None:
        self.state: State = model.empty(voices, SpelledTable)  # which can list the words to write
        self._store = store
        self._voices = voices
        self._mails = mails
        self._known = known
        self._progress = progress
        self._lessons: dict[int, Lesson] = {}
        self._silent: dict[int, list[str]] = {}
        self._reread: dict[int, bytes] = {}
        self._problems: list[str] = []
        self._changed: set[int] | None = None  # of what is written already; None: nothing is
        self._words: dict[str, set[Token]] = {}  # of each voice, those whose counts have changed since

    def take_in_mixed(self) -> None:
        """Learn the active entries up to `known`: imports, then ham and spam evenly mixed.

        This puts a filter right that has learnt one class after the other: by 150 marks of ham and then 150 of spam one
        called 85 % of further ham spam, and none after retraining (benchmarks/training_order.py).
        """
        active = [entry for entry in self._store.learnings() if entry.id <= self._known]
        ids = {entry.id for entry in active}
        with_tokens = {label: self._of(label, ids) for label in (IMPORT, *LABELS)}
        imports = [entry for entry in active if entry.label == IMPORT]
        messages = mixed([entry for entry in active if entry.label != IMPORT], lambda entry: entry.label)
        for entry in (*imports, *messages):
            self._learn(next(with_tokens[entry.label]))
            self._progress(1)

    def _of(self, label: EntryLabel, ids: set[int]) -> Iterator[Entry]:
        """Of these entries those of a class, with their tokens."""
        found = ledger(self._store, 0, self._known)
        return (entry for entry in found if entry.id in ids and entry.label == label)

    def take_in(self, source: Ledger) -> int:
        """Learn the entries after the last one, and undo what they undo; returns how many entries there were."""
        before = self.state.last
        for entry in ledger(source, before):
            self.state.last = entry.id
            if entry.undoes:
                lesson = self._lessons.pop(entry.undoes, None)
                if lesson is not None:
                    tokens = self._tokens(replace(entry, id=entry.undoes))
                    self._note(entry.undoes, model.apply(self._voices, replace(lesson, tokens=tokens), self.state, -1))
            elif entry.id in self._lessons:
                continue  # learnt by `take_in_mixed`
            elif entry.id > self._known:
                self._learn(entry)
            self._progress(1)
        return self.state.last - before

    def _note(self, id: int, changes: list[Change]) -> None:
        """Remember what an entry has changed, once a first part of the rebuilding is written."""
        if self._changed is not None:
            self._changed.add(id)
            for change in changes:
                self._words.setdefault(change.voice, set()).update(change.deltas)

    def _learn(self, entry: Entry) -> None:
        if entry.label == IMPORT:
            self._note(entry.id, model.apply(self._voices, entry, self.state))
            self._lessons[entry.id] = Lesson(entry.label, entry.added, entry.calibrated, {})
            return
        tokens = self._tokens(entry, first=True)
        label, score = entry.message_label, model.score(self._voices, tokens, self.state)
        lesson = Lesson(label, *model.lesson(self._voices, tokens, label, self.state, score), tokens)
        self._note(entry.id, model.apply(self._voices, lesson, self.state))
        self._lessons[entry.id] = replace(lesson, tokens={})  # they are read again where they are needed
        if not teaches_group(lesson.added):  # a group's mail teaches no other voice
            self._silent[entry.id] = [voice.name for voice in everybodys(self._voices) if voice.name not in tokens]

    def later_rounds(self) -> None:
        amounts = no_amounts(self._voices)
        for id, lesson in self._lessons.items():
            note(amounts, id, lesson.added)

        def messages() -> Iterator[Message]:
            for entry in ledger(self._store, 0, self.state.last):
                if entry.id in self._lessons and entry.source == BULK:
                    yield Message(entry.id, entry.message_label, self._tokens(entry))
                self._progress(1)

        gone = later_rounds(self._voices, self.state.counts, messages, amounts, ROUNDS)
        self._progress((ROUNDS - 1 - gone) * self.state.last)
        for id, lesson in self._lessons.items():
            more = {voice: of_voice[id] for voice, of_voice in amounts.items() if id in of_voice}
            self._lessons[id] = replace(lesson, added={**lesson.added, **more})

    def unwritten(self) -> Rewriting:
        """What has changed since the last call, and must be written; at the first call all counts and lessons."""
        changed, words = self._changed, self._words
        self._changed, self._words = set(), {}
        if changed is None:
            all_words = {voice: {**of.words["ham"], **of.words["spam"]} for voice, of in self.state.counts.items()}
            return Rewriting(all_words, self._relearnt(self._lessons))
        return Rewriting(words, self._relearnt(changed & self._lessons.keys()), changed - self._lessons.keys())

    def _relearnt(self, ids: Iterable[int]) -> Iterator[Relearnt]:
        for id in ids:
            lesson, packed = self._lessons[id], self._reread.get(id)
            yield Relearnt(id, lesson.added, lesson.calibrated, unpack(packed) if packed else None)

    def rebuilt(self) -> Rebuilt:
        silent = Counter(name for id in self._lessons for name in self._silent.get(id, ()))
        reread = sum(id in self._reread for id in self._lessons)
        return Rebuilt(len(self._lessons), reread, dict(silent), self._problems)

    def _tokens(self, entry: Entry, first: bool = False) -> VoiceTokens:
        """The tokens in the ledger; for voices that it has none of, those of the mail file."""
        if entry.label == IMPORT:
            return entry.tokens
        tokens = unpack(self._reread[entry.id]) if entry.id in self._reread else entry.tokens
        lacking = first and any(voice.name not in tokens for voice in everybodys(self._voices))
        if lacking and entry.digest in self._mails:
            try:
                tokens = {**self._mails[entry.digest](), **entry.tokens}
                self._reread[entry.id] = pack(tokens)
            except InputError as error:
                self._problems.append(str(error))
        return {voice.name: tokens[voice.name] for voice in self._voices if voice.name in tokens}
