"""The actions of pages and API: mark, release from quarantine, undo the marks of an author.

A mark goes to the running relay, or to the store if none runs. Guarantee: each mark is in the ledger under its
account's name with the source "web".
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from threading import BoundedSemaphore
from typing import Any

from spamfilter.bayes.labels import Label
from spamfilter.errors import InputError, SpamfilterError, TryAgain
from spamfilter.learning import mark_lookup, marks
from spamfilter.learning.marks import Author, author_name
from spamfilter.learning.undoing import Taught, needs_all, taught_by, undo
from spamfilter.relay.next_hops import next_hop_of
from spamfilter.relay.quarantine import Quarantine, readable
from spamfilter.reports import rendering
from spamfilter.reports.html import class_name
from spamfilter.service.control_socket.client import NoRelay, SocketClient
from spamfilter.stores import JournalEntry
from spamfilter.system.ids import id_of
from spamfilter.web.accounts import Account
from spamfilter.web.message_views import is_kept
from spamfilter.web.site import Site, Visit

SOURCE = "web"
AT_ONCE = 200
"""Learnings that one click undoes, which takes some seconds; the next click undoes the next ones."""
TICK = "mail-"
"""The name of a checkbox is this and the id of its mail."""
TICKED = 100
"""Mails of a list with such boxes: as many as a form may name."""
AT_A_TIME = 4
"""Actions on the quarantine at a time: each holds a thread of the page while the next hop thinks."""
AT_MOST = 20.0
"""Seconds after which one click begins with no other mail, as where the next hop or the database keeps it waiting."""
_actions = BoundedSemaphore(AT_A_TIME)
SUBJECT = 80
"""Characters shown of a subject."""


def author_of(account: Account) -> Author:
    """The author of an action, for ledger and history."""
    return Author(author_name(account.name), SOURCE, master=account.may("administer"))


def mark(site: Site, id: str, label: Label | None, author: Author, mail: bytes | None = None) -> dict[str, Any]:
    """Learn a message as somebody says, or forget it (None); what has changed, as `mark-spam --json`, with `text`.

    mail: the message itself, where it is at hand, which can be learnt when the journal has no tokens of it any more.
    Raises InputError, Refused, TryAgain, StoreError.
    """
    try:
        client = SocketClient(site.settings.socket_path())
    except NoRelay:
        filter = site.filter()
        subject = (
            mark_lookup.by_mail(filter, id, mail, author.user) if mail else mark_lookup.by_id(filter, id, wait=False)
        )
        change = marks.mark(filter, subject, label, author, site.settings.feedback)
        return rendering.change_json(subject, label, change)
    with closing(client):
        request: dict[str, object] = {"command": "mark", "name" if mail else "id": id, "label": label}
        by = {"source": author.source, "by": author.name, "master": author.master}
        return client.ask({**request, **by}, mail)


def notice(subject: str, label: Label | None, done: Mapping[str, Any]) -> str:
    """What a mark has done, for people: they know a mail by its subject, and ham as "not spam"."""
    name = f'"{subject[:SUBJECT] or "(no subject)"}"'
    was, learnt = class_name(done["was"] or ""), f"learnt as {class_name(label or '')}"
    score = f"score {done['before']:.3f} -> {done['after']:.3f}"
    if label is None and not done["changed"]:
        return f"{name}: was not learnt"
    if label is None:
        again = f", is again learnt as {class_name(done['again'])}" if done["again"] else ""
        return f"{name}: forgotten, was learnt as {was}{again}; {score}"
    if not done["changed"]:
        return f"{name}: already {learnt}; nothing changed"
    if done["was"] == label:
        return f"{name}: already {learnt}, by nobody's mark; now recorded as your mark"
    return f"{name}: {learnt}{was and f' instead of {was}'}; {score}"


def mark_and_tell(visit: Visit, entry: JournalEntry, label: Label | None) -> None:
    """Learn a message as the user of a page says, and tell them what that has done, and what it has not.

    Raises as `mark`.
    """
    visit.tell(notice(entry.subject, label, mark(visit.site, entry.id, label, author_of(visit.user))))
    if label == "ham" and is_kept(visit.site, entry):
        who = '"Deliver" on its page' if visit.user.may("administer") else "an administrator"
        visit.tell(f"The mail is still in quarantine: {who} sends it to its recipients.")


@dataclass(frozen=True, slots=True)
class Delivered:
    """What a release has done, in sentences. Those of them that are bad news: stays, for whom the mail stays in
    quarantine, untaught, why it was not learnt, and unnoted, why the history lacks it; '' without."""

    said: Sequence[str]
    stays: str = ""
    untaught: str = ""
    unnoted: str = ""


def release(site: Site, id: str, author: Author, only: str = "", teach: bool = True) -> Delivered:
    """Deliver a mail from quarantine, and learn it as ham.

    only: deliver it to this recipient alone; '': to all. teach: False: deliver only. Raises SpamfilterError if it was
    not delivered.
    """
    with _quarantine(site) as kept:
        found = kept.find(id)
        released = asyncio.run(kept.release(found, next_hop_of(site.settings), author.name, only))
    learnt = untaught = unnoted = ""
    if released.unnoted:
        unnoted = f"{id}: the delivery is not in the history: {released.unnoted}"
    if teach:
        try:
            learnt = notice(found.subject, "ham", mark(site, id, "ham", author, released.mail))
        except SpamfilterError as error:
            untaught = f"{id}: delivered, but not learnt: {error}"
    refused = "; ".join(f"{readable(path)}: {reply.text}" for path, reply in released.refused)
    stays = f"{id}: stays in quarantine for {refused}" if refused else ""
    delivered = f"{id}: delivered to {', '.join(map(readable, released.delivered))}"
    return Delivered([*filter(None, (delivered, stays, unnoted, learnt, untaught))], stays, untaught, unnoted)


def delete(site: Site, id: str, author: Author, only: str = "") -> None:
    """Delete a mail from quarantine. only: for this recipient; for others it stays. Raises SpamfilterError."""
    with _quarantine(site) as kept:
        kept.delete(kept.find(id), author.name, only)


@contextmanager
def _quarantine(site: Site) -> Iterator[Quarantine]:
    """The quarantine, for one of AT_A_TIME actions. Raises TryAgain beyond that, and InputError for an OSError."""
    if not _actions.acquire(blocking=False):
        raise TryAgain("other mails are being delivered or deleted; try again")
    kept = site.quarantine()
    try:
        yield kept
    except OSError as error:
        raise InputError(f"{error.filename or kept.path}: {error.strerror}") from error
    finally:
        _actions.release()


def ticked(form: Mapping[str, str]) -> list[str]:
    """The ids of the mails that were ticked in a list, each once."""
    ids = (id_of(name.removeprefix(TICK)) for name in form if name.startswith(TICK))
    return [*dict.fromkeys(filter(None, ids))]


def taught(site: Site, by: str, since: datetime) -> Sequence[Taught]:
    """The marks of an author that still count. Raises InputError if no author is named."""
    if not by or len(by) > 200:
        raise InputError("by: name the author whose marks are to be undone")
    return taught_by(site.store, by, since)


def forget(site: Site, some: Sequence[Taught], account: Account) -> int:
    """Undo the first AT_ONCE of these learnings; returns how many were undone."""
    some, done = some[:AT_ONCE], set[int]()
    undo(site.filter(whole=needs_all(some)), some, SOURCE, account.name, done.update)
    return len(done)
