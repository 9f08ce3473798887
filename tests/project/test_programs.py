"""Programs that are forked for tests are as if Python had started them."""

import os
import signal
import subprocess
from pathlib import Path

from tests.support import program
from tests.support.program import COMMAND, Program, run

HERE = {name: value for name, value in os.environ.items() if not name.startswith("SPAMFILTER_")}


def refused(*arguments: str, environment: dict[str, str], folder: Path) -> bytes:
    """What a program says that exits with 2: the same whether Python has started it, or it is forked."""
    found = []
    for kind in (subprocess.Popen, Program):
        with kind([*COMMAND, *arguments], env=environment, cwd=folder, stderr=subprocess.PIPE) as process:
            _, said = process.communicate(timeout=60)
            found.append((process.returncode, said))
    assert found[0] == found[1] == (2, said)
    return bytes(said)


def test_arguments_environment_and_folder_are_its_own(tmp_path: Path) -> None:
    (tmp_path / "wrong.toml").write_text("[relay]\nlissten = []\n")
    assert b"wrong.toml" in refused("--config", "wrong.toml", "check-config", environment=HERE, folder=tmp_path)
    environment = {**HERE, "SPAMFILTER_LOG__LEVEL": "loud"}
    assert b"SPAMFILTER_LOG__LEVEL" in refused("check-config", environment=environment, folder=tmp_path)


def test_it_is_a_child_that_is_forked_and_has_the_umask_of_the_tests(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "waits.toml")
    before = os.umask(0o027)
    process = Program([*COMMAND, "--config", str(tmp_path / "waits.toml"), "check-config"], start_new_session=True)
    try:
        status = Path(f"/proc/{process.pid}/status").read_text()
        command = Path(f"/proc/{process.pid}/cmdline").read_text()
        assert (f"PPid:\t{os.getpid()}\n" in status, "Umask:\t0027" in status) == (True, True)
        assert program.__name__ in command
        assert os.getsid(process.pid) == process.pid
    finally:
        os.umask(before)
        process.kill()
        process.wait()
    assert process.returncode == -signal.SIGKILL


def test_what_says_something_to_python_is_said_to_python() -> None:
    said = run("--version", environment={**HERE, "SPAMFILTER_PLAIN": "1"}).stdout
    assert "judging in plain Python" in said
    done = subprocess.run([*COMMAND, "--version"], env=HERE, capture_output=True, text=True)
    assert run("--version", environment=HERE).stdout == done.stdout
