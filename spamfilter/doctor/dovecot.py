"""Check of the scripts that Dovecot runs when users move mail: they exist, are readable and safe, and call this relay.

Their paths are read from our file in Dovecot's configuration. Dovecot itself is asked whether it can read that.
"""

import json
import os
import pwd
import re
import shutil
import subprocess
from collections.abc import Collection, Iterator
from pathlib import Path

from spamfilter.doctor.examination import DOVECOT, FRAGMENT, Examination, Finding, NotTried, failed, ok, warning
from spamfilter.system.file_access import ANYBODY, User, may, user_named

INSTALL = "install it again: docs/dovecot.md"
OTHER_VERSION = "if it names 90-spamfilter.conf, take the one for this version of Dovecot: docs/dovecot.md"
DOVECOT_SECONDS = 30
"""Time for doveconf."""

_SCRIPT = re.compile(r"^\s*\w+\s*=\s*(?:file:)?(/[^;\s]+\.sieve)", re.MULTILINE)
"""As Dovecot 2.3 writes a script in its settings, and without "file:" as 2.4 does."""
_PROGRAMS = re.compile(r"^\s*sieve_pipe_bin_dir\s*=\s*(\S+)", re.MULTILINE)
_PIPE = re.compile(r'^\s*pipe\b[^"]*"([^"]+)"', re.MULTILINE)
_SOCKET = re.compile(r"^\s*(?:export\s+)?SPAMFILTER_FEEDBACK__SOCKET=(\S+)", re.MULTILINE)
_MAIL_USER = re.compile(
    r"^[ \t]*(?:mail_)?uid[ \t]*=[ \t]*([\w.-]+)[ \t]*$"
    r"|^[ \t]*(?:args|default_fields|override_fields)[ \t]*=.*?\buid=([\w.-]+)",
    re.MULTILINE,
)
"""The user that owns all mail: a setting of the whole configuration, or a field of a userdb with one value for all."""
_CALLED = re.compile(r"\bexec\s+(/\S+)")


def dovecot(examined: Examination) -> Iterator[Finding]:
    """Whether the files that the fragment names exist, and users of mail may use but not change them."""
    settings = examined.fragment
    if settings is None:
        if examined.dovecot:
            yield failed(f"{examined.dovecot / FRAGMENT}: no such file", INSTALL)
        else:
            yield ok(f"not connected: no {FRAGMENT.name} in {' or '.join(map(str, DOVECOT))}")
        return
    users = [user for name in examined.settings.feedback.proxies if (user := user_named(name))] or [ANYBODY]
    found: list[Finding] = []
    try:
        found.extend(_found(examined, settings, users))
    except PermissionError as error:  # the users of mail may have more rights there than this one
        if not found:
            raise NotTried(f"{error.filename}: {error.strerror}") from error
    yield from found
    if not found:
        yield ok(f"{settings} and what it names are in place")


def _found(examined: Examination, settings: Path, users: list[User]) -> Iterator[Finding]:
    text = settings.read_text(encoding="utf-8", errors="replace")
    config = settings.parent.parent / "dovecot.conf"
    yield from _read_by_dovecot(config, examined.settings.feedback.proxies)
    scripts = [Path(name) for name in _SCRIPT.findall(text)]
    folder = _PROGRAMS.search(text)
    programs: set[str] = set()
    for script in scripts:
        yield from _usable(script, users, os.R_OK, "read")
        yield from _compiled(script, config)
        if script.exists():
            programs |= set(_PIPE.findall(script.read_text(encoding="utf-8", errors="replace")))
    if folder is None:
        yield failed(f"{settings}: sets no sieve_pipe_bin_dir", INSTALL)
        return
    for name in sorted(programs):
        program = Path(folder[1]) / name
        yield from _usable(program, users, os.R_OK | os.X_OK, "run")
        if program.exists():
            yield from _leading_here(examined, program, users)


def _read_by_dovecot(config: Path, proxies: Collection[str]) -> Iterator[Finding]:
    """Whether Dovecot can read its configuration with our settings in it, and whether the system user that moves the
    mail of all users may mark for them. Without an installed Dovecot, or a configuration there, nothing is found."""
    program = shutil.which("doveconf")
    if program is None or not config.exists():
        return
    command = [program, "-c", str(config), "-n"]
    done = subprocess.run(command, capture_output=True, timeout=DOVECOT_SECONDS, check=False)  # noqa: S603 - no input
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        yield failed(said[-1] if said else f"{config}: doveconf ends with {done.returncode}", OTHER_VERSION)
    found = _MAIL_USER.findall(done.stdout.decode("utf-8", "replace"))
    owners = dict.fromkeys(_name_of(setting or field) for setting, field in found)
    if missing := [name for name in owners if name not in proxies]:
        yield warning(
            f"{config}: mail of all users belongs to {' or '.join(missing)}, who may not mark for others, so moves of"
            " mail teach nothing",
            f"[feedback] proxies = {json.dumps([*proxies, *missing])}: docs/dovecot.md, step 3",
        )


def _name_of(user: str) -> str:
    """The name of a user, who may be given by number."""
    try:
        return pwd.getpwuid(int(user)).pw_name
    except (KeyError, ValueError, OverflowError):
        return user


def _usable(path: Path, users: list[User], want: int, verb: str) -> Iterator[Finding]:
    """Problems of a file that these users must be able to use, and only its owner may change."""
    if not path.exists():
        yield failed(f"{path}: no such file", INSTALL)
        return
    if denied := [user.name for user in users if not may(user, path, want)]:
        mode = "a+rx" if want & os.X_OK else "a+r"
        yield failed(f"{path}: {', '.join(denied)} may not {verb} it", f"chmod {mode} {path}, a+x its folders")
    for place in (path, path.parent):
        found = place.stat()
        if found.st_mode & 0o002 or (found.st_mode & 0o020 and found.st_gid):
            yield failed(f"{place}: users other than its owner may change it", f"chmod go-w {place}")


def _compiled(script: Path, config: Path) -> Iterator[Finding]:
    binary = script.with_suffix(".svbin")
    if not script.exists():
        return
    if not binary.exists():
        yield warning(f"{binary}: no such file, so each use compiles {script.name}", f"sievec -c {config} {script}")
    elif binary.stat().st_mtime < script.stat().st_mtime:
        yield warning(f"{binary}: is older than its source", f"sievec -c {config} {script}")


def _leading_here(examined: Examination, program: Path, users: list[User]) -> Iterator[Finding]:
    """Whether the program runs an existing spamfilter, with the socket of this relay."""
    text = program.read_text(encoding="utf-8", errors="replace")
    ours = examined.settings.socket_path()
    named = _SOCKET.search(text)
    if named and Path(named[1]) != ours:
        yield failed(f"{program}: marks go to {named[1]}, the relay listens on {ours}", f"name {ours} in {program}")
    for called in sorted(set(_CALLED.findall(text))):
        if denied := [user.name for user in users if not may(user, Path(called), os.X_OK)]:
            yield failed(
                f"{program}: {', '.join(denied)} may not run {called}, or it does not exist",
                f"ln -s $(command -v spamfilter) {called}",
            )
