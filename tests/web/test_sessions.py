"""Sessions, and the limit of attempts to sign in, with a simulated clock."""

from spamfilter.web.accounts import Account
from spamfilter.web.site.sessions import MOST_SESSIONS, Sessions
from spamfilter.web.site.throttle import MOST_REMEMBERED, OF_ADDRESS, OF_NAME, SECONDS, Throttle

ANN = Account("ann", "label", "$argon2id$one")
ACCOUNTS = {"ann": ANN}


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_session_ends_after_its_hours() -> None:
    clock = Clock()
    sessions = Sessions(2, clock)
    token, session = sessions.begin(ANN)
    clock.now += 7199
    assert sessions.find(token, ACCOUNTS) is session
    clock.now += 1
    assert sessions.find(token, ACCOUNTS) is None


def test_a_session_ends_with_its_account_and_with_its_password() -> None:
    for accounts in ({}, {"ann": Account("ann", "label", "$argon2id$two")}):
        sessions = Sessions(2, Clock())
        token, _ = sessions.begin(ANN)
        assert sessions.find(token, accounts) is None
        assert sessions.find(token, ACCOUNTS) is None


def test_an_account_has_no_more_than_its_sessions_and_the_oldest_goes() -> None:
    sessions = Sessions(2, Clock())
    tokens = [sessions.begin(ANN)[0] for _ in range(MOST_SESSIONS + 1)]
    assert [bool(sessions.find(token, ACCOUNTS)) for token in tokens] == [False] + [True] * MOST_SESSIONS


def test_a_stamp_is_of_one_token_and_one_process() -> None:
    sessions = Sessions(2, Clock())
    stamp = sessions.stamp("one")
    assert sessions.is_stamp("one", stamp)
    assert not sessions.is_stamp("two", stamp)
    assert not sessions.is_stamp("", sessions.stamp(""))
    assert not sessions.is_stamp("one", "\u00e9")
    assert not Sessions(2, Clock()).is_stamp("one", stamp)


def test_an_address_has_its_attempts_and_gets_them_back() -> None:
    clock = Clock()
    throttle = Throttle(clock)
    assert [throttle.attempt("192.0.2.1", f"name {number}") for number in range(OF_ADDRESS)] == [0.0] * OF_ADDRESS
    assert throttle.attempt("192.0.2.1", "ann") == SECONDS
    assert throttle.attempt("192.0.2.2", "ann") == 0
    clock.now += SECONDS
    assert throttle.attempt("192.0.2.1", "ann") == 0


def test_an_ipv6_network_is_one_address() -> None:
    throttle = Throttle(Clock())
    for number in range(OF_ADDRESS):
        assert throttle.attempt(f"2001:db8::{number:x}", f"name {number}") == 0
    assert throttle.attempt("2001:db8::ffff", "ann")
    assert not throttle.attempt("2001:db8:0:1::1", "ann")


def test_a_name_has_its_attempts_from_all_addresses_together() -> None:
    throttle = Throttle(Clock())
    assert [throttle.attempt(f"192.0.2.{number}", "ann") for number in range(OF_NAME)] == [0.0] * OF_NAME
    assert throttle.attempt("192.0.2.99", "ann") > 0


def test_what_was_right_does_not_count() -> None:
    throttle = Throttle(Clock())
    for _ in range(3 * OF_NAME):
        assert throttle.attempt("192.0.2.1", "ann") == 0
        throttle.pardon("192.0.2.1", "ann")


def test_a_flood_of_names_takes_no_more_memory() -> None:
    throttle = Throttle(Clock())
    for number in range(MOST_REMEMBERED):
        throttle.attempt(f"10.{number >> 8}.{number & 255}.1", f"name {number}")
    assert len(throttle._attempts) == MOST_REMEMBERED
