"""The commands `status` and `judge` of the feedback socket, by which `doctor` looks into a running relay."""

import asyncio
import os
from pathlib import Path

from spamfilter import __version__
from spamfilter.bayes import compiled
from spamfilter.config.settings import LIVE, Settings, load
from spamfilter.errors import ConfigError
from spamfilter.learning.filter import Filter
from spamfilter.learning.mark_lookup import by_id
from spamfilter.relay.limits.shared_counters import Shared
from spamfilter.relay.metrics import LIMITS, Snapshot
from spamfilter.service.control_socket.client import Answer
from spamfilter.service.ledger_following import Following
from spamfilter.service.reload import read_by_relay
from spamfilter.stores.schema import HEAD
from spamfilter.system.paths import config_file


async def status(
    settings: Settings, file: Path | None, filter: Filter, following: Following, figures: Snapshot, shared: Shared
) -> Answer:
    """The state of the relay. settings: those in use; file: the configuration file; figures: of all processes, and
    shared: what they share."""
    errors = [error for number in range(len(shared.state)) if (error := shared.journal_errors[number])]
    hits = {limit: int(figures["limits_hit"][limit,][0]) for limit in LIMITS}
    return {
        "version": __version__,
        "schema": HEAD,
        "plain": compiled.WHY_PLAIN,
        "refused": compiled.REFUSED,
        "uid": os.getuid(),
        "config": str(found.absolute()) if (found := config_file(file)) else "",
        "changed": await asyncio.to_thread(_changed, following.at_work(settings), file),
        "database": filter.store.where,
        "following": following.well,
        "catching_up": following.catching_up,
        "last": filter.last,
        "learnt": dict(filter.learnt),
        "journal_waiting": int(figures["journal_waiting"][()][0]),
        "journal_failing": bool(figures["journal_failing"][()][0]),
        "journal_error": errors[0] if errors else "",
        "journal_dropped": int(figures["journal_dropped"][()][0]),
        "limits_hit": {limit: number for limit, number in hits.items() if number},
        "resident_bytes": int(figures["resident_bytes"][()][0]),
    }


def _changed(settings: Settings, file: Path | None) -> list[str]:
    """Keys of the configuration file that the relay reads and that differ from the settings in use; a sentence if the
    file is wrong."""
    try:
        new = load(file)
    except ConfigError:
        return ["a way that is wrong: see `spamfilter check-config`"]
    reloaded, waiting = settings.reloaded(new)
    live = [
        f"{section}.{key}"
        for section, keys in LIVE.items()
        for key in sorted(keys)
        if getattr(getattr(reloaded, section), key) != getattr(getattr(settings, section), key)
    ]
    policies = ["recipients"] * (reloaded.recipients != settings.recipients)
    return [*read_by_relay(waiting), *live, *policies]


async def judge(filter: Filter, request: Answer) -> Answer:
    """Judge a message of the journal by the counts in memory."""
    subject = await asyncio.to_thread(by_id, filter, str(request.get("id", "")))
    score = filter.score(subject.reading)
    return {"id": subject.id, "posterior": score.posterior, "log_odds": score.log_odds, "last": filter.last}
