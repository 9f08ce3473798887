"""The whole loop: mail through Postfix, relay and Postfix to Dovecot, where a user moves it, and the relay learns.

Dovecot is set up by the commands of docs/dovecot.md. A mark is over when the IMAP command is, so that whoever looks
afterwards sees all that was learnt.
"""

import json
import re
import smtplib
import sqlite3
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from email import message_from_bytes
from email.message import EmailMessage
from email.mime.message import MIMEMessage
from email.mime.multipart import MIMEMultipart
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from spamfilter.bayes.labels import BULK
from spamfilter.config.settings import Settings
from spamfilter.learning.filter import Filter
from spamfilter.learning.transaction import Reading
from spamfilter.mail.tagging import header_id
from spamfilter.service.control_socket.client import SocketClient
from spamfilter.stores import open_store
from tests.integration.dovecot import SYSTEM, Dovecot, Mailboxes, connect, dovecot
from tests.integration.servers import Postfix, Relay, free_port, postfix, relay, wait_until, workshop
from tests.support.alterations import ALTERATIONS

ALICE, BOB = "alice@example.test", "bob@example.test"
SPAM = "Win a golden watch tonight, cheap replica watches, order now and save ninety percent.\n"
HAM = "The minutes of the meeting are attached, please read them before lunch on Thursday.\n"
MANY = 60
COMPLAINT = re.compile(r"^.*(?:Warning|Error|Fatal|Panic): (?!SIGHUP received).*$|spamfilter-mark", re.MULTILINE)
_NUMBERS = count()


@dataclass(frozen=True)
class House:
    """Client -> Postfix -> relay -> Postfix -> Dovecot -> mail program, and back from there over the socket."""

    postfix: Postfix
    relay: Relay
    dovecot: Dovecot
    socket: Path

    def deliver(self, subject: str, text: str, *recipients: str) -> str:
        """Send a mail and wait until every recipient has it; its subject, which no other mail has."""
        subject = f"{subject} {next(_NUMBERS)}."
        with smtplib.SMTP("127.0.0.1", self.postfix.front, "client.test", timeout=60) as client:
            client.sendmail("sender@example.org", recipients, mail(subject, text))
        for user in recipients:
            with self.dovecot.login(user) as mailboxes:
                wait_until(lambda: any(found(mailboxes, subject)), f"{subject!r} for {user}")
        return subject

    def ask(self, command: str, **more: object) -> dict[str, Any]:
        with closing(SocketClient(self.socket)) as client:
            return client.ask({"command": command, **more})

    def posterior(self, id: str) -> float:
        """What the counts in the relay's memory say of a mail that it has judged."""
        return float(self.ask("judge", id=id)["posterior"])

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(f"file:{self.relay.state / 'spamfilter.db'}?mode=ro", uri=True)) as database:
            return database.execute(query, values).fetchall()

    def counts(self) -> dict[str, list[tuple[Any, ...]]]:
        """All that judging depends on, as the database has it."""
        return {
            "words": self.rows("SELECT voice, word, ham, spam FROM words WHERE ham + spam > 0 ORDER BY voice, word"),
            "classes": self.rows("SELECT * FROM classes ORDER BY 1, 2"),
            "calibration": self.rows("SELECT value FROM settings WHERE name = 'calibration'"),
        }

    def ledger(self) -> list[tuple[bytes, str, str, str, bool]]:
        """Digest, label, source, author, and whether it takes something back, of each entry."""
        return self.rows('SELECT digest, label, source, "by", undoes IS NOT NULL FROM ledger ORDER BY id')

    def judged(self, id: str) -> bytes:
        """The digest of a mail in the journal."""
        wait_until(lambda: bool(self.rows("SELECT 1 FROM journal WHERE id = ?", id)), f"{id} in the journal")
        ((digest,),) = self.rows("SELECT digest FROM journal WHERE id = ?", id)
        return bytes(digest)

    def command(self, *arguments: str) -> str:
        done = self.relay.command(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def house() -> Iterator[House]:
    with workshop() as folder, dovecot(folder / "dovecot") as imap:
        back, socket = free_port(), folder / "feedback.sock"
        with (
            relay(
                folder / "relay",
                relay={"next_hop": f"smtp://127.0.0.1:{back}"},
                feedback={
                    "socket": str(socket),
                    "proxies": [],
                    "marks_a_day": 10_000,
                    "spam_addresses": ["spam@example.test"],
                    "ham_addresses": ["ham@example.test"],
                },
            ) as filter,
            postfix(folder / "postfix", to=free_port(), lmtp=imap.lmtp, back=back, proxy=filter.port) as server,
        ):
            connect(imap, filter, socket)
            made = House(server, filter, imap, socket)
            known = folder / "known"
            for label, text in (("ham", HAM), ("spam", SPAM)):
                (known / label).mkdir(parents=True)
                for number in range(10):
                    (known / label / f"{number}.eml").write_bytes(mail(f"{label} {number}", f"{text}{number}\n"))
            made.command("train", "--ham", str(known / "ham"), "--spam", str(known / "spam"))
            yield made


@pytest.fixture(autouse=True)
def _unlearnt(house: House) -> Iterator[None]:
    """What a test has taught is taken back behind it, which must leave what was before it."""
    before = house.counts()
    yield
    with closing(open_store(f"sqlite:///{house.relay.state / 'spamfilter.db'}")) as store:
        filter = Filter(store, Settings().voices(), whole=False)
        for entry in store.learnings():
            if entry.source != BULK:
                filter.forget(Reading(entry.digest, {}), "cli")
    assert house.counts() == before
    ((last,),) = house.rows("SELECT max(id) FROM ledger")
    wait_until(lambda: house.ask("status")["last"] == last, "the relay's taking in what was taken back")


def mail(subject: str, text: str) -> bytes:
    made = EmailMessage()
    made["From"], made["To"], made["Subject"] = "A Sender <sender@example.org>", "you@example.test", subject
    made["Date"], made["Message-ID"] = "Sat, 21 Nov 2026 10:00:00 +0000", f"<{subject.replace(' ', '-')}@example.org>"
    made.set_content(text)
    return made.as_bytes().replace(b"\n", b"\r\n")


def found(mailboxes: Mailboxes, subject: str) -> Iterator[str]:
    """The folders that have this mail; the last one is left selected."""
    for folder in ("INBOX", "Junk", "Trash"):
        mailboxes.select(folder)
        if mailboxes.number(subject):
            yield folder
            return


def score(content: bytes) -> float:
    said = re.search(rb"^X-Spam-Status: \w+, score=([0-9.]+)", content, re.MULTILINE)
    assert said, content
    return float(said[1])


def moved(mailboxes: Mailboxes, number: str) -> None:
    mailboxes.move(number, "Junk")


def copied(mailboxes: Mailboxes, number: str) -> None:
    mailboxes.copy(number, "Junk")


def appended(mailboxes: Mailboxes, number: str) -> None:
    mailboxes.append("Junk", mailboxes.fetch(number))


NEWS = "Renew your warranty for solar panels, our experts call you back for free about panels.\n"


def test_the_page_sets_dovecot_up_and_nothing_is_complained_of(house: House) -> None:
    with house.dovecot.login(BOB) as mailboxes:
        mailboxes.append("Junk", mail("the first one", NEWS))
    assert house.ledger()[-1][1:] == ("spam", "imap", BOB, False)
    assert not COMPLAINT.search(house.dovecot.log())
    assert f"spam  imap by {BOB}" in house.command("stats", "--since", "1d")  # as step 5 promises


@pytest.mark.parametrize("teach", [moved, copied, appended])
def test_a_mail_that_comes_into_junk_is_learnt_and_out_of_it_unlearnt(
    house: House, teach: Callable[[Mailboxes, str], None]
) -> None:
    subject = house.deliver(f"panels {teach.__name__}", NEWS + teach.__name__ * 3, ALICE)
    before = house.counts()
    entries = len(house.ledger())
    with house.dovecot.login(ALICE) as mailboxes:
        number = mailboxes.number(subject)
        content = mailboxes.fetch(number)
        id = header_id(content)
        digest = house.judged(id)
        judged = house.posterior(id)
        teach(mailboxes, number)
        wait_until(lambda: house.posterior(id) > judged, "the running relay's judging it as worse")
        assert house.ledger()[entries:] == [(digest, "spam", "imap", ALICE, False)]
        next_one = house.deliver(f"panels {teach.__name__}", NEWS + teach.__name__ * 3, ALICE)
        list(found(mailboxes, next_one))
        assert score(mailboxes.fetch(mailboxes.number(next_one))) > score(content)

        mailboxes.select("Junk")
        mailboxes.move(mailboxes.number(subject), "INBOX")
    assert house.ledger()[entries + 1 :] == [
        (digest, "spam", "imap", ALICE, True),
        (digest, "ham", "imap", ALICE, False),
    ]
    as_ham = house.counts()
    assert as_ham != before
    house.command("forget", id)
    assert house.counts() == before
    house.command("mark-ham", id)
    assert house.counts() == as_ham
    house.command("forget", id)
    assert house.counts() == before
    wait_until(lambda: house.posterior(id) == judged, "the running relay's judging it as at first")


def test_by_its_id_a_mail_is_learnt_and_forgotten(house: House) -> None:
    subject = house.deliver("panels by id", NEWS, ALICE)
    before = house.counts()
    with house.dovecot.login(ALICE) as mailboxes:
        id = header_id(mailboxes.fetch(mailboxes.number(subject)))
    digest, judged = house.judged(id), house.posterior(id)
    assert "learnt as spam" in house.command("mark-spam", id)
    assert house.ledger()[-1][:3] == (digest, "spam", "cli")
    wait_until(lambda: house.posterior(id) > judged, "the running relay's judging it as worse")
    house.command("forget", id)
    assert house.counts() == before
    wait_until(lambda: house.posterior(id) == judged, "the running relay's judging it as at first")


def forwarded(house: House, recipient: str, content: bytes) -> None:
    outer = MIMEMultipart()
    outer["From"], outer["To"], outer["Subject"] = ALICE, recipient, "Fwd: look"
    outer.attach(MIMEMessage(message_from_bytes(content)))
    with smtplib.SMTP("127.0.0.1", house.relay.port, "client.test", timeout=60) as client:
        client.send_message(outer, ALICE, [recipient])


def test_by_address_a_mail_is_learnt_and_by_the_other_one_turned(house: House) -> None:
    subject = house.deliver("panels by mail", NEWS, ALICE)
    before = house.counts()
    with house.dovecot.login(ALICE) as mailboxes:
        content = mailboxes.fetch(mailboxes.number(subject))
    id = header_id(content)
    digest, judged = house.judged(id), house.posterior(id)
    forwarded(house, "spam@example.test", content)
    assert house.ledger()[-1][:3] == (digest, "spam", "address")
    wait_until(lambda: house.posterior(id) > judged, "the running relay's judging it as worse")
    forwarded(house, "ham@example.test", content)
    by_mail = house.counts()
    house.command("forget", id)
    assert house.counts() == before
    house.command("mark-ham", id)
    assert house.counts() == by_mail


def test_by_review_a_mail_is_learnt_and_taken_back(house: House) -> None:
    subject = house.deliver("panels by review", "A word that nobody here has ever seen: xylophone.\n", ALICE)
    before = house.counts()
    with house.dovecot.login(ALICE) as mailboxes:
        id = header_id(mailboxes.fetch(mailboxes.number(subject)))
    digest, judged = house.judged(id), house.posterior(id)
    waiting = [json.loads(line)["id"] for line in house.command("review", "--json").splitlines()]
    keys = "n" * waiting.index(id) + "s"  # pass over the others
    assert house.relay.command("review", input="\n".join(keys) + "\nq\n").returncode == 0
    assert house.ledger()[-1][:3] == (digest, "spam", "review")
    wait_until(lambda: house.posterior(id) > judged, "the running relay's judging it as worse")
    house.command("forget", id)
    assert house.counts() == before


def test_a_mail_that_never_passed_is_learnt_as_it_is(house: House) -> None:
    uploaded = mail("uploaded from another account", NEWS)
    before = house.counts()
    with house.dovecot.login(ALICE) as mailboxes:
        mailboxes.append("Junk", uploaded)
    assert house.ledger()[-1][1:] == ("spam", "imap", ALICE, False)
    path = house.relay.folder / "uploaded.eml"
    path.write_bytes(uploaded)
    assert "forgotten as spam" in house.command("forget", str(path))
    assert house.counts() == before


@pytest.mark.parametrize(
    "name", ["footer", "another-trace", "fields-removed", "quoted-printable", "base64", "all-of-a-list"]
)
def test_an_altered_copy_is_the_mail_that_was_judged(house: House, name: str) -> None:
    subject = house.deliver(f"altered {name}", NEWS, ALICE)
    before, entries = house.counts(), len(house.ledger())
    with house.dovecot.login(ALICE) as mailboxes:
        content = mailboxes.fetch(mailboxes.number(subject))
        altered = ALTERATIONS[name](content)
        assert altered != content
        id = header_id(content)
        digest = house.judged(id)
        mailboxes.append("Junk", altered)
    assert house.ledger()[entries:] == [(digest, "spam", "imap", ALICE, False)]
    house.command("forget", id)
    assert house.counts() == before


def test_another_mail_under_the_id_of_a_judged_one_is_not_taken_for_it(house: House) -> None:
    subject = house.deliver("the judged one", NEWS, ALICE)
    with house.dovecot.login(ALICE) as mailboxes:
        id = header_id(mailboxes.fetch(mailboxes.number(subject)))
        digest = house.judged(id)
        mailboxes.append("Junk", f"X-Spamfilter-Id: {id}\r\n".encode() + mail("another one", HAM * 2))
    assert house.ledger()[-1][0] != digest
    assert house.ledger()[-1][1:] == ("spam", "imap", ALICE, False)


def test_what_says_nothing_of_a_mail_teaches_nothing(house: House) -> None:
    subject = house.deliver("says nothing", HAM, ALICE)
    earlier = len(house.dovecot.log())
    with house.dovecot.login(ALICE) as mailboxes:
        mailboxes.create("Archive")
        mailboxes.copy(mailboxes.number(subject), "Archive")
        id = header_id(mailboxes.fetch(mailboxes.number(subject)))
        mailboxes.move(mailboxes.number(subject), "Junk")
        house.command("forget", id)  # a mail in Junk that nobody has said anything of
        entries = house.ledger()
        mailboxes.select("Junk")
        mailboxes.copy(mailboxes.number(subject), "Junk")
        mailboxes.copy(mailboxes.number(subject), "Trash")
        mailboxes.copy(mailboxes.number(subject), "Binned")  # a trash by its use
        for folder in ("Junk.2026", "Deleted Items", "Trash.2026", "Gel&APY-schte Elemente", "Archive.Spam", "Sent"):
            mailboxes.create(folder)
            mailboxes.copy(mailboxes.number(subject), folder)
        mailboxes.flag(mailboxes.number(subject), "\\Seen", "NonJunk", "$NotJunk")
        mailboxes.append("Junk", mail("a draft", NEWS), "(\\Draft)")
        mailboxes.append("Junk", mail("on its way out", NEWS), "(\\Deleted)")
        mailboxes.append("Archive", mail("kept", NEWS))
        mailboxes.flag(mailboxes.number(subject), "\\Deleted")
        mailboxes.copy(mailboxes.number(subject), "Archive")
        mailboxes.select("Trash")
        mailboxes.move(mailboxes.number(subject), "INBOX")
        mailboxes.select("Junk.2026")
        mailboxes.copy(mailboxes.number(subject), "Junk")
        mailboxes.move(mailboxes.number(subject), "INBOX")
    assert house.ledger() == entries
    assert not COMPLAINT.search(house.dovecot.log()[earlier:])


def test_what_the_relay_has_tagged_is_delivered_into_junk_and_teaches_nothing(house: House) -> None:
    entries = house.ledger()
    subject = house.deliver("ham or spam", SPAM * 3, BOB)
    with house.dovecot.login(BOB) as mailboxes:
        assert list(found(mailboxes, subject)) == ["Junk"]
        assert b"X-Spam-Flag: YES\r\n" in mailboxes.fetch(mailboxes.number(subject))
    assert house.ledger() == entries


def test_what_dovecot_lda_delivers_is_filed_as_well(house: House) -> None:
    entries, tagged = house.ledger(), b"X-Spam-Flag: YES\nSubject: without LMTP\n\nYou have won.\n"
    command = ["/usr/lib/dovecot/dovecot-lda", "-c", str(house.dovecot.config), "-d", BOB]
    subprocess.run(command, input=tagged, check=True)
    with house.dovecot.login(BOB) as mailboxes:
        assert list(found(mailboxes, "without LMTP")) == ["Junk"]
    assert house.ledger() == entries


def test_each_user_teaches_under_their_own_name_and_none_takes_back_what_another_taught(house: House) -> None:
    subject = house.deliver("for two", NEWS, ALICE, BOB)
    entries = len(house.ledger())
    with house.dovecot.login(ALICE) as alice, house.dovecot.login(BOB) as bob:
        digest = house.judged(header_id(alice.fetch(alice.number(subject))))
        alice.move(alice.number(subject), "Junk")
        bob.move(bob.number(subject), "Junk")
        assert house.ledger()[entries:] == [(digest, "spam", "imap", ALICE, False)]
        bob.select("Junk")
        bob.move(bob.number(subject), "INBOX")
        assert list(found(bob, subject)) == ["INBOX"]
        bob.append("Junk", mail("of bob alone", NEWS))
    assert [entry[1:] for entry in house.ledger()[entries:]] == [
        ("spam", "imap", ALICE, False),
        ("spam", "imap", BOB, False),
    ]
    for said in (
        rf"learnt as spam by {ALICE}; only they or the administrator can change",
        rf"imap\({BOB}\)\S+ Error: .*failed to execute .*[`']spamfilter-mark'",
    ):
        wait_until(lambda said=said: re.search(said, house.dovecot.log()) is not None, said)  # type: ignore[misc]


def test_a_user_of_the_system_needs_no_proxy(house: House) -> None:
    with house.dovecot.login(SYSTEM) as mailboxes:
        mailboxes.append("Junk", mail("for a user of the system", NEWS))
    assert house.ledger()[-1][1:] == ("spam", "imap", SYSTEM, False)


def test_of_many_moves_at_once_none_is_lost(house: House) -> None:
    entries = len(house.ledger())

    def move_all(user: str) -> None:
        with house.dovecot.login(user) as mailboxes:
            mailboxes.create("Many")
            for number in range(MANY):
                mailboxes.append("Many", mail(f"many {user} {number}", f"{NEWS}{user} {number}\n"))
            mailboxes.select("Many")
            mailboxes.move("1:*", "Junk")

    threads = [threading.Thread(target=move_all, args=(user,)) for user in (ALICE, BOB)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    learnt = house.ledger()[entries:]
    assert len({digest for digest, *_ in learnt}) == len(learnt) == 2 * MANY
    assert {entry[1:] for entry in learnt} == {("spam", "imap", ALICE, False), ("spam", "imap", BOB, False)}


def test_without_the_relay_a_move_is_done_and_the_log_says_that_nothing_was_learnt() -> None:
    with workshop() as folder, dovecot(folder / "dovecot") as imap:
        socket = folder / "feedback.sock"
        feedback = {"socket": str(socket), "proxies": []}
        with relay(folder / "relay", feedback=feedback) as filter:
            connect(imap, filter, socket)
        with imap.login(ALICE) as mailboxes:
            mailboxes.append("INBOX", mail("nobody listens", SPAM))
            mailboxes.move("1", "Junk")
            assert mailboxes.numbers() == []
            mailboxes.select("Junk")
            assert mailboxes.number("nobody listens")
        # Who reaps the program writes this beside the answer to the mail program.
        wait_until(lambda: "failed to execute" in imap.log() and "exit code 75" in imap.log(), "Dovecot's complaint")
        log = imap.log()
        assert f"spamfilter: no relay on the feedback socket, nothing was learnt: {socket}" in log
        assert "Terminated with non-zero exit code 75" in log
        assert re.search(rf"imap\({ALICE}\)\S+ Error: .*failed to execute .*[`']spamfilter-mark'", log)
        assert "Traceback" not in log
        with relay(folder / "relay", feedback=feedback) as filter:
            wait_until(lambda: filter.log().count("ready: ") == 2, "the relay's second start")
            junk = str(imap.home(ALICE) / "Maildir" / ".Junk")
            assert "learnt as spam" in filter.command("mark-spam", "--by", ALICE, junk).stdout
