"""What does a click cost, and is any lost? A mark by pipe, and a thousand moves in IMAP.

1. The wall time of `spamfilter mark-spam -` with a mail on standard input, in turns with `python3 -c pass`: over the
   socket of a running relay, and on the database itself where none runs. The median over the socket must be at most
   twice that of `python3 -c pass` plus 100 ms.
2. Mail goes through Postfix, the relay and Postfix again to Dovecot, set up by docs/dovecot.md; a mail program moves a
   thousand spams from INBOX into Junk, one after the other. Each must be in the ledger. For some of them: how long
   after the move the running relay judges with what it has taught.

    python benchmarks/feedback.py [--result FILE] [--moves N]

Needs SPAMFILTER_CORPORA, root, Postfix and Dovecot; takes about six minutes.
"""

import argparse
import os
import smtplib
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from corpora import unpacked
from results import write_result

from spamfilter.bayes.labels import Label
from spamfilter.learning.bulk.labelled_mail import find_indexed
from spamfilter.mail.mailboxes import Mail
from spamfilter.mail.message import parse
from spamfilter.service.control_socket.client import SocketClient

if TYPE_CHECKING:
    from tests.integration.dovecot import Mailboxes
    from tests.integration.servers import Relay

sys.path.insert(0, str(Path(__file__).parents[1]))
"""For the servers as the tests start them, which want what the tests want: imported where they are used."""

TRAINED = 1000
"""Messages of the corpus that are learnt before, so that the database is no empty one."""
TURNS = 50
TIMES, MORE = 2.0, 0.1
"""At most so many times `python3 -c pass`, and so many seconds more."""
LOOKS = 50
"""Moves after which the relay is asked what it knows now, each time until it knows."""
USER = "alice@example.test"

Labelled = Sequence[tuple[Label, Mail]]


def wire_form(mail: bytes) -> bytes:
    """A stored mail as it is sent: no mbox line, every line ended by CR LF."""
    if mail.startswith(b"From "):
        mail = mail.partition(b"\n")[2]
    mail = mail.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
    return mail if mail.endswith(b"\r\n") else mail + b"\r\n"


def distinct(mails: Labelled) -> list[tuple[Label, bytes]]:
    """The mails in the form of the wire, one of each digest."""
    found: dict[bytes, tuple[Label, bytes]] = {}
    for label, mail in mails:
        content = wire_form(mail.read())
        found.setdefault(parse(content).digest(), (label, content))
    return list(found.values())


def train(server: "Relay", mails: Sequence[tuple[Label, bytes]], folder: Path) -> None:
    folder.mkdir()
    for number, (label, content) in enumerate(mails):
        (folder / label).mkdir(exist_ok=True)
        (folder / label / f"{number}.eml").write_bytes(content)
    done = server.command("train", "--ham", str(folder / "ham"), "--spam", str(folder / "spam"), seconds=600)
    if done.returncode:
        raise SystemExit(done.stderr)


def seconds(command: Sequence[str], content: bytes, environment: dict[str, str] | None = None) -> float:
    began = time.perf_counter()
    done = subprocess.run(command, input=content, env=environment, capture_output=True, check=False)
    took = time.perf_counter() - began
    if done.returncode or done.stderr or (environment and b"learnt as" not in done.stdout):
        raise SystemExit(f"{command}: {done.returncode} {done.stdout!r} {done.stderr!r}")
    return took


def in_turns(mails: Sequence[bytes], environment: dict[str, str]) -> tuple[list[float], list[float]]:
    """Seconds of `python3 -c pass`, and of a mark of each mail."""
    python, mark = [sys.executable, "-c", "pass"], [str(Path(sys.executable).parent / "spamfilter"), "mark-spam", "-"]
    pairs = [(seconds(python, b""), seconds(mark, content, environment)) for content in mails]
    empty, marks = zip(*pairs, strict=True)
    return list(empty), list(marks)


def milliseconds(values: Sequence[float]) -> str:
    return f"{1000 * statistics.median(values):.0f} | {1000 * min(values):.0f} to {1000 * max(values):.0f}"


def marks(mails: Sequence[tuple[Label, bytes]]) -> tuple[list[str], list[str]]:
    """The first part: the lines of the report, and what was not reached."""
    from tests.integration.servers import relay

    spams = [content for label, content in mails[TRAINED:] if label == "spam"][: 2 * TURNS]
    with tempfile.TemporaryDirectory() as name:
        with relay(Path(name)) as server:
            train(server, mails[:TRAINED], Path(name) / "known")
            empty, over_socket = in_turns(spams[:TURNS], dict(server.environment))
        empty_again, on_database = in_turns(spams[TURNS:], dict(server.environment))
    allowed = TIMES * statistics.median(empty) + MORE
    lines = [
        "## A mark by pipe",
        "",
        f"{TURNS} turns each, after {TRAINED} messages learnt; milliseconds of wall time.",
        "",
        "| | median | from, to |",
        "|---|---|---|",
        f"| `python3 -c pass` | {milliseconds(empty)} |",
        f"| `spamfilter mark-spam -` over the socket | {milliseconds(over_socket)} |",
        f"| `python3 -c pass` | {milliseconds(empty_again)} |",
        f"| `spamfilter mark-spam -` on the database, without a relay | {milliseconds(on_database)} |",
        "",
        f"Over the socket at most {TIMES:.0f} times the first line plus {1000 * MORE:.0f} ms:"
        f" {1000 * statistics.median(over_socket):.0f} of {1000 * allowed:.0f} ms.",
        "",
    ]
    slow = statistics.median(over_socket) > allowed
    return lines, ["a mark by pipe takes too long"] if slow else []


def deliver(port: int, mails: Sequence[bytes]) -> None:
    with smtplib.SMTP("127.0.0.1", port, "client.example", timeout=60) as client:
        for content in mails:
            client.sendmail("sender@example.org", [USER], content)


def known_after(client: SocketClient, act: Callable[[], None]) -> tuple[float, float]:
    """Seconds that a move takes, and from its end until the counts that the running relay judges with have it."""
    from tests.integration.servers import wait_until

    def last() -> int:
        return int(client.ask({"command": "status"})["last"])

    before, began = last(), time.perf_counter()
    act()
    done = time.perf_counter()
    wait_until(lambda: last() > before, "the relay's taking in what was learnt")
    return done - began, time.perf_counter() - done


def moves(mails: Sequence[tuple[Label, bytes]], number: int) -> tuple[list[str], list[str]]:
    """The second part."""
    from tests.integration.dovecot import connect, dovecot
    from tests.integration.servers import free_port, postfix, relay, wait_until, workshop

    spams = [content for label, content in mails[TRAINED:] if label == "spam"][:number]
    if len(spams) < number:
        raise SystemExit(f"the corpus has {len(spams)} more spams, not {number}")
    took: list[float] = []
    known: list[float] = []
    with workshop() as folder, dovecot(folder / "dovecot") as imap:
        back, socket = free_port(), folder / "feedback.sock"
        with (
            relay(
                folder / "relay",
                relay={"next_hop": f"smtp://127.0.0.1:{back}", "bare_newlines": "normalise"},
                feedback={"socket": str(socket), "proxies": [], "marks_a_day": 10 * number},
            ) as server,
            postfix(folder / "postfix", to=free_port(), lmtp=imap.lmtp, back=back, proxy=server.port) as front,
        ):
            connect(imap, server, socket)
            deliver(front.front, spams)  # before anything is learnt: what is called spam would go into Junk itself
            with imap.login(USER) as mailboxes:
                wait_until(lambda: len(mailboxes.numbers()) == number, f"{number} mails in INBOX", 300)
                train(server, mails[:TRAINED], folder / "known")
                client = SocketClient(socket)
                step = max(1, number // LOOKS)
                ids = {uid: _id(mailboxes, uid) for uid in mailboxes.numbers()}
                for place, uid in enumerate(ids):
                    if place % step == 0:
                        duration, after = known_after(client, lambda uid=uid: mailboxes.move(uid, "Junk"))  # type: ignore[misc]
                        known.append(after)
                    else:
                        began = time.perf_counter()
                        mailboxes.move(uid, "Junk")
                        duration = time.perf_counter() - began
                    took.append(duration)
                client.close()
                left = len(mailboxes.numbers())
            learnt = _learnt(server.state / "spamfilter.db", list(ids.values()))
            complaints = [line for line in imap.log().splitlines() if "Error" in line]
    lines = [
        "## Moves in IMAP",
        "",
        "| | |",
        "|---|---|",
        f"| moves into Junk, one after the other | {number} |",
        f"| of them in the ledger as spam, under the digest that the journal has | {learnt} |",
        f"| mails left in INBOX | {left} |",
        f"| errors in Dovecot's log | {len(complaints)} |",
        f"| milliseconds of a move with its mark: median, 99 % below, longest | {_spread(took)} |",
        f"| milliseconds after a move until the running relay judges with what it has taught, {len(known)} looks"
        f" | {_spread(known)} |",
        "",
    ]
    whole = learnt == number and not left and not complaints
    return lines, [] if whole else [f"{number - learnt} moves lost", *complaints[:3]]


def _id(mailboxes: "Mailboxes", uid: str) -> str:
    from spamfilter.mail.tagging import header_id

    return header_id(mailboxes.fetch(uid))


def _spread(values: Sequence[float]) -> str:
    ordered = sorted(values)
    picked = (statistics.median(ordered), ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))], ordered[-1])
    return ", ".join(f"{1000 * value:.0f}" for value in picked)


def _learnt(file: Path, ids: Sequence[str]) -> int:
    """How many of these mails have been learnt as spam by IMAP."""
    database = sqlite3.connect(f"file:{file}?mode=ro", uri=True)
    try:
        digests = {
            digest
            for (digest,) in database.execute(
                "SELECT digest FROM ledger WHERE label = 'spam' AND source = 'imap' AND undoes IS NULL"
            )
        }
        journal: dict[str, bytes] = dict(database.execute("SELECT id, digest FROM journal"))
    finally:
        database.close()
    return sum(journal.get(id) in digests for id in ids)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--result", type=Path, help="write the tables to this file, too")
    parser.add_argument("--moves", type=int, default=1000)
    arguments = parser.parse_args()
    if os.geteuid() != 0:
        raise SystemExit("needs root: Postfix and Dovecot change users themselves")
    mails = distinct(find_indexed(unpacked("spamassassin") / "index.interleaved"))
    first, wrong = marks(mails)
    print("\n".join(first), flush=True)
    second, also_wrong = moves(mails, arguments.moves)
    print("\n".join(second))
    wrong += also_wrong
    if arguments.result:
        end = "Not reached: " + "; ".join(wrong) if wrong else "All bounds were kept."
        text = "\n".join([*first, *second, end, ""])
        write_result(arguments.result, "Feedback: the cost of a click", __file__, text)
    if wrong:
        raise SystemExit("not reached: " + "; ".join(wrong))


if __name__ == "__main__":
    main()
