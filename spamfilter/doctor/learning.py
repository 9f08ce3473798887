"""Checks of learning: both classes, the running relay, the paths of feedback, the clock."""

import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from itertools import pairwise

from spamfilter.bayes.doubt import LITTLE_COMPARED, compared
from spamfilter.bayes.imported.voices import with_imported
from spamfilter.bayes.labels import AUTOMATIC, CANARY, COUNTERPART, LABELS
from spamfilter.bayes.model import learnt_here
from spamfilter.doctor.examination import Examination, Finding, NotTried, failed, ok, warning
from spamfilter.learning.filter import IMPORTED_VOICES
from spamfilter.service.control_socket.client import NoRelay
from spamfilter.service.expiry import latest_time, leap
from spamfilter.stores import Entry, Store
from spamfilter.stores.sql.connection import same_place
from spamfilter.system.moments import moment_text

SILENT = timedelta(days=14)
"""Without a mark for this long, the path of feedback may be broken."""
UNBALANCED = 20
"""Ratio of the classes beyond which the filter knows too little of the rarer one."""
FOLLOWS_WITHIN = 3.0
"""Seconds for the relay to apply some of the ledger: it reads it four times a second."""
CATCHES_UP_WITHIN = 60.0
"""Seconds to wait while it applies more and more, as after `train`, or loads all counts."""
TOLERANCE = timedelta(minutes=5)
"""Accepted difference between clocks, and accepted correction of a clock."""
LOOKED_BACK = timedelta(days=30)
CENTURY = timedelta(days=36_500)


def classes(examined: Examination) -> Iterator[Finding]:
    """Whether the filter has learnt enough of both classes."""
    voices = with_imported(examined.settings.voices(), examined.store.get_setting(IMPORTED_VOICES))
    state = examined.store.state({voice.name: () for voice in voices if voice.imported})
    learnt, here = state.learnt, learnt_here(voices, state)
    share = compared(here["ham"], here["spam"])
    found = ", ".join(f"{learnt[label]:,} {label}" for label in LABELS) + " learnt"
    rarer = min(LABELS, key=lambda label: learnt[label])
    if not learnt[rarer]:
        yield warning(f"{found}: nothing is judged spam before {rarer} is learnt", f"spamfilter mark-{rarer}, or train")
    elif max(learnt.values()) > UNBALANCED * learnt[rarer]:
        yield warning(f"{found}: one class is too rare", f"spamfilter mark-{rarer} more, or train")
    elif here["spam"] and share < LITTLE_COMPARED:
        without = "" if here == learnt else f", {here['ham']:,} and {here['spam']:,} without imports"
        yield warning(
            f"{found}{without}: with so little ham much of what speaks for spam does not count",
            "spamfilter mark-ham more, or train",
        )
    else:
        yield ok(found)


def following(examined: Examination) -> Iterator[Finding]:
    """Whether the running relay has applied the whole ledger."""
    store, status = examined.store, examined.relay
    if not same_place(status["database"], store.where):
        raise NotTried("the relay uses another database")
    last, began = store.state({}).last, time.monotonic()
    moved = began
    while status["last"] < last and time.monotonic() < min(moved + FOLLOWS_WITHIN, began + CATCHES_UP_WITHIN):
        time.sleep(0.1)
        before = status["last"]
        try:
            status = examined.ask_status()
        except NoRelay as error:
            raise NotTried(str(error)) from error
        if status["last"] != before or status.get("catching_up"):
            moved = time.monotonic()
    if not status["following"]:
        yield failed("the relay cannot read the ledger, and judges by older counts", "see the relay's log")
    elif status["last"] < last and time.monotonic() < moved + FOLLOWS_WITHIN:
        yield warning(
            f"the relay is catching up: it is at entry {status['last']} of the ledger's {last}", "try again in a minute"
        )
    elif status["last"] < last:
        yield failed(f"the relay is at entry {status['last']} of the ledger's {last}", "see the relay's log")
    else:
        yield ok(f"the relay knows the ledger up to its last entry, {last}")


def feedback(examined: Examination) -> Iterator[Finding]:
    """When each path of feedback was last used. One that is configured but unused may be broken."""
    store = examined.store
    times = store.times_of_sources()
    last = {source: at for source, (_, at) in times.items() if source not in (CANARY, COUNTERPART)}
    first = min((at for at, _ in times.values()), default=examined.now)
    silent = False
    for source, setting in _set_up(examined).items():
        since = last.get(source)
        if examined.now - (since or first) > SILENT:
            silent = True
            said = f"no mark for {_days(examined.now - since)}" if since else "no mark yet"
            yield warning(f"{source}: {said}, although it is set up in {setting}", _ADVICE[source])
    if not silent:
        heard = sorted(last.items(), key=lambda item: item[1], reverse=True)
        yield ok(", ".join(f"{source} {_ago(examined.now - at)}" for source, at in heard) or "no mark yet")


_ADVICE = {
    "imap": "move a mail into Junk and look at Dovecot's log; see the check of dovecot",
    "address": "send a mail as attachment to it and look at the relay's log",
    AUTOMATIC: "look at [feedback] automatic and traps, and at the relay's log",
}
"""Source -> how to find out why there are no marks."""


def _set_up(examined: Examination) -> dict[str, str]:
    """Source of each configured path of feedback -> where it is configured."""
    feedback = examined.settings.feedback
    found = {"imap": "[feedback] proxies"} if feedback.proxies else {}
    with suppress(NotTried):
        if dovecot := examined.fragment:
            found["imap"] = str(dovecot)
    if feedback.spam_addresses or feedback.ham_addresses:
        found["address"] = "[feedback] spam_addresses" if feedback.spam_addresses else "[feedback] ham_addresses"
    if feedback.automatic:
        found[AUTOMATIC] = "[feedback] automatic"
    return found


def clock(examined: Examination) -> Iterator[Finding]:
    """Whether times are plausible: the clock goes on from what the database has seen, and no entry is in the future.

    Only a running relay notes the time, each hour.
    """
    store, now = examined.store, examined.now
    seen = latest_time(store)
    if seen and (now < seen or not isinstance(examined.status, Exception)) and (leaping := leap(now, seen)):
        yield warning(f"the clock is {leaping[0]}", leaping[1])
        return
    entries = store.journal(now + TOLERANCE, now + CENTURY)
    ahead = [entry.at for entry in entries]
    ahead += [at for _, at in store.times_of_sources().values() if at > now + TOLERANCE]
    if ahead:
        names = ", ".join(sorted({entry.host for entry in entries} - {""}))
        yield warning(
            f"entries in the future: {len(ahead)}, up to {moment_text(max(ahead))}" + f", of {names}" * bool(names),
            "set the clock there and synchronise it: timedatectl set-ntp true",
        )
        return
    pairs = pairwise(store.learnings(now - LOOKED_BACK))
    leaps = [(one, two) for one, two in pairs if two.at < one.at - TOLERANCE and not _is_restored(store, two)]
    if leaps:
        before, after = leaps[-1]
        yield warning(
            f"the clock went back by {_days(before.at - after.at)} on {moment_text(after.at)}",
            "synchronise the clock: timedatectl set-ntp true",
        )
    else:
        yield ok(f"{moment_text(now)}, and no entry is in the future")


def _is_restored(store: Store, learning: Entry) -> bool:
    """Whether a learning is an earlier one again, with its time: a mark had replaced it, and the mark was forgotten."""
    history = store.histories([learning.digest])[learning.digest]
    return any(entry.at == learning.at and entry.id < learning.id for entry in history if not entry.undoes)


def _days(span: timedelta) -> str:
    hours = span.total_seconds() / 3600
    return f"{hours / 24:.0f} days" if hours >= 48 else f"{hours:.1f} hours"


def _ago(span: timedelta) -> str:
    return "just now" if span < timedelta(minutes=1) else f"{_days(span)} ago"
