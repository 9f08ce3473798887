"""Is mail judged as well after an import as by the filter that the dump came from?

bogofilter, SpamAssassin and SpamBayes each learn the first TRAINED mails of a stream, say what they have learnt in
their own dump, and judge the next mails; the dump is imported into an empty database, which judges the same mails.
Classes are those of each filter's own cut-offs: bogofilter's as it comes; of SpamAssassin's Bayes spam is BAYES_99 and
ham up to .5; SpamBayes' .9 and .2. Ours are those of the thresholds as shipped.

    python benchmarks/imported.py [--filter NAME]... [--result FILE]

Needs SPAMFILTER_CORPORA and the filters: bogofilter and spamassassin of Debian; SpamBayes 1.1b3 needs Python 2, which
SPAMFILTER_PYTHON2 names, with SpamBayes and its scripts in PYTHONPATH. One that is missing is left out and named. Takes
half an hour, most of it SpamAssassin's. Exits with 1 where ours calls more ham spam, or catches less of the spam, by
more than TOLERATED.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from corpora import unpacked
from peers import stripped
from results import write_result

from spamfilter.bayes.labels import LABELS, Label
from spamfilter.bayes.verdict import Class
from spamfilter.config.settings import Settings
from spamfilter.evaluation.error_rates import roc_area_above
from spamfilter.learning.filter import Filter
from spamfilter.learning.transfer.dumps import read_dump
from spamfilter.learning.transfer.imports import Import, take_in
from spamfilter.mail.message import parse
from spamfilter.stores import open_store

TRAINED, JUDGED = 2000, 1000
TOLERATED = 3.0
"""Per cent of a class by which ours may be worse: the standard error of a rate among the 150 spams of the smallest."""
STREAMS = {
    "SpamAssassin, interleaved": ("spamassassin", "index.interleaved"),
    "SpamAssassin, chronological": ("spamassassin", "index"),
    "TREC 2007": ("trec07p-first20000", "index"),
}


@dataclass(frozen=True)
class Stream:
    """Files of mails without the header fields of other filters, and their labels."""

    train: Sequence[tuple[Label, Path]]
    judge: Sequence[tuple[Label, Path]]

    @classmethod
    def of(cls, corpus: str, index: str, folder: Path) -> "Stream":
        root, found = unpacked(corpus), list[tuple[Label, Path]]()
        lines = (root / index).read_text(encoding="utf-8").split("\n")
        for number, line in enumerate(lines[: TRAINED + JUDGED]):
            label, _, name = line.partition(" ")
            file = folder / f"{number}.eml"
            file.write_bytes(stripped((root / name).read_bytes()))
            found.append((next(each for each in LABELS if each == label), file))
        return cls(found[:TRAINED], found[TRAINED:])


def bogofilter(stream: Stream, folder: Path) -> tuple[bytes, list[float]]:
    base = ["bogofilter", "-C", "-d", str(folder)]
    for label, option in (("ham", "-n"), ("spam", "-s")):
        names = "\n".join(str(file) for each, file in stream.train if each == label)
        subprocess.run([*base, option, "-b"], input=names, text=True, check=True)
    dump = subprocess.run(["bogoutil", "-d", folder / "wordlist.db"], capture_output=True, check=True).stdout
    said = [
        subprocess.run([*base, "-TT"], input=file.read_bytes(), capture_output=True).stdout for _, file in stream.judge
    ]
    return dump, [float(p) for p in said]


_RULES = """loadplugin Mail::SpamAssassin::Plugin::Check
loadplugin Mail::SpamAssassin::Plugin::Bayes
use_bayes 1
use_learner 1
bayes_auto_learn 0
bayes_auto_expire 0
body BAYES_99 eval:check_bayes('0.99', '1.00')
tflags BAYES_99 learn
score BAYES_99 3.5
"""
_STOP_WORDS = Path("/usr/share/spamassassin/60_bayes_stopwords.cf")
"""Of Debian's package."""
_JUDGE = r"""use strict; use Mail::SpamAssassin; my ($rules, $state) = @ARGV;
my $filter = Mail::SpamAssassin->new({rules_filename => $rules, site_rules_filename => "$rules/none",
  userprefs_filename => '/dev/null', local_tests_only => 1, dont_copy_prefs => 1, userstate_dir => $state,
  post_config_text => "bayes_path $state/bayes\n"});
$filter->init(1);
while (my $name = <STDIN>) { chomp $name; open my $file, '<:raw', $name or die "$name: $!";
  my $data = do { local $/; <$file> }; my $mail = $filter->parse($data); my $status = $filter->check($mail);
  print $status->{bayes_score} // 0.5, "\n"; $status->finish; $mail->finish; }
"""


def spamassassin(stream: Stream, folder: Path) -> tuple[bytes, list[float]]:
    rules, state = folder / "rules", folder / "state"
    for each in (rules, state):
        each.mkdir()
    (rules / "10_bayes.cf").write_text(_RULES, encoding="utf-8")
    (rules / _STOP_WORDS.name).symlink_to(_STOP_WORDS)  # without its list, words with one of these in them are left out
    base = ["sa-learn", "-p", "/dev/null", f"--siteconfigpath={rules}/none", f"--configpath={rules}"]
    base += ["--cf", f"bayes_path {state}/bayes"]
    for label in LABELS:
        (folder / label).mkdir()
        for given, file in stream.train:
            if given == label:
                (folder / label / file.name).symlink_to(file)
        subprocess.run([*base, f"--{label}", folder / label], check=True, capture_output=True)
    dump = subprocess.run([*base, "--backup"], capture_output=True, check=True).stdout
    names = "".join(f"{file}\n" for _, file in stream.judge)
    said = subprocess.run(["perl", "-e", _JUDGE, rules, state], input=names, capture_output=True, text=True, check=True)
    return dump, [float(p) for p in said.stdout.split()]


_SPAMBAYES = r"""
import sys
from spambayes.storage import open_storage
from spambayes.tokenizer import tokenize
import sb_dbexpimp
folder = sys.argv[1]
def read(name):
    return open(name, 'rb').read()
filter = open_storage(folder + '/db', 'pickle')
for line in open(folder + '/train'):
    label, name = line.split()
    filter.learn(tokenize(read(name)), label == 'spam')
filter.store()
sb_dbexpimp.runExport(folder + '/db', 'pickle', folder + '/dump')
said = open(folder + '/said', 'w')
for line in open(folder + '/judge'):
    said.write('%r\n' % filter.spamprob(tokenize(read(line.split()[1]))))
"""


def spambayes(stream: Stream, folder: Path) -> tuple[bytes, list[float]]:
    for name, mails in (("train", stream.train), ("judge", stream.judge)):
        (folder / name).write_text("".join(f"{label} {file}\n" for label, file in mails), encoding="utf-8")
    python = os.environ.get("SPAMFILTER_PYTHON2", "python2")
    subprocess.run([python, "-c", _SPAMBAYES, str(folder)], check=True, capture_output=True)
    return (folder / "dump").read_bytes(), [float(p) for p in (folder / "said").read_text().split()]


FILTERS: dict[str, tuple[Callable[[Stream, Path], tuple[bytes, list[float]]], float, float]] = {
    "bogofilter": (bogofilter, 0.45, 0.99),
    "spamassassin": (spamassassin, 0.5, 0.99),
    "spambayes": (spambayes, 0.2, 0.9),
}
"""Filter -> what trains it and lets it judge, and its cut-offs of ham and spam."""
Figures = tuple[float, float, float, float, float]


def imported(dump: bytes, stream: Stream, folder: Path) -> tuple[list[float], list[Class], float]:
    """Log-odds and classes after the import into an empty database, and the share of words known."""
    file = folder / "dump.txt"
    file.write_bytes(dump)
    settings = Settings()
    with closing(open_store(f"sqlite:///{folder}/spamfilter.db")) as store:
        filter = Filter(store, settings.voices())
        take_in(filter, Import.of_dump(read_dump(file)), b"benchmark".ljust(16), "")
        scores = [filter.score(filter.read(parse(file.read_bytes()))) for _, file in stream.judge]
        classes = [settings.policy().classify(score, filter.learnt) for score in scores]
    return [score.log_odds for score in scores], classes, sum(score.known for score in scores) / len(scores)


def figures(labels: Sequence[Label], classes: Sequence[Class], scores: Sequence[float]) -> Figures:
    """Per cent of ham called spam, of spam called spam and called ham, of all mail unsure; and 1-ROCA%."""

    def share(label: Label, class_: Class) -> float:
        both = sum(one == label and other == class_ for one, other in zip(labels, classes, strict=True))
        return 100 * both / labels.count(label)

    unsure = 100 * classes.count("unsure") / len(classes)
    odds = np.array(scores)
    is_spam = np.array([label == "spam" for label in labels])
    area = roc_area_above(np.sort(odds[~is_spam]), np.sort(odds[is_spam]))
    return share("ham", "spam"), share("spam", "spam"), share("spam", "ham"), unsure, area


def row(stream: str, name: str, of: Figures) -> str:
    lost, caught, passed, unsure, area = of
    return f"| {stream} | {name} | {lost:.2f} | {caught:.1f} | {passed:.1f} | {unsure:.1f} | {area:.3f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--filter", action="append", choices=FILTERS, help="only this filter")
    parser.add_argument("--result", type=Path, help="write the table to this file, too")
    arguments = parser.parse_args()
    lines = [
        "| stream | filter | ham called spam | spam called spam | spam called ham | unsure | 1-ROCA% |",
        "|---|---|---|---|---|---|---|",
    ]
    worse, known = [], []
    memory = Path("/dev/shm")
    for stream_name, (corpus, index) in STREAMS.items():
        for name in arguments.filter or FILTERS:
            judge, ham, spam = FILTERS[name]
            with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as made:
                folder, mails = Path(made), Path(made, "mails")
                for each in (mails, folder / "theirs", folder / "ours"):
                    each.mkdir()
                stream = Stream.of(corpus, index, mails)
                try:
                    dump, said = judge(stream, folder / "theirs")
                except (FileNotFoundError, subprocess.CalledProcessError) as error:
                    sys.stderr.write(f"left out: {name} ({error})\n")
                    continue
                labels = [label for label, _ in stream.judge]
                classes: list[Class] = ["spam" if p >= spam else "ham" if p <= ham else "unsure" for p in said]
                theirs = figures(labels, classes, said)
                scores, our_classes, share = imported(dump, stream, folder / "ours")
                ours = figures(labels, our_classes, scores)
            known.append(f"{name} {100 * share:.0f} %")
            lines += [row(stream_name, name, theirs), row(stream_name, f"after the import of {name}", ours)]
            print("\n".join(lines[-2:]), flush=True)
            if ours[0] > theirs[0] + TOLERATED or ours[1] < theirs[1] - TOLERATED:
                worse.append(f"{stream_name}, {name}")
    lines += ["", f"Per cent. {TRAINED} mails trained, the next {JUDGED} judged. Words known: {', '.join(known)}."]
    lines += [f"Worse: {each}" for each in worse]
    if arguments.result:
        write_result(arguments.result, "After an import", __file__, "\n".join([*lines, ""]))
    if worse:
        sys.exit("\n".join(worse))


if __name__ == "__main__":
    main()
