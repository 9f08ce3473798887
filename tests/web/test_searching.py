"""The search of a running web page, and the overview's links to it."""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import fields
from html import unescape

import pytest

from spamfilter.commands.search import search
from spamfilter.stores.journal import Wanted
from spamfilter.web.message_views import SEARCHED, Search
from tests.faults.client import Client
from tests.faults.fault import Say
from tests.integration.servers import workshop
from tests.web.pages import Browser, Site, mail_of, site


@pytest.fixture(scope="module")
def pages() -> Iterator[Site]:
    with workshop() as folder, site(folder / "s") as made:
        yield made


@pytest.fixture(scope="module")
def sent(pages: Site) -> str:
    for number in range(3):
        pages.send(mail_of(f"mail{number}", f"Mail {number}", "some words"))
    with Client(pages.relay.port) as client:
        for reply in (b"550 5.1.1 no such user\r\n", b"451 4.3.0 later\r\n"):  # rejected and deferred before the text
            pages.hop.faults["RCPT"] = Say(reply)
            client.ask("EHLO client.test")
            client.ask("MAIL FROM:<a@example.org>")
            client.ask("RCPT TO:<gone@example.test>")
            client.ask("RSET")
    pages.hop.faults.clear()
    return pages.send(mail_of("last", "The last one", "some other words"))


def test_command_api_and_form_ask_for_each_condition_of_a_search(pages: Site, sent: str) -> None:
    """Unsure ones first is an order of the page's list; before and after are its pages."""
    conditions = {each.name for each in fields(Wanted)}
    assert {option.name for option in search.params} >= conditions - {"unsure_first"}
    assert set(Search.model_fields) == conditions | {"before", "after"}
    form = set(re.findall(r'<(?:input|select)[^>]* name="(\w+)"', pages.browser("anna").get("/messages").text))
    assert {*SEARCHED} - {"before", "after"} <= form


def test_a_long_message_id_is_found_as_a_whole(pages: Site) -> None:
    name = "x" * 400
    id, anna = pages.send(mail_of(name, "Long", "some words")), pages.browser("anna")
    page = anna.get(f"/messages?message_id={name}@example.org").text
    assert f"/messages/{id}" in page
    (longest,) = re.findall(r'name="message_id"[^>]* maxlength="(\d+)"', page)
    assert int(longest) > len(name)  # what a browser cuts off finds nothing


def test_each_name_and_number_of_the_overview_leads_to_the_mails_that_it_counts(pages: Site, sent: str) -> None:
    anna = pages.browser("anna")
    page = anna.get("/").text
    shown_at_all = page + anna.get("/?period=month").text  # a long period is told by the hour of the day
    rows = re.findall(r'<th scope="row"><a href="(/messages\?[^"]+)">(.*?)</a></th>((?:<td>[^<]*</td>)+)', shown_at_all)
    kinds: dict[str, int] = {}
    for address, name, cells in rows:
        numbers = [int(cell.replace(",", "")) for cell in re.findall(r"<td>([\d,]+)</td>", cells)]
        expected = sum(numbers) if "when" in name or re.fullmatch(r"[\d: -]{2,16}", name) else numbers[0]
        listed = anna.get(unescape(address))
        shown = re.findall(r'<b id="found">([\d,]+)</b>', listed.text)
        assert (listed.status, [int(one) for one in shown]) == (200, [expected] if expected else []), (name, address)
        kinds |= dict.fromkeys(re.findall(r"[?;](?:amp;)?(\w+)=", address), 1)
    names = {"class", "action", "reply", "since", "until", "hour", "sender", "recipient", "client"}
    assert kinds.keys() == names
    unjudged = [name for _, name, _ in rows if name.startswith("unjudged")]
    assert unjudged == ["unjudged: deferred", "unjudged: rejected"] * 2
    bars = set(re.findall(r'<li><a href="(/messages\?[^"]+)"', shown_at_all))
    assert len(bars) > 24
    assert bars <= {address for address, _, _ in rows}
    tiles = re.findall(r'<dt><a href="(/messages[^"]+)">([^<]+)</a></dt><dd[^>]*>([^<]+)</dd>', page)
    found = {name: found_by(anna, address) for address, name, _ in tiles}
    said = {name: said for _, name, said in tiles}
    assert said["messages"] == str(found["messages"])
    assert said["spam"] == f"{100 * found['spam'] / found['messages']:.2f} %"


def found_by(browser: Browser, address: str) -> int:
    """The number of messages that a search finds."""
    shown = re.findall(r'<b id="found">([\d,]+)</b>', browser.get(unescape(address)).text)
    return int(shown[0].replace(",", "")) if shown else 0


def test_each_error_of_the_overview_leads_to_the_mails_that_users_corrected(pages: Site, sent: str) -> None:
    corrected = pages.send(mail_of("missed", "Pills", "a missed spam"))
    with closing(sqlite3.connect(pages.relay.database, timeout=10)) as database, database:
        database.execute("UPDATE journal SET class = 'ham' WHERE id = ?", [corrected])
    anna = pages.browser("anna")
    anna.submit(f"/messages/{corrected}", f"/messages/{corrected}/mark", label="spam")
    page = anna.get("/").text
    found = {}
    for name in ("false positives", "missed spam"):
        (address,) = re.findall(rf'<dt><a href="(/messages[^"]+)">{name}</a>', page)
        found[name] = re.findall(r'<li><a href="/messages/(\w{26})"', anna.get(unescape(address)).text)
    assert found == {"false positives": [], "missed spam": [corrected]}


def test_the_pages_of_a_search_lead_to_older_and_newer_mail_and_to_a_day(pages: Site, sent: str) -> None:
    anna = pages.browser("anna")
    made = [f"{number:03}".rjust(26, "0") for number in range(120)]
    at = "2026-01-05 12:00:00.000000"
    with closing(sqlite3.connect(pages.relay.database, timeout=10)) as database, database:
        columns = [row[1] for row in database.execute("PRAGMA table_info(journal)")]
        row = dict(zip(columns, database.execute("SELECT * FROM journal LIMIT 1").fetchone(), strict=True))
        row |= {"at": at, "recipients": '["Kim@Example.net", "two@example.net"]', "client": "2001:db8::7", "sender": ""}
        places = ", ".join("?" * len(columns))
        database.executemany(f"INSERT INTO journal VALUES ({places})", [[*(row | {"id": id}).values()] for id in made])
    try:
        search = "/messages?recipient=<kim@example.net>&client=2001:DB8:0::7&since=2026-01-05&until=2026-01-05&hour=12"
        seen: list[str] = []
        path = search.replace("<", "%3C").replace(">", "%3E")
        pages_seen = 0
        while path:
            page = anna.get(path).text
            assert '<b id="found">120</b>' in page
            assert "to Kim@Example.net and 1 more" in page
            seen += re.findall(r'<li><a href="/messages/(\w{26})"', page)
            older = re.findall(r'rel="next" href="([^"]+)"', page)
            path, pages_seen = unescape(older[0]) if older else "", pages_seen + 1
        assert (seen, pages_seen) == (made[::-1], 3)
        newer = re.findall(r'rel="prev" href="([^"]+)"', page)
        second = anna.get(unescape(newer[0])).text
        assert re.findall(r'<li><a href="/messages/(\w{26})"', second) == made[::-1][50:100]
        assert sent not in anna.get("/messages?day=2026-01-05").text
        assert sent in anna.get("/messages?day=2100-01-05").text
        jumped = anna.get("/messages?unsure_first=yes&class=unsure&day=2100-01-05").text
        assert (f"/messages/{sent}" in jumped, "unsure_first=" in jumped) == (True, False)
        assert anna.get("/messages?day=tomorrow").status == 400
        assert anna.get("/messages?since=2026-02-30").status == 400
    finally:
        with closing(sqlite3.connect(pages.relay.database, timeout=10)) as database, database:
            database.execute("DELETE FROM journal WHERE at = ?", (at,))
