"""Listens on a socket in the file system: replaces one that an ended process has left, and nothing else."""

import errno
import os
import pwd
import socket
import stat
import struct
from pathlib import Path

from spamfilter.errors import ConfigError
from spamfilter.system.paths import LONGEST_SOCKET

_CREDENTIALS = struct.Struct("iII")
"""Process, user and group: unix(7). The latter two are no signed numbers."""

MAIL_SERVER = "postfix"
"""The user of the mail server that connects: Postfix's mail_owner, which nobody changes as a rule. Sendmail is root."""


class Occupied(ConfigError):
    """Another process listens at this path; perhaps a relay that is stopping."""


def user_of(client: socket.socket) -> int:
    """The user that a connected client had when it connected, as the kernel says."""
    return int(_CREDENTIALS.unpack(client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))[1])


def is_mail_server(uid: int) -> bool:
    """Whether a process of this user may say who the sender of a mail is: the mail server's, ours, or root's."""
    if uid in (0, os.getuid()):
        return True
    try:
        return pwd.getpwnam(MAIL_SERVER).pw_uid == uid
    except KeyError:
        return False


def bound(path: Path) -> socket.socket:
    """A socket at this path, which all users may connect to.

    Raises Occupied if another process listens there, ConfigError if no socket can be made there.
    """
    if len(os.fsencode(path)) > LONGEST_SOCKET:
        raise ConfigError(f"longer than the {LONGEST_SOCKET} bytes of a socket's path")
    try:
        if identity(path) is not None:
            if _answers(path):
                raise Occupied("another relay listens there, which may be stopping")
            path.unlink()
        if os.path.lexists(path):
            raise ConfigError("something is there that is no socket; remove it")
        return _at(path)
    except OSError as error:
        raise ConfigError(f"{error.strerror}; its folder must be there, and ours to write in") from error


def identity(path: Path) -> tuple[int, int] | None:
    """Device and inode of the socket at this path; None if it is missing or something else, such as a link."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return (found.st_dev, found.st_ino) if stat.S_ISSOCK(found.st_mode) else None


def _at(path: Path) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o111)  # instead of a chmod, which would follow a link that took the socket's place
    try:
        sock.bind(str(path))
    except OSError:
        sock.close()
        raise
    finally:
        os.umask(before)
    return sock


def _answers(path: Path) -> bool:
    """Whether a process listens there; one that is too busy to accept does, too."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as trial:
        trial.settimeout(1)
        return trial.connect_ex(str(path)) not in (errno.ECONNREFUSED, errno.ENOENT)
