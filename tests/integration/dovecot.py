"""Dovecot for tests: Debian's own configuration, the shipped samples in it, and users whose mail it keeps.

Guarantee: it runs on loopback, on ports that were free, in a folder of its own, and is gone when its context ends. What
is installed or configured on the host is not looked at. It needs root, as it takes on the users whose mail it touches.
"""

import contextlib
import imaplib
import os
import pwd
import re
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

import spamfilter
from tests.integration.servers import Relay, await_start, end, free_port, greets, wait_until
from tests.support.real import missing, require, require_root

PACKAGES = "dovecot-imapd dovecot-lmtpd dovecot-sieve"
DEFAULTS = Path("/usr/share/dovecot")
"""Debian's configuration as it is before an administrator edits it."""
PASSWORD = "secret"
VIRTUAL = "mail"
"""The user of the system that owns the mail of those who are none."""
SYSTEM = "games"
"""A user of the system that reads mail."""
USERS = {"alice@example.test": VIRTUAL, "bob@example.test": VIRTUAL, SYSTEM: SYSTEM}
"""Who has mail here, and whose files it is in."""
ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "dovecot.md"

LOCAL = """
base_dir = {folder}/run
state_dir = {folder}/state
log_path = {folder}/log
listen = 127.0.0.1
ssl = no
first_valid_uid = 1
# As a user would see it at once: the folder is there.
namespace inbox {{
  mailbox Junk {{
    auto = subscribe
  }}
  mailbox Trash {{
    auto = subscribe
  }}
  mailbox Binned {{
    auto = subscribe
    special_use = \\Trash
  }}
}}
service imap-login {{
  chroot =
  inet_listener imap {{
    port = {imap}
  }}
  inet_listener imaps {{
    port = 0
  }}
}}
service anvil {{
  chroot =
}}
service lmtp {{
  inet_listener lmtp {{
    port = {lmtp}
  }}
}}
"""
OF_VERSION = {
    "2.3": """
disable_plaintext_auth = no
mail_location = maildir:~/Maildir
passdb {{
  driver = passwd-file
  args = {folder}/users
}}
userdb {{
  driver = passwd-file
  args = {folder}/users
}}
""",
    "2.4": """
auth_allow_cleartext = yes
mail_driver = maildir
mail_path = ~/Maildir
mail_inbox_path =
protocol lmtp {{
  auth_username_format = %{{user | lower}}
}}
passdb passwd-file {{
  passwd_file_path = {folder}/users
}}
userdb passwd-file {{
  passwd_file_path = {folder}/users
}}
""",
}
"""What the versions of Dovecot write in another way."""


@dataclass(frozen=True)
class Dovecot:
    """A Dovecot that runs, or may."""

    folder: Path
    imap: int
    lmtp: int

    @property
    def config(self) -> Path:
        return self.folder / "etc" / "dovecot.conf"

    def log(self) -> str:
        file = self.folder / "log"
        return file.read_text(errors="replace") if file.exists() else ""

    def home(self, user: str) -> Path:
        return self.folder / "homes" / user

    @contextlib.contextmanager
    def login(self, user: str) -> "Iterator[Mailboxes]":
        """A session of IMAP, with INBOX selected."""
        with imaplib.IMAP4("127.0.0.1", self.imap, timeout=120) as client:
            client.login(user, PASSWORD)
            mailboxes = Mailboxes(client)
            mailboxes.select("INBOX")
            yield mailboxes


class Mailboxes:
    """What a mail program does; each mail by its number (UID) in the mailbox that is selected."""

    def __init__(self, client: imaplib.IMAP4) -> None:
        self._client = client

    def select(self, mailbox: str) -> None:
        self._must(self._client.select(_quoted(mailbox)))

    def create(self, mailbox: str) -> None:
        self._must(self._client.create(_quoted(mailbox)))

    def numbers(self, *criteria: str) -> list[str]:
        """The mails of the mailbox that meet these, oldest first."""
        self._client.noop()
        found = self._must(self._client.uid("SEARCH", *(criteria or ("ALL",))))[0]
        return found.decode().split() if found else []

    def number(self, subject: str) -> str:
        """The last mail of that subject, '' if there is none."""
        return next(reversed(self.numbers("SUBJECT", f'"{subject}"')), "")

    def fetch(self, number: str) -> bytes:
        (_, mail), *_ = self._must(self._client.uid("FETCH", number, "(BODY.PEEK[])"))
        return bytes(mail)

    def move(self, numbers: str, target: str) -> None:
        self._must(self._client.uid("MOVE", numbers, _quoted(target)))

    def copy(self, numbers: str, target: str) -> None:
        self._must(self._client.uid("COPY", numbers, _quoted(target)))

    def flag(self, numbers: str, *flags: str) -> None:
        self._must(self._client.uid("STORE", numbers, "+FLAGS", f"({' '.join(flags)})"))

    def append(self, mailbox: str, mail: bytes, flags: str = "") -> None:
        self._must(self._client.append(_quoted(mailbox), flags, "", mail))

    def _must(self, answer: tuple[str, list[Any]]) -> list[Any]:
        status, data = answer
        if status != "OK":
            raise AssertionError(f"{status} {data}")
        return data


def _quoted(mailbox: str) -> str:
    return f'"{mailbox}"'


@contextlib.contextmanager
def dovecot(folder: Path) -> Iterator[Dovecot]:
    """Dovecot as Debian configures it, with users; the samples are not in it yet."""
    program = require("dovecot", PACKAGES)
    require("sievec", PACKAGES)
    require_root("Dovecot starts as root and reads mail as its owner")
    for protocol in ("imapd", "lmtpd"):
        if not (DEFAULTS / "protocols.d" / f"{protocol}.protocol").exists():
            missing(f"{DEFAULTS} has no {protocol}, whose Debian package the tests need: apt-get install {PACKAGES}")
    server = Dovecot(folder, free_port(), free_port())
    shutil.copytree(DEFAULTS / "conf.d", folder / "etc" / "conf.d")
    shutil.copy(DEFAULTS / "dovecot.conf", server.config)
    parts = folder / "etc" / "conf.d"
    (parts / "10-ssl.conf").unlink()  # certificates of the host
    ways = (parts / "10-auth.conf").read_text()
    (parts / "10-auth.conf").write_text(ways.replace("!include auth-system.conf.ext", ""))  # users of the host
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    text = (LOCAL + OF_VERSION[said[:3]]).format(folder=folder, imap=server.imap, lmtp=server.lmtp)
    (folder / "etc" / "local.conf").write_text(text)
    (folder / "users").write_text("".join(_line(server, user, owner) for user, owner in USERS.items()))
    with (folder / "output").open("wb") as output:
        command = [program, "-F", "-c", str(server.config)]
        process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
    try:
        await_start(
            process,
            lambda: _greets(server.imap) and greets(server.lmtp),
            lambda: (folder / "output").read_text() + server.log(),
        )
        yield server
    finally:
        process.terminate()
        end(process)


def _line(server: Dovecot, user: str, owner: str) -> str:
    """A user's line of the password file; makes the home."""
    found = pwd.getpwnam(owner)
    home = server.home(user)
    home.mkdir(parents=True)
    shutil.chown(home, owner, found.pw_gid)
    return f"{user}:{{PLAIN}}{PASSWORD}:{found.pw_uid}:{found.pw_gid}::{home}::\n"


def _greets(port: int) -> bool:
    """Whether an IMAP server says that it is there."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5) as client:
        return client.recv(512).startswith(b"* OK")
    return False


def connect(server: Dovecot, relay: Relay, feedback: Path) -> str:
    """Run the commands of docs/dovecot.md as they stand there, but for paths; returns what they said.

    feedback: the socket of the relay.
    """
    commands = re.findall(r"^ *```sh\n(.*?)^ *```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    places = {
        "/etc/dovecot": str(server.folder / "etc"),
        "/etc/spamfilter/spamfilter.toml": str(relay.config),
        "/run/spamfilter/feedback.sock": str(feedback),
        "/usr/local/bin/spamfilter": str(_program(server.folder / "program")),
        '"vmail"': f'"{VIRTUAL}"',
    }
    expressions = " ".join(f"-e {shlex.quote(f's|{there}|{here}|g')}" for there, here in places.items())
    ours = f"PYTHONPATH={ROOT} {shlex.quote(sys.executable)} -m spamfilter"
    tools = server.folder / "tools"
    _script(tools / "spamfilter", f'{ours} "$@" | sed {expressions}')
    _script(tools / "systemctl", f'[ "$*" = "reload spamfilter" ] && kill -HUP {relay.process.pid}')
    for tool in ("doveconf", "doveadm"):
        _script(tools / tool, f'{require(tool, PACKAGES)} -c {server.config} "$@"')
    exchanged = subprocess.run(
        ["sed", *shlex.split(expressions)], input="".join(commands), capture_output=True, text=True, check=True
    ).stdout
    environment = {**relay.environment, "PATH": f"{tools}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-euxo", "pipefail", "-c", exchanged],
        env=environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    if done.returncode:
        raise AssertionError(f"{PAGE.name}: {done.stdout}{done.stderr}")
    wait_until(lambda: " reloaded" in relay.log(), "the relay's reload")
    return done.stdout


def _script(path: Path, commands: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/bash\nset -eo pipefail\n{commands}\n")
    path.chmod(0o755)


def _program(folder: Path) -> Path:
    """The command `spamfilter` for every user: the checkout and its environment may be below a home that is closed.

    It has what a mark over the socket needs, and no more.
    """
    ignored = shutil.ignore_patterns("__pycache__")
    for package in (spamfilter, click):
        assert package.__file__
        source = Path(package.__file__).parent
        shutil.copytree(source, folder / source.name, ignore=ignored)
    program = folder / "spamfilter.py"
    program.write_text(
        f"#!{_interpreter()} -I\nimport sys\nsys.path.insert(0, {str(folder)!r})\n"
        "from spamfilter.cli import main\nmain(prog_name='spamfilter')\n"
    )
    program.chmod(0o755)
    return program


def _interpreter() -> str:
    """A Python that the owner of the mail may run, which this one is not if it lives in somebody's home."""
    trial = "import sys; sys.exit(sys.version_info < (3, 11))"
    candidates = [str(Path(sys.executable).resolve()), "/usr/bin/python3", "/usr/local/bin/python3"]
    while candidates:
        with contextlib.suppress(OSError):
            if subprocess.run([candidates[0], "-c", trial], user=VIRTUAL, check=False).returncode == 0:
                return candidates[0]
        del candidates[0]
    return missing("no Python 3.11 that other users may run: apt-get install python3")
