"""The parts of the benchmark behind Postfix: what is sent, and how logs are read: no mail may be counted wrongly."""

from pathlib import Path

import pytest
from mail_chains import SENT, Growing
from mail_source import on_the_wire
from rspamd_server import verdicts

RSPAMD = (
    "2026-11-21 20:31:19 #11391(normal) <72cbce>; task; rspamd_task_write_log: id: <a@example.org>, qid: <98D4>,"
    " ip: 127.0.0.1, from: <b@example.org>, (default: {}), len: 13230, time: 5.259ms, dns req: 0,"
    " digest: <c3f488e91b5987eb38d5485d5a1e2bc0>, rcpts: <round1-0-5@bulk.test>\n"
)
SMTP = (
    "Nov 21 20:31:19 mail postfix/smtp[12]: 98D4: to=<round1-0-5@bulk.test>, relay=127.0.0.1[127.0.0.1]:4444,"
    " delay=0.1, delays=0.1/0/0/0, dsn=2.0.0, status={} (250 2.0.0 Ok)\n"
)


@pytest.mark.parametrize(
    ("mail", "sent"),
    [
        (b"a: b\n\nc\n", b"a: b\r\n\r\nc\r\n.\r\n"),
        (b"a: b\r\n\r\nc", b"a: b\r\n\r\nc\r\n.\r\n"),
        (b"\n.\n..\r.", b"\r\n..\r\n...\r\n..\r\n.\r\n"),
        (b"x" * 998 + b".y\n", b"x" * 998 + b"\r\n..y\r\n.\r\n"),
        (b"", b"\r\n.\r\n"),
    ],
    ids=["LF", "no end", "dots", "long line", "empty"],
)
def test_a_mail_goes_on_the_wire_as_rfc_5321_wants_it(mail: bytes, sent: bytes) -> None:
    assert on_the_wire(mail) == sent


@pytest.mark.parametrize(
    ("said", "verdict"),
    [
        ("T (add header): [5.10/4.00] [BAYES_SPAM(5.10){100.00%;}]", "spam"),
        ("F (no action): [-3.00/4.00] [BAYES_HAM(-3.00){99.90%;}]", "ham"),
        ("F (no action): [-0.00/4.00] [BAYES_HAM(-0.00){12.57%;}]", "ham"),
        ("F (no action): [0.00/4.00] []", "none"),
    ],
)
def test_each_mail_in_the_log_of_rspamd_has_one_verdict(said: str, verdict: str) -> None:
    other = "2026-11-21 20:31:19 #11391(normal) <72cbce>; task; rspamd_protocol_http_reply: BAYES_SPAM\n"
    assert verdicts(f"{other}{RSPAMD.format(said)}{other}") == {verdict: 1}


def test_only_what_was_delivered_has_arrived() -> None:
    log = SMTP.format("sent") + SMTP.format("deferred") + SMTP.format("bounced") + "smtpd[1]: proxy-accept: to=<a@b>\n"
    assert SENT.findall(log) == ["round1-0-5"]


def test_a_line_that_is_half_written_is_read_once_it_is_whole(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_text("one\ntw")
    log = Growing(file)
    assert log.rest() == "one\n"
    assert log.rest() == ""
    file.write_text("one\ntwo\nthree\n")
    assert log.rest() == "two\nthree\n"
