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
from spamfilter.config.settings import Settings
from spamfilter.errors import InputError, SpamfilterError
from spamfilter.learning import marks
from spamfilter.learning.filter import Filter
from spamfilter.learning.marks import Author
from spamfilter.learning.undoing import Taught, taught_by, undo
from spamfilter.relay.next_hops import next_hop_of
from spamfilter.relay.quarantine import Quarantine, readable
from spamfilter.reports import rendering
from spamfilter.reports.html import class_name
from spamfilter.service.control_socket.client import NoRelay, SocketClient
from spamfilter.stores import JournalEntry, Store
from spamfilter.web.accounts import Account
from spamfilter.web.message_views import subject_of

SOURCE = "web"
AT_ONCE = 200
"""Learnings that one click undoes, which takes some seconds; the next click undoes the next ones."""
SUBJECT = 80
"""Characters shown of a subject."""


def mark(filter: Filter, settings: Settings, id: str, label: Label | None, account: Account) -> dict[str, Any]:
    """Learn a message as an account says, or forget it (None); what has changed, as `mark-spam --json`, with `text`.

    Raises InputError, Refused, TryAgain, StoreError.
    """
    master = account.may("administer")
    try:
        client = SocketClient(settings.socket_path())
    except NoRelay:
        subject = subject_of(filter, id)
        author = Author(account.name, SOURCE, master=master)
        change = marks.mark(filter, subject, label, author, settings.feedback.marks_a_day)
        return rendering.change_json(subject, label, change)
    with closing(client):
        request: dict[str, object] = {"command": "mark", "id": id, "label": label, "source": SOURCE}
        return client.ask({**request, "by": account.name, "master": master})


def notice(entry: JournalEntry, label: Label | None, done: Mapping[str, Any]) -> str:
    """What a mark has done, for people: they know a mail by its subject, and ham as "not spam"."""
    name = f'"{entry.subject[:SUBJECT] or "(no subject)"}"'
    was, learnt = class_name(done["was"] or ""), f"learnt as {class_name(label or '')}"
    score = f"score {done['before']:.3f} -> {done['after']:.3f}"
    if label is None:
        return f"{name}: forgotten, was learnt as {was}; {score}" if done["changed"] else f"{name}: was not learnt"
    if not done["changed"]:
        return f"{name}: already {learnt}; nothing changed"
    if done["was"] == label:
        return f"{name}: already {learnt} by `train` or a rule; now recorded as your mark"
    return f"{name}: {learnt}{was and f' instead of {was}'}; {score}"


def release(filter: Filter, settings: Settings, entry: JournalEntry, account: Account) -> list[str]:
    """Deliver a mail from quarantine to its recipients, and learn it as ham; what was done, in sentences.

    Raises SpamfilterError if it was not delivered.
    """
    id = entry.id
    kept = Quarantine(settings.quarantine_path())
    try:
        released = asyncio.run(kept.release(kept.find(id), next_hop_of(settings)))
    except OSError as error:
        raise InputError(f"{error.filename or kept.path}: {error.strerror}") from error
    said = [f"{id}: delivered to {', '.join(map(readable, released.delivered))}"]
    said += [f"{id}: stays in quarantine for {readable(path)}: {reply.text}" for path, reply in released.refused]
    try:
        said.append(notice(entry, "ham", mark(filter, settings, id, "ham", account)))
    except SpamfilterError as error:
        said.append(f"{id}: delivered, but not learnt: {error}")
    return said


def taught(store: Store, by: str, since: datetime | None) -> Sequence[Taught]:
    """The marks of an author that still count. Raises InputError if no author is named."""
    if not by or len(by) > 200:
        raise InputError("by: name the author whose marks are to be undone")
    return taught_by(store, by, since)


def forget(filter: Filter, some: Sequence[Taught], account: Account) -> int:
    """Undo the first AT_ONCE of these learnings; returns how many were undone."""
    done: set[int] = set()
    undo(filter, some[:AT_ONCE], SOURCE, account.name, done.update)
    return len(done)
