"""The rounds of bulk training after the first: messages that are still judged badly add more to the counts.

A filter that learns from its errors ends up tuned to the messages it saw last, so it goes over all of them ROUNDS
times. A likelihood limits what one message may add in all rounds. One pass against five, the voice `fields` trained on
half of the SpamAssassin corpus and judging the other half: 1-ROCA% .26 -> .041, false positives 8.5 -> 0.7 %; with 5 %
wrong labels 1-ROCA% .21 -> .075 (benchmarks/rounds.py). `train`, `retrain` and `evaluate` all learn by this loop.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from spamfilter.bayes.counts import Counts
from spamfilter.bayes.labels import Label
from spamfilter.bayes.voices import Voices, VoiceTokens

ROUNDS = 5
"""All rounds, with the first one. After three, ham and spam are out of balance; eight gain little."""

Amounts = dict[str, dict[int, int]]
"""Voice -> number of a message -> the amount that the message has added to the voice's counts, if any."""


class Message(NamedTuple):
    """A message of bulk training; the number says which one it is."""

    number: int
    label: Label
    tokens: VoiceTokens


def no_amounts(voices: Voices) -> Amounts:
    """Amounts for the voices that learn in later rounds, before anything is learnt."""
    return {voice.name: {} for voice in voices if voice.likelihood.reinforces()}


def note(amounts: Amounts, number: int, added: Mapping[str, int]) -> None:
    """Note the amounts that a message has added, by voice."""
    for voice, mine in amounts.items():
        if added.get(voice):
            mine[number] = added[voice]


def later_rounds(
    voices: Voices,
    counts: Mapping[str, Counts],
    messages: Callable[[], Iterable[Message]],
    amounts: Amounts,
    rounds: int,
) -> int:
    """Go over the messages until a round adds nothing, at most `rounds` - 1 times; returns the number of rounds.

    Adds to `counts` and to `amounts`. messages: called for each round; gives the same messages in the same order. One
    that comes twice in a round is learnt twice.
    """
    learning = [voice for voice in voices if voice.name in amounts]
    gone = 0
    while learning and gone < rounds - 1:
        grown = set()
        for number, label, tokens in messages():
            for voice in learning:
                if voice.name not in tokens:
                    continue
                mine, of_voice, added = tokens[voice.name], counts[voice.name], amounts[voice.name]
                before = added.get(number, 0)
                more = voice.likelihood.more(mine, label, of_voice, before)
                if more:
                    of_voice.add(label, voice.likelihood.deltas(mine, more), 0 if before else 1)
                    added[number] = before + more
                    grown.add(voice.name)
        learning = [voice for voice in learning if voice.name in grown]
        gone += 1
    return gone
