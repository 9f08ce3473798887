"""What systemd does for a unit, without a systemd: its user, no capability, a read-only system, its system calls.

Guarantee: the program begins only after all of it is in force, in a mount namespace that ends with it. Needs root.
"""

import ctypes
import json
import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

from spamfilter.system.packaged_files import shipped
from tests.support.real import missing, require, require_root

ROOT = Path(__file__).parents[2]

_ENTER = """
import ctypes, errno, json, os, sys
told = json.loads(sys.argv[1])
seccomp, libc = ctypes.CDLL("libseccomp.so.2"), ctypes.CDLL(None, use_errno=True)

def done(result, what):
    if result < 0:
        sys.exit(f"{what}: {os.strerror(ctypes.get_errno())}")

def bind(source, target):
    os.makedirs(target, exist_ok=True)
    done(libc.mount(source.encode(), target.encode(), None, 0x1000 | 0x4000, None), f"bind {target}")

def attributes(path, recursive, add, remove):  # mount_setattr(2)
    what = (ctypes.c_uint64 * 4)(add, remove, 0, 0)
    done(libc.syscall(442, -100, path.encode(), 0x8000 if recursive else 0, what, 32), f"attributes of {path}")

done(libc.unshare(0x20000), "a mount namespace")
done(libc.mount(b"none", b"/", None, 0x4000 | 0x40000, None), "a private root")
for target, source in told["binds"].items():
    bind(source, target)
for path in told["writable"]:
    bind(path, path)
attributes("/", True, 1 | 2, 0)  # read-only, no set-user-id
for path in told["writable"]:
    attributes(path, False, 0, 1)
for capability in range(64):
    libc.prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP; beyond the last one it fails
os.setgroups([])
os.setresgid(*[told["user"]] * 3)
os.setresuid(*[told["user"]] * 3)
os.umask(told["umask"])
done(libc.prctl(38, 1, 0, 0, 0), "no new privileges")
seccomp.seccomp_init.restype = ctypes.c_void_p
rules = ctypes.c_void_p(seccomp.seccomp_init(ctypes.c_uint32(0x00050000 | errno.EPERM)))
for name in told["calls"]:
    number = seccomp.seccomp_syscall_resolve_name(name.encode())
    if number >= 0:
        assert seccomp.seccomp_rule_add(rules, ctypes.c_uint32(0x7fff0000), number, 0) == 0, name
assert seccomp.seccomp_load(rules) == 0
libc.prctl(65, 1, 0, 0, 0)  # PR_SET_MDWE: no page both written and run; kernels before 6.3 know it only as seccomp
os.environ |= told["environment"]
os.execv(told["python"], [told["python"], *sys.argv[3:]])
"""
"""The interpreter may be where only root can go, so it is bound to a place that all can reach."""


def values(unit: str, key: str) -> list[str]:
    """What a unit says of a key, line by line."""
    return re.findall(rf"^{key}=(.*)$", shipped(f"systemd/{unit}").read_text(), re.MULTILINE)


def allowed_calls(unit: str) -> set[str]:
    """The system calls that a unit's SystemCallFilter= lines leave."""
    allowed: set[str] = set()
    for line in values(unit, "SystemCallFilter"):
        names = set().union(*(_expanded(name) for name in line.removeprefix("~").split()))
        allowed = allowed - names if line.startswith("~") else allowed | names
    return allowed


def _expanded(name: str) -> set[str]:
    if not name.startswith("@"):
        return {name}
    command = [require("systemd-analyze", "systemd"), "syscall-filter", name]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    return set().union(*map(_expanded, re.findall(r"^    ([@a-z_0-9-]+)$", shown, re.MULTILINE)))


def sandbox(folder: Path, *writable: Path, user: int, unit: str = "spamfilter.service") -> tuple[str, ...]:
    """What stands before `PYTHON arguments...` to run it as the unit would, able to write below `writable` alone.

    folder: for what must be reachable; every user may enter it.
    """
    require_root("to be another user, and for a mount namespace")
    try:
        ctypes.CDLL("libseccomp.so.2")
    except OSError:
        missing("libseccomp is not installed: apt-get install libseccomp2")
    python, packages, tree = (folder / "sandbox" / name for name in ("python", "packages", "tree"))
    told = {
        "binds": {
            str(python): sys.base_prefix, str(packages): sysconfig.get_path("purelib"), str(tree): str(ROOT),
        },
        "writable": [str(path) for path in writable],
        "user": user,
        "umask": int(values(unit, "UMask")[0], 8),
        "calls": sorted(allowed_calls(unit)),
        "python": str(python / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"),
        "environment": {
            "PYTHONPATH": os.pathsep.join((str(tree), str(packages))),
            "LD_LIBRARY_PATH": str(python / "lib"),
            "PYTHONDONTWRITEBYTECODE": "1",
        },
    }  # fmt: skip
    return (sys.executable, "-c", _ENTER, json.dumps(told))
