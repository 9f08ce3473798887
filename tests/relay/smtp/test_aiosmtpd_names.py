"""The private names that server.py uses: if a release of aiosmtpd or Python changes one, a test here names it."""

import asyncio
import inspect
import re
from importlib.metadata import requires
from pathlib import Path

import pytest
from aiosmtpd.smtp import SMTP

from spamfilter.relay import smtp
from spamfilter.relay.smtp.server import BLOCK, HOOKS, PRIVATE
from tests.fuzzing.wires import Transport

THEIRS = inspect.getsource(SMTP)


def connected() -> SMTP:
    """aiosmtpd's own, with a connection."""
    made = SMTP(HOOKS, hostname="here.test", loop=asyncio.get_running_loop())
    made.connection_made(Transport(made))
    return made


@pytest.mark.parametrize("name", PRIVATE)
async def test_the_name_is_there_in_a_server_with_a_connection(name: str) -> None:
    value: object = connected()
    for part in name.split("."):
        value = inspect.getattr_static(value, part) if part not in vars(value) else vars(value)[part]
    assert value is not None or name in ("_proxy_timeout",)


@pytest.mark.parametrize(
    ("use", "why"),
    [
        ("self._handle_client()", "a connection begins its session by it"),
        ("self._reader.readuntil()", "commands are read from it"),
        ("self._reader._buffer.clear()", "what was pipelined behind STARTTLS is dropped"),
        ("self._smtp_methods.get(command)", "a command is looked up by it, once"),
        ("self._reset_timeout()", "is called before each command"),
        ("self._timeout_handle.cancel()", "is all that is asked of the timer"),
        ("if self._proxy_timeout is not None:", "is looked at when the session begins"),
        ("while self.transport is not None:", "ends a session where it is None"),
        ('self._call_handler_hook("PROXY", self.session.proxy_data)', "tells us of a PROXY header"),
    ],
)
def test_the_name_is_used_as_ours_relies_on(use: str, why: str) -> None:
    assert use in THEIRS, why


async def test_what_is_read_waits_in_one_buffer_that_may_be_changed() -> None:
    reader = asyncio.StreamReader(limit=BLOCK)
    buffer = vars(reader)["_buffer"]
    reader.feed_data(b"one\r\ntwo\r\n")
    assert await reader.readuntil() == b"one\r\n"
    assert vars(reader)["_buffer"] is buffer
    buffer[:0] = b"zero\r\n"
    assert await reader.readuntil() == b"zero\r\n"


@pytest.mark.parametrize("module", ["client", "dialogue", "incoming"])
def test_no_other_module_knows_such_a_name(module: str) -> None:
    source = (Path(smtp.__file__).parent / f"{module}.py").read_text(encoding="utf-8")
    theirs = THEIRS + inspect.getsource(asyncio.StreamReaderProtocol)
    known = set(re.findall(r"self\.(_\w+)", theirs)) & set(re.findall(r"\.(_\w+)", source))
    assert known == set()


def test_no_release_is_installed_that_was_not_looked_at() -> None:
    assert [line for line in requires("spamfilter") or [] if line.startswith("aiosmtpd")] == ["aiosmtpd<1.5,>=1.4.6"]
