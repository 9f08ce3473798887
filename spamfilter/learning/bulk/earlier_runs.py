"""What earlier runs of bulk training have left in the store: those that did not come to their end, for when they are
started again; and mails to go over again among the new ones."""

import hashlib
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from spamfilter.bayes.labels import BULK, LABELS, NOBODYS, Label
from spamfilter.learning.bulk.labelled_mail import label_of, mixed
from spamfilter.learning.bulk.rounds import Amounts
from spamfilter.learning.transaction import Training
from spamfilter.mail.mailboxes import Mail
from spamfilter.stores import Entry, Store

UNFINISHED = "unfinished_trainings"
"""The setting that remembers runs that did not come to their end, by a digest of their mails' names: see `_to_json`."""
MOST_UNFINISHED = 20
"""Runs remembered; the oldest ones are forgotten first."""
FEWEST = 200
"""Mails of each class that a run goes over again, if there are as many: one of hams and spams, whose hams are of one
kind, loses other ham without them (benchmarks/training_order.py)."""


def name_of(mails: Sequence[tuple[Label, Mail]]) -> str:
    """A digest of labels and file names, without the folder and the flags that a Maildir changes."""
    names = "".join(f"{label} {os.path.basename(mail.name).partition(':2,')[0]}\n" for label, mail in mails)
    return hashlib.blake2b(names.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A run that has begun. earlier: the mails that it goes over again, as `to_rehearse` gave them; decided: what its
    later rounds have decided, by the numbers of mails, None if they have not."""

    earlier: Sequence[tuple[Label, bytes]] = ()
    decided: Amounts | None = None


def unfinished(store: Store) -> dict[str, Unfinished]:
    """The runs that have begun, by their names."""
    kept = store.get_setting(UNFINISHED)
    if isinstance(kept, list):  # of a version that wrote names only
        return dict.fromkeys(map(str, kept), Unfinished())
    return {run: _of_json(one) for run, one in kept.items()} if isinstance(kept, dict) else {}


def undecided(store: Store) -> dict[str, object]:
    """What `UNFINISHED` says once all counts were rebuilt: the same runs, whose decisions were about other counts."""
    return {run: _to_json(replace(one, decided=None)) for run, one in unfinished(store).items()}


def _of_json(kept: object) -> Unfinished:
    """Earlier versions wrote what was decided alone, or None, or a place in the rounds."""
    if not isinstance(kept, dict):
        return Unfinished()
    earlier, decided = kept.get("earlier", []), kept.get("decided") if "earlier" in kept else kept
    return Unfinished(
        [(label, bytes.fromhex(digest)) for label, digest in earlier],
        decided and {voice: {int(number): amount for number, amount in of.items()} for voice, of in decided.items()},
    )


def _to_json(run: Unfinished) -> dict[str, object]:
    return {"earlier": [[label, digest.hex()] for label, digest in run.earlier], "decided": run.decided}


def begin(store: Store, name: str, earlier: Sequence[tuple[Label, bytes]], training: Training) -> None:
    """Write down that a run has begun; a run that is known has begun before, and may have decided already."""
    if name not in unfinished(store):
        remember(store, name, Unfinished(earlier), training)


def remember(store: Store, name: str, run: Unfinished | None, training: Training) -> None:
    """Write down what a run is to do when it is started again; None: it has come to its end."""
    others = [(other, one) for other, one in unfinished(store).items() if other != name][-MOST_UNFINISHED:]
    runs = others if run is None else [*others, (name, run)]
    training.ledger.put_setting(UNFINISHED, {each: _to_json(one) for each, one in runs})


def to_rehearse(store: Store, mails: Sequence[tuple[Label, Mail]]) -> Sequence[tuple[Label, bytes]]:
    """Class and digest of mails that earlier runs have learnt: of each class FEWEST, or as many as it lacks here.

    They are drawn from all there are, other ones each time, as the last ones may be of one kind. Those that a person
    has only confirmed, with the same label, are among them.
    """
    numbers, found = Counter(map(label_of, mails)), list[tuple[Label, bytes]]()
    learnt = _of_bulk_training(store)
    chance = Random(len(learnt))  # noqa: S311 - which mails they are is no secret
    for label in LABELS:
        mine = [one for one in learnt if one.label == label]
        lacking = max(numbers.values(), default=0) - numbers[label]
        drawn = chance.sample(mine, min(len(mine), max(lacking, FEWEST)))
        found += [(label, one.digest) for one in sorted(drawn, key=lambda one: one.at)]
    return mixed(found, label_of)


def _of_bulk_training(store: Store) -> list[Entry]:
    """The learnings of bulk training, and those of persons that took the place of one with the same label."""
    learnt = store.learnings()
    of_persons = [one for one in learnt if one.source not in NOBODYS]
    said, confirmed = store.histories([one.digest for one in of_persons]), set[int]()
    for one in of_persons:
        before = {entry.id: entry for entry in said[one.digest]}
        taught = (before.get(entry.undoes or 0) for entry in before.values() if entry.at == one.at)
        if any(of is not None and (of.source, of.label) == (BULK, one.label) for of in taught):
            confirmed.add(one.id)
    return [one for one in learnt if one.source == BULK or one.id in confirmed]
