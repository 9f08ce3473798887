"""Marks where groups have voices of their own: whom they teach, what they leave alone, and that they are undone."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest

from spamfilter.bayes.groups import OWN, Groups
from spamfilter.bayes.labels import AUTOMATIC, BULK, COUNTERPART, LABELS, Label
from spamfilter.config.likelihood_settings import Learn
from spamfilter.config.sections import Feedback
from spamfilter.errors import Refused, ShareUsed
from spamfilter.learning import marks
from spamfilter.learning.automatic_rules import RULES, Seen
from spamfilter.learning.filter import Filter
from spamfilter.learning.mark_lookup import Subject, by_id, by_mail
from spamfilter.learning.marks import Author, mark
from spamfilter.learning.retraining import retrain
from spamfilter.learning.transaction import Reading
from spamfilter.learning.undoing import taught_by, undo
from spamfilter.mail.message import parse
from spamfilter.stores import Store, open_store
from spamfilter.system.ids import new_id
from tests.support.made import journal_entry, mail

VOICES = Learn(groups="domain").chosen()
ROOT, ANNA, BERT = Author("root", "cli", master=True), Author("anna", "imap"), Author("bert@y.example", "address")
NEWS = mail(subject="News", body="the newsletter of the month", name="news")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with closing(open_store(f"sqlite:///{tmp_path / 'x.db'}", migrate=True)) as store:
        yield store


@pytest.fixture
def filter(store: Store) -> Filter:
    """A filter that `train` has taught a little."""
    filter = Filter(store, VOICES)
    with filter.training() as training:
        for number in range(20):
            for label in LABELS:
                sent = mail(f"{label} {number}", f"a text of {label} number {number}", f"{label}{number}")
                training.add(filter.read(parse(sent)), label, BULK, "")
    return filter


def arrived(filter: Filter, sent: bytes, *recipients: str) -> str:
    """The relay has judged a mail for these recipients; the id of its journal entry."""
    message, id = parse(sent), new_id()
    seen = filter.read(message, filter.group_of(recipients))
    facts = {"message_id": message.field(b"message-id"), "subject": message.field(b"subject")}
    filter.store.write_journal(
        [journal_entry(id=id, digest=seen.digest, tokens=seen.tokens, recipients=[*recipients], **facts)]
    )
    return id


def marked(filter: Filter, id: str, label: Label | None, author: Author) -> bool:
    return mark(filter, by_id(filter, id), label, author, Feedback()).changed


def says(filter: Filter, group: str, sent: bytes = NEWS) -> str:
    """The whole score, to the last digit."""
    return repr(filter.score(filter.read(parse(sent), group)))


def probability(filter: Filter, group: str, sent: bytes = NEWS) -> float:
    return filter.score(filter.read(parse(sent), group)).posterior


def test_a_newsletter_is_spam_for_one_and_ham_for_another_and_the_same_for_everybody_else(filter: Filter) -> None:
    before = says(filter, "z.example"), says(filter, ""), filter.learnt
    ours, theirs = arrived(filter, NEWS, "anna@x.example"), arrived(filter, NEWS, "bert@y.example")
    assert marked(filter, ours, "spam", ANNA)
    assert marked(filter, theirs, "ham", BERT)
    assert probability(filter, "x.example") > 0.5 > probability(filter, "y.example")
    assert (says(filter, "z.example"), says(filter, ""), filter.learnt) == before
    assert filter.verify() == []
    assert says(Filter(filter.store, VOICES, whole=False), "x.example") == says(filter, "x.example")


def test_an_administrator_corrects_by_id_what_train_has_learnt(filter: Filter) -> None:
    before = dict(filter.learnt)
    id = arrived(filter, NEWS, "anna@x.example")
    with filter.training() as training:
        training.add(filter.read(parse(NEWS)), "spam", BULK, "")
    assert marked(filter, id, "spam", ROOT)  # it is the administrator's now
    assert filter.learnt == {"ham": before["ham"], "spam": before["spam"] + 1}
    assert marked(filter, id, "ham", ROOT)
    assert filter.learnt == {"ham": before["ham"] + 1, "spam": before["spam"]}
    assert marked(filter, id, None, ROOT)  # what train had learnt counts again
    assert filter.learnt["spam"] == before["spam"] + 1
    assert marked(filter, id, None, ROOT)
    assert filter.learnt == before


def test_what_a_group_was_taught_is_undone_without_a_trace(filter: Filter) -> None:
    before = says(filter, "x.example"), says(filter, "")
    for number in range(4):
        ours = arrived(filter, mail(subject="News", body="the newsletter", name=f"news{number}"), "anna@x.example")
        assert marked(filter, ours, "spam", ANNA)
    assert marked(filter, ours, "ham", ANNA)
    assert marked(filter, ours, None, ANNA)
    undo(filter, taught_by(filter.store, "anna", None), "cli", "root", lambda done: None)
    assert (says(filter, "x.example"), says(filter, "")) == before
    assert filter.store.load([OWN]).counts[OWN].vocabulary == 0
    assert filter.verify() == []


def test_a_rebuilding_gives_each_group_its_counts_again(filter: Filter) -> None:
    for group, label in (("x.example", "spam"), ("y.example", "ham")):
        assert marked(filter, arrived(filter, NEWS, f"a@{group}"), label, ANNA)  # type: ignore[arg-type]
    scores = {group: says(filter, group) for group in ("x.example", "y.example", "")}
    gone = arrived(filter, mail(name="gone"), "a@x.example")
    assert marked(filter, gone, "spam", ANNA)
    assert marked(filter, gone, None, ANNA)
    done = retrain(filter.store, VOICES, {}, lambda number: None)
    assert not done.silent
    again = Filter(filter.store, VOICES)
    assert again.verify() == []
    assert again.learnt == filter.learnt
    # `train` learns in rounds when it is rebuilt, so only the groups' share of the log-odds can be compared.
    for group in ("x.example", "y.example"):
        assert (OWN in again.score(again.read(parse(NEWS), group)).voices) == (OWN in scores[group])
    assert probability(again, "x.example") > probability(again, "") > probability(again, "y.example")


def test_no_mail_is_asked_for_where_a_group_alone_was_taught(filter: Filter) -> None:
    assert marked(filter, arrived(filter, NEWS, "anna@x.example"), "spam", ANNA)
    more = Learn(groups="domain", voices=["fields", "grams"]).chosen()
    assert retrain(filter.store, more, {}, lambda number: None).silent == {"grams": 40}  # those of `train`


def test_the_administrator_and_a_trap_teach_everybody(filter: Filter) -> None:
    before = probability(filter, "z.example")
    assert marked(filter, arrived(filter, NEWS, "anna@x.example"), "spam", ROOT)
    between = probability(filter, "z.example")
    other = mail(subject="News", body="the newsletter", name="other")
    assert marked(
        filter, arrived(filter, other, "trap@x.example"), "spam", Author("trap", AUTOMATIC, rule_for_all=True)
    )
    assert before < between < probability(filter, "z.example")
    assert filter.store.load([OWN]).counts[OWN].vocabulary == 0


def test_an_answer_teaches_the_group_of_who_answers_a_mail_that_came_for_many(filter: Filter) -> None:
    ids = [arrived(filter, NEWS, f"bert@{group}.example") for group in "yabcdefg"]
    answer = parse(b"From: bert@y.example\r\nIn-Reply-To: " + parse(NEWS).field(b"message-id").encode() + b"\r\n\r\n")
    to = by_id(filter, ids[0]).reading.tokens
    asked = filter.store.find_journal(ids[0])
    assert asked is not None
    seen = Seen("", answer, Reading(b"answer", to), BERT.name, [asked.sender], proven=True, authenticated=True)
    (subject,) = RULES["answered"].subjects(seen, filter.store)
    assert subject.id == ids[0]
    filter.store.write_journal(
        [replace(asked, id=new_id(), digest=b"another", tokens=filter.read(parse(mail())).tokens)]
    )
    assert not [*RULES["answered"].subjects(seen, filter.store)]  # two mails of one Message-ID


def test_a_copy_without_its_id_is_its_users_own_and_no_other_groups(filter: Filter) -> None:
    arrived(filter, NEWS, "anna@x.example")
    own = arrived(filter, NEWS, "bert@y.example")
    theirs = arrived(filter, NEWS, "carl@z.example")
    before = {group: says(filter, group) for group in ("x.example", "z.example", "")}
    assert mark(filter, by_mail(filter, "news.eml", NEWS, BERT.user), "spam", BERT, Feedback()).changed
    assert not marked(filter, own, "spam", BERT)  # it was that mail
    assert {group: says(filter, group) for group in before} == before
    assert marked(filter, theirs, "ham", Author("carl@z.example", "imap"))
    stranger = Author("eve@other.example", "imap")  # with a copy that the relay has not judged
    assert by_mail(filter, "news.eml", NEWS, stranger.user).id == ""
    assert mark(filter, by_mail(filter, "news.eml", NEWS, stranger.user), "spam", stranger, Feedback()).changed
    with_id = NEWS.replace(b"\r\n\r\n", b"\r\nX-Spamfilter-Id: " + theirs.encode() + b"\r\n\r\n", 1)
    assert by_mail(filter, "news.eml", with_id, BERT.user).id == theirs
    assert filter.verify() == []


def test_a_mark_of_an_altered_copy_is_taken_back_though_the_copy_was_trained(filter: Filter) -> None:
    before = says(filter, "x.example")
    id = arrived(filter, NEWS, "anna@x.example")
    header = b"\r\nX-Spamfilter-Id: " + id.encode() + b"\r\n\r\n"
    altered = NEWS.replace(b"\r\n\r\n", header, 1) + b"-- \r\nThe list of the gardeners\r\n"
    assert mark(filter, by_mail(filter, "news.eml", altered, ANNA.user), "spam", ANNA, Feedback()).changed
    with filter.training() as training:
        training.add(filter.read(parse(altered)), "spam", BULK, "")
    assert mark(filter, by_mail(filter, "news.eml", altered, ANNA.user), None, ANNA, Feedback()).was == "spam"
    assert filter.store.load([OWN]).counts[OWN].vocabulary == 0
    filter.forget(filter.read(parse(altered)), "cli")
    assert says(filter, "x.example") == before
    assert filter.verify() == []


@pytest.mark.parametrize("said", LABELS)
def test_an_administrator_marks_the_mail_that_was_trained_and_leaves_a_groups_mark(filter: Filter, said: Label) -> None:
    before, id = dict(filter.learnt), arrived(filter, NEWS, "anna@x.example")
    delivered = NEWS.replace(b"\r\n\r\n", b"\r\nX-Spamfilter-Id: " + id.encode() + b"\r\n\r\n", 1)
    with filter.training() as training:
        training.add(filter.read(parse(delivered)), "spam", BULK, "")
    assert marked(filter, id, said, ANNA)
    own = says(filter, "x.example")
    assert mark(filter, by_mail(filter, "news.eml", delivered), "ham", ROOT, Feedback(counterparts=False)).changed
    assert filter.learnt == {"ham": before["ham"] + 1, "spam": before["spam"]}
    assert filter.store.load([OWN]).counts[OWN].vocabulary > 0 or own == says(filter, "")


def test_what_everybody_was_taught_of_a_mail_no_user_of_a_group_takes_away(filter: Filter) -> None:
    ours = arrived(filter, NEWS, "anna@x.example")
    assert marked(filter, ours, "spam", ROOT)
    before = says(filter, "")
    assert not marked(filter, ours, "spam", ANNA)
    for label in ("ham", None):
        with pytest.raises(Refused, match="learnt as spam for everybody; only the administrator"):
            marked(filter, ours, label, ANNA)
    assert says(filter, "") == before


def test_what_train_has_learnt_of_a_mail_stays_beside_the_mark_of_a_group(filter: Filter) -> None:
    filter.learn(filter.read(parse(NEWS)), "ham", BULK)
    before = says(filter, "")
    assert marked(filter, arrived(filter, NEWS, "anna@x.example"), "spam", ANNA)
    assert says(filter, "") == before
    assert probability(filter, "x.example") > probability(filter, "")


def test_the_administrator_replaces_what_a_user_has_taught_the_group(filter: Filter) -> None:
    ours = arrived(filter, NEWS, "anna@x.example")
    assert marked(filter, ours, "ham", ANNA)
    before = probability(filter, "z.example")
    assert marked(filter, ours, "spam", ROOT)
    assert filter.store.load([OWN]).counts[OWN].vocabulary == 0
    assert probability(filter, "z.example") > before
    assert filter.verify() == []


@pytest.mark.parametrize("recipients", [("a@x.example", "b@y.example"), ()], ids=["two-groups", "not-judged-here"])
@pytest.mark.parametrize("author", [BERT, Author("digest link: bert@y.example", "web")], ids=["address", "link"])
def test_mail_of_no_group_teaches_the_group_of_its_author_or_nobody(
    filter: Filter, recipients: tuple[str, ...], author: Author
) -> None:
    subject = by_id(filter, arrived(filter, NEWS, *recipients)) if recipients else by_mail(filter, "news.eml", NEWS)
    before = says(filter, "x.example"), says(filter, "")
    with pytest.raises(Refused, match=r"only the\s+administrator can mark it"):
        mark(filter, subject, "spam", ANNA, Feedback())
    assert mark(filter, subject, "spam", author, Feedback()).changed
    assert (says(filter, "x.example"), says(filter, "")) == before
    assert probability(filter, "y.example") > probability(filter, "")


@pytest.mark.parametrize("kept", [True, False], ids=["with-tokens", "tokens-expired"])
def test_the_mail_itself_teaches_the_group_that_it_was_judged_for(filter: Filter, kept: bool) -> None:
    id = arrived(filter, NEWS, "anna@x.example")
    if not kept:
        entry = filter.store.find_journal(id)
        assert entry is not None
        filter.store.expire(entry.at.replace(year=2100), entry.at.replace(year=2000))
    delivered = NEWS.replace(b"\r\n\r\n", b"\r\nX-Spamfilter-Id: " + id.encode() + b"\r\n\r\n", 1)
    subject = by_mail(filter, "news.eml", delivered)
    assert subject.id == id
    assert mark(filter, subject, "spam", ANNA, Feedback()).changed
    assert marked(filter, id, None, ANNA)
    assert filter.store.load([OWN]).counts[OWN].vocabulary == 0


def test_a_group_has_a_limit_which_another_group_does_not_feel(filter: Filter) -> None:
    with patch.object(marks, "MOST_OF_A_GROUP", 3):
        for number in range(20):
            # Words anew each time and both labels in turns, so that the filter never knows.
            sent = mail(subject=f"n{number}", body=f"w{number} v{number}", name=f"n{number}")
            label: Label = "spam" if number % 2 else "ham"
            try:
                marked(filter, arrived(filter, sent, "a@x.example"), label, ANNA)
            except ShareUsed as error:
                assert str(error).startswith("x.example: has taught as much as 3 messages")  # noqa: PT017
                break
        else:
            pytest.fail("no limit")
        assert marked(filter, arrived(filter, NEWS, "a@y.example"), "spam", ANNA)
        assert marked(filter, arrived(filter, NEWS, "a@x.example"), "spam", ROOT)


def test_a_group_beyond_ascii_is_one_in_either_form(store: Store) -> None:
    filter = Filter(store, Learn(groups="domain").chosen())
    names = ("anna@b\N{LATIN SMALL LETTER U WITH DIAERESIS}cher.example", "Bert@XN--bcher-kva.example")
    assert filter.group_of(names) == "xn--bcher-kva.example"


def test_without_groups_marks_teach_everybody_and_what_groups_were_taught_is_still_undone(store: Store) -> None:
    grouped, off = Filter(store, VOICES), Filter(store, Learn().chosen())
    before = arrived(grouped, NEWS, "anna@x.example")
    assert marked(grouped, before, "spam", ANNA)
    off = Filter(store, Learn().chosen())
    assert off.group_of(["anna@x.example"]) == ""
    assert marked(off, before, "ham", ANNA)
    assert store.load([OWN]).counts[OWN].vocabulary == 0
    assert off.learnt == {"ham": 1, "spam": 0}
    assert off.verify() == []


def test_a_mark_teaches_the_same_tokens_from_the_ledger_as_from_the_journal(filter: Filter) -> None:
    """What is kept of a mark names the group, so another mark changes the same counts after the journal has gone."""
    id = arrived(filter, NEWS, "anna@x.example")
    assert marked(filter, id, "spam", ANNA)
    entry = filter.store.active(filter.read(parse(NEWS), "x.example").digest)
    assert entry is not None
    assert entry.added.keys() == {OWN}
    kept = Subject("", "", Reading(entry.digest, entry.tokens))
    assert mark(filter, kept, "ham", ANNA, Feedback()).was == "spam"
    assert filter.verify() == []


@pytest.mark.parametrize("trained", LABELS)
def test_a_counterpart_of_a_group_gives_way_to_the_administrators_mark_of_what_was_trained(
    filter: Filter, trained: Label
) -> None:
    id = arrived(filter, NEWS, "anna@x.example")
    subject = by_id(filter, id)
    filter.learn(subject.reading, "ham", COUNTERPART, COUNTERPART)
    everybodys = filter.read(parse(NEWS))
    filter.learn(everybodys, trained, BULK, "root")
    assert mark(filter, subject, "spam", ROOT, Feedback(counterparts=False)).changed
    found = {entry.digest: (entry.label, entry.source) for entry in filter.store.learnings()}
    assert subject.reading.digest not in found
    assert found[everybodys.digest] == ("spam", "cli")
    assert filter.verify() == []


@pytest.mark.parametrize(
    ("before", "now", "group"),
    [
        ("domain", "mailbox", "anna@x.example"),
        ("mailbox", "domain", "x.example"),
        ("", "domain", "x.example"),
        ("", "mailbox", "anna@x.example"),
    ],
)
@pytest.mark.parametrize("by_its_id", [True, False], ids=["by id", "the mail"])
def test_a_mark_teaches_the_group_that_the_mail_has_now(
    store: Store, before: Groups, now: Groups, group: str, by_its_id: bool
) -> None:
    """The mail was judged before [learn] groups was changed: a mark on it speaks of the mail that comes later."""
    id = arrived(Filter(store, Learn(groups=before).chosen()), NEWS, "anna@x.example")
    filter = Filter(store, Learn(groups=now).chosen())
    said = probability(filter, group), probability(filter, "y.example")

    def subject() -> Subject:
        tagged = f"X-Spamfilter-Id: {id}\r\n".encode() + NEWS
        return by_id(filter, id) if by_its_id else by_mail(filter, "news", tagged, ANNA.user)

    assert mark(filter, subject(), "spam", ANNA, Feedback()).changed
    assert probability(filter, group) > said[0]
    assert probability(filter, "y.example") == said[1]
    assert mark(filter, subject(), None, ANNA, Feedback()).changed
    assert (probability(filter, group), filter.verify()) == (said[0], [])
    assert store.load([OWN]).counts[OWN].vocabulary == 0


def test_a_copy_without_its_id_teaches_its_users_group_also_where_there_were_none_before(store: Store) -> None:
    arrived(Filter(store, Learn().chosen()), NEWS, "anna@x.example")
    filter = Filter(store, VOICES)
    before = probability(filter, "x.example")
    assert mark(filter, by_mail(filter, "news", NEWS, BERT.user), "spam", BERT, Feedback()).changed
    assert probability(filter, "x.example") == before < probability(filter, "y.example")


@pytest.mark.parametrize("before", ["", "domain"])
def test_what_a_mail_has_taught_before_groups_were_changed_is_taken_back_by_its_id(
    store: Store, before: Groups
) -> None:
    former = Filter(store, Learn(groups=before).chosen())
    id = arrived(former, NEWS, "anna@x.example")
    assert marked(former, id, "spam", ANNA)
    filter = Filter(store, Learn(groups="mailbox").chosen())
    assert marked(filter, id, None, ROOT if not before else ANNA)
    assert (store.learnings(), filter.verify()) == ([], [])
