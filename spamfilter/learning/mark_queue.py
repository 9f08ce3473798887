"""The queue of marks: a running relay learns marks one after the other, in a thread.

Guarantee: each mark is one transaction of the store, and the relay is told at once. A mark that has begun is learnt to
its end, also when the relay stops.
"""

import asyncio
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from spamfilter.bayes.labels import Label
from spamfilter.config.sections import Feedback
from spamfilter.errors import ShareUsed, StoreBusy
from spamfilter.learning import mark_lookup, marks
from spamfilter.learning.filter import Filter
from spamfilter.learning.mark_lookup import Subject
from spamfilter.learning.marks import Author
from spamfilter.learning.transaction import Change
from spamfilter.mail.tagging import header_id, untagged
from spamfilter.system.escaping import printable
from spamfilter.system.ids import first_id, id_of
from spamfilter.system.threads import Threads

Result = TypeVar("Result")

PATIENCE = 30.0
"""Seconds that a mark waits for those before it: together with the database's busy timeout less than clients wait."""

JUST_JUDGED = timedelta(seconds=30)
"""Age of an id that the journal may not have yet: mail programs that sort new mail themselves move it as soon as it is
delivered, and the journal is written after the next hop's reply."""


@dataclass(frozen=True, slots=True)
class Marked:
    """The result of a mark: the message, and the change. kept_on: the other host that keeps it in quarantine, or ''."""

    subject: Subject
    change: Change
    kept_on: str = ""


class MarkQueue:
    """Learns marks. learnt: called in the event loop after each change.

    settings, prefixes: may change; prefixes: what the relay may have put before the subjects of mail that is marked.
    """

    def __init__(
        self,
        relaying: Filter,
        settings: Feedback,
        learnt: Callable[[], object],
        noted: Callable[[str, str], object] = lambda limit, text: None,
        kept_elsewhere: Callable[[str], str] = lambda _: "",
    ) -> None:
        """noted: called with the name of a limit that was reached, and a sentence.

        kept_elsewhere: returns the name of the other host that keeps the mail of an id in quarantine, or ''.
        """
        self.settings = settings
        self.prefixes: Collection[str] = ()
        self._relaying = relaying
        self._learnt = learnt
        self._noted = noted
        self._kept_elsewhere = kept_elsewhere
        self._thread = Threads(1, "feedback")

    @property
    def where(self) -> str:
        """The database that learns, as `Store.where`."""
        return self._relaying.store.where

    async def mark_mail(self, mail: bytes, name: str, label: Label | None, author: Author) -> Marked:
        """Learn a mail, as it was judged if it passed the relay; with label None forget it.

        Raises Refused, StoreBusy, StoreError; then nothing has changed.
        """
        if (id := header_id(mail)) > first_id(datetime.now(UTC) - JUST_JUDGED):
            await self._awaited(id)
        as_it_came = untagged(mail, self.prefixes)
        return await self._mark(lambda own: mark_lookup.by_mail(own, name, as_it_came, author.user), label, author)

    async def mark_id(self, id: str, label: Label | None, author: Author) -> Marked:
        """Learn a mail by the id of its verdict. Raises as `mark_mail`, and InputError for an unknown id."""
        await self._awaited(id)
        return await self._mark(lambda own: mark_lookup.by_id(own, id, wait=False), label, author)

    async def mark_read(self, subject: Subject, label: Label | None, author: Author) -> Marked:
        """Learn a mail that is known already. Raises as `mark_mail`."""
        return await self._mark(lambda own: subject, label, author)

    async def _awaited(self, id: str) -> None:
        """Wait until the journal has an id, outside of the queue, so that a wrong id keeps no mark waiting."""
        stored = id_of(id)
        tries = round(mark_lookup.WRITTEN_WITHIN / mark_lookup.LOOK_EVERY) if stored else 0
        for _ in range(tries):
            if await self._run(lambda: self._relaying.store.find_journal(stored)):
                return
            await asyncio.sleep(mark_lookup.LOOK_EVERY)

    async def _mark(self, find: Callable[[Filter], Subject], label: Label | None, author: Author) -> Marked:
        try:
            marked = await self._run(lambda: self._marked(find, label, author))
        except ShareUsed as error:
            self._noted("marks_a_day", printable(str(error), 300))
            raise
        if marked.change.changed:
            self._learnt()
        return marked

    async def _run(self, work: Callable[[], Result]) -> Result:
        """Do some work in the thread, after the work before it. Raises StoreBusy if that takes longer than PATIENCE."""
        asked = time.monotonic()

        def in_time() -> Result:
            if time.monotonic() - asked > PATIENCE:
                raise StoreBusy("marks wait for the database; try again")
            return work()

        stopping = StoreBusy("the relay is stopping; try again")
        try:
            future = self._thread.submit(in_time)
        except RuntimeError:
            raise stopping from None
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if future.cancelled() and not (task and task.cancelling()):
                raise stopping from None  # by `close`
            raise

    def _marked(self, find: Callable[[Filter], Subject], label: Label | None, author: Author) -> Marked:
        # Not the relay's filter, which belongs to the event loop; this one holds no counts in memory.
        filter = Filter(self._relaying.store, self._relaying.voices, whole=False)
        subject = find(filter)
        kept_on = self._kept_elsewhere(subject.id) if label == "ham" and subject.id else ""
        return Marked(subject, marks.mark(filter, subject, label, author, self.settings), kept_on)

    def close(self) -> None:
        """Wait for the mark that is being learnt; those that wait behind it get StoreBusy."""
        self._thread.shutdown(cancel_futures=True)
