"""A probe: a mail through the relay that is judged, journalled, marked and forgotten, and then removed.

Guarantee: afterwards counts and journal are as they were before, even if a step fails or a user interrupts. If `doctor`
is killed, the relay cleans up some minutes later. The ledger keeps the mark and its undoing, which cancel each other,
for a day.
"""

import random
import re
import secrets
import smtplib
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from math import isclose
from typing import Any

from spamfilter.config.settings import Settings
from spamfilter.doctor.examination import Examination, Finding, NotTried, as_a_client, failed, ok, warning
from spamfilter.errors import InputError, SpamfilterError
from spamfilter.service.control_socket.client import Answer, NoRelay, SocketClient

REQUIRED = (
    "process",
    "smtp",
    "feedback_socket",
    "next_hop",
    "database",
    "schema",
    "integrity",
    "counting",
    "following",
)
"""Checks that must pass before a probe: otherwise it would only repeat their findings."""
WITHIN = 5.0
"""Seconds for each step: the journal is written every half second, the ledger read every quarter."""
SMTP_SECONDS = 60.0
TRIES = 5
"""Attempts: while others teach at the same time, scores cannot be compared."""
APART = 2.0
"""Seconds by which the longest pause before another try grows. A try takes half a second; without pauses two doctors of
a fleet that begin in the same second disturb each other at each."""
WORDS = 12
"""Random words in the probe, which no other mail has."""
SAME = 1e-9
"""Largest difference of log-odds that rounding explains."""
_TAKEN = re.compile(r"\bcanary ([0-9A-Z]{26})\b")


class StepFailed(Exception):
    """A step of the probe failed; the text says which, and how."""


def canary(examined: Examination) -> Iterator[Finding]:
    """Whether a mark changes the verdict of the running relay, and undoing it restores the verdict."""
    examined.require(*REQUIRED)
    if any(finding.status != "ok" for finding in examined.findings["following"]):
        raise NotTried("see following")  # the steps would not wait long enough
    listening = examined.relay["listening"][0]
    try:
        with closing(SocketClient(examined.settings.socket_path())) as client:
            yield _probed(client, examined.settings, listening, lambda: examined.store.state({}).last)
    except (NoRelay, SpamfilterError, StepFailed) as error:
        yield failed(str(error).replace("\n", " "), "see the relay's log for this step")


def _probed(client: SocketClient, settings: Settings, listening: str, last: Callable[[], int]) -> Finding:
    address = _step("issuing an address", lambda: client.ask({"command": "canary"}))["address"]
    probe = _Probe(client, settings, address, last)
    try:
        finding = probe.run(listening)
    except BaseException as error:  # an interruption, too
        try:
            probe.remove()
        except StepFailed as left:
            if isinstance(error, StepFailed):
                raise StepFailed(f"{error}; {left}") from error
        raise
    probe.remove()
    return finding


class _Probe:
    """The probe: a mail to an address that the relay has issued for it. last: the ledger's last entry now."""

    def __init__(self, client: SocketClient, settings: Settings, address: str, last: Callable[[], int]) -> None:
        self._client = client
        self._settings = settings
        self._address = address
        self._last = last

    def run(self, listening: str) -> Finding:
        id = _step(f"sending the probe to {listening}", lambda: self._send(listening))
        _step("finding it in the journal", lambda: self._judged(id, 0))
        for number in range(TRIES):
            time.sleep(random.uniform(0, number * APART))  # noqa: S311 - no secret
            if finding := self._taught_and_untaught(id):
                return finding
        return warning("marks of other users changed the score at each try", "try again later")

    def _taught_and_untaught(self, id: str) -> Finding | None:
        """The finding from one mark and its undoing; None if others have taught meanwhile."""
        before = _step("judging it", lambda: self._judged(id, 0))
        # The label that is less likely: a mark that confirms a clear verdict teaches little.
        label = "ham" if before["log_odds"] > 0 else "spam"
        marked = _step(f"marking it as {label}", lambda: self._mark(label))
        learnt = self._last()  # others' entries may stand before that of the mark
        taught = _step("learning: the relay does not follow", lambda: self._judged(id, learnt))
        _step("taking it back", lambda: self._mark(None))
        forgotten = self._last()
        after = _step("forgetting: the relay does not follow", lambda: self._judged(id, forgotten))
        if after["last"] > before["last"] + 2:
            return None
        scores = " -> ".join(f"{answer['posterior']:.6f}" for answer in (before, taught, after))
        if taught["last"] == before["last"] + 1 and not isclose(taught["log_odds"], marked["log_odds"], abs_tol=SAME):
            raise StepFailed(f"learning: the relay's score is not the database's: {scores}")
        if (before["posterior"], before["log_odds"]) != (after["posterior"], after["log_odds"]):
            raise StepFailed(f"forgetting: the score is not what it was: {scores}")
        if (taught["log_odds"] - before["log_odds"]) * (1 if label == "spam" else -1) <= 0:
            return warning(
                f"one mark does not move a score towards its label: {scores}",
                "mark more of both classes; if it stays so, choose other likelihoods: docs/likelihoods.md",
            )
        return ok(f"sent, judged, journalled, learnt and forgotten: score {scores}")

    def remove(self) -> None:
        if not _step("removing the probe", self._end)["removed"]:
            raise StepFailed("removing the probe: not done yet; the relay does it when its database can be written")

    def _end(self) -> Answer:
        # On a new connection: on the other one, the answer to an interrupted step may still arrive.
        with closing(SocketClient(self._settings.socket_path())) as client:
            return client.ask({"command": "canary_end", "address": self._address})

    def _mark(self, label: str | None) -> Answer:
        return self._client.ask({"command": "canary_mark", "address": self._address, "label": label})

    def _judged(self, id: str, last: int) -> Answer:
        """The relay's verdict on the probe, once it has applied this entry of the ledger. Raises TimeoutError."""
        give_up = time.monotonic() + WITHIN
        while True:
            try:
                answer = self._client.ask({"command": "judge", "id": id})
                if answer["last"] >= last:
                    return answer
                said = f"after {WITHIN:.0f} s at entry {answer['last']} of the ledger instead of {last}"
            except InputError:
                said = f"not there after {WITHIN:.0f} s; see journal and disk"
            if time.monotonic() > give_up:
                raise TimeoutError(said)
            time.sleep(0.05)

    def _send(self, listening: str) -> str:
        """Send the probe; returns its id."""
        address = self._address
        words = " ".join(f"canary{secrets.token_hex(4)}" for _ in range(WORDS))
        mail = (
            f"Message-ID: <{address}>\r\nFrom: <{address}>\r\nTo: <{address}>\r\nSubject: {words}\r\n\r\n"
            f"A probe of spamfilter doctor, which is not delivered.\r\n{words}\r\n"
        )
        # Not `with smtplib.SMTP`: after an interruption smtplib would read the reply to the message as that to QUIT,
        # and raise an error instead of the interruption.
        with closing(smtplib.SMTP(local_hostname="localhost")) as client:
            client.sock = as_a_client(listening, self._settings.relay)
            client.sock.settimeout(SMTP_SECONDS)
            client.getreply()
            client.ehlo_or_helo_if_needed()
            _expect("MAIL", client.mail(address))
            _expect("RCPT", client.rcpt(address))
            said = _expect("the message", client.data(mail))
            client.quit()
        taken = _TAKEN.search(said)
        if taken is None:
            raise StepFailed(f"the relay answers the message with {said}")
        return taken[1]


def _expect(what: str, reply: tuple[int, bytes]) -> str:
    code, said = reply
    text = f"{code} {said.decode('utf-8', 'replace')}"
    if code != 250:
        raise StepFailed(f"the relay answers {what} with {text}")
    return text


def _step(name: str, work: Callable[[], Any]) -> Any:
    try:
        return work()
    except (SpamfilterError, NoRelay, smtplib.SMTPException, OSError, StepFailed) as error:
        raise StepFailed(f"{name}: {error}") from error
