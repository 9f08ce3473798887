"""The page "Senders": rules that allow or block senders, to be added and undone, and those that have ended."""

from datetime import UTC, datetime

from starlette.responses import Response

from spamfilter.config.sender_rules import new_rule, waits_for_proof
from spamfilter.errors import InputError
from spamfilter.stores import Rule
from spamfilter.stores.sender_lists import KINDS
from spamfilter.web.site import Visit, number_in, redirected, shown

SHOWN = 500
"""Rules on the page: a page of 10,000 would be megabytes; `spamfilter lists` shows all."""
FORMER = 50
"""Rules that have ended on the page; `spamfilter lists --history` shows all."""


def listed(visit: Visit, trouble: str = "", status: int = 200) -> Response:
    """The rules, those of the configuration first and then the latest, and the last that have ended."""
    store, settings = visit.site.store, visit.site.settings
    rules = [*settings.rules(), *store.rules()[::-1]]
    return shown(
        visit, "senders", status, trouble=trouble, form=visit.form, now=datetime.now(UTC), rules=rules[:SHOWN],
        more=len(rules) - SHOWN, former=store.former_rules(FORMER),
        waiting={rule for rule in rules if waits_for_proof(rule, settings.lists.results_from)},
        policies=settings.policies().values(), usual=settings.policy(),
    )  # fmt: skip


def add(visit: Visit) -> Response:
    """Add a rule; it replaces one on the same sender for the same recipients."""
    form = {name: text.strip() for name, text in visit.form.items()}
    now = datetime.now(UTC)
    try:
        rule = visit.site.store.add_rule(_rule(form, visit.user.name, now), now)
    except (InputError, ValueError) as error:
        return listed(visit, str(error), 400)
    visit.tell(f"rule {rule.id}: {rule.what} is {'allowed' if rule.kind == 'allow' else 'blocked'}{_for(rule)}")
    if waits_for_proof(rule, visit.site.settings.lists.results_from):
        visit.tell(
            "The rule is not obeyed yet: nothing proves who the sender is; name your mail server in [lists]"
            " results_from of the configuration."
        )
    return redirected("/senders")


def undo(visit: Visit) -> Response:
    """Undo a rule; it stays in the history."""
    id = number_in(visit.form.get("id", ""))
    rule = visit.site.store.remove_rule(id, visit.user.name, datetime.now(UTC)) if id is not None else None
    if rule is None:
        raise InputError("no rule has this number: it was undone or replaced, or has expired")
    visit.tell(f"rule {rule.id} on {rule.what}{_for(rule)} is undone")
    return redirected("/senders")


def _for(rule: Rule) -> str:
    return f" for {rule.whom}" * bool(rule.whom)


def _rule(form: dict[str, str], by: str, now: datetime) -> Rule:
    kind = form.get("kind")
    if kind not in KINDS:
        raise InputError("choose whether the sender is allowed or blocked")
    days = number_in(form.get("days", ""))
    if days is None and form.get("days"):
        raise InputError("the days must be a number, or empty for ever")
    return new_rule(kind, form.get("sender", ""), form.get("for", ""), days, by, now, form.get("note", ""))
