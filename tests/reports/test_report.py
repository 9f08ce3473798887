"""The report: every figure is compared with one that is computed in another way."""

import math
import random
import re
from datetime import timedelta

import pytest

from spamfilter.bayes.calibration import NO_STEP
from spamfilter.bayes.labels import IMPORT, LABELS, Label
from spamfilter.bayes.verdict import ACTIONS, CLASSES
from spamfilter.evaluation.error_rates import measure
from spamfilter.learning.filter import Filter
from spamfilter.learning.transaction import Reading
from spamfilter.learning.transfer.imports import announce
from spamfilter.reports.daily_summaries import STEP, Summary
from spamfilter.reports.rendering import report_json, to_json
from spamfilter.reports.report import LATEST, WORDS, Report, build
from spamfilter.reports.report_figures import figures_of
from spamfilter.reports.text import BARS, report_text
from spamfilter.stores import Entry, Store
from spamfilter.system.moments import moment_text
from spamfilter.system.terminal import width as columns_of
from tests.support.made import NOON, VOICE, journal_entry
from tests.support.memory_store import MemoryStore

WEEK = timedelta(days=7)


def digest(number: int) -> bytes:
    return b"%016d" % number


def mark(store: Store, number: int, label: Label, source: str = "cli", days: float = 0) -> None:
    tokens = {"fields": {b"number:%d" % number: 1, b"all": 1}}
    Filter(store, VOICE).learn(Reading(digest(number), tokens), label, source, "ann", NOON - timedelta(days=days))


def report(store: Store) -> Report:
    return build(store, ["fields"], NOON - WEEK, NOON)


def test_an_empty_period_is_a_report_of_nothing() -> None:
    empty = report(MemoryStore())
    assert (empty.figures.messages, empty.figures.bytes, empty.latest, empty.words) == (0, 0, [], [])
    assert empty.figures.classes == dict.fromkeys(CLASSES, 0)
    assert empty.figures.actions == dict.fromkeys(ACTIONS, 0)
    for rate in (empty.figures.ham_rate, empty.figures.spam_rate):
        assert (rate.errors, rate.messages, rate.low, rate.high) == (0, 0, 0.0, 1.0)
    assert "nothing yet" in report_text(empty)
    assert to_json(report_json(empty))


def test_an_import_is_no_message_that_was_learnt() -> None:
    store = MemoryStore()
    mark(store, 1, "spam", days=1)
    at = NOON - timedelta(days=1)
    with Filter(store, VOICE).training() as training:
        training.write(Entry(IMPORT, {"ham": 3, "spam": 2}, NO_STEP, {}, at, digest(2), "cli", "ann"))
    announce(store, frozenset(["bogofilter"]))
    found = report(store)
    assert (found.learnings, found.learnt) == (1, {"ham": 3, "spam": 3})
    assert set(found.vocabulary) == {"fields", "bogofilter"}


def test_errors_are_what_users_corrected_counted_by_hand() -> None:
    store = MemoryStore()
    classes = ["ham"] * 6 + ["unsure"] * 4 + ["spam"] * 5
    store.write_journal(
        [
            journal_entry(
                id=f"{number:02}", digest=digest(number), class_=class_, at=NOON - timedelta(hours=number + 1)
            )
            for number, class_ in enumerate(classes)
        ]
    )
    mark(store, 0, "spam")  # missed
    mark(store, 1, "ham")  # confirmed
    mark(store, 6, "spam")  # unsure, settled
    mark(store, 7, "ham")
    mark(store, 8, "ham", "train")  # bulk, corrects nothing
    mark(store, 10, "ham")  # lost
    mark(store, 11, "ham")  # lost
    mark(store, 12, "spam")  # confirmed
    mark(store, 13, "ham", "train")  # bulk, corrects nothing
    mark(store, 14, "ham", "automatic")  # a rule, corrects nothing
    mark(store, 99, "spam")  # not of the journal
    made = report(store)
    # Ham in truth: 6 judged ham - 1 missed spam + 2 lost + 1 unsure settled; spam: 5 - 2 + 1 + 1.
    assert (made.figures.ham_rate.errors, made.figures.ham_rate.messages) == (2, 8)
    assert (made.figures.spam_rate.errors, made.figures.spam_rate.messages) == (1, 5)
    assert made.figures.unsure_settled == {"ham": 1, "spam": 1}
    assert made.figures.classes == {"ham": 6, "unsure": 4, "spam": 5}
    assert "2 of 8 = 25.00 %" in report_text(made)


def test_a_mark_that_was_taken_back_corrects_nothing() -> None:
    store = MemoryStore()
    store.write_journal([journal_entry(id="1", digest=digest(1), class_="ham", at=NOON - timedelta(hours=1))])
    mark(store, 1, "spam")
    assert report(store).figures.spam_rate.errors == 1
    Filter(store, VOICE).forget(Reading(digest(1), {"fields": {}}), "cli")
    assert report(store).figures.spam_rate.errors == 0


@pytest.mark.parametrize("seed", range(5))
def test_every_figure_recomputed(seed: int) -> None:
    chance = random.Random(seed)
    store = MemoryStore()
    rows = []
    for number in range(chance.choice([1, 2, 99, 200])):
        evidence = [(f"word{chance.randrange(30)}", chance.uniform(-2, 2)) for _ in range(5)]
        rows.append(
            journal_entry(
                id=f"{number:04}",
                digest=digest(number),
                at=NOON - timedelta(days=chance.uniform(-1, 9)),
                class_=chance.choice(CLASSES),
                action=chance.choice(ACTIONS),
                size=chance.randrange(10**6),
                judge_us=chance.randrange(10**4),
                total_us=chance.randrange(10**6),
                subject=f"subject {number}",
                evidence=evidence,
            )
        )
    store.write_journal(rows)
    marks: dict[int, tuple[Label, str, float]] = {}
    for number in chance.sample(range(len(rows) + 5), k=min(40, len(rows))):
        marks[number] = (chance.choice(LABELS), chance.choice(["cli", "imap", "train"]), chance.uniform(0, 10))
    ordered = sorted(marks.items(), key=lambda item: -item[1][2])
    for number, (label, source, days) in ordered:
        mark(store, number, label, source, days)
    made = report(store)

    inside = [row for row in rows if NOON - WEEK <= row.at < NOON]
    assert made.figures.messages == len(inside)
    assert made.figures.bytes == sum(row.size for row in inside)
    assert made.figures.classes == {name: len([row for row in inside if row.class_ == name]) for name in CLASSES}
    assert made.figures.actions == {name: len([row for row in inside if row.action == name]) for name in ACTIONS}

    said: dict[bytes, Label] = {digest(n): label for n, (label, source, _) in marks.items() if source != "train"}
    pairs = [(row.class_, said.get(row.digest, row.class_)) for row in inside]
    for label, other, rate in (("ham", "spam", made.figures.ham_rate), ("spam", "ham", made.figures.spam_rate)):
        assert rate.errors == pairs.count((other, label))  # type: ignore[arg-type]  # names of classes
        assert rate.messages == len([truth for _, truth in pairs if truth == label])
        if rate.messages:
            assert 0 <= rate.low <= rate.errors / rate.messages <= rate.high <= 1
    heard = [row.reply[0] for row in inside]
    assert made.figures.replies == {
        "accepted": heard.count("2"),
        "deferred": heard.count("4"),
        "rejected": heard.count("5"),
    }
    for label in LABELS:
        assert made.figures.unsure_settled[label] == pairs.count(("unsure", label))

    figures = made.figures
    for delay, times in (
        (figures.judging, sorted(row.judge_us for row in inside)),
        (figures.relaying, sorted(row.total_us for row in inside)),
    ):
        if not times:
            assert (delay.median, delay.p99) == (0, 0)
            continue
        for found, share in ((delay.median, 0.5), (delay.p99, 0.99)):
            exact = times[int(share * (len(times) - 1))]
            assert exact <= found + 1 <= STEP * exact + 3

    new = [(number, facts) for number, facts in ordered if 0 < facts[2] <= 7]
    assert made.learnings == len(new)
    latest = sorted(new, key=lambda item: item[1][2])[:LATEST]
    assert [(row.label, row.source, row.by) for row in made.latest] == [(*facts[:2], "ann") for _, facts in latest]
    subjects = {row.digest: row.subject for row in sorted(rows, key=lambda row: row.id)}
    assert [row.subject for row in made.latest] == [subjects.get(digest(number), "") for number, _ in latest]
    assert made.learnt == {label: len([1 for mine, _, _ in marks.values() if mine == label]) for label in LABELS}
    assert made.vocabulary == {"fields": store.load(["fields"]).counts["fields"].vocabulary}

    words: dict[str, list[float]] = {}
    for row in inside:
        for token in {token for token, _ in row.evidence}:  # however many voices have heard it
            words.setdefault(token, []).append(sum(weight for heard, weight in row.evidence if heard == token))
    assert len(made.words) == min(WORDS, len(words))
    quietest = min((abs(sum(words[word.token])) for word in made.words), default=0)
    assert all(abs(sum(words[token])) <= quietest for token in words.keys() - {word.token for word in made.words})
    for word in made.words:
        shares = words[word.token]
        assert word.verdicts == len(shares)
        assert word.weight == pytest.approx(sum(shares) / len(shares))


def test_a_word_that_two_voices_hear_in_every_mail_is_in_as_many_verdicts_as_there_are_mails() -> None:
    store = MemoryStore()
    for day, token in ((3, "before"), (1, "now")):
        rows = [
            journal_entry(
                id=f"{token}{number:022}", digest=digest(number), at=NOON - timedelta(days=day),
                evidence=[(token, 1.0), ("always", 0.5), (token, 0.25)],
            )
            for number in range(40)
        ]  # fmt: skip
        store.write_journal(rows)
    made = build(store, ["fields"], NOON - timedelta(days=2), NOON)
    assert {word.token: (word.verdicts, word.weight) for word in made.words} == {"now": (40, 1.25), "always": (40, 0.5)}
    assert [(word.token, word.verdicts, word.before) for word in made.risen] == [("now", 40, 0)]
    assert [(word.token, word.verdicts, word.before, word.weight) for word in made.fallen] == [("before", 0, 40, 1.25)]


def test_the_mean_of_both_error_rates_is_that_of_evaluate() -> None:
    labels: list[Label] = ["ham" for _ in range(50)]
    labels += ["spam" for _ in range(20)]
    odds = [3.0] * 2 + [-3.0] * 48 + [-3.0] + [3.0] * 19
    measured = measure(odds, [1 / (1 + math.exp(-each)) for each in odds], labels)
    mail = Summary()
    mail.hours.update({(12, "ham", "pass"): 49, (12, "spam", "tag"): 21})
    mail.marked.update({("spam", 9, "ham"): 2, ("ham", 0, "spam"): 1})
    assert figures_of(mail).lam == pytest.approx(measured.lam)


def test_the_report_is_text_as_wide_as_the_terminal_whatever_the_mail_said() -> None:
    store = MemoryStore()
    nasty = "\x1b[31m\r\n\u202e" + "x" * 500
    store.write_journal(
        [
            journal_entry(
                id="1",
                digest=digest(1),
                at=NOON - timedelta(hours=1),
                subject=nasty,
                evidence=[(nasty, 1.0)],
                sender=f"{nasty}@{nasty}",
                recipients=[nasty],
                client=nasty,
                reply=nasty,
                class_=class_,
            )
            for class_ in ("unsure", "ham")
        ]
    )
    Filter(store, VOICE).learn(
        Reading(digest(1), {"fields": {b"a": 1}}), "spam", "cli", nasty, NOON - timedelta(hours=1)
    )
    for width, encoding, bars in ((100, "utf-8", BARS), (60, "ascii", ""), (10, "latin-1", ""), (500, "utf-8", BARS)):
        text = report_text(report(store), width, encoding)
        assert all(len(line) <= min(max(width, 60), 120) for line in text.split("\n"))
        assert all(letter == "\n" or " " <= letter <= "~" or letter in bars for letter in text)


def test_the_reply_of_a_next_hop_is_harmless_and_fits_wherever_it_is_told() -> None:
    store = MemoryStore()
    reply = "451 \x1b[31m\u202e " + "\u5783\u573e" * 150
    store.write_journal([journal_entry(id="1", at=NOON - timedelta(hours=1), reply=reply)])
    made = report(store)
    assert any("\\x1b[31m" in sentence for sentence in made.advice)
    for width in (60, 100):
        lines = report_text(made, width).split("\n")
        assert all(columns_of(line) <= width for line in lines)
        assert not any(letter in "\x1b\u202e" for line in lines for letter in line)


def test_the_title_names_period_and_host_whatever_the_width() -> None:
    host = "mail.of.a.long.name.example.org"
    title, _, _ = report_text(build(MemoryStore(), ["fields"], NOON - WEEK, NOON, host=host), 60).partition("\n\n")
    since, until = moment_text(NOON - WEEK), moment_text(NOON)
    assert title.split() == f"spamfilter report, {since} to {until}, {host}".split()


def test_what_does_not_fit_is_left_out_whole_and_no_figure_is_cut_off() -> None:
    store = MemoryStore()
    for number in range(30):
        mark(store, number, "spam", f"source{number:02}", days=1)
    mark(store, 99, "ham", "imap", days=1)
    long = {"sender": "a@" + "d" * 80, "recipients": ["r" * 80], "client": "2001:db8::" + "c" * 40}
    evidence = [("w" * 60, 1.5)]
    entry = journal_entry(id="A" * 26, digest=digest(99), at=NOON - timedelta(hours=1), evidence=evidence, **long)
    store.write_journal([entry])
    found = report(store)
    for width in (60, 80, 120):
        lines = report_text(found, width).split("\n")
        for letter in "drc":
            (line,) = [line for line in lines if letter * 20 in line]
            assert line.split()[-2:] == ["1", "0"]
        (line,) = [line for line in lines if "w" * 16 in line]
        assert line.split()[1:] == ["1", "0", "spam", "+1.50"]
        assert [line.strip() for line in lines if "more rows" in line] == ["11  in 11 more rows: see stats --json"]
        assert any("A" * 26 in line for line in lines) == (width > 60)
        assert not re.search(r"A{1,25}$", "\n".join(lines), re.MULTILINE)


def test_one_class_alone_brings_advice() -> None:
    store = MemoryStore()
    mark(store, 1, "spam")
    assert "Advice" in report_text(report(store))
    mark(store, 2, "ham")
    assert "Advice" not in report_text(report(store))
    for number in range(3, 6):
        mark(store, number, "spam")
    assert "mark or train more ham" in " ".join(report_text(report(store)).split())


def test_many_marks_of_one_class_bring_advice() -> None:
    store = MemoryStore()
    for number in range(1, 111):
        mark(store, number, "ham" if number <= 10 else "spam", days=1)
    assert "nearly all marks were of one class" not in " ".join(report_text(report(store)).split())
    mark(store, 111, "spam", days=1)
    assert "run spamfilter retrain, so that ham stays ham" in " ".join(report_text(report(store)).split())


def test_a_week_without_mail_after_one_with_mail_brings_advice() -> None:
    store = MemoryStore()
    mark(store, 1, "spam")
    mark(store, 2, "ham")
    store.write_journal([journal_entry(at=NOON - timedelta(days=8))])
    assert "no mail came, and 1 in the period before" in " ".join(report_text(report(store)).split())
    store.write_journal([journal_entry(id="02", at=NOON - timedelta(days=1))])
    assert "no mail came" not in report_text(report(store))


def test_unsure_mail_that_nobody_has_marked_waits_with_its_id_the_latest_first() -> None:
    store = MemoryStore()
    store.write_journal([
        journal_entry(
            id=f"{number:02}", digest=digest(number // 2), class_="unsure" if number < 30 else "spam",
            at=NOON - timedelta(minutes=100 - number), subject=f"subject {number}",
        )
        for number in range(34)
    ])  # fmt: skip
    mark(store, 14, "ham")
    made = report(store)
    assert [item.subject for item in made.waiting] == [f"subject {number}" for number in range(27, 7, -2)]
    text = report_text(made)
    assert all(item.id in text for item in made.waiting)
    assert "subject 29" not in text
