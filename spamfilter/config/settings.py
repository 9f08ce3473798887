"""Reads one TOML file and the environment into frozen settings.

Guarantee: a wrong value or an unknown key is an error that names file, key and value.
config/spamfilter.toml is the reference: every key with its default and reason; a test compares both.
"""

import os
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, Self, get_args, get_origin

from pydantic import BaseModel, ValidationError, model_validator

from spamfilter.bayes.verdict import CLASSES, Policy
from spamfilter.bayes.voices import Voices
from spamfilter.config import sections
from spamfilter.config.addresses import maildir_of, socket_of
from spamfilter.config.likelihood_settings import Learn
from spamfilter.config.redaction import redacted
from spamfilter.config.sender_rules import blocks, waits_for_proof
from spamfilter.errors import ConfigError
from spamfilter.stores import Rule
from spamfilter.system import tls
from spamfilter.system.escaping import printable
from spamfilter.system.file_access import ANYBODY, by_mode
from spamfilter.system.paths import (
    QUOTES,
    config_file,
    database_in,
    socket_path,
    state_directory,
    toml_value,
    values_of,
)
from spamfilter.system.process import own_name

PREFIX = "SPAMFILTER_"
OTHERS = frozenset(("CONFIG", "PLAIN", "CORPORA", "EXIM", "SENDMAIL", "PYTHON2", "FAULTS", "SHOTS", "TEST_WORKERS"))
"""What else SPAMFILTER_ begins in the environment: the file, plain Python, and what tests and benchmarks ask for."""
LIVE: dict[str, frozenset[str]] = {
    "relay": frozenset(("trusted", "domains", "bare_newlines")),
    "verdict": frozenset((
        "spam", "unsure", "reject", "reject_after", "on_ham", "on_unsure", "on_spam", "subject_prefix",
        "evidence_header", "quarantine_days",
    )),
    "lists": frozenset(("allow", "block", "results_from")),
    "feedback": frozenset((
        "users", "proxies", "marks_a_day", "counterparts", "spam_addresses", "ham_addresses", "answer", "language",
        "automatic", "traps", "window_days", "window_megabytes",
    )),
    "limits": frozenset((
        "connections", "connections_per_client", "commands", "errors", "message_size", "recipients", "memory_megabytes",
        "idle_seconds", "data_seconds", "tls_seconds", "transaction_seconds", "session_seconds", "drain_seconds",
        "feedback_connections", "feedback_connections_per_user",
    )),
    "log": frozenset(("level",)),
    "report": frozenset(sections.Report.model_fields),
    "digest": frozenset(sections.Digest.model_fields),
}  # fmt: skip
"""Keys that a running relay takes over at SIGHUP; the others need a restart. Those of mails to people are for
commands, which read them at each run."""


class Settings(sections.Section):
    relay: sections.Relay = sections.Relay()
    verdict: sections.Verdict = sections.Verdict()
    lists: sections.Lists = sections.Lists()
    recipients: list[sections.Recipients] = []
    learn: Learn = Learn()
    store: sections.Store = sections.Store()
    feedback: sections.Feedback = sections.Feedback()
    limits: sections.Limits = sections.Limits()
    metrics: sections.Metrics = sections.Metrics()
    report: sections.Report = sections.Report()
    digest: sections.Digest = sections.Digest()
    web: sections.Web = sections.Web()
    log: sections.Log = sections.Log()

    def store_url(self) -> str:
        return self.store.url or f"sqlite:///{state_directory() / 'spamfilter.db'}"

    def workers(self) -> int:
        """Number of processes that accept mail."""
        return self.relay.workers or min(len(os.sched_getaffinity(0)), sections.MOST_WORKERS)

    def normalises(self) -> bool:
        """Whether lone CRs and LFs are replaced; after-queue always, as a rejection would bounce to forged senders."""
        return self.relay.bare_newlines == "normalise" or self.relay.mode == "after-queue"

    def hostname(self) -> str:
        return self.relay.hostname or own_name()

    def next_hop_url(self) -> str:
        return self.relay.next_hop or f"maildir:{state_directory() / 'mail'}"

    def quarantine_path(self) -> Path:
        return Path(self.verdict.quarantine or state_directory() / "quarantine")

    def socket_path(self) -> Path:
        return socket_path(self.feedback.socket)

    @model_validator(mode="after")
    def _one_table_for_each_recipient(self) -> Self:
        named: set[str] = set()
        for table in self.recipients:
            try:
                table.verdict(self.verdict)
            except ValueError as error:
                raise ValueError(f"[[recipients]] to = {table.to}, and [verdict] for the rest: {error}") from None
            for name in table.to:
                if name in named:
                    raise ValueError(f"[[recipients]] to = {table.to}: {name!r} is in two tables")
                named.add(name)
        return self

    def rules(self) -> list[Rule]:
        """All rules on senders, those for everybody first."""
        return [*self.lists.rules(), *(rule for table in self.recipients for rule in table.rules())]

    def policy(self) -> Policy:
        return self._policy(self.verdict)

    def policies(self) -> dict[str, Policy]:
        """Address or domain of recipients -> their policy."""
        return {
            name: replace(self._policy(table.verdict(self.verdict)), name=name, table=table.to[0])
            for table in self.recipients
            for name in table.to
        }

    def subject_prefixes(self) -> frozenset[str]:
        """What the relay may have put before the subjects of mail that it tagged."""
        policies = (self.policy(), *self.policies().values())
        return frozenset(policy.subject_prefix.strip() for policy in policies) - {""}

    def _policy(self, verdict: sections.Verdict) -> Policy:
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
        """These settings with the LIVE keys of `new`, and the names of other changed keys, which need a restart."""
        changed: dict[str, object] = {}
        waiting: list[str] = []
        for name in Settings.model_fields:
            old, fresh = getattr(self, name), getattr(new, name)
            if name == "recipients":
                changed[name] = fresh
                continue
            live = LIVE.get(name, frozenset())
            changed[name] = old.model_copy(update={key: getattr(fresh, key) for key in live})
            keys = type(old).model_fields
            waiting += [f"{name}.{key}" for key in keys if key not in live and getattr(old, key) != getattr(fresh, key)]
        return self.model_copy(update=changed), waiting

    def warnings(self) -> list[str]:
        """A sentence for each value that is allowed but probably not intended."""
        found = []
        tables = {"verdict": self.verdict} | {f"recipients {table.to}": table for table in self.recipients}
        for section, verdict in tables.items():
            rejecting = [f"{section}.on_{name}" for name in CLASSES if getattr(verdict, f"on_{name}") == "reject"]
            if self.relay.mode == "after-queue":
                found += [
                    f'{key} = "reject" in mode after-queue would bounce to forged senders; such mail is tagged instead'
                    for key in rejecting
                ]
            if verdict.on_ham in ("reject", "quarantine", "defer"):
                found.append(f'{section}.on_ham = "{verdict.on_ham}" keeps good mail from its readers')
        if "trap" in self.feedback.automatic and not self.feedback.traps:
            found.append('feedback.automatic has "trap", but feedback.traps names no address')
        if "answered" in self.feedback.automatic and not any(
            map(socket_of, (*self.relay.submission, *self.relay.milter))
        ):
            found.append(
                'feedback.automatic has "answered", but relay.submission names no socket, as in'
                ' "unix:/run/spamfilter/submission.sock": no answer will teach'
            )
        if self.feedback.traps and "trap" not in self.feedback.automatic:
            found.append(
                'feedback.traps names addresses, but feedback.automatic has no "trap": their mail teaches nothing'
            )
        rules = [rule for rule in self.rules() if rule.expires is None or rule.expires > datetime.now(UTC)]
        if unproved := [rule.what for rule in rules if waits_for_proof(rule, self.lists.results_from)]:
            found.append(f"allow {unproved[0]!r} is not obeyed: lists.results_from names no server that proves senders")
        if own := [rule.what for rule in rules if blocks(rule, self.relay.networks())]:
            found.append(f"block {own[0]!r} has clients in relay.trusted, and so your mail server, perhaps")
        found += self.relay.dangers()
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
    """The settings of a file, overridden by the environment. Raises ConfigError, without secrets in its text."""
    try:
        return _loaded(named, environ)
    except ConfigError as error:
        raise ConfigError(redacted(str(error))) from None


def _loaded(named: Path | None, environ: Mapping[str, str]) -> Settings:
    file = config_file(named)
    values: dict[str, Any] = values_of(file)
    origins: dict[tuple[str, ...], str] = {}
    for name, text in sorted(environ.items()):
        key = name.removeprefix(PREFIX)
        if name != key and key not in OTHERS:
            path = tuple(key.lower().split("__"))
            if len(path) == 1:
                raise ConfigError(
                    f"{printable(name)}: no key of the configuration; write section and key with two underscores"
                    " between them, as in SPAMFILTER_VERDICT__SPAM=0.95, or unset it"
                )
            _put(values, path, text, name)
            origins[path] = name
    try:
        settings = Settings.model_validate(values)
    except ValidationError as error:
        raise ConfigError(_sentences(error, str(file or "environment"), origins)) from None
    _check_files(settings, str(file or "environment"))
    return settings


def _put(values: dict[str, Any], path: tuple[str, ...], text: str, variable: str) -> None:
    """Put one variable of the environment into the tree of values: TOML, or plain text for a string."""
    kind: Any = Settings
    for key in path:
        fields = kind.model_fields if isinstance(kind, type) and issubclass(kind, BaseModel) else {}
        if key not in fields:
            unknown = printable(".".join(path))
            meant = "tables [[recipients]] are set in the file" if path[0] == "recipients" else _meant(path)
            raise ConfigError(f"{printable(variable)}: unknown key {unknown} = {text!r}; {meant}")
        kind = fields[key].annotation
    is_text = kind is str or get_origin(kind) is Literal
    for key in path[:-1]:
        values = values.setdefault(key, {})
        if not isinstance(values, dict):
            raise ConfigError(f"{variable}: {key} = {values!r} in the file is a value, and no section to put this in")
    values[path[-1]] = text if is_text and not text.startswith(QUOTES) else toml_value(text)


def _sentences(error: ValidationError, file: str, origins: Mapping[tuple[str, ...], str]) -> str:
    found: dict[str, list[str]] = {}
    for item in error.errors(include_url=False):
        keys = _keys(item["loc"])
        where = next((origins[keys[:end]] for end in range(len(keys), 0, -1) if keys[:end] in origins), file)
        key = _shown(item["loc"], keys)
        name = f"{where}: {key}"
        message = sections.SHAPES.get(item["type"], item["msg"].removeprefix("Value error, "))
        if keys == ("recipients",) and item["type"] in sections.SHAPES:
            message = "must be sections in double brackets, as in [[recipients]]"
        if item["type"] == "extra_forbidden":
            title = f"{where}: unknown key {key} = {item['input']!r}; {_meant(keys)}"
            found[title] = []
        elif not keys:
            found[f"{where}: {message}"] = []
        elif isinstance(item["input"], dict):
            found.setdefault(name, []).append(message)
        else:
            found.setdefault(f"{name} = {item['input']!r}", []).append(message)
    return "\n".join(": ".join([title, "; or ".join(said)]) if said else title for title, said in found.items())


def _meant(keys: tuple[str, ...]) -> str:
    """What to do about an unknown key: the same key in another section, or the one that is most like it."""
    from difflib import get_close_matches

    sections = {name: [field.annotation, *get_args(field.annotation)] for name, field in Settings.model_fields.items()}
    known = [
        (name, key) for name, kinds in sections.items() for kind in kinds for key in getattr(kind, "model_fields", ())
    ]
    there = [f"{name}.{key}" for name, key in known if (key,) == keys[-1:]]
    like = there or get_close_matches(".".join(keys), [*sections, *map(".".join, known)], 1, 0.8)
    return f"did you mean {like[0]}?" if like else "see the sample configuration"


def _keys(path: tuple[int | str, ...]) -> tuple[str, ...]:
    """The keys of the file in pydantic's path to an error, without indexes of lists and names of alternatives."""
    keys = [part for part in path if isinstance(part, str)]
    if keys and (keys[-1] == "constrained-float" or keys[-1].startswith("literal[")):
        keys.pop()
    return tuple(keys)


def _shown(path: tuple[int | str, ...], keys: tuple[str, ...]) -> str:
    """The keys for people: of several tables [[recipients]] with the number of the one that is wrong."""
    match path:
        case ("recipients", int(number), *_):
            keys = (f"recipients[{number + 1}]", *keys[1:])
    return printable(".".join(keys))


def _check_files(settings: Settings, file: str) -> None:
    """Raises ConfigError if a named file cannot be used, or one folder is named for two purposes."""
    relay = settings.relay
    folders = {"verdict.quarantine": settings.quarantine_path()}
    if maildir := maildir_of(settings.next_hop_url()):
        folders["relay.next_hop"] = maildir
    if len(set(map(os.path.realpath, folders.values()))) < len(folders):
        raise ConfigError(
            f"{file}: verdict.quarantine = {settings.verdict.quarantine!r} and relay.next_hop = {relay.next_hop!r}"
            " are one Maildir: delivered mail would expire; name two folders"
        )
    for key, folder in folders.items():
        if os.path.isfile(folder):
            raise ConfigError(f"{file}: {key}: {folder} is a file, and no Maildir; name a folder")
    database = database_in(settings.store_url())
    if os.path.isdir(database):
        raise ConfigError(f"{file}: store.url: {database} is a folder; name the file of the database")
    for key, named, place in (
        ("feedback.socket", settings.feedback.socket, f"unix:{settings.socket_path()}"),
        ("metrics.listen", settings.metrics.listen, settings.metrics.listen),
        ("web.listen", settings.web.listen, settings.web.listen),
    ):
        if place and place in relay.places():
            raise ConfigError(f"{file}: {key} = {named!r} is an address of [relay], too; each needs its own")
    if relay.next_hop_ca:
        try:
            tls.client_context(relay.next_hop_ca)
        except (OSError, ValueError) as error:
            raise ConfigError(f"{file}: relay.next_hop_ca = {relay.next_hop_ca!r}: {error}") from error
    if relay.tls_certificate:
        try:
            tls.server_context(relay.tls_certificate, relay.tls_key)
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"{file}: relay.tls_certificate = {relay.tls_certificate!r}, relay.tls_key = {relay.tls_key!r}: {error}"
            ) from error
