"""A newsletter that is spam for the users of one domain and ham for those of another, at a running relay."""

import json
import smtplib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from spamfilter.config.likelihood_settings import Learn
from spamfilter.learning.filter import Filter
from spamfilter.service.control_socket.client import SocketClient
from spamfilter.stores import JournalEntry, open_store
from tests.integration.servers import Relay, relay, wait_until
from tests.support.made import mail

FIRST, SECOND, THIRD = "anna@x.example", "bert@y.example", "carla@z.example"


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Relay]:
    learn, verdict = {"groups": "domain"}, {"evidence_header": True}
    with relay(tmp_path, learn=learn, verdict=verdict, relay={"workers": 2}) as server:
        yield server
        assert "Traceback" not in server.log()


def newsletter(number: int) -> bytes:
    return mail(subject="News", body="the newsletter of the month, with all that is new", name=f"news{number}")


def sent(server: Relay, number: int, *recipients: str) -> JournalEntry:
    """Send the newsletter; its entry of the journal."""

    def entries() -> list[JournalEntry]:
        with closing(open_store(f"sqlite:///{server.state / 'spamfilter.db'}")) as store:
            return [
                entry for entry in store.journal_named(f"<news{number}@example.org>")
                if {*entry.recipients} == {*recipients}
            ]  # fmt: skip

    before = {entry.id for entry in entries()}
    with smtplib.SMTP("127.0.0.1", server.port, "client.example", timeout=60) as client:
        client.sendmail("news@example.org", recipients, newsletter(number))
    found: list[JournalEntry] = []

    def written() -> bool:
        found[:] = [entry for entry in entries() if entry.id not in before]
        return bool(found)

    wait_until(written, "the journal")
    return found[0]


def await_following(server: Relay) -> None:
    """Wait until the relay judges by all that is learnt."""

    def follows() -> bool:
        with (
            closing(open_store(f"sqlite:///{server.state / 'spamfilter.db'}")) as store,
            closing(SocketClient(server.state / "feedback.sock")) as client,
        ):
            return bool(client.ask({"command": "status"})["last"] == store.state({}).last)

    wait_until(follows, "what was learnt")


def commanded(server: Relay, *words: str) -> str:
    done = server.command(*words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def follows(server: Relay, number: int, address: str, class_: str) -> JournalEntry:
    """The newsletter as it is judged for this address, as soon as it is judged so by two processes in a row."""
    entries: list[JournalEntry] = []

    def judged() -> bool:
        entries.append(sent(server, number, address))
        return [entry.class_ for entry in entries[-2:]] == [class_, class_]

    wait_until(judged, f"{class_} for {address}")
    return entries[-1]


def test_a_newsletter_is_spam_for_one_domain_and_ham_for_another(running: Relay, tmp_path: Path) -> None:
    for label in ("ham", "spam"):
        folder = tmp_path / label
        folder.mkdir()
        for number in range(20):
            text = mail(
                subject=f"{label} {number}", body=f"a text of {label}, number {number}", name=f"{label}{number}"
            )
            (folder / f"{number}.eml").write_bytes(text)
    commanded(running, "train", "--spam", str(tmp_path / "spam"), "--ham", str(tmp_path / "ham"))
    await_following(running)
    before = sent(running, 1, THIRD)

    for number in range(1, 4):
        commanded(running, "mark-spam", "--by", "anna", sent(running, number, FIRST).id)
        commanded(running, "mark-ham", "--by", "bert", sent(running, number, SECOND).id)
    first, second = follows(running, 9, FIRST, "spam"), follows(running, 9, SECOND, "ham")
    assert first.score > 0.9 > 0.5 > second.score

    third, together = sent(running, 1, THIRD), sent(running, 1, FIRST, SECOND)
    for other in (third, together):
        assert (other.log_odds, other.score, other.evidence) == (before.log_odds, before.score, before.evidence)

    why = json.loads(commanded(running, "judge", "--explain", "--json", first.id))
    assert why["voices"]["own"] > 0
    assert any(item["voice"] == "own" and item["token"].startswith("x.example ") for item in why["evidence"])
    assert "the voice own is what x.example was taught" in commanded(running, "judge", "--explain", first.id)

    commanded(running, "forget", "--by", "anna", "--yes")
    again = follows(running, 1, FIRST, before.class_)
    assert (again.log_odds, again.score) == (before.log_odds, before.score)
    refused = running.command("mark-spam", "--by", "anna", together.id)
    assert refused.returncode == 1
    assert "only the administrator can mark it" in refused.stderr

    with closing(open_store(f"sqlite:///{running.state / 'spamfilter.db'}")) as store:
        assert Filter(store, Learn(groups="domain").chosen()).verify() == []
