"""Which rule holds for a mail, and what it makes of the verdict.

Of the rules on a sender, the one for the recipient's address comes before one for its domain and that before one for
everybody; then the sender's address before its domain, a sub-domain before the domain above it, and both before the
client's network; then block before allow. An allowing rule whose sender is not proved is passed over, and shown if
no other rule holds. What users allow by the link of a digest yields to what administrators block. One action serves
all recipients: the mildest of those that each would have.

Guarantee: the time does not grow with the number of rules.
"""

import ipaddress
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property

from spamfilter.bayes.verdict import PARTLY, Action, Policy, Verdict
from spamfilter.relay.envelope_paths import above, mailbox_of
from spamfilter.relay.sender_lists.authentication_results import proved_domain, proved_envelope, statements
from spamfilter.relay.sender_lists.raw_header import RawHeader, addresses, only_address, spelled
from spamfilter.stores import Rule

MILDEST_FIRST: tuple[Action, ...] = ("pass", "tag", "quarantine", "defer", "reject")

Way = str
"""What of a mail a rule matches: "header" (the address of From), "envelope", "client", or "named": another address in
From, as in its name, which nothing can prove."""


@dataclass(frozen=True, slots=True)
class Use:
    """The rule for one recipient. proof: of the sender that it allows; '' if nothing proves it, or if it blocks."""

    rule: Rule
    proof: str = ""

    @property
    def obeyed(self) -> bool:
        return self.rule.kind == "block" or self.proof != ""


class Origin:
    """Where a mail is from: its client, its envelope sender and its header, read when they are needed.

    envelope: the path, as the client wrote it.
    results_from: names in Authentication-Results that may prove a sender; none if the mail came from a stranger, as
    then no server of ours has added any.
    """

    def __init__(self, mail: bytes, envelope: str, client: str, results_from: Collection[str] = ()) -> None:
        self.envelope = spelled(mailbox_of(envelope))
        self.client = client
        self._mail = mail
        self._results_from = results_from

    @cached_property
    def _header(self) -> RawHeader:
        return RawHeader(self._mail)

    @cached_property
    def _from_fields(self) -> list[str]:
        return [value for _, value in self._header.fields(b"from")]

    @property
    def senders(self) -> list[tuple[str, Way]]:
        envelope = [(self.envelope, "envelope")] if self.envelope else []
        named = {address for value in self._from_fields for address in addresses(value)} - {self._sender}
        return [*envelope, *[(self._sender, "header")] * bool(self._sender), *((one, "named") for one in sorted(named))]

    @cached_property
    def _sender(self) -> str:
        """The one address of From that can be proved, '' if there is none."""
        return only_address(self._from_fields[0]) if len(self._from_fields) == 1 else ""

    @cached_property
    def _proofs(self) -> dict[Way, str]:
        found = [*statements(self._header, self._results_from)] if self._results_from and self._header.whole else []
        proofs = {"client": "client"}
        if self.envelope:
            proofs["envelope"] = proved_envelope(found, _domain(self.envelope))
        if self._sender:
            proofs["header"] = proved_domain(found, _domain(self._sender))
        return proofs

    def proof(self, way: Way) -> str:
        """What proves the sender that a rule matches in this way; '' if nothing does."""
        return self._proofs.get(way, "")


class Lists:
    """Rules, found by hash. results_from: names of our own servers in Authentication-Results."""

    def __init__(self, rules: Iterable[Rule] = (), results_from: Collection[str] = ()) -> None:
        self.results_from = frozenset(results_from)
        self._rules: defaultdict[str, defaultdict[str, list[Rule]]] = defaultdict(lambda: defaultdict(list))
        # IP version -> bits of an address that vary -> the other bits -> the network.
        self._networks: dict[int, dict[int, dict[int, str]]] = {4: {}, 6: {}}
        for rule in rules:
            self._rules[rule.what][rule.whom].append(rule)
            if "/" in rule.what and "@" not in rule.what:
                network = ipaddress.ip_network(rule.what)
                rest = network.max_prefixlen - network.prefixlen
                same = self._networks[network.version].setdefault(rest, {})
                same[int(network.network_address) >> rest] = rule.what

    def __bool__(self) -> bool:
        return bool(self._rules)

    def uses(self, origin: Origin, recipients: Sequence[str], now: datetime) -> list[Use | None]:
        """The rule for each recipient, an address in lower case."""
        met = list(self._met(origin))
        return [self._use(met, origin, recipient, now) if met else None for recipient in recipients]

    def _met(self, origin: Origin) -> Iterator[tuple[str, Way]]:
        """The addresses, domains and networks of rules that match this mail, and what of the mail each matches."""
        for address, way in origin.senders:
            for what in above(address):
                if what in self._rules:
                    yield what, way
        try:
            client = ipaddress.ip_address(origin.client.partition("%")[0])
        except ValueError:
            return
        number = int(client)
        for rest, networks in self._networks[client.version].items():
            if network := networks.get(number >> rest):
                yield network, "client"

    def _use(self, met: Sequence[tuple[str, Way]], origin: Origin, recipient: str, now: datetime) -> Use | None:
        found = [
            (rule, way)
            for what, way in met
            for whom in (*above(recipient), "")
            for rule in self._rules[what].get(whom, ())
            if rule.expires is None or rule.expires > now
        ]
        found.sort(key=lambda each: _specificity(each[0]), reverse=True)
        uses = [Use(rule, origin.proof(way) if rule.kind == "allow" else "") for rule, way in found]
        obeyed = [use for use in uses if use.obeyed]
        administrators = next((use for use in obeyed if not use.rule.of_user), None)
        if administrators is not None and administrators.rule.kind == "block":
            return administrators
        return next(iter(obeyed or uses), None)


def decided(verdict: Verdict, policy: Policy, uses: Sequence[Use | None]) -> Verdict:
    """The verdict after the rules of all recipients; its class and score stay as they were judged."""
    met = [use for use in uses if use is not None]
    if not met:
        return verdict
    judged = MILDEST_FIRST.index(verdict.action), verdict.class_ == "spam"
    blocked = max(judged, (MILDEST_FIRST.index(policy.blocked()), True))

    def outcome(use: Use | None) -> tuple[int, bool]:
        if use is None or not use.obeyed:
            return judged
        return blocked if use.rule.kind == "block" else (0, False)

    mildest = min(map(outcome, uses))
    # What the filter would do anyway shows no rule to recipients that have none.
    by_rule = mildest != judged or all(use is not None and use.obeyed for use in uses)
    shown = next((use for use in met if by_rule and use.obeyed and outcome(use) == mildest), None)
    return replace(
        verdict,
        action=MILDEST_FIRST[mildest[0]],
        flagged=mildest[1],
        listed=_said(shown or met[0], for_all=shown is not None or not (met[0].obeyed or None in uses)),
    )


def _said(use: Use, *, for_all: bool) -> str:
    rule = use.rule
    said = f"blocked={rule.what}" if rule.kind == "block" else f"allowed={rule.what} proof={use.proof or 'none'}"
    said = f"{said} rule={rule.id or 'config'}"
    return said if for_all else of_some(said)


def of_some(listed: str) -> str:
    """`Verdict.listed` of a rule that not all recipients have; '' stays.

    >>> of_some("blocked=a@example.org rule=1")
    'blocked=a@example.org for-all=no rule=1'
    """
    said, rule, number = listed.rpartition(" rule=")
    return listed if PARTLY in listed or not rule else f"{said}{PARTLY}{rule}{number}"


def use_of(listed: str) -> str:
    """What `Verdict.listed` says of the rule: blocked, allowed, unproved (not obeyed for that), or ''.

    >>> use_of("blocked=example.org rule=1"), use_of("allowed=example.org proof=none rule=2"), use_of("")
    ('blocked', 'unproved', '')
    """
    kind = listed.partition("=")[0]
    return "unproved" if kind == "allowed" and " proof=none" in listed else kind


def _domain(address: str) -> str:
    return address.rpartition("@")[2]


def _specificity(rule: Rule) -> tuple[tuple[int, int], tuple[int, int], bool, int]:
    return _narrow(rule.whom), _narrow(rule.what), rule.kind == "block", rule.id


def _narrow(what: str) -> tuple[int, int]:
    """The more specific an address, domain or network is, the greater."""
    if "@" in what:
        return 3, 0
    if "/" in what:
        return 1, int(what.rpartition("/")[2])
    return (2, what.count(".")) if what else (0, 0)
