"""One TOML file, and the environment, to frozen settings.

Guarantee: what is wrong is an error that names file, key and value; an unknown key is wrong too.
config/spamfilter.toml is the reference: every key with its default and reason; a test holds both together.
"""

import ipaddress
import os
import re
import tomllib
from collections.abc import Mapping
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args, get_origin

from pydantic import AfterValidator, BaseModel, Field, ValidationError, model_validator

from spamfilter import addresses, tls
from spamfilter.addresses import Network
from spamfilter.errors import ConfigError
from spamfilter.learning_rules import Learn, Section
from spamfilter.places import LONGEST_SOCKET, config_file, socket_path, state_directory, values_of
from spamfilter.redaction import redacted
from spamfilter.rights import ANYBODY, by_mode
from spamfilter.stores import STORES
from spamfilter.verdict import CLASSES, Action, Policy, printable
from spamfilter.voices import Voices

PREFIX = "SPAMFILTER_"
COMMANDS_BESIDE = 10
"""Commands of a message beside its recipients: EHLO twice, STARTTLS, XFORWARD, MAIL, DATA, and some RSET or NOOP."""

MOST_WORKERS = 256
"""Processes of a relay: more than any next hop has use for, and a typing error in the number is found."""

LIVE: dict[str, frozenset[str]] = {
    "relay": frozenset(("trusted", "domains", "bare_newlines")),
    "verdict": frozenset((
        "spam", "unsure", "reject", "reject_after", "on_ham", "on_unsure", "on_spam", "subject_prefix",
        "evidence_header", "quarantine_days",
    )),
    "feedback": frozenset((
        "users", "proxies", "marks_a_day", "spam_addresses", "ham_addresses", "answer", "automatic", "traps",
    )),
    "limits": frozenset((
        "connections", "connections_per_client", "commands", "errors", "message_size", "recipients", "memory_megabytes",
        "idle_seconds", "data_seconds", "tls_seconds", "transaction_seconds", "session_seconds", "drain_seconds",
        "feedback_connections", "feedback_connections_per_user",
    )),
    "log": frozenset(("level",)),
}  # fmt: skip
"""Keys that a running relay takes over at SIGHUP; the others want a restart."""


def _store_url(text: str) -> str:
    if text and text.partition(":")[0] not in STORES:
        raise ValueError(f"not a store; known kinds: {', '.join(STORES)}")
    if text.startswith("sqlite") and not re.fullmatch(r"sqlite:////[^?]+", text):
        raise ValueError("name an absolute path, as in sqlite:////var/lib/spamfilter/spamfilter.db")
    return text


def _socket(text: str) -> str:
    if len(os.fsencode(text)) > LONGEST_SOCKET:
        raise ValueError(f"longer than the {LONGEST_SOCKET} bytes of a socket's path")
    return text


def _address_or_none(text: str) -> str:
    return addresses.address(text) if text else ""


Address = Annotated[str, AfterValidator(addresses.address)]
NetworkText = Annotated[str, AfterValidator(addresses.network)]
Share = Annotated[float, Field(ge=0, le=1)]
Seconds = Annotated[float, Field(gt=0, le=86_400)]
Days = Annotated[float, Field(gt=0, le=36_500)]
Count = Annotated[int, Field(ge=1)]
Login = Annotated[str, Field(min_length=1), AfterValidator(addresses.one_line)]


class Relay(Section):
    listen: Annotated[list[Address], Field(min_length=1)] = ["127.0.0.1:10025"]
    submission: list[Address] = []
    workers: Annotated[int, Field(ge=0, le=MOST_WORKERS)] = 0
    next_hop: Annotated[str, AfterValidator(addresses.next_hop)] = ""
    next_hop_tls: Literal["none", "starttls"] = "none"
    next_hop_ca: str = ""
    mode: Literal["before-queue", "after-queue"] = "before-queue"
    trusted: list[NetworkText] = ["127.0.0.0/8", "::1/128"]
    domains: list[Annotated[str, AfterValidator(addresses.domain)]] = []
    hostname: Annotated[str, AfterValidator(addresses.host_name)] = ""
    tls_certificate: str = ""
    tls_key: str = ""
    bare_newlines: Literal["reject", "normalise"] = "reject"

    def networks(self) -> tuple[Network, ...]:
        return tuple(ipaddress.ip_network(text) for text in self.trusted)

    @model_validator(mode="after")
    def _pairs(self) -> Self:
        if bool(self.tls_certificate) != bool(self.tls_key):
            raise ValueError(
                f"tls_certificate = {self.tls_certificate!r} and tls_key = {self.tls_key!r} go together:"
                " set both or none"
            )
        if self.next_hop_tls == "starttls" and not self.next_hop.startswith("smtp:"):
            raise ValueError(f'next_hop_tls = "starttls" needs an smtp:// next_hop, not {self.next_hop!r}')
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
    quarantine: Annotated[str, AfterValidator(addresses.absolute)] = ""
    quarantine_days: Days = 30.0

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.unsure > self.spam or (self.reject and self.reject < self.spam):
            raise ValueError(
                f"unsure = {self.unsure}, spam = {self.spam}, reject = {self.reject}: thresholds must rise, unsure <="
                " spam <= reject (reject = 0 never refuses)"
            )
        return self


class Store(Section):
    url: Annotated[str, AfterValidator(_store_url)] = ""


class Feedback(Section):
    window_days: Days = 14.0
    window_megabytes: Count = 1000
    socket: Annotated[str, AfterValidator(addresses.absolute), AfterValidator(_socket)] = ""
    users: list[Login] = []
    proxies: list[Login] = []
    marks_a_day: Count = 200
    spam_addresses: list[Annotated[str, AfterValidator(addresses.mailbox)]] = []
    ham_addresses: list[Annotated[str, AfterValidator(addresses.mailbox)]] = []
    answer: bool = False
    automatic: list[Literal["answered", "trap"]] = []
    traps: list[Annotated[str, AfterValidator(addresses.mailbox)]] = []

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
    listen: Annotated[str, AfterValidator(_address_or_none)] = ""


class Report(Section):
    journal_days: Days = 30.0
    mail_to: list[Annotated[str, AfterValidator(addresses.mailbox)]] = []
    mail_from: Annotated[str, AfterValidator(addresses.mailbox_or_none)] = ""


class Web(Section):
    listen: Annotated[str, AfterValidator(_address_or_none)] = ""
    accounts: Annotated[str, AfterValidator(addresses.absolute)] = ""
    proxy_header: Annotated[str, AfterValidator(addresses.header_name_or_none)] = ""
    proxy_addresses: list[NetworkText] = []
    session_hours: Annotated[float, Field(gt=0, le=720)] = 12.0

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


class Settings(Section):
    """All settings."""

    relay: Relay = Relay()
    verdict: Verdict = Verdict()
    learn: Learn = Learn()
    store: Store = Store()
    feedback: Feedback = Feedback()
    limits: Limits = Limits()
    metrics: Metrics = Metrics()
    report: Report = Report()
    web: Web = Web()
    log: Log = Log()

    def store_url(self) -> str:
        return self.store.url or f"sqlite:///{state_directory() / 'spamfilter.db'}"

    def workers(self) -> int:
        """How many processes take mail in; a store in memory is one process' own."""
        if self.store.url.startswith("memory:"):
            return 1
        return self.relay.workers or min(len(os.sched_getaffinity(0)), MOST_WORKERS)

    def normalises(self) -> bool:
        """Whether lone CRs and LFs are mended; after the queue a refusal would bounce to forged senders."""
        return self.relay.bare_newlines == "normalise" or self.relay.mode == "after-queue"

    def next_hop_url(self) -> str:
        return self.relay.next_hop or f"maildir:{state_directory() / 'mail'}"

    def quarantine_path(self) -> Path:
        return Path(self.verdict.quarantine or state_directory() / "quarantine")

    def socket_path(self) -> Path:
        return socket_path(self.feedback.socket)

    def policy(self) -> Policy:
        verdict = self.verdict
        return Policy(
            spam=verdict.spam,
            unsure=verdict.unsure,
            reject=verdict.reject,
            reject_after=verdict.reject_after,
            actions={name: getattr(verdict, f"on_{name}") for name in CLASSES},
            may_reject=self.relay.mode == "before-queue",
            subject_prefix=verdict.subject_prefix,
            evidence_header=verdict.evidence_header,
        )

    def voices(self) -> Voices:
        return self.learn.chosen()

    def reloaded(self, new: "Settings") -> tuple["Settings", list[str]]:
        """These settings with what of `new` may change while running, and the keys that want a restart."""
        sections: dict[str, BaseModel] = {}
        waiting: list[str] = []
        for name in Settings.model_fields:
            old, fresh = getattr(self, name), getattr(new, name)
            live = LIVE.get(name, frozenset())
            sections[name] = old.model_copy(update={key: getattr(fresh, key) for key in live})
            keys = type(old).model_fields
            waiting += [f"{name}.{key}" for key in keys if key not in live and getattr(old, key) != getattr(fresh, key)]
        return self.model_copy(update=sections), waiting

    def warnings(self) -> list[str]:
        """What is allowed, but will surprise."""
        found = []
        if self.relay.mode == "after-queue":
            rejecting = [f"verdict.on_{name}" for name in CLASSES if getattr(self.verdict, f"on_{name}") == "reject"]
            found += [
                f'{key} = "reject" in mode after-queue would bounce to forged senders; such mail is tagged instead'
                for key in rejecting
            ]
        if self.verdict.on_ham in ("reject", "quarantine", "defer"):
            found.append(f'verdict.on_ham = "{self.verdict.on_ham}" keeps good mail from its readers')
        if "trap" in self.feedback.automatic and not self.feedback.traps:
            found.append('feedback.automatic has "trap", but feedback.traps names no address')
        if self.relay.next_hop.removeprefix("smtp://") in (*self.relay.listen, *self.relay.submission):
            found.append(f"relay.next_hop = {self.relay.next_hop!r} is where the relay itself listens: mail would loop")
        if self.relay.tls_key and by_mode(ANYBODY, Path(self.relay.tls_key), os.R_OK):
            found.append(f"relay.tls_key = {self.relay.tls_key!r} can be read by every user of this host; chmod go= it")
        if self.web.accounts and by_mode(ANYBODY, Path(self.web.accounts), os.R_OK):
            found.append(f"web.accounts = {self.web.accounts!r} can be read by every user of this host; chmod o= it")
        if self.web.proxy_header and any(network.is_loopback for network in self.web.proxies()):
            found.append(
                f"web.proxy_addresses has the loopback: every user of this host can send {self.web.proxy_header}"
                " and be anybody on the web page"
            )
        if self.limits.final_seconds > 95:
            found.append("limits.final_seconds above 95: Postfix gives a proxy filter 100 seconds by default")
        return found


def load(named: Path | None = None, environ: Mapping[str, str] = os.environ) -> Settings:
    """The settings of a file, overridden by the environment. Raises ConfigError, which quotes no secret."""
    try:
        return _loaded(named, environ)
    except ConfigError as error:
        raise ConfigError(redacted(str(error))) from None


def _loaded(named: Path | None, environ: Mapping[str, str]) -> Settings:
    file = config_file(named)
    values: dict[str, Any] = values_of(file)
    origins: dict[tuple[str, ...], str] = {}
    for name, text in sorted(environ.items()):
        if name.startswith(PREFIX) and "__" in name:
            path = tuple(name.removeprefix(PREFIX).lower().split("__"))
            _put(values, path, text, name)
            origins[path] = name
    try:
        settings = Settings.model_validate(values)
    except ValidationError as error:
        raise ConfigError(_sentences(error, str(file or "environment"), origins)) from None
    _check_files(settings, str(file or "environment"))
    return settings


def _put(values: dict[str, Any], path: tuple[str, ...], text: str, variable: str) -> None:
    """Write one variable of the environment into the tree of values: TOML, or plain text for a string."""
    kind: Any = Settings
    for key in path:
        fields = kind.model_fields if isinstance(kind, type) and issubclass(kind, BaseModel) else {}
        if key not in fields:
            unknown = printable(".".join(path))
            raise ConfigError(f"{printable(variable)}: unknown key {unknown} = {text!r}; see the sample configuration")
        kind = fields[key].annotation
    origin = get_args(kind)[0] if get_origin(kind) is Annotated else kind
    quoted = text[:1] in ("'", '"')
    value: Any = text
    if quoted or not (origin is str or get_origin(origin) is Literal):
        try:
            value = tomllib.loads(f"value = {text}")["value"]
        except (ValueError, RecursionError):  # not TOML, or beyond all bounds
            value = text
    for key in path[:-1]:
        values = values.setdefault(key, {})
        if not isinstance(values, dict):
            raise ConfigError(f"{variable}: {key} = {values!r} in the file is a value, and no section to put this in")
    values[path[-1]] = value


def _sentences(error: ValidationError, file: str, origins: Mapping[tuple[str, ...], str]) -> str:
    found: dict[str, list[str]] = {}
    for item in error.errors(include_url=False):
        keys = _keys(item["loc"])
        where = next((origins[keys[:end]] for end in range(len(keys), 0, -1) if keys[:end] in origins), file)
        key = printable(".".join(keys))
        name = f"{where}: {key}"
        message = item["msg"].removeprefix("Value error, ")
        if item["type"] == "list_type":
            message = 'must be a list, as in ["..."]'
        if item["type"] == "extra_forbidden":
            title = f"{where}: unknown key {key} = {item['input']!r}; see the sample configuration"
            found[title] = []
        elif isinstance(item["input"], dict):
            found.setdefault(name, []).append(message)
        else:
            found.setdefault(f"{name} = {item['input']!r}", []).append(message)
    return "\n".join(": ".join([title, "; or ".join(said)]) if said else title for title, said in found.items())


def _keys(path: tuple[int | str, ...]) -> tuple[str, ...]:
    """The keys of the file in pydantic's path to an error, without places in lists and the name of an alternative."""
    keys = [part for part in path if isinstance(part, str)]
    if keys and (keys[-1] == "constrained-float" or keys[-1].startswith("literal[")):
        keys.pop()
    return tuple(keys)


def _check_files(settings: Settings, file: str) -> None:
    """Files that are named must be there and be what they should."""
    relay = settings.relay
    kind, _, maildir = settings.next_hop_url().partition(":")
    if kind == "maildir" and os.path.realpath(maildir) == os.path.realpath(settings.quarantine_path()):
        raise ConfigError(
            f"{file}: verdict.quarantine = {settings.verdict.quarantine!r} and relay.next_hop = {relay.next_hop!r}"
            " are one Maildir: delivered mail would expire; name two folders"
        )
    if relay.next_hop_ca:
        try:
            tls.client_context(relay.next_hop_ca)
        except OSError as error:
            raise ConfigError(f"{file}: relay.next_hop_ca = {relay.next_hop_ca!r}: {error}") from error
    if relay.tls_certificate:
        try:
            tls.server_context(relay.tls_certificate, relay.tls_key)
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"{file}: relay.tls_certificate = {relay.tls_certificate!r}, relay.tls_key = {relay.tls_key!r}: {error}"
            ) from error
