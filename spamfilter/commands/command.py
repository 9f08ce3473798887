"""Parts that commands share: the mails that arguments name, opening configuration, store and filter, times, --json.

Heavy modules are imported only where they are used: a mark over the feedback socket needs none of them.
"""

import getpass
import os
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from spamfilter.errors import InputError, SpamfilterError, StoreError
from spamfilter.mail import mailboxes
from spamfilter.service.control_socket.client import NoRelay, SocketClient
from spamfilter.system.ids import id_in
from spamfilter.system.moments import moment_of
from spamfilter.system.paths import SYSTEM_STATE, service_user, state_directory
from spamfilter.system.screen import complain

if TYPE_CHECKING:
    from spamfilter.config.settings import Settings
    from spamfilter.learning.filter import Filter
    from spamfilter.learning.mark_lookup import MailAtHand, Subject
    from spamfilter.stores import Store

as_json_option = click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
PROBLEMS_NAMED = 50
"""Files that were passed over and are named: of a wrong folder there may be thousands."""
SUMMARY = 300
"""Most characters of a command's summary: two sentences."""
TOGETHER = 100
"""Mails of files about which the journal is asked at once: some megabytes of messages."""
EARLIEST = datetime(2000, 1, 1, tzinfo=UTC)
"""Before all mail. A report since the year 1 would have a row for each day since."""
MORE_WORDS = {"allow_extra_args": True}
"""Settings of a command that calls `refuse_more_words`; click alone would print each word."""
PATH = click.Path(path_type=Path)
"""The type of an argument or option that names a file or folder, which need not be there."""
names_argument = click.argument("names", nargs=-1, metavar="[ID|FILE|DIR|-]...")


class CommandGroup(click.Group):
    """A group whose help shows the summary of each command in full; click cuts it at the end of a line."""

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        commands = [(name, self.get_command(context, name)) for name in self.list_commands(context)]
        with formatter.section("Commands"):
            formatter.write_dl([(name, found.get_short_help_str(SUMMARY)) for name, found in commands if found])


def refuse_more_words(options: str) -> None:
    """Raises UsageError for words that belong to no option, as a shell makes them of `--spam folder/*`."""
    if words := click.get_current_context().args:
        more = f" and {len(words) - 1:,} more" if len(words) > 1 else ""
        raise click.UsageError(
            f"{words[0]!r}{more}: of no option; each {options} takes one path, a folder or a mailbox, and may be"
            " repeated. Instead of folder/*, name the folder"
        )


def moment(option: str, text: str, now: datetime, end: bool = False) -> datetime:
    """The begin of a span like 7d that ends now, or a date or time in local time: of a date its begin, or with `end`
    the end of that day, but not after now. Days and weeks of a span, and `yesterday`, are by the local calendar.

    Raises InputError, which names the option.
    """
    local = now.astimezone().replace(tzinfo=None)
    date = (local - timedelta(days=1)).date().isoformat() if text == "yesterday" else text
    match = re.fullmatch(r"([0-9]{1,6})([hdw])", text)
    try:
        if match and match.group(2) == "h":
            return max(now - timedelta(hours=int(match.group(1))), EARLIEST)
        if match:
            days = int(match.group(1)) * (7 if match.group(2) == "w" else 1)
            return max((local - timedelta(days=days)).astimezone(UTC), EARLIEST)
        found = moment_of(date)
    except (ValueError, OverflowError):
        raise InputError(
            f"{option} {text!r}: neither a span (24h, 7d, 4w) nor a date (2026-01-31, yesterday) or time"
            " (2026-01-31T13:00)"
        ) from None
    if found >= now:
        where = "in the future" if found >= datetime.now(UTC) else "behind the end of the period"
        raise InputError(f"{option} {text!r}: lies {where}")
    return max(min(moment_of(date, end), now), EARLIEST)


def user() -> str:
    """The login name of the user who runs this command, '' if it has none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""


def _standard_input() -> bytes:
    """The mail on standard input. Raises InputError if it is empty, or a terminal; NotMail if it is no mail."""
    if sys.stdin.isatty():
        raise InputError("no mail: name an id, a file or a Maildir, or pipe a mail in")
    mail = sys.stdin.buffer.read()
    if not mail.strip():
        raise InputError("standard input: no mail; name an id, a file or a Maildir, or pipe a mail in")
    if mailboxes.is_mbox(mail):
        raise InputError("standard input: more than one mail; name the file, or pipe in one mail at a time")
    return mailboxes.checked("standard input", mail)


NamedMail = tuple[str, bytes | None]
"""The name and the bytes of a mail, or an id and None."""


def named_mails(
    names: Iterable[str], problems: list[str], left_out: Callable[[Path], bool] = lambda _: False
) -> Iterator[NamedMail]:
    """Each message of these names.

    problems: takes a sentence for each name, and each file of a folder, that is passed over, for being no mail for
    instance. left_out: as in `mailboxes.find`.
    """
    for name in names:
        try:
            yield from _mails_of(name, problems, left_out)
        except InputError as error:
            problems.append(str(error))


def _mails_of(name: str, problems: list[str], left_out: Callable[[Path], bool]) -> Iterator[NamedMail]:
    if name == "-" or _exists(name):
        piped = mailboxes.Mail("standard input", _standard_input)
        for found in [piped] if name == "-" else mailboxes.find(Path(name), left_out):
            try:
                mail = found.read()
            except InputError as error:
                problems.append(str(error))
            else:
                yield found.name, mail
    elif id := id_in(name):
        yield id, None
    else:
        raise InputError(f"{name}: not a file, a folder or an id (26 letters and digits)")


def _exists(name: str) -> bool:
    """Whether there is a file or folder of this name. Raises InputError where one may not look.

    An id is an id, too, in a folder that is closed to the user, as root's is to the user of the relay.
    """
    try:
        os.lstat(name)
    except PermissionError as error:
        if "/" not in name and id_in(name):
            return False
        raise InputError(f"{name}: {error.strerror}") from error
    except (OSError, ValueError):
        return False
    return True


def subjects(
    filter: "Filter",
    mails: Iterable[NamedMail],
    prefixes: Collection[str],
    problems: list[str],
    author: str = "",
) -> "Iterator[Subject]":
    """These messages, in order.

    prefixes: what the relay may have put before their subjects, which is passed over. problems: takes a sentence for
    each id that is passed over, for instance because it is unknown. author: the user who marks them, as in
    `mark_lookup.by_mail`.
    """
    from spamfilter.learning.mark_lookup import by_id, by_mails, mail_at_hand
    from spamfilter.mail.tagging import untagged

    waiting: list[MailAtHand] = []
    for name, mail in mails:
        if mail is not None:
            waiting.append(mail_at_hand(filter, name, untagged(mail, prefixes)))
        if mail is None or len(waiting) == TOGETHER:
            yield from by_mails(filter, waiting, author)
            waiting.clear()
        if mail is None:
            try:
                found = by_id(filter, name)
            except InputError as error:
                problems.append(str(error))
            else:
                yield found
    yield from by_mails(filter, waiting, author)


def settings_of(file: Path | None) -> "Settings":
    """The configuration. Makes the state directory if the database is there by default.

    Before the first start of the service, root makes the service's, and gives it to the service's user.
    """
    from spamfilter.config.settings import load
    from spamfilter.system.file_access import make_folder

    settings = load(file)
    if not settings.store.url:
        state = state_directory()
        missing = not state.is_dir()
        try:
            make_folder(state)
            if missing and os.geteuid() == 0 and state == SYSTEM_STATE and (service := service_user()):
                os.chown(state, service.pw_uid, service.pw_gid)
        except OSError as error:
            raise InputError(f"{state}: {error.strerror}; set [store] url") from error
    return settings


def check_target(file: Path) -> None:
    """Raise InputError, before hours of work, if a file that is to be written is a folder, or its folder is missing."""
    if file.is_dir():
        raise InputError(f"{file}: is a folder; name a file")
    if not file.parent.is_dir():
        raise InputError(f"{file}: there is no folder {file.parent}")


def tell_problems(problems: Sequence[str], leave: bool = True) -> None:
    """Name what was passed over on standard error; with `leave`, exit with 2 if there is anything."""
    for problem in problems[:PROBLEMS_NAMED]:
        complain(problem)
    if len(problems) > PROBLEMS_NAMED:
        complain(f"and {len(problems) - PROBLEMS_NAMED} more were passed over")
    if problems and leave:
        sys.exit(InputError.exit_code)


def has_store(url: str) -> bool:
    """Whether the file of a database exists. A database of PostgreSQL is taken as existing until it is opened."""
    from spamfilter.stores.sql.connection import file_of

    path = file_of(url)
    return path is None or path.exists()


def status_of_relay(settings: "Settings", place: str) -> dict[str, Any] | None:
    """The status of a relay on this host that learns into the database of this place; None if there is none."""
    from spamfilter.stores.sql.connection import same_place

    with suppress(NoRelay, SpamfilterError), closing(SocketClient(settings.socket_path())) as client:
        status = client.ask({"command": "status"})
        return status if same_place(status["database"], place) else None
    return None


def check_not_lost(settings: "Settings") -> None:
    """Raise StoreError if the database is gone while a relay still judges by its counts: it must not be replaced by an
    empty one."""
    from spamfilter.stores import GONE
    from spamfilter.stores.sql.connection import place_of

    place = place_of(settings.store_url())
    if has_store(settings.store_url()):
        return
    if (status := status_of_relay(settings, place)) and any(status["learnt"].values()):
        raise StoreError(f"{place}: the database is gone; {GONE}")


def check_exists(settings: "Settings") -> None:
    """Raise InputError if there is no database yet, StoreError as `check_not_lost`."""
    from spamfilter.stores import NO_TABLES
    from spamfilter.stores.sql.connection import place_of

    check_not_lost(settings)
    if not has_store(settings.store_url()):
        raise InputError(f"{place_of(settings.store_url())}: {NO_TABLES}")


@contextmanager
def opened_store(settings: "Settings", existing: bool = False) -> "Iterator[Store]":
    """The store of the configuration. existing: make none, and raise as `check_exists`; else as `check_not_lost`."""
    from spamfilter.stores import open_store

    (check_exists if existing else check_not_lost)(settings)
    with closing(open_store(settings.store_url(), create=not existing)) as store:
        yield store


@contextmanager
def opened_filter(file: Path | None, whole: bool, existing: bool = False) -> "Iterator[tuple[Filter, Settings]]":
    """The filter of the configuration, on its store. existing: as `opened_store`."""
    from spamfilter.learning.filter import Filter

    settings = settings_of(file)
    with opened_store(settings, existing) as store:
        yield Filter(store, settings.voices(), whole=whole), settings
