"""Which evidence is about the mail, and which about its month, its servers, its mail program?

Each kind is taken out of all mails, in training and in judging, on streams with feedback (the same site, the next
mail) and on filters that are trained once: on the first half of a stream, and on another site. Evidence that carries
over helps both; what only helps the first is about the calendar or the site.

    python benchmarks/ablation.py [--only KIND]... [--result FILE]

Needs SPAMFILTER_CORPORA; takes some ten minutes.
"""

import argparse
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from cold import CONFIGURED_ONES, VOICES, judged, rates
from corpora import unpacked
from results import write_result

from spamfilter.bayes.labels import Label
from spamfilter.bayes.voices import VoiceTokens, view
from spamfilter.evaluation.error_rates import measure
from spamfilter.evaluation.protocols import Example, Run, Trial, prequential
from spamfilter.learning.bulk.labelled_mail import find_indexed
from spamfilter.mail.mailboxes import Mail
from spamfilter.mail.message import parse

_DATES = re.compile(
    rb"(?im)^(?:date|delivery-date|resent-date):.*\n|;?[ \t\n]*(?:(?:mon|tue|wed|thu|fri|sat|sun),?[ \t]+)?"
    rb"\d{1,2} (?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]* \d{2,4} \d{1,2}:\d\d(?::\d\d)?"
)
_ZONES = re.compile(rb"[+-]\d{4}(?:[ \t]*\([A-Z]{1,5}\))?(?=\n|$)|\b(?:GMT|UT|[ECMP][SD]T)\b")
_IDS = re.compile(rb"(?i)\bid[ \t\n]+[^ \t\n;]+|\bE?SMTPS?A?\b")
_TLS = re.compile(rb"(?i)\((?:using|version)[ =][^()]*(?:\([^()]*\)[^()]*)*\)|cipher[ =]\S+|bits=\S+")
_TRACE = re.compile(
    rb"(?im)^(?:received|return-path|delivered-to|x-original-to|envelope-to|x-received)[ \t]*:.*\n(?:[ \t].*\n)*"
)
_OURS = re.compile(rb"(?im)^received[ \t]*:.*\n(?:[ \t].*\n)*")
_MARKUP = re.compile(rb"(?i)</?(?:html|head|meta|body|title|font|br|p|tr|td|table|tbody|center|div|span)\b[^>]*>")

KINDS: dict[str, Callable[[bytes, bytes], tuple[bytes, bytes]]] = {
    "nothing": lambda head, body: (head, body),
    "dates and times": lambda head, body: (_DATES.sub(b"\n", head), body),
    "time zones": lambda head, body: (_ZONES.sub(b"", head), body),
    "queue ids": lambda head, body: (_IDS.sub(b"", head), body),
    "TLS parameters": lambda head, body: (_TLS.sub(b"", head), body),
    "the last Received": lambda head, body: (_OURS.sub(b"", head, count=1), body),
    "all trace fields": lambda head, body: (_TRACE.sub(b"", head), body),
    "markup": lambda head, body: (head, _MARKUP.sub(b" ", body)),
}
"""What is taken out -> header and body without it; the header with LF at the end of each line."""


def without(kind: str, mails: list[tuple[Label, Mail]]) -> list[Example]:
    """Mails as examples, without a kind of evidence."""

    def read(mail: Mail) -> VoiceTokens:
        head, empty, body = mail.read().replace(b"\r\n", b"\n").partition(b"\n\n")
        head, body = KINDS[kind](head + b"\n", body)
        return view(VOICES, parse(head.rstrip(b"\n") + empty + body))

    return [Example(mail.name, label, lambda mail=mail: read(mail)) for label, mail in mails]  # type: ignore[misc]


def runs(kind: str, spamassassin: list[tuple[Label, Mail]], trec: list[tuple[Label, Mail]]) -> Iterator[Run]:
    """With feedback on either; the first half of SpamAssassin judging its second; either judging the other."""
    one, other = without(kind, spamassassin), without(kind, trec)
    for stream in (one, other):
        yield from prequential(stream, lambda: list(CONFIGURED_ONES()), Trial(), lambda count: None)
    half = len(one) // 2
    for case in ((one[:half], one[half:]), (one, other[::5]), (other, one[::3])):
        yield judged("ours", case)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=KINDS, help="only this kind")
    parser.add_argument("--result", type=Path, help="write the table to this file, too")
    arguments = parser.parse_args()
    spamassassin = list(find_indexed(unpacked("spamassassin") / "index.interleaved"))
    trec = list(find_indexed(unpacked("trec07p-first20000") / "index"))[:10_000]
    lines = [
        "| without | SpamAssassin, feedback | TREC 2007, feedback | first half -> second | SpamAssassin -> TREC |"
        " TREC -> SpamAssassin |",
        "|---|---|---|---|---|---|",
    ]
    print(*lines, sep="\n")
    for kind in arguments.only or KINDS:
        cells = []
        for run in runs(kind, spamassassin, trec):
            lost, caught, _, _ = rates(run)
            cells.append(f"{measure(run.log_odds, run.posteriors, run.labels).roca:.4f} / {lost:.2f} / {caught:.1f}")
        lines.append(f"| {kind} | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    lines += ["", "1-ROCA% / per cent of ham called spam / per cent of spam called spam.", ""]
    if arguments.result:
        write_result(arguments.result, "Evidence about the mail, and about the calendar", __file__, "\n".join(lines))


if __name__ == "__main__":
    main()
