"""The report as a page: its figures, no external resources, and no markup from mail."""

import re
from datetime import timedelta
from html.parser import HTMLParser
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import spamfilter
from spamfilter.learning.filter import Filter
from spamfilter.learning.transaction import Reading
from spamfilter.reports.charts import COLOURS, HEIGHT, PALE, charts_of
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
    old = {"align", "bgcolor", "cellpadding", "cellspacing", "color", "colspan", "height", "valign", "width"}
    assert names <= {"lang", "charset", "name", "content", "class", "role", "style", "title", "scope"} | old
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


@pytest.mark.parametrize(
    ("days", "titles"),
    [
        pytest.param(1, {"By hour, UTC": 25}, id="day"),
        pytest.param(7, {"By day, UTC": 8, "By hour, UTC": 169}, id="week"),
        pytest.param(30, {"By day, UTC": 31, "By hour of the day, UTC": 24}, id="month"),
    ],
)
def test_short_periods_are_told_by_the_hour_along_the_time(days: int, titles: dict[str, int]) -> None:
    begin = NOON - timedelta(days=days, minutes=30)
    charts = charts_of(build(MemoryStore(), ["fields"], begin, begin + timedelta(days=days)))
    assert {chart.title: len(chart.bars) for chart in charts} == titles
    for chart in charts:
        partial = [number for number, bar in enumerate(chart.bars) if not bar.slot.whole]
        assert partial == ([0, len(chart.bars) - 1] if "of the day" not in chart.title else [])
        assert sum(bars for _, bars in chart.labels) == len(chart.bars)


def test_bars_show_in_a_mail_program_that_strips_the_style_sheet() -> None:
    report = nasty_report(1)
    elements = Page(report_html(report)).elements
    drawn = [
        (at["bgcolor"], at["height"]) for tag, at in elements if tag == "td" and "bgcolor" in at and "width" not in at
    ]
    colours = [colour for colour, _ in drawn if colour in {*COLOURS.values(), *PALE.values()}]
    assert sorted(colours) == sorted([COLOURS["unsure"], COLOURS["spam"], COLOURS["spam"], COLOURS["ham"]])
    assert {int(height or 0) for _, height in drawn} == {HEIGHT}


@pytest.mark.parametrize("seen", ["as it is", "by a deuteranope"])
def test_people_who_confuse_red_and_green_tell_the_classes_apart(seen: str) -> None:
    style = (Path(spamfilter.__file__).parent / "web/templates/style.css").read_text()
    palettes = [
        COLOURS,
        *(dict(re.findall(r"--(ham|unsure|spam): (#\w{6})", part)) for part in style.split("@media")[:2]),
    ]
    for palette in palettes:
        shown = {name: lab(colour, SEEN[seen]) for name, colour in palette.items()}
        assert min(np.linalg.norm(shown[one] - shown[two]) for one, two in combinations(shown, 2)) > 25, palette


DEUTERANOPE = [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
"""Machado, Oliveira and Fernandes, 2009: a physiologically-based model for simulation of colour vision deficiency."""
SEEN = {"as it is": np.eye(3), "by a deuteranope": np.array(DEUTERANOPE)}


def lab(colour: str, seen: NDArray[np.float64]) -> NDArray[np.float64]:
    """CIE L*a*b* of a colour of the web, in which about 2 is a difference that can just be seen."""
    given = np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    linear = np.clip(seen @ np.where(given <= 0.04045, given / 12.92, ((given + 0.055) / 1.055) ** 2.4), 0, 1)
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    part = to_xyz @ linear / np.array([0.9505, 1, 1.089])
    x, y, z = np.where(part > 0.008856, np.cbrt(part), 7.787 * part + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def test_nothing_at_all_is_a_page_too() -> None:
    text = Page(report_html(build(MemoryStore(), ["fields"], NOON - timedelta(days=1), NOON))).text
    assert "0 messages" in text
