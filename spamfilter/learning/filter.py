"""The filter: judges messages with what was learnt, learns and unlearns, exactly.

Guarantee: learning is one transaction of the store, see `transaction`.
Guarantee: counts, totals and calibration are the sum of the ledger; `rebuilt` recomputes them.
Guarantee: counts made by other voices or likelihoods are not used; `rules` says by which they were made.
"""

import copy
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime

from spamfilter.bayes import model
from spamfilter.bayes.count_table import HashedTable, Words
from spamfilter.bayes.counts import Counts
from spamfilter.bayes.groups import digest_in, group_of
from spamfilter.bayes.imported.voices import with_imported
from spamfilter.bayes.labels import Label
from spamfilter.bayes.model import Score, State
from spamfilter.bayes.tokens import TOKENIZER
from spamfilter.bayes.voices import Evidence, Voices, VoiceTokens, everybodys, groups_of, view, words
from spamfilter.errors import StoreBusy, StoreError
from spamfilter.learning.transaction import Change, Reading, Training
from spamfilter.mail.folded_addresses import folded
from spamfilter.mail.message import Message
from spamfilter.stores import Entry, Ledger, Store

RULES = "rules"
"""The name of the setting of the database with the rules by which its counts were made."""
IMPORTED_VOICES = "imported"
"""The name of the setting with the filters that counts were imported of."""


class Filter:
    """Judges and learns with the counts of a store, by a choice of voices.

    whole: True holds all counts in memory, for the relay and for bulk training; False reads the counts of each message
    from the store, for a command that judges a few.
    """

    def __init__(self, store: Store, voices: Voices, whole: bool = True) -> None:
        self.store = store
        self._voices = with_imported(voices, store.get_setting(IMPORTED_VOICES))
        self._whole = whole
        self._state: State | None = None
        kept = store.get_setting(RULES)
        if kept is None:
            store.put_setting(RULES, kept := rules(voices))
        elif not usable(kept, voices) and not store.state({}).last:  # nothing was ever learnt by them
            with store.learning() as learning:
                learning.put_setting(RULES, kept := rules(voices))
                learning.load_anew()  # so that a running relay reads its configuration again
        self._generation = store.generation
        self._check(voices, kept)

    @property
    def voices(self) -> Voices:
        """The voices that judge; others after a rebuild that another [learn] section asked for."""
        return self._voices

    @property
    def learnt(self) -> dict[Label, int]:
        """Messages learnt of each class, as this filter knows them."""
        return self._all().learnt

    @property
    def vocabulary(self) -> int:
        """The number of known words, over all voices."""
        return sum(counts.vocabulary for counts in self._all().counts.values())

    def read(self, message: Message, group: str = "") -> Reading:
        """A message, as a group has it if one is named."""
        return Reading(digest_in(message.digest(), group), view(self.voices, message, group))

    def group_of(self, addresses: Iterable[str]) -> str:
        """The group that has a voice of its own and all these addresses; '' if there is none."""
        return group_of(map(folded, addresses), groups_of(self.voices))

    def score(self, reading: Reading) -> Score:
        return model.score(self.voices, reading.tokens, self._for(reading))

    def explained(self, reading: Reading, most: int | None = None) -> tuple[Score, list[Evidence]]:
        """The score, and the tokens behind it, the loudest first."""
        return model.explained(self.voices, reading.tokens, self._for(reading), most)

    def counted(self, reading: Reading) -> Iterator[Evidence]:
        """The counts of all tokens that a voice has learnt, whether they say anything or not: with no weight."""
        state = self._for(reading)
        for voice in self.voices:
            if tokens := [*reading.tokens.get(voice.name, ())]:
                numbers = state.counts[voice.name].numbers(tokens) / voice.likelihood.unit
                for token, (ham, spam) in zip(tokens, numbers.T.tolist(), strict=True):
                    if ham or spam:
                        yield Evidence(token.decode("utf-8", "replace"), voice.name, ham, spam, 0.0)

    def counts_of(self, *messages: VoiceTokens) -> State:
        """The counts of the words of these messages and all totals, from the store."""
        return model.prepared(self.voices, self.store.state(words(self.voices, *messages)))

    def take_in(self, entries: Iterable[Entry]) -> int:
        """Take in what other processes have learnt; returns how many ledger entries that was, without known ones."""
        return self._take_in(self._all(), entries)

    def loaded(self, voices: Voices | None = None) -> State:
        """All counts of the store, for `adopt`; the filter's own stay as they are.

        voices: other ones than the filter's, after a retraining. Raises StoreError if the counts are of other rules.
        """
        self._check(voices or self.voices, self.store.get_setting(RULES))
        return self._loaded(voices or self.voices)

    def adopt(self, state: State, voices: Voices | None = None) -> None:
        """Judge with these counts, and by these voices, from now on."""
        self._state, self._voices = state, with_imported(voices or self.voices, [*state.counts])

    def _loaded(self, voices: Voices) -> State:
        """With the counts of imported voices, which may have come since."""
        voices = with_imported(voices, self.store.get_setting(IMPORTED_VOICES))
        return model.prepared(voices, self.store.load(voice.name for voice in voices))

    def copied(self, voices: Voices) -> dict[str, Counts]:
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
    def training(self) -> Iterator[Training]:
        """One transaction for any number of learnings: all or none."""
        try:
            with self.store.learning() as learning:
                if self.store.generation != self._generation:
                    self._check(self.voices, self.store.get_setting(RULES))
                    self._voices = with_imported(self.voices, self.store.get_setting(IMPORTED_VOICES))
                    self._state, self._generation = None, self.store.generation
                whole = self._all() if self._whole else None
                if whole is not None:
                    self._take_in(whole, ledger(learning, whole.last))
                yield Training(learning, self.voices, whole)
        except BaseException:
            self._state = None  # what was applied in memory has not been written
            raise

    def rebuilt(self, last: int, kept: Callable[[], Words] = HashedTable) -> State:
        """The sum of the ledger up to the entry `last`, from empty counts. kept: makes the tables of counts."""
        state = model.empty(self.voices, kept)
        self._take_in(state, ledger(self.store, until=last))
        return state

    def verify(self) -> list[str]:
        """Damage in the store, and counts that are not the sum of the ledger; empty if all is well.

        Raises StoreBusy if the counts were rebuilt meanwhile, so that some are old and some new.
        """
        found = self.store.verify()
        generation = self.store.generation
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
        if found and self.store.generation != generation:
            raise StoreBusy(f"{self.store.where}: its counts were rebuilt, or another filter's imported; try again")
        return found

    def _all(self) -> State:
        """All counts; or, where they are not held in memory, the totals from the store, and no words."""
        if not self._whole:
            return self.counts_of()
        if self._state is None:
            self._state = self._loaded(self.voices)
        return self._state

    def _for(self, reading: Reading) -> State:
        return self._all() if self._whole else self.counts_of(reading.tokens)

    def _take_in(self, state: State, entries: Iterable[Entry]) -> int:
        taken = 0
        for entry in entries:
            if entry.id <= state.last:
                continue
            model.apply(self.voices, entry, state, -1 if entry.undoes else 1)
            state.last = entry.id
            taken += 1
        return taken


def ledger(source: Ledger, last: int = 0, until: int | None = None) -> Iterator[Entry]:
    """The entries with a greater id than `last`, up to and with `until`."""
    while entries := source.entries_after(last):
        for entry in entries:
            if until is not None and entry.id > until:
                return
            yield entry
        last = entries[-1].id


def rules(voices: Voices) -> dict[str, object]:
    """What the counts depend on: the version of the tokenizer and the likelihood of each voice; and what their
    calibration depends on: the revision of each formula. Imported voices and the voice of groups are left out, because
    they come and go without a rebuilding."""
    voices = everybodys(voices)
    revised = {voice.likelihood.name: voice.likelihood.revision for voice in voices if voice.likelihood.revision > 1}
    return {
        "tokenizer": TOKENIZER,
        "voices": {voice.name: voice.likelihood.name for voice in voices},
        **({"revisions": revised} if revised else {}),
    }


def usable(kept: object, voices: Voices) -> bool:
    """Whether counts made by the rules `kept` can be used by these voices.

    An older tokenizer has found a few other words; until `spamfilter retrain` the filter only knows less. Under another
    revision of a formula its probabilities are not calibrated until then.
    """
    if not isinstance(kept, dict):
        return False
    asked = rules(voices)
    return kept.get("voices") == asked["voices"] and kept.get("tokenizer", TOKENIZER + 1) <= TOKENIZER


def rules_text(kept: object) -> str:
    """The rules of a database for people; a newer version may have written others than `rules` gives."""
    if not isinstance(kept, dict) or not isinstance(kept.get("voices"), dict):
        return str(kept)
    revised = kept.get("revisions")
    revisions = revised if isinstance(revised, dict) else {}
    voices = ", ".join(
        f'{voice} by "{likelihood}"' + (f", revision {revisions[likelihood]}" if likelihood in revisions else "")
        for voice, likelihood in kept["voices"].items()
    )
    return f"{voices} (tokenizer {kept.get('tokenizer')})"
