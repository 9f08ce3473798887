"""Ten tasks of an administrator and a user, in a real browser: each takes at most five clicks from where they begin.

docs/web.md has the same table. A field that is filled counts as a click.
"""

import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.integration.servers import workshop
from tests.web.pages import Site, mail_of, site
from tests.web.test_chromium import opened, signed_in
from tests.web.test_kept import PILLS, B, digests, link_in, send

MOST = 5
DIGEST = {"url": "http://127.0.0.1:1", "domains": ["example.test"], "link_days": 3.0}


@pytest.fixture(scope="module")
def pages() -> Iterator[Site]:
    """A relay that has learnt some mail, keeps spam, and let one spam pass, which lena has marked."""
    with (
        workshop() as folder,
        site(folder / "s", verdict={"spam": 0.8, "on_spam": "quarantine"}, digest=DIGEST) as made,
    ):
        lena = made.browser("lena")
        for label, text in (("ham", "the agenda of the meeting on monday"), ("spam", PILLS)):
            for number in range(5):
                id = made.send(mail_of(f"{label}{number}", f"{label} {number}", text))
                assert lena.submit("/messages", f"/messages/{id}/mark", label=label).status == 303
        digests(made)  # of what was kept while it learnt
        missed = made.send(mail_of("missed", "A spam that was missed", "something about figures and tomatoes"))
        with closing(sqlite3.connect(made.relay.database, timeout=10)) as database, database:
            database.execute("UPDATE journal SET class = 'ham' WHERE id = ?", [missed])
        assert lena.submit("/messages", f"/messages/{missed}/mark", label="spam").status == 303
        yield made


class Hand:
    """Clicks and fills fields, and counts both."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.clicks = 0

    def click(self, what: Locator) -> None:
        what.click()
        self.clicks += 1

    def link(self, name: str) -> None:
        self.click(self.page.get_by_role("link", name=name, exact=True).first)

    def button(self, name: str) -> None:
        self.click(self.page.get_by_role("button", name=name, exact=True).first)

    def fill(self, label: str, text: str) -> None:
        self.page.get_by_label(label).fill(text)
        self.clicks += 1


def find_by_recipient(hand: Hand) -> None:
    hand.link("Messages")
    hand.fill("Recipient", B)
    hand.button("Search")
    expect(hand.page.get_by_role("link", name="For B alone")).to_be_visible()


def see_last_night(hand: Hand) -> None:
    hand.link("day")
    expect(hand.page.get_by_role("heading", name=re.compile("By hour"))).to_be_visible()


def deliver_what_was_kept(hand: Hand) -> None:
    hand.link("Quarantine")
    hand.link("Kept by mistake")
    hand.button("Deliver, and mark as not spam")
    expect(hand.page.get_by_role("status")).to_contain_text("deliver")


def see_why_a_mail_was_spam(hand: Hand) -> None:
    hand.link("spam")
    hand.link("spam 4")
    expect(hand.page.locator("#loudest")).to_contain_text("For spam speak")


def undo_a_mark(hand: Hand) -> None:
    hand.link("Learning")
    hand.link("ham 4")
    hand.button("Forget")
    expect(hand.page.get_by_role("status")).to_be_visible()


def see_missed_spam(hand: Hand) -> None:
    hand.link("missed spam")
    expect(hand.page.get_by_role("link", name="A spam that was missed")).to_be_visible()


def see_who_taught_most(hand: Hand) -> None:
    hand.link("Who taught what")
    expect(hand.page.get_by_role("row", name=re.compile("lena")).first).to_be_visible()


def allow_a_sender(hand: Hand) -> None:
    hand.link("Senders")
    hand.page.get_by_label("Mail is").select_option("allow")
    hand.clicks += 1
    hand.fill("from the address, domain or network", "news.example")
    hand.button("Add")
    expect(hand.page.locator("#rules")).to_contain_text("news.example")


ADMINISTRATOR = [
    find_by_recipient, see_last_night, deliver_what_was_kept, see_why_a_mail_was_spam, undo_a_mark, see_missed_spam,
    see_who_taught_most, allow_a_sender,
]  # fmt: skip
CLICKS: dict[str, int] = {
    "find_by_recipient": 3, "see_last_night": 1, "deliver_what_was_kept": 3, "see_why_a_mail_was_spam": 2,
    "undo_a_mark": 3, "see_missed_spam": 1, "see_who_taught_most": 1, "allow_a_sender": 4,
}  # fmt: skip


def test_a_user_reads_and_delivers_a_kept_mail_in_two_clicks(chromium: Browser, pages: Site) -> None:
    send(pages, "user", "Casino of the week", B)
    hand = Hand(opened(chromium, pages))
    hand.page.goto(link_in(digests(pages)[B]))
    hand.link("Casino of the week")
    expect(hand.page.locator(".mail-text")).to_contain_text("casino pills")
    assert hand.clicks == 1
    hand.button("Deliver")
    expect(hand.page.get_by_role("status")).to_contain_text("It was delivered: Casino of the week")
    assert hand.clicks == 2


@pytest.mark.parametrize("task", ADMINISTRATOR)
def test_an_administrator_is_done_in_a_few_clicks(chromium: Browser, pages: Site, task: Callable[[Hand], None]) -> None:
    send(pages, task.__name__, "For B alone", B, text="the agenda of the meeting on monday")
    send(pages, f"{task.__name__} kept", "Kept by mistake", B)
    hand = Hand(signed_in(opened(chromium, pages), "anna"))
    task(hand)
    assert hand.clicks == CLICKS[task.__name__] <= MOST


def test_the_page_of_the_docs_has_these_figures() -> None:
    text = (Path(__file__).parents[2] / "docs" / "web.md").read_text(encoding="utf-8")
    table = re.findall(r"^\| ([a-z][^|]+) \| (\d) \|", text.partition("## Ten tasks")[2], re.MULTILINE)
    assert [int(clicks) for _, clicks in table] == [*CLICKS.values(), 1, 2]
