"""The exceptions of this package.

Every error that a user can fix derives from `SpamfilterError`; the commands turn it into one line on standard error and
an exit code, never a traceback.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager


class SpamfilterError(Exception):
    """An error that the user can fix; the text says how."""

    exit_code = 2


class ConfigError(SpamfilterError):
    """The configuration is wrong; the text names file, key and value."""


class NoSuchAddress(ConfigError):
    """The host has no such address, perhaps not yet; trying again may help."""

    exit_code = os.EX_TEMPFAIL


class InputError(SpamfilterError):
    """A file, an id or a message given to a command cannot be used."""


class NotMail(InputError):
    """A file or an input is something else than a mail."""


class Refused(SpamfilterError):
    """A request that its user has no right to, or too many of them; nothing was changed."""

    exit_code = 1


class ShareUsed(Refused):
    """A user has reached the limit of marks a day."""


class TryAgain(SpamfilterError):
    """Something needed does not answer, the next hop for instance; trying again helps."""

    exit_code = os.EX_TEMPFAIL  # mail programs try again


class NoThread(TryAgain):
    """The system gives this process no further thread."""

    def __init__(self) -> None:
        super().__init__(
            "no thread can be started: raise the limit of processes (ulimit -u, TasksMax=, pids.max) or of memory"
        )


class StoreError(SpamfilterError):
    """The database cannot be used, has another version, or contradicts itself."""


class StoreBusy(StoreError):
    """Another process has held the database longer than the timeout; trying again helps."""

    exit_code = os.EX_TEMPFAIL


class StoreConflict(StoreBusy):
    """The database ended this transaction because another one was in its way; the same again soon succeeds."""


class StoreRefused(StoreBusy):
    """The database's server refuses the password or the role; once that is mended, trying again helps."""


class StoreFull(StoreError):
    """The disk is full, or fails; once that is mended, trying again helps."""

    exit_code = os.EX_TEMPFAIL


class StoreDamaged(StoreError):
    """The file is no database, or a damaged one."""


class CountError(StoreError):
    """A count would fall below zero, or exceed what the store can hold."""


class NextHopError(Exception):
    """The next hop cannot be reached, is too slow or breaks the protocol; the client gets 451 and keeps the mail.

    kind: one of `metrics.FAILURES`; '' if the next hop is not the cause. limit: the limit that was reached, if any.
    """

    def __init__(self, text: str, kind: str = "protocol", limit: str = "") -> None:
        super().__init__(text)
        self.kind = kind
        self.limit = limit


@contextmanager
def file_errors(file: object, kind: type[SpamfilterError] = InputError) -> Iterator[None]:
    """Raises an OSError as an error of this kind that names the file."""
    try:
        yield
    except OSError as error:
        raise kind(f"{file}: {error.strerror or error}") from error
