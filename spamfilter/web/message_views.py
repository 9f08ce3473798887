"""The queries of pages and API: searches of the journal, and everything known about one message.

Guarantee: nothing is written; input of a visitor is only ever used as a value.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, WithJsonSchema
from pydantic.json_schema import SkipJsonSchema

from spamfilter.bayes.labels import Label
from spamfilter.bayes.token_codec import message_of
from spamfilter.bayes.verdict import Action
from spamfilter.errors import InputError, Refused, SpamfilterError, StoreError, TryAgain
from spamfilter.learning.explanation import judgement_json
from spamfilter.learning.mark_lookup import by_id
from spamfilter.learning.marks import history_of
from spamfilter.learning.provenance import provenance
from spamfilter.learning.transaction import Reading
from spamfilter.mail.message import parse
from spamfilter.relay.judging import policy_for
from spamfilter.relay.quarantine import UNREADABLE, Quarantined
from spamfilter.stores import Entry, JournalEntry, Store, Wanted, WantedClass
from spamfilter.system.ids import ID_LENGTH, id_of
from spamfilter.system.moments import hour_in_utc, moment_of
from spamfilter.web.site import Site

PAGE = 50
"""Messages on one page of a search."""
KEPT_TEXT = 2_000
"""Characters of the text of a mail in quarantine that are shown: enough to recognise a mail."""
LONGEST = 200
"""Characters of a text to search for."""
LONGEST_LINE = 998
"""Characters of a Message-ID, which is searched as a whole: those of a line of a mail (RFC 5322)."""
TITLES = {"least": "score from", "most": "score to", "since": "from", "until": "to"}
"""Name of a parameter -> its label in the form."""

ID = f"[0-9A-HJKMNP-TV-Za-hjkmnp-tv-z]{{{ID_LENGTH}}}"
"""Pattern of an id of the journal."""
Text = Annotated[str, Field(max_length=LONGEST, pattern=r"^[^\x00]*$")]
MessageId = Annotated[str, Field(max_length=LONGEST_LINE, pattern=r"^[^\x00]*$")]
Share = Annotated[float, Field(ge=0, le=1)]
Place = Annotated[str, Field(pattern=f"^({ID})?$")]
_ISO_8601 = WithJsonSchema({
    "anyOf": [{"type": "string", "format": form} for form in ("date", "date-time")],
    "description": "a date, or a time; in UTC without an offset",
})  # fmt: skip
Since = Annotated[datetime, BeforeValidator(lambda text: _moment(text, end=False)), _ISO_8601]
Until = Annotated[datetime, BeforeValidator(lambda text: _moment(text, end=True)), _ISO_8601]


def _moment(text: object, end: bool) -> datetime:
    try:
        return moment_of(str(text), end, UTC)
    except ValueError:
        raise ValueError("neither a date (2026-01-31) nor a time (2026-01-31 13:00)") from None


class Input(BaseModel):
    """The input of a request. An unknown name is an error."""

    model_config = ConfigDict(extra="forbid")


class Search(Input):
    """A search of the journal, as `stores.journal.Wanted`; all conditions must hold.

    since, until: a date or time in ISO 8601, in UTC without a time zone; a date as `until` includes that day. before,
    after: the page of mail that is older or newer than this id; '': the latest.
    """

    class_: WantedClass | SkipJsonSchema[None] = Field(None, alias="class")
    action: Action | SkipJsonSchema[None] = None
    sender: Text = ""
    recipient: Text = ""
    subject: Text = ""
    client: Text = ""
    host: Text = ""
    message_id: MessageId = ""
    reply: Text = ""
    since: Since | SkipJsonSchema[None] = None
    until: Until | SkipJsonSchema[None] = None
    hour: Annotated[int, Field(ge=0, le=23)] | SkipJsonSchema[None] = None
    least: Share = 0
    most: Share = 1
    marked: Label | SkipJsonSchema[None] = None
    unsure_first: bool = False
    before: Place = ""
    after: Place = ""


SEARCHED = tuple(field.alias or name for name, field in Search.model_fields.items())


class Unknown(InputError):
    """There is no message with this id. The API answers 404."""


@dataclass(frozen=True, slots=True)
class Looked:
    """Everything known about a message.

    judged: the verdict by the present counts and its explanation, as `judge --explain --json`; None, with the reason in
    `mute`, if its tokens are not kept. label: what it is learnt as, by its group or else by everybody. history: all
    ledger entries of it, also those of other groups of its recipients, the latest first.
    """

    entry: JournalEntry
    judged: Mapping[str, Any] | None
    mute: str
    label: Label | None
    history: list[Entry]


def search_of(query: Mapping[str, str]) -> Search:
    """The search of a form; empty fields are ignored, times are local. Raises InputError."""
    given = {name: text.strip() for name in SEARCHED if (text := query.get(name, "")).strip()}
    for name in given.keys() & {"since", "until"}:
        with suppress(ValueError):  # what is no time is told below
            given[name] = moment_of(given[name], end=name == "until").isoformat()
    try:
        search = Search.model_validate_strings(given)
    except ValidationError as error:
        raise InputError(sentence_of(error, TITLES)) from None
    if search.hour is not None:
        search.hour = hour_in_utc(search.hour, datetime.now(UTC))
    return search


def sentence_of(error: ValidationError, titles: Mapping[str, str] = MappingProxyType({})) -> str:
    """A sentence about the first error of an input. titles: name of a value -> its label in a form."""
    fault = error.errors()[0]
    parts = map(str, fault["loc"])  # which of the types that a value may have was tried stands there, too
    name = ".".join(part for part in parts if part.isidentifier() or part.isdigit())[:100] or "the body"
    same = [one for one in error.errors() if (one["loc"][:1], one["type"]) == (fault["loc"][:1], "literal_error")]
    words = " or ".join(one["ctx"]["expected"] for one in same)  # of all types that the value may have
    said = f"Input should be {words}" if words else fault["msg"].removeprefix("Value error, ")
    return f"{titles.get(name, name)}: {said}"


@dataclass(frozen=True, slots=True)
class Found:
    """A page of a search. number: of all pages. older: the `before` of the next page; newer: the `after` of the page
    before this one; '' if there is none.
    """

    entries: list[JournalEntry]
    number: int
    older: str
    newer: str


def page_of(store: Store, search: Search) -> Found:
    """A page of a search. `before` goes before `after`."""
    wanted = Wanted(**search.model_dump(exclude={"before", "after"}))
    before, after = search.before.upper(), "" if search.before else search.after.upper()
    found = store.search(wanted, PAGE + 1, before, after)
    more = len(found) > PAGE
    entries = found[-PAGE:] if after else found[:PAGE]
    older = entries[-1].id if entries and (more or after) else ""
    newer = entries[0].id if entries and (before or (after and more)) else ""
    whole = not (before or after or more)
    return Found(entries, len(entries) if whole else store.number_found(wanted), older, newer)


def labels_of(store: Store, entries: list[JournalEntry]) -> dict[str, Label]:
    """Id -> label of the messages that are learnt."""
    said = store.histories([entry.digest for entry in entries])
    last = {digest: history[-1] for digest, history in said.items() if history}
    active = {digest: entry.message_label for digest, entry in last.items() if not entry.undoes}
    return {entry.id: active[entry.digest] for entry in entries if entry.digest in active}


def entry_of(site: Site, id: str) -> JournalEntry:
    """The journal entry of an id. Raises Unknown."""
    stored = id_of(id)
    entry = site.store.find_journal(stored) if stored else None
    if entry is None:
        raise Unknown("no message with this id in the journal; it may be too old ([report] journal_days)")
    return entry


def looked_at(site: Site, id: str) -> Looked:
    """Everything known about the message of an id. Raises Unknown."""
    entry, filter = entry_of(site, id), site.filter()
    history, reading = history_of(site.store, entry), Reading(entry.digest, entry.tokens or {})
    last = {one.digest: one for one in history}
    said = [last[digest] for digest in (reading.digest, reading.digest_for_all) if digest in last]
    label = next((one.message_label for one in said if not one.undoes), None)
    judged, mute = None, ""
    try:
        subject = by_id(filter, entry.id, wait=False)
        if subject.is_test:
            raise InputError("it has the test line GTUBE, which makes it spam, whatever its words say")
        score, evidence = filter.explained(subject.reading)
        policy = policy_for(entry.recipients, site.settings.policies(), site.settings.policy())
        judged = {"policy": policy.name} | judgement_json(
            {"id": entry.id}, subject, score, policy.classify(score, filter.learnt), evidence,
            provenance(filter, policy, subject.reading, score, evidence),
        )  # fmt: skip
    except StoreError:
        raise
    except SpamfilterError as error:
        mute = str(error)
    return Looked(entry, judged, mute, label, history[::-1])


def is_kept(site: Site, entry: JournalEntry) -> bool:
    """Whether a mail is in quarantine now."""
    custody = site.quarantine().custody(entry)
    return custody is not None and custody.kept is not None


def beginning_of(site: Site, entry: JournalEntry, kept: Quarantined | None) -> str:
    """The beginning of a mail's text: of one in quarantine, or of what the journal keeps for marks; '' without any."""
    if kept is not None:
        try:
            return parse(site.quarantine().read(kept)).beginning(KEPT_TEXT)
        except (SpamfilterError, OSError):
            return ""
    excerpt = site.settings.web.excerpt
    message = message_of(entry.tokens) if excerpt else None
    return message.beginning(excerpt) if message else ""


def quarantined(site: Site, id: str) -> JournalEntry:
    """The journal entry of a mail that is in quarantine, as far as can be seen. Raises Unknown if it is not there."""
    entry = entry_of(site, id)
    custody = site.quarantine().custody(entry)
    if custody is None or (custody.kept is None and custody.state != UNREADABLE):
        raise Unknown(f"{entry.id}: not in the quarantine: released, deleted, expired, or never there")
    return entry


def status_of(error: SpamfilterError) -> int:
    if isinstance(error, Unknown):
        return 404
    if isinstance(error, Refused):
        return 403
    return 503 if isinstance(error, TryAgain | StoreError) else 400
