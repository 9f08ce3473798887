"""Paths: a command looks for the socket that the relay opens."""

import os
from pathlib import Path

import pytest

from spamfilter.config.settings import load
from spamfilter.errors import ConfigError
from spamfilter.system import paths
from spamfilter.system.paths import configured_socket, socket_path, values_of
from tests.support.real import require_root

SOCKET_VARIABLE = "SPAMFILTER_FEEDBACK__SOCKET"
NAMELESS = 2**31 - 7
"""The number of no user: programs that give numbers to users begin far below."""


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home, no variables, no files of this machine."""
    monkeypatch.setattr(paths, "SYSTEM_FILE", tmp_path / "none.toml")
    monkeypatch.setattr(paths, "SYSTEM_STATE", tmp_path / "var")
    monkeypatch.setattr(paths, "SYSTEM_RUN", tmp_path / "run")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    for name in ("SPAMFILTER_CONFIG", "STATE_DIRECTORY", SOCKET_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def test_the_socket_is_of_the_user_unless_there_is_a_service(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert socket_path() == nowhere / "home/spamfilter/feedback.sock"
    (nowhere / "run").mkdir()
    assert socket_path() == nowhere / "home/spamfilter/feedback.sock"
    (nowhere / "var").mkdir()
    assert socket_path() == nowhere / "run/feedback.sock"
    (nowhere / "run").rmdir()
    assert socket_path() == nowhere / "var/feedback.sock"
    monkeypatch.setenv("STATE_DIRECTORY", "/srv/state")
    assert socket_path() == Path("/srv/state/feedback.sock")
    assert socket_path("/srv/x.sock") == Path("/srv/x.sock")


@pytest.mark.parametrize(
    ("text", "variable"),
    [
        pytest.param("", None, id="nothing"),
        pytest.param('[feedback]\nsocket = "/srv/a.sock"', None, id="file"),
        pytest.param("[feedback]\nsocket = '/srv/ü b.sock'", None, id="odd-path"),
        pytest.param('feedback = {socket = "/srv/a.sock"}', None, id="inline-table"),
        pytest.param('[feedback]\nsocket = "/srv/a.sock"', "/srv/b.sock", id="variable"),
        pytest.param('[feedback]\nsocket = "/srv/a.sock"', "", id="empty-variable"),
        pytest.param("", '"/srv/b.sock"', id="variable-in-quotes"),
        pytest.param("", "'/srv/b.sock'", id="variable-in-single-quotes"),
    ],
)
def test_a_command_finds_the_socket_of_the_configuration(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch, text: str, variable: str | None
) -> None:
    file = nowhere / "spamfilter.toml"
    file.write_text(text, encoding="utf-8")
    if variable is not None:
        monkeypatch.setenv(SOCKET_VARIABLE, variable)
    assert configured_socket(file) == load(file).socket_path()


def test_a_variable_in_small_letters_is_the_same_to_all_commands(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (file := nowhere / "spamfilter.toml").touch()
    monkeypatch.setenv(SOCKET_VARIABLE, "/run/large.sock")
    monkeypatch.setenv("SPAMFILTER_Feedback__Socket", "/run/ours.sock")
    assert configured_socket(file) == load(file).socket_path() == Path("/run/ours.sock")


@pytest.mark.parametrize("text", ["feedback = 3", "[feedback]\nsocket = 3", "[feedback]\nsocket = ['/x']"])
def test_a_wrong_key_is_left_to_the_check_of_the_whole(nowhere: Path, text: str) -> None:
    file = nowhere / "spamfilter.toml"
    file.write_text(text, encoding="utf-8")
    assert configured_socket(file) == socket_path()
    with pytest.raises(ConfigError):
        load(file)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        pytest.param(b"[feedback\n", "not TOML", id="not-toml"),
        pytest.param(b"a = '\xff'", "line 1: not UTF-8", id="not-utf-8"),
        pytest.param(b"a = " + b"9" * 5000, "not TOML", id="number-of-thousands-of-digits"),
        pytest.param(None, "No such file", id="missing"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(nowhere: Path, content: bytes | None, sentence: str) -> None:
    file = nowhere / "spamfilter.toml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError, match=rf"spamfilter\.toml: {sentence}"):
        configured_socket(file)
    assert values_of(None) == {}


def test_mail_can_be_marked_where_the_folder_of_the_configuration_is_closed(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_root("to be another user")
    folder = nowhere / "etc"
    folder.mkdir(mode=0o700)
    file = folder / "spamfilter.toml"
    file.write_text("[feedback]\nsocket = '/run/ours.sock'\n")
    monkeypatch.setattr(paths, "SYSTEM_FILE", file)
    monkeypatch.setattr(paths, "SYSTEM_STATE", Path("/nonexistent"))  # the folder of this test is closed to others
    assert configured_socket(None) == Path("/run/ours.sock")
    os.seteuid(NAMELESS)
    try:
        assert configured_socket(None) == configured_socket(file) == socket_path()
        with pytest.raises(ConfigError, match=rf"{file}: Permission denied"):
            load()
    finally:
        os.seteuid(0)


def test_a_user_without_name_and_home_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container that runs as a number which is in no /etc/passwd."""
    require_root("to be another user")
    monkeypatch.setattr(paths, "SYSTEM_STATE", Path("/nonexistent"))  # the folder of this test is closed to others
    for name in ("XDG_STATE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    pid = os.fork()
    if not pid:
        os.setuid(NAMELESS)
        try:
            socket_path()
        except ConfigError as error:
            os._exit(0 if "STATE_DIRECTORY" in str(error) else 1)
        finally:
            os._exit(2)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def test_the_folder_of_the_state_does_not_depend_on_where_a_command_is_run(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/ann")
    monkeypatch.setenv("XDG_STATE_HOME", "state")
    assert paths.state_directory() == Path("/home/ann/.local/state/spamfilter")
