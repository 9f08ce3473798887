"""A next hop that is down, slow, breaks off, talks nonsense or refuses, at every stage and at every byte."""

from collections.abc import Iterator

import pytest

from tests.faults.account import Account
from tests.faults.client import mail_of
from tests.faults.daemon import Daemon, daemon
from tests.faults.fault import Break, Cut, Drip, Say
from tests.faults.hop import Hop
from tests.support.doors import EACH_RELAYING_DOOR, Door

STAGES = ["CONNECT", "EHLO", "MAIL", "RCPT", "DATA", "BODY", "DOT"]
ENDS = ["close", "reset", "half", "hang"]


@pytest.fixture(scope="module")
def one_relay(one_hop: Hop, door: Door, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """With limits that are lower still, since here each of them is reached again and again; yet a next hop that
    behaves keeps them on a busy machine, too.
    """
    limits = {"connect_seconds": 2.0, "command_seconds": 2.0, "final_seconds": 3.0}
    with daemon(tmp_path_factory.mktemp("relay"), one_hop, door=door, limits=limits) as server:
        yield server


@EACH_RELAYING_DOOR
def test_a_next_hop_that_is_down(hop: Hop, relay: Daemon, account: Account) -> None:
    hop.down()
    answer = account.send(relay.port)
    assert (answer.code, answer.raw[:9]) == (451, b"451 4.4.1")
    hop.up()
    account.finish(relay.port)


@EACH_RELAYING_DOOR
def test_a_next_hop_that_goes_down_while_connections_to_it_are_kept(hop: Hop, relay: Daemon, account: Account) -> None:
    assert account.send(relay.port).code == 250
    hop.down()
    assert account.send(relay.port).code == 451
    hop.up()
    account.finish(relay.port)


@EACH_RELAYING_DOOR
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("stage", STAGES)
def test_a_next_hop_that_ends_the_conversation(hop: Hop, relay: Daemon, account: Account, stage: str, end: str) -> None:
    hop.faults[stage] = Break(end, after=3)  # type: ignore[arg-type]  # of ENDS
    answer = account.send(relay.port)
    assert answer.code == 451
    hop.heal()
    account.finish(relay.port)


@EACH_RELAYING_DOOR
@pytest.mark.parametrize("end", ENDS)
def test_a_next_hop_that_has_taken_the_message_and_cannot_say_so(
    hop: Hop, relay: Daemon, account: Account, end: str
) -> None:
    hop.faults["DOT"] = Break(end, after=3, keeps=True)  # type: ignore[arg-type]  # of ENDS
    assert account.send(relay.port, doubtful=True).code == 451
    if end == "hang":
        assert "no reply to the message within 3 s" in relay.log()
    hop.heal()
    account.finish(relay.port)


@EACH_RELAYING_DOOR
def test_a_next_hop_that_breaks_off_at_each_byte_that_it_says(hop: Hop, relay: Daemon, account: Account) -> None:
    assert account.send(relay.port).code == 250
    hop.hang_up()
    whole, last = hop.sent, len(b"250 2.0.0 kept\r\n")
    for sent in range(whole):
        hop.cut = Cut("reset" if sent % 2 else "close", sent=sent)
        # What was taken before its reply broke off is the honest exception.
        assert account.send(relay.port, doubtful=sent >= whole - last).code == 451, sent
        hop.hang_up()
    hop.heal()
    account.finish(relay.port)


def test_a_next_hop_that_breaks_off_at_each_byte_that_it_hears(hop: Hop, relay: Daemon, account: Account) -> None:
    name = account.name()
    assert account.send(relay.port, name).code == 250
    hop.hang_up()
    for received in range(hop.received):
        hop.cut = Cut("reset" if received % 2 else "close", received=received)
        assert account.send(relay.port).code == 451, received
        hop.hang_up()
    hop.heal()
    account.finish(relay.port)


@EACH_RELAYING_DOOR
@pytest.mark.parametrize("stage", ["CONNECT", "EHLO", "MAIL", "RCPT", "DATA", "DOT"])
def test_a_next_hop_that_is_slow_within_the_limits_gets_its_mail(
    hop: Hop, relay: Daemon, account: Account, stage: str
) -> None:
    hop.faults[stage] = Drip(0.002)
    assert account.send(relay.port).code == 250
    account.settle()


def test_a_next_hop_that_does_not_read(hop: Hop, relay: Daemon, account: Account) -> None:
    """More than what the kernel's buffers hold, so that the relay cannot even send it all."""
    hop.faults["BODY"] = Break("hang")
    hop.faults["DATA"] = Say(b"354 go on\r\n")
    name = account.name()
    with relay.connect() as client:
        answer = account.note(name, client.deliver(mail_of(name, "0123456789abcdef\r\n" * 1_000_000)))
    assert answer.code == 451
    hop.heal()
    account.finish(relay.port)


GARBAGE = {
    "not SMTP": b"HTTP/1.1 400 Bad Request\r\n",
    "zeros": b"\0" * 60 + b"\r\n",
    "bytes that are no text": bytes(range(128, 256)) + b"\r\n",
    "an empty line": b"\r\n",
    "a line without end": b"250 " + b"x" * 100_000,
    "a reply without end": b"250-x\r\n" * 100_000,
    "two codes in one reply": b"250-ok\r\n550 no\r\n",
    "a code out of range": b"999 what\r\n",
    "a code of one digit": b"2\r\n",
    "a code in other digits": "\N{FULLWIDTH DIGIT TWO}50 ok\r\n".encode(),
    "a positive code and a letter": b"250ok\r\n",
    "a code before its time": b"354 go on\r\n",
}
LATE = {**GARBAGE, "a code before its time": b"150 wait\r\n"}


@EACH_RELAYING_DOOR
@pytest.mark.parametrize("reply", GARBAGE)
@pytest.mark.parametrize("stage", ["CONNECT", "EHLO", "MAIL", "RCPT", "DATA", "DOT"])
def test_a_next_hop_that_talks_nonsense(hop: Hop, relay: Daemon, account: Account, stage: str, reply: str) -> None:
    hop.faults[stage] = Say((LATE if stage in ("EHLO", "DATA") else GARBAGE)[reply])
    assert account.send(relay.port).code == 451
    hop.heal()
    account.finish(relay.port)


def test_a_next_hop_that_says_250_before_it_has_the_message(hop: Hop, relay: Daemon, account: Account) -> None:
    hop.faults["DATA"] = Say(b"354 go on\r\n250 2.0.0 kept\r\n")
    hop.faults["DOT"] = Break("close")
    assert account.send(relay.port).code == 451
    hop.heal()
    account.finish(relay.port)


@pytest.mark.parametrize("stage", ["EHLO", "MAIL", "RCPT"])
def test_a_next_hop_that_says_250_twice(hop: Hop, relay: Daemon, account: Account, stage: str) -> None:
    hop.faults[stage] = Say(b"250 ok\r\n250 ok\r\n")
    hop.faults["DOT"] = Say(b"554 5.6.0 no\r\n")
    assert (account.send(relay.port).code or 0) >= 400
    account.settle()


# Refusals, which are passed on as they came

REPLIES = {
    "4xx": b"451 4.7.1 greylisted\r\n",
    "5xx": b"550 5.7.1 no\r\n",
    "many lines": b"452-4.3.1 the disk is full,\r\n452-4.3.1 and so is\r\n452 4.3.1 the queue\r\n",
    "UTF-8": "550-5.1.1 unbekannter Empfänger\r\n550 5.1.1 受信者不明\r\n".encode(),
    "bytes that are no text": b"554 5.6.0 \xff\xfe\r\n",
    "a code alone": b"554\r\n",
    "very long": b"550-" + b"x" * 4000 + b"\r\n550 end\r\n",
}


@EACH_RELAYING_DOOR
@pytest.mark.parametrize("reply", REPLIES)
@pytest.mark.parametrize("stage", ["MAIL", "RCPT", "DATA", "DOT"])
def test_a_refusal_comes_back_verbatim(hop: Hop, relay: Daemon, account: Account, stage: str, reply: str) -> None:
    hop.faults[stage] = Say(REPLIES[reply])
    name = account.name()
    with relay.connect() as client:
        client.ask(f"{client.hello} client.test")
        heard = [client.ask("MAIL FROM:<a@example.org>"), client.ask("RCPT TO:<b@example.test>")]
        heard.append(client.ask("DATA"))
        if heard[-1].code == 354:
            client.say(mail_of(name) + b".\r\n")
            heard.append(client.reply())
    place = {"MAIL": 0, "RCPT": 1, "DATA": 3, "DOT": 3}[stage]
    assert account.note(name, heard[place]).raw == REPLIES[reply]
    account.settle()


@EACH_RELAYING_DOOR
@pytest.mark.parametrize("stage", ["CONNECT", "EHLO", "MAIL", "RCPT", "DATA", "DOT"])
def test_a_next_hop_that_says_421_in_mid_session(hop: Hop, relay: Daemon, account: Account, stage: str) -> None:
    hop.faults[stage] = Say(b"421 4.3.2 shutting down\r\n")
    assert account.send(relay.port).code in (421, 451)
    hop.heal()
    account.finish(relay.port)


@EACH_RELAYING_DOOR
@pytest.mark.parametrize("code", [450, 550])
def test_one_recipient_of_three_is_refused(hop: Hop, relay: Daemon, account: Account, code: int) -> None:
    names = ("b@example.test", "gone@example.test", "c@example.test")
    hop.faults["RCPT TO:<gone@example.test>"] = Say(f"{code} sorry\r\n".encode())
    answer = account.send(relay.port, recipients=names)
    assert (answer.code, answer.recipients) == (250, (names[0], names[2]))
    account.settle()
