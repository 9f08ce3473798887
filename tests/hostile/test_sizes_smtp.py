"""More of everything than anybody needs: memory stays bounded, the answer comes, and others are served meanwhile."""

import contextlib
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.faults.client import Client, mail_of
from tests.faults.daemon import Daemon
from tests.hostile.bounded import BESIDE, MEGABYTE, MESSAGE_SIZE, bounded, served
from tests.support.doors import DOORS, RELAYING

RECIPIENTS, COMMANDS, ERRORS = 1000, 2000, 20
"""The defaults of these limits."""
BLOCK = 2**20


@pytest.fixture(scope="module", params=RELAYING)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    folder, door = tmp_path_factory.mktemp("sizes"), DOORS[request.param]
    # One process, of which the memory is looked at.
    next_hop, limits = f"maildir:{folder / 'mail'}", {"final_seconds": 80.0}
    running = Daemon(folder, next_hop, door=door, relay={"workers": 1}, limits=limits)
    with running.run():
        with running.connect() as client:
            assert client.deliver(mail_of("warm-up")).code == 250
        yield running


def pour(client: Client, data: bytes, times: int) -> None:
    """Send the same again and again, as far as it is taken."""
    with contextlib.suppress(OSError):
        for _ in range(times):
            client.socket.sendall(data)


@pytest.mark.parametrize(
    "block",
    [
        b"x" * BLOCK,
        b"\0" * BLOCK,
        b"RCPT TO:<" + b"a" * (BLOCK - 9),
        b"MAIL FROM:<a@example.org>" + b" X=1" * (BLOCK // 4),
    ],
    ids=["letters", "NULs", "addresses", "a million parameters"],
)
def test_a_command_without_end_is_not_kept(server: Daemon, block: bytes) -> None:
    with server.connect() as client, bounded(server, BESIDE):
        client.ask(f"{client.hello} client.test")
        pour(client, block, 20)
        served(server)
        pour(client, block, 20)
        assert client.ask("").code == 500
        assert client.ask("QUIT").code == 221


def test_short_commands_without_line_ends_that_count_are_one(server: Daemon) -> None:
    """A CR ends no command, however many there are."""
    with server.connect() as client, bounded(server, BESIDE):
        pour(client, b"NOOP\r" * (BLOCK // 5), 20)
        assert client.ask("").code == 500
        assert client.ask("QUIT").code == 221


def transaction(client: Client) -> None:
    for line in (f"{client.hello} client.test", "MAIL FROM:<a@example.org>", "RCPT TO:<b@example.test>"):
        assert client.ask(line).code == 250
    assert client.ask("DATA").code == 354


MAILS = {
    "a header block": (b"", b"X-Filler: 0123456789 0123456789 0123456789 0123456789 0123\r\n", b"\r\nhi\r\n"),
    "a header field of one line": (b"X-Filler: ", b"0123456789", b"\r\n\r\nhi\r\n"),
    "fields with our names": (b"Subject: hi\r\n", b"X-Spamfilter-Id: 1\r\nX-Spam-Flag: YES\r\n", b"\r\nhi\r\n"),
    "one line of text": (b"Subject: hi\r\n\r\n", b"0123456789", b"\r\n"),
    "lines of dots": (b"Subject: hi\r\n\r\n", b"..\r\n", b""),
}
COPIES = 7
"""Of the largest mail, which it may take at once; the most are of one that is a header of millions of fields."""


@pytest.mark.parametrize("name", MAILS)
def test_a_mail_of_50_megabytes_passes_whole(server: Daemon, name: str) -> None:
    first, filler, last = MAILS[name]
    times = (50 * MEGABYTE - len(first) - len(last)) // len(filler)
    with server.connect() as client, bounded(server, COPIES * MESSAGE_SIZE):
        transaction(client)
        sender = threading.Thread(target=pour, args=(client, first + filler * times + last + b".\r\n", 1))
        sender.start()
        served(server)
        sender.join()
        served(server)
        assert client.reply().code == 250
    mails = {path: path.read_bytes() for path in (server.folder / "mail" / "new").iterdir()}
    (path,) = (path for path, mail in mails.items() if b"Subject: mail " not in mail[:1000])
    kept = 0 if name == "fields with our names" else times
    sent = (first + filler * kept + last).replace(b"\r\n..", b"\r\n.").replace(b"\r\n", b"\n")
    path.unlink()
    assert len(mails[path]) - len(sent) < 500
    assert mails[path].endswith(sent)


@pytest.mark.parametrize("filler", [b"0123456789\r\n", b"0123456789"], ids=["lines", "one line"])
def test_a_mail_that_is_too_large_is_dropped_as_it_comes(server: Daemon, filler: bytes) -> None:
    with server.connect() as client, bounded(server, 2 * MESSAGE_SIZE):
        transaction(client)
        block = filler * (BLOCK // len(filler))
        pour(client, block, 60)
        served(server)
        pour(client, block, 60)
        client.say(b"\r\n.\r\n")
        assert client.reply().code == 552
        assert client.ask("QUIT").code == 221


def codes_of(client: Client, line: bytes, times: int) -> list[int]:
    """The codes of the replies to a line that is sent so often, or until the relay hangs up."""
    writer = threading.Thread(target=pour, args=(client, line * 1000, times // 1000))
    writer.start()
    codes = []
    while (answer := client.reply()).code is not None:
        codes.append(answer.code)
    writer.join()
    return codes


def test_of_a_million_recipients_a_thousand_are_taken(server: Daemon) -> None:
    """The rest hears 452 at once, which a client takes for another transaction, and then 421."""
    with server.connect() as client, bounded(server, BESIDE):
        client.ask(f"{client.hello} client.test")
        client.ask("MAIL FROM:<a@example.org>")
        codes = codes_of(client, b"RCPT TO:<b@example.test>\r\n", 1_000_000)
    assert codes[:RECIPIENTS] == [250] * RECIPIENTS
    assert set(codes[RECIPIENTS:-1]) == {452}
    assert codes[-1] == 421
    assert len(codes) <= COMMANDS


@pytest.mark.parametrize("line", [b"RSET\r\n", b"NOOP\r\n", b"VRFY bob\r\n", b"EHLO c\r\n", b"HELO c\r\n"])
def test_commands_that_get_nowhere_come_to_an_end(server: Daemon, line: bytes) -> None:
    if server.door.listen == "lmtp":
        line = re.sub(b"EHLO|HELO", b"LHLO", line)
    with server.connect() as client, bounded(server, BESIDE):
        codes = codes_of(client, line, 100_000)
    assert codes[-1] == 421
    assert len(codes) == COMMANDS + 1
    assert 421 not in codes[:-1]


@pytest.mark.parametrize(
    "line", [b"\n", b"EXPN all\r\n", b"GET / HTTP/1.1\r\n", b"\x16\x03\x01\r\n", b"MAIL\r\n", b"DATA\r\n"]
)
def test_errors_come_to_an_end_sooner(server: Daemon, line: bytes) -> None:
    with server.connect() as client, bounded(server, BESIDE):
        client.ask(f"{client.hello} client.test")
        codes = codes_of(client, line, 100_000)
    assert Counter(code // 100 for code in codes if code) == {5: ERRORS, 4: 1}
    assert codes[-1] == 421


def test_the_reply_to_a_mail_is_heard_though_the_session_is_closed_behind_it(server: Daemon) -> None:
    """Or the client would send it again. Unread input makes the system reset a connection that is closed at once."""
    hello = f"{server.door.client.hello} c".encode()
    mail = b"".join(b"%s\r\n" % line for line in (hello, b"MAIL FROM:<a@example.org>", b"RCPT TO:<b@c>", b"DATA"))
    mail += mail_of("closed") + b".\r\n"
    resets: list[OSError] = []

    def write() -> None:
        try:
            client.socket.sendall(mail + b"EXPN\r\n" * 200_000)
        except OSError as error:
            resets.append(error)

    with server.connect() as client:
        writer = threading.Thread(target=write)
        writer.start()
        codes = []
        while (answer := client.reply()).code not in (None, 421):
            codes.append(answer.code)
        writer.join()
        # A reset may or may not take replies with it; whether there was one, the writer hears or the reader.
        assert client.socket.recv(1) == b""
    assert codes == [250, 250, 250, 354, 250] + [502] * ERRORS
    assert (answer.code, resets) == (421, [])


def test_a_client_that_goes_on_sending_after_the_last_words_is_cut_off(server: Daemon) -> None:
    """It is heard out for some seconds and no longer, and what it sends is not kept."""
    with server.connect() as client, bounded(server, BESIDE):
        assert client.ask("QUIT").code == 221
        with pytest.raises(ConnectionError):
            flood(client)


def flood(client: Client) -> None:
    """As much as it takes, for a time that is far longer than anybody is heard out."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        client.socket.sendall(b"x" * BLOCK)
