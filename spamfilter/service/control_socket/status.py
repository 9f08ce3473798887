"""What a running relay tells the administrator about itself, over the feedback socket."""

import asyncio
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from spamfilter import __version__
from spamfilter.bayes import compiled
from spamfilter.config.settings import LIVE, Settings, load
from spamfilter.errors import ConfigError
from spamfilter.learning.filter import Filter
from spamfilter.learning.marks import by_id
from spamfilter.relay.metrics import LIMITS, Snapshot
from spamfilter.service.ledger_following import Following
from spamfilter.system.paths import config_file

Answer = dict[str, Any]


class Status:
    """Answers of the process that has the feedback socket, for all processes of the relay.

    facts: what stays as it is, such as where it listens. figures: the metrics of all processes. trouble: why the
    journal cannot be written.
    """

    def __init__(
        self,
        file: Path | None,
        filter: Filter,
        following: Following,
        facts: Mapping[str, Any],
        figures: Callable[[], Snapshot],
        trouble: Callable[[], str],
    ) -> None:
        self._file = file
        self._filter = filter
        self._following = following
        self._facts = facts
        self._figures = figures
        self._trouble = trouble

    async def status(self, settings: Settings) -> Answer:
        """What `doctor` wants to know; settings: those at work."""
        figures = self._figures()
        hits = {limit: int(figures["limits_hit"][limit,][0]) for limit in LIMITS}
        return {
            **self._facts,
            "version": __version__,
            "plain": compiled.WHY_PLAIN,
            "refused": compiled.REFUSED,
            "uid": os.getuid(),
            "config": str(file.absolute()) if (file := config_file(self._file)) else "",
            "changed": await asyncio.to_thread(self._changed, settings),
            "database": self._filter.store.where,
            "following": self._following.well,
            "last": self._filter.last,
            "learnt": dict(self._filter.learnt),
            "journal_waiting": int(figures["journal_waiting"][()][0]),
            "journal_dropped": int(figures["journal_dropped"][()][0]),
            "journal_trouble": self._trouble(),
            "limits_hit": {limit: number for limit, number in hits.items() if number},
            "resident_bytes": int(figures["resident_bytes"][()][0]),
        }

    def _changed(self, settings: Settings) -> list[str]:
        """Keys of the configuration that are not at work: changed since it was read, or the file is wrong."""
        try:
            new = load(self._file)
        except ConfigError:
            return ["a way that is wrong: see `spamfilter check-config`"]
        settings = self._following.at_work(settings)
        reloaded, waiting = settings.reloaded(new)
        live = [
            f"{section}.{key}"
            for section, keys in LIVE.items()
            for key in sorted(keys)
            if getattr(getattr(reloaded, section), key) != getattr(getattr(settings, section), key)
        ]
        return [*waiting, *live]

    async def judge(self, request: Answer) -> Answer:
        """What the counts in memory say now of a message of the journal."""
        subject = await asyncio.to_thread(by_id, self._filter.store, str(request.get("id", "")))
        score = self._filter.score(subject.reading)
        return {
            "id": subject.id, "posterior": score.posterior, "log_odds": score.log_odds, "last": self._filter.last,
        }  # fmt: skip
