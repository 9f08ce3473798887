"""Signed links of digests: each opens the kept mail of one address until it expires, without an account.

Guarantee: only this host's key makes a link that `address_of_link` accepts; HMAC-SHA256 over address and expiry.
"""

import base64
import fcntl
import hmac
import os
import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from spamfilter.errors import InputError, TryAgain
from spamfilter.stores.sender_lists import LINK
from spamfilter.system.file_access import make_file, make_folder
from spamfilter.system.paths import state_directory

KEY_BYTES = 32
LONGEST = 1500
"""Characters of a link: several times what the longest address needs."""


def key_file() -> Path:
    return state_directory() / "digest.key"


def read_key() -> bytes:
    """The key of the links. Raises InputError if there is none."""
    try:
        key = key_file().read_bytes()
    except OSError as error:
        raise InputError(f"{key_file()}: {error.strerror}; `spamfilter digest` makes it") from error
    if len(key) < KEY_BYTES:
        raise InputError(f"{key_file()}: is too short for a key; delete it, and `spamfilter digest` makes a new one")
    return key


@contextmanager
def held_key() -> Iterator[bytes]:
    """The key of the links; made, with mode 0600, if there is none. Nobody else holds it meanwhile.

    Raises InputError; TryAgain if another process holds it.
    """
    with ExitStack() as held:
        try:
            make_folder(key_file().parent)  # it is missing where [store] url is elsewhere
            with suppress(FileExistsError):
                make_file(key_file())
            file = held.enter_context(key_file().open("r+b", buffering=0))
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not os.fstat(file.fileno()).st_size:
                file.write(secrets.token_bytes(KEY_BYTES))
        except BlockingIOError:
            raise TryAgain("another `spamfilter digest` is at work; try again") from None
        except OSError as error:
            raise InputError(f"{key_file()}: {error.strerror}") from error
        yield read_key()


def link_of(key: bytes, address: str, expires: datetime) -> str:
    """The last part of a link's path: expiry and address, and their signature."""
    said = f"{int(expires.timestamp())}:{address}".encode()
    return f"{_text(said)}.{_text(_signature(key, said))}"


def address_of_link(key: bytes, link: str, now: datetime) -> str | None:
    """The address of a link; None if the link is not ours, or has expired."""
    first, _, second = link.partition(".")
    if len(link) > LONGEST or not link.isascii():
        return None
    try:
        said, signature = (base64.b64decode(part + "=" * (-len(part) % 4), b"-_", True) for part in (first, second))
    except ValueError:
        return None
    if not hmac.compare_digest(signature, _signature(key, said)):
        return None
    expires, _, address = said.decode().partition(":")
    return address if now < datetime.fromtimestamp(int(expires), UTC) else None


def user_of(address: str) -> str:
    """How history, lists and ledger name a user who acts by the link of an address."""
    return LINK + address


def _signature(key: bytes, said: bytes) -> bytes:
    return hmac.digest(key, b"digest link\0" + said, "sha256")


def _text(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")
