"""Attacks on the pages of a running relay: no account exceeds its role, and content of a mail is never markup."""

import base64
import json
import re
import socket
import sqlite3
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from html import unescape
from urllib.parse import parse_qsl

import pytest

from spamfilter.mail.message import GTUBE
from spamfilter.web.server import MOST_FIELDS, PAGES
from spamfilter.web.site.connections import MOST_CONNECTIONS
from spamfilter.web.site.limits import FIELDS, MOST_BODY
from spamfilter.web.site.throttle import OF_ADDRESS
from tests.faults.daemon import Daemon
from tests.integration.servers import wait_until, workshop
from tests.web.pages import PASSWORD, Browser, Site, mail_of, site

MARKUP = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'><b>bold</b> {{ 7*7 }} \x01\x7f"
NOBODYS = "0" * 26


@pytest.fixture(scope="module")
def pages() -> Iterator[Site]:
    proxy = {"proxy_header": "X-Remote-User", "proxy_addresses": ["127.0.0.1/32"]}
    settings = {"verdict": {"on_spam": "quarantine"}, "recipients": [{"to": ["other.test"], "spam": 0.97}]}
    with workshop() as folder, site(folder / "s", proxy, **settings) as made:
        yield made


@pytest.fixture(scope="module")
def sent(pages: Site) -> str:
    """A message whose every part is markup."""
    mail = mail_of("markup", MARKUP, f"words {MARKUP} <svg/onload=alert(3)> " + "x" * 5000)
    return pages.send(mail.replace(b"From: a@", b"From: <script>a@"))


def learnings(relay: Daemon) -> list[tuple[str, str, str]]:
    """The ledger: source, author, label; what takes one back has 'undo'."""
    with closing(sqlite3.connect(relay.database)) as database:
        rows = database.execute("SELECT source, by, CASE WHEN undoes IS NULL THEN label ELSE 'undo' END FROM ledger")
        return [tuple(row) for row in rows.fetchall()]


def actions(id: str) -> dict[str, dict[str, str]]:
    """Every path that does something, with a form that would do it."""
    forms = {
        "/login": {"name": "anna", "password": PASSWORD}, "/logout": {}, f"/messages/{id}/mark": {"label": "spam"},
        f"/messages/{id}/release": {}, f"/messages/{id}/delete": {}, "/quarantine/act": {f"mail-{id}": "on"},
        "/senders/add": {"kind": "block", "sender": "example.org"}, "/senders/undo": {"id": "1"},
        "/review": {"id": id, "label": "spam"}, "/review/undo": {},
        "/learning/forget": {"by": "lena", "period": "ever"}, "/doctor": {},
    }  # fmt: skip
    assert {re.sub(NOBODYS, "{id}", path.replace(id, NOBODYS)) for path in forms} == {
        page.path
        for page in PAGES
        if page.post and not page.path.startswith("/kept/")  # those need no account
    }
    return forms


def test_nobody_sees_anything_before_signing_in(pages: Site, sent: str) -> None:
    stranger = pages.browser()
    for page in PAGES:
        if page.get and page.role:
            answer = stranger.get(page.path.replace("{id}", sent))
            assert (answer.status, answer.fields["location"].startswith("/login?next=")) == (303, True)
            assert answer.body == b""
    assert stranger.get("/login").status == 200


def test_no_action_is_done_without_a_session(pages: Site, sent: str) -> None:
    before = learnings(pages.relay)
    for path, form in actions(sent).items():
        answer = pages.browser().submit("/login", path, **form) if path != "/login" else None
        assert answer is None or answer.fields["location"].startswith("/login?next=/")
    assert learnings(pages.relay) == before


def test_the_beginning_of_the_text_is_shown_as_text(pages: Site) -> None:
    id = pages.send(mail_of("excerpt", "an offer", f"Dear Anna, {MARKUP} see http://example.com/ " + "y" * 5000))
    anna = pages.browser("anna")
    page = anna.get(f"/messages/{id}").text
    shown = page.partition('class="mail-text">')[2].partition("</p>")[0]
    assert shown.startswith("Dear Anna, &lt;script&gt;")
    assert len(unescape(shown).replace(r"\x01\x7f", "..")) == 400
    assert "<a href" not in shown
    assert 'class="mail-text">Dear Anna, &lt;script&gt;' in anna.get("/review").text


def test_no_action_is_done_without_the_stamp_of_its_session(pages: Site, sent: str) -> None:
    before = learnings(pages.relay)
    anna, other = pages.browser("anna"), pages.browser("anna")
    for stamp in ("", "0" * 64, other.get("/").stamp, "\u00e9"):
        for path, form in actions(sent).items():
            answer = anna.post(path, {**form, "stamp": stamp})
            assert (path, answer.status) == (path, 303 if path == "/login" else 403)  # she is signed in already
    assert learnings(pages.relay) == before
    assert anna.get("/").status == 200  # still signed in


def test_no_action_is_done_for_another_site(pages: Site, sent: str) -> None:
    before = learnings(pages.relay)
    anna = pages.browser("anna")
    stamp = anna.get("/").stamp
    for path, form in actions(sent).items():
        for origin in ("cross-site", "same-site"):
            assert anna.post(path, {**form, "stamp": stamp}, Sec_Fetch_Site=origin).status == 403
    assert learnings(pages.relay) == before


def test_no_action_is_done_by_looking(pages: Site, sent: str) -> None:
    before = learnings(pages.relay)
    anna = pages.browser("anna")
    for path in (f"/messages/{sent}/mark?label=spam", f"/messages/{sent}/release", "/logout", "/review/undo"):
        assert anna.get(path).status == 405
    assert learnings(pages.relay) == before


@pytest.mark.parametrize(("name", "least"), [("laura", "label"), ("lena", "administer"), ("anna", "nothing")])
def test_roles_hold(pages: Site, sent: str, name: str, least: str) -> None:
    before = learnings(pages.relay)
    browser = pages.browser(name)
    roles = ("look", "label", "administer", "nothing")
    for page in PAGES:
        if page.role is None:
            continue
        path = page.path.replace("{id}", sent)
        refused = roles.index(page.role) >= roles.index(least)
        if page.get:
            assert (path, browser.get(path).status in (200, 400)) == (path, not refused)
        if page.post and refused:
            answer = browser.submit("/", path, **actions(sent)[path])
            assert (path, answer.status, "this needs the role" in answer.words) == (path, 403, True)
    assert learnings(pages.relay) == before


def test_every_error_page_is_in_the_style_of_the_pages(pages: Site) -> None:
    anna = pages.browser("anna")
    upload = anna.ask("POST", "/login", b"x", content_type="text/plain")
    for answer, status in ((anna.get("/nothing"), 404), (anna.ask("PUT", "/"), 405), (upload, 415)):
        assert answer.status == status
        assert answer.fields["content-type"] == "text/html; charset=utf-8"
        assert '<link rel="stylesheet" href="/style.css">' in answer.text
    assert "there is no such page" in anna.get("/nothing").words
    assert "for the button of a page" in anna.get("/review/undo").words


def test_a_mark_without_a_session_is_said_and_offered_again(pages: Site, sent: str) -> None:
    before = learnings(pages.relay)
    stranger = pages.browser()
    answer = stranger.submit("/login", f"/messages/{sent}/mark", label="spam")
    assert (answer.status, answer.fields["location"]) == (303, f"/login?next=/messages/{sent}&undone=yes")
    asked = stranger.get(answer.fields["location"])
    assert "session expired: what you clicked was not done; sign in, and click it again" in asked.words
    assert f'name="next" value="/messages/{sent}"' in asked.text
    assert stranger.submit("/login", "/logout").fields["location"] == "/login?next=/"
    assert learnings(pages.relay) == before


def test_who_has_signed_in_in_another_tab_goes_on_where_both_led(pages: Site, sent: str) -> None:
    tabs = pages.browser()
    form = {"name": "anna", "password": PASSWORD, "stamp": tabs.get("/login").stamp}
    for path in ("/review", f"/messages/{sent}"):
        answer = tabs.post("/login", {**form, "next": path})
        assert (answer.status, answer.fields["location"]) == (303, path)
    assert tabs.get("/login?next=/review").fields["location"] == "/review"
    assert tabs.post("/login", {**form, "next": "//evil.example/"}).fields["location"] == "/"
    assert "you are signed in as 'anna': sign out first" in tabs.post("/login", {**form, "name": "lena"}).words


def test_every_answer_has_the_fields_that_keep_a_browser_in(pages: Site, sent: str) -> None:
    anna = pages.browser("anna")
    answers = [anna.get(path) for path in ("/", f"/messages/{sent}", "/style.css", "/nothing", "/messages?least=x")]
    answers += [anna.ask("PUT", "/"), anna.post("/logout", {}), pages.browser().get("/messages")]
    assert {answer.status for answer in answers} == {200, 303, 400, 403, 404, 405}
    for answer in answers:
        assert {name: answer.fields.get(name.lower()) for name in FIELDS} == FIELDS
        assert "server" not in answer.fields


def test_the_cookie_is_for_this_page_alone(pages: Site) -> None:
    line = pages.browser().sign_in("anna").fields["set-cookie"].split("\n")[0]
    assert re.match(r"session=[A-Za-z0-9_-]{43}; HttpOnly; Path=/; SameSite=strict", line), line
    secure = pages.browser(X_Forwarded_Proto="https").sign_in("anna").fields["set-cookie"].split("\n")[0]
    assert re.match(r"__Host-session=\S+; HttpOnly; Path=/; SameSite=strict; Secure", secure), secure


def test_signing_in_makes_a_new_session_and_signing_out_ends_it(pages: Site) -> None:
    browser = pages.browser()
    browser.cookies["session"] = "of my own choice"
    browser.sign_in("anna")
    token = browser.cookies["session"]
    assert token != "of my own choice"
    assert browser.submit("/", "/logout").fields["location"] == "/login"
    assert "session" not in browser.cookies
    browser.cookies["session"] = token
    assert browser.get("/").status == 303


@pytest.mark.parametrize("target", ["//evil.example", "https://evil.example", "/\\evil.example", "evil", "/\r\nx: y"])
def test_signing_in_leads_to_no_other_site(pages: Site, target: str) -> None:
    assert pages.browser().sign_in("anna", next=target).fields["location"] == "/"


def test_wrong_passwords_are_answered_alike_and_soon_not_at_all(pages: Site) -> None:
    browser = pages.browser(X_Forwarded_For="198.51.100.7")
    tried = [browser.sign_in(name, "wrong wrong") for name in ("anna", "nobody", "paula", "") * 3][:OF_ADDRESS]
    assert [answer.status for answer in tried] == [403] * OF_ADDRESS
    assert {re.sub(r'value="[^"]*"| autofocus', "", answer.text) for answer in tried} == {
        re.sub(r'value="[^"]*"| autofocus', "", tried[0].text)
    }
    answer = browser.sign_in("anna")
    assert (answer.status, 0 < int(answer.fields["retry-after"]) <= 901) == (429, True)
    assert pages.browser(X_Forwarded_For="203.0.113.9, 198.51.100.8").sign_in("anna").status == 303
    assert PASSWORD not in pages.log()
    assert "signing in failed: 'nobody' from 198.51.100.7" in pages.log()


def test_no_mail_is_markup(pages: Site, sent: str) -> None:
    browser = pages.browser("anna")
    assert browser.submit("/", f"/messages/{sent}/mark", label="spam").status == 303
    for path in ("/", "/messages", f"/messages/{sent}", "/review", "/learning", "/learning/forget?by=anna&period=week"):
        answer = browser.get(path)
        assert answer.status == 200
        text = answer.text.replace('<script src="/keyboard.js" defer></script>', "")
        assert not re.search(r"<(script|img|b>bold|svg/)", text), path
        assert "\x01" not in text
        assert not re.search(r"\son\w+=", re.sub(r'"[^"]*"', "", "".join(re.findall(r"<[a-z][^>]*>", text)))), path
    for words in ("<script>alert(1)</script>", "{{ 7*7 }}"):
        assert words in browser.get(f"/messages/{sent}").words
    assert browser.submit("/", f"/messages/{sent}/mark", label="forget").status == 303


@pytest.mark.parametrize(
    "path",
    ["/messages/../../etc/passwd", "/messages/%2e%2e%2f%2e%2e%2fetc%2fpasswd", "/style.css/../base.html", "/base.html",
     "/messages/' OR 1=1 --".replace(" ", "%20"), f"/messages/{NOBODYS}", "/messages/%00", "/templates/web/base.html"],
)  # fmt: skip
def test_a_path_leads_nowhere_else(pages: Site, path: str) -> None:
    answer = pages.browser("anna").get(path)
    assert answer.status == 404
    assert b"root:" not in answer.body


@pytest.mark.parametrize(
    "query",
    ["subject='%20OR%201=1%20--", "sender=%25%27%3BDROP%20TABLE%20journal", "before='%3B--", "class=x'", "least=1e999",
     "most=nan", "subject=%00", "sender=" + "x" * 5000, "action=--", "before=" + "%F0%9F%92%A9" * 26],
)  # fmt: skip
def test_a_search_is_a_value(pages: Site, sent: str, query: str) -> None:
    anna = pages.browser("anna")
    answer = anna.get(f"/messages?{query}")
    assert answer.status in (200, 400)
    assert sent not in answer.text
    assert sent in anna.get("/messages").text


def test_a_request_is_bounded(pages: Site) -> None:
    anna = pages.browser("anna")
    assert anna.post("/login", {"name": "x" * MOST_BODY}).status == 413
    assert anna.post("/login", {f"a{number}": "" for number in range(MOST_FIELDS + 1)}).status == 400
    assert anna.post("/login", {}, content_type="multipart/form-data").status == 415
    assert anna.ask("POST", "/login", b"a=%FF", content_type="application/x-www-form-urlencoded").status == 400
    with socket.create_connection(("127.0.0.1", pages.port), timeout=60) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n" + b"X: " + b"y" * 200_000)
        assert b" 400 " in client.recv(100)
    with socket.create_connection(("127.0.0.1", pages.port), timeout=60) as client:
        head = b"POST /login HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-www-form-urlencoded\r\n"
        client.sendall(
            head + b"Transfer-Encoding: chunked\r\n\r\n" + b"%x\r\n" % (2 * MOST_BODY) + b"a" * 2 * MOST_BODY
        )
        assert b" 413 " in client.recv(100)


def test_a_crowd_that_dawdles_keeps_nobody_out(pages: Site) -> None:
    with ExitStack() as stack:
        for _ in range(MOST_CONNECTIONS + 50):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", pages.port), timeout=60))
            client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nX: y")
        assert pages.browser("anna").get("/").status == 200


def test_a_proxy_is_believed_where_it_is_trusted_and_only_for_accounts(pages: Site, sent: str) -> None:
    paula = pages.browser(X_Remote_User="paula")
    assert "paula" in paula.get("/").words
    assert paula.submit("/", f"/messages/{sent}/mark", label="ham").status == 303
    assert learnings(pages.relay)[-1] == ("web", "paula", "ham")
    assert paula.submit("/", f"/messages/{sent}/mark", label="forget").status == 303
    for name in ("mallory", "m\xe4llory"):  # the second as Latin-1, which is no UTF-8
        stranger = pages.browser(X_Remote_User=name).get("/")
        assert (stranger.status, f"'{name}' has no account here" in stranger.words) == (403, True)
    guesser = pages.browser(X_Forwarded_For="198.51.100.77:4711, 127.0.0.1:4712")
    assert guesser.sign_in("anybody", "wrong wrong").status == 403
    assert "signing in failed: 'anybody' from 198.51.100.77\n" in pages.log()
    taken = pages.browser("lena")
    taken.fields = {"X-Remote-User": "paula"}
    assert "lena" not in taken.get("/").words
    refused = pages.browser(X_Remote_User="mallory").get("/api/messages")
    assert (refused.status, "'mallory' has no account here" in json.loads(refused.body)["error"]) == (403, True)
    right = pages.accounts.read_text()
    pages.accounts.write_text(right + "broken\n")
    for path in ("/", "/api/messages"):
        wrong = pages.browser(X_Remote_User="paula").get(path)
        assert (wrong.status, "the file of accounts has an error" in wrong.words) == (503, True)
    pages.accounts.write_text(right)
    assert pages.browser(X_Remote_User="paula").get("/").status == 200


def test_a_proxys_word_is_nothing_from_elsewhere() -> None:
    elsewhere = {"proxy_header": "X-Remote-User", "proxy_addresses": ["192.0.2.0/24"]}
    with workshop() as folder, site(folder / "s", elsewhere) as made:
        browser = made.browser(X_Remote_User="anna", X_Forwarded_For="192.0.2.1", X_Forwarded_Proto="https")
        assert browser.get("/").status == 303
        assert list(browser.cookies) == ["stranger"]
        # An account that is taken away is out at once, and so is everybody where the file is wrong.
        signed_in, other = made.browser("lena"), made.browser("anna")
        kept = made.accounts.read_text()
        made.accounts.write_text(re.sub(r"(?m)^lena:.*\n", "", kept))
        assert (signed_in.get("/").status, other.get("/").status) == (303, 200)
        made.accounts.write_text(kept + "broken\n")
        assert other.get("/").status == 303
        assert "nobody can sign in" in made.log()
        for _ in range(12):  # which lock nobody out
            refused = made.browser().sign_in("lena")
            assert (refused.status, "the file of accounts has an error" in refused.words) == (503, True)
        basic = base64.b64encode(b"lena:any").decode()
        refused = made.browser(Authorization=f"Basic {basic}").get("/api/openapi.json")
        assert (refused.status, "the file of accounts has an error" in json.loads(refused.body)["error"]) == (503, True)
        assert "Traceback" not in made.log()
        made.accounts.write_text(kept)
        assert made.browser("lena").get("/").status == 200


def test_marks_are_in_the_ledger_under_their_account_and_belong_to_it(pages: Site) -> None:
    id = pages.send(mail_of("owner", "Whose is it", "of a mail that two want to mark otherwise"))
    lena, anna, paula = pages.browser("lena"), pages.browser("anna"), pages.browser(X_Remote_User="paula")
    path = f"/messages/{id}/mark"
    assert lena.submit("/", path, label="ham").status == 303
    refused = paula.submit("/", path, label="spam")
    assert (refused.status, "only they or the administrator" in refused.words) == (403, True)
    assert anna.submit("/", path, label="spam").status == 303
    assert anna.submit("/", path, label="no such").status == 400
    assert learnings(pages.relay)[-3:] == [("web", "lena", "ham"), ("web", "anna", "undo"), ("web", "anna", "spam")]
    assert anna.submit("/", path, label="forget").status == 303


def test_what_one_account_taught_is_forgotten_by_an_administrator(pages: Site) -> None:
    ids = [pages.send(mail_of(f"f{number}", f"Forget {number}", "words to be forgotten")) for number in range(2)]
    lena, anna = pages.browser("lena"), pages.browser("anna")
    for id in ids:
        assert lena.submit("/", f"/messages/{id}/mark", label="spam").status == 303
    shown = anna.get("/learning/forget?by=lena&period=day")
    assert "Forget 0" in shown.words
    assert anna.submit("/", "/learning/forget", by="lena", period="day").status == 303
    assert re.search(r"\d+ marks? of lena undone", anna.get("/learning").words)
    assert learnings(pages.relay)[-1] == ("web", "anna", "undo")
    dump = pages.relay.folder / "words.txt"
    dump.write_bytes(b".MSG_COUNT 50 50 20260101\nviagra 40 1 20260101\n")
    assert pages.relay.command("import", str(dump)).returncode == 0
    author = json.loads(pages.relay.command("import", "--list", "--json").stdout)["by"]
    assert anna.submit("/", "/learning/forget", by=author, period="day").status == 303
    assert f"1 mark of {author} undone" in anna.get("/learning").words
    assert learnings(pages.relay)[-1] == ("web", "anna", "undo")
    assert pages.relay.problems() == []
    assert "Learning" in anna.get("/learning/forget").words  # where a session that has ended leads back to
    assert anna.submit("/", "/learning/forget", by="", period="day").status == 400
    assert anna.submit("/", "/learning/forget", by="lena", period="always").status == 400


def taught(pages: Site, browser: Browser) -> None:
    for number in range(4):
        for label, text in (("ham", "lunch on monday in the office"), ("spam", "casino pills lottery money winner")):
            id = pages.send(mail_of(f"{label}{number}", f"{label} {number}", text))
            assert browser.submit("/", f"/messages/{id}/mark", label=label).status == 303


def test_a_mail_is_released_from_quarantine_by_an_administrator_alone(pages: Site) -> None:
    lena, anna = pages.browser("lena"), pages.browser("anna")
    taught(pages, anna)
    other = pages.send(mail_of("kept-too", "Casino money again", "casino pills lottery money winner"))
    id = pages.send(mail_of("kept", "Casino money", "casino pills lottery money winner"))
    assert anna.submit("/", f"/messages/{other}/mark", label="ham").status == 303
    assert '"Deliver" on its page sends it to its recipients' in anna.get(f"/messages/{other}").words
    assert anna.submit("/", f"/messages/{other}/mark", label="forget").status == 303
    said = lena.submitted("/review", "/review", id=other, label="ham").words
    assert "still in quarantine: an administrator sends it" in said
    assert "still in quarantine" not in lena.submitted("/review", "/review/undo").words
    known = learnings(pages.relay)
    assert anna.submit("/", f"/messages/{other}/release", only="deliver").status == 303
    assert pages.hop.kept[-1].name == "kept-too"
    assert learnings(pages.relay) == known
    assert "quarantine" in lena.get(f"/messages/{id}").words
    assert "Deliver, and mark" not in lena.get(f"/messages/{id}").words
    assert "Deliver, and mark as not spam" in anna.get(f"/messages/{id}").words
    before = len(pages.hop.kept)
    assert lena.submit("/", f"/messages/{id}/release").status == 403
    assert len(pages.hop.kept) == before
    assert anna.submit("/", f"/messages/{id}/release").status == 303
    wait_until(lambda: len(pages.hop.kept) == before + 1, "the mail at the next hop")
    assert pages.hop.kept[-1].name == "kept"
    page = anna.get(f"/messages/{id}").words
    assert ("delivered to b@example.test" in page, "learnt as not spam" in page) == (True, True)
    assert learnings(pages.relay)[-1] == ("web", "anna", "ham")
    assert "Quarantine: delivered delivered to b@example.test by anna, " in lena.get(f"/messages/{id}").words
    assert anna.submit("/", f"/messages/{id}/release").status == 404


def test_the_overview_has_the_figures_of_the_report_and_of_the_journal(pages: Site, sent: str) -> None:
    with closing(sqlite3.connect(pages.relay.database)) as database:
        (number,) = database.execute("SELECT count(*) FROM journal").fetchone()
        classes = dict(database.execute("SELECT class, count(*) FROM journal GROUP BY class").fetchall())
    report = json.loads(pages.relay.command("stats", "--json").stdout)
    page = pages.browser("laura").get("/")
    assert re.findall(r'id="messages">(\d+)<', page.text) == [str(number)] == [str(report["messages"])]
    for name, count in classes.items():
        assert report["classes"][name] == count
        assert f"judged: {'not spam' if name == 'ham' else name} {count} " in page.words


def test_another_period_of_the_overview_is_of_the_same_host(pages: Site) -> None:
    laura = pages.browser("laura")
    for path, other in (("/?host=mx1%26x", {"period": "day", "host": "mx1&x"}), ("/", {"period": "day"})):
        links = re.findall(r'href="/\?([^"]+)"', laura.get(path).text)
        assert other in [dict(parse_qsl(unescape(link))) for link in links]


def test_the_doctor_sends_a_probe_when_asked(pages: Site) -> None:
    anna = pages.browser("anna")
    looked = anna.get("/doctor")
    assert ("feedback socket" in looked.words, "canary" in looked.words) == (True, False)
    probed = anna.submit("/", "/doctor")
    assert (probed.status, "canary" in probed.words, "failed" in probed.words) == (200, True, False)


def test_without_a_relay_marks_go_to_the_database(pages: Site) -> None:
    id = pages.send(mail_of("alone", "No relay", "nobody listens on the socket"))
    lena = pages.browser("lena")
    pages.relay.stop()
    try:
        assert lena.submit("/", f"/messages/{id}/mark", label="spam").status == 303
        assert "learnt as spam" in lena.get("/").words
        assert learnings(pages.relay)[-1] == ("web", "lena", "spam")
    finally:
        pages.relay.start()


def test_a_file_of_accounts_that_is_not_there_is_said_at_the_start(pages: Site) -> None:
    done = pages.relay.command("web")
    assert (done.returncode, "web.listen" in done.stderr, "cannot listen" in done.stderr) == (2, True, True)
    pages.accounts.rename(pages.accounts.with_suffix(".away"))
    try:
        done = pages.relay.command("web")
    finally:
        pages.accounts.with_suffix(".away").rename(pages.accounts)
    assert (done.returncode, "web.accounts" in done.stderr, "web-password" in done.stderr) == (2, True, True)


def kept_ids(pages: Site, *names: str) -> list[str]:
    return [pages.send(mail_of(name, f"Casino {name}", GTUBE.decode())) for name in names]


def test_the_page_of_a_test_mail_says_what_makes_it_spam(pages: Site) -> None:
    (id,) = kept_ids(pages, "test-line")
    seen = pages.browser("lena").get(f"/messages/{id}").words
    assert "It has the test line GTUBE, which makes it spam, whatever its words say." in seen
    assert seen.count("spam 1.000") == 1  # when it came, and no other verdict now


def test_many_mails_are_delivered_or_deleted_by_an_administrator_alone(pages: Site) -> None:
    lena, anna = pages.browser("lena"), pages.browser("anna")
    one, two, three, four = kept_ids(pages, "many-1", "many-2", "many-3", "many-4")
    assert f'name="mail-{one}"' in anna.get("/quarantine").text
    assert f'name="mail-{one}" aria-label="Tick: Casino many-1" checked' in anna.get("/quarantine?all=yes").text
    assert 'type="checkbox"' not in lena.get("/quarantine").text
    assert "Casino many-1" in lena.get("/quarantine").words
    assert lena.submit("/", "/quarantine/act", do="delete", **{f"mail-{one}": "on"}).status == 403
    assert anna.submit("/", "/quarantine/act", do="delete", **{f"mail-{one}": "on", f"mail-{two}": "on"}).status == 303
    assert "2 mails deleted" in anna.get("/quarantine").words
    assert "Quarantine: deleted deleted by anna, " in lena.get(f"/messages/{one}").words
    ticked = {f"mail-{two}": "on", f"mail-{three}": "on"}
    assert "nothing was done: choose what" in anna.submit("/", "/quarantine/act", **ticked).words  # Enter in a box
    assert anna.submit("/", "/quarantine/act", do="teach", **ticked).status == 303
    seen = anna.get("/quarantine").words
    assert "1 mail delivered" in seen
    assert f"1 not done: {two}: not in the quarantine" in seen
    assert pages.hop.kept[-1].name == "many-3"
    assert "learnt as not spam" in anna.get(f"/messages/{three}").words
    assert lena.submit("/", f"/messages/{four}/delete").status == 403
    assert anna.submit("/", f"/messages/{four}/delete").status == 303
    assert "Quarantine: deleted deleted by anna, " in lena.get(f"/messages/{four}").words
    assert anna.submit("/", f"/messages/{four}/delete").status == 404
    assert anna.submit("/", "/quarantine/act", do="teach", **{"mail-": "on", "mail-../x": "on"}).status == 303
    assert "Tick the mails first." in anna.get("/quarantine").words


def test_clicks_at_once_undo_an_answer_each(pages: Site) -> None:
    ids = [pages.send(mail_of(f"at-once{number}", "Answered", f"barges of coal {number}")) for number in range(4)]
    lena, before = pages.browser("lena"), learnings(pages.relay)
    for id in ids:
        assert lena.submit("/", "/review", id=id, label="spam").status == 303
    stamp = {"stamp": lena.get("/").stamp}
    with ThreadPoolExecutor() as clicks:
        answers = [*clicks.map(lambda _: lena.post("/review/undo", stamp), range(len(ids) + 1))]
    assert [answer.status for answer in answers] == [303] * len(answers)
    hers = [label for *who, label in learnings(pages.relay)[len(before) :] if who == ["web", "lena"]]
    assert Counter(hers) == {"spam": 4, "undo": 4}


def test_rules_on_senders_are_made_and_undone_by_an_administrator_alone(pages: Site) -> None:
    lena, anna = pages.browser("lena"), pages.browser("anna")
    rule = {"kind": "block", "sender": "Offers.Example", "for": "Me@Example.net", "days": "30", "note": MARKUP[:60]}
    assert lena.submit("/", "/senders/add", **rule).status == 403
    seen = lena.get("/senders").words
    assert "No sender is allowed or blocked." in seen
    assert "other.test unsure from 0.5, spam from 0.97; ham: pass, unsure: pass, spam: quarantine" in seen
    assert "all others: unsure from 0.5, spam from 0.9;" in seen
    for name, wrong, said in (
        ("sender", "some body", "'some body' is not an address"),
        ("sender", "10.0.0.1/8", "'10.0.0.1/8' is not a network"),
        ("for", "x@", "'x@' is not the address or domain of a recipient"),
        ("days", "soon", "the days must be a number, or empty for ever"),
        ("days", "0", "the days must be from 1 to 36,500"),
        ("kind", "greet", "choose whether the sender is allowed or blocked"),
        ("note", "x" * 201, "the note must be one line"),
    ):
        answer = anna.submit("/", "/senders/add", **{**rule, name: wrong})
        assert (name, answer.status, said in answer.words) == (name, 400, True)
        assert f'value="{rule["days"] if name != "days" else wrong}"' in answer.text  # what was typed is not lost
    assert anna.submit("/", "/senders/add", **{**rule, "note": "sells lists"}).status == 303
    seen = lena.get("/senders").words
    assert re.search(r"offers.example blocked for me@example.net: sells lists rule (\d+), by anna, .*, until ", seen), (
        seen
    )
    assert anna.submit("/", "/senders/add", kind="allow", sender="news.example").status == 303
    for account in (anna, lena):
        assert "not obeyed: nothing proves the sender" in account.get("/senders").words
    numbers = re.findall(r'name="id" value="(\d+)"', anna.get("/senders").text)
    assert len(numbers) == 2
    assert 'name="id"' not in lena.get("/senders").text
    assert lena.submit("/", "/senders/undo", id=numbers[0]).status == 403
    for number in numbers:
        assert anna.submit("/", "/senders/undo", id=number).status == 303
    for number in (numbers[0], "", "x", "-1", "9" * 30):
        assert anna.submit("/", "/senders/undo", id=number).status == 400
    seen = lena.get("/senders").words
    assert "No sender is allowed or blocked." in seen
    assert re.search(r"Rules that have ended .*news.example allowed for all recipients .* - undone by anna, ", seen), (
        seen
    )


def test_a_list_of_messages_shows_which_have_met_a_rule(pages: Site) -> None:
    anna = pages.browser("anna")
    assert anna.submit("/", "/senders/add", kind="block", sender="127.0.0.1").status == 303
    (number,) = re.findall(r'name="id" value="(\d+)"', anna.get("/senders").text)
    pages.obeys("blocked=127.0.0.1/32")
    id = pages.send(mail_of("ruled", "Lunch for all", "see you at lunch"))
    assert anna.submit("/", "/senders/undo", id=number).status == 303
    pages.obeys("")
    pages.send(mail_of("unruled", "Lunch for none", "see you at lunch"))
    assert "sender blocked" in anna.get("/messages?subject=Lunch+for+all").words
    assert "sender blocked" not in anna.get("/messages?subject=Lunch+for+none").words
    said = anna.get(f"/messages/{id}").words
    assert f"blocked=127.0.0.1/32 rule={number}" in said
    assert "Why A rule met its sender: sender blocked. What follows is what its words say." in said
