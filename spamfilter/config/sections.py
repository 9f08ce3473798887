"""The sections of the configuration file: each key with its type, its bounds and its default.

Guarantee: no section holds a value outside its bounds, or values that contradict each other.
"""

import ipaddress
import re
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from typing import Annotated, Literal, Self
from urllib.parse import parse_qs, urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from spamfilter.bayes.verdict import Action
from spamfilter.config import addresses, sender_rules
from spamfilter.config.addresses import Network
from spamfilter.config.translation import known_language
from spamfilter.errors import StoreError
from spamfilter.stores import STORES, Rule
from spamfilter.stores.sql.connection import has_password

COMMANDS_BESIDE = 10
"""Commands of a message besides RCPT: EHLO twice, STARTTLS, XFORWARD, MAIL, DATA, and some RSET or NOOP."""

MOST_WORKERS = 256
"""Most processes of a relay: more than any next hop can use, and few enough to find a typing error."""

SHAPES = {
    "list_type": 'must be a list, as in ["..."]',
    "model_type": "must be a section: a line with its name in single brackets, as in [log], and its keys below",
}
"""Kind of an error of pydantic -> the same for a user, who knows TOML."""


class Section(BaseModel):
    """A table of the file: an unknown key is an error, a number is finite, nothing is converted."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


def empty_or(check: Callable[[str], str]) -> AfterValidator:
    """A check for a key that may stay empty."""
    return AfterValidator(lambda text: check(text) if text else "")


def store_url(text: str) -> str:
    """The URL of a database, as it is. Raises ValueError."""
    if text.partition(":")[0] not in STORES:
        raise ValueError(f"not a store; known kinds: {', '.join(STORES)}")
    if text.startswith("sqlite") and not re.fullmatch(r"sqlite:////[^?]+", text):
        raise ValueError("name an absolute path, as in sqlite:////var/lib/spamfilter/spamfilter.db")
    try:
        if has_password(text):
            raise ValueError("no password belongs here: write it into a file, and add ?passfile=FILE")
    except StoreError as error:
        raise ValueError(str(error).removeprefix("[store] url: ")) from None
    for name, values in parse_qs(urlsplit(text).query).items():
        if len(values) > 1:
            raise ValueError(f"{name} is named twice: write {name}={','.join(values)}")
    return text


Address = Annotated[str, AfterValidator(addresses.address)]
Place = Annotated[str, AfterValidator(addresses.address_or_socket)]
Domain = Annotated[str, AfterValidator(addresses.domain)]
Mailbox = Annotated[str, AfterValidator(addresses.mailbox)]
PathText = Annotated[str, empty_or(addresses.absolute)]
NetworkText = Annotated[str, AfterValidator(addresses.network)]
Share = Annotated[float, Field(ge=0, le=1)]
Seconds = Annotated[float, Field(gt=0, le=86_400)]
Days = Annotated[float, Field(gt=0, le=36_500)]
Count = Annotated[int, Field(ge=1, le=1_000_000_000)]
SenderRule = Annotated[str, AfterValidator(sender_rules.checked)]
Login = Annotated[str, Field(min_length=1), AfterValidator(addresses.one_line)]


class Relay(Section):
    listen: Annotated[list[Address], Field(min_length=1)] = ["127.0.0.1:10025"]
    submission: list[Place] = []
    milter: list[Place] = []
    lmtp: list[Place] = []
    workers: Annotated[int, Field(ge=0, le=MOST_WORKERS)] = 0
    next_hop: Annotated[str, empty_or(addresses.next_hop)] = ""
    next_hop_tls: Literal["none", "starttls"] = "none"
    next_hop_ca: str = ""
    mode: Literal["before-queue", "after-queue"] = "before-queue"
    trusted: list[NetworkText] = ["127.0.0.0/8", "::1/128"]
    proxy_protocol: bool = False
    domains: list[Domain] = []
    hostname: Annotated[str, empty_or(addresses.host_name)] = ""
    tls_certificate: str = ""
    tls_key: str = ""
    bare_newlines: Literal["reject", "normalise"] = "reject"

    def networks(self) -> tuple[Network, ...]:
        return tuple(ipaddress.ip_network(text) for text in self.trusted)

    def places(self) -> list[str]:
        """All addresses at which mail is received."""
        return [*self.listen, *self.submission, *self.lmtp, *self.milter]

    @property
    def without_next_hop(self) -> str:
        """What happens while the next hop does not answer."""
        if self.milter:
            return "mail by milter goes on; other clients hear 451, and releases, digests and answers wait"
        return "clients hear 451 and keep their mail"

    def dangers(self) -> list[str]:
        """A sentence for each value that lets mail loop, loses all mail from outside, or relays for everybody."""
        found = []
        hop = addresses.host_and_port(addresses.next_hop_place(self.next_hop))
        own_socket = self.next_hop.replace("lmtp://", "unix:", 1) in self.places()
        if own_socket or any(addresses.leads_to(hop, addresses.host_and_port(text)) for text in self.places()):
            found.append(f"relay.next_hop = {self.next_hop!r} is where the relay itself listens: mail would loop")
        if everybody := [text for text in self.trusted if ipaddress.ip_network(text).prefixlen == 0]:
            found.append(f"relay.trusted has {everybody[0]!r}, every client: an open relay, which sends anybody's spam")
        elif not self.domains and (every := [*filter(addresses.is_everywhere, (*self.listen, *self.lmtp))]):
            key = "listen" if every[0] in self.listen else "lmtp"
            found.append(
                f"relay.{key} = {every[0]!r} takes clients from everywhere, but relay.domains is empty: all mail of"
                " clients outside relay.trusted is rejected; name your domains"
            )
        return found

    @model_validator(mode="after")
    def _places_once(self) -> Self:
        chosen = [place for place in self.places() if not place.endswith(":0")]  # which is any port that is free
        if twice := next((place for at, place in enumerate(chosen) if place in chosen[:at]), ""):
            raise ValueError(f"{twice!r} stands twice in listen, submission, lmtp and milter; each needs its own")
        return self

    @model_validator(mode="after")
    def _pairs(self) -> Self:
        if bool(self.tls_certificate) != bool(self.tls_key):
            raise ValueError(
                f"tls_certificate = {self.tls_certificate!r} and tls_key = {self.tls_key!r} go together:"
                " set both or none"
            )
        if self.next_hop_tls == "starttls" and not addresses.next_hop_place(self.next_hop):
            raise ValueError(
                f'next_hop_tls = "starttls" needs an smtp:// or lmtp:// next_hop with a port, not {self.next_hop!r}'
            )
        return self


class Verdict(Section):
    spam: Share = 0.9
    unsure: Share = 0.5
    reject: Share = 0.999
    reject_after: Annotated[int, Field(ge=0)] = 200
    on_ham: Action = "pass"
    on_unsure: Action = "pass"
    on_spam: Action = "tag"
    subject_prefix: Annotated[str, AfterValidator(addresses.one_line)] = ""
    evidence_header: bool = False
    quarantine: PathText = ""
    quarantine_days: Days = 30.0

    def in_order(self) -> Self:
        """These values. Raises ValueError if the thresholds contradict each other."""
        if self.unsure > self.spam or (self.reject and self.reject < self.spam):
            raise ValueError(
                f"unsure = {self.unsure}, spam = {self.spam}, reject = {self.reject}: thresholds must rise, unsure <="
                " spam <= reject (reject = 0 never rejects)"
            )
        return self

    _in_order = model_validator(mode="after")(in_order)


class Lists(Section):
    allow: list[SenderRule] = []
    block: list[SenderRule] = []
    results_from: list[Annotated[str, AfterValidator(sender_rules.authentication_name)]] = []

    def rules(self) -> list[Rule]:
        return [
            *(sender_rules.rule("allow", text) for text in self.allow),
            *(sender_rules.rule("block", text) for text in self.block),
        ]


class Recipients(Section):
    """A table of [[recipients]]; None: as in [verdict]."""

    to: Annotated[list[Annotated[str, AfterValidator(sender_rules.some_recipients)]], Field(min_length=1)]
    spam: Share | None = None
    unsure: Share | None = None
    reject: Share | None = None
    on_ham: Action | None = None
    on_unsure: Action | None = None
    on_spam: Action | None = None
    subject_prefix: Annotated[str, AfterValidator(addresses.one_line)] | None = None
    allow: list[SenderRule] = []
    block: list[SenderRule] = []

    def verdict(self, usual: Verdict) -> Verdict:
        """[verdict] with what this table says. Raises ValueError if the thresholds contradict each other."""
        given = {key: value for key in Verdict.model_fields if (value := getattr(self, key, None)) is not None}
        return usual.model_copy(update=given).in_order()

    def rules(self) -> list[Rule]:
        return [
            replace(rule, whom=whom) for rule in Lists(allow=self.allow, block=self.block).rules() for whom in self.to
        ]

    @model_validator(mode="after")
    def _for_these_alone(self) -> Self:
        for text in (*self.allow, *self.block):
            if sender_rules.rule("allow", text).whom:
                raise ValueError(f'{text!r} names recipients; here it is for those of `to`: leave out the "for"')
        return self


class Store(Section):
    url: Annotated[str, empty_or(store_url)] = ""


class Feedback(Section):
    window_days: Days = 14.0
    window_megabytes: Count = 1000
    socket: Annotated[str, empty_or(addresses.socket_path)] = ""
    users: list[Login] = []
    proxies: list[Login] = []
    marks_a_day: Count = 200
    counterparts: bool = True
    spam_addresses: list[Mailbox] = []
    ham_addresses: list[Mailbox] = []
    answer: bool = False
    language: Annotated[str, AfterValidator(known_language)] = "en"
    automatic: list[Literal["answered", "trap"]] = []
    traps: list[Mailbox] = []

    @model_validator(mode="after")
    def _each_address_means_one_thing(self) -> Self:
        lists = {name: set(getattr(self, name)) for name in ("spam_addresses", "ham_addresses", "traps")}
        for one, other in combinations(lists, 2):
            if both := sorted(lists[one] & lists[other]):
                raise ValueError(f"{one} and {other} both have {both[0]!r}")
        return self


class Limits(Section):
    connections: Count = 1000
    connections_per_client: Count = 50
    message_size: Annotated[int, Field(ge=65536)] = 52_428_800
    recipients: Count = 1000
    commands: Count = 2000
    errors: Count = 20
    memory_megabytes: Count = 256
    idle_seconds: Seconds = 300.0
    data_seconds: Seconds = 180.0
    tls_seconds: Seconds = 30.0
    transaction_seconds: Seconds = 3600.0
    session_seconds: Seconds = 14_400.0
    connect_seconds: Seconds = 15.0
    command_seconds: Seconds = 60.0
    final_seconds: Seconds = 80.0
    drain_seconds: Seconds = 30.0
    journal_backlog: Count = 10_000
    feedback_connections: Count = 100
    feedback_connections_per_user: Count = 10

    @property
    def memory_bytes(self) -> int:
        return self.memory_megabytes * 10**6

    @model_validator(mode="after")
    def _one_message_fits(self) -> Self:
        if self.message_size > self.memory_bytes:
            raise ValueError(
                f"message_size = {self.message_size} is more than memory_megabytes = {self.memory_megabytes} holds:"
                " a message of that size would never be taken"
            )
        if self.recipients + COMMANDS_BESIDE > self.commands:
            raise ValueError(
                f"commands = {self.commands} do not do for a message to recipients = {self.recipients}:"
                f" it needs one for each, and {COMMANDS_BESIDE} for the rest"
            )
        return self


class Metrics(Section):
    listen: Annotated[str, empty_or(addresses.address)] = ""


class Report(Section):
    journal_days: Days = 30.0
    mail_to: list[Mailbox] = []
    mail_from: Annotated[str, empty_or(addresses.mailbox)] = ""


class Digest(Section):
    hours: list[Annotated[int, Field(ge=0, le=23)]] = []
    url: Annotated[str, empty_or(addresses.page_url)] = ""
    domains: list[Domain] = []
    without: list[Mailbox] = []
    entries: Annotated[int, Field(ge=1, le=1000)] = 50
    link_days: Days = 7.0
    mail_from: Annotated[str, empty_or(addresses.mailbox)] = ""

    @model_validator(mode="after")
    def _links_lead_somewhere(self) -> Self:
        if self.hours and not self.url:
            raise ValueError(f"hours = {self.hours} needs url = where users reach the web page")
        return self


class Web(Section):
    listen: Annotated[str, empty_or(addresses.address)] = ""
    accounts: PathText = ""
    proxy_header: Annotated[str, empty_or(addresses.header_name)] = ""
    proxy_addresses: list[NetworkText] = []
    session_hours: Annotated[float, Field(gt=0, le=720)] = 12.0
    excerpt: Annotated[int, Field(ge=0, le=2_000)] = 400

    def proxies(self) -> tuple[Network, ...]:
        return tuple(ipaddress.ip_network(text) for text in self.proxy_addresses)

    @model_validator(mode="after")
    def _somebody_may_use_it(self) -> Self:
        if self.listen and not self.accounts:
            raise ValueError(
                f"listen = {self.listen!r} needs accounts = a file with a line for each user, which"
                " `spamfilter web-password NAME` prints"
            )
        if self.proxy_header and not self.proxy_addresses:
            raise ValueError(
                f"proxy_header = {self.proxy_header!r} needs proxy_addresses, or anybody could send it: name the"
                " networks of your reverse proxy"
            )
        return self


class Log(Section):
    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["text", "json"] = "text"
