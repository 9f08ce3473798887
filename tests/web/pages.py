"""`spamfilter web` as a process with a running relay, and a browser without JavaScript that shows every byte."""

import contextlib
import http.client
import re
import signal
import sqlite3
import ssl
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import cache, cached_property
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from spamfilter.bayes.labels import Label
from spamfilter.config.settings import Settings
from spamfilter.learning.filter import Filter
from spamfilter.mail.message import parse
from spamfilter.stores import open_store
from spamfilter.system.ids import new_id
from spamfilter.web.accounts import Role, line_of
from tests.faults.client import RECIPIENTS, Client
from tests.faults.daemon import Daemon, daemon
from tests.faults.hop import Hop, next_hop
from tests.integration.servers import STOP_SECONDS, await_start, free_port, wait_until
from tests.support.program import COMMAND, Program

PASSWORD = "correct horse battery"
ACCOUNTS: Mapping[str, Role] = {"laura": "look", "lena": "label", "anna": "administer"}
SECONDS = 60.0
"""For an answer: provenance and doctor take a second on a machine that does nothing else."""


@dataclass(frozen=True)
class Answer:
    """A response: fields by their lower-case names, several of one name joined by line ends."""

    status: int
    fields: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def words(self) -> str:
        """What a reader sees."""
        return " ".join(unescape(re.sub(r"<[^>]*>", " ", self.text)).split())

    @property
    def stamp(self) -> str:
        found = re.search(r'name="stamp" value="([0-9a-f]+)"', self.text)
        assert found, self.text
        return found.group(1)


@dataclass
class Browser:
    """Keeps cookies and follows nothing. fields: sent with each request; address: from which it connects."""

    port: int
    fields: Mapping[str, str] = field(default_factory=dict)
    cookies: dict[str, str] = field(default_factory=dict)
    tls: ssl.SSLContext | None = None
    address: str = "127.0.0.1"

    def ask(self, method: str, path: str, body: bytes = b"", **fields: Any) -> Answer:
        """One request; fields: by names with _ for -."""
        sent = {"Cookie": "; ".join(f"{name}={value}" for name, value in self.cookies.items()), **self.fields}
        sent |= {name.replace("_", "-"): value for name, value in fields.items()}
        place: dict[str, Any] = {"timeout": SECONDS, "source_address": (self.address, 0)}
        connection = (
            http.client.HTTPSConnection("127.0.0.1", self.port, context=self.tls, **place)
            if self.tls
            else http.client.HTTPConnection("127.0.0.1", self.port, **place)
        )
        with closing(connection):
            connection.request(method, path, body or None, {name: value for name, value in sent.items() if value})
            response = connection.getresponse()
            answer = Answer(response.status, _joined(response), response.read())
        for line in answer.fields.get("set-cookie", "").split("\n"):
            name, _, value = line.partition(";")[0].partition("=")
            if value.strip('"'):
                self.cookies[name] = value
            else:
                self.cookies.pop(name, None)
        return answer

    def get(self, path: str, **fields: Any) -> Answer:
        return self.ask("GET", path, **fields)

    def post(self, path: str, form: Mapping[str, str], **fields: Any) -> Answer:
        fields = {"content_type": "application/x-www-form-urlencoded", **fields}
        return self.ask("POST", path, urlencode(form).encode(), **fields)

    def submit(self, page: str, path: str, **form: str) -> Answer:
        """A form of a page, with its stamp."""
        return self.post(path, {"stamp": self.get(page).stamp, **form})

    def submitted(self, page: str, path: str, **form: str) -> Answer:
        """The page that a form leads to."""
        answer = self.submit(page, path, **form)
        assert answer.status == 303, answer.words
        return self.get(answer.fields["location"])

    def sign_in(self, name: str, password: str = PASSWORD, next: str = "/") -> Answer:
        return self.submit("/login", "/login", name=name, password=password, next=next)


def _joined(response: http.client.HTTPResponse) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in response.getheaders():
        found[name.lower()] = f"{found[name.lower()]}\n{value}" if name.lower() in found else value
    return found


class WebPage:
    """`spamfilter web` in the folder and environment of a relay."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._folder = folder
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None

    def log(self) -> str:
        return (self._folder / "web.log").read_text(errors="replace")

    def start(self) -> None:
        self.launch()
        assert self._process is not None
        await_start(self._process, lambda: "ready: http://" in self.log(), self.log)

    def launch(self) -> int:
        """Starts the process without waiting for it; returns its number."""
        with (self._folder / "web.log").open("wb") as log:
            self._process = Program([*COMMAND, "web"], env=self._environment, stdout=log, stderr=log)
        return self._process.pid

    def stop(self) -> None:
        """SIGTERM, which must lead to a clean end."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(STOP_SECONDS)
        finally:
            self._process.kill()
            self._process.wait()
        assert (code, "Traceback" in self.log()) == (0, False), self.log()

    def hang_up(self) -> None:
        """SIGHUP, at which it reads its configuration again."""
        assert self._process is not None
        self._process.send_signal(signal.SIGHUP)


class Site(WebPage):
    """The web page of a relay, running."""

    def __init__(self, relay: Daemon, hop: Hop, port: int, accounts: Path) -> None:
        super().__init__(relay.folder, relay.environment)
        self.relay = relay
        self.hop = hop
        self.port = port
        self.accounts = accounts

    def browser(self, name: str = "", **fields: str) -> Browser:
        """A browser, signed in if an account is named."""
        made = Browser(self.port, {key.replace("_", "-"): value for key, value in fields.items()})
        if name:
            answer = made.sign_in(name)
            assert answer.status == 303, answer.words
        return made

    @cached_property
    def _laura(self) -> Browser:
        return self.browser("laura")

    def send(self, mail: bytes, *recipients: str) -> str:
        """Send a mail through the relay; its id, once it is in the journal."""
        before = len(self.relay.ids())
        with Client(self.relay.port) as client:
            answer = client.deliver(mail, recipients or RECIPIENTS)
            assert answer.code == 250, answer.raw
        wait_until(lambda: len(self.relay.ids()) > before, "the log's line")
        id = self.relay.ids()[-1]
        wait_until(lambda: self._laura.get(f"/messages/{id}").status == 200, "the journal's entry")
        return id

    def obeys(self, listed: str, *recipients: str, head: bytes = b"") -> None:
        """Wait until the relay notes that a mail has met a rule, as `blocked=SENDER`; with "", that it has met none."""

        def noted() -> bool:
            id = self.send(head + mail_of(new_id(), "Probe", "the agenda of the meeting on monday"), *recipients)
            with closing(sqlite3.connect(self.relay.database)) as database:
                (found,) = database.execute("SELECT listed FROM journal WHERE id = ?", [id]).fetchone()
            return str(found).partition(" ")[0] == listed

        wait_until(noted, f"a mail that meets {listed or 'no rule'}")


def mail_of(name: str, subject: str, body: str) -> bytes:
    return (
        f"Message-ID: <{name}@example.org>\r\nFrom: a@example.org\r\nTo: b@example.test\r\n"
        f"Subject: {subject}\r\nContent-Type: text/plain; charset=utf-8\r\n\r\n{body}\r\n"
    ).encode()


@cache
def _lines() -> tuple[str, ...]:
    """Of the accounts; a hash takes a fifth of a second."""
    return tuple(line_of(name, role, PASSWORD) for name, role in ACCOUNTS.items())


def taught(database: Path, mails: Iterable[tuple[Label, bytes]]) -> None:
    """A database that has learnt these mails, for a relay that is started with it."""
    database.parent.mkdir(mode=0o700, parents=True)
    with closing(open_store(f"sqlite:///{database}")) as store:
        filter = Filter(store, Settings().voices())
        for label, mail in mails:
            filter.learn(filter.read(parse(mail)), label, "train")


def web_settings(folder: Path, **settings: Any) -> dict[str, Any]:
    """The section [web] of a configuration, with a port that was free and accounts of each role in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    accounts = folder / "accounts"
    accounts.write_text("\n".join([*_lines(), "paula:label:-", ""]))
    accounts.chmod(0o600)
    return {"listen": f"127.0.0.1:{free_port()}", "accounts": str(accounts), **settings}


@contextlib.contextmanager
def served(relay: Daemon, hop: Hop, section: Mapping[str, Any]) -> Iterator[Site]:
    """The web page of a relay that was configured with this section."""
    made = Site(relay, hop, int(section["listen"].rpartition(":")[2]), Path(section["accounts"]))
    made.start()
    try:
        yield made
    finally:
        made.stop()


@contextlib.contextmanager
def site(folder: Path, web: Mapping[str, Any] | None = None, **settings: Any) -> Iterator[Site]:
    """A relay in front of a next hop, and its web page."""
    section = web_settings(folder, **(web or {}))
    with next_hop() as hop, daemon(folder, hop, web=section, **settings) as relay, served(relay, hop, section) as made:
        yield made
