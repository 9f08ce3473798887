"""The command `mark` of the feedback socket: the request, its author, and the answer. See docs/json.md."""

import logging
import os
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass

from spamfilter.bayes.labels import LABELS, Label
from spamfilter.errors import InputError, Refused
from spamfilter.learning.mark_queue import MarkQueue
from spamfilter.learning.marks import Author, author_name
from spamfilter.reports import rendering
from spamfilter.service.control_socket.client import Answer
from spamfilter.system.escaping import printable

log = logging.getLogger(__name__)

LONGEST_BY = 200
SOURCES = ("cli", "imap", "review", "web")
"""Sources that a client may name; `web` only as the user of the relay. Others, such as `train`, are not accepted."""


@dataclass(frozen=True, slots=True)
class LocalUser:
    """The user at the other end. name: login name. master: is an administrator. proxy: may mark for other users."""

    name: str
    master: bool
    proxy: bool


async def make_mark(
    request: Answer, mail: bytes | None, user: LocalUser, users: Collection[str], mark_queue: MarkQueue
) -> Answer:
    """Make the mark that a request asks for. users: those who may mark; empty: all.

    Raises InputError, Refused, and the errors of MarkQueue.
    """
    label: Label | None = request.get("label", "")
    if label is not None and label not in LABELS:
        raise InputError("label: neither 'ham' nor 'spam' nor null")
    author = _author(request, user, users)
    if named := _other(request.get("database"), mark_queue.where):
        raise InputError(
            f"the relay learns into {mark_queue.where}, and the configuration of this command names {named}; name the"
            " relay's configuration with --config, or another [feedback] socket; nothing was learnt"
        )
    id, name = request.get("id"), request.get("name", "the mail")
    if not isinstance(name, str) or not isinstance(id, str | None):
        raise InputError("name and id must be text")
    if mail is not None and id is None:
        shown = name if name.isprintable() else printable(name, 200)  # terminals show it
        marked = await mark_queue.mark_mail(mail, shown, label, author)
    elif mail is None and id is not None:
        marked = await mark_queue.mark_id(id, label, author)
    else:
        raise InputError("name a mail by its id, or send its size and its bytes")
    subject, changed = marked.subject, marked.change.changed
    log.log(
        logging.INFO if changed else logging.DEBUG,
        "feedback: %s by %s (%s): %s %s", label or "forget", printable(author.name), author.source,
        subject.id or "a mail not judged here", "done" if changed else "nothing changed",
    )  # fmt: skip
    return rendering.change_json(subject, label, marked.change, marked.kept_on)


def _other(named: object, where: str) -> str:
    """The file of a database that a client names, if it is another one than the relay's; else ''."""
    if not isinstance(named, str) or not named or named == where:
        return ""
    with suppress(OSError, ValueError):
        if os.path.samefile(named, where):
            return ""
    return printable(named, 300)


def _author(request: Answer, user: LocalUser, users: Collection[str]) -> Author:
    source, by = request.get("source", "cli"), request.get("by")
    if users and not (user.master or user.proxy or user.name in users):
        raise Refused(f"{user.name}: not among [feedback] users")
    if source not in SOURCES:
        raise InputError(f"source: not one of {', '.join(SOURCES)}")
    if source == "web" and not user.master:
        raise Refused(f"{user.name}: only the web page, which runs as the user of the relay, is the source 'web'")
    if by is None:
        return Author(author_name(user.name), source, master=user.master)
    if not isinstance(by, str) or not by.isprintable() or not 0 < len(by) <= LONGEST_BY:
        raise InputError(f"by: not a name of at most {LONGEST_BY} printable characters")
    by = author_name(by)
    if not (user.master or user.proxy or by == author_name(user.name)):
        raise Refused(f"{user.name}: may not speak for others; add it to [feedback] proxies if it should")
    return Author(by, source, master=user.master and request.get("master") is True)
