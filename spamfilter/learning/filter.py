"""The filter: judges messages with what was learnt, learns and unlearns, exactly.

Guarantee: learning is one transaction of the store. The same label again for the same message changes nothing; the
other label first takes away exactly what the first one added.
Guarantee: counts, totals and calibration are the sum of the ledger; `rebuilt` recomputes them.
"""

import copy
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from spamfilter.bayes import model
from spamfilter.bayes.calibration import Step
from spamfilter.bayes.counts import Counts, Label
from spamfilter.bayes.model import Score, State
from spamfilter.bayes.tokens import Token
from spamfilter.bayes.voices import Evidence, Voices, VoiceTokens, view, words
from spamfilter.errors import StoreError
from spamfilter.learning.counting_rules import RULES, rules, rules_text, usable
from spamfilter.mail.message import Message
from spamfilter.stores import Entry, Learning, Store


@dataclass(frozen=True, slots=True)
class Reading:
    """A message as the filter reads it: its digest and the tokens of each voice."""

    digest: bytes
    tokens: VoiceTokens


@dataclass(frozen=True, slots=True)
class Change:
    """The effect of a mark. was: the label before, None if the message was not learnt; changed: anything written."""

    changed: bool
    was: Label | None
    before: Score
    after: Score


class Filter:
    """Judges and learns with the counts of a store, by a choice of voices.

    whole: True holds all counts in memory, for the relay and for bulk training; False reads the counts of each message
    from the store, for a command that judges a few.
    """

    def __init__(self, store: Store, voices: Voices, whole: bool = True) -> None:
        self.store = store
        self.voices = voices
        self._whole = whole
        self._state: State | None = None
        if (kept := store.get_setting(RULES)) is None:
            store.put_setting(RULES, kept := rules(voices))
        self._generation = store.generation
        self._check(voices, kept)

    @property
    def learnt(self) -> dict[Label, int]:
        """Messages learnt of each class, as this filter knows them."""
        return self._all().learnt

    @property
    def vocabulary(self) -> int:
        """The number of known words, over all voices."""
        return sum(counts.vocabulary for counts in self._all().counts.values())

    def read(self, message: Message) -> Reading:
        return Reading(message.digest(), view(self.voices, message))

    def score(self, reading: Reading) -> Score:
        return model.score(self.voices, reading.tokens, self._for(reading))

    def explained(self, reading: Reading, most: int | None = None) -> tuple[Score, list[Evidence]]:
        """The score, and the tokens behind it, the loudest first."""
        return model.explained(self.voices, reading.tokens, self._for(reading), most)

    def follow(self) -> int:
        """Take in what other processes have learnt since; returns how many ledger entries that was."""
        return self._catch_up(self._all(), self.store.entries_after) if self._whole else 0

    def take_in(self, entries: list[Entry]) -> int:
        """As `follow`, for entries that were read elsewhere; those that are known are passed over."""
        return self._take_in(self._all(), entries)

    def loaded(self, voices: Voices | None = None) -> State:
        """All counts of the store, for `adopt`; the filter's own stay as they are.

        voices: other ones than the filter's, after a retraining. Raises StoreError if the counts are of other rules.
        """
        self._check(voices or self.voices, self.store.get_setting(RULES))
        return self._loaded(voices or self.voices)

    def adopt(self, state: State, voices: Voices | None = None) -> None:
        """Judge with these counts, and by these voices, from now on."""
        self._state, self.voices = state, voices or self.voices

    def _loaded(self, voices: Voices) -> State:
        return model.prepared(voices, self.store.load(voice.name for voice in voices))

    def copied(self, voices: Voices) -> dict[str, Counts]:
        """A copy of the counts of these voices."""
        return {voice.name: copy.deepcopy(self._all().counts[voice.name]) for voice in voices}

    def fits(self) -> bool:
        """Whether the counts in the store are still of this filter's rules."""
        return usable(self.store.get_setting(RULES), self.voices)

    def _check(self, voices: Voices, kept: object) -> None:
        """kept: the rules of the counts in the store."""
        if not usable(kept, voices):
            raise StoreError(
                f"{self.store.where}: the database was learnt with {rules_text(kept)};"
                f" the configuration says {rules_text(rules(voices))}; run `spamfilter retrain`, or change [learn] back"
            )

    @property
    def last(self) -> int:
        """The last ledger entry that this filter has taken in."""
        return self._all().last

    def learn(self, reading: Reading, label: Label, source: str, by: str = "", at: datetime | None = None) -> Change:
        """Learn one message. Raises StoreBusy, StoreError; then nothing has changed."""
        with self.training() as training:
            return training.learn(reading, label, source, by, at)

    def forget(self, reading: Reading, source: str, by: str = "") -> Change:
        """Take back what was learnt of this message; `was` is None if nothing was."""
        with self.training() as training:
            return training.forget(reading, source, by)

    def hold_all(self) -> None:
        """Hold all counts in memory from now on."""
        self._whole = True

    @contextmanager
    def training(self) -> Iterator["Training"]:
        """One transaction for any number of learnings: all or none."""
        try:
            with self.store.learning() as learning:
                if self.store.generation != self._generation:
                    self._check(self.voices, self.store.get_setting(RULES))
                    self._state, self._generation = None, self.store.generation
                reloaded = self._state is None
                taken = self._catch_up(self._all(), learning.entries_after) if self._whole else 0
                yield Training(self, learning, taken, reloaded)
        except BaseException:
            self._state = None  # what was applied in memory has not been written
            raise

    def rebuilt(self, last: int) -> State:
        """The sum of the ledger up to the entry `last`, computed from empty counts."""
        state = model.empty(self.voices)
        self._catch_up(state, lambda seen: [entry for entry in self.store.entries_after(seen) if entry.id <= last])
        return state

    def verify(self) -> list[str]:
        """Damage in the store, and counts that are not the sum of the ledger; empty if all is well."""
        found = self.store.verify()
        kept = self.store.load(voice.name for voice in self.voices)
        for voice in self.voices:
            counts = kept.counts[voice.name]
            if voice.likelihood.needs_tallies and counts.tallies is None and counts.vocabulary:
                found.append(f"{self.store.where}: the tallies of voice {voice.name} are missing")
        summed = self.rebuilt(kept.last)  # others may learn in the meantime
        for name in kept.counts:
            if kept.counts[name] != summed.counts[name]:
                found.append(f"{self.store.where}: the words of voice {name} are not the sum of the ledger")
        if (kept.calibration, kept.learnt) != (summed.calibration, summed.learnt):
            found.append(f"{self.store.where}: the calibration or the totals are not the sum of the ledger")
        return found

    def _all(self) -> State:
        """All counts; or, where they are not held in memory, the totals from the store, and no words."""
        names = [voice.name for voice in self.voices]
        if not self._whole:
            return model.prepared(self.voices, self.store.state(dict.fromkeys(names, ())))
        if self._state is None:
            self._state = self._loaded(self.voices)
        return self._state

    def _for(self, reading: Reading) -> State:
        if self._whole:
            return self._all()
        return model.prepared(self.voices, self.store.state(words(self.voices, reading.tokens)))

    def _catch_up(self, state: State, entries_after: Callable[[int], list[Entry]]) -> int:
        taken = 0
        while entries := entries_after(state.last):
            taken += self._take_in(state, entries)
        return taken

    def _take_in(self, state: State, entries: Iterable[Entry]) -> int:
        taken = 0
        for entry in entries:
            if entry.id <= state.last:
                continue
            model.apply(self.voices, entry, state, -1 if entry.undoes else 1)
            state.last = entry.id
            taken += 1
        return taken


class Training:
    """A transaction of learning, opened by `Filter.training`.

    taken: how many learnings of others were taken in at its beginning. reloaded: whether all counts were read anew.
    """

    def __init__(self, filter: Filter, learning: Learning, taken: int, reloaded: bool) -> None:
        self.taken, self.reloaded = taken, reloaded
        self._filter = filter
        self._learning = learning

    def active(self, digest: bytes) -> Entry | None:
        """The learning of this message that has not been taken back."""
        return self._learning.active(digest)

    def history(self, digest: bytes) -> list[Entry]:
        """All that the ledger has of this message, oldest first."""
        return self._learning.history(digest)

    def step_without(self, others: Sequence[Entry], reading: Reading, label: Label) -> tuple[Step, int]:
        """The step of the calibration if these learnings were not and a message was learnt now; how many are learnt."""
        voices = self._filter.voices
        state = self._state(reading, *(Reading(entry.digest, entry.tokens) for entry in others))
        for entry in others:
            model.apply(voices, entry, state, -1)
        score = model.score(voices, reading.tokens, state)
        step = state.calibration.step(score.log_odds, label, score.known)
        for entry in others:
            model.apply(voices, entry, state)
        return step, sum(state.learnt.values())

    def learn(self, reading: Reading, label: Label, source: str, by: str = "", at: datetime | None = None) -> Change:
        """See `Filter.learn`."""
        active = self._learning.active(reading.digest)
        if active is not None:
            # A mark speaks about the mail as it was learnt: its tokens are the ledger's, where that has them.
            reading = Reading(reading.digest, {**reading.tokens, **active.tokens})
        state = self._state(reading)
        before = model.score(self._filter.voices, reading.tokens, state)
        if active is not None and active.label == label:
            return Change(False, active.label, before, before)
        if active is not None:
            self._undo(state, active, source, by)
        unlearnt = model.score(self._filter.voices, reading.tokens, state) if active else before
        self._add(state, unlearnt, reading, label, source, by, at)
        return Change(
            True, active.label if active else None, before, model.score(self._filter.voices, reading.tokens, state)
        )

    def add(self, reading: Reading, label: Label, source: str, by: str) -> None:
        """Learn a message that has no learning, in half of the time of `learn`."""
        state = self._state(reading)
        self._add(state, model.score(self._filter.voices, reading.tokens, state), reading, label, source, by)

    def _add(
        self,
        state: State,
        score: Score,
        reading: Reading,
        label: Label,
        source: str,
        by: str,
        at: datetime | None = None,
    ) -> None:
        added = model.amounts(self._filter.voices, reading.tokens, label, state, score)
        step = state.calibration.step(score.log_odds, label, score.known)
        entry = Entry(at or datetime.now(UTC), reading.digest, label, added, step, reading.tokens, source, by)
        self._write(state, entry)

    def learnt(self, digests: Collection[bytes]) -> dict[bytes, Entry]:
        """The learnings of these messages, a few hundred at most, that have not been taken back."""
        return self._learning.learnt(digests)

    def confirm(self, reading: Reading, active: Entry, source: str, by: str) -> Change:
        """Learn the same anew, as this author's: the counts stay as they are."""
        state = self._state(Reading(reading.digest, active.tokens))
        self._undo(state, active, source, by)
        self._write(state, replace(active, at=datetime.now(UTC), source=source, by=by, id=0))
        score = model.score(self._filter.voices, active.tokens, state)
        return Change(True, active.label, score, score)

    def forget(self, reading: Reading, source: str, by: str = "") -> Change:
        """See `Filter.forget`."""
        active = self._learning.active(reading.digest)
        if active is not None:
            reading = Reading(reading.digest, active.tokens)
        state = self._state(reading)
        before = model.score(self._filter.voices, reading.tokens, state)
        if active is None:
            return Change(False, None, before, before)
        self._undo(state, active, source, by)
        return Change(True, active.label, before, model.score(self._filter.voices, reading.tokens, state))

    def restore(self, entry: Entry) -> None:
        """Learn again what was taken back, with the amounts of then; nothing of the message may be learnt now."""
        state = self._state(Reading(entry.digest, entry.tokens))
        if not entry.added:  # a rebuilding of the counts leaves no amounts of what did not count
            voices = self._filter.voices
            score = model.score(voices, entry.tokens, state)
            step = state.calibration.step(score.log_odds, entry.label, score.known)
            added = model.amounts(voices, entry.tokens, entry.label, state, score)
            entry = replace(entry, added=added, calibrated=step)
        self._write(state, replace(entry, id=0))

    def reinforce(self, active: Entry, amounts: Mapping[str, int]) -> bool:
        """Let a learning of bulk training give way to one with these greater amounts; False if no voice can have them.

        active: with tokens at least of these voices. So one message stays one learning; what the other voices have
        learnt stays as it is.
        """
        voices = [voice for voice in self._filter.voices if voice.name in amounts and voice.likelihood.reinforces()]
        if not voices:
            return False
        state, now = self._state(Reading(active.digest, active.tokens)), datetime.now(UTC)
        self._learning.append(replace(active, at=now, undoes=active.id, id=0), active.id)
        more = replace(
            active, at=now, added={**active.added, **{voice.name: amounts[voice.name] for voice in voices}}, id=0
        )
        state.last = self._learning.append(more, active.id).id
        for voice in voices:
            before, counts = active.added.get(voice.name, 0), state.counts[voice.name]
            # Whoever learns in further rounds has deltas that add up.
            deltas = voice.likelihood.deltas(active.tokens[voice.name], amounts[voice.name] - before)
            growth = counts.add(active.label, deltas, 0 if before else 1)
            self._learning.change(voice.name, active.label, deltas, 0 if before else 1, growth)
        return True

    def put_setting(self, name: str, value: object) -> None:
        """Write a setting with what is learnt, or not at all."""
        self._learning.put_setting(name, value)

    def _state(self, *readings: Reading) -> State:
        """The state; of words at least those of these messages."""
        if self._filter._whole:
            return self._filter._all()
        voices, wanted = self._filter.voices, dict[str, set[Token]]()
        for reading in readings:
            for name, some in words(voices, reading.tokens).items():
                wanted[name] = wanted.get(name, set()) | some
        return model.prepared(voices, self._learning.state(wanted))

    def _undo(self, state: State, active: Entry, source: str, by: str) -> None:
        self._write(
            state,
            Entry(
                datetime.now(UTC), active.digest, active.label, active.added, active.calibrated, active.tokens,
                source, by, undoes=active.id,
            ),
            active.id,
        )  # fmt: skip

    def _write(self, state: State, entry: Entry, like: int | None = None) -> Entry:
        """Write an entry and apply it. like: see `Learning.append`."""
        entry = self._learning.append(entry, like)
        sign = -1 if entry.undoes else 1
        for voice, deltas, growth in model.apply(self._filter.voices, entry, state, sign):
            self._learning.change(voice, entry.label, deltas, sign, growth)
        state.last = entry.id
        self._learning.calibrate(state.calibration)
        return entry
