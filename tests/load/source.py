"""Postfix' load generator, run again and again, and the account of what it sent."""

import os
import subprocess
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.load.mails import made
from tests.support.real import require

DOMAIN = "load.test"


@dataclass(frozen=True)
class Round:
    """One run of smtp-source. seconds: as it took; cpu: processor time it used."""

    number: int
    messages: int
    kept: bool
    seconds: float
    cpu: float

    @property
    def rate(self) -> float:
        return self.messages / self.seconds

    def recipients(self) -> Iterator[str]:
        return (f"{number}round{self.number}@{DOMAIN}" for number in range(1, self.messages + 1))


@dataclass
class Source:
    """Sends to one relay after the other. folder: where mails are written to for it; rounds: all that was accepted."""

    folder: Path
    rounds: list[Round] = field(default_factory=list)
    _number: int = 0

    def send(self, port: int, messages: int, connections: int, kept: bool, mail: bytes = b"") -> Round:
        """Send so many messages, all the same mail, a new one unless given, each to another recipient.

        kept: whether a connection is used for many messages, or for one. Raises RuntimeError unless each is accepted.
        """
        self._number += 1
        number = self._number
        file = self.folder / f"mail{number}"
        mail = mail or made(f"round{number}", "spam" if number % 3 == 0 else "ham")
        file.write_bytes(mail.replace(b"\r\n", b"\n"))
        command = [require("smtp-source", "postfix"), "-4", "-N", "-m", str(messages), "-s", str(connections)]
        command += ["-M", "client.test", "-f", "sender@example.org", "-t", f"round{number}@{DOMAIN}", "-F", str(file)]
        command += ["-d"] if kept else []
        began = time.perf_counter()
        process = subprocess.Popen([*command, f"127.0.0.1:{port}"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        assert process.stdout is not None
        try:
            said = process.stdout.read()
        except BaseException:
            process.kill()
            process.wait()
            raise
        finally:
            process.stdout.close()
        _, status, used = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        file.unlink()
        if process.returncode or said:
            raise RuntimeError(f"smtp-source: {process.returncode}: {said.decode(errors='replace')}")
        done = Round(number, messages, kept, seconds, used.ru_utime + used.ru_stime)
        self.rounds.append(done)
        return done


def astray(sent: Iterable[str], arrived: Iterable[str]) -> tuple[list[str], list[str], list[str]]:
    """Of what was accepted, once each: what is lost, what is doubled, and what arrived although nobody sent it."""
    promised, there = Counter(sent), Counter(arrived)
    lost = [name for name in promised if there[name] < promised[name]]
    doubled = [name for name in promised if there[name] > promised[name]]
    return lost, doubled, [name for name in there if name not in promised]
