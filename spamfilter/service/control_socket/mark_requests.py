"""The command `mark` of the feedback socket: the request, its author, and the answer. See docs/json.md."""

import logging
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from spamfilter.bayes.labels import LABELS, Label
from spamfilter.errors import InputError, Refused
from spamfilter.learning.mark_queue import MarkQueue
from spamfilter.learning.marks import Author
from spamfilter.reports import rendering
from spamfilter.system.escaping import printable

log = logging.getLogger(__name__)

Answer = dict[str, Any]

LONGEST_BY = 200
SOURCES = ("cli", "imap", "review", "web")
"""Sources that a client may name; `web` only as the user of the relay. Others, such as `train`, are not accepted."""


@dataclass(frozen=True, slots=True)
class Client:
    """The user at the other end. user: login name. master: is an administrator. proxy: may mark for other users."""

    user: str
    master: bool
    proxy: bool


@dataclass(frozen=True, slots=True)
class MarkRequest:
    """A mark that the client may make. label: None to forget. It has either an id, or a mail and its name."""

    label: Label | None
    author: Author
    id: str
    mail: bytes | None
    name: str


def mark_request(request: Answer, mail: bytes | None, client: Client, users: Collection[str]) -> MarkRequest:
    """The mark that a request asks for. users: those who may mark; empty: all. Raises InputError or Refused."""
    label: Label | None = request.get("label", "")
    if label is not None and label not in LABELS:
        raise InputError("label: neither 'ham' nor 'spam' nor null")
    author = _author(request, client, users)
    id, name = request.get("id"), request.get("name", "the mail")
    if not isinstance(name, str) or not (id is None or isinstance(id, str)):
        raise InputError("name and id must be text")
    if (mail is None) == (id is None):
        raise InputError("name a mail by its id, or send its size and its bytes")
    if not name.isprintable():
        name = printable(name, 200)  # terminals show it
    return MarkRequest(label, author, id or "", mail, name)


async def make_mark(asked: MarkRequest, mark_queue: MarkQueue) -> Answer:
    """Make the mark, and return the answer. Raises the errors of MarkQueue."""
    if asked.mail is not None:
        marked = await mark_queue.mark_mail(asked.mail, asked.name, asked.label, asked.author)
    else:
        marked = await mark_queue.mark_id(asked.id, asked.label, asked.author)
    subject, changed = marked.subject, marked.change.changed
    log.log(
        logging.INFO if changed else logging.DEBUG,
        "feedback: %s by %s (%s): %s %s", asked.label or "forget", printable(asked.author.name), asked.author.source,
        subject.id or "a mail not judged here", "done" if changed else "nothing changed",
    )  # fmt: skip
    return rendering.change_json(subject, asked.label, marked.change)


def _author(request: Answer, client: Client, users: Collection[str]) -> Author:
    source, by = request.get("source", "cli"), request.get("by")
    if users and not (client.master or client.proxy or client.user in users):
        raise Refused(f"{client.user}: not among [feedback] users")
    if source not in SOURCES:
        raise InputError(f"source: not one of {', '.join(SOURCES)}")
    if source == "web" and not client.master:
        raise Refused(f"{client.user}: only the web page, which runs as the user of the relay, is the source 'web'")
    if by is None:
        return Author(client.user, source, master=client.master)
    if not isinstance(by, str) or not by.isprintable() or not 0 < len(by) <= LONGEST_BY:
        raise InputError(f"by: not a name of at most {LONGEST_BY} printable characters")
    if not (client.master or client.proxy or by == client.user):
        raise Refused(f"{client.user}: may not speak for others; add it to [feedback] proxies if it should")
    return Author(by, source, master=client.master and request.get("master") is True)
