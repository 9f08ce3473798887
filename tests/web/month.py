"""The web page of a month of mail, read by HTTP like by a browser, and compared with counts.

Guarantee: only pages of the product are used; the expected figures come from journal and ledger.
"""

import re
import sqlite3
from collections import Counter
from contextlib import closing
from html import unescape
from pathlib import Path
from typing import Any

from tests.web.pages import Browser

PERIODS = {"month": 30, "week": 7, "day": 1}
"""Periods of the overview that lie within a month, and their days."""
WORDS = {"ham": "not spam"}
"""What is counted -> what the pages call it."""
KEYS = {word: key for key, word in WORDS.items()}

_ROW = re.compile(r"<tr><th scope=\"row\">(.*?)</th>(.*?)</tr>", re.DOTALL)
_CELL = re.compile(r"<td[^>]*>(.*?)</td>", re.DOTALL)
_MAIL = re.compile(
    r'<li><a href="/messages/([0-9A-Z]{26})">.*?<span class="from">(.*?) to .*?</span>'
    r'<span class="quiet">([0-9: -]{16})[+-][0-9:]{5}(?:, (tag|reject|quarantine|defer))?'
    r"(?:, learnt as ((?:not )?spam))?</span>"
    r'<span class="chip (\w+)">[a-z ]+ <b>([0-9.]+)</b>',
    re.DOTALL,
)
_NEXT = re.compile(r'<a rel="next" href="([^"]+)">')


def overview_differences(browser: Browser, period: str, count: dict[str, Any]) -> list[str]:
    """The figures of the overview that are others than those counted of its period."""
    page = browser.get(f"/?period={period}").text
    rows = _rows(page)
    shown = Counter({name: _number(cells[0]) for name, cells in rows.items() if cells and cells[0]})
    found = [] if f'id="messages">{count["messages"]:,}<' in page else ["messages"]
    for title, name in (("judged", "classes"), ("action", "actions"), ("reply", "replies")):
        said = {key.partition(": ")[2]: number for key, number in shown.items() if key.startswith(f"{title}: ")}
        counted = {WORDS.get(key, key): number for key, number in count[name].items()}
        found += [name] * ({key: number for key, number in said.items() if number} != counted)
    for title, name in (("false positives", "ham_rate"), ("missed spam", "spam_rate")):
        found += [name] * (tuple(map(_number, rows[title][:2])) != count[name])
    for name, form in (("days", r"(\d{4}-\d\d-\d\d)"), ("hours", r"(?:\d{4}-\d\d-\d\d )?(\d\d)(?::00)?")):
        slots: Counter[tuple[str, str]] = Counter()
        for head, cells in _rows(page.partition("<h2>Words")[0]).items():  # a word may look like an hour
            if at := re.fullmatch(form, head):
                for class_, cell in zip(("ham", "unsure", "spam"), cells, strict=True):
                    slots[at[1], class_] += _number(cell)
        shown_at_all = name != "days" or period != "day"
        found += [name] * (shown_at_all and +slots != Counter(count[name]))
    settled = count["unsure_settled"]
    sentence = (
        f"Of {count['classes']['unsure']:,} unsure messages, users have since marked {settled['spam']:,} as spam and"
        f" {settled['ham']:,} as not spam; {count['waiting_in_all']:,} are not marked."
    )
    found += ["unsure"] * (sentence not in page)
    found += ["learnings"] * (f"<p>{count['learnings']:,} messages in this period;" not in page)
    found += ["recipients"] * any(shown[name] != number for name, number in count["recipients"].most_common(3))
    trained = browser.get(f"/learning?period={period}").text
    trainings: dict[tuple[str, str, str], int] = {}
    for head, cells in _ROW.findall(trained):
        source, label, number, *_ = _CELL.findall(cells)
        trainings[source, unescape(head).removeprefix("-"), KEYS.get(label, label)] = _number(number)
    found += ["trainings"] * (trainings != dict(count["trainings"]))
    return found


def _rows(page: str) -> dict[str, list[str]]:
    """Head -> cells, of all tables; of rows with the same head the first."""
    rows: dict[str, list[str]] = {}
    for head, cells in _ROW.findall(page):
        rows.setdefault(
            unescape(re.sub(r"<[^>]*>", "", head)), [re.sub(r"<[^>]*>", "", cell) for cell in _CELL.findall(cells)]
        )
    return rows


def list_differences(browser: Browser, database: Path) -> list[str]:
    """What the lists of messages, page by page, do not show as the journal has it."""
    with closing(sqlite3.connect(database)) as connection:
        labels: dict[bytes, str] = {}
        for digest, label, undoes in connection.execute("SELECT digest, label, undoes FROM ledger ORDER BY id"):
            labels[digest] = "" if undoes else label
        query = "SELECT id, sender, at, action, digest, class, score FROM journal ORDER BY id DESC"
        journal = [
            (
                id,
                sender or "<>",
                at[:16],
                "" if action == "pass" else action,
                WORDS.get(labels.get(digest, ""), labels.get(digest, "")),
                class_,
                score,
            )
            for id, sender, at, action, digest, class_, score in connection.execute(query)
        ]
    expected = [(*row[:6], f"{row[6]:.3f}") for row in journal]
    found = [] if _listed(browser, "") == expected else ["the list"]
    for class_ in ("ham", "unsure", "spam"):
        found += [f"class {class_}"] * (_listed(browser, f"class={class_}") != [r for r in expected if r[5] == class_])
    for action in sorted({row[3] for row in journal} - {""}):
        rows = _listed(browser, f"action={action}")
        found += [f"action {action}"] * (rows != [row for row in expected if row[3] == action])
    likely = [shown for shown, row in zip(expected, journal, strict=True) if row[6] >= 0.5]
    found += ["score"] * (_listed(browser, "least=0.5") != likely)
    first = _listed(browser, "unsure_first=yes")
    ordered = sorted(expected, key=lambda row: row[5] != "unsure")
    return found + ["unsure first"] * (first != ordered)


def _listed(browser: Browser, query: str) -> list[tuple[str, ...]]:
    """All messages of a search, by its pages."""
    found: list[tuple[str, ...]] = []
    path = f"/messages?{query}"
    while path:
        page = browser.get(path).text
        found += [tuple(map(unescape, row)) for row in _MAIL.findall(page)]
        more = _NEXT.search(page)
        path = unescape(more.group(1)) if more else ""
    return found


def _number(text: str) -> int:
    digits = text.replace(",", "")
    return int(digits) if digits.isdecimal() else -1
