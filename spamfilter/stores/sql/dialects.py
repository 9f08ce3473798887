"""What SQLite and PostgreSQL spell differently, as parts of a query that each of them gets in its own words."""

from string import ascii_lowercase, ascii_uppercase
from typing import Any

from sqlalchemy import ColumnElement, Connection, Table, Text, bindparam, cast, column, delete, func, insert, or_, table
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement, GenericFunction

from spamfilter.stores.schema import INTEGER, TEXT

_sequences = table("sqlite_sequence", column("name"), column("seq"))
_LOWER = str.maketrans(ascii_uppercase, ascii_lowercase)


class numbers_listed(GenericFunction[str]):  # noqa: N801 - named as in SQL
    """All values of a column of numbers, joined as a JSON array."""

    type = Text()
    inherit_cache = True


class json_elements(GenericFunction[Any]):  # noqa: N801
    """The texts of a JSON array, as a table with the column "value"."""

    inherit_cache = True


class unindexed(GenericFunction[Any]):  # noqa: N801
    """A column for which SQLite uses no index. PostgreSQL knows by its statistics when an index is worse than none."""

    inherit_cache = True

    def __init__(self, column: ColumnElement[Any]) -> None:
        super().__init__(column, type_=column.type)


_SPELT: dict[type[FunctionElement[Any]], dict[str, str]] = {
    numbers_listed: {"sqlite": "json_group_array({})", "postgresql": "json_agg({})::text"},
    json_elements: {"sqlite": "json_each({})", "postgresql": "json_array_elements_text({})"},
    unindexed: {"sqlite": "+{}", "postgresql": "{}"},
}


def _spelt(element: Any, compiler: Any, **options: Any) -> str:
    return _SPELT[type(element)][compiler.dialect.name].format(compiler.process(element.clauses, **options))


for _function in _SPELT:
    compiles(_function)(_spelt)


def has_text(column: ColumnElement[Any], part: str) -> ColumnElement[bool]:
    """Whether a text has this part, whatever the database's locale is.

    Case does not matter for letters of ASCII; with others, the part is looked for as it is given, in lower and in upper
    case, and with a capital.
    """
    spellings = {one.translate(_LOWER) for one in (part, part.lower(), part.upper(), part.capitalize())}
    return or_(*(func.lower(column).contains(spelling, autoescape=True) for spelling in sorted(spellings)))


SEPARATOR = "\n"
"""Between the values of a list that PostgreSQL gets as one text, which the driver writes in no time; in no word."""


def each_text(name: str) -> FunctionElement[Any]:
    """Each text of a list, a row for each, in PostgreSQL."""
    return func.unnest(func.string_to_array(bindparam(name, type_=TEXT), SEPARATOR, type_=ARRAY(TEXT)))


def each_number(name: str) -> FunctionElement[Any]:
    """Each number of a list, a row for each, in PostgreSQL."""
    return func.unnest(cast(func.string_to_array(bindparam(name, type_=TEXT), SEPARATOR), ARRAY(INTEGER)))


LAST_ID = {
    "sqlite": "SELECT max(coalesce((SELECT seq FROM sqlite_sequence WHERE name = '{0}'), 0),"
    " coalesce((SELECT max(id) FROM {0}), 0))",
    "postgresql": "SELECT greatest((SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM {0}_id_seq),"
    " coalesce((SELECT max(id) FROM {0}), 0))",
}


def last_id(connection: Connection, table: Table) -> int:
    """The largest id that a row of the table has or, where ids are not used again, once had; 0 if there was none."""
    return int(connection.exec_driver_sql(LAST_ID[connection.dialect.name].format(table.name)).scalar_one())


def keep_last_id(connection: Connection, table: Table, last: int) -> None:
    """No later row of the table gets an id up to this one."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"SELECT setval('{table.name}_id_seq', {last})")
    elif table.dialect_options["sqlite"]["autoincrement"]:
        connection.execute(delete(_sequences).where(_sequences.c.name == table.name))
        connection.execute(insert(_sequences), {"name": table.name, "seq": last})
