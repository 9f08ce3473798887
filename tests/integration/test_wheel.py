"""The built wheel in an empty environment, outside the checkout: it must bring all it needs."""

import re
import signal
import smtplib
import subprocess
import tomllib
from pathlib import Path

import pytest
from manual import pages

from spamfilter.commands import COMMANDS
from spamfilter.stores.schema import HEAD
from spamfilter.system.packaged_files import samples
from tests.integration.installed import clean_environment, install_wheel
from tests.integration.servers import wait_until
from tests.support.real import require


@pytest.fixture(scope="module")
def binaries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install_wheel(tmp_path_factory.mktemp("wheel"))


def spamfilter(binaries: Path, home: Path, *arguments: str) -> str:
    done = subprocess.run(
        [str(binaries / "spamfilter"), *arguments],
        env=clean_environment(home), cwd=home, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_command_has_a_help_without_the_extras(binaries: Path, tmp_path: Path) -> None:
    shown = spamfilter(binaries, tmp_path, "--help")
    assert all(f"  {name} " in shown for name in COMMANDS)


def test_what_needs_an_extra_names_it(binaries: Path, tmp_path: Path) -> None:
    (tmp_path / "accounts").write_text("alice:rule:-\n")
    web, store = {"SPAMFILTER_WEB__LISTEN": "127.0.0.1:0"}, "postgresql+psycopg:///x"
    for asked, environment, wanted in (
        (["web"], web, "'.[web]'"),
        (["web-password", "alice"], {}, "'.[web]'"),
        (["stats"], {"SPAMFILTER_STORE__URL": store}, "[postgresql]'"),
        (["check-config"], web | {"SPAMFILTER_WEB__ACCOUNTS": str(tmp_path / "accounts")}, "accounts: line 1"),
    ):
        done = subprocess.run(
            [str(binaries / "spamfilter"), *asked], env=clean_environment(tmp_path) | environment, cwd=tmp_path,
            input="a long password\n", capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
        assert wanted in done.stderr, done.stderr


def test_the_wheel_serves_and_delivers(binaries: Path, tmp_path: Path) -> None:
    environment = clean_environment(tmp_path) | {"SPAMFILTER_RELAY__LISTEN": '["127.0.0.1:0"]'}
    log = tmp_path / "log"
    with log.open("wb") as file:
        process = subprocess.Popen([str(binaries / "spamfilter"), "serve"], env=environment, cwd=tmp_path, stderr=file)
    try:
        wait_until(lambda: "ready:" in log.read_text() or process.poll() is not None, "the relay")
        match = re.search(r"listening on 127\.0\.0\.1:(\d+)", log.read_text())
        assert match, log.read_text()
        with smtplib.SMTP("127.0.0.1", int(match.group(1)), "c", timeout=30) as client:
            client.sendmail("a@x.example", ["b@y.example"], "Subject: hello\r\n\r\nhello\r\n")
        (mail,) = (tmp_path / ".local/state/spamfilter/mail/new").iterdir()
        assert "X-Spamfilter-Id: " in mail.read_text()
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def test_the_wheel_brings_its_manual_to_where_man_looks(binaries: Path) -> None:
    for name in pages():
        assert (binaries.parent / "share" / "man" / f"man{name[-1]}" / name).read_text() == pages()[name]


def test_man_finds_the_manual_in_an_active_environment_and_by_the_links_of_the_installation(
    binaries: Path, tmp_path: Path
) -> None:
    guide = (Path(__file__).parents[2] / "docs" / "install.md").read_text(encoding="utf-8")
    links = [line.strip() for line in guide.splitlines() if line.startswith("       ") and "share/man" in line]
    assert len(links) == 3
    local = tmp_path / "local"
    (local / "bin").mkdir(parents=True)
    script = "\n".join(links).replace("/opt/spamfilter", str(binaries.parent)).replace("/usr/local", str(local))
    subprocess.run(["sh", "-eu"], input=script, text=True, check=True)
    for folder in (binaries, local / "bin"):
        for name in pages():
            title, _, section = name.rpartition(".")
            done = subprocess.run(
                [require("man", "man-db"), "-w", section, title],
                env={"PATH": f"{folder}:/usr/bin:/bin"}, capture_output=True, text=True, check=False,
            )  # fmt: skip
            assert (done.returncode, done.stdout) == (0, f"{binaries.parent}/share/man/man{section}/{name}\n"), (
                done.stderr
            )


def test_the_wheel_migrates(binaries: Path, tmp_path: Path) -> None:
    assert f"schema none -> {HEAD}" in spamfilter(binaries, tmp_path, "migrate")
    assert f"schema {HEAD}, nothing to do" in spamfilter(binaries, tmp_path, "migrate", "--revision", HEAD)


def test_the_wheel_shows_its_samples(binaries: Path, tmp_path: Path) -> None:
    assert tomllib.loads(spamfilter(binaries, tmp_path, "sample-config"))["verdict"]["spam"] == 0.9
    names = spamfilter(binaries, tmp_path, "sample-config", "--list").split()
    assert names == samples()
    assert {"systemd/spamfilter.service", "config/spamfilter.toml"} <= set(names)
    assert "ExecStart=" in spamfilter(binaries, tmp_path, "sample-config", "systemd/spamfilter.service")
    program = "from spamfilter.system.packaged_files import *; print(all(shipped(x).read_text() for x in samples()))"
    done = subprocess.run([str(binaries / "python"), "-c", program], cwd=tmp_path, capture_output=True, check=True)
    assert done.stdout == b"True\n"
