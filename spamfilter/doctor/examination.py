"""The input of every check of `doctor`: the configuration, the status of the relay, the database.

Guarantee: an examination changes nothing; only canary does. No database is created or migrated, and no folder is made.
"""

import os
import socket
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from spamfilter.config.addresses import is_in, socket_of, split_address
from spamfilter.config.sections import Relay
from spamfilter.config.settings import Settings
from spamfilter.errors import Refused, SpamfilterError, StoreError
from spamfilter.relay.milter import packets
from spamfilter.service.control_socket.client import NoRelay, SocketClient
from spamfilter.stores.schema import HEAD
from spamfilter.stores.sql import SqlStore
from spamfilter.stores.sql.connection import file_of
from spamfilter.system.file_access import User, user_of
from spamfilter.system.paths import config_file, state_directory

Status = Literal["ok", "warning", "failed"]

GREETING_SECONDS = 10.0
"""Time for a relay to greet: usually a millisecond, a second while it judges a huge mail."""
BANNER = "MTP spamfilter"
"""The name of the program in the greeting of the relay."""
OPEN = "is open, and was not tried: this host is not in [relay] trusted"
"""The finding for a milter port that this host may not try."""

DOVECOT = (Path("/etc/dovecot"), Path("/usr/local/etc/dovecot"))
FRAGMENT = Path("conf.d") / "90-spamfilter.conf"
"""The usual folders of Dovecot's configuration, and our file there, which config/dovecot has."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding of a check. advice: what to do about it, '' if nothing."""

    status: Status
    found: str
    advice: str = ""


def ok(found: str) -> Finding:
    return Finding("ok", found)


def warning(found: str, advice: str) -> Finding:
    return Finding("warning", found, advice)


def failed(found: str, advice: str) -> Finding:
    return Finding("failed", found, advice)


CLOSED = "only root and the user of the relay may look"
"""Why a check was not tried."""


class NotTried(Exception):
    """A check has nothing to look at because of another finding; the text says which."""


@dataclass
class Examination:
    """One look at an installation; what takes time or a connection to find out is asked once, when first needed.

    file: the configuration file as it was named. deep: whether to check every page and every count of the database.
    dovecot: the folder of Dovecot's configuration, None for the usual ones. findings: of the checks so far, by name.
    revision: the schema of the database, None if it has no tables.
    """

    settings: Settings
    file: Path | None
    deep: bool = False
    dovecot: Path | None = None
    now: datetime = field(default_factory=lambda: datetime.now(UTC))
    findings: dict[str, list[Finding]] = field(default_factory=dict)
    revision: str | None = None

    @property
    def config(self) -> str:
        """The configuration file, for people to read."""
        found = config_file(self.file)
        return str(found.absolute()) if found else ""

    @cached_property
    def status(self) -> dict[str, Any] | Exception:
        """The answer to `status` on the feedback socket, or why there is none."""
        try:
            return self.ask_status()
        except (NoRelay, SpamfilterError) as error:
            return error

    def ask_status(self) -> dict[str, Any]:
        """The status of the relay at this moment. Raises NoRelay or SpamfilterError."""
        with closing(SocketClient(self.settings.socket_path())) as client:
            return client.ask({"command": "status"})

    @property
    def relay(self) -> dict[str, Any]:
        """The status of the running relay. Raises NotTried if it does not answer."""
        if isinstance(self.status, Refused):
            raise NotTried(CLOSED)
        if isinstance(self.status, Exception):
            raise NotTried("the relay does not answer")
        return self.status

    @cached_property
    def greetings(self) -> dict[str, str]:
        """Address -> the greeting heard there, or why there is none."""
        listed = self._listed("listening", "submission", "lmtp")
        return {address: greeting(address, self.settings.relay) for address in listed}

    @cached_property
    def milters(self) -> dict[str, str]:
        """Address for milter -> what was agreed upon there."""
        return {address: milter_offer(address, self.settings.relay) for address in self._listed("milter")}

    def _listed(self, *keys: str) -> list[str]:
        """The addresses that the relay names, or else the configuration."""
        if isinstance(self.status, Exception):
            ours = self.settings.relay
            found = {"listening": ours.listen, "submission": ours.submission, "lmtp": ours.lmtp, "milter": ours.milter}
        else:
            found = {key: self.status.get(key, []) for key in keys}
        listed = [place for key in keys for place in found[key]]
        return [address for address in listed if socket_of(address) or split_address(address)[1]]

    @property
    def greeted(self) -> bool:
        """Whether a spamfilter relay answers on any address."""
        return any(BANNER in said for said in self.greetings.values())

    @cached_property
    def database(self) -> SqlStore | SpamfilterError:
        """The database, open whatever its schema is, or why it cannot be opened."""
        try:
            path = file_of(self.settings.store_url())
            if path is not None:
                path.stat()  # or opening it would make it
            store = SqlStore(self.settings.store_url())
            try:
                self.revision = store.revision()
            except SpamfilterError:
                store.close()
                raise
        except OSError as error:
            return StoreError(f"{path}: {error.strerror}")
        except SpamfilterError as error:
            return error
        return store

    @property
    def store(self) -> SqlStore:
        """The database, if it can be read and has the schema of this version. Raises NotTried if not."""
        store = self.database
        if isinstance(store, Exception):
            raise NotTried(CLOSED if self.by_another_user else "no database to read")
        if self.revision != HEAD:
            raise NotTried("a database of another schema")
        return store

    def close(self) -> None:
        if isinstance(store := vars(self).get("database"), SqlStore):
            store.close()

    @property
    def user(self) -> User:
        """The user of the relay; if it does not say, the owner of the folder of the database, or of the state where a
        server has the database; else the user of this process.

        If a folder above it is closed to this process, as a home is, the owner is that of the closed folder.
        """
        if not isinstance(self.status, Exception) and "uid" in self.status:
            return user_of(self.status["uid"])
        with suppress(OSError, SpamfilterError):
            path = file_of(self.settings.store_url()) or state_directory() / "database"
            for folder in path.parents:
                with suppress(PermissionError):
                    return user_of(folder.stat().st_uid)
        return user_of(os.geteuid())

    @property
    def by_another_user(self) -> bool:
        """Whether neither root nor the user of the relay looks."""
        return os.geteuid() not in (0, self.user.uid)

    @property
    def fragment(self) -> Path | None:
        """The file that connects Dovecot, in the folder of its configuration or the usual ones; None without one.

        Raises NotTried if this user may not look there.
        """
        places = (self.dovecot,) if self.dovecot else DOVECOT
        try:
            return next((place / FRAGMENT for place in places if (place / FRAGMENT).exists()), None)
        except PermissionError as error:
            raise NotTried(f"{error.filename}: {error.strerror}") from error

    def require(self, *names: str) -> None:
        """Raises NotTried if one of these checks has failed or could not be tried."""
        for name in names:
            found = self.findings.get(name, [])
            if not found or any(finding.status == "failed" for finding in found):
                raise NotTried(f"see {name}")


def reachable(address: str) -> tuple[str, int]:
    """Where to connect to for an address that a relay listens on: the loopback for 0.0.0.0 and ::."""
    host, port = split_address(address)
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), port  # noqa: S104 - nothing is bound here


def _connected(address: str) -> socket.socket:
    path = socket_of(address)
    if path is None:
        return socket.create_connection(reachable(address), timeout=GREETING_SECONDS)
    client = socket.socket(socket.AF_UNIX)
    try:
        client.settimeout(GREETING_SECONDS)
        client.connect(str(path))
    except OSError:
        client.close()
        raise
    return client


def as_a_client(address: str, relay: Relay) -> socket.socket:
    """A connection to a socket of the relay for mail, with the PROXY header that it wants of those that it trusts."""
    client = _connected(address)
    if relay.proxy_protocol and socket_of(address) is None and is_in(client.getsockname()[0], relay.networks()):
        client.sendall(b"PROXY UNKNOWN\r\n")
    return client


def greeting(address: str, relay: Relay) -> str:
    """The greeting of the SMTP server at host:port or unix:/path, or why there is none."""
    try:
        with as_a_client(address, relay) as client, client.makefile("rb") as lines:
            line = lines.readline(512)
            client.sendall(b"QUIT\r\n")
            lines.read(512)  # otherwise the server would see a reset
    except OSError as error:
        return error.strerror or str(error)
    return line.decode("ascii", "replace").strip() or "closed the connection"


def milter_offer(address: str, relay: Relay) -> str:
    """What a milter agrees upon with a mail server that can do everything, or why not. address: as in `greeting`."""
    answers = packets.Decoder()
    everything = packets.Offer(packets.VERSIONS[-1], ~packets.Actions(0), ~packets.Steps(0))
    try:
        with _connected(address) as client:
            if socket_of(address) is None and not is_in(client.getsockname()[0], relay.networks()):
                return OPEN
            client.sendall(everything.packet())
            while (answer := answers.packet()) is None and (block := client.recv(512)):
                answers.feed(block)
            client.sendall(packets.packet(packets.QUIT))
        if answer is None or answer[0] != packets.NEGOTIATE:
            return "does not speak milter"
        return f"speaks milter, version {packets.Offer.of(answer[1]).version}"
    except packets.ProtocolError as error:
        return str(error)
    except OSError as error:
        return error.strerror or str(error)
