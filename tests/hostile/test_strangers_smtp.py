"""Clients from outside the trusted networks: they may send to our domains, and nothing else.

A real Postfix that trusts us is behind, so that it would relay whatever came through: what holds it back is us. For a
client that we trust, Postfix decides, and the client hears its words.
"""

import socket
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

import pytest

from tests.faults.client import Client
from tests.hostile.chain_smtp import codes, heard
from tests.integration.servers import Postfix, Relay, Sink, free_port, postfix, relay, sink, wait_until, workshop
from tests.support.doors import DOORS, RELAYING

STRANGER, FRIEND = "127.0.0.1", "127.0.0.9"
KELVIN = "\N{KELVIN SIGN}"
SPELLINGS = {
    "plain": "<victim@elsewhere.test>",
    "without brackets": "victim@elsewhere.test",
    "blank before the bracket": " <victim@elsewhere.test>",
    "upper case": "<VICTIM@ELSEWHERE.TEST>",
    "percent": "<victim%elsewhere.test@example.test>",
    "percent twice": "<victim%elsewhere.test%example.test@example.test>",
    "percent to an unknown domain": "<victim%example.test@elsewhere.test>",
    "bang": "<elsewhere.test!victim@example.test>",
    "bang without domain": "<elsewhere.test!victim>",
    "bang behind ours": "<example.test!victim@elsewhere.test>",
    "quoted": '<"victim@elsewhere.test"@example.test>',
    "quoted with a bang": '<"elsewhere.test!victim"@example.test>',
    "quoted at sign": "<victim\\@elsewhere.test@example.test>",
    "half quoted": '<"victim"@elsewhere.test@example.test>',
    "quoted bracket": '<"victim>"@elsewhere.test>',
    "source route through us": "<@example.test:victim@elsewhere.test>",
    "source route through us twice": "<@example.test,@example.test:victim@elsewhere.test>",
    "source route elsewhere": "<@elsewhere.test:alice@example.test>",
    "two at signs": "<victim@elsewhere.test@example.test>",
    "two at signs, ours first": "<victim@example.test@elsewhere.test>",
    "trailing dot": "<victim@elsewhere.test.>",
    "trailing dot behind ours": "<alice@example.test.>",
    "leading dot": "<alice@.example.test>",
    "empty domain": "<victim@>",
    "empty local part": "<@elsewhere.test>",
    "empty local part of ours": "<@example.test>",
    "a domain called postmaster": "<@postmaster>",
    "no domain": "<victim>",
    "nothing": "<>",
    "address literal": "<victim@[127.0.0.1]>",
    "address literal of IPv6": "<victim@[IPv6:::1]>",
    "address": "<victim@127.0.0.1>",
    "subdomain": "<alice@sub.example.test>",
    "ours as a subdomain": "<alice@example.test.elsewhere.test>",
    "ours as an ending": "<alice@elsewhere-example.test>",
    "another letter": f"<alice@{KELVIN}iosk.test>",
    "full width": "<alice@\N{FULLWIDTH LATIN SMALL LETTER E}xample.test>",
    "ideographic dot": "<alice@example\N{IDEOGRAPHIC FULL STOP}test>",
    "group": "<list:victim@elsewhere.test;>",
    "group of ours": "<victim@elsewhere.test;@example.test>",
    "list": "<victim@elsewhere.test,alice@example.test>",
    "list behind ours": "<alice@example.test,victim@elsewhere.test>",
    "two brackets": "<victim@elsewhere.test>,<alice@example.test>",
    "two brackets, ours first": "<alice@example.test>,<victim@elsewhere.test>",
    "a second address as parameter": "<alice@example.test> <victim@elsewhere.test>",
    "an address as parameter": "<alice@example.test> victim@elsewhere.test",
    "text behind the bracket": "<alice@example.test>victim@elsewhere.test",
    "brackets in brackets": "<<victim@elsewhere.test>@example.test>",
    "open bracket": "<victim@elsewhere.test",
    "comment": "<victim@elsewhere.test(@example.test)>",
    "comment before": "<(alice@example.test)victim@elsewhere.test>",
    "comment for a domain": "<victim@elsewhere.test (@example.test>",
    "control character": "<victim@elsewhere.test\0@example.test>",
    "tab": "<victim@elsewhere.test\t@example.test>",
    "carriage return": "<alice@example.test>\rRCPT TO:<victim@elsewhere.test>",
    "cut off by the next hop": f"<victim@elsewhere.test>{' ' * 2100}@example.test>",
    "behind what the next hop reads": f"<alice@example.test>{' ' * 2020}RCPT TO:<victim@elsewhere.test>",
}
"""Ways to write a recipient elsewhere, or one that is not ours, which have fooled relays."""
FEEDBACK = {
    "plain": "<spam@example.test>",
    "upper case": "<SPAM@EXAMPLE.TEST>",
    "quoted": '<"spam"@example.test>',
    "escaped": '<"s\\pam"@example.test>',
    "source route": "<@elsewhere.test:spam@example.test>",
    "without brackets": "spam@example.test",
    "ham": "<ham@example.test>",
}
MAIL = b"From: a@example.test\r\nDate: Thu, 1 Jan 2026 00:00:00 +0000\r\nMessage-ID: <1@x>\r\nSubject: hi\r\n\r\nhi\r\n"


@dataclass(frozen=True)
class Place:
    relay: Relay
    postfix: Postfix
    sink: Sink
    doors: dict[str, int]

    def talk(
        self, *lines: str, source: str = STRANGER, sender: str = "a@example.test", port: int = 0, door: str = "smtp"
    ) -> list[bytes]:
        """The replies to these lines after a greeting and MAIL; with DATA among them, a mail follows."""
        dialogue = [f"{DOORS[door].client.hello} client.test", f"MAIL FROM:<{sender}>", *lines, "QUIT"]
        raw = b"".join(line.encode() + b"\r\n" + (MAIL + b".\r\n" if line == "DATA" else b"") for line in dialogue)
        return heard(port or self.doors[door], [raw], source)[3:-1]

    def learnt(self) -> int:
        with closing(sqlite3.connect(self.relay.folder / "state" / "spamfilter.db")) as database:
            return int(database.execute("SELECT count(*) FROM ledger").fetchone()[0])

    def clients_of(self, sender: str) -> list[str]:
        """Whose mail the journal takes the mails of a sender for."""
        with closing(sqlite3.connect(self.relay.folder / "state" / "spamfilter.db")) as database:
            rows = database.execute("SELECT client FROM journal WHERE sender = ?", (sender,)).fetchall()
        return [str(row[0]) for row in rows]


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    with workshop() as folder, sink() as end:
        back = free_port()
        doors = {name: free_port() for name in RELAYING}
        settings = {
            **{DOORS[name].listen: [f"127.0.0.1:{port}"] for name, port in doors.items()},
            "next_hop": f"smtp://127.0.0.1:{back}",
            "submission": ["127.0.0.1:0"],
            "trusted": [f"{FRIEND}/32"],
            "domains": ["example.test", "kiosk.test"],
        }
        feedback = {"spam_addresses": ["spam@example.test"], "ham_addresses": ["ham@example.test"]}
        with (
            relay(folder / "relay", relay=settings, feedback=feedback) as filter,
            postfix(folder / "postfix", to=end.port, back=back, proxy=filter.port) as server,
        ):
            wait_until(lambda: len(filter.ports) == 2, "the submission port")
            yield Place(filter, server, end, doors)


@pytest.mark.parametrize("door", RELAYING)
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_recipient_elsewhere_is_refused_however_it_is_written(place: Place, spelling: str, door: str) -> None:
    """Refused for good, while the mail goes to whom it may; the next hop never hears of the other."""
    earlier = len(place.sink.received)
    replies = place.talk("RCPT TO:<alice@example.test>", f"RCPT TO:{SPELLINGS[spelling]}", "DATA", door=door)
    assert [code // 100 for code in codes(replies)] == [2, 5, 3, 2], replies
    mail = place.sink.wait(earlier + 1)[earlier]
    assert mail.recipients == ["alice@example.test"]
    assert "elsewhere" not in place.postfix.log()


def test_on_the_submission_port_a_stranger_relays_no_more_than_elsewhere(place: Place) -> None:
    """Whom the mail server in front has authenticated it hands over from a trusted address."""
    submission = place.relay.ports[1]
    assert codes(place.talk("RCPT TO:<victim@elsewhere.test>", port=submission)) == [554]


def test_parameters_name_nobody_else(place: Place) -> None:
    """ORCPT is what the sender first wrote: it goes on, and changes no recipient."""
    earlier = len(place.sink.received)
    line = "RCPT TO:<alice@example.test> NOTIFY=NEVER ORCPT=rfc822;victim@orcpt.test"
    assert codes(place.talk(line, "DATA")) == [250, 354, 250]
    assert place.sink.wait(earlier + 1)[earlier].recipients == ["alice@example.test"]


@pytest.mark.parametrize("spelling", ["percent", "bang", "quoted", "source route through us", "address literal"])
def test_for_a_trusted_client_the_next_hop_decides(place: Place, spelling: str) -> None:
    replies = []
    for port in (place.relay.ports[0], place.postfix.back):
        with Client(port, socket.create_connection(("127.0.0.1", port), source_address=(FRIEND, 0))) as client:
            client.ask("EHLO client.test")
            assert client.ask("MAIL FROM:<a@example.test>").code == 250
            replies.append(client.ask(f"RCPT TO:{SPELLINGS[spelling]}").raw)
    assert replies[0] == replies[1] != b""


@pytest.mark.parametrize(
    "command",
    ["XFORWARD ADDR=127.0.0.9", "xforward name=friend addr=127.0.0.9 source=LOCAL", "XCLIENT ADDR=127.0.0.9"],
)
def test_a_stranger_speaks_for_nobody(place: Place, command: str) -> None:
    port, sender = place.relay.ports[0], f"{len(command)}@example.test"
    lines = ["EHLO c", command, f"MAIL FROM:<{sender}>", "RCPT TO:<alice@example.test>", "DATA"]
    raw = "".join(f"{line}\r\n" for line in lines).encode() + MAIL + b".\r\nQUIT\r\n"
    replies = heard(port, [raw], STRANGER)
    assert b"XFORWARD" not in replies[1]
    assert codes(replies)[2:] == [550 if "orward" in command.lower() else 500, 250, 250, 354, 250, 221]
    wait_until(lambda: bool(place.clients_of(sender)), "the mail in the journal")
    assert place.clients_of(sender) == [STRANGER]


@pytest.mark.parametrize("door", RELAYING)
@pytest.mark.parametrize("spelling", FEEDBACK)
def test_a_stranger_teaches_nothing(place: Place, spelling: str, door: str) -> None:
    replies = place.talk(f"RCPT TO:{FEEDBACK[spelling]}", "DATA", door=door)
    assert codes(replies)[0] // 100 == 5, replies
    assert codes(replies)[1] == 554
    assert place.learnt() == 0
    assert "spam@example" not in place.postfix.log()


def test_nor_does_one_for_whom_a_trusted_client_speaks(place: Place) -> None:
    port = place.relay.ports[0]
    lines = [
        "EHLO c",
        "XFORWARD ADDR=198.51.100.7",
        "MAIL FROM:<a@example.test>",
        "RCPT TO:<spam@example.test>",
        "QUIT",
    ]
    raw = "".join(f"{line}\r\n" for line in lines).encode()
    assert codes(heard(port, [raw], FRIEND))[2:] == [250, 250, 550, 221]


def test_a_trusted_client_may_teach(place: Place) -> None:
    """The refusals above are for want of trust, and not of a feedback address."""
    assert codes(place.talk("RCPT TO:<spam@example.test>", source=FRIEND)) == [250]
