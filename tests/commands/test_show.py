"""`spamfilter show`: all that is known of a message, or of a training."""

import json
import re

import pytest

from spamfilter.bayes.labels import BULK
from spamfilter.bayes.voices import view
from spamfilter.config.likelihood_settings import Learn
from spamfilter.config.settings import Settings
from spamfilter.learning.filter import Filter
from spamfilter.mail.message import parse
from tests.project.test_docs import documented
from tests.support.made import journal_entry, mail
from tests.support.shell import Shell

ID = "01KAH3V5E8M6Q2T0J9Z4R7X1CN"


def test_what_is_known_of_a_message_is_shown_by_its_id_and_by_its_training(shell: Shell) -> None:
    message = parse(mail("An offer", "cheap pills for you"))
    with shell.store() as store:
        seen = view(Settings().voices(), message)
        store.write_journal([journal_entry(id=ID, digest=message.digest(), subject="An offer", tokens=seen)])
    shell.done("mark-spam", ID, "--by", "anna")
    shell.done("forget", ID, "--by", "anna")
    by_id, by_number = (shell.done("show", name) for name in (ID, "#1"))
    assert by_id == by_number
    assert "\n  An offer\n" in by_id
    assert re.search(r"\n  #1  \S+ \S+  spam  cli by anna\n  #2  .* taken back  cli by anna\n", by_id)
    assert by_id.endswith("\n  | cheap pills for you\n")
    told = json.loads(shell.done("show", "--json", "2"))
    assert told.keys() == documented("show --json")
    assert (told["message"]["id"], told["text"], told["quarantine"]) == (ID, "cheap pills for you", "")
    assert [entry["label"] for entry in told["history"]] == ["spam", None]


def test_what_everybody_was_taught_of_a_mail_of_a_group_is_shown(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPAMFILTER_LEARN__GROUPS", "domain")
    message = parse(sent := mail("An offer", "cheap pills for you"))
    with shell.store() as store:
        filter = Filter(store, Learn(groups="domain").chosen())
        seen = filter.read(message, "example.net")
        store.write_journal([journal_entry(id=ID, digest=seen.digest, subject="An offer", tokens=seen.tokens)])
    shell.done("train", "--spam", shell.write("offer.eml", sent))
    assert re.search(r"\n  #\d+  \S+ \S+  spam  train by ", shell.done("show", ID))


def test_a_training_that_later_runs_went_over_again_is_one_line(shell: Shell) -> None:
    message = parse(mail("Lunch", "bread"))
    with shell.store() as store:
        filter = Filter(store, Settings().voices())
        with filter.training() as training:
            training.add(filter.read(message), "ham", BULK, "root")
        for amount in (9, 10):
            with filter.training() as training:
                active = training.ledger.active(message.digest())
                assert active is not None
                assert training.reinforce(active, {"fields": amount})
    found = re.findall(r"^  #.*$", shell.done("show", "1"), re.MULTILINE)
    assert len(found) == 1
    assert re.fullmatch(r"  #5  \S+ \S+  ham  train by root, gone over again 2 times", found[0])


def test_a_training_by_file_is_shown_by_the_words_of_its_subject(shell: Shell) -> None:
    shell.done("mark-ham", shell.write("x.eml", mail("Lunch on Friday", "bread")))
    assert "\n  lunch on friday\n" in shell.done("show", "1")
    assert "lunch on friday" in shell.done("stats")


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("7", "7: no training of this number in the ledger"),
        (ID, f"{ID}: no message of this id in the journal"),
        ("x.eml", "x.eml: neither an id (26 letters and digits) nor the number of a training"),
        ("9" * 30, "neither an id"),
    ],
)
def test_what_is_not_known_is_an_error(shell: Shell, name: str, sentence: str) -> None:
    shell.done("mark-ham", shell.write("x.eml", mail("Lunch", "bread")))
    failed = shell.run("show", name)
    assert (failed.exit_code, sentence in failed.stderr) == (2, True)


def test_one_that_is_not_known_keeps_no_other_from_being_shown(shell: Shell) -> None:
    with shell.store() as store:
        store.write_journal([journal_entry(id=ID, subject="An offer")])
    result = shell.run("show", "#7", ID, "neither")
    assert result.exit_code == 2
    assert "An offer" in result.stdout
    assert [line.partition(": ")[2] for line in result.stderr.splitlines()] == [
        "#7: no training of this number in the ledger",
        "neither: neither an id (26 letters and digits) nor the number of a training",
    ]
