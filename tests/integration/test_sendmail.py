"""The sample of docs/milter.md for Sendmail, with a real one: each action, the relay away, no mail lost or doubled."""

import os
import re
import smtplib
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from spamfilter.system.packaged_files import shipped
from tests.integration.servers import (
    Relay,
    Sink,
    await_start,
    end,
    free_port,
    greets,
    relay,
    sink,
    smtp_source,
    wait_until,
    workshop,
)
from tests.support.real import missing, require, require_root

PAGE = (Path(__file__).parents[2] / "docs" / "milter.md").read_text(encoding="utf-8")
SAMPLE = "config/sendmail/milter/sendmail.mc.fragment"
MAILS, SESSIONS = 100, 10
TRIED_AGAIN = 1
"""Seconds after which the queue is looked through."""
MAIN = """\
include(`{macros}/m4/cf.m4')dnl
OSTYPE(`linux')dnl
define(`confDOMAIN_NAME', `mail.test')dnl
define(`QUEUE_DIR', `{folder}/queue')dnl
define(`ALIAS_FILE', `')dnl
define(`STATUS_FILE', `')dnl
define(`HELP_FILE', `')dnl
define(`confCT_FILE', `')dnl
define(`confPID_FILE', `{folder}/pid')dnl
define(`confTO_IDENT', `0')dnl
define(`confSERVICE_SWITCH_FILE', `{folder}/names')dnl
define(`confDONT_PROBE_INTERFACES', `True')dnl
define(`SMART_HOST', `relay:[127.0.0.1]')dnl
define(`RELAY_MAILER_ARGS', `TCP $h {sink}')dnl
FEATURE(`promiscuous_relay')dnl
FEATURE(`accept_unresolvable_domains')dnl
FEATURE(`nocanonify')dnl
FEATURE(`no_default_msa')dnl
DAEMON_OPTIONS(`Name=MTA, Family=inet, Addr=127.0.0.1, Port={front}')dnl
{sample}
MAILER(`smtp')dnl
"""


@dataclass
class Chain:
    """Client -> Sendmail on the port `front`, which asks the relay -> sink."""

    folder: Path
    front: int
    relay: Relay
    sink: Sink
    settings: dict[str, dict[str, object]]

    def change(self, **verdict: object) -> None:
        """Change [verdict] of the running relay."""
        self.relay.configure(self.settings | {"verdict": verdict})

    def send(self, subject: str) -> str:
        """Send a mail that forges one of our fields; the reply."""
        text = f"Subject: {subject}\r\nX-Spam-Status: No, forged\r\n\r\nGood day,\r\n"
        with smtplib.SMTP("127.0.0.1", self.front, "client.test", timeout=60) as client:
            client.ehlo()
            code, reply = client.mail("sender@example.org")
            if code == 250:
                client.rcpt("alice@example.test")
                code, reply = client.data(text)
            return f"{code} {reply.decode()}"

    def queued(self) -> int:
        """How many mails wait in the queue."""
        return len([*(self.folder / "queue").glob("qf*")])

    def arrived(self, subject: str) -> list[bytes]:
        return [mail.mail for mail in self.sink.received if mail.values("Subject") == [subject]]


def sendmail(folder: Path, sample: str, to: int) -> tuple[int, list[str]]:
    """Configure it in a folder; its port to the world, and the command that starts it."""
    root = Path(os.environ.get("SPAMFILTER_SENDMAIL", "/"))
    program, macros = root / "usr/libexec/sendmail/sendmail", root / "usr/share/sendmail/cf"
    if not (program.exists() and macros.exists()):
        missing(f"{program} is not installed: apt-get install sendmail-bin sendmail-cf")
    require_root("Sendmail reads another configuration than its own only for root")
    (folder / "queue").mkdir(mode=0o700)
    (folder / "names").write_text("hosts files\naliases files\n")  # no test asks a name server
    front = free_port()
    written = MAIN.format(macros=macros, folder=folder, sink=to, front=front, sample=sample)
    command = [require("m4", "m4"), f"-D_CF_DIR_={macros}/", "-"]
    made = subprocess.run(command, input=written, capture_output=True, text=True, check=True)
    (folder / "sendmail.cf").write_text(made.stdout)
    # A host without a full name of its own it asks about once more, a minute later.
    named = ["unshare", "--uts", "sh", "-c", 'hostname mail.test && exec "$0" "$@"']
    return front, [*named, str(program), "-C", str(folder / "sendmail.cf"), "-bD", f"-q{TRIED_AGAIN}s"]


@contextmanager
def connected() -> Iterator[Chain]:
    assert SAMPLE in re.findall(r"sample-config (\S+)", PAGE)
    milter, back = free_port(), free_port()
    sample = shipped(SAMPLE).read_text().replace("10027", str(milter)).replace("10026", str(back))
    own: dict[str, object] = {"milter": [f"127.0.0.1:{milter}"], "next_hop": f"smtp://127.0.0.1:{back}"}
    own |= {"mode": "before-queue", "listen": ["127.0.0.1:0"]}
    with (
        workshop() as folder,
        sink() as to,
        relay(folder / "relay", relay=own, verdict={"reject_after": 0}) as filter,
    ):
        front, command = sendmail(folder, sample, to.port)
        output = folder / "output"
        with output.open("wb") as file:
            process = subprocess.Popen(command, stdout=file, stderr=file, start_new_session=True)
        try:
            await_start(process, lambda: greets(front) and greets(back), output.read_text)
            yield Chain(folder, front, filter, to, {"relay": own})
        finally:
            process.terminate()
            end(process)


@pytest.fixture(scope="module")
def chain() -> Iterator[Chain]:
    with connected() as made:
        yield made


def test_mail_passes_marked_and_forged_fields_are_gone(chain: Chain) -> None:
    chain.change(reject_after=0, on_unsure="tag", subject_prefix="[SPAM]")
    reply = chain.send("marked")
    queue_id = re.fullmatch(r"250 2\.0\.0 (\S+) Message accepted for delivery", reply)
    assert queue_id
    wait_until(lambda: bool(chain.arrived("[SPAM] marked")), "the mail")
    (mail,) = chain.arrived("[SPAM] marked")
    assert mail.count(b"X-Spam-Status: ") == mail.count(b"X-Spam-Status: No, score=0.500 class=unsure") == 1
    assert mail.endswith(b"\r\n\r\nGood day,\r\n")
    assert f"queue id {queue_id[1]}" in chain.relay.log()


def test_rejected_and_deferred_mail_stays_with_its_client(chain: Chain) -> None:
    chain.change(reject_after=0, on_unsure="reject")
    refused = "550 5.7.1 Refused as spam; if it is not, tell the postmaster this id: "
    assert chain.send("rejected").startswith(refused)
    chain.change(reject_after=0, on_unsure="defer")
    assert chain.send("deferred").startswith("451 4.7.1 Deferred; try again later")
    assert chain.arrived("rejected") == chain.arrived("deferred") == []


def test_quarantined_mail_is_kept_by_the_relay_and_delivered_when_it_is_released(chain: Chain) -> None:
    chain.change(reject_after=0, on_unsure="quarantine")
    assert chain.send("kept").startswith("250")
    (id,) = re.findall(r"(\S+): client=.* action=quarantine ", chain.relay.log())
    assert chain.queued() == 0
    assert chain.arrived("kept") == []
    done = chain.relay.command("quarantine", "release", id)
    assert done.returncode == 0, done.stderr
    wait_until(lambda: bool(chain.arrived("kept")), "the released mail")
    assert b"X-Spam-Status: No, released from quarantine" in chain.arrived("kept")[0]


def test_of_many_mails_none_is_lost_and_none_doubled(chain: Chain) -> None:
    chain.change(reject_after=0)
    earlier = len(chain.sink.received)
    smtp_source(chain.front, MAILS, sessions=SESSIONS, length=2000, recipient="bulk@bulk.test", numbered=True)
    chain.sink.wait(earlier + MAILS, 120)
    wait_until(lambda: chain.queued() == 0, "an empty queue")
    recipients = Counter(recipient for mail in chain.sink.received[earlier:] for recipient in mail.recipients)
    assert len(recipients) == sum(recipients.values()) == MAILS


def test_while_the_relay_is_away_clients_keep_their_mail() -> None:
    with connected() as made:
        made.relay.process.terminate()
        made.relay.process.wait(30)
        assert made.send("too early") == "451 4.3.2 Please try again later"
        assert made.sink.received == []
