"""Rules on senders that commands make, obeyed by a running relay with several processes, and undone."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.client import Client
from tests.faults.daemon import Daemon, daemon
from tests.faults.hop import Hop, next_hop
from tests.integration.servers import seconds_until

MOMENT, ATTEMPTS = 3.0, 2
"""Seconds in which a rule must count: docs/lists.md says one, and this machine may be busy; and how often it is
tried."""
HAM = b"From: a@example.org\r\nTo: b@example.test\r\nSubject: Lunch\r\n\r\nShall we meet for lunch?\r\n"
PROVED = b"Authentication-Results: mx.test; dmarc=pass header.from=example.org\r\n"


@pytest.fixture
def running(tmp_path: Path) -> Iterator[tuple[Hop, Daemon]]:
    with (
        next_hop() as hop,
        daemon(
            tmp_path,
            hop,
            verdict={"on_spam": "reject", "on_unsure": "defer"},
            lists={"results_from": ["mx.test"]},
            relay={"workers": 2},
        ) as relay,
    ):
        yield hop, relay


def answered(relay: Daemon, mail: bytes = HAM) -> set[str]:
    """What several new clients, so each worker, hear of a mail."""
    found = set()
    for _ in range(6):
        with Client(relay.port) as client:
            found.add(client.deliver(mail).raw[:20].decode())
    return found


def rule_of(relay: Daemon, *command: str) -> str:
    done = relay.command(*command, "--json")
    assert done.returncode == 0, done.stderr
    return str(json.loads(done.stdout)["rule"])


def test_a_rule_counts_in_a_moment_and_is_undone_in_a_moment(running: tuple[Hop, Daemon]) -> None:
    hop, relay = running
    deferred = {"451 4.7.1 Deferred; "}
    assert answered(relay) == deferred

    def blocked_for_a_while() -> float:
        blocked = rule_of(relay, "block", "example.org", "--for", "b@example.test")
        there = seconds_until(lambda: answered(relay) == {"550 5.7.1 Sender blo"}, "the blocked sender")
        rule_of(relay, "unlist", blocked)
        return max(there, seconds_until(lambda: answered(relay) == deferred, "the rule's end"))

    def allowed_for_a_while() -> float:
        allowed = rule_of(relay, "allow", "example.org")
        passed = seconds_until(lambda: all(said[:3] == "250" for said in answered(relay, PROVED + HAM)), "the rule")
        assert answered(relay) == deferred  # nobody has proved it
        assert all(b"X-Spam-Flag" not in kept.mail for kept in hop.kept)
        rule_of(relay, "unlist", allowed)
        return max(passed, seconds_until(lambda: answered(relay, PROVED + HAM) == deferred, "the rule's end"))

    for while_it_counts in (blocked_for_a_while, allowed_for_a_while):
        assert any(while_it_counts() < MOMENT for _ in range(ATTEMPTS))
    former = [json.loads(line) for line in relay.command("lists", "--history", "--json").stdout.splitlines()]
    assert {rule["ending"] for rule in former} == {"undone"}
    assert len(former) >= 2
