"""The queue of marks: one after the other, each whole or not at all, and a wrong mark delays no other."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from spamfilter.bayes.voices import Voice
from spamfilter.config.sections import Feedback
from spamfilter.errors import InputError, Refused, StoreBusy, StoreError
from spamfilter.learning import mark_lookup
from spamfilter.learning import mark_queue as module
from spamfilter.learning.filter import RULES, Filter
from spamfilter.learning.mark_lookup import Subject
from spamfilter.learning.mark_queue import MarkQueue
from spamfilter.learning.marks import Author
from spamfilter.mail.message import parse
from spamfilter.stores import Learning, Store, open_store
from spamfilter.stores.sql import SqlStore
from spamfilter.system.ids import first_id, new_id
from tests.support.made import VOICE, follow, journal_entry, mail, reading

ANN, BOB = Author("ann", "cli"), Author("bob", "cli")


class Office:
    """A queue on a database, with a way to hold the mark that is being learnt."""

    def __init__(self, store: Store) -> None:
        self.filter = Filter(store, VOICE)
        self.told = 0
        self.queue = MarkQueue(self.filter, Feedback(), self._tell)
        self.entered, self._go_on = threading.Event(), threading.Event()
        self._go_on.set()
        self._learning = store.learning
        store.learning = self._held  # type: ignore[method-assign]

    def _tell(self) -> None:
        self.told += 1

    @contextmanager
    def _held(self) -> Iterator[Learning]:
        with self._learning() as learning:
            self.entered.set()
            assert self._go_on.wait(30)
            yield learning

    def hold(self) -> None:
        self._go_on.clear()
        self.entered.clear()

    def release(self) -> None:
        self._go_on.set()

    async def begun(self) -> None:
        assert await asyncio.to_thread(self.entered.wait, 30)

    def learnt(self) -> int:
        follow(self.filter)
        return sum(self.filter.learnt.values())


@pytest.fixture
async def office(tmp_path: Path) -> AsyncIterator[Office]:
    store = open_store(f"sqlite:///{tmp_path}/x.db", migrate=True)
    assert isinstance(store, SqlStore)
    office = Office(store)
    yield office
    office.release()
    await asyncio.to_thread(office.queue.close)
    store.close()


async def test_a_mark_reads_the_rules_of_the_counts_once(office: Office) -> None:
    store, read = office.filter.store, []
    setting = store.get_setting

    def noted(name: str) -> object:
        read.append(name)
        return setting(name)

    store.get_setting = noted  # type: ignore[method-assign]
    await office.queue.mark_mail(mail(), "x.eml", "spam", ANN)
    assert read.count(RULES) == 1


async def test_a_mark_is_learnt_and_told_a_repeat_is_not(office: Office) -> None:
    first = await office.queue.mark_mail(mail(), "x.eml", "spam", ANN)
    assert (first.subject.name, first.change.changed, office.told) == ("x.eml", True, 1)
    assert not (await office.queue.mark_mail(mail(), "x.eml", "spam", ANN)).change.changed
    assert (office.told, office.learnt()) == (1, 1)
    assert (await office.queue.mark_mail(mail(), "x.eml", None, ANN)).change.was == "spam"
    assert (office.told, office.learnt()) == (2, 0)


async def test_a_mail_that_was_read_before_is_learnt_as_it_was_read(office: Office) -> None:
    subject = Subject("one", "", reading("one", "word"))
    marked = await office.queue.mark_read(subject, "ham", ANN)
    assert (marked.subject, marked.change.changed, office.told) == (subject, True, 1)


async def test_a_refusal_is_told_to_nobody_but_the_author(office: Office) -> None:
    await office.queue.mark_mail(mail(), "x.eml", "spam", ANN)
    with pytest.raises(Refused):
        await office.queue.mark_mail(mail(), "x.eml", "ham", BOB)
    office.queue.settings = Feedback(marks_a_day=1)
    with pytest.raises(Refused):
        await office.queue.mark_mail(mail(name="two"), "x.eml", "spam", ANN)
    assert (office.told, office.learnt()) == (1, 1)


async def test_many_marks_at_once_are_all_learnt(office: Office) -> None:
    await asyncio.gather(
        *(office.queue.mark_mail(mail(name=str(number)), "x", "spam", ANN) for number in range(50)),
        *(office.queue.mark_mail(mail(name=str(number)), "x", "spam", BOB) for number in range(50)),
    )
    assert (office.told, office.learnt(), office.filter.verify()) == (50, 50, [])


async def test_an_id_that_is_just_being_written_is_waited_for_and_holds_up_nobody(office: Office) -> None:
    id = new_id()
    waiting = asyncio.create_task(office.queue.mark_id(id.lower(), "spam", ANN))
    await office.queue.mark_mail(mail(name="other"), "x", "spam", BOB)
    assert not waiting.done()
    seen = office.filter.read(parse(mail()))
    office.filter.store.write_journal([journal_entry(id=id, digest=seen.digest, tokens=seen.tokens)])
    assert (await waiting).subject == Subject(id, id, seen)


async def test_a_mail_that_has_just_been_judged_is_learnt_as_it_was_judged(office: Office) -> None:
    """As a mail program that sorts new mail by itself moves it before the relay has written the journal."""
    id = new_id()
    seen = office.filter.read(parse(mail(body="one two three four")))
    altered = mail(body="one two three four\r\n-- \r\nthe list's own footer")
    copy = f"X-Spamfilter-Id: {id}\r\n".encode() + altered
    assert parse(copy).digest() != seen.digest
    waiting = asyncio.create_task(office.queue.mark_mail(copy, "x.eml", "spam", ANN))
    await asyncio.sleep(0)  # it begins
    await office.queue.mark_mail(mail(name="other"), "x", "spam", BOB)
    office.filter.store.write_journal([journal_entry(id=id, subject="hello", digest=seen.digest, tokens=seen.tokens)])
    assert (await waiting).subject.id == id
    assert not (await office.queue.mark_id(id, "spam", ANN)).change.changed
    assert office.learnt() == 2


async def test_a_mail_of_an_old_id_that_the_journal_does_not_have_waits_for_nothing(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mark_lookup, "WRITTEN_WITHIN", 3600.0)
    copy = b"X-Spamfilter-Id: %s\r\n" % first_id(datetime.now(UTC) - timedelta(minutes=5)).encode() + mail()
    async with asyncio.timeout(60):
        assert (await office.queue.mark_mail(copy, "x.eml", "spam", ANN)).subject.id == ""


async def test_ids_of_nothing_are_said_so(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mark_lookup, "WRITTEN_WITHIN", 0.2)
    ids = [new_id() for _ in range(20)]
    found = await asyncio.gather(*(office.queue.mark_id(id, "spam", ANN) for id in ids), return_exceptions=True)
    assert all(isinstance(error, InputError) and id in str(error) for id, error in zip(ids, found, strict=True))
    with pytest.raises(InputError, match="not an id"):
        await office.queue.mark_id("x", "spam", ANN)


async def test_a_mail_of_other_voices_is_not_learnt(office: Office) -> None:
    id = new_id()
    office.filter.store.write_journal([journal_entry(id=id, tokens={"grams": {b"hello": 1}})])
    with pytest.raises(InputError, match=f"{id}: judged under another configuration .*; give its file instead"):
        await office.queue.mark_id(id, "spam", ANN)
    await office.queue.mark_mail(mail(), "x", "spam", ANN)
    office.filter.adopt(office.filter.loaded(), (*VOICE, Voice("grams", VOICE[0].likelihood)))
    with pytest.raises(StoreError, match="the database was learnt with"):
        await office.queue.mark_id(id, "spam", ANN)


async def test_a_mark_that_has_waited_too_long_is_given_up(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    office.hold()
    begun = asyncio.create_task(office.queue.mark_mail(mail(), "x", "spam", ANN))
    await office.begun()
    monkeypatch.setattr(module, "PATIENCE", 0.0)
    late = asyncio.create_task(office.queue.mark_mail(mail(name="two"), "x", "spam", ANN))
    await asyncio.sleep(0.05)
    office.release()
    assert (await begun).change.changed
    with pytest.raises(StoreBusy, match="try again"):
        await late
    assert office.learnt() == 1


async def test_closing_lets_a_mark_end_that_has_begun_and_gives_up_those_behind_it(office: Office) -> None:
    office.hold()
    begun = asyncio.create_task(office.queue.mark_mail(mail(), "x", "spam", ANN))
    await office.begun()
    behind = asyncio.create_task(office.queue.mark_mail(mail(name="two"), "x", "spam", ANN))
    await asyncio.sleep(0.05)
    closing = asyncio.create_task(asyncio.to_thread(office.queue.close))
    with pytest.raises(StoreBusy, match="the relay is stopping; try again"):
        await behind
    assert not begun.done()
    office.release()
    await closing
    assert (await begun).change.changed
    with pytest.raises(StoreBusy, match="the relay is stopping; try again"):
        await office.queue.mark_mail(mail(name="three"), "x", "spam", ANN)
    assert office.learnt() == 1


async def test_who_goes_away_while_waiting_takes_the_mark_along(office: Office) -> None:
    office.hold()
    begun = asyncio.create_task(office.queue.mark_mail(mail(), "x", "spam", ANN))
    await office.begun()
    behind = asyncio.create_task(office.queue.mark_mail(mail(name="two"), "x", "spam", ANN))
    await asyncio.sleep(0.05)
    behind.cancel()
    with pytest.raises(asyncio.CancelledError):
        await behind
    office.release()
    assert (await begun).change.changed
    assert (await office.queue.mark_mail(mail(name="three"), "x", "spam", ANN)).change.changed
    assert office.learnt() == 2
