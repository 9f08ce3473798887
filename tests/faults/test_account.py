"""The account itself: it must see a message that is lost, doubled, or there after a refusal."""

import pytest

from tests.faults.account import Account
from tests.faults.case import Tally
from tests.faults.client import Answer
from tests.faults.daemon import Daemon
from tests.faults.hop import Hop


def test_nothing_at_all_is_promised_without_a_250(hop: Hop, relay: Daemon, account: Account) -> None:
    """Only what was answered with 250 must be there."""
    assert account.send(relay.port).code == 250
    name = next(iter(account.answers))
    account.settle()
    hop.kept.append(hop.copies(name)[0])
    with pytest.raises(AssertionError, match=r"heard \[250\], the next hop has 2"):
        account.settle()
    assert account.tally() == Tally(sent=1, attempts=1, doubled=1)
    hop.kept[:] = [kept for kept in hop.kept if kept.name != name]
    with pytest.raises(AssertionError, match=r"heard \[250\], the next hop has 0"):
        account.settle()
    assert account.tally() == Tally(sent=1, attempts=1, lost=1)
    account.answers.clear()
    refused = account.name()
    sent = account.send(relay.port, refused)
    account.answers[refused] = [Answer(550, recipients=sent.recipients)]
    with pytest.raises(AssertionError, match=r"heard \[550\], the next hop has 1"):
        account.settle()
    assert account.tally().doubled == 1
