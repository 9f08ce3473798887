"""docs/lmtp.md word for word: Postfix hands mail to the relay by LMTP, and the relay hands it to Dovecot by LMTP."""

import contextlib
import os
import re
import shlex
import smtplib
import subprocess
import tomllib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from spamfilter.stores import JournalEntry, open_store
from tests.integration.dovecot import Dovecot, dovecot
from tests.integration.servers import Postfix, Relay, free_port, postfix, relay, wait_until, workshop
from tests.support.real import require

PAGE = (Path(__file__).parents[2] / "docs" / "lmtp.md").read_text(encoding="utf-8")
NAMES = ("alice@example.test", "bob@example.test", "alice+lists@example.test")
GTUBE = "XJS*C4JDBQADN1.NSBN3*2IDNEN*GTUBE-STANDARD-ANTI-UBE-TEST-EMAIL*C.34X"


def blocks(kind: str) -> str:
    """The blocks of the page of this kind, one after the other."""
    found = re.findall(rf"^ *```{kind}\n(.*?)^ *```$", PAGE, re.MULTILINE | re.DOTALL)
    return re.sub("(?m)^   ", "", "\n".join(found))


class Chain:
    """Postfix, the relay and Dovecot, as the page connects them."""

    def __init__(self, postfix: Postfix, relay: Relay, dovecot: Dovecot) -> None:
        self.postfix, self.relay, self.dovecot = postfix, relay, dovecot

    def entries(self, subject: str) -> list[JournalEntry]:
        """The journal's entries on mails of this subject."""
        with contextlib.closing(open_store(f"sqlite:///{self.relay.state / 'spamfilter.db'}")) as store:
            now = datetime.now(UTC)
            found = store.journal(now - timedelta(hours=1), now + timedelta(hours=1))
        return [entry for entry in found if entry.subject == subject]

    def mails(self, user: str, subject: str) -> list[bytes]:
        with self.dovecot.login(user) as mailboxes:
            return [mailboxes.fetch(number) for number in mailboxes.numbers("SUBJECT", f'"{subject}"')]

    def result(self, name: str, status: str) -> bool:
        """Whether Postfix has logged this of a recipient."""
        return re.search(rf"to=<{re.escape(name)}>, .*status={status}", self.postfix.log()) is not None


@pytest.fixture(scope="module")
def chain() -> Iterator[Chain]:
    with workshop() as folder, dovecot(folder / "dovecot") as mailboxes:
        port = free_port()
        text = blocks("toml").replace("/run/dovecot/lmtp", str(mailboxes.folder / "run" / "lmtp"))
        settings = tomllib.loads(text.replace("10024", str(port)))
        users = ", ".join(f"{name}=ok" for name in NAMES)
        main = f"""
            relay_domains = bulk.test
            virtual_mailbox_domains = example.test
            virtual_mailbox_maps = inline:{{ {users} }}
            virtual_transport = lmtp:unix:private/dovecot-lmtp
        """
        with (
            relay(folder / "relay", **settings) as filter,
            postfix(folder / "postfix", to=free_port(), back=0, settings=re.sub("(?m)^ +", "", main)) as server,
        ):
            run(folder / "tools", server, blocks("sh").replace("10024", str(port)))
            yield Chain(server, filter, mailboxes)


def run(tools: Path, server: Postfix, commands: str) -> None:
    """Run the page's commands, for this Postfix."""
    tools.mkdir()
    for tool in ("postconf", "postfix"):
        program = f"{require(tool, 'postfix')} -c {shlex.quote(str(server.folder / 'etc'))}"
        (tools / tool).write_text(f'#!/bin/sh\nexec {program} "$@"\n')
        (tools / tool).chmod(0o755)
    environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands],
        env=environment, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "virtual_transport = lmtp:unix:private/dovecot-lmtp" in done.stdout  # for the way back


def send(
    port: int, subject: str, text: str, *names: str, sender: str = "a@example.org"
) -> dict[str, tuple[int, bytes]]:
    with smtplib.SMTP("127.0.0.1", port) as client:
        return client.sendmail(sender, names, f"Subject: {subject}\r\n\r\n{text}\r\n".encode())


def test_a_mail_to_three_recipients_with_three_policies(chain: Chain) -> None:
    send(chain.postfix.front, "three policies", GTUBE, *NAMES)
    results = dict(zip(NAMES, ("sent", "sent", "deferred"), strict=True))
    wait_until(lambda: all(chain.result(*each) for each in results.items()), "three replies at Postfix")
    wait_until(lambda: len(chain.entries("three policies")) >= 3, "three entries of the journal")
    entries = {entry.recipients[0]: entry for entry in chain.entries("three policies")}
    assert {name: (entry.action, entry.reply[:9]) for name, entry in entries.items()} == {
        NAMES[0]: ("tag", "250 2.0.0"), NAMES[1]: ("quarantine", "250 2.0.0"), NAMES[2]: ("defer", "451 4.7.1")
    }  # fmt: skip
    (mail,) = chain.mails(NAMES[0], "three policies")
    assert b"X-Spam-Flag: YES" in mail
    assert f"X-Spamfilter-Id: {entries[NAMES[0]].id}".encode() in mail
    assert b" policy=alice@example.test" in mail
    assert chain.mails(NAMES[1], "three policies") == []
    (kept,) = (chain.relay.state / "quarantine" / "new").iterdir()
    assert entries[NAMES[1]].id in kept.name
    assert b"X-Spamfilter-Recipients: <bob@example.test>\n" in kept.read_bytes()


def test_good_mail_and_a_rule_for_one_recipient(chain: Chain) -> None:
    send(chain.postfix.front, "an offer", "Nothing of it is spam.", *NAMES, sender="x@offers.example")
    wait_until(lambda: len(chain.entries("an offer")) >= 3, "three entries of the journal")
    assert {entry.recipients[0]: (entry.action, entry.listed) for entry in chain.entries("an offer")} == {
        NAMES[0]: ("pass", ""), NAMES[1]: ("pass", ""), NAMES[2]: ("defer", "blocked=offers.example rule=config")
    }  # fmt: skip
    assert [len(chain.mails(name, "an offer")) for name in NAMES[:2]] == [1, 1]


def test_a_client_of_smtp_in_front_of_dovecot_sends_to_one_recipient_at_a_time(chain: Chain) -> None:
    left = send(chain.relay.port, "one by one", "Lunch?", *NAMES[:2])
    assert list(left) == [NAMES[1]]
    assert left[NAMES[1]][0] == 452
    assert send(chain.relay.port, "one by one", "Lunch?", *left) == {}
    assert [len(chain.mails(name, "one by one")) for name in NAMES[:2]] == [1, 1]
    with pytest.raises(smtplib.SMTPRecipientsRefused, match=r"550.*5\.1\.1"):
        send(chain.relay.port, "one by one", "Lunch?", "nobody@example.test")
