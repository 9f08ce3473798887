"""The actions of pages and API: mark, release from quarantine, undo the marks of an author.

A mark goes to the running relay, or to the store if none runs. Guarantee: each mark is in the ledger under its
account's name with the source "web".
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import datetime
from typing import Any

from spamfilter.bayes.labels import Label
from spamfilter.errors import InputError, SpamfilterError
from spamfilter.learning import mark_lookup, marks
from spamfilter.learning.filter import Filter
from spamfilter.learning.marks import Author
from spamfilter.learning.undoing import Taught, needs_all, taught_by, undo
from spamfilter.relay.next_hops import next_hop_of
from spamfilter.relay.quarantine import readable
from spamfilter.reports import rendering
from spamfilter.reports.html import class_name
from spamfilter.service.control_socket.client import NoRelay, SocketClient
from spamfilter.stores import JournalEntry
from spamfilter.system.ids import is_id
from spamfilter.web.accounts import Account
from spamfilter.web.message_views import entry_of
from spamfilter.web.site import Site

SOURCE = "web"
AT_ONCE = 200
"""Learnings that one click undoes, which takes some seconds; the next click undoes the next ones."""
TICK = "mail-"
"""The name of a checkbox is this and the id of its mail."""
SUBJECT = 80
"""Characters shown of a subject."""


def author_of(account: Account) -> Author:
    """The author of an action, for ledger and history."""
    return Author(account.name, SOURCE, master=account.may("administer"))


def mark(site: Site, id: str, label: Label | None, author: Author) -> dict[str, Any]:
    """Learn a message as somebody says, or forget it (None); what has changed, as `mark-spam --json`, with `text`.

    Raises InputError, Refused, TryAgain, StoreError.
    """
    try:
        client = SocketClient(site.settings.socket_path())
    except NoRelay:
        filter = site.filter()
        subject = mark_lookup.by_id(filter, id, wait=False)
        change = marks.mark(filter, subject, label, author, site.settings.feedback.marks_a_day)
        return rendering.change_json(subject, label, change)
    with closing(client):
        request: dict[str, object] = {"command": "mark", "id": id, "label": label, "source": author.source}
        return client.ask({**request, "by": author.name, "master": author.master})


def notice(entry: JournalEntry, label: Label | None, done: Mapping[str, Any]) -> str:
    """What a mark has done, for people: they know a mail by its subject, and ham as "not spam"."""
    name = f'"{entry.subject[:SUBJECT] or "(no subject)"}"'
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
        return f"{name}: already {learnt} by `train` or a rule; now recorded as your mark"
    return f"{name}: {learnt}{was and f' instead of {was}'}; {score}"


def release(site: Site, id: str, author: Author, only: str = "", teach: bool = True) -> list[str]:
    """Deliver a mail from quarantine, and learn it as ham; what was done, in sentences.

    only: deliver it to this recipient alone; '': to all. teach: False: deliver only. Raises SpamfilterError if it was
    not delivered.
    """
    kept = site.quarantine()
    try:
        released = asyncio.run(kept.release(kept.find(id), next_hop_of(site.settings), author.name, only))
    except OSError as error:
        raise InputError(f"{error.filename or kept.path}: {error.strerror}") from error
    said = [f"{id}: delivered to {', '.join(map(readable, released.delivered))}"]
    said += [f"{id}: stays in quarantine for {readable(path)}: {reply.text}" for path, reply in released.refused]
    if released.unnoted:
        said.append(f"{id}: the delivery is not in the history: {released.unnoted}")
    if not teach:
        return said
    try:
        said.append(notice(entry_of(site, id), "ham", mark(site, id, "ham", author)))
    except SpamfilterError as error:
        said.append(f"{id}: delivered, but not learnt: {error}")
    return said


def delete(site: Site, id: str, author: Author, only: str = "") -> None:
    """Delete a mail from quarantine. only: for this recipient; for others it stays. Raises SpamfilterError."""
    kept = site.quarantine()
    try:
        kept.delete(kept.find(id), author.name, only)
    except OSError as error:
        raise InputError(f"{error.filename or kept.path}: {error.strerror}") from error


def ticked(form: Mapping[str, str]) -> list[str]:
    """The ids of the mails that were ticked in a list."""
    ids = (name.removeprefix(TICK).upper() for name in form if name.startswith(TICK))
    return [id for id in ids if is_id(id)]


def taught(site: Site, by: str, since: datetime) -> Sequence[Taught]:
    """The marks of an author that still count. Raises InputError if no author is named."""
    if not by or len(by) > 200:
        raise InputError("by: name the author whose marks are to be undone")
    return taught_by(site.store, by, since)


def forget(site: Site, some: Sequence[Taught], account: Account) -> int:
    """Undo the first AT_ONCE of these learnings; returns how many were undone."""
    some, done = some[:AT_ONCE], set[int]()
    filter = Filter(site.store, site.settings.voices(), whole=True) if needs_all(some) else site.filter()
    undo(filter, some, SOURCE, account.name, done.update)
    return len(done)
