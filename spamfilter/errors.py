"""The error tree: one class per kind of trouble, one sentence each.

Everything that a user can mend derives from `SpamfilterError`; the commands turn it into one line
on standard error and an exit code, never a traceback.
"""


class SpamfilterError(Exception):
    """Something that the person at the keyboard can mend; the text says what to do."""

    exit_code = 2


class ConfigError(SpamfilterError):
    """The configuration is wrong: the text names file, key and value."""


class InputError(SpamfilterError):
    """A file, an id or a message given to a command cannot be used."""


class Refused(SpamfilterError):
    """Somebody asked for what is not theirs to change, or for more than their share; nothing was done."""

    exit_code = 1


class ShareUsed(Refused):
    """Somebody has had their share of marks for today."""


class TryAgain(SpamfilterError):
    """A part that is needed, such as the next hop, does not answer; trying again helps."""

    exit_code = 75  # as StoreBusy


class StoreError(SpamfilterError):
    """The database cannot be opened, is of another version, or contradicts itself."""


class StoreBusy(StoreError):
    """Another process holds the database for longer than the busy timeout; trying again helps."""

    exit_code = 75  # EX_TEMPFAIL of sysexits.h: mail programs retry on it


class StoreDamaged(StoreError):
    """What the file holds is no database, or none any more."""


class CountError(StoreError):
    """A count would fall below zero or grow past what the store can hold."""


class NextHopError(Exception):
    """The next hop is gone, slow or talks nonsense: the client hears 451 and keeps the mail.

    kind: one of `metrics.FAILURES`, '' where it is no failure of the next hop. limit: the limit that was hit, if any.
    """

    def __init__(self, text: str, kind: str = "protocol", limit: str = "") -> None:
        super().__init__(text)
        self.kind = kind
        self.limit = limit
