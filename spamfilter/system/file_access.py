"""What a user may do with a file; and new files and folders that only their owner may read.

Guarantee: the modes of new files and folders do not depend on the umask. What root makes in a folder of another user
belongs to that user, as whom the relay runs.
"""

import errno
import fcntl
import os
import pwd
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from spamfilter.system.process import ended_tidily


@dataclass(frozen=True, slots=True)
class User:
    """A user of the system: the name for people, and the numbers by which the kernel grants access."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...] = ()


ANYBODY = User("every user", 65534, 65534)
"""A user without any rights that not all others have."""


def user_of(uid: int) -> User:
    """The user with this number, also if it has no name."""
    try:
        found = pwd.getpwuid(uid)
    except KeyError:
        return User(f"uid {uid}", uid, uid)
    return User(found.pw_name, uid, found.pw_gid, tuple(os.getgrouplist(found.pw_name, found.pw_gid)))


def user_named(name: str) -> User | None:
    """The user of this name, None if there is none."""
    try:
        return user_of(pwd.getpwnam(name).pw_uid)
    except KeyError:
        return None


def make_folder(path: Path) -> None:
    """Make a folder and those above it if they are missing, each with mode 0700. Raises OSError."""
    if path.is_dir():
        return
    make_folder(path.parent)
    path.mkdir(mode=0o700, exist_ok=True)
    _hand_over(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW), path.parent)


def make_file(path: Path) -> None:
    """Make an empty file with mode 0600. Raises FileExistsError, also for a link to nowhere, and other OSErrors."""
    _hand_over(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600), path.parent)


@contextmanager
def whole_file(target: Path) -> Iterator[Path]:
    """An empty file that becomes the target at the end of the block, when it has reached the disk; or nothing does.

    It is in a private folder: in one like /tmp others could put a link under a name that they foresee. Raises OSError,
    also if the target exists.
    """
    if target.exists():
        raise FileExistsError(errno.EEXIST, "exists already; name a new file", str(target))
    with ended_tidily(), TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as folder:
        partial = Path(folder) / target.name
        _hand_over(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600), target.parent)
        yield partial
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        partial.rename(target)


def locked(opened: int, path: Path) -> bool:
    """Lock what is open here, until it is closed; False if another process has locked it.

    Raises OSError, which names the path, where its file system has no locks.
    """
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    return True


def is_trap(path: Path) -> bool:
    """Whether root would follow a symbolic link of another user, who may change it at any time."""
    return os.geteuid() == 0 and path.is_symlink() and path.parent.stat().st_uid != 0


def _hand_over(made: int, folder: Path) -> None:
    """Give what root has made to the owner of its folder, and close it.

    made: its descriptor, as that owner may have put something else at its path meanwhile.
    """
    try:
        if os.geteuid() == 0 and (owner := folder.stat()).st_uid != 0:
            os.fchown(made, owner.st_uid, owner.st_gid)
    finally:
        os.close(made)


def owner(path: Path) -> str:
    """The name of the owner of a file. Raises OSError."""
    return user_of(path.stat().st_uid).name


def may(user: User, path: Path, want: int) -> bool:
    """Whether a user has this access (os.R_OK, os.W_OK, os.X_OK) to a path; False if it is missing.

    The kernel answers for the own user, and for every user if this process is root; otherwise the modes tell.
    """
    return not denied(user, [path], want)


def denied(user: User, paths: Iterable[Path], want: int) -> list[Path]:
    """The paths to which a user does not have this access: see `may`."""
    if os.geteuid() not in (0, user.uid):
        return [path for path in paths if not by_mode(user, path, want)]
    with _in_place_of(user):
        return [path for path in paths if not os.access(path, want, effective_ids=True)]


def by_mode(user: User, path: Path, want: int) -> bool:
    """As `may`, by owner, group and mode alone, without access control lists and mount options."""
    try:
        # Those above a link, and those above the file that it leads to.
        folders = {*path.absolute().parents, *Path(os.path.realpath(path)).parents}
        return all(_granted(user, each.stat(), os.X_OK) for each in folders) and _granted(user, path.stat(), want)
    except OSError:
        return False


def _granted(user: User, found: os.stat_result, want: int) -> bool:
    if user.uid == 0:
        return True
    if user.uid == found.st_uid:
        granted = found.st_mode >> 6
    elif found.st_gid in (user.gid, *user.groups):
        granted = found.st_mode >> 3
    else:
        granted = found.st_mode
    return granted & want == want


@contextmanager
def _in_place_of(user: User) -> Iterator[None]:
    if os.geteuid() != 0 or user.uid == 0:
        yield
        return
    gid, groups = os.getegid(), os.getgroups()
    try:
        os.setgroups(user.groups)
        os.setegid(user.gid)
        os.seteuid(user.uid)
        yield
    finally:
        os.seteuid(0)
        os.setegid(gid)
        os.setgroups(groups)
