"""kill -9 and SIGTERM at every phase of a message, and once more while the relay ends."""

import os
import signal
import time
from pathlib import Path

import pytest

from tests.faults.account import Account
from tests.faults.client import mail_of
from tests.faults.daemon import Daemon, daemon
from tests.faults.databases import journalled
from tests.faults.fault import Hold
from tests.faults.hop import Hop
from tests.integration.servers import wait_until
from tests.support.doors import EACH_DOOR, EACH_RELAYING_DOOR

BEFORE_THE_DOT = {"MAIL": "before MAIL", "DATA": "after RCPT", "BODY": "after DATA", "MIDDLE": "in the mail"}
"""Stages of `deliver`, and what they are called here."""
SIGNALS = [signal.SIGKILL, signal.SIGTERM]


def await_draining(server: Daemon) -> None:
    wait_until(lambda: "stopping: running transactions finish" in server.log(), "the end to begin")


@EACH_DOOR
@pytest.mark.parametrize("stage", BEFORE_THE_DOT, ids=BEFORE_THE_DOT.values())
def test_kill_9_before_the_dot_leaves_the_message_with_the_client(
    hop: Hop, relay: Daemon, account: Account, stage: str
) -> None:
    name = account.name()

    def kill(now: str) -> None:
        if now == stage:
            relay.kill()

    with relay.connect() as client:
        answer = client.deliver(mail_of(name), before=kill)
    assert account.note(name, answer).code is None
    relay.start()
    account.finish(relay.port)


@EACH_DOOR
@pytest.mark.parametrize("stage", BEFORE_THE_DOT, ids=BEFORE_THE_DOT.values())
def test_sigterm_lets_a_transaction_finish_and_turns_a_new_one_away(
    hop: Hop, relay: Daemon, account: Account, stage: str
) -> None:
    name = account.name()

    def terminate(now: str) -> None:
        if now == stage:
            relay.process.send_signal(signal.SIGTERM)
            await_draining(relay)

    with relay.connect() as client:
        answer = account.note(name, client.deliver(mail_of(name), before=terminate))
        assert answer.code == (client.turned_away if stage == "MAIL" else 250)
        if answer.code == 250:
            assert client.reply().code == client.turned_away
    assert relay.ended() == 0
    relay.start()
    account.finish(relay.port)


@EACH_RELAYING_DOOR
@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
@pytest.mark.parametrize("said", [False, True], ids=["while the next hop thinks", "between its 250 and ours"])
def test_a_signal_after_the_dot(hop: Hop, relay: Daemon, account: Account, number: signal.Signals, said: bool) -> None:
    hop.faults["DOT"] = hold = Hold()
    killed = number == signal.SIGKILL
    name = account.name(doubtful=killed)
    with relay.connect() as client:

        def meanwhile(now: str) -> None:
            if now != "ANSWER":
                return
            assert hold.reached.wait(20)
            os.killpg(relay.process.pid, signal.SIGSTOP)  # what the next hop says cannot be passed on
            if said:
                hold.release.set()
                wait_until(lambda: bool(hop.copies(name)), "the next hop to take the message")
            if killed:
                relay.kill()
            else:
                relay.process.send_signal(number)
                os.killpg(relay.process.pid, signal.SIGCONT)
                await_draining(relay)
            hold.release.set()

        answer = account.note(name, client.deliver(mail_of(name), before=meanwhile))
    assert answer.code == (None if killed else 250)
    assert relay.ended() == (-signal.SIGKILL if killed else 0)
    wait_until(lambda: bool(hop.copies(name)), "the next hop to take the message")
    hop.heal()
    relay.start()
    account.finish(relay.port)


def test_a_next_hop_that_thinks_longer_than_the_drain_time_does_not_keep_the_relay_from_ending(
    hop: Hop, tmp_path: Path, account: Account
) -> None:
    hop.faults["DOT"] = hold = Hold()
    limits = {"drain_seconds": 0.5, "final_seconds": 20.0}
    with daemon(tmp_path / "relay", hop, limits=limits) as relay:
        name = account.name(doubtful=True)
        with relay.connect() as client:

            def terminate(now: str) -> None:
                if now == "ANSWER":
                    assert hold.reached.wait(20)
                    relay.process.send_signal(signal.SIGTERM)

            answer = account.note(name, client.deliver(mail_of(name), before=terminate))
        assert answer.code in (None, 421, 451)
        assert relay.ended() == 0
        assert "Traceback" not in relay.log()
        hop.heal()
        relay.start()
        account.finish(relay.port)


def test_a_signal_that_comes_again_and_again_does_not_cut_the_end_short(
    hop: Hop, tmp_path: Path, account: Account
) -> None:
    with daemon(tmp_path / "relay", hop) as relay:
        assert account.send(relay.port).code == 250
        while relay.running:
            relay.process.send_signal(signal.SIGTERM)
            time.sleep(0.02)
        assert relay.ended() == 0
        assert relay.log().endswith("INFO stopped\n")
        assert journalled(relay.database) == set(relay.ids())
        relay.start()
        account.finish(relay.port)
    assert relay.problems() == []
