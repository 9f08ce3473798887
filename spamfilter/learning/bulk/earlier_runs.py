"""What earlier runs of bulk training have left in the store: those that did not come to their end, for when they are
started again; and the mails of a class that a run lacks."""

import hashlib
import os
from collections import Counter
from collections.abc import Sequence

from spamfilter.bayes.labels import BULK, LABELS, Label
from spamfilter.learning.bulk.rounds import Amounts
from spamfilter.learning.transaction import Training
from spamfilter.mail.mailboxes import Mail
from spamfilter.stores import Store

UNFINISHED = "unfinished_trainings"
"""The setting that remembers runs that did not come to their end: a digest of their mails' names -> the amounts that
the later rounds have decided, or None."""
MOST_UNFINISHED = 20
"""Runs remembered; the oldest ones are forgotten first."""


def name_of(mails: Sequence[tuple[Label, Mail]]) -> str:
    """A digest of labels and file names, without the folder and the flags that a Maildir changes."""
    names = "".join(f"{label} {os.path.basename(mail.name).partition(':2,')[0]}\n" for label, mail in mails)
    return hashlib.blake2b(names.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()


def unfinished(store: Store) -> dict[str, Amounts | None]:
    """The runs, each with what its later rounds have decided, if they have."""
    kept = store.get_setting(UNFINISHED)
    if isinstance(kept, list):  # of a version that wrote names only
        return dict.fromkeys(map(str, kept))
    return {run: _amounts(decided) for run, decided in kept.items()} if isinstance(kept, dict) else {}


def undecided(store: Store) -> dict[str, None]:
    """What `UNFINISHED` says once all counts were rebuilt: the same runs, whose decisions were about other counts."""
    return dict.fromkeys(unfinished(store))


def _amounts(kept: object) -> Amounts | None:
    """Amounts from JSON; None also for a place in the rounds, as a version wrote that learnt them one by one."""
    if not isinstance(kept, dict):
        return None
    return {name: {int(number): amount for number, amount in of.items()} for name, of in kept.items()}


def begin(store: Store, run: str, training: Training) -> None:
    """Write down that a run has begun; a run that is known has begun before, and may have decided already."""
    if run not in unfinished(store):
        remember(store, run, None, training)


def remember(store: Store, run: str, decided: Amounts | None, training: Training) -> None:
    """Write down what a run is to do when it is started again."""
    others = [*without(store, run).items()][-MOST_UNFINISHED:]
    training.put_setting(UNFINISHED, {**dict(others), run: decided})


def without(store: Store, run: str) -> dict[str, Amounts | None]:
    """The other runs."""
    return {other: decided for other, decided in unfinished(store).items() if other != run}


def of_rarer_class(store: Store, mails: Sequence[tuple[Label, Mail]]) -> Sequence[tuple[Label, bytes]]:
    """Class and digest of the last mails that bulk training has learnt of the rarer class: as many as it lacks here."""
    numbers = Counter(map(label_of, mails))
    if numbers["ham"] == numbers["spam"]:
        return []
    rarer = min(LABELS, key=lambda label: numbers[label])
    found = [one for one in store.learnings() if one.source == BULK and one.label == rarer]
    learnt = [(rarer, one.digest) for one in sorted(found, key=lambda one: one.at)]
    return learnt[max(0, len(learnt) - abs(numbers["ham"] - numbers["spam"])) :]


def label_of(item: tuple[Label, object]) -> Label:
    """The class of a labelled mail."""
    return item[0]
