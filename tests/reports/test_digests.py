"""Digests: for whom, when, in which language."""

import re
import string
from datetime import UTC, datetime, timedelta
from email import message_from_bytes
from email.policy import default
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

import spamfilter
from spamfilter.bayes.model import Score
from spamfilter.bayes.verdict import Verdict
from spamfilter.config.settings import Settings
from spamfilter.config.translation import LANGUAGES, catalog
from spamfilter.errors import ConfigError, TryAgain
from spamfilter.mail.tagging import mark
from spamfilter.relay.next_hops import Maildir
from spamfilter.reports.digest_links import address_of_link, held_key
from spamfilter.reports.digests import digest_mail, is_due, new_digests
from spamfilter.stores import Store
from spamfilter.system.ids import new_id
from spamfilter.system.moments import moment_of
from spamfilter.web.kept import RULE_MADE, SENTENCES
from tests.support.made import journal_entry, mail
from tests.support.memory_store import MemoryStore

NOW = datetime(2026, 11, 23, 16, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("hours", "last", "due"),
    [
        pytest.param([], None, False, id="off"),
        pytest.param([16], None, True, id="first"),
        pytest.param([16], NOW - timedelta(minutes=10), False, id="sent this hour"),
        pytest.param([7, 16], NOW - timedelta(hours=5), True, id="since the morning"),
        pytest.param([7, 18], NOW - timedelta(hours=5), False, id="not before the evening"),
        pytest.param([23], NOW - timedelta(hours=40), True, id="host was off at night"),
        pytest.param([16], NOW + timedelta(days=300), True, id="clock was ahead"),
    ],
)  # fmt: skip
def test_digests_are_due_at_their_hours_and_caught_up(hours: list[int], last: datetime | None, due: bool) -> None:
    assert is_due(hours, last, NOW) is due


@pytest.mark.parametrize(("hour", "due"), [(23, False), (2, False), (7, True)])
def test_the_night_that_summer_time_ends_has_no_digest_of_its_own(hour: int, due: bool) -> None:
    zone = ZoneInfo("Europe/Berlin")
    last = datetime(2026, 10, 24, 16, 0, 5, tzinfo=zone).astimezone(UTC)
    day = 24 if hour == 23 else 25
    now = datetime(2026, 10, day, hour, fold=1, tzinfo=zone).astimezone(UTC)
    assert is_due([7, 16], last.astimezone(zone), now.astimezone(zone)) is due


@pytest.fixture
def store() -> Store:
    return MemoryStore()


def settings(folder: Path, **digest: object) -> Settings:
    section = {"url": "https://mail.example.org/", "domains": ["example.net"], **digest}
    return Settings.model_validate({
        "verdict": {"quarantine": str(folder)}, "digest": section, "feedback": {"traps": ["trap@example.net"]},
    })  # fmt: skip


def keep(folder: Path, *recipients: bytes, sender: bytes = b"a@example.org") -> str:
    id = new_id()
    verdict = Verdict(Score(5.0, 0.987), "spam", "quarantine", 0.9, {"ham": 1, "spam": 1})
    Maildir(folder).write(mark(mail(), verdict.fields(id)), sender, recipients, id)
    return id


def text_of(sent: bytes) -> str:
    """What a reader without HTML sees of a digest."""
    body = message_from_bytes(sent, policy=default).get_body(("plain",))
    assert body is not None
    return str(body.get_content())


def test_only_own_users_get_a_digest_and_each_mail_once(tmp_path: Path, store: Store) -> None:
    recipients = b"Ann@Example.net", b"ann@example.net", b"trap@example.net", b"customer@elsewhere.test"
    id = keep(tmp_path, *recipients)
    store.write_journal([journal_entry(id=id, evidence=[("subject:casino", 2.0), ("^from x", 1.0), ("lunch", -1.0)])])
    (one,) = new_digests(settings(tmp_path), store)
    assert one.address == "ann@example.net"
    assert [(listed.id, listed.words) for listed in one.mails][:1] == [(id, ["casino"])]
    store.note_quarantine(one.events(NOW))
    assert new_digests(settings(tmp_path), store) == []


def test_an_address_that_programs_read_differently_gets_no_digest_and_stops_none(tmp_path: Path, store: Store) -> None:
    odd = b"=?utf-8?q?=0ax?=@example.net", "x+\u2028y@example.net".encode(), b'"v@other.org> x=;a"@example.net'
    keep(tmp_path, *odd, b"zoe@example.net")
    assert [one.address for one in new_digests(settings(tmp_path), store)] == ["zoe@example.net"]


def test_an_address_with_letters_of_any_script_gets_a_digest(tmp_path: Path, store: Store) -> None:
    id = keep(tmp_path, "Gr\xfcn+x@example.net".encode(), "\u7528\u6237@example.net".encode())
    some = settings(tmp_path)
    first, second = new_digests(some, store)
    assert (first.address, second.address) == ("gr\xfcn+x@example.net", "\u7528\u6237@example.net")
    sent = digest_mail(first, some, "filter@example.org", b"k" * 32, NOW).decode()
    assert f"\r\nTo: {first.address}\r\n" in sent
    (link,) = re.findall(rf"/kept/(\S+)/{id}", text_of(sent.encode()))
    assert address_of_link(b"k" * 32, link, NOW) == first.address


def test_a_link_works_to_the_end_of_the_day_that_the_digest_names(tmp_path: Path, store: Store) -> None:
    keep(tmp_path, b"ann@example.net")
    some = settings(tmp_path, link_days=2.0)
    (one,) = new_digests(some, store)
    said = text_of(digest_mail(one, some, "filter@example.org", b"k" * 32, NOW))
    ((day, link),) = re.findall(r"until (\S+):\s+https://mail\.example\.org/kept/(\S+)", said)
    end = moment_of(day, end=True)
    assert timedelta(days=2) <= end - NOW < timedelta(days=3)
    assert address_of_link(b"k" * 32, link, end - timedelta(seconds=1)) == one.address
    assert address_of_link(b"k" * 32, link, end) is None


def test_an_address_that_is_left_out_gets_no_digest(tmp_path: Path, store: Store) -> None:
    keep(tmp_path, b"List@example.net", b"ann@example.net")
    found = new_digests(settings(tmp_path, without=["list@EXAMPLE.net"]), store)
    assert [one.address for one in found] == ["ann@example.net"]


def test_two_processes_never_send_the_same_digests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path))
    with held_key() as key, pytest.raises(TryAgain, match="another `spamfilter digest` is at work"), held_key():
        pass
    with held_key() as again:
        assert again == key == (tmp_path / "digest.key").read_bytes()


def test_the_key_is_made_with_the_folder_that_it_is_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path / "state"))  # missing where the database is elsewhere
    with held_key() as key:
        assert key == (tmp_path / "state" / "digest.key").read_bytes()
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700


def test_without_domains_nobody_is_guessed(tmp_path: Path, store: Store) -> None:
    with pytest.raises(ConfigError, match="name the domains whose users get digests"):
        new_digests(settings(tmp_path, domains=[]), store)


@pytest.mark.parametrize(("days", "said"), [(1.0, "after a day."), (1.5, "after 1.5 days."), (30.0, "after 30 days.")])
def test_a_digest_says_when_a_mail_is_deleted(tmp_path: Path, store: Store, days: float, said: str) -> None:
    keep(tmp_path, b"ann@example.net")
    some = settings(tmp_path)
    some = some.model_copy(update={"verdict": some.verdict.model_copy(update={"quarantine_days": days})})
    (one,) = new_digests(some, store)
    sent = message_from_bytes(digest_mail(one, some, "filter@example.org", b"k" * 32, NOW), policy=default)
    parts = [part.get_content() for part in sent.walk() if not part.is_multipart()]
    assert len(parts) == 2
    assert all(f"you may leave alone: it is deleted {said}" in " ".join(part.split()) for part in parts)


def test_a_digest_lists_so_many_and_counts_the_rest(tmp_path: Path, store: Store) -> None:
    for _ in range(5):
        keep(tmp_path, b"ann@example.net")
    some = settings(tmp_path, entries=2)
    (one,) = new_digests(some, store)
    sent = digest_mail(one, some, "filter@example.org", b"k" * 32, NOW).decode()
    assert "Subject: Mail kept as spam: 5\r\n" in sent
    assert "3 more are on the page." in sent
    assert len(one.events(NOW)) == 5


@pytest.mark.parametrize(
    ("sender", "shown"),
    [
        pytest.param(b"a@example.org", "A Sender <a@example.org>", id="the-same"),
        pytest.param(b"bounces+ann@Mailer.example", "A Sender <a@example.org> [mailer.example]", id="another"),
        pytest.param(b"", "A Sender <a@example.org>", id="bounce"),
    ],
)
def test_a_digest_names_whom_people_know(tmp_path: Path, store: Store, sender: bytes, shown: str) -> None:
    keep(tmp_path, b"ann@example.net", sender=sender)
    (one,) = new_digests(settings(tmp_path), store)
    assert [listed.sender for listed in one.mails] == [shown]


SAID = re.compile(r"""(?:\bsay|_trouble|_opened)\(\s*(?:visit, (?:address, found,\s+)?)?["']([^"']+)["']""")


def said() -> set[str]:
    """Sentences of the code and the templates that are translated."""
    folder = Path(spamfilter.__file__).parent
    files = [*folder.glob("web/kept.py"), *folder.glob("reports/digests.py"), *folder.glob("relay/feedback_answers.py")]
    files += [*folder.glob("web/templates/*.html"), *folder.glob("reports/templates/digest.html")]
    written = {sentence for file in files for sentence in SAID.findall(file.read_text(encoding="utf-8"))}
    return written | {*SENTENCES.values(), *RULE_MADE.values()}


@pytest.mark.parametrize("language", [name for name in LANGUAGES if name != "en"])
def test_a_language_has_every_sentence_and_no_other(language: str) -> None:
    known = catalog(language)
    assert set(known) == said()
    for sentence, text in known.items():
        names = [{name for _, name, _, _ in string.Formatter().parse(part) if name} for part in (sentence, text)]
        assert names[0] == names[1], sentence
