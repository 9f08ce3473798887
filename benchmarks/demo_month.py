"""A month of real mail through a real relay with a calendar of its own: do report and web page agree with it?

Mails of the first weeks of trec07p are sent as those of thirty days; users mark, hours later and not always, what was
judged wrong or unsure. Then `spamfilter stats` as text, HTML and JSON, for the month, its last week and its last day
and a half, is held against journal and ledger, which are counted in another way; and so are overview, learning and all
lists of messages of `spamfilter web`, for the month, its last week and its last day. The reports are left in a folder,
and with Chromium and Playwright pictures of the report's upper part, which quotes no mail, and of the page of a mail
written for it.

    python benchmarks/demo_month.py [--mails N] [--folder FOLDER] [--pictures FOLDER] [--result FILE]

Needs faketime and the corpora; takes some minutes. The folder holds words and subjects of real mail: do not publish it.
"""

import argparse
import json
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from corpora import unpacked
from results import write_result

sys.path.insert(0, str(Path(__file__).parents[1]))  # the parts are those of the tests

from spamfilter.bayes.labels import Label
from spamfilter.learning.bulk.labelled_mail import find_indexed
from spamfilter.reports.outages import ALIVE
from spamfilter.stores import open_store
from tests.faults.daemon import Daemon
from tests.faults.hop import next_hop
from tests.integration.servers import wait_until
from tests.support.month import DAYS, START, Calendar, Month, counted, differences, replay
from tests.web.month import PERIODS as PAGES
from tests.web.month import WORDS, list_differences, overview_differences
from tests.web.pages import PASSWORD, Site, mail_of, served, web_settings

CORPUS = "trec07p-first20000"
END = START + timedelta(days=DAYS)
PERIODS = {"month": START, "week": END - timedelta(days=7), "day and a half": END - timedelta(hours=36)}
UPPER = 880
"""Pixels of a page that its picture shows: figures and charts, no words and names of the corpus."""
OURS = mail_of(
    "order",
    "Your watch at the lowest price",
    "Dear customer,\r\n\r\nsave money on the best watches: order online today and we ship for free to any country.\r\n"
    "Click here, this offer ends on Monday. No questions asked.",
)


def mails(number: int) -> Iterator[tuple[Label, bytes]]:
    """So many mails in the order of their arrival, evenly from all of them, with line ends of the wire."""
    found = list(find_indexed(unpacked(CORPUS) / "index"))
    for label, mail in found[:: max(len(found) // number, 1)][:number]:
        yield label, re.sub(rb"\r?\n|\r", b"\r\n", mail.read().replace(b"\0", b""))


def reports(relay: Daemon, folder: Path, name: str, since: datetime) -> dict[str, Any]:
    """Write the report of a period in each form; its JSON."""
    period = ("--since", since.isoformat(), "--until", END.isoformat())
    said = {}
    for form in ("text", "html", "json"):
        done = relay.command("stats", *period, "--format", form)
        assert done.returncode == 0, done.stderr
        said[form] = done.stdout
        (folder / f"{name}.{form}").write_text(done.stdout)
    report: dict[str, Any] = json.loads(said["json"])
    return {**report, "text": said["text"], "html": said["html"]}


def disagreements(report: dict[str, Any], count: dict[str, Any]) -> list[str]:
    """What in any of the forms is not what was counted."""
    found = differences(report, count)
    for name, (errors, messages) in {name: count[name] for name in ("ham_rate", "spam_rate")}.items():
        said = f"{errors:,} of {messages:,} = " if messages else "nothing to count yet"
        found += [f"{name} of the text"] * (said not in report["text"])
        row = rf"<td>{errors:,}</td><td>{messages:,}</td>"
        found += [f"{name} of the page"] * (not re.search(row, report["html"]))
    for name, number in (*count["classes"].items(), *count["actions"].items()):
        found += [f"{name} of the text"] * (f"{number:,} {name} (" not in report["text"])
        found += [f"{name} of the page"] * (f": {WORDS.get(name, name)}</th><td>{number:,}</td>" not in report["html"])
    found += ["messages of the text"] * (f"Mail        {count['messages']:,} message" not in report["text"])
    found += ["messages of the page"] * (f"<b>{count['messages']:,}</b> messages" not in report["html"])
    return found


def await_note(relay: Daemon) -> None:
    """Wait until the relay has noted that it runs, which it does each minute; days of the calendar are seconds here."""

    def noted() -> bool:
        with closing(open_store(f"sqlite:///{relay.database}")) as store:
            return max(map(str, store.settings_of(ALIVE).values())) >= END.isoformat()

    wait_until(noted, "a note of the relay", 90)


def pages(relay: Daemon, site: Site) -> tuple[list[str], list[str]]:
    """Rows of the table for the web page, and what on it is not what was counted."""
    lines, wrong = [], []
    anna, until = site.browser("anna"), END + timedelta(hours=1)  # the page counts to the end of this hour
    for period, days in PAGES.items():
        count = counted(relay.database, until - timedelta(days=days), until)
        differing = overview_differences(anna, period, count)
        lines.append(row(f"web: {period}", count, differing))
        wrong += [f"web, {period}: {one}" for one in differing]
    return lines, wrong + [f"web, messages: {one}" for one in list_differences(anna, relay.database)]


@contextmanager
def chromium(width: int, height: int) -> Iterator[Any]:
    """An empty page of Chromium."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=flags)
        yield browser.new_page(viewport={"width": width, "height": height})
        browser.close()


def picture_of_report(report: Path, to: Path) -> None:
    with chromium(800, UPPER) as page:
        page.goto(report.absolute().as_uri())
        page.screenshot(path=to)


def picture_of_page(site: Site, to: Path) -> None:
    """Why a mail of ours, sent after the month, is judged as it is: by what the month's mail has taught."""
    id = site.send(OURS)
    with chromium(1000, UPPER) as page:
        page.goto(f"http://127.0.0.1:{site.port}/login?next=/messages/{id}")
        page.get_by_label("Name").fill("anna")
        page.get_by_label("Password").fill(PASSWORD)
        page.get_by_role("button", name="Sign in").click()
        page.get_by_role("heading", name="Why").wait_for()
        page.screenshot(path=to)


def row(name: str, count: dict[str, Any], wrong: list[str]) -> str:
    shares = " | ".join(f"{errors:,} of {messages:,}" for errors, messages in (count["ham_rate"], count["spam_rate"]))
    classes = ", ".join(f"{count['classes'][class_]:,}" for class_ in ("ham", "unsure", "spam"))
    return (
        f"| {name} | {count['messages']:,} | {classes} | {shares} | {count['learnings']:,} |"
        f" {count['waiting_in_all']:,} | {', '.join(wrong) or 'none'} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mails", type=int, default=4000)
    parser.add_argument("--folder", type=Path, help="leave the reports here")
    parser.add_argument("--pictures", type=Path, help="leave report.png and web.png here")
    parser.add_argument("--result", type=Path, help="write the table to this file, too")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="month-") as made, next_hop() as hop:
        folder = arguments.folder or Path(made) / "reports"
        folder.mkdir(parents=True, exist_ok=True)
        calendar = Calendar(Path(made))
        web = web_settings(Path(made) / "relay")
        relay = Daemon(Path(made) / "relay", f"smtp://127.0.0.1:{hop.port}", log={"level": "info"}, web=web)
        relay.environment |= calendar.environment
        with relay.run():
            began = time.monotonic()
            month: Month = replay(relay, hop, calendar, mails(arguments.mails), arguments.mails)
            seconds = time.monotonic() - began
            calendar.set(END)
            await_note(relay)
            with served(relay, hop, web) as site:
                of_pages, wrong = pages(relay, site)
                if arguments.pictures:
                    picture_of_page(site, arguments.pictures / "web.png")
        calendar.set(END + timedelta(hours=1))
        lines = []
        for name, since in PERIODS.items():
            report = reports(relay, folder, name, since)
            count = counted(relay.database, since, END)
            differing = disagreements(report, count)
            lines.append(row(f"report: {name}", count, differing))
            wrong += [f"{name}: {one}" for one in differing]
        if arguments.pictures:
            picture_of_report(folder / "month.html", arguments.pictures / "report.png")
    text = "\n".join([
        f"{month.sent:,} mails as those of {DAYS} days, in {seconds:.0f} s; {len(month.marked):,} marked by users.", "",
        "| period | messages | ham, unsure, spam | false positives | missed spam | learnt | waiting |"
        " what differs from journal and ledger |",
        "|---|---|---|---|---|---|---|---|", *lines, *of_pages, "",
        f"Lists of messages of the web page, all and by class, action and score, that differ: "
        f"{', '.join(one for one in wrong if 'messages:' in one) or 'none'}.", "",
    ])  # fmt: skip
    print(text)
    if arguments.result:
        write_result(arguments.result, "A month of mail, and its report", __file__, text)
    if wrong:
        raise SystemExit("; ".join(wrong))


if __name__ == "__main__":
    main()
