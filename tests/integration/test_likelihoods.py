"""Every choice of voices and likelihoods in a relay that runs, and a change from one to another under it."""

import json
import re
import smtplib
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from spamfilter.bayes.likelihoods import LIKELIHOODS
from spamfilter.bayes.tokens import TOKENIZER
from spamfilter.config.likelihood_settings import DEFAULT_VOICES
from spamfilter.stores.migration import migrate
from tests.integration.servers import Relay, relay, seconds_until, wait_until

CHOICES: dict[str, Mapping[str, Any]] = {
    "default": {},
    "grams": {"voices": ["grams"]},
    "attributes-beside-the-default": {"voices": [*DEFAULT_VOICES, "attributes"], "gaussian": {"least": 1}},
    **{name: {"likelihood": name} for name in LIKELIHOODS},
    "gaussian": {"likelihood": "gaussian", "gaussian": {"least": 1}},  # of one message, too
}
SEEN_WITHIN, ATTEMPTS = 1.0, 2
"""Seconds from the end of a command until mail is judged by what it taught: what the relay promises; and how often it
is tried, as a busy machine may be too slow once."""
_STATUS = re.compile(rb"X-Spam-Status: \S+ score=([0-9.]+) class=\S+ threshold=\S+ learnt=(\d+/\d+)")


def spam(number: int) -> bytes:
    return (
        f"Message-ID: <s{number}@example.org>\r\nFrom: shop@example.org\r\nTo: b@example.test\r\n"
        f"Subject: CHEAP PILLS {number}\r\n\r\n{'BUY CHEAP PILLS now, 100% at http://pills.example. ' * 20}\r\n"
    ).encode()


def ham(number: int) -> bytes:
    return (
        f"Message-ID: <h{number}@example.org>\r\nFrom: ann@example.org\r\nTo: b@example.test\r\n"
        f"Subject: about lunch {number}\r\n\r\nsee you at noon, as always\r\n"
    ).encode()


def send(server: Relay, mail: bytes) -> None:
    with smtplib.SMTP("127.0.0.1", server.port, "client.example", timeout=30) as client:
        client.sendmail("a@example.org", ["b@example.test"], mail)


def delivered(server: Relay) -> set[Path]:
    return set((server.state / "mail" / "new").iterdir())


def judged(server: Relay, mail: bytes) -> tuple[float, str]:
    """Send a mail; the score that the relay wrote into it, and the numbers of ham and spam it had learnt."""
    before = delivered(server) if (server.state / "mail" / "new").exists() else set()
    send(server, mail)
    (file,) = delivered(server) - before
    found = _STATUS.search(file.read_bytes())
    assert found, file.read_bytes()
    return float(found.group(1)), found.group(2).decode()


def done(server: Relay, *words: object) -> str:
    """Run a command that must succeed; its standard output."""
    result = server.command(*(str(word) for word in words))
    assert result.returncode == 0, result.stderr
    return result.stdout


def await_learnt(server: Relay, learnt: str) -> float:
    """Returns after how many seconds it was seen."""
    return seconds_until(lambda: judged(server, ham(999))[1] == learnt, f"learnt={learnt}")


@pytest.mark.parametrize("choice", CHOICES)
def test_a_relay_learns_from_marks_within_a_second_and_forgets_exactly(choice: str, tmp_path: Path) -> None:
    for name, mail in (("spam.eml", spam(1)), ("ham.eml", ham(1))):
        (tmp_path / name).write_bytes(mail)
    with relay(tmp_path / "relay", learn=CHOICES[choice]) as server:
        first = judged(server, spam(2))
        assert first == (0.5, "0/0")

        def marked_and_forgotten() -> float:
            assert "learnt as spam" in done(server, "mark-spam", tmp_path / "spam.eml")
            assert "learnt as ham" in done(server, "mark-ham", tmp_path / "ham.eml")
            marked = await_learnt(server, "1/1")
            assert judged(server, spam(2))[0] > first[0] + 0.02
            assert judged(server, ham(2))[0] < first[0]
            assert done(server, "forget", tmp_path / "spam.eml", tmp_path / "ham.eml").count("forgotten as") == 2
            forgotten = await_learnt(server, "0/0")
            assert judged(server, spam(2)) == first
            return max(marked, forgotten)

        assert any(marked_and_forgotten() < SEEN_WITHIN for _ in range(ATTEMPTS))
        assert "Traceback" not in server.log()


# Another likelihood under a relay that runs

PROBES = [
    f"Message-ID: <p{number}@example.org>\r\nFrom: x{number}@example.org\r\nSubject: {text}\r\n\r\n{text}\r\n".encode()
    for number, text in enumerate(("cheap lunch", "pills pills pills at noon", "friend", "unknown words and cheap"))
]


def trained(server: Relay, folder: Path, count: int = 6) -> None:
    for label, words in (("spam", "cheap pills now"), ("ham", "lunch at noon friend")):
        (folder / label).mkdir()
        for number in range(count):
            text = f"Subject: {words} {number}\n\n{words * (number % 3 + 1)}, {number}\n"
            (folder / label / f"{number}.eml").write_text(text)
    done(server, "train", "--spam", folder / "spam", "--ham", folder / "ham")
    await_learnt(server, f"{count}/{count}")


def scores(server: Relay) -> list[float]:
    """What the relay says of the probes."""
    return [judged(server, probe)[0] for probe in PROBES]


def fresh_scores(server: Relay, folder: Path) -> list[float]:
    """What a new process says of them."""
    files = [folder / f"probe{number}.eml" for number in range(len(PROBES))]
    for file, probe in zip(files, PROBES, strict=True):
        file.write_bytes(probe)
    said = done(server, "judge", "--json", *files).splitlines()
    return [round(json.loads(line)["posterior"], 3) for line in said]


@contextmanager
def mail_meanwhile(server: Relay) -> Iterator[list[int]]:
    """Mail that goes on being sent, numbered, from a thread; the numbers that the relay has accepted."""
    accepted: list[int] = []
    refused: list[Exception] = []
    stop = threading.Event()

    def deliver() -> None:
        number = 0
        while not stop.is_set():
            try:
                send(server, b"Message-ID: <m%d@example.org>\r\nSubject: meanwhile\r\n\r\ncheap lunch\r\n" % number)
                accepted.append(number)
            except (smtplib.SMTPException, OSError) as error:
                refused.append(error)
            number += 1
            time.sleep(0.01)

    thread = threading.Thread(target=deliver)
    thread.start()
    try:
        yield accepted
    finally:
        stop.set()
        thread.join(30)
    assert refused == []
    assert len(accepted) > 10


def received(server: Relay) -> list[int]:
    """The numbers of the mails of `mail_meanwhile` that arrived."""
    found = (re.search(rb"<m(\d+)@", file.read_bytes()) for file in delivered(server))
    return sorted(int(match.group(1)) for match in found if match)


def test_counts_are_rebuilt_under_a_relay_that_goes_on_and_judges_by_them_soon(tmp_path: Path) -> None:
    with relay(tmp_path / "relay", learn={"likelihood": "multinomial"}) as server:
        trained(server, tmp_path)
        before = scores(server)
        assert before == fresh_scores(server, tmp_path)
        server.config.write_text(server.config.read_text().replace("multinomial", "bernoulli"))
        refused = server.command("judge", input="Subject: x\n\ny\n")
        assert (refused.returncode, refused.stdout) == (2, "")
        assert refused.stderr.count("\n") == 1
        assert "run `spamfilter retrain`" in refused.stderr
        for command in ("mark-spam", "forget"):  # the relay learns by the rules that it judges by
            assert server.command(command, input="Subject: x\n\ny\n").returncode == 0
        wait_until(lambda: scores(server) == before, "verdicts as before the mark", SEEN_WITHIN)
        with mail_meanwhile(server) as accepted:
            assert "rebuilt from 12 messages" in done(server, "retrain")
        wait_until(lambda: "loading all counts anew" in server.log(), "the new counts", 2 * SEEN_WITHIN)
        expected = fresh_scores(server, tmp_path)
        wait_until(lambda: scores(server) == expected, "verdicts by the new counts", 2 * SEEN_WITHIN)
        assert all(new != old for new, old in zip(expected, before, strict=True))
        assert received(server) == accepted
        done(server, "mark-ham", tmp_path / "probe0.eml")
        await_learnt(server, "7/6")
        assert scores(server) == fresh_scores(server, tmp_path)
        assert "Traceback" not in server.log()


def test_a_relay_whose_configuration_was_not_changed_says_so_once_and_judges_as_before(tmp_path: Path) -> None:
    with relay(tmp_path / "relay", learn={"likelihood": "multinomial"}) as server:
        trained(server, tmp_path, 3)
        before = scores(server)
        other = tmp_path / "other.toml"
        other.write_text(server.config.read_text().replace("multinomial", "bernoulli"))
        done(server, "--config", other, "retrain")
        wait_until(lambda: "judging with what was learnt before" in server.log(), "the complaint")
        time.sleep(1.5)  # half a dozen looks at the ledger
        assert scores(server) == before
        assert server.log().count("judging with what was learnt before") == 1
        assert server.log().count("was replaced or rebuilt") == 1
        assert "Traceback" not in server.log()
        # And it takes the new counts as soon as its own configuration asks for them.
        server.config.write_text(other.read_text())
        expected = fresh_scores(server, tmp_path)
        wait_until(lambda: scores(server) == expected, "verdicts by the new counts", 5 * SEEN_WITHIN)


def test_an_upgrade_to_other_rules_judges_by_those_of_the_counts_until_they_are_rebuilt(tmp_path: Path) -> None:
    """An old schema, and the likelihood that was then the default; a file without [learn] says another one now."""
    with relay(tmp_path / "relay", learn={"likelihood": "multinomial"}) as server:
        trained(server, tmp_path)
        before = scores(server)
    migrate(f"sqlite:///{server.state / 'spamfilter.db'}", "0001")
    (tmp_path / "relay" / "log").unlink()
    with relay(tmp_path / "relay") as server:
        assert scores(server) == before
        warning = f'WARNING the database was learnt with fields by "multinomial" (tokenizer {TOKENIZER}); the config'
        assert server.log().count(warning) == 1
        assert "run `spamfilter retrain`" in server.log()
        doctor = server.command("doctor", "--json")
        (counting,) = (line for line in json.loads(doctor.stdout)["lines"] if line["check"] == "counting")
        assert (counting["status"], "run `spamfilter retrain`" in counting["advice"]) == ("failed", True)
        assert "the relay judges by the first" in counting["found"]
        assert server.command("mark-spam", input="Subject: x\n\ny\n").returncode == 0
        assert server.command("forget", input="Subject: x\n\ny\n").returncode == 0
        wait_until(lambda: scores(server) == before, "verdicts as before the mark", SEEN_WITHIN)
        done(server, "retrain", "--mail", tmp_path)
        expected = fresh_scores(server, tmp_path)
        assert expected != before
        wait_until(lambda: scores(server) == expected, "verdicts by the new counts", 5 * SEEN_WITHIN)
        assert "Traceback" not in server.log()
