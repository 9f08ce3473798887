"""The feedback socket and its client: invalid requests change nothing, and each user has limits."""

import asyncio
import json
import logging
import os
import socket
import sqlite3
import stat
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from spamfilter.bayes.labels import Label
from spamfilter.config.sections import Feedback, Limits
from spamfilter.errors import ConfigError, InputError, Refused, SpamfilterError, StoreError, TryAgain
from spamfilter.learning.filter import Filter
from spamfilter.learning.mark_queue import MarkQueue
from spamfilter.mail.message import SCANNED, parse
from spamfilter.relay.limits.limit_log import LimitLog
from spamfilter.service.control_socket import client as socket_client
from spamfilter.service.control_socket import server
from spamfilter.service.control_socket.client import LOOKED_AT, Answer, NoRelay, SocketClient
from spamfilter.service.control_socket.server import MAX_LINE, FeedbackSocket
from spamfilter.stores import Learning, open_store
from spamfilter.stores.sql import connection as sql_connection
from spamfilter.system.paths import LONGEST_SOCKET
from tests.integration.servers import workshop
from tests.support.made import VOICE, follow, mail
from tests.support.users import NOBODY, UNNAMED, connected

CONNECTIONS = Limits().feedback_connections
OF_ONE_USER = Limits().feedback_connections_per_user
MARK: dict[str, object] = {"command": "mark", "label": "spam"}
CAROL, DAVE = 40_001, 40_002


class Peer:
    """A client that sees every byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def answer(self) -> Answer:
        """The next answer; empty at the end of the connection."""
        try:
            line = await asyncio.wait_for(self.reader.readline(), 30)
        except ConnectionError:
            line = b""
        return dict(json.loads(line)) if line else {}

    async def send(self, raw: bytes) -> None:
        self.writer.write(raw)
        await self.writer.drain()

    async def ask(self, request: object, sent: bytes | None = None) -> Answer:
        if sent is not None:
            assert isinstance(request, dict)
            request = {**request, "size": len(sent)}
        await self.send(json.dumps(request).encode() + b"\n" + (sent or b""))
        return await self.answer()


class Place:
    """A feedback socket in this event loop, with its own database."""

    def __init__(self, folder: Path, commands: dict[str, Callable[[Answer], Awaitable[Answer]]], **settings: Any):
        self.store = open_store(f"sqlite:///{folder}/x.db", migrate=True)
        self.filter = Filter(self.store, VOICE)
        feedback = Feedback(**settings)
        self.desk = MarkQueue(self.filter, feedback, lambda: None)
        self.socket = FeedbackSocket(folder / "feedback.sock", self.desk, feedback, commands, Limits(), LimitLog())
        self._peers: list[Peer] = []

    def another(self, path: Path) -> FeedbackSocket:
        """Another socket, as of another relay."""
        return FeedbackSocket(path, self.desk, Feedback(), self.socket.commands, Limits(), LimitLog())

    async def connect(self, user: int | None = None, count: int = 1) -> list[Peer]:
        """Clients; of another user than this process's if one is named."""
        path = str(self.socket.path)
        peers = []
        for sock in await connected(user, self.socket.path, count) if user is not None else [None] * count:
            pair = await (asyncio.open_unix_connection(sock=sock) if sock else asyncio.open_unix_connection(path))
            peers.append(Peer(*pair))
        self._peers += peers
        return peers

    async def peer(self, user: int | None = None) -> Peer:
        return (await self.connect(user))[0]

    def learnt(self) -> dict[Label, int]:
        follow(self.filter)
        return dict(self.filter.learnt)

    def authors(self) -> list[str]:
        return [entry.by for entry in self.store.entries_after(0)]

    async def close(self) -> None:
        for peer in self._peers:
            peer.writer.close()
        await asyncio.gather(self.socket.close(), asyncio.to_thread(self.desk.close))
        self.store.close()


@asynccontextmanager
async def place(folder: Path, **settings: Any) -> AsyncIterator[Place]:
    async def status(request: Answer) -> Answer:
        return {"fine": True}

    async def broken(request: Answer) -> Answer:
        raise ZeroDivisionError

    found = Place(folder, {"status": status, "broken": broken}, **settings)
    await found.socket.start()
    try:
        yield found
    finally:
        await found.close()


@pytest.fixture
async def there(tmp_path: Path) -> AsyncIterator[Place]:
    async with place(tmp_path) as found:
        yield found


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user may enter."""
    with workshop() as folder:
        yield folder


# Requests


async def test_marks_are_answered_one_after_the_other_on_one_connection(there: Place) -> None:
    peer = await there.peer()
    first = await peer.ask({**MARK, "name": "grün.eml"}, mail())
    assert (first["file"], first["changed"], first["was"]) == ("grün.eml", True, None)
    assert first["text"].startswith("grün.eml: learnt as spam; score 0.500 -> ")
    assert not (await peer.ask({**MARK, "label": "spam"}, mail()))["changed"]
    assert (await peer.ask({**MARK, "label": "ham", "database": there.store.where}, mail()))["was"] == "spam"
    assert (await peer.ask({**MARK, "label": None}, mail()))["was"] == "ham"
    assert (await peer.ask({"command": "status"})) == {"fine": True}
    assert there.learnt() == {"ham": 0, "spam": 0}


NO_REQUESTS = {
    "garbage": b"\x00\xff\xfe garbage\n",
    "an-empty-line": b"\n",
    "a-number": b"7\n",
    "an-empty-object": b"{}\n",
    "a-list": b'["mark"]\n',
    "smtp": b"HELO there\r\n",
    "not-utf-8": b'{"command": "\xff"}\n',
    "deep": b"[" * 30_000 + b"\n",
    "deep-objects": b'{"a":' * 6_000 + b"\n",
    "a-long-number": b"1" * 30_000 + b"\n",
    "an-endless-line": b"x" * (3 * MAX_LINE),
    "a-line-too-long": b'{"command": "' + b"x" * MAX_LINE + b'"}\n',
    **{
        f"size-{name}": b'{"command": "mark", "label": "spam", "size": %s}\n' % size.encode()
        for name, size in {
            "huge": "1e400", "negative": "-1", "zero": "0", "text": '"7"', "fraction": "7.5", "true": "true",
            "too-large": str(LOOKED_AT + 1), "beyond-all": "9" * 40, "list": "[7]", "nan": "NaN",
        }.items()
    },
}  # fmt: skip


@pytest.mark.parametrize("raw", NO_REQUESTS.values(), ids=NO_REQUESTS)
async def test_what_is_no_request_is_answered_and_ends_the_connection(there: Place, raw: bytes) -> None:
    peer, other = await there.connect(count=2)
    peer.writer.write(raw)
    answer = await peer.answer()
    assert answer["exit_code"] == 2
    assert answer["error"].startswith(("a request is", "size: not a number from 1 to"))
    assert await peer.answer() == {}
    assert await other.ask({"command": "status"}) == {"fine": True}
    assert there.learnt() == {"ham": 0, "spam": 0}


async def test_no_byte_of_a_mail_is_taken_for_a_request(there: Place) -> None:
    injected = json.dumps({**MARK, "label": "ham", "size": len(mail())}).encode() + b"\n" + mail()
    for size in (LOOKED_AT + 1, 0, "x"):
        peer = await there.peer()
        answer = await peer.ask({**MARK, "size": size, "name": "x"})
        assert "size" in answer["error"]
        peer.writer.write(injected)
        assert await peer.answer() == {}
    for wrong in ({"label": "pills"}, {"command": "x"}, {"by": 7}, {"source": "automatic"}):
        peer = await there.peer()
        assert (await peer.ask({**MARK, **wrong}, injected))["exit_code"] == 2
        assert await peer.ask({"command": "status"}) == {"fine": True}
    assert there.learnt() == {"ham": 0, "spam": 0}


WRONG = [
    pytest.param({"command": None}, "unknown command None", id="command-null"),
    pytest.param({"command": ["mark"]}, "unknown command ['mark']", id="command-list"),
    pytest.param({"command": "\x1b[2J"}, "unknown command '\\\\x1b[2J'", id="command-escape"),
    pytest.param({"label": "pills"}, "label: neither 'ham' nor 'spam' nor null", id="label-unknown"),
    pytest.param({"label": ["spam"]}, "label: neither", id="label-list"),
    pytest.param({"label": {"spam": 1}}, "label: neither", id="label-object"),
    pytest.param({"label": True}, "label: neither", id="label-true"),
    pytest.param({"label": ""}, "label: neither", id="label-empty"),
    pytest.param({"source": "automatic"}, "source: not one of cli, imap, review", id="source-of-rules"),
    pytest.param({"source": "train"}, "source: not one of", id="source-of-bulk"),
    pytest.param({"source": "canary"}, "source: not one of", id="source-of-the-canary"),
    pytest.param({"source": ["cli"]}, "source: not one of", id="source-list"),
    pytest.param({"source": None}, "source: not one of", id="source-null"),
    pytest.param({"by": ""}, "by: not a name", id="by-empty"),
    pytest.param({"by": 7}, "by: not a name", id="by-number"),
    pytest.param({"by": ["ann"]}, "by: not a name", id="by-list"),
    pytest.param({"by": "x" * 201}, "by: not a name", id="by-long"),
    pytest.param({"by": "ann\nERROR all is lost"}, "by: not a name", id="by-of-two-lines"),
    pytest.param({"by": "ann\0"}, "by: not a name", id="by-nul"),
    pytest.param({"by": "\x1b]0;x\x07"}, "by: not a name", id="by-escape"),
    pytest.param({"by": "\ud800"}, "by: not a name", id="by-half-a-character"),
    pytest.param({"by": "ann\u202e"}, "by: not a name", id="by-written-backwards"),
    pytest.param({"name": 7}, "name and id must be text", id="name-number"),
    pytest.param({"name": None}, "name and id must be text", id="name-null"),
    pytest.param({"id": 7}, "name and id must be text", id="id-number"),
    pytest.param({"id": ["x"]}, "name and id must be text", id="id-list"),
    pytest.param({"id": "01KAH3V5E8M6Q2T0J9Z4R7X1CN"}, "name a mail by its id, or send", id="id-and-mail"),
    pytest.param({"database": "/dev/null"}, "the relay learns into /", id="database-of-another"),
    pytest.param({"database": "/none/x\x1b[31m\0"}, "the relay learns into /", id="database-that-is-none"),
]


@pytest.mark.parametrize(("wrong", "sentence"), WRONG)
async def test_a_wrong_field_is_named_and_the_connection_goes_on(
    there: Place, wrong: dict[str, object], sentence: str
) -> None:
    peer = await there.peer()
    answer = await peer.ask({**MARK, **wrong}, mail())
    assert answer["exit_code"] == 2
    assert answer["error"].startswith(sentence)
    assert answer["error"].isprintable()
    assert (await peer.ask({"command": "status"})) == {"fine": True}
    assert there.learnt() == {"ham": 0, "spam": 0}


@pytest.mark.parametrize(
    ("request_", "sentence"),
    [
        pytest.param({"command": "mark", "id": "x"}, "label: neither", id="without-label-nothing-is-forgotten"),
        pytest.param({**MARK}, "name a mail by its id", id="neither-id-nor-mail"),
        pytest.param({**MARK, "id": ""}, ": not an id", id="id-empty"),
        pytest.param({**MARK, "id": "x\x1b[31m"}, "x\\x1b[31m: not an id", id="id-escape"),
        pytest.param({**MARK, "id": "\ud800"}, "\\ud800: not an id", id="id-half-a-character"),
        pytest.param({**MARK, "id": "' OR 1=1 --"}, "' OR 1=1 --: not an id", id="id-sql"),
        pytest.param({**MARK, "id": "../../etc/passwd"}, "../../etc/passwd: not an id", id="id-path"),
    ],
)
async def test_a_wrong_id_is_said_so(there: Place, request_: Answer, sentence: str) -> None:
    peer = await there.peer()
    answer = await peer.ask(request_)
    assert (answer["error"][: len(sentence)], answer["exit_code"]) == (sentence, 2)


async def test_a_name_cannot_write_on_terminals_or_into_the_log(there: Place, caplog: pytest.LogCaptureFixture) -> None:
    peer = await there.peer()
    with caplog.at_level(logging.DEBUG):
        for number, name in enumerate(("\x1b]0;x\x07\r\nERROR", "a\0b", "\ud800\udcff", "x" * 20_000, "\u202egnp.exe")):
            answer = await peer.ask({**MARK, "name": name}, mail(name=str(number)))
            assert answer["changed"]
            assert answer["file"].isprintable()
            assert answer["text"].isprintable()
    assert all(record.getMessage().isprintable() for record in caplog.records)


async def test_a_fault_of_ours_is_logged_and_worth_another_try(there: Place, caplog: pytest.LogCaptureFixture) -> None:
    peer = await there.peer()
    assert await peer.ask({"command": "broken"}) == {
        "error": "a fault of the relay, see its log; try again",
        "exit_code": 75,
    }
    assert "ZeroDivisionError" in caplog.text
    assert await peer.ask({"command": "status"}) == {"fine": True}


async def test_requests_may_come_in_pieces_and_several_at_once(there: Place) -> None:
    peer = await there.peer()
    requests = b"".join(
        json.dumps({**MARK, "size": len(mail(name=str(number)))}).encode() + b"\n" + mail(name=str(number))
        for number in range(5)
    )
    for start in range(0, len(requests), 100):
        await peer.send(requests[start : start + 100])
        await asyncio.sleep(0)
    assert [(await peer.answer())["changed"] for _ in range(5)] == [True] * 5


async def test_a_client_that_has_said_everything_may_close_its_side(there: Place) -> None:
    peer = await there.peer()
    await peer.send(json.dumps({**MARK, "size": len(mail())}).encode() + b"\n" + mail())
    peer.writer.write_eof()
    assert (await peer.answer())["changed"]
    assert await peer.answer() == {}


async def test_half_a_mail_is_not_learnt(there: Place) -> None:
    peer = await there.peer()
    await peer.send(json.dumps({**MARK, "size": 1000}).encode() + b"\n" + mail())
    peer.writer.write_eof()
    assert await peer.answer() == {}
    assert there.learnt() == {"ham": 0, "spam": 0}


# Time


async def test_a_client_that_is_too_slow_is_sent_away(there: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "IDLE_SECONDS", 0.2)
    silent, line, body = await there.connect(count=3)
    await line.send(b'{"command": ')
    await body.send(json.dumps({**MARK, "size": 1000}).encode() + b"\n")

    async def trickle(peer: Peer) -> None:
        while not peer.reader.at_eof() and peer.reader.exception() is None:  # as the server hangs up, or resets
            peer.writer.write(b" ")
            await asyncio.sleep(0.02)

    trickling = [asyncio.create_task(trickle(peer)) for peer in (line, body)]
    for peer in (silent, line, body):
        assert await peer.answer() == {}
    await asyncio.gather(*trickling)
    assert there.learnt() == {"ham": 0, "spam": 0}


async def test_a_client_that_reads_nothing_is_sent_away(there: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "IDLE_SECONDS", 0.5)
    deaf, other = await there.connect(count=2)
    deaf.reader._transport.pause_reading()  # type: ignore[attr-defined]  # no public way to be deaf
    flood = b'{"command": "x"}\n' * 20_000
    deaf.writer.write(flood)
    assert await other.ask({"command": "status"}) == {"fine": True}
    for _ in range(300):
        if len(there.socket._connections) < 2:
            break
        await asyncio.sleep(0.05)
    assert len(there.socket._connections) < 2


@contextmanager
def locked(there: Place) -> Iterator[None]:
    with closing(sqlite3.connect(there.store.where, isolation_level=None)) as database:
        database.execute("BEGIN IMMEDIATE")
        yield
        database.execute("ROLLBACK")


async def test_a_mark_may_take_longer_than_a_client_may_idle(there: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "IDLE_SECONDS", 0.2)
    peer = await there.peer()
    with locked(there):
        answer = asyncio.create_task(peer.ask(MARK, mail()))
        await asyncio.sleep(0.6)
        assert not answer.done()
    assert (await answer)["changed"]


async def test_a_database_that_others_hold_for_long_is_worth_another_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql_connection, "BUSY_SECONDS", 0.2)
    async with place(tmp_path) as there:
        peer = await there.peer()
        with locked(there):
            answer = await peer.ask(MARK, mail())
            assert (answer["exit_code"], answer["error"][-9:]) == (75, "try again")
        assert (await peer.ask(MARK, mail()))["changed"]


# Rights of users


async def test_another_user_is_no_master_and_speaks_for_nobody_else(open_folder: Path) -> None:
    async with place(open_folder) as there:
        nobody, unnamed, own = await there.peer(NOBODY), await there.peer(UNNAMED), await there.peer()
        assert (await nobody.ask(MARK, mail()))["changed"]
        assert (await unnamed.ask(MARK, mail(name="two")))["changed"]
        for name in (None, "status", "broken"):
            refused = await nobody.ask({"command": "status", "by": name})
            assert refused == {"error": "nobody: only the administrator may ask for 'status'", "exit_code": 1}
        refused = await nobody.ask({**MARK, "by": "ann"}, mail(name="three"))
        assert (refused["exit_code"], "may not speak for others" in refused["error"]) == (1, True)
        assert (await nobody.ask({**MARK, "by": "nobody"}, mail(name="three")))["changed"]
        refused = await unnamed.ask({**MARK, "label": None}, mail())
        assert refused["error"] == "the mail: learnt as spam by nobody; only they or the administrator can change that"
        assert (await own.ask({**MARK, "label": None}, mail()))["changed"]
        assert there.authors()[:3] == ["nobody", f"uid {UNNAMED}", "nobody"]


async def test_a_proxy_speaks_for_others_who_have_each_their_rights_and_limits(open_folder: Path) -> None:
    async with place(open_folder, proxies=["nobody"], marks_a_day=2) as there:
        peer = await there.peer(NOBODY)
        for name in ("one", "two"):
            assert (await peer.ask({**MARK, "by": "ann", "source": "imap"}, mail(name=name)))["changed"]
        assert (await peer.ask({**MARK, "by": "ann"}, mail(name="three")))["exit_code"] == 1
        assert (await peer.ask({**MARK, "by": "bob", "label": "ham"}, mail(name="one")))["exit_code"] == 1
        assert (await peer.ask({**MARK, "by": "grün@example.org"}, mail(name="three")))["changed"]
        assert (await peer.ask({**MARK, "by": "grün@Example.ORG", "label": "ham"}, mail(name="three")))["changed"]
        assert (await peer.ask({**MARK}, mail(name="four")))["changed"]
        assert there.authors() == ["ann", "ann", *["grün@example.org"] * 3, "nobody"]


async def test_the_web_page_speaks_for_its_accounts_and_for_the_administrators_among_them(open_folder: Path) -> None:
    async with place(open_folder, proxies=["nobody"], marks_a_day=1) as there:
        own, nobody = await there.peer(), await there.peer(NOBODY)
        web = {**MARK, "source": "web"}
        assert (await own.ask({**web, "by": "ann"}, mail()))["changed"]
        assert (await own.ask({**web, "by": "ann"}, mail(name="two")))["exit_code"] == 1  # her share is one a day
        assert (await own.ask({**web, "label": "ham", "by": "bob"}, mail()))["exit_code"] == 1
        for claim in ({**web, "by": "ann"}, web):
            refused = await nobody.ask(claim, mail(name="two"))
            assert "only the web page" in refused["error"]
        refused = await nobody.ask({**MARK, "label": "ham", "by": "root", "master": True}, mail())
        assert "only they or the administrator" in refused["error"]
        for wrong in ("yes", 1, None):
            assert (await own.ask({**web, "label": "ham", "by": "root", "master": wrong}, mail()))["exit_code"] == 1
        assert (await own.ask({**web, "label": "ham", "by": "root", "master": True}, mail()))["changed"]
        assert there.authors()[0] == "ann"
        assert there.authors()[-1] == "root"


async def test_who_is_not_among_the_users_is_refused_and_that_can_change(open_folder: Path) -> None:
    async with place(open_folder, users=[f"uid {CAROL}"], proxies=["nobody"]) as there:
        carol, dave, nobody = [await there.peer(user) for user in (CAROL, DAVE, NOBODY)]
        refused = await dave.ask(MARK, mail())
        assert refused == {"error": f"uid {DAVE}: not among [feedback] users", "exit_code": 1}
        assert (await carol.ask(MARK, mail()))["changed"]
        assert (await nobody.ask({**MARK, "by": "x"}, mail(name="two")))["changed"]
        there.socket.settings = Feedback(users=[f"uid {DAVE}"])
        assert (await dave.ask(MARK, mail(name="three")))["changed"]
        assert (await carol.ask(MARK, mail(name="four")))["exit_code"] == 1
        assert (await nobody.ask({**MARK, "by": "x"}, mail(name="five")))["exit_code"] == 1


async def test_one_user_cannot_take_the_connections_of_the_others(open_folder: Path) -> None:
    async with place(open_folder, proxies=["nobody"]) as there:
        carols = await there.connect(CAROL, OF_ONE_USER)
        for peer in carols:
            assert (await peer.ask({"command": "x"}))["exit_code"] == 2
        for peer in await there.connect(CAROL, 30):
            assert (await peer.answer())["error"] == "too many connections on the feedback socket; try again"
            assert await peer.answer() == {}
        assert (await (await there.peer(DAVE)).ask(MARK, mail()))["changed"]
        proxies = await there.connect(NOBODY, CONNECTIONS - OF_ONE_USER - 1)
        for peer in proxies:
            assert (await peer.ask({"command": "x"}))["exit_code"] == 2
        assert (await (await there.peer(NOBODY)).answer())["exit_code"] == 75
        assert await (await there.peer()).ask({"command": "status"}) == {"fine": True}
        for peer in carols[:2]:  # the administrator's is one more than there is room for
            peer.writer.close()
        for _ in range(100):
            if len(there.socket._connections) < CONNECTIONS:
                break
            await asyncio.sleep(0.02)
        assert (await (await there.peer(CAROL)).ask(MARK, mail(name="two")))["changed"]


async def test_many_users_together_cannot_keep_out_another(open_folder: Path) -> None:
    """The user with most connections loses one, an idle one first; never for a user with as many."""
    async with place(open_folder) as there:
        users = range(50_000, 50_000 + CONNECTIONS // OF_ONE_USER)
        crowd = {user: await there.connect(user, OF_ONE_USER) for user in users}
        for peers in crowd.values():
            for peer in peers:
                assert (await peer.ask({"command": "x"}))["exit_code"] == 2
        for number in range(3):
            carol = await there.peer(CAROL)
            assert (await carol.ask(MARK, mail(name=f"carol-{number}")))["changed"]
        gone = [peer for peers in crowd.values() for peer in peers if peer.reader.at_eof() or peer.reader._buffer]  # type: ignore[attr-defined]
        assert [(await peer.answer())["exit_code"] for peer in gone] == [75] * 3
        assert [await peer.answer() for peer in gone] == [{}] * 3
        again = await there.peer(users[-1])
        assert (await again.answer())["exit_code"] == 75
        assert there.socket.limit_log.metrics.value("limits_hit", "feedback_connections") == 3
        assert there.socket.limit_log.metrics.value("limits_hit", "feedback_connections_per_user") == 1
        stay = [peer for peers in crowd.values() for peer in peers if peer not in gone]
        assert {(await peer.ask({"command": "x"}))["exit_code"] for peer in stay} == {2}


# The place


async def test_everybody_may_connect_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        async with place(tmp_path) as there:
            assert stat.S_IMODE(there.socket.path.stat().st_mode) == 0o666
            assert os.umask(0o077) == 0o077
    finally:
        os.umask(before)
    assert not there.socket.path.exists()


async def test_a_socket_that_was_left_behind_is_replaced(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "feedback.sock"))
    async with place(tmp_path) as there:
        assert (await (await there.peer()).ask(MARK, mail()))["changed"]


async def test_a_relay_that_listens_keeps_its_socket(tmp_path: Path) -> None:
    async with place(tmp_path) as there:
        with pytest.raises(ConfigError, match=r"feedback.socket = '.*feedback.sock': another relay listens there"):
            await there.another(there.socket.path).start()
        assert await (await there.peer()).ask({"command": "status"}) == {"fine": True}


async def test_a_relay_that_is_too_busy_to_accept_keeps_its_socket(there: Place, tmp_path: Path) -> None:
    path = tmp_path / "busy.sock"
    with socket.socket(socket.AF_UNIX) as busy, socket.socket(socket.AF_UNIX) as waiting:
        busy.bind(str(path))
        busy.listen(0)
        waiting.connect(str(path))
        with pytest.raises(ConfigError, match="another relay listens there"):
            await there.another(path).start()


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda path: path.write_text("precious"), id="a-file"),
        pytest.param(lambda path: path.mkdir(), id="a-folder"),
        pytest.param(lambda path: path.symlink_to(path.with_name("precious")), id="a-link-to-nothing"),
        pytest.param(lambda path: path.symlink_to(path.with_name("feedback.sock")), id="a-link-to-a-socket"),
        pytest.param(os.mkfifo, id="a-pipe"),
    ],
)
async def test_what_is_no_socket_is_left_alone(there: Place, tmp_path: Path, make: Callable[[Path], object]) -> None:
    path = tmp_path / "other.sock"
    make(path)
    before = path.lstat()
    with pytest.raises(ConfigError, match=r"other.sock': something is there that is no socket; remove it"):
        await there.another(path).start()
    assert (path.lstat().st_ino, path.lstat().st_mode) == (before.st_ino, before.st_mode)
    assert not path.with_name("precious").exists()


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        pytest.param("none/x.sock", "No such file or directory; its folder must be there", id="no-folder"),
        pytest.param("spamfilter.db/x.sock", "Not a directory", id="a-file-for-a-folder"),
        pytest.param("x" * 108, f"longer than the {LONGEST_SOCKET} bytes", id="too-long"),
    ],
)
async def test_a_place_for_no_socket_is_named(there: Place, tmp_path: Path, name: str, sentence: str) -> None:
    (tmp_path / "spamfilter.db").write_text("")
    with pytest.raises(ConfigError, match=rf"feedback.socket = '.*{name}': {sentence}"):
        await there.another(tmp_path / name).start()


async def test_the_longest_path_that_is_allowed_works(tmp_path: Path) -> None:
    with workshop() as folder:
        path = folder / ("x" * (LONGEST_SOCKET - len(str(folder)) - 1))
        async with place(tmp_path) as there:
            longest = there.another(path)
            await longest.start()
            client = await asyncio.to_thread(SocketClient, path)
            assert await asyncio.to_thread(client.ask, {"command": "status"}) == {"fine": True}
            client.close()
            await longest.close()


# The end


async def test_closing_leaves_nothing_behind_and_removes_only_what_is_ours(tmp_path: Path) -> None:
    before = asyncio.all_tasks()
    async with place(tmp_path) as there:
        silent, half = await there.connect(count=2)
        await half.send(json.dumps({**MARK, "size": 1000}).encode() + b"\nhalf")
        assert await (await there.peer()).ask({"command": "status"}) == {"fine": True}
        there.socket.path.unlink()
        there.socket.path.write_text("somebody else's")
        await there.socket.close()
        assert (await silent.answer(), await half.answer()) == ({}, {})
        assert there.socket.path.read_text() == "somebody else's"
        assert there.learnt() == {"ham": 0, "spam": 0}
        assert not there.socket._connections
    await asyncio.sleep(0.05)
    assert asyncio.all_tasks() == before


async def test_a_mark_that_has_begun_is_answered_before_the_end_and_those_behind_it_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with place(tmp_path) as there:
        learning, learns = there.store.learning, threading.Event()

        def noted() -> AbstractContextManager[Learning]:
            learns.set()
            return learning()

        monkeypatch.setattr(there.store, "learning", noted)
        begun, behind = await there.connect(count=2)
        with locked(there):
            first = asyncio.create_task(begun.ask(MARK, mail()))
            assert await asyncio.to_thread(learns.wait, 30)
            second = asyncio.create_task(behind.ask(MARK, mail(name="two")))
            while not there.desk._thread._work_queue.qsize():
                await asyncio.sleep(0.01)
            closing_ = asyncio.gather(there.socket.close(), asyncio.to_thread(there.desk.close))
            assert await second == {"error": "the relay is stopping; try again", "exit_code": 75}
            assert not first.done()
        assert (await first)["changed"]
        assert await begun.answer() == {}
        await closing_
        assert there.learnt() == {"ham": 0, "spam": 1}


async def test_a_socket_that_never_listened_can_be_closed(there: Place, tmp_path: Path) -> None:
    other = there.another(there.socket.path)
    with pytest.raises(ConfigError):
        await other.start()
    await other.close()
    assert there.socket.path.exists()


# The client


@contextmanager
def answering(path: Path, *answers: bytes, read: int = 1) -> Iterator[Path]:
    """Something that listens there, reads a bit, says this to each client in turn and hangs up."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def serve() -> None:
            for answer in answers:
                client, _ = listener.accept()
                with client:
                    client.recv(read)
                    client.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield path
        thread.join(30)


@pytest.mark.parametrize(
    ("code", "kind"), [(1, Refused), (2, InputError), (75, TryAgain), (99, SpamfilterError), ("x", SpamfilterError)]
)
def test_a_clients_error_is_the_relays(tmp_path: Path, code: object, kind: type[SpamfilterError]) -> None:
    answer = json.dumps({"error": "why: grün", "exit_code": code}).encode() + b"\n"
    with answering(tmp_path / "x.sock", answer) as path, closing(SocketClient(path)) as client:
        with pytest.raises(kind, match="why: grün") as caught:
            client.ask({"command": "status"})
        assert type(caught.value) is kind


def test_a_fault_of_the_relays_database_is_told_from_one_of_the_request(tmp_path: Path) -> None:
    answer = b'{"error": "read-only", "exit_code": 2, "database": true}\n'
    with (
        answering(tmp_path / "x.sock", answer) as path,
        closing(SocketClient(path)) as client,
        pytest.raises(StoreError, match="read-only"),
    ):
        client.ask({"command": "mark"})


@pytest.mark.parametrize("answer", [b"220 ready\r\n", b"7\n", b"\xff\n", b"[" * 100_000 + b"\n"])
def test_what_is_no_relay_is_named(tmp_path: Path, answer: bytes) -> None:
    with (
        answering(tmp_path / "x.sock", answer) as path,
        closing(SocketClient(path)) as client,
        pytest.raises(SpamfilterError, match=r"x.sock: what listens there is no relay"),
    ):
        client.ask({"command": "status"})


@pytest.mark.parametrize("answer", [b"", b'{"changed": tr'], ids=["nothing", "half"])
def test_a_relay_that_hangs_up_is_worth_another_try(tmp_path: Path, answer: bytes) -> None:
    with (
        answering(tmp_path / "x.sock", answer, read=1000) as path,
        closing(SocketClient(path)) as client,
        pytest.raises(TryAgain, match=r"x.sock: .*; try again"),
    ):
        client.ask({"command": "status"})


def test_a_relay_that_says_nothing_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket_client, "TIMEOUT", 0.2)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "x.sock"))
        listener.listen()
        with closing(SocketClient(tmp_path / "x.sock")) as client, pytest.raises(TryAgain, match="try again"):
            client.ask({"command": "status"})


def test_a_refusal_that_comes_before_everything_is_sent_is_heard(tmp_path: Path) -> None:
    answer = b'{"error": "too many", "exit_code": 75}\n'
    with (
        answering(tmp_path / "x.sock", answer) as path,
        closing(SocketClient(path)) as client,
        pytest.raises(TryAgain, match="too many"),
    ):
        client.ask({"name": "x" * 10**7}, b"x" * 10**6)


@pytest.mark.parametrize("make", [lambda path: None, lambda path: path.write_text(""), lambda path: path.mkdir()])
def test_where_nobody_listens_there_is_no_relay(tmp_path: Path, make: Callable[[Path], object]) -> None:
    make(tmp_path / "x.sock")
    with pytest.raises(NoRelay, match=r"x.sock: "):
        SocketClient(tmp_path / "x.sock")


@pytest.mark.parametrize("name", ["x" * 200, "a\0b"], ids=["too-long", "nul"])
def test_where_no_socket_can_be_there_is_no_relay(tmp_path: Path, name: str) -> None:
    with pytest.raises(NoRelay):
        SocketClient(tmp_path / name)


def test_a_client_waits_in_the_queue_of_a_relay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.sock"
    with socket.socket(socket.AF_UNIX) as busy, socket.socket(socket.AF_UNIX) as before:
        busy.bind(str(path))
        busy.listen(0)
        before.connect(str(path))
        accepting = threading.Timer(0.3, lambda: busy.accept()[0].close())
        accepting.start()
        SocketClient(path).close()
        accepting.join()
        monkeypatch.setattr(socket_client, "TIMEOUT", 0.2)
        with pytest.raises(TryAgain, match="does not answer; try again"):
            SocketClient(path)


async def test_of_a_long_mail_the_part_is_sent_that_is_looked_at(there: Place) -> None:
    assert LOOKED_AT > 2 * SCANNED
    long = mail(body="\r\n".join("word" for _ in range(10**6)))
    client = await asyncio.to_thread(SocketClient, there.socket.path)
    assert (await asyncio.to_thread(client.ask, MARK, long))["changed"]
    assert not (await asyncio.to_thread(client.ask, MARK, long))["changed"]
    client.close()
    follow(there.filter)
    with there.filter.training() as training:
        found = training.ledger.active(there.filter.read(parse(long)).digest)
    assert found is not None


async def test_a_store_that_is_gone_is_said_so(there: Place) -> None:
    peer = await there.peer()
    for path in Path(there.store.where).parent.glob("x.db*"):
        path.unlink()
    answer = await peer.ask(MARK, mail())
    assert (answer["exit_code"], "the database is gone" in answer["error"]) == (StoreError.exit_code, True)
    assert answer["database"] is True
