"""The milter front end on a real socket: each action, what is said of each mail, and marks by mail."""

import re
from email.message import EmailMessage
from email.parser import BytesParser
from email.policy import SMTP
from pathlib import Path

import pytest

from spamfilter.bayes.verdict import Policy
from spamfilter.config.sections import Feedback
from spamfilter.config.sender_rules import rule
from spamfilter.relay.milter.incoming import MOST_FORGED
from spamfilter.relay.next_hops.maildir import unwrapped
from spamfilter.relay.quarantine.quarantine import Quarantine
from spamfilter.relay.sender_lists.decision import Lists
from spamfilter.stores import UNJUDGED
from tests.support.made import mail
from tests.support.mail_server import ALL_STEPS, LEADING_SPACE, MAIL, MailServer, joined, milter, split
from tests.support.parts import Hop, relaying

NO_STEPS = 0
"""A mail server of the first version that offers no step waits for an answer to each packet."""
EVERY_STEP_ANSWERED = LEADING_SPACE


def always(action: str) -> Policy:
    return Policy(actions={"ham": action, "unsure": action, "spam": action}, reject_after=0)  # type: ignore[dict-item]


@pytest.mark.parametrize("steps", [ALL_STEPS, EVERY_STEP_ANSWERED, NO_STEPS], ids=["all", "answered", "none"])
async def test_a_mail_gets_the_fields_of_the_proxy_and_no_other_byte_changes(tmp_path: Path, steps: int) -> None:
    async with milter(tmp_path) as running:
        server = await MailServer.connect(running, steps=steps)
        outcome = await server.send(MAIL)
        assert (outcome.reply, outcome.dropped) == ("", False)
        names = [name for name, _ in outcome.fields]
        assert names == [b"X-Spam-Status", b"X-Spamfilter-Id", b"From", b"Subject", b"Message-ID"]
        (entry,) = running.entries()
        assert outcome.values("X-Spamfilter-Id") == [f" {entry.id}"]
        assert outcome.values("X-Spam-Status")[0].startswith(" No, score=0.500 class=unsure")
        assert joined(outcome.fields[2:], b"hello\r\n") == MAIL
        assert (entry.client, entry.sender, list(entry.recipients)) == (
            "192.0.2.7",
            "a@example.org",
            ["b@example.test"],
        )
        assert (entry.size, entry.subject, entry.action) == (len(MAIL), "hello", "pass")
        assert entry.reply == "250 2.0.0 Ok: goes on in the mail server, queue id 4Q1"


async def test_the_verdict_is_that_of_the_proxy(tmp_path: Path) -> None:
    text = mail("buy pills", "pills now, " * 3000)  # longer than what is read
    statuses = []
    async with milter(tmp_path) as running:
        server = await MailServer.connect(running)
        statuses += (await server.send(text)).values("X-Spam-Status")
    async with Hop() as hop, relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}") as running:
        assert (await (await running.connect()).send(text)).startswith(b"250")
        statuses.append(re.search(rb"X-Spam-Status:([^\r]*)", hop.messages[0]).group(1).decode())  # type: ignore[union-attr]
    assert statuses[0] == statuses[1]


async def test_many_mails_on_one_connection_also_without_abort(tmp_path: Path) -> None:
    async with milter(tmp_path) as running:
        server = await MailServer.connect(running)
        await server.step(b"M", b"<given-up@example.org>\0")
        for number in range(3):
            assert (await server.send(MAIL, f"<{number}@example.org>")).reply == ""
            server.put(b"A")
        server.put(b"K")  # the same connection for another client
        await server.step(b"C", b"other\x006\x00\x19IPv6:2001:db8::9\0")
        await server.send(MAIL, "<last@example.org>")
        found = [(entry.sender, entry.client) for entry in running.entries()]
        assert found == [
            *((f"{number}@example.org", "192.0.2.7") for number in range(3)),
            ("last@example.org", "2001:db8::9"),
        ]


async def test_spam_is_rejected_with_its_id(tmp_path: Path) -> None:
    async with milter(tmp_path, policy=always("reject")) as running:
        outcome = await (await MailServer.connect(running)).send(MAIL)
        (entry,) = running.entries()
        assert outcome.reply == f"550 5.7.1 Refused as spam; if it is not, tell the postmaster this id: {entry.id}"
        assert (entry.action, entry.reply) == ("reject", outcome.reply)
        assert running.relay.metrics.value("final_replies", "5xx") == 1


async def test_mail_is_deferred(tmp_path: Path) -> None:
    async with milter(tmp_path, policy=always("defer")) as running:
        outcome = await (await MailServer.connect(running)).send(MAIL)
        assert outcome.reply.startswith("451 4.7.1 Deferred")
        assert running.journal() == ["defer"]


async def test_quarantined_mail_is_kept_whole_before_it_is_dropped(tmp_path: Path) -> None:
    async with milter(tmp_path, policy=always("quarantine")) as running:
        long = MAIL + b"more\r\n" * 50_000
        outcome = await (await MailServer.connect(running)).send(
            long, recipients=("<b@example.test>", "<c@example.test>")
        )
        assert outcome.dropped
        (kept,) = Quarantine(tmp_path / "quarantine").mails()
        text, sender, recipients = unwrapped(kept.path.read_bytes())
        assert (sender, recipients) == (b"a@example.org", [b"b@example.test", b"c@example.test"])
        assert text.endswith(long)
        assert kept.id == running.entries()[0].id


async def test_a_quarantine_that_cannot_be_written_defers(tmp_path: Path) -> None:
    async with milter(tmp_path, policy=always("quarantine")) as running:
        server = await MailServer.connect(running)
        for folder in ("tmp", "new", "cur", ""):
            (tmp_path / "quarantine" / folder).rmdir()
        outcome = await server.send(MAIL)
        assert (outcome.reply[:9], outcome.dropped) == ("451 4.3.0", False)


async def test_tagged_mail_gets_its_prefix(tmp_path: Path) -> None:
    tag = {"ham": "tag", "unsure": "tag", "spam": "tag"}
    async with milter(tmp_path, policy=Policy(actions=tag, subject_prefix="[SPAM]")) as running:  # type: ignore[arg-type]
        outcome = await (await MailServer.connect(running)).send(MAIL)
        assert outcome.values("Subject") == [" [SPAM] hello"]


async def test_forged_fields_are_removed_whatever_their_number(tmp_path: Path) -> None:
    forged = b"X-Spam-Flag: NO\r\nX-SPAM-STATUS: No,\r\n folded\r\n" * 3 + b"X-Spamfilter-Id : 1\r\n"
    async with milter(tmp_path) as running:
        server = await MailServer.connect(running)
        outcome = await server.send(forged + MAIL)
        assert joined(outcome.fields[2:], split(MAIL)[1]) == MAIL
        assert len(outcome.values("X-Spamfilter-Id")) == len(outcome.values("X-Spam-Status")) == 1
        assert outcome.values("X-Spam-Flag") == []
        outcome = await server.send(b"X-Spam-Flag: NO\r\n" * (MOST_FORGED + 1) + MAIL)
        assert outcome.reply.startswith("550 5.6.0")
        assert [entry.class_ for entry in running.entries()] == ["unsure", UNJUDGED]


async def test_mail_of_authenticated_senders_passes_and_the_next_of_another_does_not(tmp_path: Path) -> None:
    async with milter(tmp_path, policy=always("reject")) as running:
        server = await MailServer.connect(running)
        outcome = await server.send(MAIL, macros={"{auth_authen}": "ann"})
        assert [name for name, _ in outcome.fields[:2]] == [b"X-Spamfilter-Id", b"From"]
        assert (await server.send(MAIL)).reply.startswith("550")
        assert (await server.send(MAIL, macros={"{mail_addr}": "a@example.org"})).reply.startswith("550")
        assert (await server.send(MAIL, macros={"{auth_authen}": ""})).reply.startswith("550")
        server.put(b"D", b"M{auth_authen}\0ann\0")
        server.put(b"A")
        assert (await server.send(MAIL)).reply.startswith("550")


async def test_rules_on_senders_hold(tmp_path: Path) -> None:
    async with milter(tmp_path, policy=always("pass")) as running:
        running.relay.judge.policy = Policy(actions={"ham": "pass", "unsure": "pass", "spam": "reject"})
        running.relay.lists = Lists([rule("block", "192.0.2.0/24")])
        outcome = await (await MailServer.connect(running)).send(MAIL)
        assert outcome.reply.startswith("550 5.7.1 Sender blocked")
        assert running.entries()[0].listed.startswith("blocked=192.0.2.0/24")


FEEDBACK = Feedback(spam_addresses=["spam@example.test"], ham_addresses=["ham@example.test"])
LOCAL_CLIENT = b"localhost\x004\x04\xd2127.0.0.1\0"


def forwarded() -> bytes:
    outer = EmailMessage(policy=SMTP)
    outer["From"], outer["To"], outer["Subject"] = "ann@example.test", "spam@example.test", "spam"
    outer.set_content("see attachment")
    outer.add_attachment(BytesParser(policy=SMTP).parsebytes(MAIL))
    return outer.as_bytes()


async def test_mail_to_a_feedback_address_teaches_and_goes_no_further(tmp_path: Path) -> None:
    async with milter(tmp_path, feedback=FEEDBACK) as running:
        server = await MailServer.connect(running, client=LOCAL_CLIENT)
        outcome = await server.send(forwarded(), "<ann@example.test>", ["<spam@example.test>"])
        assert outcome.dropped
        assert running.relay.judge.filter.learnt == {"ham": 0, "spam": 1}
        outcome = await server.send(MAIL, "<ann@example.test>", ["<ham@example.test>"])
        assert outcome.reply.startswith("550-5.6.0 No mail is attached")
        outcome = await server.send(MAIL, "<ann@example.test>", ["<b@example.test>", "<ham@example.test>"])
        assert (outcome.reply, list(outcome.refused)) == ("", ["<ham@example.test>"])


async def test_strangers_teach_nothing_also_on_a_connection_older_than_the_address(tmp_path: Path) -> None:
    async with milter(tmp_path) as running:
        server = await MailServer.connect(running)
        running.relay.feedback = FEEDBACK
        outcome = await server.send(forwarded(), "<ann@example.test>", ["<spam@example.test>"])
        assert outcome.reply.startswith("550 5.7.1 This address is for our own users")
        assert running.relay.judge.filter.learnt == {"ham": 0, "spam": 0}
        both = ["<spam@example.test>", "<b@example.test>"]
        assert (await server.send(MAIL, recipients=both)).reply.startswith("451 4.3.5 The settings have changed")
        assert (await server.send(MAIL, recipients=both[::-1])).reply.startswith("451 4.3.5")
        other = await MailServer.connect(running)
        outcome = await other.send(forwarded(), "<ann@example.test>", both)
        assert list(outcome.refused) == ["<spam@example.test>"]
        assert outcome.reply == ""


async def test_the_author_of_a_mark_is_the_sender_that_the_mail_server_of_this_host_has_checked(tmp_path: Path) -> None:
    async with milter(tmp_path, feedback=FEEDBACK, proven=True) as running:
        server = await MailServer.connect(running, client=LOCAL_CLIENT)
        ann = {"{auth_authen}": "ann"}
        assert (await server.send(forwarded(), "<ann@example.test>", ["<spam@example.test>"], macros=ann)).dropped
        outcome = await server.send(forwarded(), "<ann@example.test>", ["<ham@example.test>"])  # anybody may say so
        assert outcome.reply.startswith("550 5.7.1")
        assert running.relay.judge.filter.learnt == {"ham": 0, "spam": 1}
        assert (await server.send(forwarded(), "<ann@example.test>", ["<ham@example.test>"], macros=ann)).dropped
        assert running.relay.judge.filter.learnt == {"ham": 1, "spam": 0}


async def test_a_bounce_of_an_own_server_is_not_rejected(tmp_path: Path) -> None:
    """Nobody would hear of it, and the mail that it returns would be gone."""
    async with milter(tmp_path, policy=always("reject")) as running:
        own, stranger = await MailServer.connect(running, client=LOCAL_CLIENT), await MailServer.connect(running)
        assert (await own.send(MAIL, "<>")).reply == ""
        assert (await own.send(MAIL)).reply.startswith("550 5.7.1")
        assert (await stranger.send(MAIL, "<>")).reply.startswith("550 5.7.1")
        assert [entry.action for entry in running.entries()] == ["tag", "reject", "reject"]


async def test_a_login_marks_in_its_own_name_whatever_sender_it_says(tmp_path: Path) -> None:
    """Sendmail compares the sender with no login."""
    async with milter(tmp_path, feedback=FEEDBACK, proven=True) as running:
        server = await MailServer.connect(running, client=LOCAL_CLIENT)
        ann, mallory = {"{auth_authen}": "Ann@example.test"}, {"{auth_authen}": "mallory@example.test"}
        assert (await server.send(forwarded(), "<ann@example.test>", ["<ham@example.test>"], macros=ann)).dropped
        outcome = await server.send(forwarded(), "<ann@example.test>", ["<spam@example.test>"], macros=mallory)
        assert "learnt as ham by ann@example.test" in outcome.reply
        assert running.relay.judge.filter.learnt == {"ham": 1, "spam": 0}
