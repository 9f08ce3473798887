"""Feedback: what a user names is found as it was judged, or read anew."""

import pytest

from spamfilter import feedback
from spamfilter.errors import InputError
from spamfilter.feedback import Subject, by_id, by_mail, header_id
from spamfilter.filter import Filter, Reading
from spamfilter.ids import new_id
from spamfilter.marking import mark
from spamfilter.message import parse
from spamfilter.stores import JournalEntry
from spamfilter.stores.memory import MemoryStore
from tests.made import VOICE, journal_entry, mail

ID = "01KAH3V5E8M6Q2T0J9Z4R7X1CN"
JUDGED = {"fields": {b"as": 1, b"judged": 1}}


class Slow(MemoryStore):
    """The journal's row comes a little late."""

    def __init__(self, looks: int) -> None:
        super().__init__()
        self._looks = looks

    def find_journal(self, id: str) -> JournalEntry | None:
        self._looks -= 1
        return None if self._looks >= 0 else super().find_journal(id)


def judged(filter: Filter, sent: bytes, **changes: object) -> None:
    """The relay judged `sent` and wrote it down."""
    message = parse(sent)
    facts = {"id": ID, "digest": message.digest(), "message_id": message.field(b"message-id"), "tokens": JUDGED}
    filter.store.write_journal([journal_entry(**{**facts, **changes})])


def delivered(sent: bytes) -> bytes:
    return b"".join(mark(sent, [("X-Spamfilter-Id", ID)]))


@pytest.fixture
def filter() -> Filter:
    return Filter(MemoryStore(), VOICE)


@pytest.mark.parametrize("id", [ID, ID.lower()], ids=["upper-case", "lower-case"])
def test_an_id_names_what_was_judged(filter: Filter, id: str) -> None:
    judged(filter, mail())
    assert by_id(filter.store, id) == Subject(ID, ID, Reading(parse(mail()).digest(), JUDGED))


def test_an_id_that_is_just_being_written_is_waited_for() -> None:
    store = Slow(looks=2)
    judged(Filter(store, VOICE), mail())
    assert by_id(store, ID).id == ID


def test_an_id_of_nothing_says_what_to_do_instead(filter: Filter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feedback, "WRITTEN_WITHIN", 0.0)
    with pytest.raises(InputError, match=f"{ID}: no message of this id in the journal of memory; .*name its file"):
        by_id(filter.store, ID)


def test_an_id_whose_tokens_have_gone_says_what_to_do_instead(filter: Filter) -> None:
    judged(filter, mail(), tokens=None)
    with pytest.raises(InputError, match=f"{ID}: its tokens are not kept any more .*name its file"):
        by_id(filter.store, ID)


def test_a_mail_that_never_passed_is_read(filter: Filter) -> None:
    assert by_mail(filter, "x.eml", mail()) == Subject("x.eml", "", filter.read(parse(mail())))


@pytest.mark.parametrize(
    "altered",
    [
        pytest.param(delivered(mail()), id="as-delivered"),
        pytest.param(delivered(mail()).replace(b"\r\n", b"\n"), id="unix-line-ends"),
        pytest.param(delivered(mail()) + b"footer of a list\r\n", id="footer"),
        pytest.param(delivered(mail()).replace(b"Spamfilter-Id", b"SPAMFILTER-ID"), id="case"),
        pytest.param(delivered(mail()).replace(ID.encode(), ID.lower().encode()), id="lower-case-id"),
        pytest.param(b"From a Sun Mar  1 12:00:00 2026\r\n" + delivered(mail()), id="mbox-line"),
    ],
)
def test_a_mail_that_passed_is_taken_as_it_was_judged(filter: Filter, altered: bytes) -> None:
    judged(filter, mail())
    found = by_mail(filter, "x.eml", altered)
    assert found == Subject("x.eml", ID, Reading(parse(mail()).digest(), JUDGED))


def test_an_id_of_somebody_elses_mail_is_not_believed(filter: Filter) -> None:
    judged(filter, mail(name="other"))
    found = by_mail(filter, "x.eml", delivered(mail()))
    assert found == Subject("x.eml", "", filter.read(parse(mail())))


def test_two_mails_without_message_id_are_told_apart(filter: Filter) -> None:
    sent, other = (b"From: a@x\r\nSubject: %s\r\n\r\nbody\r\n" % name for name in (b"one", b"two"))
    judged(filter, sent)
    assert by_mail(filter, "x", delivered(sent)).id == ID
    assert by_mail(filter, "x", delivered(other)).id == ""


def test_a_mail_whose_tokens_have_gone_is_read_and_keeps_its_id(filter: Filter) -> None:
    judged(filter, mail(), tokens=None)
    sent = delivered(mail())
    assert by_mail(filter, "x.eml", sent) == Subject("x.eml", ID, filter.read(parse(sent)))


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
    assert header_id(b"".join(mark(mail(), [("X-Spamfilter-Id", id)]))) == id
