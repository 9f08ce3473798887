"""The commands of the lists, on a real database."""

import json
from pathlib import Path

import pytest

from tests.project.test_docs import documented
from tests.support.shell import Shell


def listed(shell: Shell) -> list[dict[str, object]]:
    return [json.loads(line) for line in shell.done("lists", "--json").splitlines()]


def test_a_sender_is_blocked_and_unlisted(shell: Shell) -> None:
    assert shell.done("lists") == "no sender is allowed or blocked\n"
    shell.done("block", "Spammer@Example.org", "--for", "Example.net", "--note", "sells lists", "--days", "3")
    (rule,) = listed(shell)
    assert (rule["rule"], rule["kind"], rule["sender"]) == (1, "block", "spammer@example.org")
    assert (rule["recipients"], rule["note"], rule["expired"]) == ("example.net", "sells lists", False)
    assert rule["by"]
    text = shell.done("lists")
    assert "    1  block  spammer@example.org  for example.net  until 20" in text
    assert text.endswith("  sells lists\n")
    assert "example.org: no rule has this number; `spamfilter lists` shows" in shell.fails("unlist", "example.org")
    assert shell.done("unlist", "1").startswith("removed:\n    1  block  spammer@example.org")
    assert listed(shell) == []
    assert "\n       undone by " in shell.done("lists", "--history")
    (former,) = (json.loads(line) for line in shell.done("lists", "--history", "--json").splitlines())
    assert set(former) == documented("lists --history --json")
    assert (former["rule"], former["ending"], former["ended_by"]) == (1, "undone", rule["by"])


def test_to_block_the_own_mail_server_is_warned_of(shell: Shell) -> None:
    assert "your mail server, perhaps: spamfilter unlist 1" in shell.run("block", "127.0.0.1").stderr
    assert "your mail server, perhaps: spamfilter unlist 2" in shell.run("block", "126.0.0.0/7").stderr
    assert shell.run("block", "192.0.2.1").stderr == ""


def test_one_client_is_one_rule_whatever_interface_it_came_by(shell: Shell) -> None:
    for written in ("fe80::1", "FE80:0::1%eth0", "fe80::1%eth1/128"):
        shell.done("block", written)
    assert [rule["sender"] for rule in listed(shell)] == ["fe80::1/128"]


def test_an_allowed_domain_waits_for_a_server_that_proves_it(shell: Shell) -> None:
    assert "not obeyed yet: nothing proves who the sender is" in shell.run("allow", "example.org").stderr
    assert shell.run("allow", "192.0.2.1").stderr == ""
    assert [rule["sender"] for rule in listed(shell)] == ["example.org", "192.0.2.1/32"]


def test_judging_a_file_says_that_rules_are_not_asked(shell: Shell, tmp_path: Path) -> None:
    shell.done("migrate")
    file = tmp_path / "mail.eml"
    file.write_bytes(b"From: a@example.org\r\nSubject: x\r\n\r\nwords\r\n")
    assert shell.run("judge", str(file)).stderr == ""
    shell.done("block", "example.org")
    said = shell.run("judge", str(file))
    assert (said.exit_code, said.stderr) == (
        0, "1 rule on senders not asked: only the relay knows client, envelope and proof\n"
    )  # fmt: skip
    assert shell.run("judge", "--json", str(file)).stderr == ""


def test_all_addresses_of_a_domain_are_the_domain(shell: Shell) -> None:
    shell.done("migrate")
    shell.done("block", "*@Shop.example", "--for", "*@example.org")
    (rule,) = listed(shell)
    assert (rule["sender"], rule["recipients"]) == ("shop.example", "example.org")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(["block", "some body"], "'some body' is not an address (user@example.org), domain", id="name"),
        pytest.param(["block", "10.0.0.1/8"], "'10.0.0.1/8' is not a network", id="host-bits"),
        pytest.param(["block", "0.0.0.0/0"], "'0.0.0.0/0' is every client; name a network", id="every-client"),
        pytest.param(
            ["allow", "a.example", "--for", "x@"], "'x@' is not the address or domain of a recipient", id="for"
        ),
        pytest.param(["allow", "a.example", "--note", "x\ny"], "the note must be one line", id="note"),
        pytest.param(["block", "*bot@x.example"], "'*bot@x.example' is not an address", id="pattern"),
        pytest.param(["block", "b\udcfcro.example"], r"'b\udcfcro.example' is not an address", id="not-utf-8"),
        pytest.param(["block", "::ffff:192.0.2.0/120"], "'::ffff:192.0.2.0/120' is IPv4 within IPv6", id="mapped"),
        pytest.param(
            ["block", "a.example", "--for", "*x@b.example"], "'*x@b.example' is not the address", id="for-pattern"
        ),
        pytest.param(["unlist", "7"], "7: no rule has this number", id="unknown"),
    ],
)
def test_a_wrong_rule_is_refused(shell: Shell, arguments: list[str], said: str) -> None:
    shell.done("migrate")
    result = shell.run(*arguments)
    assert result.exit_code == 2
    assert f"spamfilter: {said}" in result.stderr
    assert listed(shell) == []
