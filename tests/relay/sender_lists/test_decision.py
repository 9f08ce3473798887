"""Which rule holds, and what it makes of a verdict."""

import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from spamfilter.bayes.model import Score
from spamfilter.bayes.verdict import PARTLY, Action, Class, Policy, Verdict
from spamfilter.config.sender_rules import rule
from spamfilter.mail.folded_addresses import folded
from spamfilter.relay.sender_lists.decision import Lists, Origin, decided
from spamfilter.stores import Rule
from tests.support.made import NOON

RESULTS = "Authentication-Results: mx; dmarc=pass header.from=a.good.example; spf=pass smtp.mailfrom=env.example\r\n"
MAIL = (RESULTS + "From: Boss <boss@a.good.example>\r\n\r\nx\r\n").encode()
ME, YOU = "me@b.net.example", "you@b.net.example"


def listed(*rules: str) -> Lists:
    return Lists([rule("allow" if text[0] == "+" else "block", text[1:]) for text in rules])


def met(lists: Lists, recipients: Sequence[str] = (ME,), mail: bytes = MAIL, client: str = "192.0.2.7") -> list[str]:
    """The rules for each recipient, '?' for one that is not proved."""
    uses = lists.uses(Origin(mail, "Bounce@Env.example", client, {"mx"}), recipients, NOON)
    return [f"{use.rule.kind} {use.rule.what}{use.rule.whom and ' ' + use.rule.whom}{'' if use.obeyed else ' ?'}"
            if use else "" for use in uses]  # fmt: skip


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        pytest.param(["-boss@a.good.example"], "block boss@a.good.example", id="address"),
        pytest.param(["-GOOD.example"], "block good.example", id="domain-above"),
        pytest.param(["-od.example"], "", id="domain-ends-alike"),
        pytest.param(["-env.example"], "block env.example", id="envelope"),
        pytest.param(["-192.0.2.0/24"], "block 192.0.2.0/24", id="network"),
        pytest.param(["-2001:db8::/32", "-192.0.3.0/24"], "", id="another-network"),
        pytest.param(["-good.example", "+boss@a.good.example"], "allow boss@a.good.example",
                     id="address-before-domain"),
        pytest.param(["-good.example", "+a.good.example"], "allow a.good.example", id="longest-domain"),
        pytest.param(["-192.0.2.0/24", "+192.0.2.7"], "allow 192.0.2.7/32", id="smallest-network"),
        pytest.param(["-192.0.2.7", "+example"], "allow example", id="domain-before-network"),
        pytest.param(["+a.good.example", "-a.good.example"], "block a.good.example", id="block-before-allow"),
        pytest.param(["-boss@a.good.example", "+good.example for net.example"], "allow good.example net.example",
                     id="recipients-domain-before-everybody"),
        pytest.param([f"+192.0.2.0/24 for {ME}", "-example for b.net.example"], f"allow 192.0.2.0/24 {ME}",
                     id="recipient-before-domain"),
        pytest.param([f"-example for {YOU}"], "", id="another-recipient"),
        pytest.param(["-example until 2026-02-28"], "", id="expired"),
        pytest.param(["-example until 2026-03-01"], "block example", id="last-day"),
        pytest.param(["+bounce@env.example"], "allow bounce@env.example", id="allowed-by-spf"),
    ],
)  # fmt: skip
def test_the_most_specific_rule_holds(rules: list[str], expected: str) -> None:
    assert met(listed(*rules)) == [expected]
    assert met(listed(*rules[::-1])) == [expected]


@pytest.mark.parametrize("written", ["M\N{LATIN SMALL LETTER U WITH DIAERESIS}ller", "xn--mller-kva"])
@pytest.mark.parametrize("asked", ["-m\N{LATIN SMALL LETTER U WITH DIAERESIS}ller.example", "-xn--mller-kva.example"])
def test_a_domain_beyond_ascii_is_the_same_in_either_form(written: str, asked: str) -> None:
    mail = f"From: a@{written}.example\r\n\r\nhello\r\n".encode()
    assert met(listed(asked), mail=mail) == ["block xn--mller-kva.example"]
    assert met(listed(f"-192.0.2.7 for {asked[1:]}"), [folded(f"me@{written}.example")]) == [
        "block 192.0.2.7/32 xn--mller-kva.example"
    ]


@pytest.mark.parametrize(
    "sender", ['"<boss@bank.example>" <x@good.example>', '"Boss <boss@bank.example>" <x@good.example>']
)
def test_the_proof_of_one_address_is_none_of_another_in_the_name(sender: str) -> None:
    mail = (
        b"Authentication-Results: mx; dmarc=pass header.from=good.example; dkim=pass header.d=good.example\r\n"
        b"From: " + sender.encode() + b"\r\n\r\nhello\r\n"
    )
    assert met(listed("+good.example"), mail=mail) == ["allow good.example"]
    assert met(listed("+boss@bank.example"), mail=mail) == ["allow boss@bank.example ?"]
    assert met(listed("+bank.example"), mail=mail) == ["allow bank.example ?"]
    assert met(listed("-bank.example"), mail=mail) == ["block bank.example"]


@pytest.mark.parametrize(
    "value",
    [
        "b@bank.example", "Bob <b@bank.example>", "(hello) b@bank.example", "b @ bank.example", "<b@ bank.example>",
        "b@bank.example (x <a@x.example>)", "list: b@bank.example;", "<b@bank.example(c)>",
        '"Bob (x" <b@bank.example>, y)', "((a) b) b@bank.example", "Bob Smith b@bank.example",
    ],
)  # fmt: skip
def test_a_blocked_sender_is_found_however_from_is_written(value: str) -> None:
    mail = f"From: {value}\r\nSubject: x\r\n\r\nx\r\n".encode()
    assert met(listed("-bank.example"), mail=mail) == ["block bank.example"]


def test_what_is_allowed_but_not_proved_is_passed_over() -> None:
    forged = MAIL.replace(b"=pass", b"=fail")
    assert met(listed("+a.good.example"), mail=forged) == ["allow a.good.example ?"]
    assert met(listed("+a.good.example", "-good.example"), mail=forged) == ["block good.example"]
    assert met(listed("+a.good.example", "+192.0.2.0/24"), mail=forged) == ["allow 192.0.2.0/24"]


def test_what_a_user_allows_yields_to_what_the_administrator_blocks() -> None:
    allowed, blocked = (Rule(kind, "a.good.example", ME, by=f"digest link: {ME}") for kind in ("allow", "block"))
    assert met(Lists([allowed])) == [f"allow a.good.example {ME}"]
    assert met(Lists([allowed, Rule("block", "example")])) == ["block example"]
    assert met(Lists([allowed, Rule("block", "192.0.2.0/24", "net.example")])) == ["block 192.0.2.0/24 net.example"]
    above = Rule("block", "example"), Rule("allow", "good.example")
    assert met(Lists([allowed, *above])) == [f"allow a.good.example {ME}"]
    assert met(Lists([blocked, Rule("allow", "a.good.example")])) == [f"block a.good.example {ME}"]


def judged(class_: Class, action: Action) -> Verdict:
    return Verdict(Score(3.0, 0.95), class_, action, 0.9, {"ham": 300, "spam": 300})


ALL = ["-good.example"]
SOME = [f"-good.example for {ME}"]


@pytest.mark.parametrize(
    ("rules", "class_", "action", "on_spam", "expected", "said"),
    [
        pytest.param(ALL, "ham", "pass", "tag", ("tag", "YES"), "blocked=good.example rule=config", id="blocked"),
        pytest.param(ALL, "ham", "pass", "reject", ("reject", "YES"), "blocked=good.example rule=config", id="refused"),
        pytest.param(ALL, "spam", "reject", "tag", ("reject", "YES"), "blocked=good.example rule=config",
                     id="refused-anyway"),
        pytest.param(SOME, "ham", "pass", "reject", ("pass", None), "blocked=good.example for-all=no rule=config",
                     id="blocked-by-one"),
        pytest.param(SOME, "spam", "tag", "reject", ("tag", "YES"), "blocked=good.example for-all=no rule=config",
                     id="spam-blocked-by-one"),
        pytest.param(SOME, "spam", "tag", "tag", ("tag", "YES"), "blocked=good.example for-all=no rule=config",
                     id="spam-blocked-by-one-to-the-same-end"),
        pytest.param([f"+good.example for {ME}"], "ham", "pass", "tag", ("pass", None),
                     "allowed=good.example proof=dmarc for-all=no rule=config", id="ham-allowed-by-one"),
        pytest.param(["+good.example"], "spam", "reject", "tag", ("pass", None),
                     "allowed=good.example proof=dmarc rule=config", id="allowed"),
        pytest.param([f"+good.example for {ME}"], "spam", "reject", "tag", ("pass", None),
                     "allowed=good.example proof=dmarc rule=config", id="allowed-by-one"),
        pytest.param(["+env.example", f"-good.example for {YOU}"], "spam", "tag", "tag", ("pass", None),
                     "allowed=env.example proof=spf rule=config", id="contradicted"),
        pytest.param(["+other.example"], "spam", "tag", "tag", ("tag", "YES"), "", id="no-rule"),
    ],
)  # fmt: skip
def test_the_mildest_action_of_all_recipients_holds(
    rules: list[str], class_: Class, action: Action, on_spam: Action, expected: tuple[Action, str | None], said: str
) -> None:
    policy = Policy(actions={"ham": "pass", "unsure": "pass", "spam": on_spam})
    uses = listed(*rules).uses(Origin(MAIL, "x@env.example", "192.0.2.7", {"mx"}), (ME, YOU), NOON)
    verdict = decided(judged(class_, action), policy, uses)
    fields = dict(verdict.fields("ID"))
    assert (verdict.action, fields.get("X-Spam-Flag")) == expected
    assert (verdict.listed, verdict.class_, verdict.score.posterior) == (said, class_, 0.95)
    shown = "" if PARTLY in said else said
    assert fields["X-Spam-Status"].endswith(shown or "learnt=300/300")
    assert fields["X-Spam-Status"].startswith("Yes" if expected[1] else "No")


def test_behind_the_queue_no_block_becomes_a_bounce() -> None:
    policy = Policy(actions={"ham": "pass", "unsure": "pass", "spam": "reject"}, may_reject=False)
    uses = listed("-good.example").uses(Origin(MAIL, "", "192.0.2.7"), (ME,), NOON)
    assert decided(judged("ham", "pass"), policy, uses).action == "tag"


@pytest.mark.parametrize("path", ['"a"@env.example', "@r.example:a@env.example", "\\a@Env.example."])
def test_a_rule_holds_for_a_sender_however_the_envelope_writes_it(path: str) -> None:
    (use,) = listed("-a@env.example").uses(Origin(MAIL, path, "192.0.2.7"), (ME,), NOON)
    assert use is not None


def test_ten_thousand_rules_are_looked_up_as_fast_as_ten() -> None:
    def seconds(number: int) -> float:
        some = [rule("block", f"s{at}.example") for at in range(number)]
        lists = Lists([*some, *(replace(rule("block", f"10.{at >> 8 & 255}.{at & 255}.0/24")) for at in range(number))])
        found = []
        for _ in range(5):
            began = time.thread_time()
            for _ in range(200):
                assert lists.uses(Origin(MAIL, "a@env.example", "192.0.2.7", {"mx"}), (ME,), NOON) == [None]
            found.append((time.thread_time() - began) / 200)
        return min(found)

    few, many = seconds(10), seconds(10_000)
    assert many < 3 * few
    assert many < 0.001


def test_a_rule_that_expires_ends_by_itself() -> None:
    lists = listed("-example until 2026-03-01")
    origin = Origin(MAIL, "", "192.0.2.7")
    assert lists.uses(origin, (ME,), NOON) != [None]
    assert lists.uses(origin, (ME,), NOON + timedelta(days=1)) == [None]
