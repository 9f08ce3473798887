"""OPERATIONS: the table of the API's operations, from which its description is generated."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from spamfilter.bayes.labels import Label
from spamfilter.reports.rendering import journal_json, report_json, training_json
from spamfilter.reports.report import latest
from spamfilter.web import marking, message_views
from spamfilter.web.accounts import Account, Role
from spamfilter.web.doctor import examined
from spamfilter.web.learning import LATEST
from spamfilter.web.message_views import Input, Search
from spamfilter.web.overview import report_of
from spamfilter.web.review import review_of, waiting
from spamfilter.web.site import Site

Result = dict[str, Any]


def _whole(value: object) -> object:
    return int(value) if isinstance(value, float) and value.is_integer() else value  # 7.0 is an integer in JSON


Days = Annotated[int, Field(ge=1, le=36_500), BeforeValidator(_whole)]


class Period(Input):
    days: Days = 7


class Reported(Period):
    host: Annotated[str, Field(max_length=255)] = ""


class Marking(Input):
    label: Label | None


class Skipping(Input):
    skip: bool = True


class Forgetting(Period):
    by: Annotated[str, Field(min_length=1, max_length=200)]
    really: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """One request of an account. parts: of the path. input: query or body, an instance of the operation's model."""

    site: Site
    account: Account
    parts: Mapping[str, str]
    input: Any


@dataclass(frozen=True, slots=True)
class Operation:
    """A row. result: names that the answer always has. input: the model of a GET's query or a POST's body."""

    method: str
    path: str
    role: Role
    summary: str
    answer: Callable[[Call], Result]
    result: tuple[str, ...]
    input: type[Input] = Input


def report(call: Call) -> Result:
    return report_json(report_of(call.site, min(call.input.days, 366), host=call.input.host))


def messages(call: Call) -> Result:
    found = message_views.page_of(call.site.store, call.input)
    labels = message_views.labels_of(call.site.store, found.entries)
    entries = [{**journal_json(one), "label": labels.get(one.id)} for one in found.entries]
    return {"messages": entries, "number": found.number, "next": found.older, "previous": found.newer}


def message(call: Call) -> Result:
    looked = message_views.looked_at(call.site, call.parts["id"])
    history = [training_json(one) for one in looked.history]
    return {
        "message": journal_json(looked.entry), "label": looked.label, "judged": looked.judged, "mute": looked.mute,
        "history": history,
    }  # fmt: skip


def mark(call: Call) -> Result:
    entry = message_views.entry_of(call.site, call.parts["id"])
    return marking.mark(call.site, entry.id, call.input.label, marking.author_of(call.account))


def skip(call: Call) -> Result:
    entry = message_views.entry_of(call.site, call.parts["id"])
    review = review_of(call.site)
    (review.skip if call.input.skip else review.unskip)(entry.digest)
    return {"id": entry.id}


def release(call: Call) -> Result:
    entry = message_views.quarantined(call.site, call.parts["id"])
    return {"id": entry.id, "said": marking.release(call.site, entry.id, marking.author_of(call.account)).said}


def review(call: Call) -> Result:
    return {"waiting": [{**journal_json(one.entry), "skipped": one.skipped} for one in waiting(call.site)]}


def learnings(call: Call) -> Result:
    since, now = datetime.now(UTC) - timedelta(days=call.input.days), datetime.now(UTC) + timedelta(seconds=1)
    store = call.site.store
    return {
        "trainings": [asdict(row) for row in store.trainings(since, now)],
        "latest": [asdict(row) for row in latest(store, since, now, LATEST)],
    }


def forget(call: Call) -> Result:
    since = datetime.now(UTC) - timedelta(days=call.input.days)
    taught = marking.taught(call.site, call.input.by, since)
    done = marking.forget(call.site, taught, call.account) if call.input.really else 0
    return {"taught": len(taught), "forgotten": done}


def doctor(call: Call) -> Result:
    return asdict(examined(call.site, canary=False))


def probe(call: Call) -> Result:
    return asdict(examined(call.site, canary=True))


_DIAGNOSIS = ("status", "version", "lines", "not_tried")

OPERATIONS: tuple[Operation, ...] = (
    Operation("GET", "/api/report", "look", "The report of the last days, as `stats --json`; of a year at most.",
              report, ("since", "until", "messages"), Reported),
    Operation("GET", "/api/messages", "look", "A page of a search; `next` is for `before`, `previous` for `after`.",
              messages, ("messages", "number", "next", "previous"), Search),
    Operation("GET", "/api/messages/{id}", "look", "A message, what it would be judged now and why, and its marks.",
              message, ("message", "label", "judged", "mute", "history")),
    Operation("POST", "/api/messages/{id}/mark", "label", "Learn it as spam or ham, or with null forget it.",
              mark, ("id", "changed", "was", "again", "before", "after", "text"), Marking),
    Operation("POST", "/api/messages/{id}/skip", "label", "Put it behind all others in the review queue, or back.",
              skip, ("id",), Skipping),
    Operation("POST", "/api/messages/{id}/release", "administer", "Deliver it from quarantine, and learn it as ham.",
              release, ("id", "said")),
    Operation("GET", "/api/review", "label", "What to label next, in the order in which to do it.",
              review, ("waiting",)),
    Operation("GET", "/api/learnings", "look", "Trainings of the last days by author, and the latest of them.",
              learnings, ("trainings", "latest"), Period),
    Operation("POST", "/api/forget", "administer", "Count marks of an author in the last days; `really` undoes them.",
              forget, ("taught", "forgotten"), Forgetting),
    Operation("GET", "/api/doctor", "administer", "What doctor finds, without a probe.", doctor, _DIAGNOSIS),
    Operation("POST", "/api/doctor", "administer", "What doctor finds, with a probe through the whole loop.",
              probe, _DIAGNOSIS),
)  # fmt: skip
