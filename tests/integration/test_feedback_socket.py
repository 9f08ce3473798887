"""The feedback socket of a running relay, used and attacked by other users of the machine."""

import contextlib
import fcntl
import json
import os
import resource
import signal
import smtplib
import socket
import sqlite3
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from spamfilter.config.sections import Limits
from spamfilter.config.settings import Settings
from spamfilter.learning.filter import Filter
from spamfilter.mail.tagging import header_id
from spamfilter.service.control_socket.client import LOOKED_AT
from spamfilter.stores import open_store
from tests.integration.servers import Relay, relay, wait_until, workshop
from tests.support.made import mail
from tests.support.real import require_root
from tests.support.users import NOBODY, command_as, connected_as, script_as

MARK = {"command": "mark", "label": "spam"}
LIMIT = 4
CONNECTIONS = Limits().feedback_connections
OF_ONE_USER = Limits().feedback_connections_per_user


@dataclass(frozen=True)
class Service:
    """A relay whose socket every user can reach, and whose state is its own."""

    relay: Relay
    socket: Path

    @property
    def environment(self) -> dict[str, str]:
        return {**self.relay.environment, "HOME": "/nonexistent"}

    @property
    def database(self) -> Path:
        return self.relay.state / "spamfilter.db"

    def rows(self) -> list[tuple[str, str, str]]:
        """Label, author and 'undone' of the ledger."""
        with contextlib.closing(sqlite3.connect(self.database)) as database:
            found = database.execute(
                "SELECT label, by, CASE WHEN undoes THEN 'undone' ELSE '' END FROM ledger ORDER BY id"
            )
            return [(label, by, undone) for label, by, undone in found]

    def by(self, author: str) -> int:
        return sum(row[1] == author for row in self.rows())

    def send(self, number: int = 1) -> None:
        with smtplib.SMTP("127.0.0.1", self.relay.port, "client.example", timeout=60) as client:
            client.sendmail("a@example.org", ["b@example.test"], mail(name=f"sent-{number}"))

    def delivered(self) -> int:
        return len(list((self.relay.state / "mail" / "new").iterdir()))

    def verified(self) -> list[str]:
        store = open_store(f"sqlite:///{self.database}")
        with contextlib.closing(store):
            return Filter(store, Settings().voices(), whole=False).verify()


@contextlib.contextmanager
def service(**feedback: Any) -> Iterator[Service]:
    with workshop() as folder:
        (folder / "run").mkdir()
        settings: Mapping[str, Any] = {"socket": str(folder / "run/x.sock"), "marks_a_day": LIMIT, **feedback}
        with relay(folder / "relay", feedback=settings) as server:
            yield Service(server, folder / "run/x.sock")


@pytest.fixture(scope="module")
def shared() -> Iterator[Service]:
    """One relay for all tests whose users are each their own."""
    with service(proxies=["nobody"]) as found:
        yield found
        assert "Traceback" not in found.relay.log()
        assert found.verified() == []


def ask(client: socket.socket, request: Mapping[str, object], sent: bytes | None = None) -> dict[str, Any]:
    """One request; empty if the relay hung up."""
    client.settimeout(60)
    if sent is not None:
        request = {**request, "size": len(sent)}
    with contextlib.suppress(ConnectionError):
        client.sendall(json.dumps(request).encode() + b"\n" + (sent or b""))
    return answer(client)


def answer(client: socket.socket) -> dict[str, Any]:
    client.settimeout(60)
    found = b""
    with contextlib.suppress(ConnectionError):
        while not found.endswith(b"\n"):
            block = client.recv(65536)
            if not block:
                break
            found += block
    return dict(json.loads(found)) if found else {}


@contextlib.contextmanager
def client_of(shared: Service, user: int) -> Iterator[socket.socket]:
    (client,) = connected_as(user, shared.socket)
    with client:
        yield client


# Two users


def test_one_user_cannot_undo_what_another_taught(shared: Service) -> None:
    with client_of(shared, 41_001) as one, client_of(shared, 41_002) as other:
        assert ask(one, MARK, mail(name="a"))["changed"]
        for label in ("ham", None):
            refused = ask(other, {**MARK, "label": label}, mail(name="a"))
            assert (refused["exit_code"], "learnt as spam by uid 41001" in refused["error"]) == (1, True)
        assert not ask(other, MARK, mail(name="a"))["changed"]
        assert shared.by("uid 41002") == 0
        assert ask(one, {**MARK, "label": None}, mail(name="a"))["was"] == "spam"


def test_nobody_gets_past_the_limit(shared: Service) -> None:
    with client_of(shared, 41_003) as one, client_of(shared, 41_004) as other:
        for _ in range(LIMIT):
            assert ask(one, MARK, mail(name="b"))["changed"]
            assert ask(one, {**MARK, "label": None}, mail(name="b"))["changed"]
        for label in ("spam", "ham"):
            refused = ask(one, {**MARK, "label": label}, mail(name="b"))
            assert (refused["exit_code"], "marks in 24 hours are the limit" in refused["error"]) == (1, True)
        with client_of(shared, 41_003) as again:
            assert ask(again, MARK, mail(name="c"))["exit_code"] == 1
        # Nor by asking often at the same time.
        clients = connected_as(41_005, shared.socket, OF_ONE_USER)
        answers: list[dict[str, Any]] = []
        asking = [
            threading.Thread(target=lambda c=c, n=n: answers.append(ask(c, MARK, mail(name=f"race-{n}"))))
            for n, c in enumerate(clients)
        ]
        for thread in asking:
            thread.start()
        for thread in asking:
            thread.join()
        for client in clients:
            client.close()
        assert sum("changed" in found for found in answers) == LIMIT == shared.by("uid 41005")
        assert ask(other, MARK, mail(name="b"))["changed"]


def test_no_other_user_reaches_the_database_or_the_folder_of_the_socket(shared: Service) -> None:
    script = """
for path in sys.argv[1:3]:
    for what in (lambda: sqlite3.connect(path).execute("SELECT * FROM ledger"), lambda: open(path, "rb"),
                 lambda: open(path, "ab"), lambda: os.unlink(path), lambda: os.rename(path, path + "x"),
                 lambda: os.listdir(os.path.dirname(path))):
        try:
            what()
        except (OSError, sqlite3.OperationalError):
            continue
        sys.exit("reached " + path)
for what in (lambda: os.unlink(sys.argv[3]), lambda: os.rename(sys.argv[3], sys.argv[3] + "x"),
             lambda: os.chmod(sys.argv[3], 0), lambda: os.symlink("/etc/passwd", sys.argv[3] + ".link")):
    try:
        what()
    except PermissionError:
        continue
    sys.exit("changed " + sys.argv[3])
"""
    done = script_as(41_006, script, str(shared.database), str(shared.database) + "-wal", str(shared.socket))
    assert (done.returncode, done.stderr) == (0, b"")


def test_the_commands_work_for_other_users_and_say_no_in_one_line(shared: Service) -> None:
    def run(user: int, *words: str, input: bytes = b"") -> tuple[int, str, str]:
        done = command_as(user, shared.environment, *words, input=input, whole=words[0] == "judge")
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    code, out, err = run(41_007, "mark-spam", "-", input=mail(name="d"))
    assert (code, err) == (0, "")
    assert out.startswith("standard input: learnt as spam; score 0.")
    code, out, _ = run(41_007, "mark-spam", "--json", input=mail(name="d"))
    assert (code, json.loads(out)["changed"]) == (0, False)
    code, out, err = run(41_008, "mark-ham", input=mail(name="d"))
    assert (code, out) == (1, "")
    assert (
        err
        == "spamfilter: standard input: learnt as spam by uid 41007; only they or the administrator can change that\n"
    )
    code, out, err = run(41_008, "mark-ham", "--by", "root", input=mail(name="d"))
    assert (code, err.count("\n"), "may not speak for others" in err) == (1, 1, True)
    code, out, err = run(41_008, "mark-ham", "--by", "uid 41008", input=mail(name="e"))
    assert (code, err) == (0, "")
    code, out, err = run(41_008, "judge", "-", input=mail(name="d"))
    assert (code, out, err.count("\n"), "Traceback" in err) == (2, "", 1, False)
    code, out, err = run(NOBODY, "mark-spam", "--by", "ann@example.org", "--source", "imap", input=mail(name="f"))
    assert (code, err) == (0, "")
    assert ("spam", "ann@example.org", "") in shared.rows()
    code, out, err = run(41_007, "forget", input=mail(name="d"))
    assert (code, "forgotten as spam" in out) == (0, True)


def test_a_program_reads_the_name_of_a_file_as_it_is(shared: Service, tmp_path: Path) -> None:
    for number, name in enumerate((b"two\nlines.eml", b"not \xff in UTF-8.eml", b"long \x07" + 240 * b"x")):
        path = tmp_path / os.fsdecode(name)
        path.write_bytes(mail(name=f"odd name {number}"))
        done = shared.relay.command("mark-ham", "--json", str(path))
        assert (done.stderr, json.loads(done.stdout)["file"]) == ("", str(path))


def test_a_mail_that_passed_is_marked_by_its_id_by_another_user(shared: Service) -> None:
    before = shared.delivered()
    shared.send(50)
    newest = max((shared.relay.state / "mail" / "new").iterdir(), key=lambda file: file.stat().st_mtime_ns)
    head = newest.read_bytes().partition(b"\r\n\r\n")[0].decode()
    id = head.partition("X-Spamfilter-Id: ")[2].split()[0]
    assert shared.delivered() == before + 1
    done = command_as(41_009, shared.environment, "mark-spam", "--json", id)
    assert (done.returncode, json.loads(done.stdout)["id"]) == (0, id)
    done = command_as(41_010, shared.environment, "forget", f"X-Spamfilter-Id: {id}")
    assert (done.returncode, b"learnt as spam by uid 41009" in done.stderr) == (1, True)


def test_an_id_that_is_not_known_keeps_no_other_mail_from_being_marked(shared: Service) -> None:
    words = ("mark-spam", "01KAH3V5E8M6Q2T0J9Z4R7X1CN", "-")
    done = command_as(41_011, shared.environment, *words, input=mail(name="beside an unknown id"))
    assert done.stdout.startswith(b"standard input: learnt as spam")
    assert (done.returncode, done.stderr.count(b"no message of this id in the journal")) == (2, 1)


def test_an_id_is_an_id_in_a_folder_that_is_closed_to_the_user(shared: Service, tmp_path: Path) -> None:
    shared.send(51)
    newest = max((shared.relay.state / "mail" / "new").iterdir(), key=lambda file: file.stat().st_mtime_ns)
    id = header_id(newest.read_bytes())
    tmp_path.chmod(0o700)
    for name in (id, f"X-Spamfilter-Id: {id}"):
        done = command_as(41_011, shared.environment, "mark-spam", name, folder=str(tmp_path))
        assert (done.returncode, done.stderr) == (0, b"")
    done = command_as(41_011, shared.environment, "mark-spam", "a.eml", folder=str(tmp_path))
    assert (done.returncode, done.stderr) == (2, b"spamfilter: a.eml: Permission denied\n")


# Attacks


def connections(shared: Service) -> int:
    """How many clients the relay has: proc(5); the socket that listens is one more of this name."""
    return Path("/proc/net/unix").read_text().count(f" {shared.socket}\n") - 1


@pytest.fixture
def alone(shared: Service) -> Iterator[Service]:
    """The relay with no client before and after."""
    require_root("to be several users")
    wait_until(lambda: connections(shared) == 0, "the end of earlier connections")
    yield shared
    wait_until(lambda: connections(shared) == 0, "the connections' end")


def test_mail_passes_while_the_socket_is_attacked(alone: Service) -> None:
    stop = threading.Event()
    marked = json.dumps({**MARK, "size": LOOKED_AT}).encode() + b"\n"
    text = (b"Subject: x\r\n\r\n" + b"<a href=x> \xe4 =?utf-8?q?x?= words " * 5_000)[:LOOKED_AT].ljust(LOOKED_AT)
    attacks = (
        b"\x00\xff" * 40_000, b"[" * 30_000 + b"\n", b"{}\n" * 100, marked + text, marked + b"half",
        b'{"command": "status"}\n' * 20, b'{"command": "mark", "label": "spam", "id": "x"}\n' * 5,
    )  # fmt: skip
    answered = [0]

    def attack(user: int, raw: bytes) -> None:
        while not stop.is_set():
            for client in connected_as(user, alone.socket, OF_ONE_USER + 5):
                with client, contextlib.suppress(OSError):
                    client.settimeout(0.1)
                    client.sendall(raw)
                    answered[0] += bool(client.recv(100))

    attackers = [threading.Thread(target=attack, args=(42_000 + n, raw)) for n, raw in enumerate(attacks)]
    before = alone.delivered()
    for thread in attackers:
        thread.start()
    try:
        for number in range(20):
            alone.send(100 + number)
        with client_of(alone, 42_100) as honest:
            assert ask(honest, MARK, mail(name="honest"))["changed"]
        wait_until(lambda: bool(answered[0]), "an answer to an attack")  # each attacker starts programs first
    finally:
        stop.set()
        for thread in attackers:
            thread.join()
    assert alone.delivered() == before + 20
    assert sum(alone.by(f"uid {42_000 + n}") for n in range(len(attacks))) <= 1  # the one whole mail
    with client_of(alone, 0) as root:
        assert ask(root, {"command": "status"})["following"]


@contextlib.contextmanager
def many_of(service: Service, user: int, count: int) -> Iterator[list[socket.socket]]:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(client) for client in connected_as(user, service.socket, count)]


def test_half_mails_on_every_connection_take_little_memory(alone: Service) -> None:
    def resident() -> int:
        pages = int(Path(f"/proc/{alone.relay.process.pid}/statm").read_text().split()[1])
        return pages * resource.getpagesize()

    before = resident()
    with contextlib.ExitStack() as stack:
        for user in range(43_000, 43_000 + CONNECTIONS // OF_ONE_USER):
            for client in stack.enter_context(many_of(alone, user, OF_ONE_USER)):
                client.settimeout(30)
                client.sendall(json.dumps({**MARK, "size": LOOKED_AT}).encode() + b"\n" + b"x" * (LOOKED_AT - 1))
        with many_of(alone, 43_900, 3) as late:
            assert [ask(client, {"command": "x"})["exit_code"] for client in late] == [2, 2, 2]
        assert resident() - before < 60 * 10**6
        alone.send(200)
        with client_of(alone, 0) as root:
            assert ask(root, {"command": "status"})["pid"] == alone.relay.process.pid


def test_hundreds_of_connections_at_once_are_turned_away_or_served(alone: Service) -> None:
    for user in (44_000, 44_001):
        with many_of(alone, user, 200) as clients:
            codes = [ask(client, {"command": "x"})["exit_code"] for client in clients]
        assert (codes.count(2), codes.count(75)) == (OF_ONE_USER, 200 - OF_ONE_USER)
        wait_until(lambda: connections(alone) == 0, "the connections' end")
    with client_of(alone, 44_002) as honest:
        assert ask(honest, MARK, mail(name="honest-too"))["changed"]


# The administrator, and changes at run time


def test_sighup_changes_who_may_mark_and_how_often() -> None:
    with service(marks_a_day=1) as found, client_of(found, 45_001) as one, client_of(found, 45_002) as other:
        assert ask(one, MARK, mail())["changed"]
        assert ask(one, MARK, mail(name="two"))["exit_code"] == 1
        text = found.relay.config.read_text()
        found.relay.config.write_text(text.replace("marks_a_day = 1", 'marks_a_day = 2\nusers = ["uid 45001"]'))
        found.relay.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "reloaded" in found.relay.log(), "the reload")
        assert ask(one, MARK, mail(name="two"))["changed"]
        refused = ask(other, MARK, mail(name="three"))
        assert refused == {"error": "uid 45002: not among [feedback] users", "exit_code": 1}
        with client_of(found, 0) as root:
            assert all(ask(root, MARK, mail(name=f"root-{n}"))["changed"] for n in range(5))
            judged = ask(root, {"command": "judge", "id": "x"})
            assert judged["exit_code"] == 2


def test_a_socket_that_is_not_asked_for_is_no_reason_to_stop(tmp_path: Path) -> None:
    deep = tmp_path / ("x" * 100)
    with relay(deep) as server:
        assert "no feedback socket: feedback.socket = " in server.log()
        done = server.command("mark-spam", input=mail().decode())
        assert (done.returncode, "no relay at" in done.stderr) == (0, True)


def test_a_relay_that_starts_while_another_one_stops_has_the_socket_after_it(tmp_path: Path) -> None:
    with relay(tmp_path / "relay") as first, relay(tmp_path / "relay") as second:
        wait_until(lambda: "no feedback socket: " in second.log(), "the second one's start")  # they share a log
        first.process.terminate()
        first.process.wait(30)
        wait_until(lambda: second.log().count("INFO feedback socket /") == 2, "the socket")
        assert "no relay at" not in second.command("mark-ham", input=mail().decode()).stderr


@pytest.mark.parametrize("place", ["none/x.sock", "file"])
def test_a_socket_that_is_asked_for_and_cannot_be_is_an_error(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("precious")
    (tmp_path / "spamfilter.toml").write_text(
        f'[relay]\nlisten = ["127.0.0.1:0"]\n[feedback]\nsocket = "{tmp_path / place}"\n'
    )
    environment = {**os.environ, "STATE_DIRECTORY": str(tmp_path), "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        [sys.executable, "-m", "spamfilter", "--config", str(tmp_path / "spamfilter.toml"), "serve"],
        env=environment, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert f"feedback.socket = '{tmp_path / place}'" in done.stderr
    assert "Traceback" not in done.stderr
    assert (tmp_path / "file").read_text() == "precious"


# The end


@contextlib.contextmanager
def held(found: Service) -> Iterator[None]:
    """Another process holds the database."""
    with contextlib.closing(sqlite3.connect(found.database, isolation_level=None)) as database:
        database.execute("BEGIN IMMEDIATE")
        yield
        with contextlib.suppress(sqlite3.OperationalError):
            database.execute("ROLLBACK")


def unread(client: socket.socket) -> int:
    """Bytes that were sent to the other end of a socket of this machine, and not read there: unix(7), SIOCOUTQ."""
    return int.from_bytes(fcntl.ioctl(client, termios.TIOCOUTQ, bytes(4)), sys.byteorder)


class Asking(threading.Thread):
    """A mark that waits for its answer; the relay has read it."""

    def __init__(self, client: socket.socket, sent: bytes) -> None:
        super().__init__()
        self.client, self.sent = client, sent
        self.answer: dict[str, Any] = {}
        self._is_sent = threading.Event()
        self.start()
        if not self._is_sent.wait(30):
            raise TimeoutError("the mark was not sent")
        wait_until(lambda: unread(client) == 0, "the relay's reading of the mark")

    def run(self) -> None:
        self.client.settimeout(60)
        self.client.sendall(json.dumps({**MARK, "size": len(self.sent)}).encode() + b"\n" + self.sent)
        self._is_sent.set()
        self.answer = answer(self.client)


def test_at_sigterm_a_mark_is_done_and_answered_or_neither() -> None:
    with service() as found, client_of(found, 46_001) as one, client_of(found, 46_002) as other:
        idle = connected_as(46_003, found.socket, 3)
        with held(found):
            begun = Asking(one, mail(name="one"))
            time.sleep(0.5)
            behind = Asking(other, mail(name="two"))
            time.sleep(0.5)
            found.relay.process.terminate()
            behind.join(30)
            assert behind.answer == {"error": "the relay is stopping; try again", "exit_code": 75}
            assert begun.is_alive()
        begun.join(30)
        assert begun.answer["changed"]
        assert all(answer(client) == {} for client in idle)
        assert found.relay.process.wait(30) == 0
        assert not found.socket.exists()
        assert found.rows() == [("spam", "uid 46001", "")]
        assert "Traceback" not in found.relay.log()
        assert "stopped" in found.relay.log()
        for client in idle:
            client.close()


def test_after_kill_9_half_a_mark_is_none_and_a_new_relay_takes_the_socket() -> None:
    with workshop() as folder:
        path = folder / "x.sock"
        with contextlib.suppress(RuntimeError), relay(folder / "relay", feedback={"socket": str(path)}) as server:
            found = Service(server, path)
            with client_of(found, 47_001) as one:
                assert ask(one, MARK, mail(name="done"))["changed"]
                with held(found):
                    begun = Asking(one, mail(name="half"))
                    time.sleep(0.5)
                    os.killpg(server.process.pid, signal.SIGKILL)  # all of it
                    begun.join(30)
                assert begun.answer == {}
            server.process.wait(30)
        assert path.is_socket()
        assert found.rows() == [("spam", "uid 47001", "")]
        with relay(folder / "relay", feedback={"socket": str(path)}) as server:
            again = Service(server, path)
            wait_until(lambda: server.log().count("ready") == 2, "the second relay")
            with client_of(again, 47_001) as one:
                assert not ask(one, MARK, mail(name="done"))["changed"]
                assert ask(one, MARK, mail(name="half"))["changed"]
            assert again.verified() == []


def test_where_the_relay_is_gone_another_user_hears_why(tmp_path: Path) -> None:
    with workshop() as folder:
        (folder / "state").mkdir(mode=0o700)
        environment = {**os.environ, "STATE_DIRECTORY": str(folder / "state"), "HOME": "/nonexistent"}
        environment["PYTHONPATH"] = str(Path(__file__).parents[2])
        done = command_as(48_001, environment, "mark-spam", input=mail(), whole=True)
        assert done.returncode == 2
        assert done.stdout == b""
        assert (done.stderr.count(b"\n"), b"Traceback" in done.stderr) == (1, False)
        assert str(folder / "state").encode() in done.stderr


# Speed


HEAVY = (
    "numpy",
    "sqlalchemy",
    "pydantic",
    "alembic",
    "asyncio",
    "spamfilter.config.settings",
    "spamfilter.learning.filter",
)
LIGHT = """
import sys
from spamfilter.cli import main
sys.argv = ["spamfilter", *sys.argv[1:]]
try:
    main()
finally:
    print(*(name for name in %r if name in sys.modules), file=sys.stderr)
"""


@pytest.mark.parametrize(
    "words", [["mark-spam", "01KAH3V5E8M6Q2T0J9Z4R7X1CN"], ["mark-ham", "-"], ["forget"], ["mark-ham", "FILE"]]
)
def test_a_mark_over_the_socket_imports_nothing_heavy(shared: Service, tmp_path: Path, words: list[str]) -> None:
    file = tmp_path / "x.eml"
    file.write_bytes(mail(name="light"))
    done = subprocess.run(
        [sys.executable, "-c", LIGHT % (HEAVY,), *(str(file) if word == "FILE" else word for word in words)],
        env=shared.environment, input=mail(name="light"), capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    said = done.stderr.decode().splitlines()
    assert said[-1] == ""
    unknown = words[-1].startswith("01K")
    assert (done.returncode, len(said)) == ((2, 2) if unknown else (0, 1))
    assert not unknown or "no message of this id in the journal" in said[0]
