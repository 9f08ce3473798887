"""OPERATIONS: what programs can do, each with what it takes and gives; the description is made of this table."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from spamfilter.bayes.labels import LABELS, Label
from spamfilter.bayes.verdict import ACTIONS, CLASSES
from spamfilter.doctor import Examination, examine
from spamfilter.errors import InputError
from spamfilter.learning.review import Review
from spamfilter.reports.rendering import report_json
from spamfilter.reports.report import build, latest
from spamfilter.stores import Entry, JournalEntry
from spamfilter.system.ids import ID_LENGTH
from spamfilter.web import looking, teaching
from spamfilter.web.accounts import Account, Role
from spamfilter.web.site import Site

Schema = Mapping[str, Any]
Result = dict[str, Any]

MOST_DAYS = 36_500
QUEUE = 200
"""Messages to review that are named."""
LATEST = 100

_ID = f"[0-9A-HJKMNP-TV-Za-hjkmnp-tv-z]{{{ID_LENGTH}}}"
ID: Schema = {"type": "string", "pattern": f"^{_ID}$"}
AFTER: Schema = {"type": "string", "pattern": f"^({_ID})?$"}
TEXT: Schema = {"type": "string", "maxLength": looking.LONGEST, "pattern": r"^[^\u0000]*$"}
NAME: Schema = {"type": "string", "minLength": 1, "maxLength": 200}
SHARE: Schema = {"type": "number", "minimum": 0, "maximum": 1}
DAYS: Schema = {"type": "integer", "minimum": 1, "maximum": MOST_DAYS}
LABEL: Schema = {"enum": [*LABELS, None]}
FLAG: Schema = {"type": "boolean"}


@dataclass(frozen=True, slots=True)
class Call:
    """One request of an account: parts of the path, of the query, of the body."""

    site: Site
    account: Account
    parts: Mapping[str, str]
    query: Mapping[str, str]
    body: Mapping[str, Any]

    def days(self, default: int) -> timedelta:
        """The query's or the body's days. Raises InputError."""
        text = str(int(self.body["days"])) if "days" in self.body else self.query.get("days", str(default))
        if not (text.isascii() and text.isdecimal() and len(text) <= 5 and 1 <= int(text) <= MOST_DAYS):
            raise InputError(f"days: not a whole number from 1 to {MOST_DAYS}")
        return timedelta(days=int(text))


@dataclass(frozen=True, slots=True)
class Operation:
    """A row. query, body: name -> what it may be; body None: there is none. result: names that it always has."""

    method: str
    path: str
    role: Role
    summary: str
    answer: Callable[[Call], Result]
    result: tuple[str, ...]
    query: Mapping[str, Schema] = field(default_factory=dict)
    body: Mapping[str, Schema] | None = None

    @property
    def name(self) -> str:
        return self.answer.__name__


def report(call: Call) -> Result:
    now = datetime.now(UTC)
    voices = list(call.site.settings.learn.kinds())
    with call.site.busy:
        return report_json(build(call.site.store, voices, now - min(call.days(7), timedelta(days=366)), now))


def _entry(entry: JournalEntry) -> Result:
    return {
        "id": entry.id, "at": entry.at, "sender": entry.sender, "recipients": list(entry.recipients),
        "subject": entry.subject, "message_id": entry.message_id, "client": entry.client, "size": entry.size,
        "class": entry.class_, "score": entry.score, "action": entry.action, "reply": entry.reply,
    }  # fmt: skip


def messages(call: Call) -> Result:
    flag = call.query.get("unsure_first", "false")
    if flag not in ("true", "false"):
        raise InputError("unsure_first: neither true nor false")
    found, next_ = looking.page_of(call.site.store, {**call.query, "unsure_first": flag if flag == "true" else ""})
    labels = looking.labels_of(call.site.store, found)
    return {"messages": [{**_entry(one), "label": labels.get(one.id)} for one in found], "next": next_}


def _label(entry: Entry) -> Label | None:
    return None if entry.undoes else entry.label


def message(call: Call) -> Result:
    looked = looking.looked_at(call.site.filter(), call.site.settings, call.parts["id"])
    history = [
        {
            "training": one.id,
            "at": one.at,
            "label": None if one.undoes else one.label,
            "source": one.source,
            "by": one.by,
        }
        for one in looked.history
    ]
    return {
        "message": _entry(looked.entry), "label": looked.label, "judged": looked.judged, "mute": looked.mute,
        "history": history,
    }  # fmt: skip


def mark(call: Call) -> Result:
    entry = looking.entry_of(call.site.store, call.parts["id"])
    if "label" not in call.body:
        raise InputError("label: it may not be left out; spam, ham, or null to forget")
    return teaching.mark(call.site.filter(), call.site.settings, entry.id, call.body["label"], call.account)


def skip(call: Call) -> Result:
    entry = looking.entry_of(call.site.store, call.parts["id"])
    review = Review(call.site.filter(), call.site.settings.verdict.spam)
    (review.skip if call.body.get("skip", True) else review.unskip)(entry.digest)
    return {"id": entry.id}


def release(call: Call) -> Result:
    entry = looking.quarantined(call.site.settings, call.site.store, call.parts["id"])
    return {"id": entry.id, "said": teaching.release(call.site.filter(), call.site.settings, entry.id, call.account)}


def review(call: Call) -> Result:
    now = datetime.now(UTC)
    since = now - timedelta(days=call.site.settings.feedback.window_days)
    with call.site.busy:
        found = Review(call.site.filter(), call.site.settings.verdict.spam).waiting(since, now + timedelta(seconds=1))
    return {"waiting": [{**_entry(one.entry), "skipped": one.skipped} for one in found[:QUEUE]]}


def learnings(call: Call) -> Result:
    since, now = datetime.now(UTC) - call.days(7), datetime.now(UTC) + timedelta(seconds=1)
    store = call.site.store
    return {
        "trainings": [asdict(row) for row in store.trainings(since, now)],
        "latest": [asdict(row) for row in latest(store, since, now, LATEST)],
    }


def forget(call: Call) -> Result:
    taught = teaching.taught(call.site.store, str(call.body.get("by", "")), datetime.now(UTC) - call.days(7))
    done = 0
    if call.body.get("really"):
        done = teaching.forget(call.site.store, call.site.settings, taught, call.account)
    return {"taught": len(taught), "forgotten": done}


def doctor(call: Call) -> Result:
    with call.site.busy:
        return asdict(examine(Examination(call.site.settings, call.site.file), ("canary",)))


def probe(call: Call) -> Result:
    with call.site.busy:
        return asdict(examine(Examination(call.site.settings, call.site.file)))


_SEARCH: Mapping[str, Schema] = {
    "class": {"enum": list(CLASSES)}, "action": {"enum": list(ACTIONS)}, "sender": TEXT, "subject": TEXT,
    "least": SHARE, "most": SHARE, "unsure_first": FLAG, "before": AFTER,
}  # fmt: skip
_DIAGNOSIS = ("status", "version", "lines", "not_tried")

OPERATIONS: tuple[Operation, ...] = (
    Operation("GET", "/api/report", "look", "The report of the last days, as `stats --json`; of a year at most.",
              report, ("since", "until", "messages"), {"days": DAYS}),
    Operation("GET", "/api/messages", "look", "A page of a search, the latest first; `next` is for `before`.",
              messages, ("messages", "next"), _SEARCH),
    Operation("GET", "/api/messages/{id}", "look", "A message, what it would be judged now and why, and its marks.",
              message, ("message", "label", "judged", "mute", "history")),
    Operation("POST", "/api/messages/{id}/mark", "label", "Learn it as spam or ham, or with null forget it.",
              mark, ("id", "changed", "was", "before", "after", "text"), body={"label": LABEL}),
    Operation("POST", "/api/messages/{id}/skip", "label", "Put it behind all others in the review queue, or back.",
              skip, ("id",), body={"skip": FLAG}),
    Operation("POST", "/api/messages/{id}/release", "administer", "Deliver it from quarantine, and learn it as ham.",
              release, ("id", "said"), body={}),
    Operation("GET", "/api/review", "label", "What to label next, in the order in which to do it.",
              review, ("waiting",)),
    Operation("GET", "/api/learnings", "look", "Trainings of the last days by author, and the latest of them.",
              learnings, ("trainings", "latest"), {"days": DAYS}),
    Operation("POST", "/api/forget", "administer", "What somebody taught in the last days; `really` undoes it.",
              forget, ("taught", "forgotten"), body={"by": NAME, "days": DAYS, "really": FLAG}),
    Operation("GET", "/api/doctor", "administer", "What doctor finds, without a probe.", doctor, _DIAGNOSIS),
    Operation("POST", "/api/doctor", "administer", "What doctor finds, with a probe through the whole loop.",
              probe, _DIAGNOSIS, body={}),
)  # fmt: skip
