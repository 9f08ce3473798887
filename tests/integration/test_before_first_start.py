"""Root, and others, use the database of an installed service before its first start.

In a mount namespace, with the user of systemd/sysusers.conf in /etc/passwd and an empty /var/lib.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.made import mail
from tests.support.real import require, require_root
from tests.support.users import NOBODY, program_as

SERVICE = 61_999
USER = f"spamfilter:x:{SERVICE}:{SERVICE}:spamfilter relay:/var/lib/spamfilter:/usr/sbin/nologin"


def installed(folder: Path, script: str) -> subprocess.CompletedProcess[str]:
    """Runs a script where the service is installed, and was never started."""
    require_root("to mount")
    users = folder / "passwd"
    users.write_text(f"{Path('/etc/passwd').read_text(encoding='utf-8').rstrip()}\n{USER}\n", encoding="utf-8")
    users.chmod(0o644)
    spamfilter = f"{sys.executable} -m spamfilter --config {folder}/x.toml"
    (folder / "x.toml").write_text("[relay]\nlisten = ['127.0.0.1:0']\n", encoding="utf-8")
    (folder / "x.eml").write_bytes(mail())
    prepared = f"mount --bind {users} /etc/passwd; mount -t tmpfs -o mode=755 none /var/lib; cd {folder}\n"
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPAMFILTER_", "STATE_DIR"))}
    return subprocess.run(
        [require("unshare", "util-linux"), "--mount", "sh", "-eu"],
        input=prepared + script.replace("SPAMFILTER", spamfilter),
        env={**kept, "HOME": str(folder)}, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip


def test_what_root_trains_before_the_first_start_is_the_services(tmp_path: Path) -> None:
    done = installed(
        tmp_path,
        """
        SPAMFILTER train --spam x.eml
        stat -c '%n %u:%g %a' /var/lib/spamfilter /var/lib/spamfilter/*
        """,
    )
    assert done.returncode == 0, done.stderr
    assert "learning into /var/lib/spamfilter/spamfilter.db\n" in done.stderr
    assert "/var/lib/spamfilter 61999:61999 700\n/var/lib/spamfilter/spamfilter.db 61999:61999 600\n" in done.stdout
    assert not (tmp_path / ".local").exists()


def test_the_services_user_goes_on_with_what_root_has_trained(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(program_as(SERVICE), encoding="utf-8")
    script = f"""
        SPAMFILTER mark-spam x.eml
        cp x.eml x.toml /var/lib/
        cd /var/lib
        {sys.executable} {tmp_path}/program.py --config x.toml mark-ham x.eml
        """
    done = installed(tmp_path, script)
    assert done.returncode == 0, done.stderr
    assert "x.eml: learnt as ham (was spam, which is taken back); " in done.stdout


@pytest.mark.parametrize("words", ["train --spam x.eml", "mark-spam x.eml", "judge x.eml"])
def test_another_user_is_told_and_gets_no_other_database(tmp_path: Path, words: str) -> None:
    """Its mail and its configuration lie where every user may read them."""
    (tmp_path / "program.py").write_text(program_as(NOBODY), encoding="utf-8")
    script = f"""
        cp x.eml x.toml /var/lib/
        cd /var/lib
        {sys.executable} {tmp_path}/program.py --config x.toml {words}
        """
    done = installed(tmp_path, script)
    assert done.returncode == 2, done.stderr
    assert done.stderr == "spamfilter: /var/lib/spamfilter: Permission denied; set [store] url\n"
