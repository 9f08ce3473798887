"""The feedback desk: marks that reach a running relay, one after the other, beside its event loop.

Guarantee: each mark is one transaction of the store; what was learnt is told to the relay at once.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from spamfilter import feedback
from spamfilter.counts import Label
from spamfilter.errors import InputError
from spamfilter.feedback import Author, Subject
from spamfilter.filter import Change, Filter


@dataclass(frozen=True, slots=True)
class Marked:
    """What became of a mark: the message, and what changed."""

    subject: Subject
    change: Change


class Desk:
    """Learns what others say. learnt: called in the event loop after each change. marks_a_day: of each author."""

    def __init__(self, relaying: Filter, marks_a_day: int, learnt: Callable[[], object]) -> None:
        self.marks_a_day = marks_a_day
        self._relaying = relaying
        self._learnt = learnt
        self._thread = ThreadPoolExecutor(1, "feedback")

    async def mark_mail(self, mail: bytes, name: str, label: Label | None, author: Author) -> Marked:
        """Learn a mail, as it was judged if it passed the relay; label None forgets it.

        Raises Refused, StoreBusy, StoreError; then nothing has changed.
        """
        return await self._mark(lambda own: feedback.by_mail(own, name, mail), label, author)

    async def mark_id(self, id: str, label: Label | None, author: Author) -> Marked:
        """Learn a mail by the id of its verdict. Raises as `mark_mail`, and InputError where the id means nothing."""
        return await self._mark(lambda own: feedback.by_id(own.store, id), label, author)

    async def _mark(self, find: Callable[[Filter], Subject], label: Label | None, author: Author) -> Marked:
        marked: Marked = await asyncio.get_running_loop().run_in_executor(
            self._thread, self._marked, find, label, author
        )
        if marked.change.changed:
            self._learnt()
        return marked

    def _marked(self, find: Callable[[Filter], Subject], label: Label | None, author: Author) -> Marked:
        # A filter of its own, without counts in memory: the relay's belongs to the event loop.
        filter = Filter(self._relaying.store, self._relaying.voices, whole=False)
        subject = find(filter)
        if not any(voice.name in subject.reading.tokens for voice in filter.voices):
            raise InputError(f"{subject.name}: judged by other voices than today's; name its file instead")
        return Marked(subject, feedback.mark(filter, subject, label, author, self.marks_a_day))

    def close(self) -> None:
        """Wait for the mark that is being learnt; what waits behind it is given up."""
        self._thread.shutdown(cancel_futures=True)
