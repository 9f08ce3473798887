"""The message of a mark is found as it was judged, or read anew."""

import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from spamfilter.bayes.verdict import TEST_SCORE
from spamfilter.bayes.voices import Voices, everybodys
from spamfilter.config.sections import Feedback
from spamfilter.config.settings import Settings
from spamfilter.errors import InputError
from spamfilter.learning import mark_lookup
from spamfilter.learning.filter import Filter
from spamfilter.learning.mark_lookup import Subject, by_id, by_mail
from spamfilter.learning.marks import Author, mark
from spamfilter.learning.transaction import Reading
from spamfilter.mail import tagging
from spamfilter.mail.message import parse
from spamfilter.mail.tagging import header_id
from spamfilter.stores import JournalEntry
from spamfilter.system.ids import new_id
from tests.support.alterations import ALTERATIONS
from tests.support.made import VOICE, journal_entry, mail
from tests.support.memory_store import MemoryStore, open_store

ID = "01KAH3V5E8M6Q2T0J9Z4R7X1CN"


class Slow(MemoryStore):
    """The journal's row comes a little late."""

    def __init__(self, looks: int) -> None:
        super().__init__()
        self._looks = looks

    def find_journal(self, id: str) -> JournalEntry | None:
        self._looks -= 1
        return None if self._looks >= 0 else super().find_journal(id)


def as_judged(filter: Filter, sent: bytes) -> Reading:
    """What the relay saw, with a word that no other reading of the mail has."""
    seen = filter.read(parse(sent))
    return Reading(seen.digest, {name: {**tokens, b"^as:judged": 1} for name, tokens in seen.tokens.items()})


def judged(filter: Filter, sent: bytes, id: str = ID, **changes: object) -> Reading:
    """The relay judged `sent` and wrote it down."""
    message, seen = parse(sent), as_judged(filter, sent)
    names = {"message_id": message.field(b"message-id"), "subject": message.field(b"subject")}
    facts = {"id": id, "digest": seen.digest, "tokens": seen.tokens, **names}
    filter.store.write_journal([journal_entry(**{**facts, **changes})])
    return seen


def delivered(sent: bytes, id: str = ID) -> bytes:
    return b"".join(tagging.mark(sent, [("X-Spamfilter-Id", id)]))


@pytest.fixture
def filter() -> Filter:
    return Filter(MemoryStore(), VOICE)


@pytest.mark.parametrize("id", [ID, ID.lower(), "OL" + ID[2:]], ids=["upper-case", "lower-case", "typed"])
def test_an_id_names_what_was_judged(filter: Filter, id: str) -> None:
    seen = judged(filter, mail())
    assert by_id(filter, id) == Subject(ID, ID, seen)


def test_the_test_mail_is_known_by_its_id(filter: Filter) -> None:
    judged(filter, mail(), log_odds=TEST_SCORE.log_odds)
    assert by_id(filter, ID).is_test


def test_an_id_that_is_just_being_written_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mark_lookup, "LOOK_EVERY", 0.0)
    store = Slow(looks=2)
    filter = Filter(store, VOICE)
    judged(filter, mail())
    assert by_id(filter, ID).id == ID


def test_an_id_of_nothing_says_what_to_do_instead(filter: Filter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mark_lookup, "WRITTEN_WITHIN", 0.0)
    with pytest.raises(InputError, match=f"{ID}: no message of this id in the journal of memory; .*name its file"):
        by_id(filter, ID)


@pytest.mark.parametrize("id", ["", ID[1:], ID + "X", "\u017f" * 26, ID[:25] + "\xdf", "\x1b[31m" + ID])
def test_what_is_no_id_is_said_so_at_once(filter: Filter, id: str) -> None:
    with pytest.raises(InputError, match=r": not an id \(26 letters and digits\)") as caught:
        by_id(filter, id)
    assert str(caught.value).isprintable()


def test_an_id_whose_tokens_have_gone_is_read_from_what_was_learnt_of_it(filter: Filter) -> None:
    seen = judged(filter, mail(), tokens=None)
    filter.learn(seen, "spam", "cli", "ann")
    assert by_id(filter, ID) == Subject(ID, ID, seen)


def test_an_id_whose_tokens_have_gone_says_what_to_do_instead(filter: Filter) -> None:
    judged(filter, mail(), tokens=None)
    with pytest.raises(InputError, match=f"{ID}: too old to mark by id .*give its file"):
        by_id(filter, ID)


def test_a_mail_that_never_passed_is_read(filter: Filter) -> None:
    assert by_mail(filter, "x.eml", mail()) == Subject("x.eml", "", filter.read(parse(mail())))


MAILS = {
    "plain": mail(subject="Herons at the lake", body="We saw three herons at the lake this morning.\r\nCome along!"),
    "very-short": mail(subject="lunch", body="Noon?", name="short"),
    "empty-body": mail(subject="call me back please", body="", name="empty"),
    "quoted": mail(subject="Re: herons", body="> We saw three herons\r\n> at the lake\r\n\r\nSo did I.", name="reply"),
    "latin": (
        b"Message-ID: <latin@example.org>\r\nDate: Sun, 1 Mar 2026 12:00:00 +0000\r\n"
        b"From: =?iso-8859-1?Q?J=FCrgen?= <j@x>\r\n"
        b"Subject: =?iso-8859-1?Q?Sch=F6ne_Gr=FC=DFe?=\r\nMIME-Version: 1.0\r\n"
        b"Content-Type: text/plain; charset=iso-8859-1\r\nContent-Transfer-Encoding: 8bit\r\n\r\n"
        b"Sch\xf6ne Gr\xfc\xdfe aus M\xfcnchen, wir h\xf6ren uns n\xe4chste Woche.\r\n"
    ),
    "utf-8": (
        "Message-ID: <cjk@example.org>\r\nFrom: a@x\r\nSubject: 会議\r\nMIME-Version: 1.0\r\n"
        "Content-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: 8bit\r\n\r\n"
        "明日の会議は中止です。よろしく。\r\n"
    ).encode(),
    "html-and-text": (
        b"Message-ID: <both@example.org>\r\nDate: Sun, 1 Mar 2026 12:00:00 +0000\r\nFrom: shop@example.org\r\n"
        b"Subject: Your order\r\nMIME-Version: 1.0\r\nContent-Type: multipart/alternative; boundary=b\r\n\r\n"
        b"--b\r\nContent-Type: text/plain; charset=us-ascii\r\n\r\nYour order of two lamps is on its way.\r\n"
        b"--b\r\nContent-Type: text/html; charset=us-ascii\r\n\r\n"
        b"<html><body><h1>Your order</h1><p>of <b>two lamps</b> is on its way.</p></body></html>\r\n--b--\r\n"
    ),
    "attachment-only": (
        b"Message-ID: <file@example.org>\r\nDate: Sun, 1 Mar 2026 12:00:00 +0000\r\nFrom: scanner@example.org\r\n"
        b"Subject: Scan 17\r\nMIME-Version: 1.0\r\nContent-Type: application/pdf; name=scan.pdf\r\n"
        b"Content-Transfer-Encoding: base64\r\n\r\nJVBERi0xLjQKJcOkw7zDtsOfCjIgMCBvYmoKPDwvTGVuZ3RoIDMgMCBSPj4K\r\n"
    ),
    "long": mail(
        subject="minutes", name="long", body="\r\n".join(f"{n}: resolved to do {n * n} of {n}" for n in range(4000))
    ),
    "without-message-id": b"From: a@x\r\nSubject: no name\r\n\r\nA text of several words that nobody named.\r\n",
}
DEFAULT = everybodys(Settings().voices())
VIEWS = {"default": DEFAULT, **{voice.name: (voice,) for voice in DEFAULT}}


@pytest.mark.parametrize("voices", VIEWS.values(), ids=VIEWS)
@pytest.mark.parametrize("sent", MAILS.values(), ids=MAILS)
@pytest.mark.parametrize("alter", ALTERATIONS.values(), ids=ALTERATIONS)
def test_an_altered_copy_is_taken_as_it_was_judged(
    voices: Voices, sent: bytes, alter: Callable[[bytes], bytes]
) -> None:
    filter = Filter(MemoryStore(), voices)
    seen = judged(filter, sent)
    assert by_mail(filter, "x.eml", alter(delivered(sent))) == Subject("x.eml", ID, seen)


def test_a_mail_that_was_learnt_before_the_journal_knew_of_it_is_taken_back_with_the_same_mail(filter: Filter) -> None:
    """As it may be on a starved machine: the mail has a date since it was judged, and so another digest."""
    sent = MAILS["plain"].replace(b"Date:", b"X-Date:")
    arrived = delivered(b"Date: Mon, 2 Mar 2026 10:00:00 +0000\r\n" + sent)
    author = Author("cli", "ann")
    assert mark(filter, by_mail(filter, "x.eml", arrived), "spam", author, Feedback()).changed
    seen = judged(filter, sent)
    assert filter.read(parse(arrived)).digest != seen.digest
    assert by_mail(filter, "x.eml", arrived) == Subject("x.eml", ID, filter.read(parse(arrived)))
    assert mark(filter, by_mail(filter, "x.eml", arrived), None, author, Feedback()).was == "spam"
    assert filter.learnt == {"ham": 0, "spam": 0}
    assert by_mail(filter, "x.eml", arrived) == Subject("x.eml", ID, seen)


@pytest.mark.parametrize("sent", [sent for sent in MAILS.values() if b"Message-ID" in sent])
@pytest.mark.parametrize("alter", ALTERATIONS.values(), ids=ALTERATIONS)
def test_an_altered_copy_without_our_fields_is_known_by_its_message_id(
    sent: bytes, alter: Callable[[bytes], bytes]
) -> None:
    filter = Filter(MemoryStore(), DEFAULT)
    seen = judged(filter, sent)
    judged(filter, MAILS["plain"].replace(b"<one@", b"<another@"), id=new_id())
    assert by_mail(filter, "x.eml", alter(sent)) == Subject("x.eml", ID, seen)


@pytest.mark.parametrize("voices", VIEWS.values(), ids=VIEWS)
@pytest.mark.parametrize("pasted", MAILS.values(), ids=MAILS)
def test_the_id_of_another_mail_is_not_believed(voices: Voices, pasted: bytes) -> None:
    filter = Filter(MemoryStore(), voices)
    judged(filter, pasted)
    for sent in MAILS.values():
        if sent != pasted:
            assert by_mail(filter, "x.eml", delivered(sent)) == Subject("x.eml", "", filter.read(parse(sent)))


def newsletter(number: int, news: str) -> bytes:
    body = (
        f"Dear reader,\r\nthis is our weekly letter.\r\n{news}\r\nYours, the birds.\r\nTo leave the list, write to us."
    )
    return mail(subject="Birds weekly", body=body, name=f"issue-{number}")


def test_two_issues_of_a_newsletter_are_two_mails(filter: Filter) -> None:
    judged(filter, newsletter(1, "Herons nest at the lake."))
    assert by_mail(filter, "x", delivered(newsletter(2, "Herons nest at the pond."))).id == ""
    assert by_mail(filter, "x", delivered(newsletter(2, "Herons nest at the lake."))).id == ""


@pytest.mark.parametrize(
    "sent", [sent for name, sent in MAILS.items() if name not in ("empty-body", "attachment-only")]
)
@pytest.mark.parametrize("with_id", [True, False], ids=["with-the-id", "without-it"])
def test_another_text_under_a_known_message_id_is_another_mail(sent: bytes, with_id: bool) -> None:
    filter = Filter(MemoryStore(), DEFAULT)
    judged(filter, sent)
    head, _, _ = re.sub(rb"(?m)^(Content-|MIME)[^\n]*\n", b"", sent).partition(b"\r\n\r\n")
    other = head + b"\r\n\r\nBuy cheap pills and watches today, limited offer, no prescription needed!\r\n"
    found = by_mail(filter, "x.eml", delivered(other) if with_id else other)
    assert found == Subject("x.eml", "", filter.read(parse(other)))


def test_of_several_mails_of_one_message_id_that_of_the_same_text_is_taken(filter: Filter) -> None:
    texts = (
        "Herons nest at the lake again.",
        "Cheap pills for everybody today.",
        "The meeting moves to noon, room nine.",
    )
    ids = [new_id() for _ in texts]
    for id, text in zip(ids, texts, strict=True):
        judged(filter, mail(body=text), id=id)
    for id, text in zip(ids, texts, strict=True):
        assert by_mail(filter, "x", ALTERATIONS["banner"](mail(body=text))).id == id


@pytest.mark.parametrize("text", ["", "the", "the pond and the heron"])
@pytest.mark.parametrize("subject", ["", "herons"])
def test_who_has_no_more_than_a_message_id_has_not_the_mail(filter: Filter, subject: str, text: str) -> None:
    head = "Message-ID: <list-1@example.org>\r\nSubject: {}\r\n\r\n"
    whole = f"{head.format('herons')}The heron nests at the pond, and nobody saw where it went in autumn.\r\n".encode()
    judged(filter, whole)
    assert by_mail(filter, "x", f"{head.format(subject)}{text}\r\n".encode()).id == ""
    assert by_mail(filter, "x", ALTERATIONS["footer"](whole)).id == ID


def test_a_mail_without_text_is_known_by_message_id_and_subject(filter: Filter) -> None:
    sent = "Message-ID: <list-1@example.org>\r\nSubject: {}\r\n\r\n{}"
    judged(filter, sent.format("A heron", "").encode())
    assert by_mail(filter, "x", sent.format("[birds] A heron", "A list's footer").encode()).id == ID
    assert by_mail(filter, "x", sent.format("", "A list's footer").encode()).id == ""


def test_two_mails_without_message_id_are_told_apart(filter: Filter) -> None:
    sent, other = (b"From: a@x\r\nSubject: %s\r\n\r\nbody\r\n" % name for name in (b"one", b"two"))
    judged(filter, sent)
    assert by_mail(filter, "x", delivered(sent)).id == ID
    assert by_mail(filter, "x", delivered(other)).id == ""


def test_a_mail_whose_tokens_have_gone_is_read_and_keeps_its_id(filter: Filter) -> None:
    judged(filter, mail(), tokens=None)
    sent = delivered(mail())
    assert by_mail(filter, "x.eml", sent) == Subject("x.eml", ID, filter.read(parse(sent)))
    footed = ALTERATIONS["footer"](sent)
    there = Reading(parse(mail()).digest(), filter.read(parse(footed)).tokens)
    assert by_mail(filter, "x.eml", footed) == Subject("x.eml", ID, there)
    assert by_mail(filter, "x.eml", delivered(mail(name="other"))).id == ""
    assert by_mail(filter, "x.eml", ALTERATIONS["footer"](mail())).id == ""


def test_a_mail_that_other_voices_judged_is_known_by_its_names(filter: Filter) -> None:
    judged(filter, mail(), tokens={"grams": {b"hello": 1}})
    found = by_mail(filter, "x.eml", ALTERATIONS["footer"](delivered(mail())))
    assert (found.id, set(found.reading.tokens)) == (ID, {"fields", "grams"})


@pytest.fixture(scope="module")
def real_mails(corpus: Callable[[str], Path]) -> list[bytes]:
    """Every fortieth of a corpus, with line ends of the wire."""
    files = sorted((corpus("spamassassin") / "data").iterdir())[::40]
    mails = [re.sub(rb"\r?\n", b"\r\n", file.read_bytes()) for file in files]
    return [sent.partition(b"\n")[2] if sent.startswith(b"From ") else sent for sent in mails]


def test_of_real_mail_altered_copies_are_known_and_others_are_not(real_mails: list[bytes]) -> None:
    filter = Filter(open_store("memory:"), DEFAULT)
    ids = [new_id() for _ in real_mails]
    digests = [judged(filter, sent, id=id).digest for id, sent in zip(ids, real_mails, strict=True)]
    altered = missed = nameless = 0
    for id, digest, sent in zip(ids, digests, real_mails, strict=True):
        for alter in ALTERATIONS.values():
            altered += 1
            missed += by_mail(filter, "x", alter(delivered(sent, id))).reading.digest != digest
            nameless += by_mail(filter, "x", alter(sent)).reading.digest != digest
    assert altered > 2000
    assert nameless <= altered / 500
    assert missed <= altered / 1000  # parts whose declared encoding or charset is not theirs
    others = random.Random(1).sample(list(zip(ids, digests, strict=True)), len(ids))
    for (id, digest), mine, sent in zip(others, digests, real_mails, strict=True):
        assert digest == mine or by_mail(filter, "x", delivered(sent, id)).reading.digest == mine


def test_an_id_that_the_journal_does_not_know_is_passed_over(filter: Filter) -> None:
    assert by_mail(filter, "x.eml", delivered(mail())).id == ""


@pytest.mark.parametrize(
    ("sent", "id"),
    [
        pytest.param(b"X-Spamfilter-Id: %s\r\n\r\n", ID, id="plain"),
        pytest.param(b"A: b\nx-spamfilter-id :%s\n\nbody", ID, id="spelling"),
        pytest.param(b"X-Spamfilter-Id: %s\r\n and more\r\n\r\n", ID, id="folded-line-after-it"),
        pytest.param(b"X-Spamfilter-Id: %s", ID, id="nothing-after-it"),
        pytest.param(b"A: b\r\n\r\nX-Spamfilter-Id: %s\r\n", "", id="in-the-body"),
        pytest.param(b"A: b\n\nX-Spamfilter-Id: %s\n", "", id="in-the-body-of-unix-lines"),
        pytest.param(b"\r\nX-Spamfilter-Id: %s\r\n", "", id="in-a-body-without-header"),
        pytest.param(b"X-Spamfilter-Id: x%s\r\n\r\n", "", id="not-an-id"),
        pytest.param(b"X-Spamfilter-Id:\r\n\r\n%s", "", id="empty"),
        pytest.param(b"X-Spamfilter-Id: \xff\xfe\r\n\r\n%s", "", id="bytes"),
        pytest.param(b"%s", "", id="no-header-at-all"),
    ],
)
def test_the_id_stands_in_the_header(sent: bytes, id: str) -> None:
    assert header_id(sent.replace(b"%s", ID.encode())) == id


def test_new_ids_are_found_again() -> None:
    id = new_id()
    assert header_id(b"".join(tagging.mark(mail(), [("X-Spamfilter-Id", id)]))) == id
