"""A relay that gets no further threads: what it does not do before its reply, it does not do after it."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.faults.account import Account
from tests.faults.daemon import Daemon
from tests.faults.hop import MaildirHop
from tests.faults.test_machine import MEGABYTE, little_memory

THREADLESS = 3 * MEGABYTE
"""Less than the stack of a thread, and more than small mails need."""
CROWD = 20
"""Clients at a time: more than asyncio's pool has threads on a host of few processors."""


def test_a_mail_that_is_deferred_is_not_in_the_maildir(tmp_path: Path) -> None:
    """Python's own pool of threads raises, and yet does the work later."""
    account = Account(MaildirHop(tmp_path / "mail"))
    relay = Daemon(tmp_path / "relay", f"maildir:{tmp_path / 'mail'}", relay={"workers": 1})
    relay.start()
    try:
        with little_memory(relay, THREADLESS), ThreadPoolExecutor(CROWD) as clients:
            codes = [*clients.map(lambda _: account.send(relay.port).code, range(5 * CROWD))]
        assert {*codes} <= {250, 421, 451, 452}
        assert account.send(relay.port).code == 250
        account.finish(relay.port)
    finally:
        relay.kill()  # its log may have a traceback, if for once
