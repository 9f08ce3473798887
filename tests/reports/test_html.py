"""The report as a page: its figures, no external resources, and no markup from mail."""

from datetime import timedelta
from html.parser import HTMLParser

import pytest

from spamfilter.learning.filter import Filter
from spamfilter.learning.transaction import Reading
from spamfilter.reports.html import report_html
from spamfilter.reports.report import Report, build
from tests.support.made import NOON, VOICE, journal_entry
from tests.support.memory_store import MemoryStore

NASTY = "<script>alert(1)</script>\"'><img src=x onerror=1>\x1b[31m\r\n\u202e{{ 7*7 }}{% raw %}"
VOID = {"meta", "img", "br", "link", "input", "hr"}


class Page(HTMLParser):
    """What a browser would see: elements with their attributes, and the text outside of the style."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] != ["style"]:
            self.text += f" {data.strip()}" if data.strip() else ""


def nasty_report(days: int = 7) -> Report:
    store = MemoryStore()
    store.write_journal([
        journal_entry(
            id=f"{number:02}", digest=b"%016d" % number, at=NOON - timedelta(hours=1 + number), class_=class_,
            subject=NASTY, sender=f"a@{NASTY}", recipients=[NASTY], client=NASTY, reply=NASTY,
            evidence=[(NASTY, 1.0)], score=0.5 if class_ == "unsure" else 0.99,
        )
        for number, class_ in enumerate(["unsure", "spam", "spam", "ham"])
    ])  # fmt: skip
    tokens = {"fields": {NASTY.encode(): 1}}
    Filter(store, VOICE).learn(Reading(b"%016d" % 1, tokens), "ham", "cli", NASTY, NOON - timedelta(minutes=1))
    return build(store, ["fields"], NOON - timedelta(days=days), NOON)


@pytest.mark.parametrize("days", [1, 7, 400])
def test_whatever_a_mail_says_is_text_and_the_page_is_whole_in_itself(days: int) -> None:
    page = report_html(nasty_report(days), NASTY)
    seen = Page(page)
    assert seen.open == []
    tags = {tag for tag, _ in seen.elements}
    assert not tags & {"script", "img", "link", "iframe", "object", "form", "svg", "base"}
    names = {name for _, attributes in seen.elements for name in attributes}
    assert names <= {"lang", "charset", "name", "content", "class", "role", "style", "title", "scope"}
    assert "http" not in page
    assert "url(" not in page
    assert "@import" not in page
    assert "<script>alert(1)</script>" in seen.text
    assert "{{ 7*7 }}" in seen.text
    assert not set(page) & set("\x1b\u202e\r")


def test_the_figures_are_those_of_the_report() -> None:
    report = nasty_report()
    text = Page(report_html(report)).text
    assert "4 messages" in text
    assert "50.00 % spam" in text
    assert (
        "50.00 % false positives: good mail wrongly marked as spam" in text
    )  # one of two: the one that was learnt as ham, the one judged so
    assert "1 message needs review" in text
    assert all(mail.id in text for mail in report.waiting)


def test_nothing_at_all_is_a_page_too() -> None:
    text = Page(report_html(build(MemoryStore(), ["fields"], NOON - timedelta(days=1), NOON))).text
    assert "0 messages" in text
