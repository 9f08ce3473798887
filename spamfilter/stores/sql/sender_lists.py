"""The rules that allow or block senders, in SQL."""

from dataclasses import replace
from datetime import datetime

from sqlalchemy import ColumnElement, Connection, delete, func, insert, literal, select

from spamfilter.errors import InputError
from spamfilter.stores.schema import former_rules, rules
from spamfilter.stores.sender_lists import MOST_FORMER, MOST_RULES, Ending, FormerRule, Rule
from spamfilter.stores.sql.database import Database


class SqlSenderLists(Database):
    """The methods of `stores.sender_lists.SenderLists`."""

    def rules_version(self) -> tuple[int, int]:
        # Exact, since ids are never used twice and rows never change: with the same newest id and the same number of
        # rows, the rows are the same.
        newest, number = self.row("coalesce(max(id), 0), count(*) FROM rules")
        return newest, number

    def rules(self) -> list[Rule]:
        return [Rule(*row) for row in self.rows(select(rules).order_by(rules.c.id))]

    def add_rule(self, rule: Rule, now: datetime) -> Rule:
        same = (rules.c.what == rule.what) & (rules.c.whom == rule.whom)
        values = {column.name: getattr(rule, column.name) for column in rules.columns if column.name != "id"}
        with self.writing() as connection:
            _end(connection, same & (rules.c.expires <= now), now, "", "expired")
            _end(connection, same, now, rule.by, "replaced")
            holds = rules.c.expires.is_(None) | (rules.c.expires > now)
            if connection.execute(select(func.count()).where(holds)).scalar_one() >= MOST_RULES:
                raise InputError(
                    f"there are {MOST_RULES:,} rules already; remove some with `spamfilter unlist` to add more"
                )
            (id,) = connection.execute(insert(rules).values(values)).inserted_primary_key or (0,)
            return replace(rule, id=id)

    def end_expired_rules(self, now: datetime) -> None:
        with self.writing() as connection:
            _end(connection, rules.c.expires <= now, now, "", "expired")

    def remove_rule(self, id: int, by: str, now: datetime) -> Rule | None:
        with self.writing() as connection:
            row = connection.execute(select(rules).where(rules.c.id == id)).one_or_none()
            _end(connection, rules.c.id == id, now, by, "undone")
            return None if row is None else Rule(*row)

    def former_rules(self, most: int = MOST_FORMER) -> list[FormerRule]:
        query = select(former_rules).order_by(former_rules.c.ended.desc(), former_rules.c.id.desc()).limit(most)
        return [FormerRule(Rule(*row[:-3]), *row[-3:]) for row in self.rows(query)]


def _end(connection: Connection, which: ColumnElement[bool], now: datetime, by: str, ending: Ending) -> None:
    """Make former rules of these, and forget the oldest former ones beyond MOST_FORMER."""
    ended = (literal(now, former_rules.c.ended.type), literal(by), literal(ending))
    copied = insert(former_rules).from_select([*former_rules.c.keys()], select(rules, *ended).where(which))
    if connection.execute(copied).rowcount:
        connection.execute(delete(rules).where(which))
        oldest = select(former_rules.c.id).order_by(former_rules.c.ended.desc(), former_rules.c.id.desc())
        connection.execute(delete(former_rules).where(former_rules.c.id.in_(oldest.offset(MOST_FORMER))))
