"""The accounts of the web page: a file with a line NAME:ROLE:HASH for each.

Guarantee: an error in the file names file and line, and quotes no hash. No password is stored, only its argon2id hash.
Checking a password takes the same time whether the account exists or not.
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from spamfilter.config.addresses import one_line
from spamfilter.errors import ConfigError, InputError

if TYPE_CHECKING:
    from argon2 import PasswordHasher

Role = Literal["look", "label", "administer"]
ROLES: tuple[Role, ...] = get_args(Role)
"""The roles; each includes the rights of those before it."""
NO_PASSWORD = "-"  # noqa: S105 - means that there is no password
"""Instead of a hash: the account can sign in through a reverse proxy only."""
HASH = "$argon2id$"
SHORTEST, LONGEST = 10, 1000
"""Characters of a password: too many to guess within the limits of attempts, and few enough to hash quickly."""


@dataclass(frozen=True, slots=True)
class Account:
    """An account. hash: of its password, or NO_PASSWORD."""

    name: str
    role: Role
    hash: str

    def may(self, role: Role) -> bool:
        """Whether this account has the rights of a role."""
        return ROLES.index(role) <= ROLES.index(self.role)


def read_accounts(file: Path) -> Mapping[str, Account]:
    """The accounts of a file by name. Raises ConfigError."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise ConfigError(
            f"web.accounts = {str(file)!r}: {reason}; `spamfilter web-password NAME` prints a line for it"
        ) from error
    found: dict[str, Account] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.startswith("#"):
            try:
                account = _account(line.strip())
            except ValueError as error:
                raise ConfigError(f"{file}: line {number}: {error}") from None
            if account.name in found:
                raise ConfigError(f"{file}: line {number}: a second account {account.name!r}; leave one of them")
            found[account.name] = account
    return found


def _account(line: str) -> Account:
    """The account of a line. Raises ValueError with a sentence for people."""
    parts = line.split(":")
    if len(parts) != 3:
        raise ValueError("not of the form NAME:ROLE:HASH, as `spamfilter web-password NAME` prints it")
    name, role, hash = parts
    if role not in ROLES:
        raise ValueError(f"{name!r} has the role {role!r}; known: {', '.join(ROLES)}")
    if hash != NO_PASSWORD and not hash.startswith(HASH):
        raise ValueError(f"{name!r} has no argon2id hash; `spamfilter web-password` prints one, or write -")
    return Account(valid_name(name), role, hash)


def valid_name(name: str) -> str:
    """The name, if an account may have it. Raises ValueError if not."""
    if not name or name != name.strip() or ":" in name or name.startswith("#"):
        raise ValueError(
            f"{name!r} is not a valid name: it is empty, contains a colon, has blanks around it, or begins with #"
        )
    return one_line(name)


def line_of(name: str, role: Role, password: str) -> str:
    """The line of a new account. Raises InputError if name or password is not accepted."""
    try:
        valid_name(name)
    except ValueError as error:
        raise InputError(f"name: {error}") from None
    if not SHORTEST <= len(password) <= LONGEST:
        raise InputError(f"a password has from {SHORTEST} to {LONGEST} letters; this has {len(password)}")
    return f"{name}:{role}:{_hasher().hash(password)}"


def is_right(account: Account | None, password: str) -> bool:
    """Whether this is the account's password. Takes the same time for None."""
    from argon2.exceptions import InvalidHashError, VerificationError

    known = account is not None and account.hash != NO_PASSWORD
    hash = account.hash if account is not None and known else _nobodys()
    try:
        return _hasher().verify(hash, password[:LONGEST]) and known and len(password) <= LONGEST
    except (InvalidHashError, VerificationError):
        return False


@functools.cache
def _hasher() -> "PasswordHasher":
    """argon2id with the library's defaults: the second recommendation of RFC 9106, 64 MiB and three passes."""
    try:
        from argon2 import PasswordHasher
    except ImportError:
        raise InputError("the web page needs argon2: in the checkout, .venv/bin/pip install '.[web]'") from None
    return PasswordHasher()


@functools.cache
def _nobodys() -> str:
    """A hash to check a password against if the account has none."""
    return _hasher().hash("nobody's password")
