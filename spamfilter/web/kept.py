"""A user's own page, opened by the link of a digest: the kept mail of one address, its text, and what to do with it.

Guarantee: nothing is done by GET or HEAD, which link scanners send. A link shows, delivers and deletes mail of its own
address alone, and for that address alone; its rules hold for that address alone, and it undoes no others. History and
lists name it. The text of a mail is shown as text, without links.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Literal
from urllib.parse import urlencode

from starlette.responses import Response

from spamfilter.config import sender_rules
from spamfilter.config.translation import translator
from spamfilter.errors import InputError, Refused, SpamfilterError
from spamfilter.learning.marks import Author
from spamfilter.mail.message import parse
from spamfilter.relay.envelope_paths import mailbox_of
from spamfilter.relay.quarantine import Quarantined
from spamfilter.relay.sender_lists.decision import Lists, Origin
from spamfilter.reports.digest_links import address_of_link, read_key, user_of
from spamfilter.stores import Rule
from spamfilter.stores.sender_lists import KINDS, Kind
from spamfilter.system.batches import in_time
from spamfilter.system.escaping import printable
from spamfilter.system.ids import id_of
from spamfilter.web import marking
from spamfilter.web.marking import TICKED
from spamfilter.web.message_views import KEPT_TEXT
from spamfilter.web.site import Visit, number_in, redirected, shown

log = logging.getLogger("spamfilter.web")

MOST_RULES = 200
"""Rules of one address by its links: more than a person makes, and a small part of those that the database keeps."""

Do = Literal["teach", "deliver", "delete"]
"""What to do with a mail: deliver it and mark it as not spam, only deliver it, or delete it."""
MailOutcome = Literal["done", "untaught", "gone", "refused", "failed"]
"""What became of a mail. untaught: done, but not learnt; gone: another request, as from a second tab, was faster and
did something else; refused: by the next hop; failed: for now."""
DONE = {"teach": "delivered", "deliver": "delivered", "delete": "deleted"}
SENTENCES = {
    "again": "This page was too old, and nothing was done. Please do it again.",
    "delivered": "Mails delivered: {number}",
    "deleted": "Mails deleted: {number}",
    "untaught": "Delivered, but not learnt as not spam: {number}.",
    "gone": "Delivered or deleted already, so that nothing was done: {number}.",
    "refused": "Still kept, because your mail server does not take it: {number}. Ask your administrator.",
    "failed": "Still kept, because it did not work now: {number}. Try again later.",
    "undecided": "Nothing was done: choose what to do with the mails that are ticked.",
}
"""What was just done -> the sentence about it, which is translated; number: of mails."""
RULE_MADE = {
    "block": "Mail from {sender} to you is always treated as spam from now on.",
    "allow": "Mail from {sender} always comes to you from now on, if your mail server can prove its sender.",
}
"""Kind of a rule -> the sentence about one that was just made, which is translated."""


def _by_link(answer: Callable[[Visit, str], Response]) -> Callable[[Visit], Response]:
    """A page for the address of its link, or what is wrong with the link."""

    def page(visit: Visit) -> Response:
        try:
            address = address_of_link(read_key(), visit.parts["link"], datetime.now(UTC))
        except InputError as error:
            log.warning("links of digests do not work: %s", error)
            address = None
        if address is None:
            return wrong_link(visit, 403)
        try:
            return answer(visit, address)
        except (SpamfilterError, OSError) as error:  # which names a database or a file, for administrators
            log.warning("the page of %s: %s", printable(user_of(address)), printable(str(error), 300))
            return _trouble(visit, "It did not work now. Try again later.", 503)

    return page


@_by_link
def listed(visit: Visit, address: str) -> Response:
    """The mail that is kept for the address of the link, TICKED on a page, the latest first; the rules on senders that
    hold for it alone; what was done."""
    page = number_in(visit.query.get("page", ""), digits=4) or 1
    mails = visit.site.quarantine().latest(page * TICKED + 1, address)[(page - 1) * TICKED :]
    rules = [(rule, _is_own(rule, address)) for rule in _rules(visit) if rule.whom == address]
    return _shown(
        visit, "kept", address=address, mails=mails[:TICKED], more=len(mails) > TICKED, page=page,
        said=_said(visit, address), rules=rules[::-1], all="all" in visit.query,
    )  # fmt: skip


@_by_link
def act(visit: Visit, address: str) -> Response:
    """Deliver or delete the mails that were ticked, or undo a rule."""
    if "undo" in visit.form:
        return _back(visit, undone=_undone(visit, address, visit.form["undo"]))
    ids, do = marking.ticked(visit.form), _do(visit)
    if ids and "do" not in visit.form:  # as by Enter in a box
        return _back(visit, undecided=1)
    mails = _kept_for(visit, address, ids)
    if not mails:
        return _back(visit, ticked=len(ids))
    results = Counter(_carried_out(visit, address, found, do) for found in in_time(mails, marking.AT_MOST))
    gone = results["gone"] + len(ids) - len(mails)  # another tab may have been faster before this one asked
    told = {DONE[do]: results["done"] + results["untaught"], "gone": gone, "refused": results["refused"]}
    rest = len(ids) - sum(told.values())
    return _back(visit, **told, untaught=results["untaught"], failed=rest)


def again(visit: Visit) -> Response:
    """Nothing is done by a page that is older than this process, or than the browser's cookie."""
    return _back(visit, again=1)


def _back(visit: Visit, **told: object) -> Response:
    """To the list, which says what was done, so that reload and Back repeat nothing. told: as `_said` reads it."""
    return redirected(f"/kept/{visit.parts['link']}?{urlencode(told)}")


def _said(visit: Visit, address: str) -> list[str]:
    """What was just done, in sentences that have no words of the address line."""
    say, store = _translator(visit), visit.site.store
    asked = {name: number for name, text in visit.query.items() if (number := number_in(text)) is not None}
    said = [say(sentence, number=asked[what]) for what, sentence in SENTENCES.items() if asked.get(what)]
    if "ticked" in asked:
        gone = say("This mail is not kept for you: it was delivered or deleted.")
        said.append(gone if asked["ticked"] else say("Tick the mails first."))
    for rule in store.rules():
        if rule.id == asked.get("rule") and _is_own(rule, address):
            said.append(say(RULE_MADE[rule.kind], sender=rule.what))
    if "undone" in asked:
        former = {one.rule.id: one.rule for one in store.former_rules() if _is_own(one.rule, address)}
        undone = former.get(asked["undone"])
        none = say("There is no such rule.")
        said.append(say("The rule on {sender} is undone.", sender=undone.what) if undone else none)
    if (id := id_of(visit.query.get("done", ""))) and (became := _became(visit, address, id)):
        entry = store.find_journal(id)
        subject = (entry.subject if entry else "") or id
        deleted = say("It was deleted: {subject}", subject=subject)
        said.append(say("It was delivered: {subject}", subject=subject) if became == "delivered" else deleted)
    return said


@_by_link
def mail(visit: Visit, address: str) -> Response:
    """One kept mail: its sender, its subject, the beginning of its text."""
    found = _mail(visit, address)
    return _gone(visit) if found is None else _opened(visit, address, found)


@_by_link
def act_on_mail(visit: Visit, address: str) -> Response:
    """Deliver or delete a mail for the address of the link, or make a rule on its sender."""
    found = _mail(visit, address)
    if found is None:
        return _gone(visit)
    kind = visit.form.get("rule")
    if kind in KINDS:
        return _listing(visit, address, found, kind)
    outcome = _carried_out(visit, address, found, _do(visit))
    if outcome in ("done", "untaught"):
        return _back(visit, done=found.id, untaught=int(outcome == "untaught"))
    if outcome == "gone":
        return _gone(visit)
    found = _mail(visit, address) or found  # under another name where its delivery was interrupted
    if outcome == "refused":
        return _opened(
            visit, address, found,
            "Your mail server does not take it, and it is still kept. Ask your administrator.", 502,
        )  # fmt: skip
    if _do(visit) == "delete":
        return _opened(visit, address, found, "It did not work now. Try again later.", 503)
    return _opened(visit, address, found, "It could not be delivered now and is still kept. Try again later.", 503)


def _do(visit: Visit) -> Do:
    asked = visit.form.get("do")
    return "delete" if asked == "delete" else "deliver" if asked == "deliver" else "teach"


def _carried_out(visit: Visit, address: str, found: Quarantined, do: Do) -> MailOutcome:
    author = Author(user_of(address), marking.SOURCE)
    try:
        if do == "delete":
            marking.delete(visit.site, found.id, author, address)
            return "done"
        delivered = marking.release(visit.site, found.id, author, address, teach=do == "teach")
    except SpamfilterError as error:
        done = _became(visit, address, found.id) == DONE[do]
        what, by = DONE[do] if done else f"not {DONE[do]}", printable(author.name)
        log.warning("%s: %s by %s: %s", found.id, what, by, printable(str(error), 300))
        if done:
            return "done"
        if not _kept_for(visit, address, [found.id]):
            return "gone"
        return "refused" if isinstance(error, Refused) else "failed"
    if delivered.untaught:
        log.warning("%s by %s", printable(delivered.untaught, 300), printable(author.name))
        return "untaught"
    return "done"


def _listing(visit: Visit, address: str, found: Quarantined, kind: Kind) -> Response:
    store, by, now = visit.site.store, user_of(address), datetime.now(UTC)
    sender, rules = _sender(visit, address, found), _rules(visit)
    if any(rule.what == sender and rule.whom == address and rule.by != by for rule in rules):
        return _opened(visit, address, found, "Your administrator has made a rule on this sender for you.", 403)
    if kind == "allow" and _is_blocked(visit, address, found, rules):
        return _opened(visit, address, found, "Your administrator blocks this sender.", 403)
    if sum(rule.by == by and rule.what != sender for rule in rules) >= MOST_RULES:
        return _opened(visit, address, found, "There are too many rules. Undo some first.", 403)
    try:
        rule = store.add_rule(sender_rules.new_rule(kind, sender, address, None, by, now), now)
    except (InputError, ValueError) as error:
        log.warning("%s: no rule by %s: %s", found.id, printable(by), printable(str(error), 300))
        return _opened(visit, address, found, "No rule can be made on this sender.", 400)
    log.info("rule %d: %s %s for %s", rule.id, kind, printable(rule.what), printable(rule.whom))
    return _back(visit, rule=rule.id)


def _rules(visit: Visit) -> list[Rule]:
    """The rules of the database that hold; those that have expired stay there for up to an hour."""
    now = datetime.now(UTC)
    return [rule for rule in visit.site.store.rules() if rule.expires is None or rule.expires > now]


def _is_blocked(visit: Visit, address: str, found: Quarantined, rules: Sequence[Rule]) -> bool:
    """Whether a rule of the administrator blocks the sender of a mail, so that no rule of a user allows it."""
    entry = visit.site.store.find_journal(found.id)
    origin = Origin(visit.site.quarantine().read(found), found.sender, entry.client if entry else "")
    of_administrators = (rule for rule in [*visit.site.settings.rules(), *rules] if not rule.of_user)
    (use,) = Lists(of_administrators).uses(origin, [address], datetime.now(UTC))
    return use is not None and use.rule.kind == "block"


def _undone(visit: Visit, address: str, id: str) -> int:
    """Undo a rule that a link of this address has made; its number, or 0 if there is none."""
    store, by = visit.site.store, user_of(address)
    own = {str(rule.id): rule for rule in store.rules() if _is_own(rule, address)}
    rule = store.remove_rule(own[id].id, by, datetime.now(UTC)) if id in own else None
    if rule is None:
        return 0
    log.info("rule %d: undone by %s", rule.id, printable(by))
    return rule.id


def _is_own(rule: Rule, address: str) -> bool:
    return rule.whom == address and rule.by == user_of(address)


def _kept_for(visit: Visit, address: str, ids: Iterable[str]) -> list[Quarantined]:
    """The kept mails of these ids that are for this address."""
    given = {id_of(id) for id in ids} - {""}
    return [found for found in visit.site.quarantine().these(given) if found.is_for(address)]


def _mail(visit: Visit, address: str) -> Quarantined | None:
    return next(iter(_kept_for(visit, address, [visit.parts["id"]])), None)


def _sender(visit: Visit, address: str, found: Quarantined) -> str:
    """The sender that a rule is made on: the one that the user sees, if there is one only; else the envelope's; '' if
    there can be no rule on it, or for this address."""
    origin = Origin(visit.site.quarantine().read(found), found.sender, "")
    senders = {way: sender for sender, way in origin.senders}
    try:
        sender_rules.recipients(address)
        return sender_rules.sender(senders.get("header") or senders.get("envelope") or "")
    except ValueError:
        return ""


def _became(visit: Visit, address: str, id: str) -> str:
    """What became of a mail for this address: delivered, deleted by its link, or ''."""
    for event in visit.site.store.quarantine_events([id]).get(id, []):
        if event.outcome == "delivered" and any(mailbox_of(name) == address for name in event.recipients):
            return "delivered"
        if event.outcome == "deleted" and event.by == user_of(address):
            return "deleted"
    return ""


def _opened(visit: Visit, address: str, found: Quarantined, trouble: str = "", status: int = 200) -> Response:
    text = parse(visit.site.quarantine().read(found)).beginning(KEPT_TEXT)
    sender = _sender(visit, address, found)
    allowed = Rule("allow", sender)
    can_allow = sender and not sender_rules.waits_for_proof(allowed, visit.site.settings.lists.results_from)
    return _shown(
        visit, "kept_mail", status, mail=found, text=text, trouble=trouble, sender=sender, can_allow=can_allow
    )


def wrong_link(visit: Visit, status: int) -> Response:
    """A page for a link that leads nowhere, such as one that was cut by a mail program."""
    return _trouble(visit, "This link is wrong or has expired. The next digest has a new one.", status)


def _gone(visit: Visit) -> Response:
    return _trouble(visit, "This mail is not kept for you: it was delivered or deleted.", 404)


def _trouble(visit: Visit, sentence: str, status: int) -> Response:
    return _shown(visit, "kept_trouble", status, trouble=sentence)


def _shown(visit: Visit, template: str, status: int = 200, **facts: object) -> Response:
    language = visit.site.settings.feedback.language
    link = f"/kept/{visit.parts.get('link', '')}"
    return shown(visit, template, status, say=_translator(visit), language=language, link=link, **facts)


def _translator(visit: Visit) -> Callable[..., str]:
    return translator(visit.site.settings.feedback.language)
