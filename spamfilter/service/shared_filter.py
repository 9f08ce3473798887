"""The filters of a relay of several processes: one of them writes the counts that the others judge by."""

from collections.abc import Iterable

from spamfilter.bayes import model
from spamfilter.bayes.imported.voices import with_imported
from spamfilter.bayes.model import Score, State
from spamfilter.bayes.voices import Evidence, View, Voices, VoiceTokens
from spamfilter.learning.filter import Filter
from spamfilter.learning.transaction import Reading
from spamfilter.service.shared_counts import Held, SharedCounts
from spamfilter.stores import Entry, Store


class WritingFilter(Filter):
    """The filter of the process that follows the ledger."""

    def __init__(self, store: Store, voices: Voices, shared: SharedCounts) -> None:
        super().__init__(store, voices)
        self._shared = shared

    def adopt(self, state: State, voices: Voices | None = None) -> None:
        voices = with_imported(voices or self.voices, [*state.counts])
        super().adopt(self._shared.replace(state, voices), voices)

    def _all(self) -> State:
        if self._state is None:
            _, self._state, self._voices = self._shared.taken_over()
        return self._state

    def _take_in(self, state: State, entries: Iterable[Entry]) -> int:
        if state is not self._state:  # a sum of the ledger, to be compared
            return super()._take_in(state, entries)
        taken = 0
        for entry in entries:
            with self._shared.changing(state, self._voices):
                taken += super()._take_in(state, [entry])
        return taken


class ReadingFilter(Filter):
    """The filter of a process that judges. It changes no counts: what it learns comes to it by the ledger."""

    def __init__(self, store: Store, voices: Voices, shared: SharedCounts) -> None:
        super().__init__(store, voices)
        self._shared = shared

    @property
    def voices(self) -> Voices:
        return self._shared.held().voices

    def _all(self) -> State:
        return self._shared.held().state

    def score(self, reading: Reading) -> Score:
        return self._shared.steady(lambda held: model.score(held.voices, _seen(reading, held), held.state))

    def explained(self, reading: Reading, most: int | None = None) -> tuple[Score, list[Evidence]]:
        return self._shared.steady(lambda held: model.explained(held.voices, _seen(reading, held), held.state, most))


def _seen(reading: Reading, held: Held) -> VoiceTokens:
    """The tokens of a message for the present voices, which may have changed since it was read."""
    tokens = reading.tokens
    return tokens.seen_by(held.voices) if isinstance(tokens, View) else tokens
