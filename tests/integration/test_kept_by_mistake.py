"""A user's mail that was kept by mistake, with real parts: Postfix, relay, Postfix, Dovecot, digest, browser, INBOX.

Dovecot is set up by the commands of docs/dovecot.md, so what is tagged is delivered into Junk.
"""

import email
import email.policy
import re
import smtplib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.integration.dovecot import Dovecot, connect, dovecot
from tests.integration.servers import Postfix, Relay, free_port, postfix, relay, wait_until, workshop
from tests.integration.test_dovecot import ALICE, BOB, HAM, SPAM, found, mail
from tests.web.pages import PASSWORD, WebPage, web_settings
from tests.web.test_chromium import MILLISECONDS, listened

NEWSLETTER = "Tonight at the museum: cheap replica watches, golden watch, order now and save ninety percent.\n"
_NUMBERS = count()


@dataclass(frozen=True)
class House:
    """Client -> Postfix -> relay -> Postfix -> Dovecot, and the web page at `url`."""

    postfix: Postfix
    relay: Relay
    dovecot: Dovecot
    url: str

    def send(self, text: str, *recipients: str) -> str:
        """Send a mail that Postfix takes; its subject, which no other mail has."""
        subject = f"Museum letter {next(_NUMBERS)}."
        with smtplib.SMTP("127.0.0.1", self.postfix.front, "client.test", timeout=60) as client:
            client.sendmail("shop@example.org", recipients, mail(subject, text))
        return subject

    def kept(self) -> str:
        return self.command("quarantine", "list")

    def arrived(self, user: str, subject: str) -> tuple[str, bytes]:
        """The folder and the text of a mail that a user gets."""
        with self.dovecot.login(user) as mailboxes:
            wait_until(lambda: any(found(mailboxes, subject)), f"{subject!r} for {user}")
            folder = next(found(mailboxes, subject))
            return folder, mailboxes.fetch(mailboxes.number(subject))

    def number(self, user: str, subject: str) -> int:
        with self.dovecot.login(user) as mailboxes:
            return len(list(found(mailboxes, subject)))

    def command(self, *arguments: str) -> str:
        done = self.relay.command(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def house() -> Iterator[House]:
    with workshop() as folder, dovecot(folder / "dovecot") as imap:
        back, socket = free_port(), folder / "feedback.sock"
        web = web_settings(folder / "web")
        url = f"http://{web['listen']}"
        with (
            relay(
                folder / "relay",
                relay={"next_hop": f"smtp://127.0.0.1:{back}", "hostname": "mail.test"},
                verdict={"spam": 0.8, "on_spam": "quarantine"},
                feedback={"socket": str(socket), "proxies": []},
                digest={"url": url, "domains": ["example.test"]},
                web=web,
            ) as filter,
            postfix(folder / "postfix", to=free_port(), lmtp=imap.lmtp, back=back, proxy=filter.port) as server,
        ):
            connect(imap, filter, socket)
            known = folder / "known"
            for label, text in (("ham", HAM), ("spam", SPAM)):
                (known / label).mkdir(parents=True)
                for number in range(10):
                    (known / label / f"{number}.eml").write_bytes(mail(f"{label} {number}", f"{text}{number}\n"))
            made = House(server, filter, imap, url)
            made.command("train", "--ham", str(known / "ham"), "--spam", str(known / "spam"))
            page = WebPage(filter.folder, filter.environment)
            page.start()
            try:
                yield made
            finally:
                page.stop()


def opened(chromium: Browser, url: str) -> Page:
    page = chromium.new_context().new_page()
    page.set_default_timeout(MILLISECONDS)
    page.goto(url)
    return page


def link_of(digest: bytes, subject: str) -> str:
    """The link that a digest has for the mail of this subject, in its text."""
    read = email.message_from_bytes(digest, policy=email.policy.default)
    body = read.get_body(("plain",))
    assert body is not None
    match = re.search(rf"{re.escape(subject)}.*?(http://\S+)", str(body.get_content()), re.DOTALL)
    assert match, body
    return match[1]


def test_a_user_finds_and_delivers_what_was_kept_and_the_next_one_passes(house: House, chromium: Browser) -> None:
    subject = house.send(NEWSLETTER, ALICE, BOB)
    wait_until(lambda: subject in house.kept(), "the kept mail")
    assert "1 announced" in house.command("digest")
    folder, digest = house.arrived(ALICE, "Mail kept as spam")
    assert folder == "INBOX"
    assert b"X-Spam-" not in digest
    assert subject.encode() in digest

    page = opened(chromium, link_of(digest, subject))
    complaints = listened(page)
    expect(page.locator(".mail-text")).to_contain_text("Tonight at the museum")
    assert house.number(ALICE, subject) == 0
    page.get_by_role("button", name="Deliver, and mark as not spam").click()
    expect(page.get_by_role("status")).to_contain_text(f"It was delivered: {subject}")
    assert complaints == []

    folder, delivered = house.arrived(ALICE, subject)
    assert folder == "INBOX"
    assert delivered.endswith(mail(subject, NEWSLETTER).partition(b"\r\n\r\n")[2])
    assert b"X-Spam-Flag" not in delivered
    assert b"X-Spam-Status: No, released from quarantine" in delivered
    assert house.number(ALICE, subject) == 1
    assert house.number(BOB, subject) == 0

    following = house.send(NEWSLETTER.replace("golden", "silver"), ALICE)
    assert house.arrived(ALICE, following)[0] == "INBOX"
    assert following not in house.kept()

    page = opened(chromium, f"{house.url}/login?next=/messages")
    page.get_by_label("Name").fill("anna")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_label("Words in the subject").fill(subject)
    page.get_by_role("button", name="Search").click()
    page.get_by_role("link", name=subject).click()
    expect(page.locator("#custody")).to_contain_text(f"delivered to {ALICE} by digest link: {ALICE}, ")
    expect(page.locator("#history")).to_contain_text(f"not spam web by digest link: {ALICE}")
