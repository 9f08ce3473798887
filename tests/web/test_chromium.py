"""The pages in a real browser: what a user does, by mouse and by keyboard alone, and what axe finds."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from tests.integration.servers import wait_until, workshop
from tests.web.pages import PASSWORD, Site, mail_of, site

MILLISECONDS = 60_000.0
"""For a page: far more than any takes on a busy machine."""
SHOTS = os.environ.get("SPAMFILTER_SHOTS", "")
"""A folder for pictures of every page, for people to look at; not part of the test."""
WIDTHS = (360, 1024, 1920)
LUNCH = "Shall we meet for lunch in the office on monday? The agenda is attached, kind regards"
PILLS = "Buy cheap pills now, click here, winner of the casino lottery, money for nothing"
LONG = "Re: " + "a-very-long-word-without-any-space-" * 6 + " and <b>markup</b> &amp; \u202egnp.exe"


@pytest.fixture(scope="module")
def pages() -> Iterator[Site]:
    """A relay that has seen some mail and learnt of it."""
    with workshop() as folder, site(folder / "s", verdict={"spam": 0.8, "on_spam": "quarantine"}) as made:
        lena = made.browser("lena")
        for number in range(5):
            ham = made.send(mail_of(f"h{number}", f"Meeting {number}", LUNCH))
            spam = made.send(mail_of(f"s{number}", f"Offer {number}", PILLS))
            for id, label in ((ham, "ham"), (spam, "spam")):
                assert lena.submit("/messages", f"/messages/{id}/mark", label=label).status == 303
        made.send(mail_of("long", LONG, "some words that nobody knows yet"))
        made.send(mail_of("other", "Invoice of March", "the casino sends an invoice for lunch"))
        made.browser("anna").submit("/", "/senders/add", kind="block", sender="offers.example", note="sells lists")
        made.browser("anna").submit("/", "/senders/add", kind="allow", sender="news.example")
        made.browser("anna").submit("/", "/senders/undo", id="1")
        made.browser("anna").submit("/", "/senders/add", kind="block", sender="192.0.2.0/24", days="30")
        yield made


def opened(chromium: Browser, made: Site, **options: Any) -> Page:
    context = chromium.new_context(base_url=f"http://127.0.0.1:{made.port}", **options)
    context.set_default_timeout(MILLISECONDS)
    return context.new_page()


def listened(page: Page) -> list[str]:
    """What the browser complains of from now on: of a script, of a file, of the policy."""
    found: list[str] = []
    page.on("console", lambda message: found.append(message.text))
    page.on("pageerror", lambda error: found.append(str(error)))
    return found


def signed_in(page: Page, name: str) -> Page:
    page.goto("/login")
    page.get_by_label("Name").fill(name)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url("**/")
    return page


def score_now(page: Page) -> float:
    """The last score on a message's page."""
    texts = page.locator("main .chip b").all_inner_texts()
    return float(texts[-1])


def test_a_user_finds_the_message_just_sent_reads_why_and_marks_it(chromium: Browser, pages: Site) -> None:
    page = opened(chromium, pages)
    complaints = listened(page)
    signed_in(page, "lena")
    text = "quarterly figures of the greenhouse tomatoes and their irrigation"
    pages.send(mail_of("t1", "Tomatoes for Tuesday", text))
    page.get_by_role("link", name="Messages", exact=True).click()
    page.get_by_label("Words in the subject").fill("tomatoes")
    page.get_by_role("button", name="Search").click()
    page.get_by_role("link", name="Tomatoes for Tuesday").click()
    expect(page.get_by_role("heading", name="Why")).to_be_visible()
    expect(page.get_by_text("Nobody has marked it.")).to_be_visible()
    before, taught = score_now(page), pages.relay.learnt()
    page.get_by_role("button", name="Spam", exact=True).click()
    expect(page.get_by_role("status")).to_contain_text("learnt as spam")
    expect(page.locator("#history")).to_contain_text("spam web by lena")
    expect(page.get_by_role("table")).to_contain_text("tomatoes")
    wait_until(lambda: pages.relay.learnt() > taught, "that the relay judges by it")
    again = pages.send(mail_of("t2", "Tomatoes for Tuesday", text))
    page.goto(f"/messages/{again}")
    judged = float(page.locator("main .chip b").first.inner_text())  # when it came: by the running relay
    assert judged > before + 0.1
    assert complaints == []


def test_the_review_queue_is_labelled_by_keyboard_alone(chromium: Browser, pages: Site) -> None:
    first = pages.send(mail_of("k1", "Keyboard one", "zebras crossing the savannah quietly"))
    second = pages.send(mail_of("k2", "Keyboard two", "violins playing slowly in concert"))
    page = opened(chromium, pages)
    complaints = listened(page)
    page.goto("/login?next=/review")
    expect(page.get_by_label("Name")).to_be_focused()
    page.keyboard.type("lena")
    page.keyboard.press("Tab")
    page.keyboard.type(PASSWORD)
    page.keyboard.press("Enter")
    page.locator("[data-card]").first.wait_for()
    page.wait_for_load_state()  # the cards are shown before the script that listens to keys has come
    total = page.locator("[data-card]").count()
    assert total >= 2
    for id, key, said in (
        (first, "s", '"Keyboard one": learnt as spam'),
        (second, "h", '"Keyboard two": learnt as not spam'),
    ):
        for _ in range(total):
            if page.evaluate("document.activeElement.querySelector('input[name=id]')?.value") == id:
                break
            page.keyboard.press("j")
        expect(page.locator("[data-card]:focus input[name=id]")).to_have_value(id)
        with page.expect_navigation():
            page.keyboard.press(key)
        expect(page.get_by_role("status")).to_contain_text(said)
        page.wait_for_function(
            "document.activeElement.matches('[data-card]') || !document.querySelector('[data-card]')"
        )
        page.keyboard.press("k")
        for _ in range(total):
            page.keyboard.press("ArrowUp")
    with page.expect_navigation():
        page.keyboard.press("u")
    expect(page.get_by_role("status")).to_contain_text('"Keyboard two": forgotten, was learnt as not spam')
    with page.expect_navigation():
        page.keyboard.press("Enter")
    assert re.search("/messages/[0-9A-Z]{26}$", page.url)
    assert complaints == []


def test_the_pages_work_without_script(chromium: Browser, pages: Site) -> None:
    id = pages.send(mail_of("n1", "Without script", "harbour pilots and their little boats"))
    page = signed_in(opened(chromium, pages, java_script_enabled=False), "lena")
    page.goto("/review")
    card = page.locator("[data-card]", has=page.locator(f"input[value='{id}']"))
    card.get_by_role("button", name="Spam", exact=True).click()
    expect(page.get_by_role("status")).to_contain_text('"Without script": learnt as spam')


def paths(made: Site) -> dict[str, str]:
    """Every page, by a name."""
    anna = made.browser("anna")
    marked = re.findall(r"/messages/([0-9A-Z]{26})", anna.get("/messages?subject=Meeting").text)[0]
    long = re.findall(r"/messages/([0-9A-Z]{26})", anna.get("/messages?subject=very-long").text)[0]
    return {
        "overview": "/", "messages": "/messages", "nothing": "/messages?subject=nonesuch&least=2", "review": "/review",
        "message": f"/messages/{marked}", "long": f"/messages/{long}", "learning": "/learning", "doctor": "/doctor",
        "quarantine": "/quarantine?all=yes", "senders": "/senders",
        "forget": "/learning/forget?by=lena&period=week", "unknown": "/messages/00000000000000000000000000",
    }  # fmt: skip


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_on_any_page_and_nothing_is_cut_off(chromium: Browser, pages: Site, scheme: Any) -> None:
    page = opened(chromium, pages, color_scheme=scheme, bypass_csp=True)  # for axe, which brings its own script
    found: dict[str, object] = {}
    todo = {"login": "/login", **paths(pages)}
    for name, path in todo.items():
        if name == "overview":
            signed_in(page, "anna")
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            page.goto(path)
            wide = page.evaluate("document.documentElement.scrollWidth")
            if wide > width:
                found[f"{name} at {width}"] = f"{wide} pixels wide"
            if width == (360 if scheme == "dark" else 1920):  # of its rules, colours and places are all that differs
                for violation in Axe().run(page).response["violations"]:
                    nodes = [node["html"][:200] for node in violation["nodes"][:3]]
                    found[f"{name} at {width}: {violation['id']}"] = nodes
            if SHOTS:
                Path(SHOTS).mkdir(exist_ok=True)
                page.screenshot(path=f"{SHOTS}/{name}-{width}-{scheme}.png", full_page=True)
    assert found == {}
