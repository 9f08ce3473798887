"""The log: one line for each record, whatever a mail contains; as text, as JSON, for systemd's journal."""

import json
import logging
import os
import smtplib
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from spamfilter.system import logs
from spamfilter.system.logs import Event
from tests.faults.daemon import daemon
from tests.faults.hop import next_hop
from tests.support.made import mail
from tests.support.pseudo_terminal import shown

NASTY = "a\r\nINFO x: class=ham \x1b[31m\u202e<>\"'"
EVENT = Event(
    "01J", {"client": NASTY, "from": NASTY, "to": "b@example.net", "score": 0.25, "recipients": 2, "reply": ""}
)


@pytest.fixture(autouse=True)
def as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Restores the handlers of the log."""
    monkeypatch.delenv("JOURNAL_STREAM", raising=False)
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    try:
        yield
    finally:
        root.handlers[:] = before
        root.setLevel(level)


def test_an_event_is_one_line_of_keys_and_values(capsys: pytest.CaptureFixture[str]) -> None:
    logs.set_up("text", "info")
    logging.getLogger("spamfilter").info(EVENT)
    (line,) = capsys.readouterr().err.splitlines()
    at, _, event = line.partition(" ")
    assert abs(datetime.fromisoformat(at) - datetime.now(UTC)) < timedelta(minutes=5)
    assert event.startswith("INFO 01J: client=a")
    assert line.endswith(" to=<b@example.net> score=0.250 recipients=2 reply=")
    assert line.isprintable()
    assert line.isascii()


def test_an_event_is_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    logs.set_up("json", "info")
    log = logging.getLogger("spamfilter")
    log.info(EVENT)
    log.warning("limit %s: %s", "errors", NASTY)
    log.debug("not at this level")
    try:
        raise ValueError(NASTY)
    except ValueError:
        log.exception("a fault")
    lines = capsys.readouterr().err.split("\n")
    assert lines.pop() == ""
    event, warning, fault = map(json.loads, lines)
    assert event.pop("at").endswith("+00:00")
    assert event == {"level": "info", "id": EVENT.id, **EVENT.fields}
    assert (warning["level"], warning["message"]) == ("warning", f"limit errors: {NASTY}")
    assert (fault["message"], "ValueError: a" in fault["traceback"]) == ("a fault", True)
    assert all(line.isascii() for line in lines)


def own_stream() -> str:
    """What systemd would say of standard error."""
    found = os.fstat(sys.stderr.fileno())
    return f"{found.st_dev}:{found.st_ino}"


@pytest.mark.parametrize("form", logs.FORMATS)
def test_systemds_journal_is_told_how_grave_each_line_is(
    capfd: pytest.CaptureFixture[str], form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOURNAL_STREAM", own_stream())
    logs.set_up(form, "debug")
    log = logging.getLogger("spamfilter")
    for level in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL):
        log.log(level, "said")
    try:
        raise ValueError
    except ValueError:
        log.exception("a fault")
    found = [line[:3] for line in capfd.readouterr().err.splitlines()]
    assert found[:5] == ["<7>", "<6>", "<4>", "<3>", "<3>"]
    assert set(found[5:]) == {"<3>"}


def test_systemds_journal_has_the_time_itself(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOURNAL_STREAM", own_stream())
    logs.set_up("text", "info")
    logging.getLogger("spamfilter").info("ready")
    assert capfd.readouterr().err == "<6>INFO ready\n"
    monkeypatch.setenv("JOURNAL_STREAM", "8:1")  # of standard output, or of the process that has started this one
    logs.set_up("text", "info")
    logging.getLogger("spamfilter").info("ready")
    assert capfd.readouterr().err.endswith("Z INFO ready\n")


@pytest.mark.parametrize(
    ("environ", "level"),
    [({}, "\x1b[33mWARNING\x1b[0m"), ({"NO_COLOR": "1"}, "WARNING"), ({"TERM": "dumb"}, "WARNING")],
    ids=["colours", "no-color", "dumb"],
)
def test_on_a_terminal_the_log_has_times_and_colours(
    monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], level: str
) -> None:
    """Also in a session that systemd has started, where JOURNAL_STREAM is of another output."""
    monkeypatch.setenv("JOURNAL_STREAM", "8:1")
    program = "import logging; from spamfilter.system import logs; logs.set_up('text', 'info'); logging.warning('full')"
    code, text = shown("-c", program, program=(sys.executable,), environ=environ)
    assert code == 0
    at, _, said = text.partition(" ")
    assert datetime.fromisoformat(at).tzinfo == UTC
    assert said == f"{level} full\n"


def test_a_relay_logs_objects(tmp_path: Path) -> None:
    with next_hop() as hop, daemon(tmp_path, hop, log={"format": "json"}) as relay:
        with smtplib.SMTP("127.0.0.1", relay.port, "client.test", timeout=60) as client:
            client.sendmail("a@example.org", ["b@example.net", "c@example.net"], mail())
        (event,) = (line for line in map(json.loads, relay.log().splitlines()) if "id" in line)
        assert (event["from"], event["to"], event["recipients"]) == ("a@example.org", "b@example.net", 2)
        assert (event["class"], event["score"], event["action"]) == ("unsure", 0.5, "pass")
        assert event["reply"].startswith("250 ")
        assert event["total_us"] >= event["judge_us"] > 0


def test_a_fault_that_comes_again_and_again_shows_its_traceback_once_a_minute(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    logs.set_up("text", "info")
    log, now = logging.getLogger("spamfilter"), 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    tracebacks = []
    for seconds, error in (
        (0, ValueError()),
        (1, ValueError()),
        (2, KeyError()),
        (59, ValueError()),
        (61, ValueError()),
    ):
        now = 1000.0 + seconds
        try:
            raise error
        except (ValueError, KeyError):
            log.exception("%s: a fault", seconds)
        said = capsys.readouterr().err
        assert said.split("\n")[0].endswith(f"Z ERROR {seconds}: a fault")
        tracebacks.append("Traceback" in said)
    assert tracebacks == [True, False, True, False, True]


def test_a_line_that_is_said_seldom_is_one_a_minute(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    logs.set_up("json", "info")
    log, now = logging.getLogger("spamfilter"), 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    for seconds in (0, 1, 30, 61, 62):
        now = 1000.0 + seconds
        log.error("full: %d", seconds, extra=logs.SELDOM)
        log.error("another: %d", seconds)
    said = [json.loads(line)["message"] for line in capsys.readouterr().err.splitlines()]
    assert [line for line in said if line.startswith("full")] == ["full: 0", "full: 61"]
    assert len(said) == 7
