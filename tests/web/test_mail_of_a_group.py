"""The page of a mail that has counts of its group: what it is learnt as, and what was learnt of it."""

from contextlib import closing
from pathlib import Path

from spamfilter.bayes.labels import BULK
from spamfilter.config.likelihood_settings import Learn
from spamfilter.config.sections import Feedback
from spamfilter.config.settings import Settings
from spamfilter.learning.mark_lookup import by_id
from spamfilter.learning.marks import Author, mark
from spamfilter.mail.message import parse
from spamfilter.stores import open_store
from spamfilter.web.message_views import looked_at
from spamfilter.web.server import application
from spamfilter.web.site.visitors import Accounts
from tests.support.made import journal_entry, mail

ANNA, ROOT = Author("anna", "imap"), Author("root", "cli", master=True)


def test_what_everybody_was_taught_of_it_is_shown_too(tmp_path: Path) -> None:
    (tmp_path / "accounts").write_text("anna:look:-\n")
    with closing(open_store(f"sqlite:///{tmp_path / 'x.db'}")) as store:
        settings = Settings(learn=Learn(groups="domain"))
        site = application(settings, None, store, Accounts(tmp_path / "accounts")).state.site
        filter, message = site.filter(), parse(mail("News"))
        seen = filter.read(message, "example.net")
        entry = journal_entry(digest=seen.digest, tokens=seen.tokens)
        store.write_journal([entry])
        filter.learn(filter.read(message), "spam", BULK, "root")
        assert looked_at(site, entry.id).label == "spam"
        mark(filter, by_id(filter, entry.id), "ham", ROOT, Feedback())
        looked = looked_at(site, entry.id)
        assert looked.label == "ham"
        assert [(one.source, bool(one.undoes)) for one in looked.history] == [
            ("cli", False),
            ("cli", True),
            (BULK, False),
        ]
        mark(filter, by_id(filter, entry.id), "spam", ANNA, Feedback())
        assert looked_at(site, entry.id).label == "spam"  # as its group says


def test_what_the_groups_of_its_recipients_say_is_in_its_history(tmp_path: Path) -> None:
    (tmp_path / "accounts").write_text("anna:look:-\n")
    with closing(open_store(f"sqlite:///{tmp_path / 'x.db'}")) as store:
        settings = Settings(learn=Learn(groups="mailbox"))
        site = application(settings, None, store, Accounts(tmp_path / "accounts")).state.site
        filter = site.filter()
        seen = filter.read(parse(mail("News")))
        entry = journal_entry(digest=seen.digest, tokens=seen.tokens, recipients=["Anna@example.net", "b@example.net"])
        store.write_journal([entry])
        mark(filter, by_id(filter, entry.id), "spam", Author("anna@example.net", "imap"), Feedback())
        looked = looked_at(site, entry.id)
        assert [(one.label, one.by) for one in looked.history] == [("spam", "anna@example.net")]
        assert looked.label is None  # to the other one it is not
