"""Poisoning: what spam can teach by what it says, what one author can teach by what they say, and the way back.

Benchmarks measure the damage on real mail (benchmarks/poisoning.py); here are the bounds that hold for any mail.
"""

import json
import random
import smtplib
import socket
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spamfilter.bayes.calibration import Calibration
from spamfilter.bayes.counts import Counts
from spamfilter.bayes.labels import AUTOMATIC, BULK, LABELS, OTHER, Label
from spamfilter.bayes.likelihoods.eddc import REPEATS, Eddc
from spamfilter.bayes.likelihoods.soft import Soft
from spamfilter.bayes.voices import everybodys, view
from spamfilter.config.sections import Feedback
from spamfilter.config.settings import Settings
from spamfilter.errors import Refused
from spamfilter.learning import marks as feedback
from spamfilter.learning.bulk.labelled_mail import find_indexed
from spamfilter.learning.filter import Filter
from spamfilter.learning.mark_lookup import Subject
from spamfilter.learning.marks import Author
from spamfilter.learning.retraining import retrain
from spamfilter.learning.transaction import Reading
from spamfilter.learning.undoing import taught_by, undo
from spamfilter.mail.message import parse
from spamfilter.stores import Store, open_store
from tests.integration.dovecot import connect, dovecot
from tests.integration.servers import free_port, postfix, relay, wait_until, workshop
from tests.mail.test_attached_mails import PLAIN, multipart
from tests.support import memory_store
from tests.support.made import VOICE, mail, reading, some
from tests.support.memory_store import KINDS, MemoryStore
from tests.support.users import NOBODY, connected_as

VOICES = everybodys(Settings().voices())
SHARE = Settings().feedback.marks_a_day
ALICE = "alice@example.test"
MALLORY, BOB, ROOT = Author("mallory", "imap"), Author("bob", "imap"), Author("root", "cli", master=True)


def mark(filter: Filter, sent: bytes, label: Label | None, author: Author, marks_a_day: int = SHARE) -> bool:
    subject = Subject("a mail", "", filter.read(parse(sent)))
    return feedback.mark(filter, subject, label, author, Feedback(marks_a_day=marks_a_day)).changed


def forget_by(filter: Filter, name: str, since: datetime | None = None) -> int:
    """As `forget --by NAME --yes`: of how many messages."""
    done: set[int] = set()
    undo(filter, taught_by(filter.store, name, since), "cli", "root", done.update)
    return len(done)


# The day's share


def ask(path: Path, sent: bytes) -> dict[str, object]:
    """What the feedback socket answers to a mark of this mail by the user nobody."""
    (client,) = connected_as(NOBODY, path)
    with client:
        client.settimeout(60)
        client.sendall(json.dumps({"command": "mark", "label": "spam", "size": len(sent)}).encode() + b"\n" + sent)
        return dict(json.loads(_line(client)))


def _line(client: socket.socket) -> bytes:
    found = b""
    while not found.endswith(b"\n"):
        block = client.recv(65536)
        assert block
        found += block
    return found


def forwarded(port: int, sent: bytes) -> str:
    """What the relay answers to a mail for the address of spam, with this one attached."""
    head = f"From: {ALICE}\r\nTo: spam@example.test\r\nMessage-ID: <forward@example.org>\r\n".encode()
    with smtplib.SMTP("127.0.0.1", port, "client.example", timeout=60) as client:
        try:
            client.sendmail(ALICE, ["spam@example.test"], multipart(PLAIN + sent, header=head))
        except smtplib.SMTPDataError as error:
            return f"{error.smtp_code} {error.smtp_error!r}"
    return "250"


def test_the_201st_mark_of_a_day_is_refused_with_a_clear_message_by_every_way() -> None:
    by_mail = "mail from localhost"
    refusal = "200 marks in 24 hours are the limit ([feedback] marks_a_day)"
    assert SHARE == 200
    with workshop() as folder, dovecot(folder / "dovecot") as imap:
        back, path = free_port(), folder / "run" / "x.sock"
        path.parent.mkdir()
        with (
            relay(
                folder / "relay",
                relay={"next_hop": f"smtp://127.0.0.1:{back}"},
                feedback={"socket": str(path), "proxies": [], "spam_addresses": ["spam@example.test"]},
            ) as server,
            postfix(folder / "postfix", to=free_port(), lmtp=imap.lmtp, back=back, proxy=server.port) as front,
        ):
            connect(imap, server, path)
            with closing(open_store(f"sqlite:///{server.state}/spamfilter.db")) as store:
                filter = Filter(store, VOICES)
                with filter.training() as training:
                    for author in (Author("nobody", "cli"), Author(ALICE, "imap"), Author(by_mail, "address")):
                        for number in range(SHARE - 1):
                            one = filter.read(parse(mail(body=f"number {number}", name=f"{author.name}{number}")))
                            training.learn(one, "spam", author.source, author.name)

                def marks(name: str) -> int:
                    return store.marks_by(name, datetime.now(UTC) - timedelta(days=1))

                first, second = ask(path, mail(name="one")), ask(path, mail(name="two"))
                assert (first["changed"], marks("nobody")) == (True, SHARE)
                assert (second["exit_code"], marks("nobody")) == (1, SHARE)
                assert str(second["error"]).startswith(f"nobody: {refusal}; go on tomorrow")

                assert (forwarded(server.port, mail(name="three")), marks(by_mail)) == ("250", SHARE)
                refused = forwarded(server.port, mail(name="four"))
                assert refused.startswith("550 ")
                assert f"5.7.1 {by_mail}: {refusal}" in refused
                assert marks(by_mail) == SHARE

                with smtplib.SMTP("127.0.0.1", front.front, "client.example", timeout=60) as client:
                    for name in ("five", "six"):
                        client.sendmail("a@example.org", [ALICE], mail(name=name))
                with imap.login(ALICE) as mailboxes:
                    wait_until(lambda: len(mailboxes.numbers()) == 2, "two mails in INBOX")
                    for uid in mailboxes.numbers():
                        mailboxes.move(uid, "Junk")
                    assert mailboxes.numbers() == []  # the move is the user's, whatever it teaches
                assert marks(ALICE) == SHARE
                assert f"{ALICE}: {refusal}" in imap.log()


def test_within_the_share_no_word_moves_by_more_than_the_share(corpus: Callable[[str], Path]) -> None:
    """The damage of a day: a word's counts move by at most a message a mark; by five, in the header of phrases."""
    filter = Filter(MemoryStore(), VOICES)
    mails = [(label, found.read()) for label, found in find_indexed(corpus("spamassassin") / "index.interleaved")[:80]]
    with filter.training() as training:
        for label, sent in mails[:40]:
            training.learn(filter.read(parse(sent)), label, "imap", "ann")
    before = filter.store.load(voice.name for voice in VOICES)
    taken = 0
    for label, sent in mails[40:]:
        try:
            taken += mark(filter, sent, OTHER[label], MALLORY, 20)
        except Refused:
            continue
    after = filter.store.load(voice.name for voice in VOICES)
    assert taken == 20
    tokens = {name: {token for _, sent in mails for token in seen(sent, name)} for name in after.counts}
    for voice in VOICES:
        each = voice.likelihood.unit * (1 + REPEATS if voice.name == "phrases" else 1)
        for label in LABELS:
            moved = [
                counts.counts[voice.name].kept.column(sorted(tokens[voice.name]), label) for counts in (before, after)
            ]
            assert 0 < (moved[1] - moved[0]).max() <= 20 * each
            assert (moved[1] >= moved[0]).all()
    assert sum(after.learnt.values()) == 60


def established(learnt: int = feedback.ESTABLISHED) -> Filter:
    """A filter that is sure of what contains `hello` and of what contains `pills`."""
    filter = Filter(MemoryStore(), VOICE)
    with filter.training() as training:
        for number in range(learnt):
            label, word = LABELS[number % 2], ("hello", "pills")[number % 2]
            training.add(reading(f"known{number}", word, f"{word}{number % 7}"), label, BULK, "root")
    return filter


def teach(filter: Filter, number: int, label: Label, author: Author, *words: str) -> bool:
    """Whether a mark of a mail with these words is learnt."""
    subject = Subject("x", "", reading(f"{author.name}{label}{number}", *words))
    said = ""
    try:
        return feedback.mark(filter, subject, label, author, Feedback()).changed
    except Refused as error:
        said = str(error)
    assert "5 marks of spam in 24 hours against the verdict are the limit" in said
    return False


TRAP = Author("trap", AUTOMATIC)


@pytest.mark.parametrize("author", [MALLORY, TRAP], ids=["a-person", "a-rule"])
def test_an_author_contradicts_an_established_filter_five_times_a_day(author: Author) -> None:
    filter = established()
    ham = reading("judged", "hello", "hello3")
    assert [teach(filter, at, "spam", author, "hello", f"new{at}") for at in range(20)] == [True] * 5 + [False] * 15
    assert teach(filter, 30, "spam", author, "pills", "pills3"), "what the filter says itself is no contradiction"
    assert all(teach(filter, at, "ham", author, "pills", f"new{at}") for at in range(40, 50)), "no ham is lost by it"
    assert teach(filter, 60, "spam", BOB, "hello", "bobs"), "another author has five of their own"
    assert filter.score(ham).posterior < 0.5


def test_an_author_does_not_make_their_own_marks_agree_with_the_verdict() -> None:
    filter = established()
    wrong = ["hello", "hello3", *(f"list{at}" for at in range(8))]
    assert all(teach(filter, at, "spam", MALLORY, *wrong) for at in range(2))
    assert all(teach(filter, at, "spam", MALLORY, "hello", f"new{at}") for at in range(10, 13))
    assert filter.score(reading("judged", *wrong)).posterior > 0.9, "by now they seem to be spam"
    assert not teach(filter, 20, "spam", MALLORY, *wrong)
    assert teach(filter, 21, "spam", BOB, *wrong)
    assert filter.verify() == []


def test_the_administrator_and_a_filter_that_knows_little_are_contradicted_at_will() -> None:
    filter = established()
    assert all(teach(filter, at, "spam", ROOT, "hello", f"new{at}") for at in range(20))
    young = established(feedback.ESTABLISHED - 30)
    assert all(teach(young, at, "spam", MALLORY, "hello", f"new{at}") for at in range(20))


def test_what_is_taken_back_contradicts_no_more() -> None:
    filter = established()
    assert all(teach(filter, at, "spam", MALLORY, "hello", f"new{at}") for at in range(5))
    assert not teach(filter, 5, "spam", MALLORY, "hello", "another")
    assert feedback.mark(filter, Subject("x", "", reading("malloryspam0")), None, MALLORY, Feedback()).changed
    assert teach(filter, 5, "spam", MALLORY, "hello", "another")


def seen(sent: bytes, voice: str) -> Sequence[bytes]:
    return list(view(VOICES, parse(sent))[voice])


@pytest.mark.parametrize("source", [BULK, AUTOMATIC])
@pytest.mark.parametrize("wanted", ["spam", "ham", None])
def test_what_nobody_has_marked_is_changed_within_the_share_only(source: str, wanted: Label | None) -> None:
    filter = Filter(MemoryStore(), VOICE)
    for number in range(10):
        filter.learn(reading(f"{number}", f"word{number}"), "ham", source, "sorted")
    changed, refusals = [], set()
    for number in range(10):
        subject = Subject("x", "", reading(f"{number}", f"word{number}"))
        for label in (wanted, None):  # their own by then, if it was changed
            try:
                changed += [number] * feedback.mark(filter, subject, label, MALLORY, Feedback(marks_a_day=4)).changed
            except Refused as error:
                refusals.add(str(error).partition(";")[0])
    assert set(changed) == {0, 1, 2, 3}
    assert refusals == {"mallory: 4 marks in 24 hours are the limit ([feedback] marks_a_day)"}
    # A mark that is forgotten leaves what nobody had marked; forgetting that itself is within the share, too.
    assert filter.learnt == {"ham": 10 if wanted else 6, "spam": 0}


# The way back

State = tuple[dict[str, list[tuple[object, ...]]], Calibration]


def tables(file: Path) -> dict[str, list[tuple[object, ...]]]:
    """All that judging depends on, row by row."""
    with closing(sqlite3.connect(file)) as database:
        found = {
            "words": "SELECT voice, word, ham, spam FROM words",
            "classes": "SELECT * FROM classes WHERE messages <> 0 OR words <> 0",
            "vocabularies": "SELECT * FROM vocabularies",
            "tallies": "SELECT * FROM tallies",
            "totals": "SELECT name, value FROM settings WHERE name IN ('learnt', 'calibration')",
        }
        return {name: sorted(database.execute(query).fetchall()) for name, query in found.items()}


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Filter]:
    with closing(open_store(f"sqlite:///{tmp_path}/x.db", migrate=True)) as store:
        yield Filter(store, VOICES)


def test_real_mail_wrongly_marked_is_healed_row_by_row(
    opened: Filter, tmp_path: Path, corpus: Callable[[str], Path]
) -> None:
    """All that an author can do to what others have taught: mark it, turn it, agree with it, take it back."""
    mails = [(label, found.read()) for label, found in find_indexed(corpus("spamassassin") / "index.interleaved")[:60]]
    with opened.training() as training:
        for number, (label, sent) in enumerate(mails[:30]):
            source, by = [("imap", "ann"), (BULK, "root"), (AUTOMATIC, "trap")][number % 3]
            training.learn(opened.read(parse(sent)), label, source, by)
    before, judged = tables(tmp_path / "x.db"), [opened.score(opened.read(parse(sent))) for _, sent in mails]
    marked = 0
    refusals: list[str] = []
    for number, (label, sent) in enumerate(mails[:45]):
        other = OTHER[label]
        turns: list[list[Label | None]] = [[other], [label], [None], [other, None], [label, other]]
        for turn in turns[number % 5]:
            try:
                marked += mark(opened, sent, turn, MALLORY)
            except Refused as error:
                refusals.append(str(error))
    assert marked > 30
    assert all("by ann" in refusal for refusal in refusals)
    assert tables(tmp_path / "x.db") != before
    assert forget_by(opened, "mallory") > 20
    assert tables(tmp_path / "x.db") == before
    assert [opened.score(opened.read(parse(sent))) for _, sent in mails] == judged
    assert opened.verify() == []
    assert forget_by(opened, "mallory") == 0


SUBJECTS = [Subject(name, "", reading(name, name, "common")) for name in ("one", "two", "three", "four")]


def contents(store: Store) -> tuple[dict[str, Counts], dict[Label, int], Calibration]:
    state = store.load(["fields"])
    return state.counts, state.learnt, state.calibration


@given(
    taught=st.lists(
        st.tuples(st.sampled_from(SUBJECTS), st.sampled_from(LABELS), st.sampled_from((BULK, AUTOMATIC, "imap")))
    ),
    marks=st.lists(st.tuples(st.sampled_from((*LABELS, None)), st.sampled_from(SUBJECTS)), max_size=20),
)
@some(60)
def test_whatever_an_author_says_is_taken_back_as_if_it_had_not_been_said(
    taught: list[tuple[Subject, Label, str]], marks: list[tuple[Label | None, Subject]]
) -> None:
    filter = Filter(MemoryStore(), VOICE)
    for subject, label, source in taught:
        filter.learn(subject.reading, label, source, "others")
    before = contents(filter.store)
    learnt = {(entry.digest, entry.label, entry.by, entry.source) for entry in filter.store.learnings()}
    for wanted, subject in marks:
        try:
            feedback.mark(filter, subject, wanted, MALLORY, Feedback(marks_a_day=5))
        except Refused:
            continue
    forget_by(filter, "mallory")
    assert contents(filter.store) == before
    assert {(entry.digest, entry.label, entry.by, entry.source) for entry in filter.store.learnings()} == learnt
    assert filter.verify() == []


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with memory_store.url_of(request.param, tmp_path) as url, closing(memory_store.open_store(url)) as found:
        yield found


def test_only_what_was_said_since_then_goes_and_their_own_word_of_before_stands(store: Store) -> None:
    filter, one = Filter(store, VOICE), SUBJECTS[0]
    old = datetime.now(UTC) - timedelta(days=9)
    filter.learn(one.reading, "ham", "imap", "mallory", old)
    before = contents(store)
    assert feedback.mark(filter, one, "spam", MALLORY, Feedback(marks_a_day=5)).changed
    assert forget_by(filter, "mallory", old + timedelta(days=1)) == 1
    assert contents(store) == before
    assert forget_by(filter, "mallory") == 1
    assert filter.learnt == {"ham": 0, "spam": 0}


def test_what_the_administrator_has_said_since_stands(store: Store) -> None:
    filter, one, two = Filter(store, VOICE), SUBJECTS[0], SUBJECTS[1]
    for subject in (one, two):
        filter.learn(subject.reading, "ham", BULK, "others")
        assert feedback.mark(filter, subject, "spam", MALLORY, Feedback(marks_a_day=5)).changed
    assert feedback.mark(filter, one, None, ROOT, Feedback(marks_a_day=5)).changed
    assert feedback.mark(filter, two, "ham", ROOT, Feedback(marks_a_day=5)).changed
    assert forget_by(filter, "mallory") == 0
    assert [(entry.digest, entry.by, entry.label) for entry in store.learnings()] == [
        (one.reading.digest, "others", "ham"), (two.reading.digest, "root", "ham"),
    ]  # fmt: skip


def test_forgetting_whoever_forgot_a_campaign_does_not_bring_it_back(store: Store) -> None:
    filter, one, two = Filter(store, VOICE), SUBJECTS[0], SUBJECTS[1]
    filter.learn(one.reading, "ham", BULK, "root")
    before = contents(store)
    for subject in (one, two):
        assert feedback.mark(filter, subject, "spam", MALLORY, Feedback(marks_a_day=5)).changed
    assert forget_by(filter, "mallory") == 2
    assert contents(store) == before
    assert forget_by(filter, "root") == 1  # what root has trained, and not what root has forgotten of others
    assert store.learnings() == []


def test_what_is_learnt_again_after_a_rebuilding_is_measured_anew(store: Store) -> None:
    filter, one = Filter(store, VOICE), SUBJECTS[0]
    filter.learn(one.reading, "ham", BULK, "others")
    before = contents(store)
    assert feedback.mark(filter, one, "spam", MALLORY, Feedback(marks_a_day=5)).changed
    retrain(store, VOICE, {}, lambda _: None)
    assert forget_by(Filter(store, VOICE), "mallory") == 1
    assert contents(store) == before
    assert Filter(store, VOICE).verify() == []


def test_what_others_taught_meanwhile_is_as_without_the_author_once_it_is_measured_anew(store: Store) -> None:
    """Their amounts were right for what was known then; the counts are their sum, and `retrain` measures again."""
    without = MemoryStore()
    attacked, clean = Filter(store, VOICE), Filter(without, VOICE)
    chance = random.Random(1)
    for number in range(60):
        words = [f"word{chance.randrange(30)}" for _ in range(8)]
        subject = Subject("x", "", reading(f"{number}", *words))
        if number % 3 == 0:
            feedback.mark(attacked, subject, "spam", MALLORY, Feedback())
            continue
        for filter in (attacked, clean):
            feedback.mark(filter, subject, "ham" if number % 2 else "spam", BOB, Feedback())
    assert forget_by(attacked, "mallory") == 20
    assert attacked.learnt == clean.learnt
    assert attacked.verify() == []
    for each in (store, without):
        retrain(each, VOICE, {}, lambda _: None)
    assert contents(store) == contents(without)


# What spam can teach by what it says


def of_words(words: Sequence[str], name: str) -> bytes:
    return mail(subject="offer", body="\r\n".join(words), name=name)


def test_a_mail_speaks_and_teaches_by_its_first_four_thousand_bytes() -> None:
    """A dictionary of a hundred thousand words costs its sender a hundred mails, not one."""
    filter = Filter(MemoryStore(), VOICES)
    assert mark(filter, of_words([f"{number:05x}" for number in range(100_000)], "flood"), "spam", MALLORY)
    counts = filter.store.load(["body"]).counts["body"]
    assert 0 < counts.vocabulary <= 700  # of six bytes each


def test_a_flood_of_words_that_is_spam_already_teaches_nothing_more() -> None:
    filter = Filter(MemoryStore(), VOICES)
    words = [f"innocent{number}" for number in range(300)]
    for number in range(60):
        assert mark(filter, of_words(words, f"flood{number}"), "spam", ROOT)
        if number == 29:
            middle = filter.store.load(voice.name for voice in VOICES)
    after = filter.store.load(voice.name for voice in VOICES)
    for voice in VOICES:
        tokens = sorted({token for n in range(60) for token in seen(of_words(words, f"flood{n}"), voice.name)})
        common = [token for token in tokens if b"flood" not in token]
        columns = [state.counts[voice.name].kept.column(common, "spam") for state in (middle, after)]
        assert (columns[0] == columns[1]).all(), voice.name
        assert columns[1].max() <= 10 * voice.likelihood.unit, voice.name


def test_ham_of_other_words_is_untouched_by_a_dictionary_and_ham_of_its_words_recovers_by_few_marks() -> None:
    filter = Filter(MemoryStore(), VOICES)
    chance = random.Random(1)
    spoken = [f"plain{number}" for number in range(400)]

    def ham(number: int) -> bytes:
        return mail(f"minutes {number}", " ".join(chance.sample(spoken, 60)), f"ham{number}")

    for number in range(60):
        mark(filter, ham(number), "ham", ROOT)
        mark(filter, mail(f"pills {number}", f"buy cheap pills {number}", f"spam{number}"), "spam", ROOT)
    for number in range(12):  # a tenth of what was learnt
        mark(filter, of_words(chance.sample(spoken, 400), f"flood{number}"), "spam", MALLORY)
    posteriors = [filter.score(filter.read(parse(ham(1000 + number)))).posterior for number in range(40)]
    assert sum(p >= 0.9 for p in posteriors) == 0


def test_forged_header_words_are_heard_up_to_a_limit() -> None:
    filter = Filter(MemoryStore(), VOICES)
    forged = "".join(f"X-List-{name}: known-{name}-{name} as-{name}-ever\r\n" for name in "abcdefghijkl").encode()
    for number in range(80):
        mark(filter, forged + mail(f"minutes {number}", f"lunch {number}", f"ham{number}"), "ham", ROOT)
        mark(filter, mail(f"pills {number}", f"cheap pills {number}", f"spam{number}"), "spam", ROOT)
    said = filter.score(filter.read(parse(forged + mail("pills", "cheap pills", "new")))).voices["phrases"]
    (limit,) = (voice.likelihood.limit for voice in VOICES if isinstance(voice.likelihood, Eddc))
    text = replace(parse(mail("pills", "cheap pills", "new")), head=b"")
    alone = filter.score(Reading(b"x" * 16, {"phrases": view(VOICES, text)["phrases"]})).voices["phrases"].own
    assert said.own < -limit - 5  # what the voice itself believes of header and text
    assert said.heard >= alone - limit - 1


def test_a_soft_voice_learns_at_most_a_message_of_each_mark() -> None:
    soft, counts = Soft(), Counts()
    counts.add("ham", {b"lunch": 8000})
    assert soft.log_odds({b"lunch": 1}, counts) < -5
    assert soft.amount({b"lunch": 1}, "spam", counts) == soft.unit
