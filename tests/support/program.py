"""`spamfilter` as a process of a test, without the second in which Python imports it: half of what the tests took.

A process that has imported all of it forks itself for each program that is asked for. What runs is
`python -m spamfilter` all the same, with arguments, environment, folder and files as they were given. It is started by
Python where another program starts it, where the environment says something else to Python, and in benchmarks.
"""

import atexit
import contextlib
import ctypes
import functools
import gc
import importlib
import json
import os
import pkgutil
import runpy
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
COMMAND = (sys.executable, "-m", "spamfilter")
TO_PYTHON = ("PYTHON", "LC_", "LANG", "LD_", "MALLOC_", "SPAMFILTER_PLAIN")
"""What variables of the environment begin with that Python and its libraries look at as they are loaded."""
MOST = 2**18
"""Bytes of a request: arguments and environment."""
forks = False
"""Whether programs are forked; the tests say so."""
_PR_SET_CHILD_SUBREAPER = 36
_ADDED = {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
_ENVIRONMENT = {**os.environ, **_ADDED}
_lock = threading.Lock()


class Program(subprocess.Popen[Any]):
    """As Popen, but forked where that comes to the same. Either way it is a child of the tests."""

    def _execute_child(
        self, args: Any, executable: Any, preexec_fn: Any, close_fds: Any, pass_fds: Any, cwd: Any, env: Any, *rest: Any
    ) -> None:
        _, _, shell, *pipes, _, gid, gids, uid, umask, new_session, group = rest
        others = preexec_fn, executable, gid, gids, uid
        usual = not (pass_fds or shell) and others == (None,) * len(others) and umask == group == -1
        environment = dict(os.environ if env is None else env)
        same_python = _to_python({**_ADDED, **environment}) == _to_python(_ENVIRONMENT)
        if not (forks and usual and same_python and tuple(args[:3]) == COMMAND):
            super()._execute_child(args, executable, preexec_fn, close_fds, pass_fds, cwd, env, *rest)  # type: ignore[misc]
            return
        os.umask(mask := os.umask(0))
        asked = [[*map(str, args[3:])], environment, str(cwd or Path.cwd()), mask, bool(new_session)]
        files = [fd if fd >= 0 else number for number, fd in enumerate((pipes[0], pipes[3], pipes[5]))]
        with _lock:
            # The child of a child that has ended is a child of the one above both that asks for such.
            ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
            try:
                socket.send_fds(_server(), [json.dumps(asked).encode()], files)
                if not (pid := _server().recv(32)):
                    raise ChildProcessError("the process that forks programs has ended; its traceback is above")
                self.pid = int(pid)
                _server().recv(1)  # it is ours now, and what was asked for
            finally:
                ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 0)
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]


def run(
    *arguments: str, environment: Mapping[str, str], input: str | None = None, seconds: float = 60
) -> "subprocess.CompletedProcess[str]":
    """A command of spamfilter, from its start to its end; as subprocess.run with text."""
    pipe = subprocess.PIPE
    stdin = None if input is None else pipe
    with Program([*COMMAND, *arguments], env=environment, stdin=stdin, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            stdout, stderr = process.communicate(input, seconds)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)


def _to_python(environment: Mapping[str, str]) -> dict[str, str]:
    """What an environment says to Python itself."""
    return {name: value for name, value in environment.items() if name.startswith(TO_PYTHON)}


@functools.cache
def _server() -> socket.socket:
    """The connection to the process that forks, which ends with it."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    atexit.register(ours.close)
    with its:
        its.set_inheritable(True)
        os.posix_spawn(sys.executable, [sys.executable, "-m", __name__, str(its.fileno())], _ENVIRONMENT)
    return ours


def _serve(connection: socket.socket) -> None:
    """Fork for each request; returns in each child, as the program that was asked for, and ends without requests."""
    import spamfilter

    for module in pkgutil.walk_packages(spamfilter.__path__, "spamfilter."):
        if not module.name.endswith("__main__"):
            with contextlib.suppress(ImportError):  # of a package that is not installed
                importlib.import_module(module.name)
    gc.freeze()
    while True:
        request, files, *_ = socket.recv_fds(connection, MOST, 3)
        if not request:
            sys.exit()
        if not (between := os.fork()):
            between = os.getpid()
            if child := os.fork():
                connection.send(b"%d" % child)
                os._exit(0)
            while os.getppid() == between:
                time.sleep(0.0005)
            _become(files, *json.loads(request))
            connection.send(b".")
            connection.close()
            return
        os.waitpid(between, 0)
        for file in files:
            os.close(file)


def _become(
    files: list[int], arguments: list[str], environment: dict[str, str], folder: str, mask: int, new_session: bool
) -> None:
    sys.argv = ["spamfilter", *arguments]
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    os.chdir(folder)
    os.umask(mask)
    if new_session:
        os.setsid()
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
    runpy.run_module("spamfilter", run_name="__main__", alter_sys=True)
