"""Rules that learn without a mark: what concerns them, what they teach, what they leave alone."""

import asyncio
import re
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import get_args

import pytest

from spamfilter.bayes.labels import COUNTERPART, Label
from spamfilter.bayes.voices import View
from spamfilter.config.sections import Feedback
from spamfilter.errors import StoreBusy
from spamfilter.learning import automatic_rules
from spamfilter.learning.automatic_rules import RECEIVED_A_DAY, RULES, SENT_A_DAY, Automatic, Seen
from spamfilter.learning.filter import Filter
from spamfilter.learning.mark_queue import MarkQueue
from spamfilter.learning.marks import Author
from spamfilter.learning.transaction import Reading
from spamfilter.mail.message import GTUBE, parse
from spamfilter.stores import Entry, JournalEntry
from spamfilter.system.ids import new_id
from tests.support.made import VOICE, journal_entry, mail, reading
from tests.support.memory_store import MemoryStore

ANSWERED, TRAP = Feedback(automatic=["answered"]), Feedback(automatic=["trap"], traps=["trap@example.org"])
ANNA = "anna@example.org"
QUESTION = journal_entry(
    message_id="<question@x>", digest=reading("question").digest, sender="c@x.example", recipients=["b@x", ANNA]
)
ANSWER = b"From: anna@example.org\r\nIn-Reply-To: <question@x>\r\n"


class Busy(MemoryStore):
    """Held by another process at the first look."""

    def __init__(self) -> None:
        super().__init__()
        self.looks = 0

    def journal_named(self, message_id: str) -> list[JournalEntry]:
        self.looks += 1
        if self.looks == 1:
            raise StoreBusy("held by another process")
        return super().journal_named(message_id)


class Running:
    """Rules on a store in memory."""

    def __init__(self, store: MemoryStore, noted: Callable[[str, str], object]) -> None:
        self.filter = Filter(store, VOICE)
        self.queue = MarkQueue(self.filter, Feedback(marks_a_day=2), learnt=lambda: None)
        self.rules = Automatic(self.queue, store, noted)

    def learnt(self) -> list[Entry]:
        return self.filter.store.learnings()

    async def saw(self, seen: Seen, settings: Feedback) -> list[tuple[bytes, str]]:
        """Digest and label of what is learnt after that."""
        self.rules.saw(seen, settings)
        await self.rules.idle()
        return [(entry.digest, entry.label) for entry in self.learnt()]


@asynccontextmanager
async def rules(
    store: MemoryStore | None = None, *entries: JournalEntry, noted: Callable[[str, str], object] = lambda *said: None
) -> AsyncIterator[Running]:
    store = store or MemoryStore()
    store.write_journal(entries or [QUESTION])
    running = Running(store, noted)
    try:
        yield running
    finally:
        running.rules.close()
        running.queue.close()


def seen(sent: bytes, **changes: object) -> Seen:
    """A mail of an own user that the relay has judged."""
    of = Seen(new_id(), parse(sent), reading("seen"), ANNA, ["c@x.example"], True, False)
    return replace(of, **changes)  # type: ignore[arg-type]  # names are checked at run time


def test_the_table_has_what_the_configuration_knows() -> None:
    (names,) = get_args(Feedback.model_fields["automatic"].annotation)
    assert set(RULES) == set(get_args(names))


# answered


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(ANSWER, id="in-reply-to"),
        pytest.param(b"In-Reply-To: Your mail of Monday, <question@x> (anna)\r\n", id="words-around-it"),
        pytest.param(ANSWER + b"Auto-Submitted: no\r\n", id="by-a-person"),
    ],
)
async def test_a_mail_that_was_answered_is_ham(sent: bytes) -> None:
    async with rules() as running:
        assert await running.saw(seen(sent), ANSWERED) == [(QUESTION.digest, "ham")]
        (entry,) = running.learnt()
        assert (entry.source, entry.by) == ("automatic", "answered")


async def test_a_user_beyond_ascii_answers_in_either_form() -> None:
    written = "anna@b\N{LATIN SMALL LETTER U WITH DIAERESIS}cher.example"
    async with rules(None, replace(QUESTION, recipients=["anna@xn--bcher-kva.example"])) as running:
        assert await running.saw(seen(ANSWER, sender=written), ANSWERED) == [(QUESTION.digest, "ham")]


async def test_a_mail_judged_unsure_is_ham_when_it_was_answered() -> None:
    async with rules(None, replace(QUESTION, class_="unsure")) as running:
        assert await running.saw(seen(ANSWER), ANSWERED) == [(QUESTION.digest, "ham")]


@pytest.mark.parametrize(
    ("sent", "changes"),
    [
        pytest.param(ANSWER, {"proven": False}, id="a-stranger"),
        pytest.param(ANSWER, {"sender": ""}, id="a-bounce"),
        pytest.param(ANSWER + b"Auto-Submitted: auto-replied (vacation)\r\n", {}, id="absence"),
        pytest.param(ANSWER + b"auto-submitted: Auto-Generated; x=y\r\n", {}, id="generated"),
        pytest.param(ANSWER + b"Precedence: BULK\r\n", {}, id="bulk"),
        pytest.param(ANSWER + b"X-Autoreply: yes\r\n", {}, id="older-absence"),
        pytest.param(ANSWER + b"Content-Type: multipart/report; report-type=receipt\r\n", {}, id="report"),
        pytest.param(b"Subject: <question@x>\r\n\r\n<question@x>\r\n", {}, id="not-an-answer"),
        pytest.param(b"In-Reply-To: <other@x>\r\n", {}, id="of-another"),
        pytest.param(b"In-Reply-To: question@x\r\n", {}, id="not-an-id"),
        pytest.param(b"In-Reply-To: <question@x> <other@x>\r\n", {}, id="of-several"),
        pytest.param(b"References: <first@x>\r\n <question@x>\r\n", {}, id="only-in-its-thread"),
        pytest.param(b"In-Reply-To: <o@x>\r\nReferences: <question@x>\r\n", {}, id="of-another-of-the-thread"),
        pytest.param(ANSWER, {"sender": "eve@example.org"}, id="by-who-did-not-receive-it"),
        pytest.param(ANSWER, {"reading": reading("question")}, id="of-itself"),
        pytest.param(ANSWER, {"recipients": ["helpdesk@example.org"]}, id="passed-on-to-a-colleague"),
    ],
)  # fmt: skip
async def test_what_is_no_answer_of_a_user_teaches_nothing(sent: bytes, changes: dict[str, object]) -> None:
    async with rules() as running:
        assert await running.saw(seen(sent, **changes), ANSWERED) == []


@pytest.mark.parametrize(
    "entries",
    [
        pytest.param([replace(QUESTION, class_="spam")], id="judged-spam"),
        pytest.param([replace(QUESTION, class_="spam"), replace(QUESTION, id=new_id())], id="once-judged-spam"),
        pytest.param([replace(QUESTION, tokens=None)], id="words-not-kept"),
        pytest.param([QUESTION, replace(QUESTION, id=new_id(), digest=b"another".ljust(16))], id="two-mails-of-one-id"),
    ],
)
async def test_what_cannot_be_told_to_be_ham_is_not_learnt(entries: list[JournalEntry]) -> None:
    async with rules(None, *entries) as running:
        assert await running.saw(seen(ANSWER), ANSWERED) == []


async def test_one_mail_that_was_judged_twice_is_learnt_once() -> None:
    async with rules(None, QUESTION, replace(QUESTION, id=new_id())) as running:
        assert await running.saw(seen(ANSWER), ANSWERED) == [(QUESTION.digest, "ham")]


@pytest.mark.parametrize("labels", [("ham",), ("ham", None)])
async def test_a_counterpart_that_is_answered_is_the_answers(labels: Sequence[Label | None]) -> None:
    async with rules() as running:
        for label in labels:
            await running.queue.mark_id(QUESTION.id, label, Author(COUNTERPART, COUNTERPART, master=True))
        assert await running.saw(seen(ANSWER), ANSWERED) == [(QUESTION.digest, "ham")]
        assert [entry.source for entry in running.learnt()] == ["automatic"]


async def test_a_mail_that_was_forgotten_is_not_learnt_by_the_next_answer() -> None:
    async with rules() as running:
        await running.saw(seen(ANSWER), ANSWERED)
        await running.queue.mark_id(QUESTION.id, None, Author("bob", "imap"))
        assert await running.saw(seen(ANSWER), ANSWERED) == []


async def test_an_answer_to_the_sender_that_the_header_names_is_one() -> None:
    """Newsletters have an envelope of their own."""
    message = parse(b"From: Shop <news@shop.example>\r\nReply-To: <help@shop.example>\r\n\r\nwords of a shop\r\n")
    tokens = View(("fields",), message)
    async with rules(None, replace(QUESTION, tokens=tokens, sender="bounce@mailer.example")) as running:
        assert await running.saw(seen(ANSWER, recipients=["x@other.example"]), ANSWERED) == []
        assert await running.saw(seen(ANSWER, recipients=["Help@Shop.example"]), ANSWERED) == [(QUESTION.digest, "ham")]


async def test_an_answer_launders_no_mail_that_its_sender_names() -> None:
    """A stranger lists earlier spam in References of a question, and any mail program copies them into the answer."""
    spams = [
        journal_entry(message_id=f"<{number}@x>", digest=reading(str(number)).digest, recipients=[ANNA])
        for number in range(20)
    ]
    named = b" ".join(b"<%d@x>" % number for number in range(20))
    async with rules(None, QUESTION, *spams) as running:
        answer = ANSWER + b"References: " + named + b" <question@x>\r\n"
        assert await running.saw(seen(answer), ANSWERED) == [(QUESTION.digest, "ham")]


def questions(number: int, recipient: Callable[[int], str], domain: Callable[[int], str]) -> list[JournalEntry]:
    return [
        journal_entry(
            message_id=f"<{one}@x>", digest=reading(f"q{one}").digest, recipients=["list@x.example", recipient(one)],
            sender=f"c{one}@{domain(one)}",
        )
        for one in range(number)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("recipient", "domain", "most"),
    [
        pytest.param(lambda one: "Anna@Example.org", lambda one: f"d{one}.example", RECEIVED_A_DAY, id="of-one-user"),
        pytest.param(lambda one: f"u{one}@x.example", lambda one: "Evil.Example", SENT_A_DAY, id="of-one-domain"),
        pytest.param(lambda one: f"u{one}@x.example", lambda one: f"d{one}.example", 15, id="of-many"),
    ],
)
async def test_what_answers_teach_in_a_day_is_bounded(
    recipient: Callable[[int], str], domain: Callable[[int], str], most: int
) -> None:
    async with rules(None, *questions(15, recipient, domain)) as running:
        for one in range(15):
            answer = seen(b"In-Reply-To: <%d@x>\r\n" % one, sender=recipient(one), recipients=[f"x@{domain(one)}"])
            await running.saw(answer, ANSWERED)
        assert len(running.learnt()) == most


async def test_what_was_learnt_more_than_a_day_ago_or_by_others_takes_no_share() -> None:
    entries = questions(2 * SENT_A_DAY + 1, lambda one: ANNA, lambda one: "x.example")
    async with rules(None, *entries) as running:
        for one, entry in enumerate(entries[1:]):
            old = one < SENT_A_DAY
            at = datetime.now(UTC) - timedelta(hours=24 if old else 1)
            tokens = Reading(entry.digest, entry.tokens or {})
            running.filter.learn(tokens, "ham", "automatic", "answered" if old else "trap", at)
        await running.saw(seen(b"In-Reply-To: <0@x>\r\n"), ANSWERED)
        assert entries[0].digest in [entry.digest for entry in running.learnt()]


# trap


async def test_a_test_mail_is_never_learnt_by_a_rule() -> None:
    async with rules() as running:
        test_mail = seen(mail("a test", GTUBE.decode()), recipients=["trap@example.org"], proven=False)
        assert await running.saw(test_mail, TRAP) == []


async def test_mail_to_a_trap_is_spam() -> None:
    async with rules() as running:
        trapped = seen(mail(), recipients=["b@example.org", "trap@example.org"], proven=False)
        assert await running.saw(trapped, TRAP) == [(trapped.reading.digest, "spam")]
        (entry,) = running.learnt()
        assert (entry.source, entry.by) == ("automatic", "trap")


@pytest.mark.parametrize(
    "changes", [{"recipients": ["nospamtrap@example.org"]}, {"authenticated": True}], ids=["another-address", "a-user"]
)
async def test_other_mail_is_no_spam_for_a_trap(changes: dict[str, object]) -> None:
    async with rules() as running:
        assert await running.saw(seen(mail(), **{"recipients": ["trap@example.org"], **changes}), TRAP) == []


# both


async def test_a_rule_that_is_not_chosen_teaches_nothing() -> None:
    async with rules() as running:
        both = seen(ANSWER, recipients=["trap@example.org"])
        assert await running.saw(both, Feedback(traps=["trap@example.org"])) == []
        assert await running.saw(both, TRAP) == [(both.reading.digest, "spam")]


@pytest.mark.parametrize("label", ["ham", "spam"])
async def test_a_rule_changes_nothing_that_was_learnt_by_whomever(label: str) -> None:
    for source in ("cli", "train", "automatic"):
        async with rules() as running:
            trapped = seen(mail(), recipients=["trap@example.org"])
            running.filter.learn(trapped.reading, label, source, "anna")  # type: ignore[arg-type]  # a label
            assert await running.saw(trapped, TRAP) == [(trapped.reading.digest, label)]
            (entry,) = running.learnt()
            assert (entry.source, entry.by) == (source, "anna")


async def test_anybody_corrects_a_rule() -> None:
    async with rules() as running:
        await running.saw(seen(ANSWER), ANSWERED)
        await running.queue.mark_id(QUESTION.id, "spam", Author("bob", "imap"))
        assert await running.saw(seen(ANSWER), ANSWERED) == [(QUESTION.digest, "spam")]


async def test_no_days_share_limits_a_rule() -> None:
    async with rules() as running:
        for number in range(5):
            await running.saw(seen(mail(), recipients=["trap@example.org"], reading=reading(str(number), "x")), TRAP)
        assert len(running.learnt()) == 5


async def test_a_failure_is_logged_and_the_next_mail_is_learnt(caplog: pytest.LogCaptureFixture) -> None:
    async with rules(Busy()) as running:
        of = seen(ANSWER)
        assert await running.saw(of, ANSWERED) == []
        assert f"automatic: answered after {of.id}: held by another process" in caplog.text
        assert "Traceback" not in caplog.text
        assert await running.saw(of, ANSWERED) == [(QUESTION.digest, "ham")]


async def test_mail_does_not_wait_and_a_flood_is_bounded_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(automatic_rules, "MOST_WAITING", 10)
    free = threading.Event()
    noted: list[str] = []
    async with rules(noted=lambda limit, text: noted.append(f"{limit}: {text}")) as running:
        held = asyncio.get_running_loop().run_in_executor(running.queue._thread, free.wait)
        for number in range(30):
            running.rules.saw(seen(mail(), recipients=["trap@example.org"], reading=reading(str(number), "x")), TRAP)
        free.set()
        await held
        assert len(noted) == 20
        assert re.fullmatch(r"automatic: 10 mails wait for \[feedback\] automatic; \w{26} is not learnt", noted[0])
        await running.rules.idle()
        assert len(running.learnt()) == 10


async def test_the_end_gives_up_what_waits() -> None:
    async with rules() as running:
        for number in range(30):
            running.rules.saw(seen(mail(), recipients=["trap@example.org"], reading=reading(str(number), "x")), TRAP)
        running.rules.close()
        await running.rules.idle()
        assert running.learnt() == []
