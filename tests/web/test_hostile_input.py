"""Hostile mail, queries and forms at the pages of a running relay: their content is never more than a value."""

import json
import re
import smtplib
import socket
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from urllib.parse import quote

import pytest

from tests.faults.fault import Say
from tests.integration.servers import wait_until, workshop
from tests.web.pages import Browser, Site, mail_of, site

MARKUP = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'><b>bold</b>"
LONG = "x" * 5000
MARKS_A_DAY = 3


@pytest.fixture(scope="module")
def pages() -> Iterator[Site]:
    with workshop() as folder, site(folder / "s", feedback={"marks_a_day": MARKS_A_DAY}) as made:
        yield made


def assert_no_markup(text: str, where: str) -> None:
    """Of mail or of a query, in a page."""
    ours = text.replace('<script src="/keyboard.js" defer></script>', "")
    assert not re.search(r"<(script|img|b>bold|svg/)", ours), where
    tags = "".join(re.findall(r"<[a-z][^>]*>", ours))
    assert not re.search(r"\son\w+=", re.sub(r'"[^"]*"', "", tags)), where


@pytest.fixture(scope="module")
def sent(pages: Site) -> str:
    """A mail that is markup in every part that the pages show, refused by the next hop with more of it."""
    text = (
        f'Message-ID: <"{MARKUP}"@example.org>\r\nFrom: {MARKUP} <a@example.org>\r\nTo: {MARKUP}\r\n'
        f"Subject: {MARKUP}\r\nX-<script>x</script>: {MARKUP}\r\n\r\n{MARKUP} {MARKUP}\r\n"
    )
    pages.hop.faults["DOT"] = Say(f"550 5.7.1 {MARKUP}\r\n".encode())
    with smtplib.SMTP("127.0.0.1", pages.relay.port, "<script>helo</script>", timeout=60) as client:
        client.ehlo_or_helo_if_needed()
        assert client.docmd("MAIL", 'FROM:<"<script>alert(3)</script>"@example.org>')[0] == 250
        assert client.docmd("RCPT", 'TO:<"<script>alert(4)</script>"@example.test>')[0] == 250
        assert client.data(text.encode())[0] == 550
    pages.hop.heal()
    browser = pages.browser("anna")
    wait_until(lambda: "/messages/0" in browser.get("/messages").text, "the journal")
    (id,) = re.findall(r"/messages/([0-9A-Z]{26})", browser.get("/messages").text)
    return str(id)


def test_nothing_of_a_mail_its_envelope_and_its_reply_is_markup(pages: Site, sent: str) -> None:
    browser = pages.browser("anna")
    shown = browser.get(f"/messages/{sent}")
    for words in ("alert(3)", "alert(4)", "5.7.1 <script>", "<img src=x"):
        assert words in shown.words
    assert browser.submit("/", f"/messages/{sent}/mark", label="spam").status == 303
    for path in ("/", f"/messages/{sent}", "/messages", "/review", "/learning", "/learning/forget?by=anna&period=day"):
        answer = browser.get(path)
        assert answer.status == 200
        assert_no_markup(answer.text, path)
    assert browser.submit("/", f"/messages/{sent}/mark", label="forget").status == 303


@pytest.mark.parametrize(
    "path",
    ["/messages?subject={}", "/messages?sender={}", "/messages?class={}", "/messages?action={}", "/messages?least={}",
     "/messages?before={}", "/messages?{}=1", "/?period={}", "/learning?period={}", "/learning/forget?by={}&period=day",
     "/learning/forget?by=x&period={}", "/review?at={}", "/messages/{}", "/{}", "/login?next={}", "/api/{}"],
)  # fmt: skip
def test_nothing_of_a_query_is_markup(pages: Site, path: str) -> None:
    for browser in (pages.browser("anna"), pages.browser()):
        for text in (MARKUP, "</title>" + MARKUP, "{{ 7*7 }}{% raw %}", "\x00\r\nSet-Cookie: x=y", "\u202e", LONG):
            answer = browser.get(path.format(quote(text, safe="")))
            assert answer.status in (200, 303, 400, 401, 404), answer.status
            assert_no_markup(answer.text, path)
            assert "x" not in browser.cookies
            if answer.status == 303:
                assert answer.fields["location"].startswith(("/login", "/"))
                assert not answer.fields["location"].startswith("//")


def test_a_name_that_cannot_sign_in_is_no_markup(pages: Site) -> None:
    answer = pages.browser().sign_in(MARKUP, "wrong wrong", next=MARKUP)
    assert answer.status == 403
    assert_no_markup(answer.text, "/login")


def rows(pages: Site) -> list[int]:
    with closing(sqlite3.connect(pages.relay.database)) as database:
        return [database.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in ("journal", "ledger")]


@pytest.mark.parametrize(
    "text",
    ["' OR '1'='1", "'; DROP TABLE journal; --", '" OR 1=1 --', "%", "_", "\\", "a' UNION SELECT 1 --", "\ud7ff"],
)
def test_what_is_typed_is_never_sql(pages: Site, sent: str, text: str) -> None:
    anna = pages.browser("anna")
    assert anna.submit("/", f"/messages/{sent}/mark", label="spam").status == 303
    before = rows(pages)
    for name in ("subject", "sender"):
        answer = anna.get(f"/messages?{name}={quote(text)}")
        assert answer.status in (200, 400)
        assert f'href="/messages/{sent}"' not in answer.text
    assert f'href="/messages/{sent}"' in anna.get("/messages?subject=alert").text
    assert "There is nothing to undo" in anna.get(f"/learning/forget?by={quote(text)}&period=ever").words
    for path, form in (
        ("/learning/forget", {"by": text, "period": "ever"}),
        (f"/messages/{quote(text, safe='')}/mark", {"label": "ham"}),
        ("/review", {"id": text, "label": "ham"}),
        (f"/messages/{sent}/mark", {"label": text}),
    ):
        assert anna.submit("/", path, **form).status in (303, 400, 404)
    assert rows(pages) == before
    assert anna.submit("/", f"/messages/{sent}/mark", label="forget").status == 303


def test_a_user_has_no_more_marks_a_day_here_than_elsewhere(pages: Site) -> None:
    lena = pages.browser("lena")
    ids = [pages.send(mail_of(f"m{number}", f"Mark {number}", "words")) for number in range(MARKS_A_DAY + 1)]
    answers = [lena.submit("/", f"/messages/{id}/mark", label="spam") for id in ids]
    assert [answer.status for answer in answers] == [303] * MARKS_A_DAY + [403]
    assert "marks" in answers[-1].words
    assert lena.submit("/", "/review", id=ids[-1], label="ham").status == 403
    assert pages.browser("anna").submit("/", f"/messages/{ids[-1]}/mark", label="spam").status == 303


@pytest.mark.parametrize(
    "lines",
    [
        b"Content-Length: 5\r\nContent-Length: 6\r\n", b"Content-Length: -1\r\n", b"Content-Length: 1_0\r\n",
        b"Transfer-Encoding: gzip\r\n", b"Transfer-Encoding: chunked, chunked\r\n", b"Con tent: x\r\n",
        b"X: a\x00b\r\n", b"Host: y\r\n",
    ],
)  # fmt: skip
def test_a_request_that_can_be_read_in_two_ways_is_refused(pages: Site, lines: bytes) -> None:
    with socket.create_connection(("127.0.0.1", pages.port), timeout=60) as client:
        client.sendall(b"POST /login HTTP/1.1\r\nHost: x\r\n" + lines + b"\r\nabcdef")
        assert re.match(rb"HTTP/1.1 (400|501) ", client.recv(100))


FORM = b"Content-Type: application/x-www-form-urlencoded\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"


def test_a_request_with_two_lengths_is_refused_and_its_connection_closed(pages: Site) -> None:
    """A proxy that believes the one and a page that believes the other disagree about where the next request begins."""
    with socket.create_connection(("127.0.0.1", pages.port), timeout=60) as client:
        head = b"POST /login HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n" + FORM + CHUNKED
        client.sendall(head + b"\r\n3\r\na=b\r\n0\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n")
        answer = client.makefile("rb").read()
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize(
    ("fields", "begin", "answered"),
    [(FORM + CHUNKED, b"", False), (FORM + CHUNKED, b"3\r\na=b\r\n", False), (CHUNKED, b"", True)],
    ids=["at once", "behind a good chunk", "behind the answer"],
)
def test_a_broken_chunk_leaves_no_line_in_the_log(pages: Site, fields: bytes, begin: bytes, answered: bool) -> None:
    earlier = pages.log()
    with socket.create_connection(("127.0.0.1", pages.port), timeout=60) as client:
        client.sendall(b"POST /login HTTP/1.1\r\nHost: x\r\n" + fields + b"\r\n" + begin)
        answer = client.recv(12) if answered else b""
        client.sendall(b"no length\r\n")
        answer += client.makefile("rb").read()
    assert answer[:12] == (b"HTTP/1.1 415" if answered else b"HTTP/1.1 400")
    assert answer.count(b"HTTP/1.1 ") == 1
    assert pages.browser().get("/login").status == 200
    assert pages.log() == earlier


def test_a_broken_chunk_in_one_packet_with_its_request_leaves_no_line_in_the_log(pages: Site) -> None:
    """The page is about to answer that no such form is accepted when the 400 is sent."""
    earlier = pages.log()
    with socket.create_connection(("127.0.0.1", pages.port), timeout=60) as client:
        client.sendall(b"POST /login HTTP/1.1\r\nHost: x\r\n" + CHUNKED + b"\r\nno length\r\n")
        assert client.makefile("rb").read().startswith(b"HTTP/1.1 400 ")
    assert pages.browser().get("/login").status == 200
    assert pages.log() == earlier


def test_an_upgrade_that_is_not_offered_leaves_no_line_in_the_log(pages: Site) -> None:
    earlier = pages.log()
    assert pages.browser().get("/login", Connection="upgrade", Upgrade="websocket").status == 200
    assert pages.log() == earlier


def test_an_error_of_the_api_is_json_whatever_was_asked(pages: Site) -> None:
    for path in (f"/api/{quote(MARKUP)}", "/api/messages", "/api/../api/messages", "/api/%00"):
        answer = Browser(pages.port).get(path)
        assert answer.fields["content-type"] == "application/json"
        assert answer.fields["x-content-type-options"] == "nosniff"
        assert list(json.loads(answer.body)) == ["error"]
