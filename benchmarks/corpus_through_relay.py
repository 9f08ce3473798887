"""Does real mail come through the relay whole, rightly judged, and does marking teach it?

Two runs over the SpamAssassin corpus (index.interleaved), with a real relay, real SMTP, the real
commands and a Maildir as next hop:

1. `spamfilter train` on the odd lines, then the even lines are sent. Nothing may be lost, nothing
   changed but our own header fields; at P >= 0.5 at most 0.8 % of ham and 1.8 % of spam misjudged.
2. An untrained relay gets the even lines; a user marks by id, with `spamfilter mark-spam` and
   `mark-ham`, what was judged wrong and what was unsure. The learning curve is printed.

    python benchmarks/corpus_through_relay.py [--result FILE] [--connections N]

Needs SPAMFILTER_CORPORA; takes about ten minutes.
"""

import argparse
import os
import re
import smtplib
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from corpora import unpacked
from results import write_result

from spamfilter.bayes.counts import Label
from spamfilter.learning.labelled_mail import find_indexed
from spamfilter.mail.mailboxes import Mail

MAX_HM, MAX_SM = 0.8, 1.8
CURVE_STEP = 250
SEEN_WITHIN = 0.4
"""Seconds a user takes at the least between a mark and the next mail; the relay looks every 0.25 s."""

_OURS = re.compile(rb"^X-(?:Spam-Flag|Spam-Status|Spamfilter-[A-Za-z-]+):[^\n]*\n(?:[ \t][^\n]*\n)*", re.MULTILINE)
_SCORE = re.compile(rb"^X-Spam-Status: (?:Yes|No), score=([0-9.]+) class=([a-z]+)", re.MULTILINE)
_ID = re.compile(rb"^X-Spamfilter-Id: (\S+)", re.MULTILINE)


@dataclass(frozen=True)
class Sent:
    """What became of one mail. outcome: delivered, rejected (as spam), refused (by SMTP rules), lost."""

    label: Label
    outcome: str
    changed: bool = False
    spam: bool = False
    unsure: bool = False
    tagged: bool = False
    id: str = ""


class Installation:
    """A relay of its own in a folder of its own, and its commands."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("SPAMFILTER_")},
            "STATE_DIRECTORY": str(folder),
            "SPAMFILTER_RELAY__LISTEN": '["127.0.0.1:0"]',
            "SPAMFILTER_RELAY__HOSTNAME": "relay.example",
        }

    def command(self, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "spamfilter", *arguments],
            env=self.environment, check=True, capture_output=True, text=True,
        )  # fmt: skip
        return done.stdout

    @contextmanager
    def relay(self) -> Iterator[int]:
        """Run `spamfilter serve`; yields its port, and expects a clean end."""
        with (self.folder / "log").open("wb+") as log:
            process = subprocess.Popen([sys.executable, "-m", "spamfilter", "serve"], env=self.environment, stderr=log)
            try:
                for _ in range(300):
                    match = re.search(r"listening on 127\.0\.0\.1:([0-9]+)", (self.folder / "log").read_text())
                    if match:
                        break
                    time.sleep(0.1)
                else:
                    raise SystemExit("the relay does not start:\n" + (self.folder / "log").read_text())
                yield int(match.group(1))
            finally:
                process.terminate()
                if process.wait(60) != 0 or "Traceback" in (self.folder / "log").read_text():
                    raise SystemExit("the relay ended badly:\n" + (self.folder / "log").read_text()[-5000:])


def wire_form(mail: bytes) -> bytes:
    """A stored mail as it is sent: no mbox line, every line ended by CR LF."""
    if mail.startswith(b"From "):
        mail = mail.partition(b"\n")[2]
    mail = mail.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
    return mail if mail.endswith(b"\r\n") else mail + b"\r\n"


class Sender:
    """An SMTP client that looks at what arrives; one connection a thread."""

    def __init__(self, port: int, maildir: Path) -> None:
        self._port = port
        self._maildir = maildir
        self._local = threading.local()

    def _connection(self) -> smtplib.SMTP:
        if not hasattr(self._local, "connection"):
            self._local.connection = smtplib.SMTP("127.0.0.1", self._port, "client.example", timeout=60)
            self._local.connection.ehlo()
        connection: smtplib.SMTP = self._local.connection
        return connection

    def send(self, label: Label, mail: Mail) -> Sent:
        content = wire_form(mail.read())
        connection = self._connection()
        connection.mail("sender@example.org")
        connection.rcpt("recipient@example.org")
        connection.putcmd("data")
        if connection.getreply()[0] != 354:
            return Sent(label, "lost")
        connection.send(re.sub(rb"(?m)^\.", b"..", content) + b".\r\n")
        code, text = connection.getreply()
        if code == 550:
            judged = b"Refused as spam" in text
            return Sent(label, "rejected" if judged else "refused", spam=judged)
        stored = re.search(rb"stored as (\S+)", text)
        if code != 250 or not stored:
            return Sent(label, "lost")
        file = self._maildir / "new" / stored.group(1).decode()
        arrived = file.read_bytes()
        file.unlink()
        head, _, body = arrived.partition(b"\n\n")
        score, id = _SCORE.search(head), _ID.search(head)
        if not score or not id:
            return Sent(label, "delivered", changed=True)
        ours = _OURS.sub(b"", head + b"\n")
        return Sent(
            label,
            "delivered",
            changed=without_ours(content) != ours + b"\n" + body,
            spam=float(score.group(1)) >= 0.5,
            unsure=score.group(2) == b"unsure",
            tagged=b"X-Spam-Flag: YES" in head,
            id=id.group(1).decode(),
        )


def without_ours(sent: bytes) -> bytes:
    """A mail as it must arrive, less our own fields: forged ones are taken out by the relay."""
    head, blank, body = sent.replace(b"\r\n", b"\n").partition(b"\n\n")
    return _OURS.sub(b"", head + b"\n") + (b"\n" + body if blank else b"")


def share(part: int, whole: int) -> str:
    return f"{part} of {whole} = {100 * part / max(whole, 1):.2f} %"


def trained(train: Path, test: Sequence[tuple[Label, Mail]], connections: int) -> tuple[list[str], list[str]]:
    """The first run; returns the lines of the report, and what was not reached."""
    with tempfile.TemporaryDirectory() as folder:
        installation = Installation(Path(folder))
        began = time.perf_counter()
        said = installation.command("train", "--index", str(train)).strip()
        training = time.perf_counter() - began
        with installation.relay() as port, ThreadPoolExecutor(connections) as pool:
            sender = Sender(port, Path(folder) / "mail")
            began = time.perf_counter()
            results = list(pool.map(lambda item: sender.send(*item), test))
            sending = time.perf_counter() - began
    ham = [sent for sent in results if sent.label == "ham" and sent.outcome != "refused"]
    spam = [sent for sent in results if sent.label == "spam" and sent.outcome != "refused"]
    hm, sm = sum(sent.spam for sent in ham), sum(not sent.spam for sent in spam)
    count = {
        name: sum(sent.outcome == name for sent in results) for name in ("delivered", "rejected", "refused", "lost")
    }
    changed = sum(sent.changed for sent in results)
    lines = [
        "## Trained on the odd lines, the even lines sent",
        "",
        f"    spamfilter train: {said}, {training:.1f} s with start and end of the program",
        "",
        "| | |",
        "|---|---|",
        f"| sent | {len(results)} |",
        f"| delivered | {count['delivered']} |",
        f"| tagged as spam | {sum(sent.tagged for sent in results)} |",
        f"| rejected as spam (550) | {count['rejected']}, of them ham {sum(s.outcome == 'rejected' for s in ham)} |",
        f"| refused by SMTP rules, with a reply that says why | {count['refused']} |",
        f"| lost | {count['lost']} |",
        f"| changed beyond our own header fields | {changed} |",
        f"| ham misjudged at P >= 0.5 (hm) | {share(hm, len(ham))}, at most {MAX_HM} |",
        f"| spam misjudged at P >= 0.5 (sm) | {share(sm, len(spam))}, at most {MAX_SM} |",
        f"| messages a second | {len(results) / sending:.0f}, over {connections} connections, each synced to disk |",
        "",
    ]
    wrong = []
    if count["lost"] or changed:
        wrong.append(f"{count['lost']} lost, {changed} changed")
    if 100 * hm / len(ham) > MAX_HM or 100 * sm / len(spam) > MAX_SM:
        wrong.append(f"hm {share(hm, len(ham))}, sm {share(sm, len(spam))}")
    return lines, wrong


def untrained(test: Sequence[tuple[Label, Mail]]) -> tuple[list[str], list[str]]:
    """The second run: an empty filter and a user who marks errors and unsure mail."""
    lines = [
        "## Untrained, a user marks by id what is wrong or unsure",
        "",
        "| messages | wrong | unsure | marks so far | ham lost (tagged or rejected) | spam in the inbox |",
        "|---|---|---|---|---|---|",
    ]
    lost = changed = marks = 0
    with tempfile.TemporaryDirectory() as folder:
        installation = Installation(Path(folder))
        with installation.relay() as port:
            sender = Sender(port, Path(folder) / "mail")
            step: list[Sent] = []
            for number, (label, mail) in enumerate(test, 1):
                sent = sender.send(label, mail)
                lost += sent.outcome == "lost"
                changed += sent.changed
                step.append(sent)
                wrong = (sent.tagged and label == "ham") or (not sent.spam and label == "spam")
                if sent.id and (wrong or sent.unsure):
                    installation.command(f"mark-{label}", sent.id)
                    marks += 1
                    time.sleep(SEEN_WITHIN)
                if number % CURVE_STEP == 0 or number == len(test):
                    judged = [one for one in step if one.outcome != "refused"]
                    flagged = [one for one in judged if one.tagged or one.outcome == "rejected"]
                    false = sum(one.label == "ham" for one in flagged)
                    missed = sum(one.label == "spam" and not one.spam for one in judged)
                    unsure = sum(one.unsure for one in judged)
                    ham = sum(one.label == "ham" for one in judged)
                    lines.append(
                        f"| {number - len(step) + 1} to {number} | {false + missed} | {unsure} | {marks}"
                        f" | {share(false, ham)} | {share(missed, len(judged) - ham)} |"
                    )
                    print(lines[-1], flush=True)
                    step = []
        report = installation.command("stats", "--since", "1d").strip()
    lines += ["", f"Lost {lost}, changed {changed}. The figures of the administrator's report afterwards:", ""]
    # The lists of the report quote mail, and no text of a corpus goes into a result file.
    figures = report.partition("\n\nLearnt lately")[0]
    lines += [f"    {line}".rstrip().replace(folder, "STATE") for line in figures.splitlines()]
    return [*lines, ""], [f"untrained run: {lost} lost, {changed} changed"] if lost or changed else []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--result", type=Path, help="write the tables to this file, too")
    parser.add_argument("--connections", type=int, default=8)
    arguments = parser.parse_args()
    index = unpacked("spamassassin") / "index.interleaved"
    odd = [line for number, line in enumerate(index.read_text().splitlines()) if number % 2 == 0]
    test = find_indexed(index)[1::2]
    with tempfile.TemporaryDirectory() as folder:
        half = Path(folder) / "odd"
        # An index is relative to its own folder; this one lies elsewhere.
        half.write_text("".join(f"{line.split()[0]} {index.parent / line.split()[1]}\n" for line in odd))
        first, wrong = trained(half, test, arguments.connections)
    print("\n".join(first), flush=True)
    second, also_wrong = untrained(test)
    wrong += also_wrong
    text = "\n".join([*first, *second, "Not reached: " + "; ".join(wrong) if wrong else "All bounds were kept.", ""])
    print("\n".join(second))
    if arguments.result:
        write_result(arguments.result, "Real mail through the relay", __file__, text)
    if wrong:
        raise SystemExit("not reached: " + "; ".join(wrong))


if __name__ == "__main__":
    main()
