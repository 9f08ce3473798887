"""The Exim samples, put together to whole configurations: routing without mail, and mail through real daemons."""

import contextlib
import os
import re
import shutil
import smtplib
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from email.message import EmailMessage
from pathlib import Path

import pytest

from spamfilter.config.settings import load
from spamfilter.system.packaged_files import shipped
from tests.integration.servers import await_start, end, free_port, greets, relay, sink, wait_until, workshop
from tests.support.real import missing, require, require_root

MAIN = """
exim_path = {program}
spool_directory = {folder}/spool
log_file_path = {folder}/%s.log
pid_file_path = {folder}/pid
primary_hostname = mail.test
keep_environment =
add_environment = PATH=/usr/bin
domainlist local_domains = example.test
domainlist relay_to_domains =
hostlist relay_from_hosts = 127.0.0.1
acl_smtp_rcpt = acl_check_rcpt
# No test asks a name server.
host_lookup =
helo_lookup_domains =
dns_again_means_nonexist = *
tls_advertise_hosts =
{main}

begin acl
acl_check_rcpt:
{acl}
  accept  hosts     = +relay_from_hosts
  accept  domains   = +local_domains
          verify    = recipient
  deny    message   = relay not permitted

begin routers
{router}
mailboxes:
  driver = accept
  domains = +local_domains
  local_parts = alice : bob
  transport = mailbox
elsewhere:
  driver = manualroute
  domains = ! +local_domains
  transport = mailbox
  route_list = * 127.0.0.1 byname
  self = send

begin transports
{transport}
# The tests' mailbox: a server that keeps everything.
mailbox:
  driver = smtp
  hosts = 127.0.0.1
  hosts_override
  port = {sink}
  allow_localhost

begin retry
{retry}
* * {rule}
"""


@pytest.fixture(scope="module")
def exim() -> str:
    """An Exim 4, of the system or, beside another mail server, in the folder that SPAMFILTER_EXIM names."""
    program = require("exim4", "exim4-daemon-light", os.environ.get("SPAMFILTER_EXIM", ""))
    require_root("Exim reads another configuration than its own only for root")
    closed = [str(folder) for folder in Path(program).resolve().parents if not folder.stat().st_mode & 0o001]
    if closed:
        missing(f"Exim's own user cannot enter {closed[-1]}: unpack Exim in another folder than {program}")
    done = subprocess.run([program, "-C", "/dev/null", "-bV"], capture_output=True, text=True, timeout=30, check=False)
    if done.returncode:
        missing(f"{program} does not run: {done.stderr.strip()}")
    return program


@pytest.fixture
def folder() -> Iterator[Path]:
    with workshop() as path:
        yield path


@dataclass(frozen=True)
class Exim:
    """An Exim with a configuration of its own. `front` faces the world, `back` what comes from spamfilter."""

    program: str
    folder: Path
    front: int
    back: int

    def run(self, *arguments: str, input: str = "") -> "subprocess.CompletedProcess[str]":
        command = [self.program, "-C", str(self.folder / "exim.conf"), *arguments]
        return subprocess.run(command, input=input, capture_output=True, text=True, timeout=60, check=False)

    def log(self) -> str:
        file = self.folder / "main.log"
        return file.read_text(errors="replace") if file.exists() else ""


def configure(
    program: str,
    folder: Path,
    layout: str,
    *,
    filter: int = 10025,
    back: int = 10026,
    to: int = 10027,
    limit: str = "50M",
    rule: str = "F,1h,1s",
    marks: int = 0,
) -> Exim:
    """A configuration from the fragments of one layout, with ports and limit exchanged for those given.

    rule: when Exim tries other hosts again. marks: the relay's port for marks by mail, with the fragments for these.
    """
    sample, front = shipped(f"config/exim/{layout}"), free_port()
    files = {name: sample / f"{name}.fragment" for name in ("main", "acl", "router", "transport", "retry")}
    parts = {name: file.read_text() if file.exists() else "" for name, file in files.items()}
    for sampled, here in (
        ("= 10025", f"= {filter}"),
        ("= 10026", f"= {back}"),
        # The world is one port of loopback.
        ("[0.0.0.0]:25 ; [::0]:25", f"[127.0.0.1]:{front}"),
        ("[0.0.0.0]:587 ; [::0]:587", f"[127.0.0.1]:{front}"),
        ("50M", limit),
    ):
        parts["main"] = parts["main"].replace(sampled, here)
    if marks:
        acl, router, transport = (
            shipped(f"config/exim/marks/{name}.fragment").read_text() for name in ("acl", "router", "transport")
        )
        parts["acl"] += f"\n{acl}"
        parts["router"] = f"{router}\n{parts['router']}"
        parts["transport"] += f"\n{transport.replace('= 10027', f'= {marks}')}"
    folder.mkdir()
    (folder / "exim.conf").write_text(MAIN.format(program=program, folder=folder, sink=to, rule=rule, **parts))
    exim = Exim(program, folder, front, back)
    # Exim gives its privileges up, and writes its spool and log as a user that was chosen when it was built.
    owner = re.search(r"^exim_user = (\S+)", exim.run("-bP", "exim_user").stdout, re.MULTILINE)
    assert owner
    shutil.chown(folder, owner[1])
    return exim


@contextlib.contextmanager
def running(exim: Exim) -> Iterator[Exim]:
    """The daemon, as Debian starts it."""
    command = [exim.program, "-C", str(exim.folder / "exim.conf"), "-bdf", "-q30m"]
    with (exim.folder / "output").open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
    try:
        await_start(
            process,
            lambda: greets(exim.front) and greets(exim.back),
            lambda: (exim.folder / "output").read_text() + exim.log(),
        )
        yield exim
    finally:
        process.terminate()
        end(process)


def routed(exim: Exim, recipient: str, *options: str) -> str:
    """The router that Exim would choose, or the fault."""
    said = exim.run(*options, "-bt", recipient).stdout
    found = re.search(r"router = (\w+)", said)
    return found[1] if found else said.strip()


@pytest.mark.parametrize("layout", ["after-queue", "before-queue"])
def test_exim_accepts_the_samples_without_a_word(exim: str, folder: Path, layout: str) -> None:
    done = configure(exim, folder / "exim", layout).run("-bV")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("layout", "host", "code"),
    [
        pytest.param("before-queue", "192.0.2.1", 550, id="before-a-stranger"),
        pytest.param("before-queue", "127.0.0.1", 550, id="before-the-relay"),
        pytest.param("after-queue", "192.0.2.1", 550, id="after-a-stranger"),
        pytest.param("after-queue", "127.0.0.1", 250, id="after-the-relay"),
    ],
)
def test_who_may_send_to_the_relays_way_back_is_tried_as_the_page_says(
    exim: str, folder: Path, layout: str, host: str, code: int
) -> None:
    server = configure(exim, folder / "exim", layout)
    commands = "EHLO c\r\nMAIL FROM:<a@x.example>\r\nRCPT TO:<nobody@elsewhere.example>\r\nQUIT\r\n"
    done = server.run("-bh", host, "-oMi", "127.0.0.1.10026", input=commands)
    assert re.findall(r"^(\d+)[ -]", done.stdout, re.MULTILINE)[-2:] == [str(code), "221"]


def test_after_the_queue_new_mail_goes_to_the_filter_and_filtered_mail_on(exim: str, folder: Path) -> None:
    server = configure(exim, folder / "exim", "after-queue")
    returned = ("-oMi", f"127.0.0.1.{server.back}")
    assert routed(server, "alice@example.test") == "spamfilter"
    assert routed(server, "somebody@example.org") == "spamfilter"
    assert routed(server, "alice@example.test", *returned) == "mailboxes"
    assert routed(server, "somebody@example.org", *returned) == "elsewhere"
    # What Exim itself has to say is nothing to judge; what others send without a sender is.
    assert routed(server, "alice@example.test", "-f", "<>") == "mailboxes"
    assert routed(server, "alice@example.test", "-f", "<>", "-oMa", "192.0.2.1") == "spamfilter"


def test_after_the_queue_addresses_are_verified_as_without_the_filter(exim: str, folder: Path) -> None:
    server = configure(exim, folder / "exim", "after-queue")
    assert server.run("-bv", "alice@example.test").returncode == 0
    assert server.run("-bv", "nobody@example.test").returncode == 2


def test_after_the_queue_mail_arrives_marked_and_once(exim: str, folder: Path) -> None:
    back = free_port()
    with (
        sink() as mailbox,
        relay(folder / "relay", relay={"next_hop": f"smtp://127.0.0.1:{back}", "mode": "after-queue"}) as filter,
        running(
            configure(exim, folder / "exim", "after-queue", filter=filter.port, back=back, to=mailbox.port)
        ) as server,
    ):
        send(server.front, "alice@example.test", "bob@example.test")
        mails = mailbox.wait(1)
        wait_until(lambda: not server.run("-bp").stdout.strip(), "an empty queue")
        assert [mail.recipients for mail in mails] == [["alice@example.test", "bob@example.test"]]
        assert mails[0].values("X-Spam-Status") == [
            "No, score=0.500 class=unsure threshold=0.900 learnt=0/0 known=0.00"
        ]
        assert len(mails[0].values("X-Spamfilter-Id")) == 1


@pytest.mark.parametrize("layout", ["after-queue", "before-queue"])
def test_marks_by_mail_are_learnt_from_users_alone(exim: str, folder: Path, layout: str) -> None:
    back, marks = free_port(), free_port()
    settings = {"next_hop": f"smtp://127.0.0.1:{back}", "mode": layout, "submission": [f"127.0.0.1:{marks}"]}
    addresses = {"spam_addresses": ["spam@example.test"], "ham_addresses": ["ham@example.test"]}
    spam, mail = EmailMessage(), EmailMessage()
    spam.set_content("You have won a prize.")
    mail.set_content("look at this")
    mail.add_attachment(spam)
    with (
        relay(folder / "relay", relay=settings, feedback=addresses) as filter,
        running(configure(exim, folder / "exim", layout, filter=filter.port, back=back, marks=marks)) as server,
    ):
        stranger = "EHLO c\r\nMAIL FROM:<a@x.example>\r\nRCPT TO:<spam@example.test>\r\nQUIT\r\n"
        refused = server.run("-bh", "192.0.2.1", "-oMi", f"127.0.0.1.{server.front}", input=stranger).stdout
        assert "550 marks are taken from users of this server" in refused
        with smtplib.SMTP("127.0.0.1", server.front, "client.test", timeout=60) as client:
            client.send_message(mail, "alice@example.test", ["spam@example.test"])
        wait_until(lambda: "feedback: spam by " in filter.log(), "the mark")
        assert "learnt 1 as spam" in filter.log()
        wait_until(lambda: not server.run("-bp").stdout.strip(), "an empty queue")


@pytest.mark.parametrize("layout", ["after-queue", "before-queue"])
def test_an_address_for_marks_that_the_relay_does_not_know_is_no_circle(exim: str, folder: Path, layout: str) -> None:
    server = configure(exim, folder / "exim", layout, marks=free_port())
    assert routed(server, "spam@example.test") == "spamfilter_marks"
    assert "spamfilter" not in routed(server, "spam@example.test", "-oMi", f"127.0.0.1.{server.back}")


@pytest.mark.parametrize("layout", ["after-queue", "before-queue"])
def test_many_mails_on_one_connection_arrive_at_once(exim: str, folder: Path, layout: str) -> None:
    """From the eleventh on Exim would leave them in its queue until the next queue run."""
    back, many = free_port(), 15
    with (
        sink() as mailbox,
        relay(folder / "relay", relay={"next_hop": f"smtp://127.0.0.1:{back}", "mode": layout}) as filter,
        running(configure(exim, folder / "exim", layout, filter=filter.port, back=back, to=mailbox.port)) as server,
    ):
        port = filter.port if layout == "before-queue" else server.front
        for _ in range(many):
            send(port, "alice@example.test")
        assert len(mailbox.wait(many)) == many


def test_after_the_queue_a_line_of_any_length_reaches_the_filter(exim: str, folder: Path) -> None:
    """Exim takes it from the world, so its own limit on the way to the filter would return it to its sender."""
    with (
        sink() as filter,
        running(configure(exim, folder / "exim", "after-queue", filter=filter.port, back=free_port())) as server,
    ):
        send(server.front, "alice@example.test", text="x" * 5_000)
        (mail,) = filter.wait(1)
        assert mail.recipients == ["alice@example.test"]
        assert b"x" * 5_000 in mail.mail


def test_after_the_queue_a_mail_as_large_as_exim_takes_arrives(exim: str, folder: Path) -> None:
    """SMTP counts a byte more for each line end than Exim, which adds fields, too."""
    back, lines = free_port(), 13_000
    with (
        sink() as mailbox,
        relay(
            folder / "relay",
            relay={"next_hop": f"smtp://127.0.0.1:{back}", "mode": "after-queue"},
            limits={"message_size": 2_000_000},
        ) as filter,
        running(
            configure(exim, folder / "exim", "after-queue", filter=filter.port, back=back, to=mailbox.port, limit="1M")
        ) as server,
    ):
        assert lines * 80 < 2**20 - 1000 < 2**20 < lines * 81
        with smtplib.SMTP("127.0.0.1", server.front, "client.test", timeout=60) as client:
            client.helo()  # a client that declares no size
            client.mail("sender@example.org")
            client.rcpt("alice@example.test")
            assert client.data("Subject: minutes\r\n\r\n" + f"{'x' * 79}\r\n" * lines)[0] == 250
        (mail,) = mailbox.wait(1)
        assert len(mail.mail) > 2**20
        wait_until(lambda: not server.run("-bp").stdout.strip(), "an empty queue")


def test_after_the_queue_mail_flows_as_soon_as_a_relay_is_back(exim: str, folder: Path) -> None:
    """With the rule of Debian's Exim the first mail would hold up the later ones for a quarter of an hour."""
    back, port = free_port(), free_port()
    usual = "F,2h,15m; G,16h,1h,1.5; F,4d,6h"
    with (
        sink() as mailbox,
        running(
            configure(exim, folder / "exim", "after-queue", filter=port, back=back, to=mailbox.port, rule=usual)
        ) as server,
    ):
        send(server.front, "alice@example.test")
        wait_until(lambda: "Connection refused" in server.log(), "a refused connection")
        with relay(
            folder / "relay",
            relay={"listen": [f"127.0.0.1:{port}"], "next_hop": f"smtp://127.0.0.1:{back}", "mode": "after-queue"},
        ):
            time.sleep(2)
            send(server.front, "bob@example.test")
            mailbox.wait(1)


def test_before_the_queue_exim_may_end_a_kept_connection(exim: str, folder: Path) -> None:
    """It says 421 to MAIL then, and leaves the connection open."""
    back = free_port()
    server = configure(exim, folder / "exim", "before-queue", back=back, to=(mailbox_port := free_port()))
    with (server.folder / "exim.conf").open("r+") as file:
        text = file.read()
        file.seek(0)
        file.write(f"smtp_accept_max_per_connection = 2\n{text}")
    with (
        sink(port=mailbox_port) as mailbox,
        running(server),
        relay(folder / "relay", relay={"next_hop": f"smtp://127.0.0.1:{back}"}) as filter,
    ):
        for _ in range(4):
            send(filter.port, "alice@example.test")
            time.sleep(1.1)  # longer than a connection is used again without a question
        assert len(mailbox.wait(4)) == 4


def test_before_the_queue_mail_goes_through_and_refusals_come_back(exim: str, folder: Path) -> None:
    back = free_port()
    with (
        sink() as mailbox,
        running(configure(exim, folder / "exim", "before-queue", back=back, to=mailbox.port)),
        relay(folder / "relay", relay={"next_hop": f"smtp://127.0.0.1:{back}"}) as filter,
    ):
        send(filter.port, "alice@example.test")
        (mail,) = mailbox.wait(1)
        assert len(mail.values("X-Spamfilter-Id")) == 1
        unknown, foreign = "nobody@example.test", "somebody@example.org"
        assert refusal(filter.port, unknown) == refusal(back, unknown) == (550, b"Unrouteable address")
        # The relay trusts this client, as it does everything on its host; Exim does not.
        assert refusal(filter.port, foreign) == refusal(back, foreign) == (550, b"relay not permitted")


def test_the_settings_for_a_relay_that_faces_the_world_are_accepted(folder: Path) -> None:
    settings = load(shipped("config/exim/before-queue/spamfilter.toml.fragment"), {})
    assert settings.warnings() == []
    assert settings.relay.domains == ["example.org"]


def send(port: int, *recipients: str, text: str = "Good day.") -> None:
    mail = f"From: sender@example.org\r\nTo: {', '.join(recipients)}\r\nSubject: minutes\r\n\r\n{text}\r\n"
    with smtplib.SMTP("127.0.0.1", port, "client.test", timeout=60) as client:
        assert client.sendmail("sender@example.org", recipients, mail) == {}


def refusal(port: int, recipient: str) -> tuple[int, bytes]:
    with smtplib.SMTP("127.0.0.1", port, "client.test", timeout=60) as client:
        client.ehlo()
        assert client.mail("sender@example.org")[0] == 250
        return client.rcpt(recipient)
