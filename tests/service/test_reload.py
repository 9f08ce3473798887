"""A reload: what the relay says of keys that changed."""

from pathlib import Path

import pytest

from spamfilter.config.settings import Settings, load
from spamfilter.learning.filter import Filter
from spamfilter.relay.limits.shared_counters import Shared
from spamfilter.relay.metrics import Metrics
from spamfilter.service.control_socket.status import status
from spamfilter.service.ledger_following import Following
from tests.support.made import VOICE
from tests.support.memory_store import MemoryStore


@pytest.mark.parametrize(
    ("written", "changed"),
    [
        ("[web]\nsession_hours = 5\n", []),
        ('[relay]\nhostname = "mx.example.org"\n[web]\nsession_hours = 5\n', ["relay.hostname"]),
        ("[verdict]\nspam = 0.95\n", ["verdict.spam"]),
        ("[verdict]\nspam = 7\n", ["a way that is wrong: see `spamfilter check-config`"]),
    ],
    ids=["of the web page", "restart", "reload", "wrong"],
)
async def test_doctor_hears_of_changed_keys_that_the_relay_reads(
    tmp_path: Path, written: str, changed: list[str]
) -> None:
    file = tmp_path / "spamfilter.toml"
    file.write_text("")
    settings = load(file, {})
    filter = Filter(MemoryStore(), VOICE)
    following = Following(filter, settings.learn, lambda: settings.learn, Metrics())
    file.write_text(written)
    answer = await status(settings, file, filter, following, Metrics().snapshot(), Shared())
    assert answer["changed"] == changed


def test_what_the_journal_keeps_is_taken_over_without_a_restart(tmp_path: Path) -> None:
    file = tmp_path / "spamfilter.toml"
    file.write_text("[report]\njournal_days = 7\n[feedback]\nwindow_days = 3\nwindow_megabytes = 10\n")
    settings, waiting = Settings().reloaded(load(file, {}))
    feedback = settings.feedback
    assert (settings.report.journal_days, feedback.window_days, feedback.window_megabytes, waiting) == (7, 3, 10, [])
