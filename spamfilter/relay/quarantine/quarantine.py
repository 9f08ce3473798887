"""A Maildir of mail that was not delivered: found, read, released, deleted, expired.

Guarantee: a release removes a mail only after the next hop's 250; for recipients that the next hop rejects, it stays.
If a release is interrupted when nobody can know whether the mail has arrived, the file stays with the flag P; a second
release warns, because the mail may arrive twice. It is never lost. What the history says was delivered is not sent
again.
"""

import errno
import itertools
import logging
import os
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from spamfilter.errors import InputError, NextHopError, StoreBusy, StoreFull, TryAgain
from spamfilter.relay.envelope_paths import mailbox_of
from spamfilter.relay.next_hops import NextHop
from spamfilter.relay.next_hops.maildir import Maildir, unwrapped, wrapped
from spamfilter.relay.quarantine.history import ending_of, event_text, other_host, settled_for, state_of, was_kept
from spamfilter.relay.quarantine.kept_mail import (
    Quarantined,
    came,
    dated,
    is_ours,
    looked_at,
    move,
    named,
    unflagged,
    written,
)
from spamfilter.relay.quarantine.release import Released, hand_over, keep_for
from spamfilter.stores import JournalEntry, QuarantineEvent, Store
from spamfilter.system.file_access import locked
from spamfilter.system.ids import id_in
from spamfilter.system.logs import SELDOM

log = logging.getLogger(__name__)

TEMPORARY_KEPT = timedelta(hours=36)
"""Age of an abandoned file in tmp, by Maildir's definition."""
PATIENCE = 10.0
"""Seconds to wait for another process that releases, deletes or expires: as long as for a locked database."""
LOOK_EVERY = 0.02
"""Seconds between two tries to get the lock."""
MOST_EXPIRED = 10
"""Mails of a small quarantine that one expiry deletes; of a large one it deletes a tenth. In a month of steady mail an
hour's share is less than a five-hundredth."""


class Custody(NamedTuple):
    """What became of a mail that was kept. kept: None if it is not there any more. state: see `state_of`."""

    kept: Quarantined | None
    state: str
    events: Sequence[QuarantineEvent]


class Quarantine:
    """The mails in a Maildir. Raises OSError if its files may not be read or changed.

    store: remembers what becomes of the mails; None: nothing does. host: this one's name, where several share a store.
    away: there is a store, but it cannot be opened now.
    """

    def __init__(self, path: Path, store: Store | None = None, host: str = "", away: bool = False) -> None:
        self.path = path
        self._store = store
        self._host = host
        self._away = away

    def mails(self) -> list[Quarantined]:
        """All mails that a recipient does not have yet, the oldest first."""
        return self._left([*_mails(self._by_age())])

    def latest(self, most: int, address: str = "") -> list[Quarantined]:
        """At most so many mails, the latest first; opens no more files than it needs. address: only mail for it."""
        looked = (mail for mail in _mails(reversed(self._by_age())) if not address or mail.is_for(address))
        found: list[Quarantined] = []
        while len(found) < most and (some := [*itertools.islice(looked, most)]):
            found += (mail for mail in self._left(some) if not address or mail.is_for(address))
        return found[:most]

    def _by_age(self) -> list[Path]:
        """The files, the oldest first. All are listed before one is opened, or one that is moved would come twice."""
        return sorted(self._files(), key=lambda path: (came(path), path.name))

    def _left(self, mails: Sequence[Quarantined]) -> list[Quarantined]:
        """The mails without what history says was delivered or deleted."""
        events = self.events([mail.id for mail in mails])
        left = (_unsettled(mail, events.get(mail.id, [])) for mail in mails)
        return [mail for mail in left if mail is not None]

    def find(self, id: str) -> Quarantined:
        """The mail of an id. Raises InputError, which says what became of it, and TryAgain if nobody can say now."""
        events = self._events_of(id)
        try:
            by_name = map(looked_at, self._files(part=id))
            # A second look: a mail program may have moved the file meanwhile, or given it a name without an id.
            others = _mails(path for path in self._files() if id_in(path.name) in (id, ""))
            mail = next((mail for mail in itertools.chain(filter(None, by_name), others) if mail.id == id), None)
        except PermissionError as error:
            if not os.path.isfile(error.filename):  # the folder, as where another user than the relay's asks
                raise
            raise InputError(f"{id}: {error.filename}: {error.strerror}; give it to the user of the relay") from error
        kept = _unsettled(mail, events) if mail is not None else None
        if kept is None and self._away:
            raise TryAgain(
                f"{id}: not in the quarantine {self.path}; what became of it, or whether another host keeps it, is not"
                " known without the database; try again once the database can be read"
            )
        if kept is None:
            ending = ending_of(events)
            became = event_text(ending) if ending else "it was released or deleted, has expired, or was never kept"
            entry = self._store.find_journal(id) if self._store is not None and not ending else None
            if entry and (elsewhere := other_host(entry, self._host)):
                became = f"{elsewhere} has kept it: release it there"
            raise InputError(f"{id}: not in the quarantine {self.path}; {became}")
        return kept

    def custody(self, entry: JournalEntry) -> Custody | None:
        """What became of a mail of the journal; None if it was never here."""
        if not was_kept(entry):
            return None
        kept: Quarantined | None = None
        readable, events = True, self._events_of(entry.id)
        try:
            kept = self.find(entry.id)
        except (InputError, OSError) as error:
            readable = not any(isinstance(each, OSError) for each in (error, error.__cause__))
        return Custody(kept, state_of(kept is not None, events, other_host(entry, self._host), readable), events)

    def these(self, ids: Collection[str]) -> list[Quarantined]:
        """The kept mails of these ids, by the names of their files; opens no other mail."""
        paths = [path for path in self._files() if id_in(path.name) in ids]
        return self._left([mail for mail in _mails(paths) if mail.id in ids])

    def events(self, ids: Collection[str]) -> dict[str, list[QuarantineEvent]]:
        """What was noted of mails, the oldest first."""
        return self._store.quarantine_events(ids) if self._store is not None else {}

    def _events_of(self, id: str) -> list[QuarantineEvent]:
        return self.events([id]).get(id, [])

    def read(self, mail: Quarantined) -> bytes:
        """The mail as it was kept, lines ended by CR LF. Raises InputError if it is gone."""
        return _content(mail)[0]

    def delete(self, mail: Quarantined, by: str, only: str = "") -> None:
        """Delete a mail. only: for this mailbox, in lower case; for other recipients it stays.

        Raises InputError if it is gone, StoreBusy during a release.
        """
        with self._locked():
            text, sender, all_ = _content(mail)
            done = settled_for(self._events_of(mail.id))
            kept = [name for name in all_ if named(name) not in done]
            left = [name for name in kept if only and mailbox_of(named(name)) != only]
            gone = [named(name) for name in kept if name not in left] if left else []
            if left and not gone:
                raise _gone(mail)
            event = QuarantineEvent(mail.id, datetime.now(UTC), "deleted", gone, by)
            if (error := _closed(mail.path.parent)) is not None:
                raise error
            if left:
                self._note([event])
                Maildir(self.path).put(wrapped(text, sender, left), mail.path)
            else:
                self._note_if_it_fits([event])
                mail.path.unlink(missing_ok=True)

    def older(self, before: datetime) -> list[Path]:
        """The files of mails from before this moment."""
        return [path for path in self._files() if came(path) < before and is_ours(path)]

    def names(self) -> frozenset[str]:
        """The names of all files, without their flags."""
        return frozenset(map(unflagged, self._files()))

    def date_anew(self, since: datetime, until: datetime, now: datetime, known: Collection[str] = ()) -> int:
        """Give mails this time, as if they came now, whose names are from this period and not among those known.

        Returns their number. Raises StoreBusy during a release.
        """
        if not self.path.exists():
            return 0
        number = 0
        with self._locked():
            for path in [*self._files()]:
                if since <= came(path) < until and unflagged(path) not in known and is_ours(path):
                    with suppress(OSError):  # of this file alone, as with chattr +i, or where a mail program moved it
                        move(path, dated(path, now))
                        number += 1
        return number

    def expire(self, before: datetime, now: datetime, noted: Collection[str] | None = None, by: str = "") -> int:
        """Delete mails from before this moment, and abandoned files in tmp; returns the number of mails.

        noted: only files of these names, and at most MOST_EXPIRED of them or a tenth of all, the oldest first. Raises
        StoreBusy during a release, and OSError for the first file that cannot be deleted, after all others are.
        """
        if not self.path.exists():
            return 0  # nothing was ever kept
        with self._locked():
            old = self.older(before)
            failed = [error for folder in {path.parent for path in old} if (error := _closed(folder))]
            old = [path for path in old if str(path.parent) not in [error.filename for error in failed]]
            if noted is not None:
                most = max(MOST_EXPIRED, sum(1 for _ in self._files()) // 10)
                old = [path for path in old if path.name in noted]
                stuck = self._expired([id_in(path.name) for path in old])
                old = sorted(old, key=lambda path: (id_in(path.name) in stuck, came(path)))[:most]
            ids = [mail.id for mail in _mails(old) if mail.id]
            new = set(ids) - self._expired(ids)
            self._note_if_it_fits([QuarantineEvent(id, now, "expired", (), by) for id in ids if id in new])
            for path in (*old, *(path for path in self._files(("tmp",)) if written(path) < now - TEMPORARY_KEPT)):
                try:
                    path.unlink(missing_ok=True)  # a mail program may have moved it
                except OSError as error:  # of this file alone, as with chattr +i
                    failed.append(error)
        if failed:
            raise failed[0]
        return len(old)

    async def release(self, mail: Quarantined, next_hop: NextHop, by: str, only: str = "") -> Released:
        """Deliver a mail to its recipients, and remove it from quarantine. only: for this mailbox, in lower case.

        Raises TryAgain if the next hop is down or defers it, Refused if the next hop rejects it, InputError if the mail
        is gone or has no envelope, StoreBusy during another release; then it stays as it is.
        """
        with self._locked():
            text, sender, all_ = _content(mail)
            if not all_:
                raise InputError(f"{mail.path}: has no envelope, so there is nobody to deliver it to")
            events = self._events_of(mail.id)
            done = settled_for(events)
            left = [name for name in all_ if named(name) not in done]
            wanted = [name for name in left if not only or mailbox_of(named(name)) == only]
            if not left:
                keep_for([], mail, mail.path, text, sender, all_)
            if only and only not in map(mailbox_of, {*map(named, all_), *done}):
                raise InputError(f"{mail.id}: is not for {only}; `spamfilter quarantine list` names its recipients")
            if not wanted:
                deleted = [event for event in events if event.outcome == "deleted"]
                own = [event for event in deleted if only in map(mailbox_of, event.recipients)]
                raise InputError(f"{mail.id}: {event_text(own[-1]) if own else 'was delivered already'}")
            others = [name for name in left if name not in wanted]

            def note(taken: Collection[bytes]) -> None:
                now = datetime.now(UTC)
                self._note([QuarantineEvent(mail.id, now, "delivered", [named(name) for name in taken], by)])

            try:
                conversation = await next_hop.open()
                try:
                    return await hand_over(conversation, mail, text, sender, wanted, others, note)
                finally:
                    conversation.abort()
            except NextHopError as error:
                raise TryAgain(f"{mail.id}: {error}; it stays in quarantine, try again") from error

    def _expired(self, ids: Collection[str]) -> set[str]:
        """Those of these mails that are noted as expired: their files are there because they could not be deleted."""
        return {id for id, noted in self.events(ids).items() if any(event.outcome == "expired" for event in noted)}

    def _note_if_it_fits(self, events: list[QuarantineEvent]) -> None:
        """As `_note`; on a full disk mails are deleted all the same, which makes room."""
        try:
            self._note(events)
        except StoreFull as error:
            log.warning("%d deleted mails are not in the history: %s", len(events), error)

    def _note(self, events: list[QuarantineEvent]) -> None:
        if self._store is not None:
            self._store.note_quarantine(events)

    def _files(self, folders: Collection[str] = ("new", "cur"), part: str = "") -> Iterator[Path]:
        """The files of these folders whose names have this part."""
        for folder in folders:
            with suppress(FileNotFoundError), os.scandir(self.path / folder) as found:
                for each in found:
                    if part in each.name and not each.name.startswith(".") and each.is_file(follow_symlinks=False):
                        yield Path(each.path)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Keep other processes from releasing, deleting or expiring meanwhile. New mail can still be added."""
        folder = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            give_up = time.monotonic() + PATIENCE
            while not locked(folder, self.path):
                if time.monotonic() > give_up:
                    raise StoreBusy(f"{self.path}: something else is being released or deleted; try again")
                time.sleep(LOOK_EVERY)
            yield
        finally:
            os.close(folder)


def _mails(paths: Iterable[Path]) -> Iterator[Quarantined]:
    """The mails in these files, as far as they are ours; each file is opened when its mail is asked for."""
    closed: list[Path] = []
    for path in paths:
        try:
            mail = looked_at(path)
        except PermissionError:  # one file must not hide all others
            closed.append(path)
            continue
        if mail is not None:
            yield mail
    if closed:
        more = f" and {len(closed) - 1} more" if closed[1:] else ""
        log.warning("left out: no permission to read %s%s; see spamfilter doctor", closed[0], more, extra=SELDOM)


def _content(mail: Quarantined) -> tuple[bytes, bytes, list[bytes]]:
    """A mail, its envelope sender and its recipients. Raises InputError if it is gone."""
    try:
        return unwrapped(mail.path.read_bytes())
    except FileNotFoundError:
        raise _gone(mail) from None


def _unsettled(mail: Quarantined, events: list[QuarantineEvent]) -> Quarantined | None:
    """The mail with the recipients it is kept for; None if there are none, and a crash has left its file."""
    done = settled_for(events)
    if not done:
        return mail
    left = [name for name in mail.recipients if name not in done]
    return replace(mail, recipients=left) if left else None


def _closed(folder: Path) -> OSError | None:
    """Why no file can be removed from a folder, which must be known before it is noted; None if one can."""
    if os.access(folder, os.W_OK | os.X_OK):
        return None
    number = errno.EROFS if os.statvfs(folder).f_flag & os.ST_RDONLY else errno.EACCES
    return OSError(number, os.strerror(number), str(folder))


def _gone(mail: Quarantined) -> InputError:
    return InputError(f"{mail.id}: was released, deleted or moved in the meantime")
