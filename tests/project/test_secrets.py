"""A secret that got into the configuration, a mail or a dialogue comes out nowhere: planted, and looked for."""

import re
import signal
import smtplib
from pathlib import Path

import pytest
from click.testing import CliRunner

from spamfilter.cli import main
from spamfilter.commands import COMMANDS
from spamfilter.config.redaction import redacted
from tests.integration.servers import Relay, relay, wait_until

SECRET = "Tr0ub4dor3"
KEY = f"-----BEGIN PRIVATE KEY-----\\n{SECRET}\\n{SECRET}\\n-----END PRIVATE KEY-----\\n"
PLACES = {
    "password of the next hop": f'[relay]\nnext_hop = "smtp://me:{SECRET}@mail.example:25"',
    "password alone": f'[relay]\nnext_hop = "smtp://:{SECRET}@mail.example:25"',
    "password with a slash": f'[relay]\nnext_hop = "smtp://me:a/{SECRET}@mail.example:25"',
    "password with an @": f'[relay]\nnext_hop = "smtp://me:a@{SECRET}@mail.example"',
    "of a next hop of no known kind": f'[relay]\nnext_hop = "lmtp://me:{SECRET}@mail.example:25"',
    "with TLS it cannot have": f'[relay]\nnext_hop = "submission://me:{SECRET}@x"\nnext_hop_tls = "starttls"',
    "password of a database": f'[store]\nurl = "postgresql+psycopg://me:{SECRET}@db.example/spamfilter"',
    "the key itself": f'[relay]\ntls_certificate = "/etc/hostname"\ntls_key = "{KEY}"',
    "the key without a certificate": f'[relay]\ntls_key = "{KEY}"',
    "a key that is not known": f'[relay]\nnext_hop_password = "{SECRET}"',
    "a key that is a number": f'[relay]\nnext_hop_token = "{SECRET}"\nlisten = 1',
    "a section that is not known": f'[auth]\nuser = "me"\npassword = "{SECRET}"\nother = "x"',
}
VARIABLES = {
    "SPAMFILTER_RELAY__NEXT_HOP": f"smtp://me:{SECRET}@mail.example:25",
    "SPAMFILTER_STORE__URL": f"postgresql://me:{SECRET}@db.example/spamfilter",
    "SPAMFILTER_RELAY__PASSWORD": SECRET,
    "SPAMFILTER_STORE__URL__PASSWORD": SECRET,
    "SPAMFILTER_SMTP__SECRET": SECRET,
}
ARGUMENTS = {
    "train": ["--ham", "."], "mark-spam": ["x.eml"], "mark-ham": ["x.eml"], "forget": ["x.eml"], "judge": ["x.eml"],
    "quarantine": ["list"], "evaluate": ["--live"], "backup": ["copy.db"],
}  # fmt: skip
CONFIGURED = [name for name in COMMANDS if name != "sample-config"]
"""Commands that read the configuration, with what they want to hear."""


def ran(config: Path | None, *arguments: str, **variables: str) -> tuple[int, str]:
    """Exit code, and all that a command has said."""
    words = ["--config", str(config), *arguments] if config else list(arguments)
    result = CliRunner().invoke(main, words, env=variables)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})  # blocked by `serve` and `web`; children inherit it
    trouble = "" if result.exception is None or isinstance(result.exception, SystemExit) else repr(result.exception)
    return result.exit_code, result.output + trouble


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path / "state"))
    monkeypatch.delenv("SPAMFILTER_CONFIG", raising=False)
    (tmp_path / "x.eml").write_text("Subject: x\n\nx\n")
    return tmp_path


@pytest.mark.parametrize("place", PLACES)
def test_no_command_says_a_secret_that_stands_in_the_configuration(folder: Path, place: str) -> None:
    config = folder / "spamfilter.toml"
    config.write_text(PLACES[place])
    said = {name: ran(config, name, *ARGUMENTS.get(name, [])) for name in CONFIGURED}
    assert not {name: text for name, (_, text) in said.items() if SECRET in text}
    code, text = said["check-config"]
    assert code == 2
    assert f"spamfilter: {config}: " in text
    assert "***" in text


@pytest.mark.parametrize("variable", VARIABLES)
def test_no_command_says_a_secret_that_stands_in_the_environment(folder: Path, variable: str) -> None:
    said = {name: ran(None, name, *ARGUMENTS.get(name, []), **{variable: VARIABLES[variable]}) for name in CONFIGURED}
    assert not {name: text for name, (_, text) in said.items() if SECRET in text}
    assert said["check-config"][0] == 2
    assert variable in said["check-config"][1]


def test_what_is_no_secret_is_shown_as_it_is() -> None:
    for text in (
        "limits.recipients = 0: must be at least 1",
        "relay.next_hop = 'smtp://127.0.0.1:25x': the port '25x' is not a number",
        "feedback.spam_addresses = 'spam@example.org': must be a list",
        "store.url = 'sqlite:////var/lib/spamfilter/spamfilter.db'",
        "tokens of 14 days",
        "relay.next_hop = 'file:///etc/passwd': not one of smtp://host:port, maildir:/path",
        "relay.next_hop = 'file:///etc/passwd': for questions write to postmaster@example.org",
        "relay.tls_key = '/etc/ssl/my-passwords.pem': no such file",
    ):
        assert redacted(text) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("store.url = 'file:///x': see smtp://me:pw@host", "store.url = 'file:///x': see smtp://***@host"),
        ("url = 'smtp://do/main:p w@x@host:25'", "url = 'smtp://***@host:25'"),
        ("unknown key relay = {'my-password': 'a b', 'x': 1}", "unknown key relay = {'my-password': ***, 'x': 1}"),
        ("unknown key relay = {'a/password': 'a b'}", "unknown key relay = {'a/password': ***}"),
        ("unknown key relay = {'password': '/a/b'}", "unknown key relay = {'password': ***}"),
        ("'smtp://host/?password=abc'", "'smtp://host/?password=***"),
        ("'smtp://host/password=abc'", "'smtp://host/password=***"),
    ],
)
def test_user_and_password_are_hidden_and_the_rest_is_shown(text: str, expected: str) -> None:
    assert redacted(text) == expected


def refused_at_reload(server: Relay, text: str) -> None:
    """Give a running relay this configuration, which it does not take."""
    before = server.log().count("not reloaded")
    server.config.write_text(text)
    server.process.send_signal(signal.SIGHUP)
    wait_until(lambda: server.log().count("not reloaded") > before, "the refusal")


FIELDS = (
    "client",
    "from",
    "to",
    "recipients",
    "size",
    "class",
    "score",
    "action",
    "listed",
    "judge_us",
    "total_us",
    "defects",
    "reply",
)
PRIVATE = "zyxinthemail"


def test_a_relay_says_neither_a_secret_nor_what_stands_in_a_mail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the log at its loudest, a client that gives its password away, and a SIGHUP with one in the file."""
    monkeypatch.setenv("MAIL_PASSWORD", SECRET)
    with relay(tmp_path, log={"level": "debug"}, verdict={"on_unsure": "quarantine"}) as server:
        with smtplib.SMTP("127.0.0.1", server.port, "client.test", timeout=60) as client:
            client.ehlo()
            for line in (
                f"AUTH PLAIN {SECRET}",
                f"AUTH LOGIN {SECRET}",
                f"{SECRET}",
                f"VRFY {SECRET}",
                f"NOOP {SECRET}",
            ):
                client.docmd(line)
            mail = (
                f"Subject: {PRIVATE}\r\nX-Password: {SECRET}\r\nMessage-ID: <{PRIVATE}@x>\r\n\r\n{PRIVATE} {SECRET}\r\n"
            )
            client.sendmail("sender@example.org", ["alice@example.test"], mail)
        logged = [line for line in server.log().splitlines() if " class=" in line]
        assert [tuple(re.findall(r" ([a-z_]+)=", line)) for line in logged] == [FIELDS]
        good = server.config.read_text()
        for place in ("password of the next hop", "password of a database", "a section that is not known"):
            refused_at_reload(server, PLACES[place])
            done = server.command("doctor", "--json")
            assert SECRET not in done.stdout + done.stderr
        server.config.write_text(good)
        said = [server.command(*words) for words in (["doctor"], ["stats", "--json"], ["check-config"])]
        commands = [Path(f"/proc/{server.process.pid}/cmdline").read_text()]
    everything = [server.log(), *commands, *(done.stdout + done.stderr for done in said)]
    assert not [text for text in everything if SECRET in text]
    assert PRIVATE not in server.log()


def test_the_security_page_names_what_the_log_has_of_a_mail() -> None:
    page = (Path(__file__).parents[2] / "docs" / "security.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"\(the log has of each mail: ([^)]*)\)", page.replace("\n", " "))
    assert tuple(re.findall(r"`([a-z_]+)`", line)) == ("id", *FIELDS)
