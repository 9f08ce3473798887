"""What the pages and the API do: marks through the running relay, or where none runs on the store; releases.

Guarantee: each mark is in the ledger under its account's name with the source "web".
"""

import asyncio
from collections.abc import Sequence
from contextlib import closing
from datetime import datetime

from spamfilter.bayes.labels import Label
from spamfilter.config.settings import Settings
from spamfilter.errors import InputError, SpamfilterError
from spamfilter.learning import marks
from spamfilter.learning.filter import Filter
from spamfilter.learning.marks import Author
from spamfilter.learning.undoing import Taught, taught_by, undo
from spamfilter.relay.next_hops import next_hop_of
from spamfilter.relay.quarantine import Quarantine
from spamfilter.reports import rendering
from spamfilter.service.control_socket.client import NoRelay, SocketClient
from spamfilter.stores import Store
from spamfilter.system.escaping import harmless
from spamfilter.web.accounts import Account

SOURCE = "web"
AT_ONCE = 200
"""Learnings forgotten by one click: some seconds; the next click does the next ones."""


def mark(filter: Filter, settings: Settings, id: str, label: Label | None, account: Account) -> dict[str, object]:
    """Learn a message as an account says, None: forget it; what has changed, as `mark-spam --json`, with `text`.

    Raises InputError, Refused, TryAgain, StoreError.
    """
    master = account.may("administer")
    try:
        client = SocketClient(settings.socket_path())
    except NoRelay:
        subject = marks.by_id(filter.store, id, wait=False)
        if not any(voice.name in subject.reading.tokens for voice in filter.voices):
            raise InputError(
                f"{id}: judged under another configuration ([learn] voices); mark its file with `spamfilter mark-spam`"
            ) from None
        author = Author(account.name, SOURCE, master=master)
        change = marks.mark(filter, subject, label, author, settings.feedback.marks_a_day)
        text = rendering.change_text(subject.name, label, change)
        return {**rendering.change_json({"id": id}, change), "text": text}
    with closing(client):
        request: dict[str, object] = {"command": "mark", "id": id, "label": label, "source": SOURCE}
        return client.ask({**request, "by": account.name, "master": master})


def release(filter: Filter, settings: Settings, id: str, account: Account) -> list[str]:
    """Deliver a mail from quarantine to its recipients, and learn that it is ham; what was done, in sentences.

    Raises SpamfilterError where it was not delivered.
    """
    kept = Quarantine(settings.quarantine_path())
    try:
        released = asyncio.run(kept.release(kept.find(id), next_hop_of(settings)))
    except OSError as error:
        raise InputError(f"{error.filename or kept.path}: {error.strerror}") from error
    said = [f"{id}: delivered to {', '.join(_readable(path) for path in released.delivered)}"]
    said += [f"{id}: stays in quarantine for {_readable(path)}: {reply.text}" for path, reply in released.refused]
    try:
        said.append(str(mark(filter, settings, id, "ham", account)["text"]))
    except SpamfilterError as error:
        said.append(f"{id}: delivered, but not learnt: {error}")
    return said


def _readable(path: bytes) -> str:
    return harmless(path.decode("utf-8", "replace"))


def taught(store: Store, by: str, since: datetime | None) -> Sequence[Taught]:
    """What an account, or anybody else, has said that counts. Raises InputError for nobody."""
    if not by or len(by) > 200:
        raise InputError("by: name the author whose marks are to be undone")
    return taught_by(store, by, since)


def forget(store: Store, settings: Settings, some: Sequence[Taught], account: Account) -> int:
    """Take back the first of these, at most AT_ONCE; how many that were."""
    done: set[int] = set()
    undo(Filter(store, settings.voices(), whole=False), some[:AT_ONCE], SOURCE, account.name, done.update)
    return len(done)
