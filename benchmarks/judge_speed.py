"""What does it cost to judge a mail, stage by stage, and beside other filters?

Learns the first 10,000 mails of trec07p-first20000, and judges every tenth of the others, with the default voices and
with `fields` alone, with the compiled helper and in plain Python. bogofilter registers the same mails, and judges the
same in bulk (`bogofilter -b`), one run in each round beside ours, so that a noisy machine is noisy for both. All times
are of the processor, in microseconds a mail; reading the file is part of it, starting the program is not: of bogofilter
the time of a run without mails is taken off. spamassassin, where it is installed, judges fewer mails in one process,
by its Bayes classifier alone, which has learnt fewer. What is packed for journal and ledger is no part of judging, and
stands below it, as the extra `fast` packs it and as zlib does.

`spamfilter judge` over COMMAND files in one call stands beside `bogofilter -T -b` over the same files, the start of
both included, each with a database on the same disk.

Each stage goes through all mails before the next begins, so that it finds the caches as judging does.

    python benchmarks/judge_speed.py [--rounds N] [--result FILE]

Needs SPAMFILTER_CORPORA, bogofilter (apt-get install bogofilter) and the extra `fast`; takes a minute or some. Exits
with 1 where the default voices take more than bogofilter, `fields` alone more than 0.6 of it, or the slowest of a
hundred mails more than 8 times the median, or the command more than bogofilter.
"""

import argparse
import gc
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import mean, median, quantiles
from typing import Any

from corpora import unpacked
from results import write_result

from spamfilter.bayes import model
from spamfilter.bayes.counts import Counts
from spamfilter.bayes.labels import Label
from spamfilter.bayes.token_arrays import TokenArrays
from spamfilter.bayes.token_codec import pack, pack_seen
from spamfilter.bayes.tokens import Tokens
from spamfilter.bayes.verdict import EVIDENCE_SHOWN, Policy
from spamfilter.bayes.voices import everybodys, view
from spamfilter.config.settings import Settings
from spamfilter.learning.bulk.labelled_mail import find_indexed
from spamfilter.learning.filter import Filter
from spamfilter.mail.message import parse
from spamfilter.relay.judging import Judge
from spamfilter.system import compression

sys.path.insert(0, str(Path(__file__).parents[1]))  # the store in memory is the tests'

from tests.support.memory_store import open_store

LEARNT, EVERY = 10_000, 10
SPAMASSASSIN_LEARNT, SPAMASSASSIN_JUDGED = 300, 120
"""Of each class: its classifier wants 200, and knows copies of one mail for one. It takes some ten times as long."""
COMMAND = 3_000
"""Files that the command judges in one call."""
COMMAND_BOUND = 1.0
BOUNDS = {"default voices": 1.0, "`fields` alone": 0.6}
TAIL = 8.0
STAGES = ("parse", "tokens", "look-up", "score", "evidence")
KEEPING = {"kept for the journal": pack_seen, "kept for the ledger": pack}
"""What is packed of a mail besides."""
Times = dict[str, list[float]]


def trec() -> tuple[list[tuple[Label, str]], list[str]]:
    """The labelled mails to learn, and those to judge."""
    mails = [(label, mail.name) for label, mail in find_indexed(unpacked("trec07p-first20000") / "index")]
    return mails[:LEARNT], [name for _, name in mails[LEARNT::EVERY]]


def nasty() -> list[str]:
    return sorted(str(path) for path in unpacked("nasty").rglob("*") if path.is_file())


class Ours:
    """Our filter at work, in the process that this is."""

    def __init__(self) -> None:
        voices = Settings().voices()
        state = model.empty(voices)
        for label, name in trec()[0]:
            tokens = view(voices, parse(Path(name).read_bytes()))
            model.taught(voices, tokens, label, state, model.score(voices, tokens, state))
        self.state, self.judges = state, {}
        gc.collect()
        gc.freeze()  # as the relay's workers do
        # A voice learns from its own score alone: its counts are the same, whichever others there are.
        for named, some in (("default voices", voices), ("`fields` alone", voices[:1])):
            filter = Filter(open_store("memory:"), some)
            filter.adopt(state)
            self.judges[named] = Judge(filter, Policy())

    def bulk(self, named: str) -> float:
        """Microseconds a mail, files read one after the other."""
        judge, names = self.judges[named].judge, trec()[1]
        began = time.thread_time_ns()
        for name in names:
            with open(name, "rb", 0) as file:
                judge(file.read(), "id")
        return (time.thread_time_ns() - began) / 1000 / len(names)

    def stages(self, names: Sequence[str]) -> Times:
        """Stage -> microseconds of each mail."""
        judge = self.judges["default voices"]
        filter = judge.filter
        state, voices = self.state, filter.voices
        mails = [Path(name).read_bytes() for name in names]
        found: Times = {}

        def timed(stage: str, work: Callable[[Any], Any], given: Sequence[Any]) -> list[Any]:
            made, times = [], []
            for each in given:
                began = time.thread_time_ns()
                made.append(work(each))
                times.append((time.thread_time_ns() - began) / 1000)
            found[stage] = times
            return made

        messages = timed("parse", parse, mails)
        readings = timed("tokens", lambda message: dict((read := filter.read(message)).tokens) and read, messages)
        tokens = [reading.tokens for reading in readings]
        timed(
            "look-up",
            lambda seen: [numbers(seen[voice.name], state.counts[voice.name]) for voice in everybodys(voices)],
            tokens,
        )
        timed("score", lambda seen: model.score(voices, seen, state), tokens)
        timed("evidence", lambda seen: model.explained(voices, seen, state, EVIDENCE_SHOWN), tokens)
        timed("all of it", lambda mail: judge.judge(mail, "id"), mails)
        for keeping, packed in KEEPING.items():
            timed(keeping, packed, tokens)
            with by_zlib():
                timed(f"{keeping}, by zlib", packed, tokens)
        for stage, part in (("evidence", "score"), ("score", "look-up")):  # each held the one before
            found[stage] = [max(0.0, whole - less) for whole, less in zip(found[stage], found[part], strict=True)]
        return found


@contextmanager
def by_zlib() -> Iterator[None]:
    """As where the extra `fast` is not installed."""
    chosen, compression._compress = compression._compress, zlib.compress
    try:
        yield
    finally:
        compression._compress = chosen


def numbers(tokens: Tokens, counts: Counts) -> object:
    return counts.numbers(tokens.spellings if isinstance(tokens, TokenArrays) else list(tokens))


class Beside:
    """`Ours` in another process, with the compiled helper or without."""

    def __init__(self, plain: bool) -> None:
        environment = {**os.environ, **({"SPAMFILTER_PLAIN": "1"} if plain else {})}
        command = [sys.executable, __file__, "--worker"]
        self._process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.ask("ready")

    def ask(self, *question: str) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(question), file=self._process.stdin, flush=True)
        return json.loads(self._process.stdout.readline())

    def end(self) -> None:
        self._process.communicate()


def work() -> None:
    """Answer what `Beside.ask` asks, line by line."""
    ours = Ours()
    for line in sys.stdin:
        match json.loads(line):
            case ["bulk", named]:
                said: object = ours.bulk(named)
            case ["stages", "nasty"]:
                said = ours.stages(nasty())
            case ["stages", _]:
                said = ours.stages(trec()[1])
            case _:
                said = None
        print(json.dumps(said), flush=True)


def spent(command: Sequence[str], names: Sequence[str]) -> float:
    """Microseconds of processor time that a program takes over files named on its standard input."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, input="".join(f"{name}\n" for name in names), text=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in (0, 1, 2) or done.stderr:
        raise RuntimeError(f"{command[0]}: {done.stderr}")
    return 1e6 * (after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)


class Bogofilter:
    """bogofilter with the defaults it comes with, its database in memory."""

    def __init__(self, folder: str) -> None:
        self._command = ["bogofilter", "-C", "--db-transaction=no", "-d", folder, "-b"]
        for label, option in (("spam", "-s"), ("ham", "-n")):
            spent([*self._command, option], [name for each, name in trec()[0] if each == label])

    def bulk(self) -> float:
        """Microseconds a mail, without those of its start."""
        names = trec()[1]
        return (spent([*self._command, "-T"], names) - spent([*self._command, "-T"], [])) / len(names)


def command(folder: str, rounds: int) -> list[float]:
    """What `spamfilter judge` takes of bogofilter's processor time over many files, the start of both included."""
    index, peer = Path(folder, "index"), Path(folder, "command")
    index.write_text("".join(f"{label} {name}\n" for label, name in trec()[0]), encoding="utf-8")
    peer.mkdir()
    theirs = ["bogofilter", "-C", "-d", str(peer), "-b"]
    for label, option in (("spam", "-s"), ("ham", "-n")):
        spent([*theirs, option], [name for each, name in trec()[0] if each == label])
    ours = ["env", f"SPAMFILTER_STORE__URL=sqlite:///{folder}/ours.db", sys.executable, "-m", "spamfilter"]
    subprocess.run([*ours, "train", "--index", str(index)], check=True, capture_output=True)
    names = [mail.name for _, mail in find_indexed(unpacked("trec07p-first20000") / "index")][LEARNT:][:COMMAND]
    return [spent([*ours, "judge", *names], []) / spent([*theirs, "-T"], names) for _ in range(rounds)]


_PERL = r"""
my $plugins = join "", map { "loadplugin Mail::SpamAssassin::Plugin::$_\n" } qw(Check Bayes);
my $sa = Mail::SpamAssassin->new({local_tests_only => 1, dont_copy_prefs => 1, userprefs_filename => "/dev/null",
    rules_filename => "$ENV{HOME}/none", site_rules_filename => "$ENV{HOME}/none", post_config_text =>
    "${plugins}bayes_path $ENV{HOME}/bayes\nbayes_auto_learn 0\nutil_rb_tld com net org\n"
    . "body BAYES_99 eval:check_bayes('0.99', '1.00')\nscore BAYES_99 5\n"});
$sa->init(1);
while (<STDIN>) {
    chomp; my ($label, $file) = split / /, $_, 2;
    open my $in, "<", $file or die; binmode $in; my @lines = <$in>; my $mail = $sa->parse(\@lines);
    if ($label eq "judge") { my $status = $sa->check($mail); print $status->get_hits, "\n"; $status->finish(); }
    else { $sa->learn($mail, undef, $label eq "spam", 0); }
    $mail->finish();
}
"""


def spamassassin(folder: str) -> float | None:
    """Microseconds a mail, without those of its start; None where it is not installed."""
    if not shutil.which("spamassassin"):
        return None
    Path(folder, "none").mkdir()
    command = ["env", f"HOME={folder}", "perl", "-MMail::SpamAssassin", "-e", _PERL]
    few = [
        f"{label} {name}"
        for wanted in ("ham", "spam")
        for label, name in [mail for mail in trec()[0] if mail[0] == wanted][:SPAMASSASSIN_LEARNT]
    ]
    spent(command, few)
    judged = [f"judge {name}" for name in trec()[1][:SPAMASSASSIN_JUDGED]]
    first = len(judged) // 4  # loads what the others need
    return (spent(command, judged) - spent(command, judged[:first])) / (len(judged) - first)


def quartiles(values: Sequence[float], digits: int) -> str:
    low, middle, high = quantiles(values, n=4)
    return f"{middle:.{digits}f} ({low:.{digits}f}-{high:.{digits}f})"


def of_each_mail(rounds: Sequence[Times]) -> Times:
    """The median over the rounds for each mail, by stage."""
    return {
        stage: [median(mail) for mail in zip(*(each[stage] for each in rounds), strict=True)] for stage in rounds[0]
    }


def tail(times: Sequence[float]) -> float:
    return quantiles(times, n=100)[-1]


def stage_lines(corpus: str, times: Times) -> list[str]:
    return [
        f"| {corpus} | {stage} | {mean(times[stage]):.0f} | {median(times[stage]):.0f} | {tail(times[stage]):.0f} |"
        for stage in times
    ]


def slowest_lines(corpus: str, names: Sequence[str], times: Times) -> list[str]:
    usual = median(times["all of it"])
    slowest = sorted(range(len(names)), key=times["all of it"].__getitem__, reverse=True)[:5]
    lines = []
    for at in slowest:
        most = max(STAGES, key=lambda stage: times[stage][at])
        took, path = times["all of it"][at], Path(names[at])
        lines.append(
            f"| {corpus} | {path.parent.name}/{path.name} | {path.stat().st_size:,} | {took:.0f} | {took / usual:.1f}"
            f" | {most}, {times[most][at]:.0f} |"
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--result", type=Path, help="write the tables to this file, too")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        work()
        return
    if compression.compressor() is zlib.compress:
        parser.error("isal is not installed: pip install '.[fast]'")
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="judge-speed-", dir=memory if memory.is_dir() else None) as folder:
        bogofilter = Bogofilter(folder)
        helped, plain = Beside(plain=False), Beside(plain=True)
        kinds = [(named, how, beside) for named in BOUNDS for how, beside in (("", helped), (", plain Python", plain))]
        bulk: Times = {"bogofilter": [], **{named + how: [] for named, how, _ in kinds}}
        stages: dict[str, list[Times]] = {"trec07p": [], "nasty": []}
        for _ in range(arguments.rounds):
            bulk["bogofilter"].append(bogofilter.bulk())
            for named, how, beside in kinds:
                bulk[named + how].append(beside.ask("bulk", named))
            for corpus, rounds in stages.items():
                rounds.append(helped.ask("stages", corpus))
        helped.end()
        plain.end()
        other = spamassassin(folder)
        commands = command(folder, arguments.rounds)
    medians = {corpus: of_each_mail(rounds) for corpus, rounds in stages.items()}
    ratios = {
        named: [ours / theirs for ours, theirs in zip(times, bulk["bogofilter"], strict=True)]
        for named, times in bulk.items()
    }
    whole = medians["trec07p"]["all of it"]
    wrong = [
        f"{named}: {median(ratios[named]):.2f} of bogofilter"
        for named, most in BOUNDS.items()
        if median(ratios[named]) > most
    ]
    if median(commands) > COMMAND_BOUND:
        wrong.append(f"spamfilter judge: {median(commands):.2f} of bogofilter")
    if tail(whole) > TAIL * median(whole):
        wrong.append(f"the slowest of a hundred mails take {tail(whole) / median(whole):.1f} times the median")
    version = subprocess.run(["bogofilter", "-V"], capture_output=True, text=True, check=True).stdout.splitlines()[0]
    names = {"trec07p": trec()[1], "nasty": nasty()}
    lines = [
        f"Microseconds of processor time a mail, over {len(whole):,} mails of trec07p, after {LEARNT:,} were learnt;"
        f" medians of {arguments.rounds} rounds, quartiles in brackets; {version}.",
        "",
        "| filter | microseconds a mail | of bogofilter |",
        "|---|---|---|",
        *(f"| {named} | {quartiles(times, 0)} | {quartiles(ratios[named], 2)} |" for named, times in bulk.items()),
        *([f"| spamassassin, Bayes only | {other:.0f} | {other / median(bulk['bogofilter']):.0f} |"]
          if other else []),
        "",
        f"`spamfilter judge` over {COMMAND:,} files in one call, start included: {quartiles(commands, 2)} of its.",
        "",
        "By stage, with the default voices and the helper, as arrays of bytes in memory. Of each mail the median of the"
        f" rounds. Of trec07p p99 is {tail(whole) / median(whole):.1f} times the median.",
        "",
        "| corpus | stage | mean | median | p99 |",
        "|---|---|---|---|---|",
        *(line for corpus, times in medians.items() for line in stage_lines(corpus, times)),
        "",
        "The slowest:",
        "",
        "| corpus | mail | bytes | microseconds | times the median | longest stage |",
        "|---|---|---|---|---|---|",
        *(line for corpus, times in medians.items() for line in slowest_lines(corpus, names[corpus], times)),
        "",
        *(f"Beyond its bound: {each}" for each in wrong),
    ]  # fmt: skip
    print("\n".join(lines))
    if arguments.result:
        write_result(arguments.result, "What it costs to judge a mail", __file__, "\n".join([*lines, ""]))
    if wrong:
        sys.exit(1)


if __name__ == "__main__":
    main()
