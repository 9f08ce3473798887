"""What the parts of all pages do while the configuration names another likelihood than the counts were made by."""

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock

import pytest

import spamfilter.web.site
from spamfilter.config.settings import Settings, load
from spamfilter.learning.filter import Filter
from spamfilter.learning.undoing import MANY
from spamfilter.mail.message import parse
from spamfilter.stores import open_store
from spamfilter.web import marking
from spamfilter.web.accounts import Account
from spamfilter.web.site import Site
from spamfilter.web.site.sessions import Sessions
from spamfilter.web.site.visitors import Accounts, Visitors
from tests.web.pages import mail_of

CONFIG = '[learn]\nlikelihood = "bernoulli"\n[feedback]\nmarks_a_day = {marks}\n'


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """Parts of pages with marks of anna, learnt by another likelihood."""
    file, accounts = tmp_path / "config.toml", tmp_path / "accounts"
    file.write_text(CONFIG.format(marks=100))
    accounts.write_text("anna:administer:-\n")
    counted = Settings.model_validate({"learn": {"likelihood": "multinomial"}})
    with closing(open_store(f"sqlite:///{tmp_path}/spamfilter.db")) as store:
        filter = Filter(store, counted.voices())
        for number in range(MANY):
            reading = filter.read(parse(mail_of(str(number), "Lunch", f"at noon in room {number}")))
            filter.learn(reading, "spam", "web", "anna")
        settings = load(file)
        yield Site(settings, file, store, Sessions(1), Visitors(settings.web, Accounts(accounts)), Lock())


def test_many_marks_are_undone(site: Site) -> None:
    taught = marking.taught(site, "anna", datetime(2000, 1, 1, tzinfo=UTC))
    assert marking.forget(site, taught, Account("anna", "administer", "-")) == MANY
    assert site.store.state({}).learnt["spam"] == 0


def test_a_reload_while_a_page_reads_the_section_is_not_lost(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def reloaded_meanwhile(file: Path | None) -> Settings:
        assert site.file is not None
        site.file.write_text(CONFIG.format(marks=200))
        site.reload()
        return load(file)

    monkeypatch.setattr(spamfilter.web.site, "load", reloaded_meanwhile)
    site.voices()
    assert site.settings.feedback.marks_a_day == 200
