"""The command `evaluate`, called like by a user, on mail in files and on the database of an installation."""

import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from xml.etree import ElementTree

import pytest

from spamfilter.bayes.labels import Label
from spamfilter.bayes.likelihoods import LIKELIHOODS
from spamfilter.commands.evaluate import evaluate
from spamfilter.config import settings
from spamfilter.evaluation.error_rates import RATES
from spamfilter.evaluation.protocols import PROTOCOLS, SIZES
from spamfilter.learning.filter import Filter
from spamfilter.mail.message import parse
from tests.project.test_docs import documented
from tests.support.made import journal_entry, mail
from tests.support.shell import Shell

KEYS = {
    "likelihood", "protocol", "part", "taught", "messages", "ham", "spam", "intervals", "microseconds", "known",
    "days", "suspects",
    *RATES,
}  # fmt: skip


def written(shell: Shell, kind: str, number: int) -> Path:
    """A mail of one of two kinds, in a file; later mails have later dates."""
    words = f"cheap pills offer {number % 3}" if kind == "spam" else f"lunch at noon {number % 4}"
    sent = mail(words, f"{words} and all the rest", f"{kind}{number}")
    return shell.write(f"{kind}/{number:02}.eml", sent.replace(b"Date: Sun, 1 Mar", b"Date: %d Mar" % (1 + number)))


def index(shell: Shell, labels: str) -> Path:
    """An index of mails: h and s as they are; H is of spam's kind and labelled ham, S the other way round."""
    lines = []
    for number, letter in enumerate(labels):
        path = written(shell, "spam" if letter in "sH" else "ham", number)
        lines.append(f"{'ham' if letter in 'hH' else 'spam'} {path.relative_to(shell.folder)}\n")
    return shell.write("index", "".join(lines).encode())


def objects(output: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in output.splitlines()]


def evaluated(shell: Shell, *words: object) -> str:
    """Runs the command, which must succeed; its standard output."""
    result = shell.run("evaluate", *words)
    assert result.exit_code == 0, result.output
    assert result.stderr.splitlines() == ["Evaluating"]
    return result.stdout


def refused(shell: Shell, *words: object) -> str:
    """Runs the command, which must fail as ours do; the sentence."""
    result = shell.run("evaluate", *words)
    assert isinstance(result.exception, SystemExit), result.exception
    assert (result.exit_code, result.stdout) == (2, "")
    *before, line = result.stderr.splitlines()
    assert before in ([], ["Evaluating"])
    assert line.startswith("spamfilter: ")
    return line.removeprefix("spamfilter: ")


# Mail in files


def test_an_index_is_evaluated_and_the_table_names_each_contender(shell: Shell) -> None:
    names = ("configured", "bernoulli", "one_rule", "fields=soft,body=poisson")
    options = [word for name in names for word in ("--likelihood", name)]
    text = evaluated(shell, index(shell, "hshshshshs"), "--resamples", "20", *options)
    lines = text.splitlines()
    assert lines[0].split() == [
        "filter", "1-ROCA%", "sm@.1", "LAM%", "hm%", "sm%", "Brier", "ECE", "known%", "us",
    ]  # fmt: skip
    assert [line.split()[0] for line in lines[1:13:3]] == list(names)
    assert all(re.fullmatch(r" +from( +[0-9.]+){7}", line) for line in lines[2:13:3])
    assert all(re.fullmatch(r" +to( +[0-9.]+){7}", line) for line in lines[3:13:3])
    assert lines[14] == "10 messages judged: 5 ham, 5 spam"
    assert [line.split()[0] for line in lines[16:25]] == lines[0].split()[1:]
    assert len({len(line) for line in lines[1:13:3]}) == 1


def test_the_configured_filter_is_evaluated_where_no_other_is_named(shell: Shell) -> None:
    text = evaluated(shell, index(shell, "hshs"), "--resamples", "0")
    assert [line.split()[0] for line in text.splitlines()[:4] if line] == ["filter", "configured", "4"]


def test_folders_are_evaluated_in_the_order_the_mail_arrived(shell: Shell) -> None:
    for number in range(8):
        written(shell, "ham" if number in (0, 1, 2, 5) else "spam", number)
    evaluated(shell, "--spam", "spam", "--ham", "ham", "--scores", "scores", "--resamples", "0")
    labels = [line.split("\t")[0] for line in (shell.folder / "scores").read_text().splitlines()]
    assert labels == ["ham", "ham", "ham", "spam", "spam", "ham", "spam", "spam"]


def test_only_the_first_are_evaluated_where_that_is_asked(shell: Shell) -> None:
    (found,) = objects(evaluated(shell, index(shell, "hshhss"), "--first", "4", "--json", "--resamples", "0"))
    assert (found["messages"], found["ham"], found["spam"]) == (4, 3, 1)


def test_several_indexes_are_one_stream(shell: Shell) -> None:
    first = index(shell, "hs").rename(shell.folder / "first")
    (found,) = objects(evaluated(shell, first, index(shell, "hshs"), "--json", "--resamples", "0"))
    assert found["messages"] == 6


def test_json_is_an_object_for_each_run_with_the_keys_that_are_documented(shell: Shell) -> None:
    path = index(shell, "hshshHshsh")
    lines = objects(
        evaluated(shell, path, "--json", "--likelihood", "soft", "--likelihood", "one_rule", "--resamples", "20")
    )
    assert [line["likelihood"] for line in lines] == ["soft", "one_rule"]
    for line in lines:
        assert line.keys() == KEYS
        assert (line["protocol"], line["part"], line["taught"], line["messages"]) == ("prequential", "", 10, 10)
        assert isinstance(line["intervals"], dict)
        assert line["intervals"].keys() == set(RATES)
        for low, high in line["intervals"].values():
            assert low <= high
        assert line["suspects"] == []


def test_the_keys_and_their_description_name_the_same() -> None:
    assert documented("evaluate --json") == KEYS


def test_without_samples_there_are_no_intervals(shell: Shell) -> None:
    (line,) = objects(evaluated(shell, index(shell, "hshs"), "--json", "--resamples", "0"))
    assert line["intervals"] == {}


def test_a_learning_curve_is_an_object_for_each_contender_and_size(shell: Shell) -> None:
    words = ("--protocol", "learning-curve", "--likelihood", "soft", "--likelihood", "eddc", "--resamples", "0")
    lines = objects(evaluated(shell, index(shell, "hs" * 20), "--json", *words))
    assert [(line["likelihood"], line["part"], line["taught"]) for line in lines] == [
        (name, str(size), size) for size in range(2, 21, 2) for name in ("soft", "eddc")
    ]
    text = evaluated(shell, shell.folder / "index", *words)
    assert [line.split()[:2] for line in text.splitlines()[1 : 1 + 2 * len(SIZES)]] == [
        [name, str(size)] for size in range(2, 21, 2) for name in ("soft", "eddc")
    ]


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("name", ["configured", *LIKELIHOODS, "one_rule"])
def test_every_contender_goes_through_every_protocol(shell: Shell, protocol: str, name: str) -> None:
    path = index(shell, "hshshshshshs")
    folds = ("--folds", "3") if protocol == "cross-validation" else ()
    words = ("--json", "--protocol", protocol, *folds, "--resamples", "5", "--likelihood", name)
    for line in objects(evaluated(shell, path, *words)):
        assert (line["likelihood"], line["protocol"]) == (name, protocol)
        assert all(isinstance(line[rate], float) for rate in RATES)


@pytest.mark.parametrize(
    ("words", "taught"),
    [
        pytest.param(("--feedback", "full"), 20, id="full"),
        pytest.param(("--feedback", "delayed", "--delay", "5"), 15, id="delayed"),
        pytest.param(("--feedback", "partial", "--share", "0"), 0, id="partial-none"),
        pytest.param(("--feedback", "partial", "--share", "100"), 20, id="partial-all"),
        pytest.param(("--feedback", "small-user", "--train-first", "4", "--a-day", "0"), 8, id="small-user"),
        pytest.param(("--protocol", "trained-once"), 10, id="trained-once"),
        pytest.param(("--protocol", "trained-once", "--split", "alternate"), 10, id="alternate"),
        pytest.param(("--protocol", "cross-validation", "--folds", "4"), 60, id="cross-validation"),
    ],
)
def test_options_reach_the_trial(shell: Shell, words: tuple[str, ...], taught: int) -> None:
    (line,) = objects(evaluated(shell, index(shell, "hhss" * 5), "--json", "--resamples", "0", *words))
    assert line["taught"] == taught


def test_thresholds_of_the_configuration_say_what_a_user_is_asked_about(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = (index(shell, "hs" * 15), "--json", "--resamples", "0", "--feedback", "errors-and-unsure")
    (few,) = objects(evaluated(shell, *words))
    monkeypatch.setenv("SPAMFILTER_VERDICT__UNSURE", "0")
    monkeypatch.setenv("SPAMFILTER_VERDICT__SPAM", "1")
    monkeypatch.setenv("SPAMFILTER_VERDICT__REJECT", "0")
    (all,) = objects(evaluated(shell, *words))
    assert 0 < int(str(few["taught"])) < int(str(all["taught"])) == 30


def test_wrong_labels_cost_accuracy_and_the_seed_says_which(shell: Shell) -> None:
    path = index(shell, "hs" * 20)

    def scores(*words: str) -> str:
        evaluated(shell, path, "--scores", "scores", "--resamples", "0", *words)
        return (shell.folder / "scores").read_text()

    assert scores("--noise", "20") == scores("--noise", "20") != scores("--noise", "20", "--seed", "2")
    right, wrong = scores(), scores("--noise", "30")
    assert [line.split("\t")[0] for line in wrong.splitlines()] == ["ham", "spam"] * 20
    assert sum(line.split("\t")[0] == line.split("\t")[3] for line in wrong.splitlines()) < sum(
        line.split("\t")[0] == line.split("\t")[3] for line in right.splitlines()
    )


@pytest.mark.parametrize(
    "words",
    [
        pytest.param((), id="prequential"),
        pytest.param(("--feedback", "delayed", "--delay", "3"), id="delayed"),
        pytest.param(("--protocol", "cross-validation", "--folds", "4"), id="cross-validation"),
    ],
)
def test_scores_are_lines_in_the_order_of_the_index(shell: Shell, words: Sequence[str]) -> None:
    labels = "hsshhhshsshsshhhsshs"
    evaluated(shell, index(shell, labels), "--scores", "scores", "--resamples", "0", "--likelihood", "soft", *words)
    lines = [line.split("\t") for line in (shell.folder / "scores").read_text().splitlines()]
    assert [line[0] for line in lines] == ["ham" if letter == "h" else "spam" for letter in labels]
    assert all(re.fullmatch(r"-?[0-9]+\.[0-9]{6}", odds) for _, odds, *_ in lines)
    for _, _, posterior, class_, known in lines:
        assert class_ == ("spam" if float(posterior) >= 0.9 else "unsure" if float(posterior) >= 0.5 else "ham")
        assert 0 <= float(known) <= 1
    assert float(lines[-1][4]) > 0.5


def test_a_disk_that_is_full_costs_the_file_and_not_the_figures(shell: Shell) -> None:
    result = shell.run("evaluate", index(shell, "hshs"), "--scores", "/dev/full", "--resamples", "0")
    assert (result.exit_code, "4 messages judged: 2 ham, 2 spam" in result.stdout) == (2, True)
    assert result.stderr.endswith("spamfilter: /dev/full: No space left on device\n")


@pytest.mark.parametrize("words", [(), ("--protocol", "learning-curve")], ids=["prequential", "learning-curve"])
@pytest.mark.parametrize("name", ["plot.svg", "plot.png"])
def test_a_picture_is_drawn(shell: Shell, name: str, words: tuple[str, ...]) -> None:
    both = ("--likelihood", "soft", "--likelihood", "one_rule")
    evaluated(shell, index(shell, "hs" * 10), "--plot", name, "--resamples", "10", *both, *words)
    content = (shell.folder / name).read_bytes()
    if name.endswith("png"):
        assert content.startswith(b"\x89PNG\r\n\x1a\n")
    else:
        assert ElementTree.fromstring(content).tag == "{http://www.w3.org/2000/svg}svg"
        assert b"soft" in content
        assert b"one_rule" in content


def test_a_small_user_sees_a_line_for_each_day(shell: Shell) -> None:
    words = ("--feedback", "small-user", "--train-first", "2", "--a-day", "1", "--day", "4", "--resamples", "0")
    text = evaluated(shell, index(shell, "hs" * 7), *words)
    lines = text.partition("configured, day by day:\n")[2].splitlines()
    days = [[int(cell) for cell in line.split()] for line in lines[1:-2]]
    assert [(day, ham, spam) for day, ham, _, _, spam, *_ in days] == [(1, 2, 2), (2, 2, 2), (3, 1, 1)]
    (found,) = objects(evaluated(shell, shell.folder / "index", "--json", *words))
    assert found["days"] == [
        dict(
            zip(
                ("ham", "ham_as_spam", "ham_unsure", "spam", "spam_as_ham", "spam_unsure", "marks"),
                day[1:],
                strict=True,
            )
        )
        for day in days
    ]


def test_planted_wrong_labels_are_named(shell: Shell) -> None:
    path = index(shell, "hs" * 8 + "H" + "sh" * 4 + "S" + "hs" * 2)
    text = evaluated(shell, path, "--wrong-labels", "2", "--resamples", "0", "--likelihood", "multinomial")
    doubts = text.partition("labels that look wrong to multinomial:\n")[2].splitlines()
    assert len(doubts) == 2
    assert {line.split(":")[0].strip() for line in doubts} == {
        str(shell.folder / "spam" / "16.eml"), str(shell.folder / "ham" / "25.eml"),
    }  # fmt: skip
    assert any(re.search(r"/16\.eml: labelled ham, probability of spam (0\.[5-9]|1\.)", line) for line in doubts)
    (line,) = objects(
        evaluated(shell, path, "--wrong-labels", "1", "--resamples", "0", "--json", "--likelihood", "multinomial")
    )
    assert isinstance(line["suspects"], list)
    (suspect,) = line["suspects"]
    assert suspect.keys() == {"name", "label", "posterior"}
    assert suspect["name"].endswith(("/16.eml", "/25.eml"))


def test_where_no_label_is_doubted_that_is_said(shell: Shell) -> None:
    words = ("--protocol", "trained-once", "--resamples", "0", "--likelihood", "multinomial", "--wrong-labels", "3")
    text = evaluated(shell, index(shell, "hs" * 10), *words)
    assert text.endswith("labels that look wrong to multinomial:\n  none\n")


# The installation's own mail


def installed(shell: Shell, labels: str = "hshshs") -> None:
    """An installation that has judged these mails, and was then told what they are."""
    now = datetime.now(UTC) - timedelta(days=2)
    with shell.store() as store:
        filter = Filter(store, settings.Settings().voices())
        for number, letter in enumerate(labels):
            kind: Label = "ham" if letter == "h" else "spam"
            reading = filter.read(parse(written(shell, kind, number).read_bytes()))
            score = 0.2 if (kind == "ham") != (number == 2) else 0.8
            store.write_journal([journal_entry(digest=reading.digest, at=now, score=score, log_odds=score - 0.5)])
            filter.learn(reading, kind, "cli", at=now + timedelta(hours=1 + number))


def test_the_installations_own_mail_is_evaluated_beside_the_verdicts_it_got(shell: Shell) -> None:
    installed(shell)
    lines = objects(evaluated(shell, "--live", "--json", "--resamples", "10", "--likelihood", "soft"))
    assert [(line["likelihood"], line["protocol"], line["messages"]) for line in lines] == [
        ("journal", "as judged", 6), ("soft", "prequential", 6),
    ]  # fmt: skip
    assert (lines[0]["hm"], lines[0]["sm"]) == (pytest.approx(100 / 3), 0.0)
    assert all(line.keys() == KEYS for line in lines)
    text = evaluated(shell, "--live", "--resamples", "0", "--wrong-labels", "5")
    assert [line.split()[0] for line in text.splitlines()[1:3]] == ["journal", "configured"]
    assert "labels that look wrong to journal:" in text


def test_without_verdicts_of_both_classes_the_journal_is_left_out(shell: Shell) -> None:
    for number in range(3):
        shell.done("mark-ham", written(shell, "ham", number))
        shell.done("mark-spam", written(shell, "spam", number))
    (line,) = objects(evaluated(shell, "--live", "--json", "--resamples", "0"))
    assert line["likelihood"] == "configured"


def test_a_picture_of_the_installations_learning_curve_is_drawn(shell: Shell) -> None:
    installed(shell, "hs" * 10)
    evaluated(shell, "--live", "--protocol", "learning-curve", "--resamples", "10", "--plot", "plot.svg")
    assert (shell.folder / "plot.svg").stat().st_size > 1000


@pytest.mark.parametrize(
    "words",
    [("--live",), ("--live", "--likelihood", "bernoulli"), ("index",), ("--spam", "spam", "--ham", "ham")],
    ids=["live", "live-by-another-likelihood", "index", "folders"],
)
def test_the_database_stays_as_it_is(shell: Shell, words: tuple[str, ...]) -> None:
    installed(shell)
    index(shell, "hshs")
    before = {path.name: path.read_bytes() for path in shell.folder.glob("spamfilter.db*")}
    evaluated(shell, *words, "--resamples", "0", "--wrong-labels", "3", "--scores", "scores")
    assert {path.name: path.read_bytes() for path in shell.folder.glob("spamfilter.db*")} == before
    assert before.keys() == {"spamfilter.db"}


def test_mail_in_files_needs_no_database(shell: Shell) -> None:
    evaluated(shell, index(shell, "hshs"), "--resamples", "0")
    assert list(shell.folder.glob("spamfilter.db*")) == []


def test_a_database_of_other_rules_can_be_evaluated_all_the_same(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(shell)
    monkeypatch.setenv("SPAMFILTER_LEARN__LIKELIHOOD", "multinomial")
    lines = objects(evaluated(shell, "--live", "--json", "--resamples", "0"))
    assert [line["likelihood"] for line in lines] == ["journal", "configured"]


# What a user got wrong


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        pytest.param((), "name some mail: an INDEX, or --spam PATH and --ham PATH, or else --live", id="no-mail"),
        pytest.param(("index", "--live"), "or else --live", id="index-and-live"),
        pytest.param(("--live", "--spam", "spam"), "or else --live", id="folder-and-live"),
        pytest.param(
            ("index", "--scores", "x", "--likelihood", "soft", "--likelihood", "eddc"),
            "--scores holds one run",
            id="scores-of-two",
        ),
        pytest.param(
            ("index", "--scores", "x", "--protocol", "learning-curve"), "--scores holds one run", id="scores-of-a-curve"
        ),
        pytest.param(("index", "--protocol", "none"), "'none' is not one of 'prequential'", id="protocol"),
        pytest.param(("index", "--feedback", "none"), "'none' is not one of 'full'", id="feedback"),
        pytest.param(("index", "--split", "none"), "'none' is not one of 'time'", id="split"),
        pytest.param(("index", "--folds", "1"), "1 is not in the range", id="one-fold"),
        pytest.param(("index", "--noise", "51"), "51.0 is not in the range", id="more-noise-than-labels"),
        pytest.param(("index", "--share", "101"), "101.0 is not in the range", id="more-than-all"),
        pytest.param(("index", "--first", "0"), "0 is not in the range", id="none-of-them"),
        pytest.param(("index", "--delay", "0"), "0 is not in the range", id="no-delay"),
        pytest.param(("index", "--resamples", "-1"), "-1 is not in the range", id="resamples"),
        pytest.param(("index", "--wrong-labels", "-1"), "-1 is not in the range", id="wrong-labels"),
    ],
)
def test_wrong_usage_is_exit_code_2_with_the_usage_and_one_line_that_says_why(
    shell: Shell, words: tuple[str, ...], sentence: str
) -> None:
    index(shell, "hshs")
    result = shell.run("evaluate", *words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Usage: " in result.stderr
    (line,) = (line for line in result.stderr.splitlines() if line.startswith("Error: "))
    assert sentence in line
    assert not (shell.folder / "x").exists()


def test_a_table_is_no_mail(shell: Shell) -> None:
    index(shell, "hshs")
    shell.write("table.csv", b"outlook,play\nsunny,no\n")
    result = shell.run("evaluate", "--spam", "table.csv", "--ham", "ham")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("spamfilter: table.csv: begins with no header field, so it is no mail; tables")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        pytest.param(
            ("index", "--likelihood", "sfot"), "'sfot': not a contender; name configured, one_rule", id="name"
        ),
        pytest.param(("--spam", "empty", "--ham", "ham"), "empty: no mail in it", id="empty-folder"),
        pytest.param(("--spam", "none", "--ham", "ham"), "none: no such file or folder", id="missing-folder"),
        pytest.param(("--ham", "ham"), "no spam among 2 messages to judge", id="folder-of-one-class"),
        pytest.param(("one-class",), "no spam among 2 messages to judge", id="index-of-one-class"),
        pytest.param(("nothing",), "no ham among 0 messages to judge", id="empty-index"),
        pytest.param(("index", "--first", "1"), "no spam among 1 messages to judge", id="first-of-one-class"),
        pytest.param(("none",), "none: cannot be read as an index", id="missing-index"),
        pytest.param(("bad",), "bad: line 1: ", id="bad-index"),
        pytest.param(("lost",), "ham/99.eml: No such file or directory", id="missing-mail"),
        pytest.param(
            ("index", "--protocol", "cross-validation", "--folds", "5"),
            "4 messages cannot be divided into 5 folds",
            id="folds",
        ),
        pytest.param(("index", "--plot", "x.pdf"), "x.pdf: a plot ends in .svg or .png", id="plot-format"),
        pytest.param(("index", "--plot", "none/x.svg"), "none/x.svg: there is no folder none", id="plot-place"),
        pytest.param(("index", "--scores", "none/x"), "none/x: there is no folder none", id="scores-place"),
        pytest.param(("index", "--scores", "/tmp"), "/tmp: is a folder; name a file", id="scores-folder"),
        pytest.param(("--live",), "spamfilter.db: no database yet", id="nothing-learnt"),
    ],
)
def test_what_a_user_got_wrong_is_one_line_that_names_it(shell: Shell, words: tuple[str, ...], sentence: str) -> None:
    (shell.folder / "empty").mkdir()
    index(shell, "hshs")
    shell.write("one-class", b"ham ham/00.eml\nham ham/02.eml\n")
    shell.write("nothing", b"\n")
    shell.write("bad", b"spma ham/00.eml\n")
    shell.write("lost", b"ham ham/00.eml\nspam spam/01.eml\nham ham/99.eml\n")
    assert sentence in refused(shell, *words, "--resamples", "0")


def test_a_voice_that_the_ledger_has_no_tokens_of_is_named(shell: Shell) -> None:
    installed(shell)
    assert refused(shell, "--live", "--likelihood", "grams=soft").endswith(
        "spamfilter.db: the ledger has no tokens of grams; evaluate mail"
    )


def test_the_choices_on_the_command_line_are_the_protocols_there_are() -> None:
    (option,) = (parameter for parameter in evaluate.params if parameter.name == "protocol")
    assert list(option.to_info_dict()["type"]["choices"]) == list(PROTOCOLS)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--train-first 20", "--train-first goes with --feedback small-user"),
        ("--protocol cross-validation --feedback partial", "--feedback goes with --protocol prequential"),
        ("--split alternate", "--split goes with --protocol trained-once or --protocol learning-curve"),
    ],
)
def test_an_option_that_would_change_nothing_is_refused(shell: Shell, words: str, said: str) -> None:
    result = shell.run("evaluate", "--live", *words.split())
    assert (result.exit_code, said in result.stderr) == (2, True)
