"""A transaction of learning: messages are learnt, changed and taken back, all of them or none.

Guarantee: the same label again for the same message changes nothing; the other label first takes away exactly what the
first one added.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from spamfilter.bayes import model
from spamfilter.bayes.calibration import Step
from spamfilter.bayes.groups import OWN, digest_in, own_tokens, without_own
from spamfilter.bayes.imported.voices import without_imported
from spamfilter.bayes.labels import COUNTERPART, Label
from spamfilter.bayes.model import Score, State
from spamfilter.bayes.token_codec import message_of
from spamfilter.bayes.tokens import Token
from spamfilter.bayes.voices import View, Voices, VoiceTokens, words
from spamfilter.stores import Entry, Learning, Ledger


@dataclass(frozen=True, slots=True)
class Reading:
    """A message as the filter reads it: its digest and the tokens of each voice.

    With tokens of the voice OWN it is read for a group: what is learnt of it, only that voice learns.
    """

    digest: bytes
    tokens: VoiceTokens

    @property
    def size(self) -> int:
        """The number of tokens, over all voices."""
        return sum(map(len, self.tokens.values()))

    def for_everybody(self) -> "Reading":
        """The same message, to be learnt by everybody's voices."""
        return Reading(self.digest, without_own(self.tokens))

    @property
    def digest_for_all(self) -> bytes:
        """The digest that the message has in no group, as `train` learns it; the same where it cannot be told."""
        message = message_of(self.tokens) if OWN in self.tokens else None
        return self.digest if message is None else message.digest()

    def for_group(self, group: str) -> "Reading":
        """This message as a group has it, whatever group it is read for."""
        message, digest = message_of(self.tokens), digest_in(self.digest_for_all, group)
        if message is not None:
            return Reading(digest, View((*self.tokens, OWN), message, group))
        return Reading(digest, {**self.tokens, OWN: own_tokens(self.tokens.get("fields", {}), group)})

    def copy(self, number: int) -> "Reading":
        """A copy with another digest, which is counted as well. Number 0 is the message itself."""
        if not number:
            return self
        return Reading(hashlib.blake2b(self.digest + b" %d" % number, digest_size=16).digest(), self.tokens)


@dataclass(frozen=True, slots=True)
class Change:
    """The effect of a mark. was: the label before, None if the message was not learnt; changed: anything written.

    again: of a mark that was forgotten, the label as which the message is learnt again, by what was learnt before it.
    """

    changed: bool
    was: Label | None
    before: Score
    after: Score
    again: Label | None = None


def undone_with(ledger: Ledger, learning: Entry | None) -> list[Entry]:
    """What is undone with a learning: it and, of a mark of spam, those of its counterparts that still count."""
    if learning is None:
        return []
    others = ledger.learnt_at(learning.at) if learning.label == "spam" else []
    return [learning, *(other for other in others if other.source == COUNTERPART and other.id != learning.id)]


def mark_of(ledger: Ledger, counterpart: Entry) -> Entry | None:
    """The mark of spam that a counterpart was learnt with; None if it does not count any more."""
    marks = (entry for entry in ledger.learnt_at(counterpart.at) if entry.label == "spam")
    return next((mark for mark in marks if mark.source != COUNTERPART), None)


class Training:
    """A transaction of learning, opened by `Filter.training`."""

    def __init__(self, ledger: Learning, voices: Voices, whole: State | None) -> None:
        """ledger: the transaction of the store. whole: the state with all counts, where they are held in memory; else
        those of a message's words are read."""
        self.ledger = ledger
        self._voices = voices
        self._whole = whole
        self._part: State | None = None
        self._held: dict[str, set[Token]] = {voice.name: set() for voice in voices}

    def step_without(self, others: Sequence[Entry], reading: Reading, label: Label) -> tuple[Step, int]:
        """The step of the calibration if these learnings were not and a message was learnt now; how many are learnt."""
        voices = self._voices
        state = self._state(reading.tokens, *(entry.tokens for entry in others))
        for entry in others:
            model.apply(voices, entry, state, -1)
        score = self._score(reading.tokens, state)
        step = state.calibration.step(score.log_odds, label, score.known)
        for entry in others:
            model.apply(voices, entry, state)
        return step, sum(state.learnt.values())

    def taught_to_group(self, reading: Reading) -> float:
        """How much the group of a message has taught, in messages that were learnt fully.

        Each has added to the names of fields that all mail has, so it is the count of the most frequent word.
        """
        state, own = self._state(reading.tokens), next(voice for voice in self._voices if voice.name == OWN)
        counts = state.counts[OWN].numbers([*reading.tokens[OWN]])
        return float(counts.sum(axis=0).max(initial=0)) / own.likelihood.unit

    def learn(self, reading: Reading, label: Label, source: str, by: str = "", at: datetime | None = None) -> Change:
        """See `Filter.learn`."""
        active = self.ledger.active(reading.digest)
        if active is not None:
            # A mark speaks about the mail as it was learnt: its tokens are the ledger's, where that has them.
            learnt = active.tokens if OWN in reading.tokens else without_own(active.tokens)
            reading = Reading(reading.digest, {**reading.tokens, **learnt})
        undone = undone_with(self.ledger, active)
        state = self._state(reading.tokens, *(entry.tokens for entry in undone))
        before = unlearnt = self._score(reading.tokens, state)
        if active is not None:
            if active.label == label and active.source == COUNTERPART != source:
                return self.confirm(active, source, by)
            if active.label == label:
                return Change(False, active.label, before, before)
            at = at or datetime.now(UTC)  # one moment for both: `forget` finds by it what a mark has replaced
            self._undo_all(state, undone, source, by, at)
            unlearnt = self._score(reading.tokens, state)
        self._add(state, unlearnt, reading, label, source, by, at)
        return Change(True, active.message_label if active else None, before, self._score(reading.tokens, state))

    def add(
        self, reading: Reading, label: Label, source: str, by: str, at: datetime | None = None, most: float = 1.0
    ) -> bool:
        """Learn a message that has no learning, in half of the time of `learn`; but not one whose posterior is greater
        than `most`. Returns whether it is learnt."""
        state = self._state(reading.tokens)
        score = self._score(reading.tokens, state)
        if score.posterior > most:
            return False
        self._add(state, score, reading, label, source, by, at)
        return True

    def _add(
        self, state: State, score: Score, reading: Reading, label: Label, source: str, by: str, at: datetime | None
    ) -> None:
        added, step = model.lesson(self._voices, reading.tokens, label, state, score)
        tokens = without_imported(reading.tokens)
        self._write(state, Entry(label, added, step, tokens, at or datetime.now(UTC), reading.digest, source, by))

    def confirm(self, active: Entry, source: str, by: str) -> Change:
        """Learn the same anew, as this author's: the counts stay as they are."""
        state, now = self._state(active.tokens), datetime.now(UTC)
        self._undo(state, active, source, by, now)
        self._write(state, replace(active, at=now, source=source, by=by, id=0))
        score = self._score(active.tokens, state)
        return Change(True, active.message_label, score, score)

    def forget(self, reading: Reading, source: str, by: str = "", at: datetime | None = None) -> Change:
        """See `Filter.forget`."""
        active = self.ledger.active(reading.digest)
        tokens = reading.tokens if active is None else active.tokens
        undone = undone_with(self.ledger, active)
        state = self._state(tokens, *(entry.tokens for entry in undone))
        before = self._score(tokens, state)
        if active is None:
            return Change(False, None, before, before)
        self._undo_all(state, undone, source, by, at)
        return Change(True, active.message_label, before, self._score(tokens, state))

    def write(self, entry: Entry) -> int:
        """Write an entry as it is, of an import or of another database; returns its id in the ledger.

        All counts must be held in memory. Raises CountError if it takes away what is not there.
        """
        assert self._whole is not None
        return self._write(self._whole, replace(entry, id=0)).id

    def take_back(self, entry: Entry, source: str, by: str) -> None:
        """Undo an import; all counts must be held in memory."""
        assert self._whole is not None
        self._undo(self._whole, entry, source, by)

    def replaced_by(self, active: Entry) -> Iterator[Entry]:
        """The learnings that this one has taken the place of, each in one transaction, the latest first."""
        before = {entry.id: entry for entry in self.ledger.history(active.digest) if entry.id < active.id}
        while before:
            _, undoing = before.popitem()
            if not undoing.undoes or undoing.at != active.at or undoing.undoes not in before:
                return
            active = before[undoing.undoes]
            yield active
            before = {id: entry for id, entry in before.items() if id < active.id}

    def restore(self, entry: Entry) -> None:
        """Learn again what was taken back, with the amounts of then; nothing of the message may be learnt now."""
        state = self._state(entry.tokens)
        if not entry.added:  # a rebuilding of the counts leaves no amounts of what did not count
            score = self._score(entry.tokens, state)
            added, step = model.lesson(self._voices, entry.tokens, entry.message_label, state, score)
            entry = replace(entry, added=added, calibrated=step)
        self._write(state, replace(entry, id=0))

    def rehearse(self, active: Entry) -> bool:
        """Let a learning of bulk training add what its message would teach now: at first to the voices that it has
        taught nothing, and to others what a further round would add. Returns whether it adds anything."""
        state = self._state(active.tokens)
        score = self._score(active.tokens, state)
        amounts, _ = model.lesson(self._voices, active.tokens, active.message_label, state, score)
        for voice in self._voices:
            if before := active.added.get(voice.name, 0):
                tokens, counts = active.tokens[voice.name], state.counts[voice.name]
                amounts[voice.name] = before + voice.likelihood.more(tokens, active.message_label, counts, before)
        more = {voice: amount for voice, amount in amounts.items() if amount > active.added.get(voice, 0)}
        return self.reinforce(active, more)

    def reinforce(self, active: Entry, amounts: Mapping[str, int]) -> bool:
        """Let a learning of bulk training give way to one with these greater amounts; False if no voice can have them.

        active: with tokens at least of these voices. So one message stays one learning, of the same time; what the
        other voices have learnt stays as it is.
        """
        voices = [
            voice
            for voice in self._voices
            if voice.name in amounts and (voice.likelihood.reinforces() or not active.added.get(voice.name))
        ]
        if not voices:
            return False
        state = self._state(active.tokens)
        self.ledger.append(replace(active, undoes=active.id, id=0), active.id)
        more = replace(active, added={**active.added, **{voice.name: amounts[voice.name] for voice in voices}}, id=0)
        state.last = self.ledger.append(more, active.id).id
        for voice in voices:
            before, counts = active.added.get(voice.name, 0), state.counts[voice.name]
            # Deltas of a voice that learns in further rounds add up.
            deltas = voice.likelihood.deltas(active.tokens[voice.name], amounts[voice.name] - before)
            growth = counts.add(active.label, deltas, 0 if before else 1)
            self.ledger.change(voice.name, active.message_label, deltas, 0 if before else 1, growth)
        return True

    def score(self, reading: Reading) -> Score:
        """What the filter says of a message now."""
        return self._score(reading.tokens, self._state(reading.tokens))

    def _score(self, tokens: VoiceTokens, state: State) -> Score:
        return model.score(self._voices, tokens, state)

    def _state(self, *messages: VoiceTokens) -> State:
        """The state; of words at least those of these messages, each of which is read once in a transaction."""
        if self._whole is not None:
            return self._whole
        wanted = {name: some - self._held[name] for name, some in words(self._voices, *messages).items()}
        if self._part is None:
            self._part = self.ledger.state(wanted)
        else:
            self.ledger.look_up(self._part, wanted)
        for name, some in wanted.items():
            self._held[name] |= some
        return model.prepared(self._voices, self._part)

    def _undo_all(self, state: State, undone: Sequence[Entry], source: str, by: str, at: datetime | None) -> None:
        """Undo these; counterparts in nobody's name, as nobody has said anything of them."""
        for entry in undone:
            theirs = entry.source == COUNTERPART and entry is not undone[0]
            self._undo(state, entry, COUNTERPART if theirs else source, COUNTERPART if theirs else by, at)

    def _undo(self, state: State, active: Entry, source: str, by: str, at: datetime | None = None) -> None:
        self._write(state, replace(active, at=at or datetime.now(UTC), source=source, by=by, undoes=active.id, id=0))

    def _write(self, state: State, entry: Entry) -> Entry:
        """Write an entry and apply it; an undoing has the tokens of its learning."""
        entry = self.ledger.append(entry, entry.undoes)
        sign = -1 if entry.undoes else 1
        for change in model.apply(self._voices, entry, state, sign):
            self.ledger.change(*change)
        state.last = entry.id
        self.ledger.calibrate(state.calibration)
        return entry
