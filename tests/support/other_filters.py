"""Other people's filters, trained on the mails of a test, and the dumps that they make themselves."""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from spamfilter.bayes.labels import LABELS, Label
from tests.support import real
from tests.support.made import mail

Mails = Mapping[Label, Sequence[bytes]]

WORDS: Mapping[Label, tuple[str, str]] = {
    "ham": ("Minutes of the meeting", "the agenda, the minutes and the budget of our garden club"),
    "spam": ("Cheap PILLS now!!", "buy cheap pills, win a fortune, visit http://pills.example.com/now for $99.95"),
}


def mails(number: int = 8) -> Mails:
    """So many mails of each class, alike within it."""
    return {
        label: [mail(subject, f"{body} number{at}", f"{label}{at}").replace(b"\r\n", b"\n") for at in range(number)]
        for label, (subject, body) in WORDS.items()
    }


def bogofilter(folder: Path, given: Mails) -> bytes:
    """What `bogoutil -d` says after bogofilter has learnt these."""
    program, dump = real.require("bogofilter", "bogofilter"), real.require("bogoutil", "bogofilter")
    options: dict[Label, str] = {"ham": "-n", "spam": "-s"}
    for label, option in options.items():
        for one in given[label]:
            subprocess.run([program, "-C", "-d", folder, option], input=one, check=True)
    return subprocess.run([dump, "-d", folder / "wordlist.db"], capture_output=True, check=True).stdout


def bogofilter_says(folder: Path, one: bytes) -> float:
    """P(spam) of a mail by bogofilter."""
    program = real.require("bogofilter", "bogofilter")
    return float(subprocess.run([program, "-C", "-d", folder, "-TT"], input=one, capture_output=True).stdout)


def spamassassin(folder: Path, given: Mails) -> bytes:
    """What `sa-learn --backup` says after SpamAssassin has learnt these."""
    program = real.require("sa-learn", "spamassassin")
    (folder / "rules").mkdir()
    (folder / "rules" / "bayes.cf").write_text(
        "loadplugin Mail::SpamAssassin::Plugin::Bayes\nuse_bayes 1\nuse_learner 1\nbayes_auto_expire 0\n"
    )
    options = ["-p", "/dev/null", f"--siteconfigpath={folder}/none", f"--configpath={folder}/rules"]
    options += ["--cf", f"bayes_path {folder}/bayes"]
    for label in LABELS:
        (folder / label).mkdir()
        for at, one in enumerate(given[label]):
            (folder / label / str(at)).write_bytes(one)
        subprocess.run([program, *options, f"--{label}", folder / label], check=True, capture_output=True)
    return subprocess.run([program, *options, "--backup"], capture_output=True, check=True).stdout
