"""Accounts of the web page: the file, errors in it, passwords."""

from pathlib import Path

import pytest

from spamfilter.errors import ConfigError, InputError
from spamfilter.web.accounts import ROLES, Account, is_right, line_of, read_accounts
from tests.support.shell import Shell

PASSWORD = "correct horse battery"
HASHED = line_of("alice", "label", PASSWORD)


def written(folder: Path, text: str) -> Path:
    file = folder / "accounts"
    file.write_text(text, encoding="utf-8")
    return file


def test_an_account_is_read_as_it_was_printed(tmp_path: Path) -> None:
    accounts = read_accounts(written(tmp_path, f"# those who look after the mail\n\n{HASHED}\nbob:look:-\n"))
    assert list(accounts) == ["alice", "bob"]
    assert (accounts["alice"].role, accounts["bob"]) == ("label", Account("bob", "look", "-"))


def test_only_the_right_password_is_right(tmp_path: Path) -> None:
    accounts = read_accounts(written(tmp_path, f"{HASHED}\nbob:look:-\n"))
    assert is_right(accounts["alice"], PASSWORD)
    assert not is_right(accounts["alice"], PASSWORD + " ")
    assert not is_right(accounts["bob"], "-")
    assert not is_right(None, "nobody's password")
    assert not is_right(Account("x", "look", "$argon2id$broken"), PASSWORD)


def test_a_role_includes_those_before_it() -> None:
    for at, own in enumerate(ROLES):
        assert [Account("a", own, "-").may(role) for role in ROLES] == [True] * (at + 1) + [False] * (2 - at)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        pytest.param("alice", "line 2: not of the form NAME:ROLE:HASH", id="name-alone"),
        pytest.param("alice:label:a:b", "line 2: not of the form", id="too-much"),
        pytest.param("alice:root:-", "line 2: 'alice' has the role 'root'; known: look, label, administer", id="role"),
        pytest.param("alice:look:hunter2", "line 2: 'alice' has no argon2id hash", id="plain-password"),
        pytest.param(":look:-", "line 2: '' is not a valid name", id="no-name"),
        pytest.param("bob:label:-", "line 2: a second account 'bob'", id="twice"),
        pytest.param("a\x07b:label:-", "line 2: must be one line", id="control-character"),
    ],
)
def test_a_wrong_line_is_named_and_no_secret_quoted(tmp_path: Path, line: str, complaint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_accounts(written(tmp_path, f"bob:look:-\n{line}\n"))
    assert complaint in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_a_file_that_is_not_there_is_named_with_what_makes_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="web-password NAME"):
        read_accounts(tmp_path / "none")


@pytest.mark.parametrize("name", ["", "a:b", " a", "#a", "a\nb", "x" * 61])
def test_a_name_that_the_file_cannot_hold_is_refused_and_named(name: str) -> None:
    with pytest.raises(InputError, match="name: "):
        line_of(name, "look", PASSWORD)


def test_the_command_prints_a_line_that_the_file_takes(tmp_path: Path) -> None:
    printed = Shell(tmp_path).done("web-password", "alice", "--role", "administer", stdin=PASSWORD.encode() + b"\n")
    alice = read_accounts(written(tmp_path, printed))["alice"]
    assert (alice.role, is_right(alice, PASSWORD)) == ("administer", True)
    assert PASSWORD not in printed


@pytest.mark.parametrize("password", [b"", b"too short", b"x" * 1001, b"l\xe4nger als zehn"])
def test_the_command_refuses_a_password_that_is_none(tmp_path: Path, password: bytes) -> None:
    assert "password" in Shell(tmp_path).fails("web-password", "alice", stdin=password + b"\n")
