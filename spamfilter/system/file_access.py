"""Who may do what with a file, by the kernel's word where that can be had; and what we make, for nobody else.

Guarantee: modes of what is made here do not depend on the umask. What root makes in a folder of another user belongs to
that user, as whom the relay runs.
"""

import os
import pwd
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class User:
    """A user of the system: a name for people, and what the kernel goes by."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...] = ()


ANYBODY = User("every user", 65534, 65534)
"""Somebody without any right of their own."""


def user_of(uid: int) -> User:
    """The user with this number, whether it has a name or not."""
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
    """Make a folder where it is missing, with those above it, each with mode 0700. Raises OSError."""
    if path.is_dir():
        return
    make_folder(path.parent)
    path.mkdir(mode=0o700, exist_ok=True)
    _hand_over(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW), path.parent)


def make_file(path: Path) -> None:
    """Make an empty file with mode 0600. Raises FileExistsError, also for a link to nowhere, and other OSErrors."""
    _hand_over(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600), path.parent)


def is_trap(path: Path) -> bool:
    """Whether root would follow a link that another user has laid, and may change at any time."""
    return os.geteuid() == 0 and path.is_symlink() and path.parent.stat().st_uid != 0


def _hand_over(made: int, folder: Path) -> None:
    """Give what root has made to the owner of its folder, and close it.

    By its descriptor: that owner may have put something else in its place by now.
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
    """Whether a user may do this (os.R_OK, os.W_OK, os.X_OK) with a path; False where it is not there.

    The kernel says it to root, who asks in the user's place, and to the user. Others see it by the modes of the files.
    """
    if os.geteuid() not in (0, user.uid):
        return by_mode(user, path, want)
    with _in_place_of(user):
        return os.access(path, want, effective_ids=True)


def by_mode(user: User, path: Path, want: int) -> bool:
    """As `may`, by owner, group and mode alone: neither access lists nor how a file system is mounted count."""
    path = path.absolute()
    try:
        return all(_granted(user, folder.stat(), os.X_OK) for folder in path.parents) and _granted(
            user, path.stat(), want
        )
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
