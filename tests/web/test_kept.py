"""A digest and its links: the whole night of a mail that was kept, and links that others try."""

import email
import email.policy
import json
import re
import sqlite3
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta
from email.message import EmailMessage
from typing import Any
from urllib.parse import quote

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, expect

from spamfilter.bayes.labels import Label
from spamfilter.bayes.model import Score
from spamfilter.bayes.verdict import Verdict
from spamfilter.config.settings import Settings
from spamfilter.learning.filter import Filter
from spamfilter.mail.tagging import mark
from spamfilter.relay.next_hops import Maildir
from spamfilter.reports.digest_links import link_of
from spamfilter.stores import Rule, open_store
from spamfilter.system.ids import new_id
from spamfilter.web.kept import MOST_RULES
from spamfilter.web.marking import TICKED
from tests.faults.fault import Break, Hold, Say
from tests.integration.servers import wait_until, workshop
from tests.support.made import reading
from tests.web.pages import Site, mail_of, site, taught
from tests.web.test_chromium import SHOTS, WIDTHS, listened, opened

B, C, D = "b@example.test", "c@example.test", "d@example.test"
PILLS = "casino pills lottery money winner cheap click"
PROVED = b"Authentication-Results: mx.test; dmarc=pass header.from=example.org\r\n"
DIGEST = {"url": "http://127.0.0.1:1", "domains": ["example.test"], "link_days": 3.0}
LISTS = {"results_from": ["mx.test"]}


@pytest.fixture
def pages() -> Iterator[Site]:
    """A relay that has learnt some mail, keeps spam, and sends digests."""
    verdict = {"spam": 0.8, "on_spam": "quarantine"}
    texts: dict[Label, str] = {"ham": "the agenda of the meeting on monday", "spam": PILLS}
    with workshop() as folder:
        mails = [
            (label, mail_of(f"{label}{number}", f"{label} {number}", text))
            for number in range(5)
            for label, text in texts.items()
        ]
        taught(folder / "s" / "state" / "spamfilter.db", mails)
        with site(folder / "s", verdict=verdict, digest=DIGEST, lists=LISTS, feedback={"language": "de"}) as made:
            yield made


def send(pages: Site, name: str, subject: str, *recipients: str, text: str = PILLS, head: bytes = b"") -> str:
    """Send a mail, which looks like spam if nothing is said; its id."""
    return pages.send(head + mail_of(name, subject, text), *recipients)


def digests(pages: Site) -> dict[str, EmailMessage]:
    """The digests that one run sends, by address."""
    before = len(pages.hop.kept)
    done = pages.relay.command("digest")
    assert (done.returncode, done.stderr) == (0, "")
    found = {}
    for kept in pages.hop.kept[before:]:
        mail = email.message_from_bytes(kept.mail, policy=email.policy.default)
        assert isinstance(mail, EmailMessage)
        assert kept.recipients == (mail["To"],)
        found[str(mail["To"])] = mail
    return found


def text_of(mail: EmailMessage, kind: str = "plain") -> str:
    body = mail.get_body((kind,))
    assert body is not None
    return str(body.get_content())


def link_in(mail: EmailMessage) -> str:
    """The path of the list that a digest links."""
    found = re.search(r"^http://127\.0\.0\.1:1(/kept/[A-Za-z0-9_.-]+)\r?$", text_of(mail), re.MULTILINE)
    assert found
    return found.group(1)


def outcomes(pages: Site) -> list[tuple[str, str]]:
    with closing(sqlite3.connect(pages.relay.database)) as database:
        return database.execute("SELECT outcome, by FROM quarantine_events ORDER BY id").fetchall()


def test_the_night_of_a_mail_that_was_kept_by_mistake(pages: Site, chromium: Browser) -> None:
    id = send(pages, "night", "Casino der Woche", B, C)
    first = digests(pages)
    assert set(first) == {B, C}
    assert first[B]["Subject"] == "Als Spam zurückgehaltene Mails: 1"
    assert first[B]["Auto-Submitted"] == "auto-generated"
    assert "Casino der Woche" in text_of(first[B])
    assert "Wörter, die für Spam sprechen: " in text_of(first[B])
    assert f"{link_in(first[B])}/{id}" in text_of(first[B], "html")
    assert digests(pages) == {}
    page = opened(chromium, pages)
    complaints = listened(page)
    page.goto(link_in(first[B]))
    page.get_by_role("link", name="Casino der Woche").click()
    expect(page.locator(".mail-text")).to_contain_text("casino pills lottery")
    assert "night" not in [kept.name for kept in pages.hop.kept]
    page.get_by_role("button", name="Zustellen und als").click()
    expect(page.get_by_role("status")).to_contain_text("Zugestellt: Casino der Woche")
    expect(page.get_by_role("link", name="Casino der Woche")).to_have_count(0)
    assert complaints == []
    (arrived,) = pages.hop.copies("night")
    assert arrived.recipients == (B,)
    assert b"X-Spam-Status: No, released from quarantine\r\n" in arrived.mail
    assert b"X-Spam-Flag" not in arrived.mail
    seen = pages.browser("anna").get(f"/messages/{id}").words
    assert f"Quarantine: kept announced to {B}" in seen  # for the other recipient
    assert f"delivered to {B} by digest link: {B}, " in seen
    assert f"not spam web by digest link: {B}" in seen
    wait_until(lambda: pages.relay.ask({"command": "status"})["learnt"]["ham"] == 6, "what was taught")
    other = send(pages, "next", "Casino der Woche", B)
    assert [kept.recipients for kept in pages.hop.copies("next")] == [(B,)], other


def test_a_mail_with_a_subject_of_blanks_has_a_link_that_people_see(pages: Site) -> None:
    id = send(pages, "blank", "=?utf-8?Q?=20=20?=", B)
    path = link_in(digests(pages)[B])
    assert f'{path}/{id}">(kein Betreff)</a>' in pages.browser().get(path).text
    assert f'/messages/{id}">(no subject)</a>' in pages.browser("anna").get("/messages").text


def test_scanners_and_strangers_get_nothing_done(pages: Site) -> None:
    one, other = send(pages, "one", "Money", B), send(pages, "other", "Money", C)
    link = link_in(digests(pages)[B])
    known, mails = outcomes(pages), len(pages.hop.kept)
    browser = pages.browser()
    for method in ("GET", "HEAD"):
        for path in (link, f"{link}/{one}"):
            for query in ("", f"?do=delete&mail-{one}=on", "?rule=block", "?undo=1", "?all=yes"):
                assert browser.ask(method, path + query).status == 200
    assert browser.get(f"{link}/{other}").status == 404
    assert browser.submit(link + "/" + one, f"{link}/{other}").status == 404
    for form in ({}, {"do": "delete"}, {"rule": "block"}):
        assert browser.post(f"{link}/{one}", form).fields["location"] == f"{link}?again=1"  # without the page's stamp
        stamped = {"stamp": browser.get(link).stamp, **form}
        assert browser.post(f"{link}/{one}", stamped, Sec_Fetch_Site="cross-site").status == 403
        assert browser.submit(link, f"{link}/{other}", **form).status == 404
    key = (pages.relay.state / "digest.key").read_bytes()
    assert (pages.relay.state / "digest.key").stat().st_mode & 0o777 == 0o600
    now = datetime.now(UTC)
    expired, forged = link_of(key, B, now - timedelta(seconds=1)), link_of(b"k" * 32, B, now + timedelta(days=1))
    said, _, signature = link.removeprefix("/kept/").partition(".")
    swapped = f"{link_of(key, C, now + timedelta(days=1)).partition('.')[0]}.{signature}"
    for wrong in (expired, forged, swapped, said, f"{said}.", f"{said}.%00", "x" * 1800):
        assert "falsch oder abgelaufen" in browser.get(f"/kept/{wrong}").words
        for path in (f"/kept/{wrong}", f"/kept/{wrong}/{one}"):
            assert browser.get(path).status == 403
        for path in (f"/kept/{wrong}", f"/kept/{wrong}/{one}"):
            for form in ({}, {"do": "delete", f"mail-{one}": "on"}, {"rule": "block"}, {"undo": "1"}):
                assert browser.submit(f"{link}/{one}", path, **form).status == 403
    assert (outcomes(pages), len(pages.hop.kept), rules(pages)) == (known, mails, [])


def test_a_next_hop_that_is_down_keeps_the_mail_and_says_so(pages: Site) -> None:
    id = send(pages, "later", "Money", B)
    link = link_in(digests(pages)[B])
    pages.hop.down()
    answer = pages.browser().submit(f"{link}/{id}", f"{link}/{id}")
    assert answer.status == 503
    assert "konnte jetzt nicht zugestellt werden" in answer.words
    assert outcomes(pages)[-1] == ("announced", "")


def test_without_database_or_folder_a_user_is_told_to_come_back_and_the_log_says_why(pages: Site) -> None:
    id = send(pages, "away", "Money", B)
    link = link_in(digests(pages)[B])
    browser, anna, database = pages.browser(), pages.browser("anna"), pages.relay.database
    stamp, paths = browser.get(link).stamp, (link, f"{link}/{id}")
    with closing(sqlite3.connect(database, isolation_level=None)) as other:
        other.execute("ALTER TABLE quarantine_events RENAME TO away")
        other.execute("ALTER TABLE rules RENAME TO rules_away")
        reason = anna.get("/quarantine").words
        answers = [browser.get(path) for path in paths]
        forms: list[tuple[str, dict[str, str]]] = [(path, {"do": do}) for path in paths for do in ("delete", "teach")]
        forms += [(paths[0], {"undo": "1"}), (paths[1], {"rule": "block"})]
        answers += [browser.post(path, {"stamp": stamp, f"mail-{id}": "on", **form}) for path, form in forms]
        other.execute("ALTER TABLE away RENAME TO quarantine_events")
        other.execute("ALTER TABLE rules_away RENAME TO rules")
    assert str(database) in reason
    for answer in answers:
        assert (answer.status, '<html lang="de">' in answer.text) == (503, True)
        assert "Das ging jetzt nicht. Versuchen Sie es später noch einmal." in answer.words
        assert database.name not in answer.text
    told = [line for line in pages.log().splitlines() if f"the page of digest link: {B}: " in line]
    assert len(told) == len(answers)
    assert all(str(database) in line for line in told)
    assert link.removeprefix("/kept/") not in pages.log()
    assert outcomes(pages) == [("announced", "")]
    with closing(sqlite3.connect(database, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")  # readers go on, writers wait
        answer = browser.post(paths[1], {"stamp": stamp, "rule": "block"})
        other.execute("ROLLBACK")
    assert (answer.status, "Das ging jetzt nicht." in answer.words) == (503, True)
    assert (database.name in answer.text, "another process holds the database" in pages.log()) == (False, True)
    folder = pages.relay.state / "quarantine"
    (folder / "new").rename(folder / "away")
    (folder / "new").touch()  # no folder
    answer = browser.get(link)
    listed, released = anna.get("/quarantine"), anna.submit("/", f"/messages/{id}/release")
    (folder / "new").unlink()
    (folder / "away").rename(folder / "new")
    assert (answer.status, "Das ging jetzt nicht." in answer.words) == (503, True)
    for seen, status in ((listed, 503), (released, 400)):
        assert (seen.status, f"{folder / 'new'}: Not a directory" in seen.words) == (status, True)
    assert browser.submit(paths[1], paths[1], do="delete").status == 303


def rules(pages: Site, *options: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in pages.relay.command("lists", "--json", *options).stdout.splitlines()]


def test_a_user_blocks_a_sender_and_undoes_it(pages: Site, chromium: Browser) -> None:
    id = send(pages, "first", "Casino der Woche", B, C)
    told = digests(pages)
    link, other = link_in(told[B]), link_in(told[C])
    page = opened(chromium, pages)
    complaints = listened(page)
    page.goto(f"{link}/{id}")
    assert rules(pages) == []
    page.get_by_role("button", name="a@example.org immer sperren").click()
    expect(page.get_by_role("status")).to_contain_text("Mails von a@example.org an Sie gelten ab jetzt immer als Spam.")
    (rule,) = rules(pages)
    user = f"digest link: {B}"
    assert (rule["kind"], rule["sender"], rule["recipients"], rule["by"]) == ("block", "a@example.org", B, user)
    assert timedelta() <= datetime.now(UTC) - datetime.fromisoformat(str(rule["at"])) < timedelta(minutes=5)
    pages.obeys("blocked=a@example.org", B)
    ham = "the agenda of the meeting on monday"
    send(pages, "ham for b", "Agenda", B, text=ham)
    send(pages, "ham for c", "Agenda", C, text=ham)
    assert [kept.recipients for kept in pages.hop.kept if kept.name.startswith("ham for")] == [(C,)]
    assert digests(pages) == {}  # nobody wants to hear of whom they block
    page.goto(link)
    expect(page.get_by_role("link", name="Agenda")).to_have_count(1)

    stranger = pages.browser()
    assert "Diese Regel gibt es nicht." in stranger.submitted(other, other, undo=str(rule["rule"])).words
    stale = stranger.post(link, {"undo": str(rule["rule"])})  # without the stamp
    assert "Diese Seite war zu alt, und es ist nichts geschehen." in stranger.get(stale.fields["location"]).words
    assert rules(pages) == [rule]
    page.get_by_role("button", name="Zurücknehmen").click()
    expect(page.get_by_role("status")).to_contain_text("Die Regel zu a@example.org ist zurückgenommen.")
    page.reload()
    expect(page.get_by_role("status")).to_contain_text("Die Regel zu a@example.org ist zurückgenommen.")
    page.go_back()  # to the list with the rule that was made, which is not made again
    expect(page.get_by_role("link", name="Agenda")).to_have_count(1)
    assert complaints == []
    assert rules(pages) == []
    (former,) = rules(pages, "--history")
    assert (former["ending"], former["ended_by"]) == ("undone", user)
    pages.obeys("", B)
    send(pages, "ham again", "Agenda", B, text=ham)
    assert [kept.recipients for kept in pages.hop.kept if kept.name == "ham again"] == [(B,)]


def test_a_digest_has_no_mail_of_a_sender_whom_its_reader_blocks_whoever_else_does(pages: Site) -> None:
    id = send(pages, "first", "Casino der Woche", B, C)
    told = digests(pages)
    browser = pages.browser()
    for address in (B, C):
        path = f"{link_in(told[address])}/{id}"
        assert browser.submit(path, path, rule="block").status == 303
    pages.obeys("blocked=a@example.org", C)
    send(pages, "both", "Agenda", B, C, text="the agenda of the meeting on monday")
    assert pages.hop.copies("both") == []
    assert digests(pages) == {}
    assert pages.relay.command("block", "example.org").returncode == 0
    pages.obeys("blocked=example.org", "x@elsewhere.test")  # who gets no digest
    send(pages, "everybody", "Agenda", B, D, text="the agenda of the meeting on monday")
    assert {*digests(pages)} == {D}


def test_a_user_allows_a_sender_that_is_proved(pages: Site) -> None:
    id = send(pages, "first", "Money", B)
    link = link_in(digests(pages)[B])
    said = pages.browser().submitted(f"{link}/{id}", f"{link}/{id}", rule="allow").words
    assert "Mails von a@example.org kommen ab jetzt immer zu Ihnen, wenn Ihr Mailserver den Absender" in said
    pages.obeys("allowed=a@example.org", B, head=PROVED)
    for name, recipient, head in (("proved", B, PROVED), ("forged", B, b""), ("for c", C, PROVED)):
        send(pages, name, "Money", recipient, head=head)
    assert [kept.name for kept in pages.hop.kept if kept.name in ("proved", "forged", "for c")] == ["proved"]


def test_a_link_replaces_no_rule_of_the_administrator_and_fills_no_database(pages: Site) -> None:
    id = send(pages, "first", "Money", B)
    link = link_in(digests(pages)[B])
    assert pages.relay.command("allow", "a@example.org", "--for", B).returncode == 0
    (before,) = rules(pages)
    browser = pages.browser()
    answer = browser.submit(f"{link}/{id}", f"{link}/{id}", rule="block")
    assert (answer.status, "Ihr Administrator hat für Sie eine Regel" in answer.words) == (403, True)
    assert "a@example.org immer zugelassen" in browser.get(link).words
    assert "Diese Regel gibt es nicht." in browser.submitted(link, link, undo=str(before["rule"])).words
    assert rules(pages) == [before]
    pages.relay.command("unlist", str(before["rule"]))
    assert pages.relay.command("block", "example.org").returncode == 0
    (blocked,) = rules(pages)
    answer = browser.submit(f"{link}/{id}", f"{link}/{id}", rule="allow")
    assert (answer.status, "Ihr Administrator sperrt diesen Absender." in answer.words) == (403, True)
    assert rules(pages) == [blocked]
    pages.relay.command("unlist", str(blocked["rule"]))
    now = datetime.now(UTC)
    with closing(open_store(f"sqlite:///{pages.relay.database}")) as store:
        for number in range(MOST_RULES):
            store.add_rule(Rule("block", f"s{number}@example.org", B, None, f"digest link: {B}", now), now)
    answer = browser.submit(f"{link}/{id}", f"{link}/{id}", rule="block")
    assert (answer.status, "Es gibt zu viele Regeln" in answer.words) == (403, True)
    assert len(rules(pages)) == MOST_RULES
    with closing(open_store(f"sqlite:///{pages.relay.database}")) as store:
        store.remove_rule(store.rules()[0].id, "anna", now)
        store.add_rule(Rule("allow", "a@example.org", B, None, f"digest link: {B}", now), now)
    assert browser.submit(f"{link}/{id}", f"{link}/{id}", rule="block").status == 303  # in place of the last one
    assert len(rules(pages)) == MOST_RULES


def test_a_rule_of_the_administrator_that_has_expired_keeps_nobody_from_making_one(pages: Site) -> None:
    id = send(pages, "first", "Money", B)
    link, now = link_in(digests(pages)[B]), datetime.now(UTC)
    with closing(open_store(f"sqlite:///{pages.relay.database}")) as store:
        store.add_rule(Rule("allow", "a@example.org", B, now - timedelta(minutes=1), "anna", now), now)
    browser = pages.browser()
    assert "a@example.org" not in browser.get(link).words.partition("Ihre Absender")[2]
    said = browser.submitted(f"{link}/{id}", f"{link}/{id}", rule="block").words
    assert "Mails von a@example.org an Sie gelten ab jetzt immer als Spam." in said
    assert [rule["kind"] for rule in rules(pages)] == ["block"]
    assert [rule["ending"] for rule in rules(pages, "--history")] == ["expired"]


def test_a_mail_too_old_to_mark_by_id_is_learnt_as_it_is_delivered(pages: Site) -> None:
    ids = {name: send(pages, name, f"Casino {name}", B) for name in ("by link", "by page")}
    link = link_in(digests(pages)[B])
    with closing(sqlite3.connect(pages.relay.database)) as database, database:
        database.execute("UPDATE journal SET tokens = NULL")
    browser, anna = pages.browser(), pages.browser("anna")
    path = f"{link}/{ids['by link']}"
    assert "nicht als" not in browser.submitted(path, path, do="teach").words
    anna.submit("/quarantine", "/quarantine/act", do="teach", **{f"mail-{ids['by page']}": "on"})
    with closing(sqlite3.connect(pages.relay.database)) as database:
        query = "SELECT ledger.label FROM ledger JOIN journal USING (digest) WHERE journal.id = ?"
        assert [database.execute(query, [id]).fetchone() for id in ids.values()] == [("ham",)] * 2


def test_a_mail_that_the_journal_knows_no_more_is_learnt_as_it_is_delivered(pages: Site) -> None:
    """The journal may be kept for fewer days than the quarantine."""
    ids = {name: send(pages, name, f"Casino {name}", B) for name in ("by link", "by page")}
    link = link_in(digests(pages)[B])
    with closing(sqlite3.connect(pages.relay.database)) as database, database:
        before = database.execute("SELECT count(*) FROM ledger WHERE label = 'ham'").fetchone()[0]
        database.executemany("DELETE FROM journal WHERE id = ?", [(id,) for id in ids.values()])
    browser, anna = pages.browser(), pages.browser("anna")
    path = f"{link}/{ids['by link']}"
    assert "nicht als" not in browser.submitted(path, path, do="teach").words
    said = anna.submitted("/quarantine", "/quarantine/act", do="teach", **{f"mail-{ids['by page']}": "on"}).words
    assert "1 mail delivered" in said
    assert "not learnt" not in said
    with closing(sqlite3.connect(pages.relay.database)) as database:
        assert database.execute("SELECT count(*) FROM ledger WHERE label = 'ham'").fetchone()[0] == before + 2


def test_what_was_not_done_is_said_with_its_reason(pages: Site) -> None:
    ids = [send(pages, name, f"Casino {name}", B, C) for name in ("one", "two", "three")]
    link = link_in(digests(pages)[B])
    browser, anna = pages.browser(), pages.browser("anna")
    ticked = {f"mail-{id}": "on" for id in ids}
    pages.hop.faults[f"RCPT TO:<{B}>"] = Say(b"550 5.1.1 no such user\r\n")
    path = f"{link}/{ids[0]}"
    answer = browser.submit(path, path, do="deliver")
    assert (answer.status, "Ihr Mailserver nimmt die Mail nicht an" in answer.words) == (502, True)
    assert "nicht annimmt: 3. Fragen Sie" in browser.submitted(link, link, do="deliver", **ticked).words
    said = anna.submitted("/quarantine", "/quarantine/act", do="deliver", **ticked).words
    assert "3 mails delivered" in said
    assert f"3 of these still kept: {ids[0]}: stays in quarantine for {B}: 550 5.1.1 no such user" in said
    pages.hop.faults.clear()
    pages.hop.down()
    before = time.monotonic()
    assert "weil es jetzt nicht ging: 3." in browser.submitted(link, link, do="deliver", **ticked).words
    said = anna.submitted("/quarantine", "/quarantine/act", do="deliver", **ticked).words
    assert "3 not done: " in said
    assert time.monotonic() - before < 60
    pages.hop.up()
    with (
        closing(open_store(f"sqlite:///{pages.relay.database}")) as store,
        Filter(store, Settings().voices()).training() as training,
    ):
        for number in range(200):  # all that the link may mark today
            training.learn(reading(f"other {number}", "lunch"), "ham", "web", f"digest link: {B}")
    said = browser.submitted(link, link, do="teach", **ticked).words
    assert "Zugestellte Mails: 3" in said
    assert "nicht als „kein Spam“ gelernt: 3." in said


def test_all_that_is_kept_is_on_the_pages_of_the_link(pages: Site) -> None:
    verdict = Verdict(Score(5.0, 0.99), "spam", "quarantine", 0.8, {"ham": 5, "spam": 5})
    for number in range(TICKED + 2):
        id, mail = new_id(), mail_of(f"kept{number}", f"Casino {number}", PILLS)
        Maildir(pages.relay.state / "quarantine").write(
            mark(mail, verdict.fields(id)), b"a@example.org", [B.encode()], id
        )
    link, browser = link_in(digests(pages)[B]), pages.browser()
    pattern = r'name="mail-([0-9A-Z]{26})"'
    first = browser.get(link)
    assert 'rel="prev"' not in first.text
    older = re.search(r'rel="next" href="([^"]+)">Ältere<', first.text)
    assert older
    second = browser.get(older.group(1))
    ids = re.findall(pattern, first.text), re.findall(pattern, second.text)
    assert [*map(len, ids)] == [TICKED, 2]
    assert len({*ids[0], *ids[1]}) == TICKED + 2
    assert 'rel="next"' not in second.text
    assert f'rel="prev" href="{link}?page=1">Neuere<' in second.text
    form = {"stamp": second.stamp, "do": "delete", **{f"mail-{id}": "on" for id in ids[1]}}
    assert "Gelöschte Mails: 2" in browser.get(browser.post(link, form).fields["location"]).words
    assert browser.get(older.group(1)).words.endswith("Neuere")
    for odd in ("0", "-1", "x", "10000", "\u0662"):
        assert re.findall(pattern, browser.get(f"{link}?page={quote(odd)}").text) == ids[0]


@pytest.mark.parametrize(
    ("at", "told"),
    [
        ("list", (200, "Schon zugestellt oder gelöscht, darum wurde nichts getan: 1.")),
        ("mail", (404, "Sie wurde zugestellt oder gelöscht.")),
    ],
)
def test_of_two_tabs_the_second_says_nothing_that_the_first_has_prevented(
    pages: Site, at: str, told: tuple[int, str]
) -> None:
    id = send(pages, "tabs", "Casino tabs", B, C)
    link = link_in(digests(pages)[B])
    path, ticked = (link, {f"mail-{id}": "on"}) if at == "list" else (f"{link}/{id}", {})
    first, second = pages.browser(), pages.browser()
    stamps = [browser.get(path).stamp for browser in (first, second)]
    pages.hop.faults["MAIL"] = slow = Hold()
    with ThreadPoolExecutor() as tabs:
        delivery = tabs.submit(first.post, path, {"stamp": stamps[0], "do": "deliver", **ticked})
        assert slow.reached.wait(20)
        deletion = tabs.submit(second.post, path, {"stamp": stamps[1], "do": "delete", **ticked})
        time.sleep(1)  # it has found the mail, and waits for the delivery
        slow.release.set()
        assert delivery.result().status == 303
        said = deletion.result()
    if said.status == 303:
        said = second.get(said.fields["location"])
    assert said.status == told[0]
    assert told[1] in said.words
    assert "Gelöschte Mails" not in said.words
    assert [kept.recipients for kept in pages.hop.copies("tabs")] == [(B,)]


def test_a_next_hop_that_goes_away_after_the_mail_may_have_delivered_it(pages: Site) -> None:
    id = send(pages, "lost", "Casino lost", B)
    link = link_in(digests(pages)[B])
    path, browser = f"{link}/{id}", pages.browser()
    assert "bereits" not in browser.get(path).words
    pages.hop.faults["DOT"] = Break("close", keeps=True)
    answer = browser.submit(path, path, do="deliver")
    assert (answer.status, "konnte jetzt nicht zugestellt werden" in answer.words) == (503, True)
    for seen in (answer, browser.get(path), browser.get(link)):
        assert "Vielleicht haben Sie diese Mail bereits" in seen.words
    assert "in the meantime" not in pages.log()
    pages.hop.faults.clear()
    browser.submit(path, path, do="deliver")
    assert len(pages.hop.copies("lost")) == 2


def test_a_user_whose_address_is_not_ascii_reads_and_delivers_mail_and_makes_no_rule(pages: Site) -> None:
    address = "gr\xfcn@example.test"
    id = send(pages, "green", "Casino", address, B)
    assert pages.relay.command("digest").returncode == 0
    (digest,) = [kept.mail for kept in pages.hop.kept if kept.recipients == (address,)]
    assert f"\r\nTo: {address}\r\n".encode() in digest
    assert "MAIL FROM:<spamfilter@relay.test> SMTPUTF8" in pages.hop.commands
    read = email.message_from_bytes(digest, policy=email.policy.default)
    assert isinstance(read, EmailMessage)
    browser, path = pages.browser(), f"{link_in(read)}/{id}"
    assert 'name="rule"' not in browser.get(path).text
    assert browser.submit(path, path, do="teach").status == 303
    assert [kept.recipients for kept in pages.hop.copies("green")] == [(address,)]


def test_two_links_of_a_digest_that_a_webmail_opens_in_two_tabs(pages: Site, chromium: Browser) -> None:
    ids = [send(pages, name, f"Casino {name}", B) for name in ("left", "right")]
    link = link_in(digests(pages)[B])
    page = opened(chromium, pages)
    links = "".join(f'<a href="http://127.0.0.1:{pages.port}{link}/{id}" target="_blank">{id}</a>' for id in ids)
    page.route("http://webmail.example/", lambda route: route.fulfill(body=links, content_type="text/html"))
    page.goto("http://webmail.example/")
    tabs = []
    for id in ids:
        with page.context.expect_page() as tab:
            page.get_by_role("link", name=id).click()
        tabs.append(tab.value)
        expect(tab.value.locator(".mail-text")).to_contain_text("casino")
    for name, each in zip(("left", "right"), tabs, strict=True):
        each.get_by_role("button", name="Zustellen und als").click()
        expect(each.get_by_role("status")).to_contain_text(f"Zugestellt: Casino {name}")


def test_who_is_signed_in_follows_the_link_from_a_webmail(pages: Site) -> None:
    """The browser sends no cookie of the session with what another site links to, and sends it with the page's form."""
    id = send(pages, "signed in", "Casino", B)
    link = link_in(digests(pages)[B])
    browser, signed_in = pages.browser(), pages.browser("anna").cookies
    stamp = browser.get(link).stamp
    browser.cookies.update(signed_in)
    answer = browser.post(link, {"stamp": stamp, "do": "delete", f"mail-{id}": "on"})
    assert "deleted=1" in answer.fields["location"]
    assert browser.get("/").status == 200


def test_many_are_delivered_or_deleted_at_once(pages: Site, chromium: Browser) -> None:
    ids = {name: send(pages, name, f"Casino {name}", B, C) for name in ("one", "two", "three", "four")}
    foreign = send(pages, "foreign", "Casino foreign", C)
    told = digests(pages)
    link, other = link_in(told[B]), link_in(told[C])
    page = opened(chromium, pages)
    page.goto(link)
    page.get_by_role("button", name="Löschen").click()
    expect(page.get_by_role("status")).to_contain_text("Kreuzen Sie zuerst die Mails an.")
    page.wait_for_load_state()  # the boxes are shown before the script that listens to keys has come
    for name in ("one", "two"):
        page.get_by_label(f"Ankreuzen: Casino {name}").focus()
        page.keyboard.press("Enter")  # ticks, and sends no form
    page.get_by_role("button", name="Zustellen", exact=True).click()
    expect(page.get_by_role("status")).to_contain_text("Zugestellte Mails: 2")
    page.get_by_role("link", name="Alle ankreuzen").click()
    page.wait_for_url("**all=yes*")
    ticked = page.locator("input:checked").count()
    assert ticked == page.locator("input[type=checkbox]").count() >= 2
    page.get_by_role("button", name="Löschen").click()
    expect(page.get_by_role("status")).to_contain_text(f"Gelöschte Mails: {ticked}")
    expect(page.get_by_text("Für Sie wird nichts zurückgehalten.")).to_have_count(1)
    delivered = [kept for name in ids for kept in pages.hop.copies(name)]
    assert [(kept.name, kept.recipients) for kept in delivered] == [("one", (B,)), ("two", (B,))]
    browser = pages.browser()
    assert browser.get(other).text.count('type="checkbox"') == 5  # all of them stay for the other
    seen = pages.browser("anna").get(f"/messages/{ids['three']}").words
    assert f"deleted for {B} by digest link: {B}, " in seen
    before = outcomes(pages)
    empty = browser.get(other).stamp
    asked = browser.post(other, {"stamp": empty, f"mail-{foreign}": "on"})  # as by Enter in a box without scripts
    said = browser.get(asked.fields["location"]).words
    assert "Es wurde nichts getan: W\N{LATIN SMALL LETTER A WITH DIAERESIS}hlen Sie" in said
    assert "gel\N{LATIN SMALL LETTER O WITH DIAERESIS}scht" not in said
    asked = browser.post(link, {"stamp": empty, "do": "delete", f"mail-{foreign}": "on", "mail-x": "on"})
    said = browser.get(asked.fields["location"]).words
    assert "Diese Mail wird f\N{LATIN SMALL LETTER U WITH DIAERESIS}r Sie nicht zur" in said
    assert outcomes(pages) == before
    assert browser.submit(f"{other}/{foreign}", f"{other}/{foreign}", do="delete").status == 303
    assert "Gelöscht: Casino foreign" in browser.get(f"{other}?done={foreign}").words
    assert "Casino" not in browser.get(f"{link}?done={foreign}").words
    assert f"Quarantine: deleted announced to {C}" in pages.browser("anna").get(f"/messages/{foreign}").words


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_on_the_pages_of_a_link(pages: Site, chromium: Browser, scheme: Any) -> None:
    id = send(pages, "first", "Casino " + "a-very-long-word-without-any-space-" * 5, B)
    link = link_in(digests(pages)[B])
    browser = pages.browser()
    assert browser.submit(f"{link}/{id}", f"{link}/{id}", rule="block").status == 303
    page = opened(chromium, pages, color_scheme=scheme, bypass_csp=True)
    found: dict[str, object] = {}
    for name, path in (("list", f"{link}?all=yes"), ("mail", f"{link}/{id}"), ("wrong", "/kept/wrong")):
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            page.goto(path)
            if (wide := page.evaluate("document.documentElement.scrollWidth")) > width:
                found[f"{name} at {width}"] = f"{wide} pixels wide"
            for violation in Axe().run(page).response["violations"]:
                found[f"{name} at {width}: {violation['id']}"] = [node["html"][:200] for node in violation["nodes"]]
            if SHOTS:
                page.screenshot(path=f"{SHOTS}/kept-{name}-{width}-{scheme}.png", full_page=True)
    assert found == {}


def test_mails_that_another_tab_has_taken_before_are_said_with_the_others(pages: Site) -> None:
    ids = [send(pages, name, f"Casino {name}", B, C) for name in ("one", "two", "three")]
    link = link_in(digests(pages)[B])
    first, second = pages.browser(), pages.browser()
    stamp = second.get(link).stamp
    first.submitted(link, link, do="delete", **{f"mail-{id}": "on" for id in ids[:2]})
    answer = second.post(link, {"stamp": stamp, "do": "deliver", **{f"mail-{id}": "on" for id in ids}})
    said = second.get(answer.fields["location"]).words
    assert "Zugestellte Mails: 1" in said
    assert "Schon zugestellt oder gelöscht, darum wurde nichts getan: 2." in said
