"""Where configuration, state and the feedback socket are; quick to import, as Dovecot runs a command for each mark."""

import os
import pwd
import tomllib
from functools import cache
from pathlib import Path

from spamfilter.errors import ConfigError

SYSTEM_FILE = Path("/etc/spamfilter/spamfilter.toml")
SYSTEM_STATE = Path("/var/lib/spamfilter")
SYSTEM_RUN = Path("/run/spamfilter")
SERVICE_USER = "spamfilter"
"""The user of the service, whose home is SYSTEM_STATE: systemd/sysusers.conf."""
SOCKET = "feedback.sock"
LONGEST_SOCKET = 107
"""Most bytes of a socket's path: unix(7)."""
BOM = "\ufeff"
"""Editors of Windows begin a file with it."""
QUOTES = ("'", '"')
"""With one of these a string in TOML begins."""


def state_directory() -> Path:
    """The folder of the database and the built-in Maildirs.

    systemd's STATE_DIRECTORY, else /var/lib/spamfilter if it exists or is the home of the service's user (also if it
    cannot be read: an error is better than silently training another database), else a folder in the user's home.
    XDG_STATE_HOME may say where that folder is; a relative path there is ignored, as its specification wants.
    Raises ConfigError for a user without a home, such as a number without a name in a container.
    """
    given = os.environ.get("STATE_DIRECTORY", "").partition(":")[0]
    if given:
        return Path(given)
    if SYSTEM_STATE.exists() or service_user() is not None:
        return SYSTEM_STATE
    named = os.environ.get("XDG_STATE_HOME", "")
    try:
        return Path(named if named.startswith("/") else Path.home() / ".local/state") / "spamfilter"
    except RuntimeError as error:
        raise ConfigError("no folder for the state: this user has no home; set STATE_DIRECTORY, or HOME") from error


def service_user() -> pwd.struct_passwd | None:
    """The user of the service, before whose first start SYSTEM_STATE is missing; None if no service is installed."""
    try:
        found = pwd.getpwnam(SERVICE_USER)
    except KeyError:
        return None
    return found if Path(found.pw_dir) == SYSTEM_STATE else None


def socket_path(configured: str = "") -> Path:
    """The feedback socket: as configured, else in /run/spamfilter for a system service, else beside the database."""
    if configured:
        return Path(configured)
    state = state_directory()
    return (SYSTEM_RUN if state == SYSTEM_STATE and SYSTEM_RUN.exists() else state) / SOCKET


def config_file(named: Path | None = None) -> Path | None:
    """The configuration file: the one named, SPAMFILTER_CONFIG, /etc/spamfilter/spamfilter.toml, or none."""
    if named is not None:
        return named
    if os.environ.get("SPAMFILTER_CONFIG"):
        return Path(os.environ["SPAMFILTER_CONFIG"])
    return SYSTEM_FILE if _is_closed(SYSTEM_FILE) or SYSTEM_FILE.exists() else None


def _is_closed(file: Path) -> bool:
    """Whether this user may not read a file, or not even look whether it is there."""
    try:
        file.stat()
    except OSError as error:
        return isinstance(error, PermissionError)
    return not os.access(file, os.R_OK)


@cache
def _from_pipe(file: Path) -> str:
    """What came through a pipe. A command asks several times for the configuration, and the second time it is empty."""
    return file.read_text(encoding="utf-8")


def values_of(file: Path | None) -> dict[str, object]:
    """The values of a configuration file, unchecked. Raises ConfigError if it cannot be read or is not TOML."""
    if file is None:
        return {}
    try:
        text = _from_pipe(file) if file.is_fifo() else file.read_text(encoding="utf-8")
        return tomllib.loads(text.removeprefix(BOM))
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{file}: line {line}: not UTF-8; save the file in that encoding") from error
    except (ValueError, RecursionError) as error:  # also of a number with thousands of digits
        wrong = str(error).startswith("Invalid value")
        hint = "; a text stands in quotation marks, and true and false are written small" if wrong else ""
        raise ConfigError(f"{file}: not TOML: {error}{hint}") from error


def toml_value(text: str) -> object:
    """The value that is written in TOML in a variable of the environment; the text itself if it is not TOML."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return text


def _configured(named: Path | None, section: str, key: str) -> str:
    """A text of the configuration, whose other keys are not checked; '' if it is not set.

    A file that this user may not read sets nothing: any user may mark mail.
    """
    ours = {name.upper(): text for name, text in sorted(os.environ.items()) if name.startswith("SPAMFILTER_")}
    given: object = ours.get(f"SPAMFILTER_{section}__{key}".upper())
    if isinstance(given, str) and given.startswith(QUOTES):
        given = toml_value(given)
    if given is None:
        file = config_file(named)
        table = {} if file and _is_closed(file) else values_of(file).get(section)
        given = table.get(key) if isinstance(table, dict) else None
    return given if isinstance(given, str) else ""


def configured_socket(named: Path | None) -> Path:
    return socket_path(_configured(named, "feedback", "socket"))


def configured_database(named: Path | None) -> str:
    """The file of the database that the configuration names; '' if it names none, or a server."""
    return database_in(_configured(named, "store", "url"))


def database_in(url: str) -> str:
    """The absolute path that a URL of SQLite names, '' if it names none."""
    path = url.removeprefix("sqlite:///")
    return path if path != url and path.startswith("/") else ""


def configured_quarantine(named: Path | None) -> Path:
    return Path(_configured(named, "verdict", "quarantine") or state_directory() / "quarantine")
