"""The memory for mail in flight: a mail that does not fit hears 452, and the process does not grow beyond the limit."""

import contextlib
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.faults.client import Client
from tests.faults.daemon import Daemon
from tests.integration.servers import free_port, greets, wait_until
from tests.relay.limits.scraping import Scraper, assert_hit
from tests.support.real import require

MB = 10**6
MEMORY = 100
LARGE = 24 * MB
LINE = b"some words on a line of a large mail, again and again\r\n"
BODY = b"Subject: large\r\n\r\n" + LINE * (LARGE // len(LINE))
CLIENTS = 50
SLACK = 75 * MB
"""In addition to the limit: one copy of a mail at a time, an eighth that a growing buffer keeps in reserve, and the
buffers of fifty connections at both sides."""


@pytest.fixture(scope="module")
def sink() -> Iterator[int]:
    """The port of Postfix' smtp-sink, which reads mail and forgets it."""
    port = free_port()
    command = [require("smtp-sink", "postfix"), "-u", "nobody", "-h", "sink.test", f"127.0.0.1:{port}", "200"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            wait_until(lambda: greets(port), "smtp-sink")
            yield port
        finally:
            process.kill()


@contextlib.contextmanager
def relaying(folder: Path, sink: int, scraper: Scraper, **limits: float) -> Iterator[Daemon]:
    limits = {"memory_megabytes": MEMORY, "command_seconds": 30, "final_seconds": 80, "drain_seconds": 60, **limits}
    relay = Daemon(folder, f"smtp://127.0.0.1:{sink}", limits=limits, metrics=scraper.settings)
    with relay.run():
        yield relay


@pytest.fixture(scope="module")
def one_relay(sink: int, scraper: Scraper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with relaying(tmp_path_factory.mktemp("relay"), sink, scraper) as relay:
        yield relay


@pytest.fixture
def relay(one_relay: Daemon, scraper: Scraper) -> Iterator[Daemon]:
    """With nothing in flight, before and after."""
    wait_until(lambda: scraper.value("memory_bytes") == 0, "an empty memory")
    yield one_relay
    wait_until(lambda: scraper.value("memory_bytes") == 0, "that all memory is given back")


def begin(client: Client, size: int = 0) -> int | None:
    """The code of the last reply, to DATA if all goes well."""
    client.ask("EHLO client.test")
    parameters = f" SIZE={size}" if size else ""
    for line in (f"MAIL FROM:<a@example.org>{parameters}", "RCPT TO:<b@example.test>", "DATA"):
        code = client.ask(line).code
        if code not in (250, 354):
            break
    return code


def end(client: Client) -> int | None:
    client.say(b".\r\n")
    return client.reply().code


@contextlib.contextmanager
def held(relay: Daemon, scraper: Scraper) -> Iterator[list[Client]]:
    """Four clients that have sent a large mail but for its end."""
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(Client(relay.port)) for _ in range(4)]
        for client in clients:
            assert begin(client, len(BODY)) == 354
            client.say(BODY)
        wait_until(lambda: scraper.value("memory_bytes") >= 4 * len(BODY), "that the mails are held")
        yield clients


def test_a_declared_size_that_cannot_fit_is_refused_at_mail(relay: Daemon, scraper: Scraper) -> None:
    with held(relay, scraper) as clients:
        with Client(relay.port) as late:
            late.ask("EHLO client.test")
            late.say(b"MAIL FROM:<a@example.org> SIZE=%d\r\nRCPT TO:<b@example.test>\r\nDATA\r\n" % len(BODY))
            assert late.reply().raw == b"452 4.3.1 No room for this message now; try again later\r\n"
            assert [late.reply().code, late.reply().code] == [452, 452]  # for now, and no 503
            assert begin(late) == 354  # a small one has room
            late.say(b"Subject: small\r\n\r\nx\r\n")
            assert end(late) == 250
        assert [end(client) for client in clients] == [250] * 4
    assert_hit(relay, scraper, "memory_megabytes")


def test_room_that_was_there_at_mail_may_be_gone_at_data(relay: Daemon, scraper: Scraper) -> None:
    before = scraper.hits("memory_megabytes")
    with Client(relay.port) as late:
        late.ask("EHLO client.test")
        assert late.ask(f"MAIL FROM:<a@example.org> SIZE={len(BODY)}").code == 250
        assert late.ask("RCPT TO:<b@example.test>").code == 250
        with held(relay, scraper) as clients:
            assert late.ask("DATA").code == 452
            assert_hit(relay, scraper, "memory_megabytes", before)
            assert [end(client) for client in clients] == [250] * 4
        assert begin(late, len(BODY)) == 354  # the refused transaction is over, here and there
        late.say(BODY)
        assert end(late) == 250


def test_a_mail_that_turns_out_too_large_for_the_room_is_refused_at_its_end(relay: Daemon, scraper: Scraper) -> None:
    before = scraper.hits("memory_megabytes")
    with held(relay, scraper) as clients:
        with Client(relay.port) as late:
            assert begin(late) == 354
            late.say(BODY)
            assert end(late) == 452
            assert scraper.value("memory_bytes") < 4 * len(BODY) + MB  # of what is refused nothing is held
            assert begin(late) == 354
            late.say(b"Subject: small\r\n\r\nx\r\n")
            assert end(late) == 250
        assert [end(client) for client in clients] == [250] * 4
    assert_hit(relay, scraper, "memory_megabytes", before)


def test_who_breaks_off_gives_back_what_was_held(relay: Daemon, scraper: Scraper) -> None:
    with held(relay, scraper) as clients:
        for client in clients:
            client.reset()
        wait_until(lambda: scraper.value("memory_bytes") == 0, "that all memory is given back")


def test_a_mail_of_the_largest_size_has_room_where_it_is_alone(sink: int, tmp_path: Path) -> None:
    scraper = Scraper()
    size = 5 * MB
    with (
        relaying(tmp_path, sink, scraper, memory_megabytes=5, message_size=size) as relay,
        Client(relay.port) as client,
    ):
        for more, code in ((0, 250), (1, 552)):
            assert begin(client, size) == 354
            client.say(b"Subject: x\r\n\r\n".ljust(size + more - 2, b"x") + b"\r\n")
            assert end(client) == code
        assert scraper.hits("memory_megabytes") == 0


def highest(relay: Daemon) -> int:
    """The most memory that the process has had, in bytes."""
    status = Path(f"/proc/{relay.process.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def test_fifty_large_mails_at_once_take_no_more_than_the_limit(sink: int, tmp_path: Path) -> None:
    scraper = Scraper()
    with relaying(tmp_path, sink, scraper, data_seconds=180) as relay:
        with Client(relay.port) as client:
            assert begin(client) == 354
            client.say(b"Subject: small\r\n\r\nx\r\n")
            assert end(client) == 250
        before = highest(relay)
        together = threading.Barrier(CLIENTS)
        with ThreadPoolExecutor(CLIENTS) as pool:
            codes = list(pool.map(lambda _: offered(relay, together.wait), range(CLIENTS)))
        assert set(codes) == {250, 452}
        assert codes.count(250) <= MEMORY * MB // len(BODY)
        assert highest(relay) - before < MEMORY * MB + SLACK
        wait_until(lambda: scraper.value("memory_bytes") == 0, "that all memory is given back")
        assert scraper.hits("memory_megabytes") == codes.count(452)


def resident(relay: Daemon) -> int:
    status = Path(f"/proc/{relay.process.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) * 1024


def test_memory_of_many_mails_at_once_goes_back_to_the_system(tmp_path: Path) -> None:
    """A process that had 125 MB of mail in flight, each below half a megabyte, kept 120 MB of it; now 10 MB."""
    scraper = Scraper()
    relay = Daemon(tmp_path, f"maildir:{tmp_path / 'mail'}", relay={"workers": 1}, metrics=scraper.settings)
    with relay.run(), contextlib.ExitStack() as stack:
        before = resident(relay)
        clients = [stack.enter_context(Client(relay.port)) for _ in range(300)]
        for client in clients:
            assert begin(client) == 354
            client.say(BODY[:420_000])
        wait_until(lambda: scraper.value("memory_bytes") > 300 * 410_000, "that the mails are held")
        assert resident(relay) - before > 100 * MB
        for client in clients[::2] + clients[1::2]:
            client.say(b"\r\n")
            assert end(client) == 250
        wait_until(lambda: resident(relay) - before < 30 * MB, "that memory is given back")


def offered(relay: Daemon, wait: Callable[[], object]) -> int | None:
    """What a client hears that sends all but the end of its mail, and that when all others have."""
    with Client(relay.port) as client:
        code = begin(client)
        if code == 354:
            client.say(BODY)
        wait()
        return end(client) if code == 354 else code
