"""An envelope: who is the author of the marks that a mail makes."""

import pytest

from spamfilter.relay.envelope import Transaction


@pytest.mark.parametrize(
    "sender",
    [
        "alice@example.test",
        "Alice@Example.TEST",
        '"alice"@example.test',
        "a\\lice@example.test",
        "@a.org,@b.org:alice@example.test",
        "alice@example.test.",
        "alice+lists@example.test",
    ],
)
def test_one_login_is_one_author_however_it_writes_its_address(sender: str) -> None:
    assert Transaction(sender.encode(), "127.0.0.1", proven=True).author() == "alice@example.test"


@pytest.mark.parametrize(("sender", "author"), [("alice", "alice"), ("+a@b.test", "+a@b.test"), ("", "")])
def test_a_sender_that_is_no_usual_address_is_an_author_all_the_same(sender: str, author: str) -> None:
    assert Transaction(sender.encode(), "127.0.0.1", proven=True).author() == author
