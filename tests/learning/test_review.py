"""Review: the right messages in the right order, and each key takes effect at once."""

import json
import os
import pty
import select
import signal
import smtplib
import termios
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import Result

from spamfilter.config.settings import Settings
from spamfilter.errors import Refused
from spamfilter.learning import review as reviewing
from spamfilter.learning.filter import Filter
from spamfilter.learning.review import Review
from spamfilter.mail.message import parse
from spamfilter.stores import Entry, JournalEntry, open_store
from spamfilter.system import paths
from spamfilter.system.ids import new_id
from spamfilter.system.moments import moment_text
from tests.integration.servers import relay, wait_until
from tests.project.test_docs import documented
from tests.support.made import NOON, VOICE, journal_entry, mail
from tests.support.memory_store import MemoryStore
from tests.support.program import COMMAND, Program
from tests.support.shell import Shell

NOW = datetime.now(UTC)
WAIT_SECONDS = 60.0
"""For a line on a terminal: a hundred times what a slow machine takes."""
SINCE, UNTIL = NOON - timedelta(days=20), NOON + timedelta(days=1)


def seen(name: str, score: float = 0.7, class_: str = "unsure", **changes: object) -> JournalEntry:
    """A message of this name in the journal."""
    facts = {
        "id": new_id(),
        "digest": name.encode().ljust(16, b"."),
        "subject": name,
        "score": score,
        "class_": class_,
        "tokens": {"fields": {f"subject:{name}".encode(): 1}},
    }
    return journal_entry(**{**facts, **changes})


@pytest.fixture
def review() -> Review:
    return Review(Filter(MemoryStore(), VOICE), 0.9)


def offered(review: Review, *entries: JournalEntry) -> list[str]:
    review._store.write_journal(entries)
    return [waiting.entry.subject for waiting in review.waiting(SINCE, UNTIL)]


def test_unsure_mail_comes_first_and_then_what_is_nearest_to_the_threshold(review: Review) -> None:
    entries = [
        seen("ham", 0.3, "ham"), seen("sure ham", 0.0, "ham"), seen("hardly spam", 0.91, "spam"),
        seen("spam", 1.0, "spam"), seen("hardly unsure", 0.51), seen("nearly spam", 0.89), seen("unsure", 0.7),
    ]  # fmt: skip
    assert offered(review, *entries) == [
        "nearly spam", "unsure", "hardly unsure", "hardly spam", "ham", "spam", "sure ham",
    ]  # fmt: skip


def test_of_two_alike_the_newest_comes_first(review: Review) -> None:
    entries = [seen(f"{days}", at=NOON - timedelta(days=days)) for days in (3, 0, 12, 1)]
    assert offered(review, *entries) == ["0", "1", "3", "12"]


def test_a_mail_that_came_twice_is_offered_once_as_it_came_last(review: Review) -> None:
    first = seen("twice", 0.6, at=NOON - timedelta(days=3))
    again = seen("twice", 0.8, id=new_id(), subject="twice, again")
    assert offered(review, first, again) == ["twice, again"]


def test_what_anybody_has_taught_is_not_offered(review: Review) -> None:
    entries = [seen("taught"), seen("not taught")]
    subject = None
    for entry in entries[:1]:
        review._store.write_journal([entry])
        subject = review.subject(entry)
        assert subject is not None
        review._filter.learn(subject.reading, "spam", "train", "somebody")
    assert offered(review, *entries) == ["not taught"]
    assert review.subject(entries[0]) is None


def test_a_look_at_the_journal_reads_no_learning(review: Review, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*wanted: object) -> list[Entry]:
        raise AssertionError("read")

    for name in ("learnings", "latest_learnings", "entries_after"):
        monkeypatch.setattr(review._store, name, read)
    assert offered(review, seen("one")) == ["one"]


def test_what_has_no_tokens_any_more_cannot_be_learnt(review: Review) -> None:
    expired, foreign = seen("expired", tokens=None), seen("foreign", tokens={"grams": {b"gram": 1}})
    offered(review, expired, foreign)
    assert [review.subject(entry) for entry in (expired, foreign, seen("never written"))] == [None] * 3


def test_only_mail_of_the_time_is_offered(review: Review) -> None:
    entries = [seen("before", at=SINCE - timedelta(seconds=1)), seen("first", at=SINCE), seen("after", at=UNTIL)]
    assert offered(review, *entries) == ["first"]


def test_what_is_skipped_comes_behind_all_others_the_first_skipped_first(review: Review) -> None:
    names = ["nearest", "near", "far", "farthest"]
    entries = [seen(name, score) for name, score in zip(names, (0.89, 0.8, 0.7, 0.6), strict=True)]
    assert offered(review, *entries) == names
    for name in ("near", "nearest"):
        review.skip(name.encode().ljust(16, b"."))
    waiting = review.waiting(SINCE, UNTIL)
    assert [(each.entry.subject, each.skipped) for each in waiting] == [
        ("far", False), ("farthest", False), ("near", True), ("nearest", True),
    ]  # fmt: skip
    review.unskip(b"near".ljust(16, b"."))
    review.unskip(b"never skipped")
    assert offered(review) == ["near", "far", "farthest", "nearest"]


def test_no_more_skips_are_kept_than_the_bound(review: Review, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reviewing, "MOST_SKIPPED", 2)
    for name in ("a", "b", "c"):
        review.skip(name.encode())
    kept = review._store.get_setting(reviewing.SKIPPED)
    assert isinstance(kept, dict)
    assert set(kept) == {b"b".hex(), b"c".hex()}


def test_what_two_people_skip_at_once_is_skipped(tmp_path: Path) -> None:
    digests = [b"%d" % number for number in range(40)]

    def skip(some: Sequence[bytes]) -> None:
        with closing(open_store(url)) as store:
            review = Review(Filter(store, VOICE), 0.9)
            for digest in some:
                review.skip(digest)

    url = f"sqlite:///{tmp_path / 'store.db'}"
    with closing(open_store(url)) as store:
        Filter(store, VOICE)
        with ThreadPoolExecutor(2) as threads:
            assert len([*threads.map(skip, (digests[::2], digests[1::2]))]) == 2
        kept = store.get_setting(reviewing.SKIPPED)
    assert isinstance(kept, dict)
    assert set(kept) == {digest.hex() for digest in digests}


def test_no_more_is_offered_than_the_bound_and_that_is_the_best(
    review: Review, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reviewing, "BEST", 3)
    entries = [seen(str(number), 0.5 + number / 100, at=NOON - timedelta(days=number % 7)) for number in range(40)]
    assert offered(review, *entries) == ["39", "38", "37"]


@pytest.mark.parametrize("threshold", [0.0, 0.5, 1.0])
def test_every_score_and_threshold_has_its_place(threshold: float) -> None:
    review = Review(Filter(MemoryStore(), VOICE), threshold)
    assert len(offered(review, *(seen(str(score), score) for score in (0.0, 1.0, 0.5)))) == 3


# The command


class Reviewer(Shell):
    """A user with messages to label: the nearest to the threshold is the first."""

    def fill(self, *names: str) -> dict[str, str]:
        """Judged mails of these names; name -> id."""
        entries = [
            seen(name, 0.89 - number / 50, at=NOW - timedelta(hours=number + 1)) for number, name in enumerate(names)
        ]
        with self.store() as store:
            store.write_journal(entries)
        return {entry.subject: entry.id for entry in entries}

    def press(self, *keys: str) -> Result:
        return self.run("review", stdin="".join(f"{key}\n" for key in keys).encode())

    def marked_meanwhile(self, monkeypatch: pytest.MonkeyPatch, name: str, look: int, *words: object) -> None:
        """Another person runs a command just before review looks at this message for the so manyth time."""
        subject, asked = Review.subject, list[str]()

        def and_another(review: Review, entry: JournalEntry) -> object:
            asked.append(entry.subject)
            if entry.subject == name and asked.count(name) == look:
                self.done(*words)
            return subject(review, entry)

        monkeypatch.setattr(Review, "subject", and_another)

    def labels(self) -> dict[str, tuple[str, str, str]]:
        """Name of a message -> its label, and by which way and by whom it was learnt."""
        with self.store() as store:
            learnt = store.learnings()
        return {entry.digest.rstrip(b".").decode(): (entry.label, entry.source, entry.by) for entry in learnt}

    def listed(self, *words: object) -> list[str]:
        return [json.loads(line)["subject"] for line in self.done("review", "--json", *words).splitlines()]


@pytest.fixture
def reviewer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reviewer:
    monkeypatch.setattr(paths, "SYSTEM_FILE", tmp_path / "none.toml")
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path))
    monkeypatch.setenv("LOGNAME", "ann")
    monkeypatch.delenv("SPAMFILTER_CONFIG", raising=False)
    return Reviewer(tmp_path)


def test_each_key_labels_the_message_that_is_shown(reviewer: Reviewer) -> None:
    ids = reviewer.fill("one", "two", "three", "four")
    result = reviewer.press("s", "H", "n", "?", "q")
    assert (result.exit_code, result.stderr) == (0, "")
    assert reviewer.labels() == {"one": ("spam", "review", "ann"), "two": ("ham", "review", "ann")}
    shown = [result.stdout.index(ids[name]) for name in ("one", "two", "three", "four")]
    assert shown == sorted(shown)
    assert result.stdout.startswith("4 unsure messages, then 0 others, the nearest to unsure first\n")
    assert "1 of 4" in result.stdout
    assert f"{ids['one']}: learnt as spam; score 0.500 -> " in result.stdout
    assert result.stdout.endswith("marked 1 ham, 1 spam; skipped 1; 1 left\n")
    assert reviewer.listed() == ["four", "three"]
    assert reviewer.learnt() == ({"ham": 1, "spam": 1}, [])


def test_a_message_is_shown_with_what_speaks_for_it_and_does_no_harm(reviewer: Reviewer) -> None:
    reviewer.fill("taught")
    reviewer.press("s")
    reviewer.fill("taught")
    entry = seen(
        "evil", subject="grün\x1b[2J", sender="a\x07@x", recipients=["b@y\n", "c@z"], at=NOW,
        tokens={"fields": {b"subject:taught": 1, "subject:ü\x1b[2J".encode(): 1}},
    )  # fmt: skip
    with reviewer.store() as store:
        store.write_journal([entry])
    said = reviewer.press().stdout
    assert f"1 of 1  {entry.id}  {moment_text(NOW)}\n" in said
    assert "  from     a\\x07@x\n  to       b@y\\n, c@z\n  subject  grün\\x1b[2J\n" in said
    assert "  score    0.700 (unsure) when it came, 0." in said
    assert "  words    subject:taught +" in said
    assert "\x1b" not in said


def test_w_shows_why_and_stays(reviewer: Reviewer) -> None:
    ids = reviewer.fill("taught")
    reviewer.press("s")
    with reviewer.store() as store:
        store.write_journal([seen("other", at=NOW, tokens={"fields": {b"subject:taught": 1}})])
    said = reviewer.press("w", "h").stdout
    assert "subject:taught" in said.split("quit > w\n")[1]
    assert reviewer.labels()["other"] == ("ham", "review", "ann")
    assert len(ids) == 1


def test_w_takes_the_thresholds_of_the_recipients(reviewer: Reviewer, monkeypatch: pytest.MonkeyPatch) -> None:
    own = reviewer.write("own.toml", b'[[recipients]]\nto = ["example.net"]\nunsure = 0.432\n')
    monkeypatch.setenv("SPAMFILTER_CONFIG", str(own))
    reviewer.fill("taught")
    assert "    ham below a score of 0.432, " in reviewer.press("w").stdout


def test_undo_takes_back_one_answer_after_the_other(reviewer: Reviewer) -> None:
    reviewer.fill("one", "two", "three")
    before = [row[:5] for row in reviewer.rows("words")]
    result = reviewer.press("u", "s", " ", "h", "u", "u", "u", "u", "q")
    assert result.exit_code == 0, result.output
    assert result.stdout.count("nothing to undo") == 2
    assert "that was the last one\nu undo, q quit > u\n" in result.stdout
    assert reviewer.labels() == {}
    assert [row[:5] for row in reviewer.rows("words")] == before
    assert reviewer.listed() == ["one", "two", "three"]
    assert reviewer.learnt() == ({"ham": 0, "spam": 0}, [])


def test_what_is_undone_can_be_labelled_otherwise(reviewer: Reviewer) -> None:
    reviewer.fill("one", "two")
    reviewer.press("s", "s", "u", "h", "u", "h")
    assert {name: label for name, (label, _, _) in reviewer.labels().items()} == {"one": "spam", "two": "ham"}
    assert reviewer.learnt() == ({"ham": 1, "spam": 1}, [])


def test_undo_leaves_alone_what_somebody_has_changed_since(reviewer: Reviewer, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = reviewer.fill("one", "two")
    reviewer.marked_meanwhile(monkeypatch, "two", 2, "mark-ham", ids["one"])
    said = reviewer.press("s", "u", "q").stdout
    assert f"{ids['one']}: not undone, because it was changed since" in said
    assert said.endswith("marked 0 ham, 0 spam; skipped 0; 1 left\n")
    assert reviewer.labels() == {"one": ("ham", "cli", "ann")}


def test_what_another_has_labelled_is_passed_over(reviewer: Reviewer, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = reviewer.fill("one", "two", "three")
    run = Review.waiting

    def and_then_another(self: Review, since: datetime, until: datetime) -> object:
        found = run(self, since, until)
        reviewer.done("mark-spam", ids["one"])
        return found

    monkeypatch.setattr(Review, "waiting", and_then_another)
    reviewer.press("h")
    assert {name: label for name, (label, _, _) in reviewer.labels().items()} == {"one": "spam", "two": "ham"}


def test_what_another_labels_while_it_is_shown_stays(reviewer: Reviewer, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = reviewer.fill("one", "two")
    reviewer.marked_meanwhile(monkeypatch, "one", 3, "mark-spam", ids["one"])  # it is listed, shown, and then answered
    said = reviewer.press("h", "h", "u", "u").stdout
    assert f"{ids['one']}: somebody else has marked it meanwhile\n" in said
    assert said.endswith("marked 0 ham, 0 spam; skipped 0; 1 left\n")
    assert reviewer.labels() == {"one": ("spam", "cli", "ann")}


def test_a_mail_of_a_group_that_train_has_learnt_is_not_offered(
    reviewer: Reviewer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPAMFILTER_LEARN__GROUPS", "mailbox")
    file = reviewer.write("one.eml", mail(subject="one"))
    with reviewer.store() as store:
        filter = Filter(store, Settings().voices())
        read = filter.read(parse(file.read_bytes())).for_group("b@example.net")
        store.write_journal([seen("one", digest=read.digest, tokens=read.tokens, at=NOW)])
    assert reviewer.listed() == ["one"]
    reviewer.done("train", "--spam", file)
    assert reviewer.listed() == []
    reviewer.done("forget", file)
    assert "forgotten as ham" in reviewer.press("h", "u").stdout
    assert reviewer.listed() == ["one"]
    assert reviewer.learnt() == ({"ham": 0, "spam": 0}, [])


def test_the_end_of_the_keys_ends_it_and_all_is_kept(reviewer: Reviewer) -> None:
    reviewer.fill("one", "two", "three")
    assert reviewer.press("s").stdout.endswith("marked 0 ham, 1 spam; skipped 0; 2 left\n")
    assert reviewer.press("n").exit_code == 0
    assert reviewer.listed() == ["three", "two"]
    assert "1 unsure message, then 0 others, " in reviewer.done("review", "--limit", "1")
    assert reviewer.press("h", "h").stdout.count("that was the last one") == 1
    assert reviewer.labels().keys() == {"one", "two", "three"}
    assert reviewer.done("review").startswith("nothing needs review: ")


def test_the_list_is_for_scripts(reviewer: Reviewer) -> None:
    ids = reviewer.fill("one", "two", "three")
    reviewer.press("n")
    told = [json.loads(line) for line in reviewer.done("review", "--json").splitlines()]
    assert [(each["id"], each["skipped"]) for each in told] == [
        (ids["two"], False), (ids["three"], False), (ids["one"], True),
    ]  # fmt: skip
    assert set(told[0]) == documented("review --json")
    assert (told[0]["score"], told[0]["now"], told[0]["class"], told[0]["evidence"]) == (0.87, 0.5, "unsure", [])
    assert reviewer.listed("--limit", "2") == ["two", "three"]
    assert reviewer.listed("--since", "2h") == ["one"]
    assert reviewer.labels() == {}


def test_the_limit_counts_only_what_can_be_labelled(reviewer: Reviewer) -> None:
    reviewer.fill("one", "two")
    with reviewer.store() as store:
        store.write_journal([seen("tokenless", 0.899, tokens=None, at=NOW)])
    assert reviewer.listed("--limit", "1") == ["one"]
    assert "1 of 1" in reviewer.run("review", "--limit", "1").stdout


def test_a_script_stops_at_the_first_fault(reviewer: Reviewer, monkeypatch: pytest.MonkeyPatch) -> None:
    reviewer.fill("one", "two")
    monkeypatch.setattr("spamfilter.commands.review.SocketClient", _full_queue)
    result = reviewer.press("s", "s")
    assert result.exit_code == 1
    assert result.stderr == "spamfilter: that is enough for today\n"
    assert result.stdout.count("quit > ") == 1
    assert reviewer.labels() == {}


def _full_queue(path: Path) -> object:
    raise Refused("that is enough for today")


def test_a_database_that_cannot_be_opened_is_named(reviewer: Reviewer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPAMFILTER_STORE__URL", f"sqlite:///{reviewer.folder}/none/spamfilter.db")
    said = reviewer.fails("review")
    assert "review cannot open the database: " in said
    assert said.endswith("run it as the user of the relay\n")


def test_a_running_relay_learns_by_its_socket_and_undoes(tmp_path: Path) -> None:
    with relay(tmp_path / "relay") as server:
        with smtplib.SMTP("127.0.0.1", server.port, "client.example", timeout=30) as client:
            for name in ("one", "two"):
                client.sendmail("a@example.org", ["b@example.test"], mail(subject=name, body=name, name=name))

        def listed() -> list[str]:
            said = server.command("review", "--json").stdout.splitlines()
            return [json.loads(line)["id"] for line in said]

        wait_until(lambda: len(listed()) == 2, "the journal")
        first, second = listed()
        done = server.command("review", input="s\nh\nu\n")
        assert done.returncode == 0, done.stderr
        assert listed() == [second]
        assert f"(review): {first} " in server.log()
        assert server.log().count("(review): ") == 3
        assert "forgotten as ham" in done.stdout


# A real terminal


class Terminal:
    """A pseudo-terminal with `spamfilter review` at its other end."""

    def __init__(self) -> None:
        self.ours, self.theirs = pty.openpty()
        self.before = termios.tcgetattr(self.theirs)
        self.process = Program([*COMMAND, "review"], stdin=self.theirs, stdout=self.theirs, stderr=self.theirs)
        self.said = b""

    def wait(self, text: bytes) -> bytes:
        """All that was said since the last look, once this text is in it."""
        while text not in self.said:
            assert select.select([self.ours], [], [], WAIT_SECONDS)[0], self.said
            self.said += os.read(self.ours, 4096)
        end = self.said.index(text) + len(text)
        found, self.said = self.said[:end], self.said[end:]
        return found

    def press(self, keys: bytes) -> None:
        os.write(self.ours, keys)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(60)
        os.close(self.ours)
        os.close(self.theirs)


def test_one_key_is_enough_in_a_terminal_and_it_is_left_as_it_was(reviewer: Reviewer) -> None:
    reviewer.fill("one", "two", "three", "four")
    terminal = Terminal()
    try:
        assert b"subject  one" in terminal.wait(b"quit > ")
        terminal.press(b"s")
        assert b"learnt as spam" in terminal.wait(b"quit > ")
        terminal.press(b"\x1b[A")  # an arrow is no answer
        terminal.press(b" h")  # typed ahead
        terminal.wait(b"skip")
        assert b"subject  four" in terminal.wait(b"quit > ") + terminal.wait(b"quit > ")
        terminal.press(b"q")
        terminal.wait(b"marked 1 ham, 1 spam; skipped 1; 1 left")
        assert terminal.process.wait(60) == 0
        assert termios.tcgetattr(terminal.theirs) == terminal.before
    finally:
        terminal.close()
    assert {name: label for name, (label, _, _) in reviewer.labels().items()} == {"one": "spam", "three": "ham"}


def test_an_interrupt_in_a_terminal_keeps_what_was_labelled_and_leaves_it_as_it_was(reviewer: Reviewer) -> None:
    reviewer.fill("one", "two")
    terminal = Terminal()
    try:
        terminal.wait(b"quit > ")
        terminal.press(b"s")
        terminal.wait(b"quit > ")
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.process.wait(60) == 130
        assert termios.tcgetattr(terminal.theirs) == terminal.before
    finally:
        terminal.close()
    assert reviewer.labels().keys() == {"one"}
    assert reviewer.listed() == ["two"]


def test_a_fault_in_a_terminal_is_told_and_the_message_stays(reviewer: Reviewer) -> None:
    reviewer.fill("one")
    terminal = Terminal()
    try:
        terminal.wait(b"quit > ")
        with reviewer.store() as store:
            rules = store.get_setting("rules")
            # As if somebody had replaced the counts under it.
            store.put_setting("rebuilt", 1)
            store.put_setting("rules", {"tokenizer": 0})
        terminal.press(b"s")
        assert b"run `spamfilter retrain`" in terminal.wait(b"quit > ")
        with reviewer.store() as store:
            store.put_setting("rules", rules)
        terminal.press(b"s")
        terminal.wait(b"learnt as spam")
        terminal.press(b"q")
        assert terminal.process.wait(60) == 0
    finally:
        terminal.close()
    assert reviewer.labels().keys() == {"one"}
