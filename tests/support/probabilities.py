"""What textbooks and other libraries give of a likelihood: the probability of each class, and the shares of words."""

import math
from collections.abc import Mapping

from spamfilter.bayes.counts import Counts
from spamfilter.bayes.labels import LABELS, Label
from spamfilter.bayes.likelihoods import Likelihood
from spamfilter.bayes.likelihoods.likelihood import Generative, MessageCounts
from spamfilter.bayes.tokens import Token, Tokens
from spamfilter.bayes.voices import (
    BELIEVED,
    Evidence,
    LogOddsByVoice,
    Voices,
    VoiceTokens,
    known,
    loudest,
    voice_scores,
)


def log_joint(model: Generative, tokens: Tokens, counts: Counts) -> dict[Label, float]:
    """Class -> ln P(class) + ln P(message | class), without factors that are the same in every class."""
    message = MessageCounts.of(tokens, counts)
    return {label: model.log_likelihood(label, message, counts) + model.log_prior(label, counts) for label in LABELS}


def class_probabilities(model: Generative, tokens: Tokens, counts: Counts) -> dict[Label, float]:
    """Class -> P(class | message), by normalising `log_joint` in log space."""
    logarithms = log_joint(model, tokens, counts)
    highest = max(logarithms.values())
    shares = {label: math.exp(value - highest) for label, value in logarithms.items()}
    return {label: share / sum(shares.values()) for label, share in shares.items()}


def word_shares(model: Likelihood, tokens: Tokens, counts: Counts) -> dict[Token, float]:
    """Token -> its share of the log-odds that the filter hears, for tokens that say anything."""
    _, heard = model.judge(tokens, counts)
    return {token: share for token, share in zip(heard.tokens, heard.shares.tolist(), strict=True) if share}


def judged(
    voices: Voices, tokens: VoiceTokens, counts: Mapping[str, Counts], most: int | None = 0
) -> tuple[LogOddsByVoice, float, list[Evidence]]:
    """The opinion of each voice, the share of known tokens, and the loudest evidence."""
    said = voice_scores(voices, tokens, counts)
    return {voice.name: opinion for voice, opinion, _ in said}, known(said), loudest(said, most, BELIEVED)
