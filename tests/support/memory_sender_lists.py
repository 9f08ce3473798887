"""The lists of a store in memory."""

from dataclasses import replace
from datetime import datetime

from spamfilter.errors import InputError
from spamfilter.stores.sender_lists import MOST_FORMER, MOST_RULES, Ending, FormerRule, Rule, SenderLists


class MemorySenderLists(SenderLists):
    """A dict by id."""

    def __init__(self) -> None:
        self._rules: dict[int, Rule] = {}
        self._former: list[FormerRule] = []
        self._last_rule = 0

    def rules_version(self) -> tuple[int, int]:
        return max(self._rules, default=0), len(self._rules)

    def rules(self) -> list[Rule]:
        return [*self._rules.values()]

    def add_rule(self, rule: Rule, now: datetime) -> Rule:
        for id, old in [*self._rules.items()]:
            if (old.what, old.whom) == (rule.what, rule.whom):
                expired = old.expires is not None and old.expires <= now
                self._end(id, now, "" if expired else rule.by, "expired" if expired else "replaced")
        if sum(old.expires is None or old.expires > now for old in self._rules.values()) >= MOST_RULES:
            raise InputError("no room")
        self._last_rule += 1
        self._rules[self._last_rule] = replace(rule, id=self._last_rule)
        return self._rules[self._last_rule]

    def end_expired_rules(self, now: datetime) -> None:
        for id, rule in [*self._rules.items()]:
            if rule.expires is not None and rule.expires <= now:
                self._end(id, now, "", "expired")

    def remove_rule(self, id: int, by: str, now: datetime) -> Rule | None:
        return self._end(id, now, by, "undone") if id in self._rules else None

    def former_rules(self, most: int = MOST_FORMER) -> list[FormerRule]:
        return sorted(self._former, key=lambda one: (one.ended, one.rule.id), reverse=True)[:most]

    def _end(self, id: int, now: datetime, by: str, ending: Ending) -> Rule:
        rule = self._rules.pop(id)
        self._former.append(FormerRule(rule, now, by, ending))
        self._former = self.former_rules(MOST_FORMER)
        return rule
