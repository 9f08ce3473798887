"""Hostile mail: whatever is in it, it is read within bounds, judged, learnt and unlearnt, and passed on as it came.

The bounds are on work that can be counted: calls, tokens, memory. benchmarks/hostile_mail.py measures the time.
"""

import encodings
import logging
import re
import sys
import tracemalloc
from collections.abc import Iterator
from types import FrameType

import pytest

from spamfilter.bayes import model
from spamfilter.bayes.token_codec import pack
from spamfilter.bayes.verdict import Policy
from spamfilter.bayes.voices import view
from spamfilter.config.settings import Settings
from spamfilter.learning.filter import Filter
from spamfilter.mail.header import ENCODED_WORD, MAX_FIELD_BYTES, MAX_FIELDS, MAX_VALUE
from spamfilter.mail.message import LONGEST_HEADER, SCANNED, Message, parse
from spamfilter.mail.tagging import mark
from spamfilter.relay.judging import Judge
from tests.faults.client import Client
from tests.faults.conftest import door, one_hop, one_relay  # noqa: F401  # the relay that all bombs go through
from tests.faults.daemon import Daemon
from tests.faults.hop import Hop
from tests.fuzzing.dialogue import same_but_for_ours
from tests.hostile.bombs import BOMBS, HEAD
from tests.support.doors import EACH_DOOR, Door
from tests.support.made import mail
from tests.support.memory_store import open_store

SIZE = 1_000_000
"""Bytes of a bomb here: fifteen times what is looked at."""
SENT = 200_000
"""Bytes of one that goes through the relay."""
CALLS = 60_000
"""Calls of functions to judge a mail, most of them of C: a small mail takes 800, the worst of these 40,000."""
TOKENS = 5_000
TOKEN_BYTES = 50_000
"""Distinct tokens of all voices, and their bytes: the worst of these have 3,300 and 17,000."""
MEMORY = 6_000_000
"""Bytes allocated at the most to judge any mail, beside the mail itself: the worst of these takes 2.5 million."""
FORGED = {
    "our-own-fields": b"X-Spamfilter-Id \t:\r\n",
    "our-own-fields-folded": b"\t\r\n",
}
"""What of a bomb bears our names, and so is taken out."""

bombs = pytest.mark.parametrize("name", BOMBS)


@pytest.fixture(scope="module")
def judge() -> Judge:
    """A filter that knows a little of both, so that there is something to score."""
    filter = Filter(open_store("memory:"), Settings().voices())
    filter.learn(filter.read(parse(mail("lunch", "shall we meet", "1"))), "ham", "cli")
    filter.learn(filter.read(parse(mail("buy now", "x a b c y words", "2"))), "spam", "cli")
    return Judge(filter, Policy(evidence_header=True))


class Calls:
    """Counts the calls of functions, Python's and C's, that are made within."""

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> "Calls":
        sys.setprofile(self._called)
        return self

    def __exit__(self, *error: object) -> None:
        sys.setprofile(None)

    def _called(self, frame: FrameType, event: str, argument: object) -> None:
        self.count += event in ("call", "c_call")


@bombs
def test_a_bomb_is_judged_within_bounds(name: str, judge: Judge, caplog: pytest.LogCaptureFixture) -> None:
    bomb = BOMBS[name](SIZE)
    with caplog.at_level(logging.ERROR), Calls() as calls:
        judgement = judge.judge(bomb, "id")
    assert not judgement.verdict.fault, caplog.text
    assert calls.count < CALLS
    assert SCANNED <= judgement.verdict.scanned <= LONGEST_HEADER
    assert SCANNED < judgement.verdict.size == len(bomb)
    assert judgement.reading
    tokens = [token for seen in judgement.reading.tokens.values() for token in seen]
    assert len(tokens) < TOKENS
    assert sum(map(len, tokens)) < TOKEN_BYTES
    assert len(pack(judgement.reading.tokens)) < TOKEN_BYTES
    fields = judgement.verdict.fields("id", with_evidence=True)
    assert sum(len(value) for _, value in fields) < 1000
    assert all(value.isascii() and value.isprintable() for _, value in fields)


@bombs
def test_a_bomb_takes_memory_for_what_is_looked_at_only(name: str, judge: Judge) -> None:
    bomb = BOMBS[name](4 * SIZE)
    tracemalloc.start()
    try:
        judge.judge(bomb, "id")
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        parts = mark(bomb, [("X-Spamfilter-Id", "1")], "[SPAM]")
        _, marking = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < MEMORY
    assert marking < 6 * len(bomb)
    assert sum(map(len, parts)) <= len(bomb) + 100


@bombs
def test_learning_a_bomb_and_unlearning_it_is_the_identity(name: str, judge: Judge) -> None:
    voices, state = judge.filter.voices, judge.filter.loaded()
    before = judge.filter.loaded()
    seen = view(voices, parse(BOMBS[name](SIZE)))
    score = model.score(voices, seen, state)
    lesson = model.taught(voices, seen, "spam", state, score)
    assert lesson.added
    model.apply(voices, lesson, state, -1)
    assert model.score(voices, seen, state) == score
    assert state.counts == before.counts


@pytest.fixture(scope="module")
def client(one_relay: Daemon) -> Iterator[Client]:  # noqa: F811
    with one_relay.connect() as client:
        yield client


@EACH_DOOR
@bombs
def test_a_bomb_passes_as_it_came_but_for_our_fields(
    name: str,
    client: Client,
    door: Door,  # noqa: F811
    one_hop: Hop,  # noqa: F811
) -> None:
    bomb, milter = BOMBS[name](SENT), door.listen == "milter"
    one_hop.kept.clear()
    answer = client.deliver(bomb)
    if milter and name == "our-own-fields":  # which a milter would have to take out one by one
        assert answer.raw.startswith(b"550 5.6.0 More than 100 header fields")
        return
    assert answer.code == 250
    (kept,) = one_hop.kept
    bomb = client.as_sent(bomb)
    if name in FORGED:
        bomb = bomb.replace(FORGED[name], b"").replace(b"X-Spam-Flag:\r\n", b"")
    if milter and name == "our-own-fields-and-blanks":  # to a mail server they are no part of the name
        bomb = re.sub(rb"(?m)^X-Spam-Flag +:\r\n", b"", bomb)
    assert same_but_for_ours(bomb, kept.mail)


def _message(header: bytes) -> Message:
    return parse(HEAD + header + b"\r\n\r\nSubject: text\r\n")


@pytest.mark.parametrize("line", [b"%d: x", b"\xff %d", b"X-Spam-%d: x"], ids=["fields", "no-fields", "dropped"])
def test_of_a_header_a_thousand_lines_are_looked_at_and_250_fields_kept(line: bytes) -> None:
    message = _message(b"\r\n".join(line % number for number in range(2000)))
    assert len(message.fields) <= MAX_FIELDS
    assert "many-fields" in message.defects
    assert b"Subject: text" in message.text


def test_16000_bytes_of_a_header_are_kept_and_as_many_of_its_parts() -> None:
    line = b"x: " + b"y" * MAX_VALUE + b"\r\n"
    head = b"Content-Type: multipart/mixed; boundary=z\r\n" + line * 40
    message = parse(head + b"\r\n" + (b"--z\r\n" + line * 10 + b"\r\nbody\r\n") * 5)
    for fields in (message.fields, message.part_fields):
        assert MAX_FIELD_BYTES <= sum(len(name) + len(value) for name, value in fields) < MAX_FIELD_BYTES + 700
    assert message.text.count(b"body") == 5


def test_encoded_words_take_the_room_of_what_was_read() -> None:
    """However little they say."""
    line = b"subject: " + b" ".join(b"=?x?q?=41?=" for _ in range(30))
    kept = _message(b"\r\n".join([line] * 100)).fields[5:]
    assert {value for _, value in kept} == {b"A" * 30}
    each = len(line) + 30 * ENCODED_WORD
    assert MAX_FIELD_BYTES - len(HEAD) <= len(kept) * each < MAX_FIELD_BYTES + each


def test_names_of_charsets_that_somebody_makes_up_are_not_remembered() -> None:
    """Python keeps each that it is asked for, without end."""
    parse(BOMBS["encoded-words-of-made-up-charsets"](10_000))
    before = len(encodings._cache)
    parse(BOMBS["encoded-words-of-made-up-charsets"](SIZE).replace(b"=?", b"=?other-"))
    assert len(encodings._cache) == before


def test_a_usual_header_is_kept_whole() -> None:
    message = _message(b"\r\n".join(b"%d: x" % number for number in range(200)))
    assert len(message.fields) == 205
    assert message.defects == ()
