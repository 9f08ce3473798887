"""Answers that launder spam: what a stranger gets learnt as ham who is answered by a user, and by which rule.

The sixth part of poisoning.py. A database learns the mails of a stream. A stranger sends spam stuffed with guessed
words; what is not tagged reaches a user. Then they ask innocent questions, and the user answers each with a mail
program, which copies the References of the question into the answer. Journal, store and rule are the product's; the
rule as it was before taught every Message-ID of In-Reply-To and References.
"""

import asyncio
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from unittest.mock import patch

from attacks import PLACES, Parts, apart, whole
from mass_feedback import harm

from spamfilter.bayes.labels import Label
from spamfilter.bayes.verdict import Policy
from spamfilter.config.sections import Feedback
from spamfilter.config.settings import Settings
from spamfilter.learning.automatic_rules import RULES, Automatic, Rule, Seen
from spamfilter.learning.filter import Filter, ledger
from spamfilter.learning.mark_lookup import Subject
from spamfilter.learning.mark_queue import MarkQueue
from spamfilter.learning.transaction import Reading
from spamfilter.mail.message import parse
from spamfilter.stores import JournalEntry, Store, open_store
from spamfilter.system.ids import new_id

ANSWERS = 5
NAMED = 20
"""Message-IDs that a question lists: as many as the rule looked up."""
WORDS = 1000
USER = "anna@example.test"
Mails = Sequence[tuple[Label, bytes]]
_MESSAGE_ID = re.compile(r"<[^<>\s]+>")
_THREAD = re.compile(rb"(?im)^(?:message-id|in-reply-to|references)[ \t]*:[^\n]*\n(?:[ \t][^\n]*\n)*")


def _every_id(seen: Seen, store: Store) -> Iterable[Subject]:
    """The rule as it was before: the mails of every Message-ID that the answer has."""
    text = " ".join((seen.message.field(b"in-reply-to"), seen.message.field(b"references")))
    for message_id in list(dict.fromkeys(_MESSAGE_ID.findall(text)))[:NAMED]:
        entries = store.journal_named(message_id)
        if len({entry.digest for entry in entries}) == 1 and entries[0].class_ != "spam" and entries[0].tokens:
            yield Subject(entries[0].id, entries[0].id, Reading(entries[0].digest, entries[0].tokens))


BY: dict[str, Rule] = {
    "as before": Rule("ham", False, RULES["answered"].concerns, _every_id),
    "as now": RULES["answered"],
}
"""What is learnt of an answer -> the rule."""


def _headed(parts: Parts, name: str, references: Sequence[str] = ()) -> Parts:
    """The mail under this Message-ID, in this thread."""
    head = f"Message-ID: <{name}>\n" + (f"References: {' '.join(references)}\n" if references else "")
    return Parts(head.encode() + _THREAD.sub(b"", parts.head), parts.text, parts.kind, parts.charset)


class Site:
    """A relay's filter and journal. passed: Message-IDs of the stranger's spam that reached the user."""

    def __init__(self, filter: Filter) -> None:
        self.filter = filter
        self.policy = Policy()
        self.passed: list[str] = []

    def receive(self, mail: bytes, number: int) -> str:
        """Judge and journal a mail of the stranger's; its class."""
        message = parse(mail)
        reading = self.filter.read(message)
        score = self.filter.score(reading)
        class_, action = self.policy.decide(score, self.filter.learnt)
        entry = JournalEntry(
            new_id(), datetime.now(UTC), reading.digest, message.field(b"message-id"), f"s{number}@attack.example",
            [USER], message.field(b"subject"), len(mail), "192.0.2.1", score.log_odds, score.posterior,
            class_, action, "250", 0, 0, "", "", [], reading.tokens,
        )  # fmt: skip
        self.filter.store.write_journal([entry])
        return class_

    def answer(self, question: str, references: Sequence[str], rule: Rule) -> None:
        """The user answers a question."""
        thread = " ".join([*references, f"<{question}>"])
        message = parse(f"From: {USER}\nIn-Reply-To: <{question}>\nReferences: {thread}\n\nYes, gladly.\n".encode())
        reading = self.filter.read(message)

        async def learnt() -> None:
            queue = MarkQueue(self.filter, Feedback(marks_a_day=1), lambda: None)
            rules = Automatic(queue, self.filter.store)
            rules.saw(Seen(new_id(), message, reading, USER, [], True, True), Feedback(automatic=["answered"]))
            await rules.idle()
            await asyncio.to_thread(queue.close)

        with patch.dict(RULES, {"answered": rule}):
            asyncio.run(learnt())
        self.filter.take_in(ledger(self.filter.store, self.filter.last))

    def tagged(self, mails: Sequence[bytes]) -> str:
        """Per cent of these that are tagged as spam."""
        scores = [self.filter.score(self.filter.read(parse(mail))).posterior for mail in mails]
        return f"{100 * sum(score >= self.policy.spam for score in scores) / len(scores):.1f}"


@contextmanager
def _copied(base: Path) -> Iterator[Filter]:
    with tempfile.TemporaryDirectory() as name:
        shutil.copy(base, name)
        with closing(open_store(f"sqlite:///{name}/{base.name}", migrate=True)) as store:
            yield Filter(store, Settings().voices())


def _learn(base: Path, mails: Mails) -> None:
    with closing(open_store(f"sqlite:///{base}", migrate=True)) as store:
        filter = Filter(store, Settings().voices())
        for start in range(0, len(mails), 100):
            with filter.training() as training:
                for label, mail in mails[start : start + 100]:
                    training.learn(filter.read(parse(mail)), label, "train")


def laundered(name: str, learnt: Mails, judged: Mails, guessed: Sequence[bytes]) -> list[str]:
    """Rows: a way to ask by each rule. Of the spam judged, one half is sent before the questions, the other after."""
    stuff = PLACES["at the start"]
    spams = [apart(mail) for label, mail in judged if label == "spam"]
    hams = [apart(mail) for label, mail in judged if label == "ham"]
    earlier = [
        (f"spam-{number}@attack.example", stuff(_headed(parts, f"spam-{number}@attack.example"), guessed[:WORDS]))
        for number, parts in enumerate(spams[::2])
    ]
    later = [stuff(_headed(parts, f"later-{number}@x"), guessed[:WORDS]) for number, parts in enumerate(spams[1::2])]
    rest = [mail for mail in judged if mail[0] == "ham"][ANSWERS:] + [mail for mail in judged if mail[0] == "spam"]
    asked: dict[str, Callable[[Parts], bytes]] = {
        "innocent, lists earlier spam": whole,
        "the same, and has the guessed words in it": lambda parts: stuff(parts, guessed[:WORDS]),
    }
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder) / "spamfilter.db"
        _learn(base, learnt)
        for title, question in asked.items():
            for rule_name, rule in BY.items():
                with _copied(base) as filter:
                    site = Site(filter)
                    site.passed = [
                        f"<{id}>" for number, (id, mail) in enumerate(earlier) if site.receive(mail, number) != "spam"
                    ]
                    before, known = site.tagged(later), filter.learnt["ham"]
                    tagged = []
                    for number in range(ANSWERS):
                        id, references = f"question-{number}@attack.example", site.passed[number * NAMED :][:NAMED]
                        site.receive(question(_headed(hams[number], id, references)), number)
                        site.answer(id, references, rule)
                        tagged.append(site.tagged(later))
                    scores = [filter.score(filter.read(parse(mail))) for _, mail in rest]
                    rows.append(
                        f"| {name} | {title} | {rule_name} | {len(earlier)}, {len(site.passed)} | {ANSWERS}"
                        f" | {filter.learnt['ham'] - known} | {before} | {', '.join(tagged)} | {harm(scores, rest)} |"
                    )
    return rows
