"""Where configuration, state and the feedback socket are; light enough for a command that runs at every click."""

import os
import tomllib
from contextlib import suppress
from pathlib import Path

from spamfilter.errors import ConfigError

SYSTEM_FILE = Path("/etc/spamfilter/spamfilter.toml")
SYSTEM_STATE = Path("/var/lib/spamfilter")
SYSTEM_RUN = Path("/run/spamfilter")
SOCKET = "feedback.sock"
LONGEST_SOCKET = 107
"""Bytes of a socket's path: unix(7)."""
SOCKET_VARIABLE = "SPAMFILTER_FEEDBACK__SOCKET"


def state_directory() -> Path:
    """Where the database and the built-in Maildirs live.

    systemd's STATE_DIRECTORY, else /var/lib/spamfilter where it exists (even if it cannot be read:
    silently training another database would be worse than an error), else the user's own.
    """
    given = os.environ.get("STATE_DIRECTORY", "").partition(":")[0]
    if given:
        return Path(given)
    if SYSTEM_STATE.exists():
        return SYSTEM_STATE
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state") / "spamfilter"


def socket_path(configured: str = "") -> Path:
    """The feedback socket: the one configured, else in /run/spamfilter of a system service, else beside the state."""
    if configured:
        return Path(configured)
    state = state_directory()
    return (SYSTEM_RUN if state == SYSTEM_STATE and SYSTEM_RUN.exists() else state) / SOCKET


def config_file(named: Path | None = None) -> Path | None:
    """The file to read: the one named, SPAMFILTER_CONFIG, /etc/spamfilter/spamfilter.toml, or none."""
    if named is not None:
        return named
    if os.environ.get("SPAMFILTER_CONFIG"):
        return Path(os.environ["SPAMFILTER_CONFIG"])
    return SYSTEM_FILE if SYSTEM_FILE.exists() else None


def values_of(file: Path | None) -> dict[str, object]:
    """What a configuration file says, unchecked. Raises ConfigError where it cannot be read or is not TOML."""
    if file is None:
        return {}
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{file}: not TOML: {error}") from error


def _readable(file: Path | None) -> dict[str, object]:
    """As `values_of`; nothing where the file is not ours to read, which is no reason not to mark."""
    if file is not None and file.exists() and not os.access(file, os.R_OK):
        return {}
    return values_of(file)


def configured_socket(named: Path | None = None) -> Path:
    """The feedback socket of the configuration, found without checking the rest of it."""
    given: object = os.environ.get(SOCKET_VARIABLE)
    if isinstance(given, str) and given[:1] in ("'", '"'):
        with suppress(ValueError, RecursionError):
            given = tomllib.loads(f"value = {given}")["value"]
    if given is None:
        section = _readable(config_file(named)).get("feedback")
        given = section.get("socket") if isinstance(section, dict) else None
    return socket_path(given if isinstance(given, str) else "")
