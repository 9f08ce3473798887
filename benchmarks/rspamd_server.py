"""rspamd with Redis as a milter, both as processes in a folder: nothing but Bayes, no rule, no module, no DNS.

What is not named here is as rspamd's own configuration files have it: Bayes' settings, log, limits. Spam gets the
header field `X-Spam: Yes`; none is refused.
"""

import contextlib
import os
import re
import shutil
import socket
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.integration.servers import await_start, end, free_port, wait_until

OPTIONS = """
options {{
    filters = "";
    pidfile = "{folder}/pid";
    control_socket = "{folder}/control.sock mode=0600";
    cache_file = "{folder}/symbols.cache";
    history_file = "{folder}/history";
    stats_file = "{folder}/stats.ucl";
    hs_cache_dir = "{folder}/";
    tempdir = "{folder}";
    url_tld = "/usr/share/rspamd/effective_tld_names.dat";
    explicit_modules = [];
    dns {{ nameserver = ["127.0.0.1:{closed}"]; timeout = 1s; retransmits = 1; }}
}}
logging {{
    type = "file";
    filename = "{folder}/log";
    .include "/etc/rspamd/logging.inc"
}}
worker "controller" {{
    bind_socket = "127.0.0.1:{controller}";
    count = 1;
    secure_ip = "127.0.0.1";
}}
"""
WORKERS = """
worker "normal" {{
    bind_socket = "127.0.0.1:{normal}";
    count = {workers};
    mime = true;
}}
worker "rspamd_proxy" {{
    bind_socket = "127.0.0.1:{milter}";
    count = 1;
    milter = yes;
    timeout = 120s;
    upstream "local" {{ default = yes; hosts = "127.0.0.1:{normal}"; }}
}}
"""
"""As Debian installs it: a proxy speaks Milter and hands each mail to a worker, which judges it."""
SELF_SCAN = """
worker "rspamd_proxy" {{
    bind_socket = "127.0.0.1:{milter}";
    count = {workers};
    milter = yes;
    timeout = 120s;
    upstream "local" {{ default = yes; self_scan = yes; }}
}}
"""
"""As its documentation advises for one machine: the processes that speak Milter judge, too."""
BAYES = """
redis {{ servers = "{redis}"; }}
classifier "bayes" {{
    tokenizer {{ name = "osb"; }}
    cache {{ }}
    new_schema = true;
    store_tokens = false;
    signatures = false;
    min_tokens = 11;
    backend = "redis";
    min_learns = 200;
    statfile {{ symbol = "BAYES_HAM"; spam = false; }}
    statfile {{ symbol = "BAYES_SPAM"; spam = true; }}
    learn_condition = 'return require("lua_bayes_learn").can_learn';
}}
actions {{ reject = null; greylist = null; add_header = 4; }}
group "statistics" {{
    symbols = {{
        "BAYES_SPAM" {{ weight = 5.1; }}
        "BAYES_HAM" {{ weight = -3.0; }}
    }}
}}
"""
START_SECONDS = 300.0
"""At its first start it compiles a table of top-level domains: 10 s on an idle machine."""
JUDGED = re.compile(r" \(default: \w+ \([^)]*\): \[[^]]*\] \[([^]]*)\]")


@dataclass(frozen=True)
class Rspamd:
    """One that runs. milter: its port for Postfix; pids: the first processes of rspamd and of Redis."""

    folder: Path
    milter: int
    controller: int
    redis: Path
    pids: tuple[int, int]

    def learn(self, label: str, mails: Path) -> None:
        """Learn every file of a folder as 'spam' or 'ham', as bulk."""
        command = ["rspamc", "-h", f"127.0.0.1:{self.controller}", "--header", "Learn-Type=bulk"]
        done = subprocess.run([*command, f"learn_{label}", str(mails)], capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"rspamc: {done.stdout[-500:]}{done.stderr[-500:]}")

    def learnt(self) -> dict[str, int]:
        """How many mails of each class Bayes has learnt: not those that it calls too short, or the same as others."""
        command = ["redis-cli", "-s", str(self.redis), "HMGET", "RS", "learns_ham", "learns_spam"]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        return {name: int(count or 0) for name, count in zip(("ham", "spam"), said.splitlines(), strict=True)}

    def log(self) -> str:
        file = self.folder / "log"
        return file.read_text(errors="replace") if file.exists() else ""


def verdicts(log: str) -> Counter[str]:
    """Of the mails in a part of rspamd's log: how many got the symbol of either class, or none."""
    found: Counter[str] = Counter()
    for symbols in JUDGED.findall(log):
        of_bayes = re.search(r"BAYES_(HAM|SPAM)", symbols)
        found[of_bayes.group(1).lower() if of_bayes else "none"] += 1
    return found


@contextlib.contextmanager
def redis(folder: Path) -> Iterator[tuple[Path, int]]:
    """Redis on a Unix socket alone, else with its defaults: the socket and the process."""
    path = folder / "redis.sock"
    command = ["redis-server", "--port", "0", "--unixsocket", str(path), "--unixsocketperm", "777"]
    with (folder / "redis.log").open("wb") as log:
        process = subprocess.Popen([*command, "--dir", str(folder)], stdout=log, stderr=log, start_new_session=True)
    try:
        await_start(process, path.exists, lambda: (folder / "redis.log").read_text())
        yield path, process.pid
    finally:
        process.terminate()
        end(process)


def listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5):
        return True
    return False


@contextlib.contextmanager
def rspamd(folder: Path, *, self_scan: bool, workers: int = len(os.sched_getaffinity(0))) -> Iterator[Rspamd]:
    """rspamd before a Redis of its own, with as many processes that judge as there are processors."""
    folder.mkdir(parents=True)
    shutil.chown(folder, "_rspamd", "_rspamd")
    ports = {name: free_port() for name in ("closed", "controller", "normal", "milter")}
    with redis(folder) as (path, store):
        text = OPTIONS + (SELF_SCAN if self_scan else WORKERS) + BAYES
        (folder / "rspamd.conf").write_text(text.format(folder=folder, redis=path, workers=workers, **ports))
        command = ["rspamd", "-f", "-u", "_rspamd", "-g", "_rspamd", "-c", str(folder / "rspamd.conf")]
        with (folder / "output").open("wb") as output:
            process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
        server = Rspamd(folder, ports["milter"], ports["controller"], path, (process.pid, store))
        try:
            wait_until(
                lambda: process.poll() is not None or (listens(server.milter) and listens(server.controller)),
                "rspamd's start",
                START_SECONDS,
            )
            if process.poll() is not None:
                raise RuntimeError((folder / "output").read_text() + server.log())
            yield server
        finally:
            process.terminate()
            end(process)
