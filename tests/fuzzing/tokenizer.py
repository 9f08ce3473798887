"""Any bytes as a mail: all its tokens, what all voices make of them, and that unlearning is the way back."""

from collections.abc import Iterator
from contextlib import contextmanager

from spamfilter.bayes import model
from spamfilter.bayes.labels import Label
from spamfilter.bayes.token_codec import pack, unpack
from spamfilter.bayes.tokens import FEATURES, MAX_RUN, MAX_WORD, tokenize
from spamfilter.bayes.verdict import Policy
from spamfilter.bayes.voices import view
from spamfilter.config.settings import Settings
from spamfilter.learning.filter import Filter
from spamfilter.mail.header import MAX_NAME
from spamfilter.mail.message import SCANNED, parse
from spamfilter.relay.judging import Judge
from tests.fuzzing.target import Run, without_faults
from tests.support.made import mail
from tests.support.memory_store import open_store

LEARN_EVERY = 4
"""Learning and unlearning take longer than all else, so one run in so many does, by the length of its input."""


@contextmanager
def target() -> Iterator[Run]:
    voices = Settings().voices()
    filter = Filter(open_store("memory:"), voices)
    learnt: dict[Label, str] = {"ham": "meet for lunch", "spam": "buy pills now"}
    for label, text in learnt.items():
        filter.learn(filter.read(parse(mail(text, text, text[:3]))), label, "cli")
    state = filter.loaded()
    judge = Judge(filter, Policy(evidence_header=True))

    def run(data: bytes) -> None:
        message = parse(data)
        for name in FEATURES:
            for token in tokenize(message, [name]):
                token.decode("utf-8")
                assert len(token) <= 2 * max(MAX_RUN, MAX_NAME + MAX_WORD) + 2, (name, token)
        seen = view(voices, message)
        assert unpack(pack(seen)) == seen
        # A word of one letter, two bytes with its blank, is two tokens that begin with the name of its field.
        most = (MAX_NAME + 20) * min(len(data), SCANNED)
        assert sum(len(token) for tokens in seen.values() for token in tokens) <= most
        verdict = judge.judge(data, "id").verdict
        assert 0 <= verdict.score.posterior <= 1
        for _, value in verdict.fields("id", with_evidence=True):
            assert value.isascii()
            assert value.isprintable()
        if len(data) % LEARN_EVERY == 0:
            score = model.score(voices, seen, state)
            lesson = model.taught(voices, seen, "spam", state, score)
            assert model.score(voices, seen, state).log_odds >= score.log_odds
            model.apply(voices, lesson, state, -1)
            assert model.score(voices, seen, state) == score

    with without_faults(run) as watched:
        yield watched
