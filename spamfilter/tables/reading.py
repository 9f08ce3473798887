"""Files to tables: CSV and TSV with a label column, lines of text with a label, counts of terms in documents.

Guarantee: a file that is not what it was said to be raises InputError with its name, the line and what to do.
"""

import csv
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from itertools import chain
from pathlib import Path
from typing import Literal, get_args

from spamfilter.errors import InputError, file_errors

Value = str | Mapping[str, int]
"""A cell as it is written, or the terms of a document with their counts."""
Row = Mapping[str, Value]
"""Column -> value; a missing one is not there."""
Format = Literal["csv", "tsv", "label-text", "text-label", "counts"]
FORMATS: tuple[Format, ...] = get_args(Format)
MISSING = ("", "?", "NA")
"""Cells that say that a value is missing."""
TEXT, TERMS = "text", "terms"
"""The column of a file of lines, and that of counts of terms."""
_COUNTED = ("document", "term", "count")
_DECIMAL_COMMA = re.compile(r"[+-]?(\d+,\d*|,\d+)([eE][+-]?\d+)?")
MAX_CELL = 2**24
LONGEST = 15
"""The most digits of a count."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of some columns. labels: of each row; empty strings where the file has no label column. places: file and
    line of each row, for errors."""

    columns: tuple[str, ...]
    rows: Sequence[Row]
    labels: Sequence[str]
    places: Sequence[str] = ()

    def part(self, places: Iterable[int]) -> "Table":
        """The rows at these places."""
        chosen = list(places)
        rows, labels = [self.rows[at] for at in chosen], [self.labels[at] for at in chosen]
        return Table(self.columns, rows, labels, [*map(self.place, chosen)])

    def place(self, at: int) -> str:
        return self.places[at] if self.places else f"row {at + 1}"


def read(file: Path, label: str, format: Format | None = None, header: bool = True, labelled: bool = True) -> Table:
    """The table in a file. label: the name of its column; header: whether the first line names the columns, else they
    are c1, c2 and so on. labelled: whether each row must have a label."""
    format = format or _by_ending(file)
    if format in ("label-text", "text-label"):
        return _lines(file, format == "label-text", labelled)
    rows = _cells(file, format)
    first = next(rows, None)
    if first is None:
        raise InputError(f"{file}: an empty file")
    names = first[1] if header else [f"c{number}" for number in range(1, len(first[1]) + 1)]
    if len(set(names)) != len(names):
        raise InputError(f"{file}: line 1 names a column twice; if it is no header, say --no-header")
    if label not in names and labelled:
        raise InputError(
            f"{file}: no column {label!r}; its columns: {', '.join(names)}; "
            "name one with --label, or say --no-header if line 1 is a row"
        )
    missing = ("",) if format == "counts" else MISSING  # a term may be written like a missing value
    found = _records(file, names, rows if header else chain([first], rows), missing)
    if format == "counts":
        return _of_counts(file, names, label, found, labelled)
    rows_, labels, places = [], [], []
    for line, record in found:
        places.append(f"{file}: line {line}")
        labels.append(_label(file, line, record.pop(label, ""), labelled))
        rows_.append(record)
    return Table(tuple(name for name in names if name != label), rows_, labels, places)


def read_classes(files: Mapping[str, Path]) -> Table:
    """Lines of text, of which each file has those of one class."""
    lines = [
        (label, text.rstrip("\n"))
        for label, file in files.items()
        for text in StringIO(decoded(file), newline=None)
        if text.strip()
    ]
    return Table((TEXT,), [{TEXT: text} for _, text in lines], [label for label, _ in lines])


def _by_ending(file: Path) -> Format:
    for format in ("csv", "tsv"):
        if file.suffix.lower() == f".{format}":
            return format
    raise InputError(f"{file}: neither .csv nor .tsv; say what it is with --format {'|'.join(FORMATS)}")


def decoded(file: Path) -> str:
    """The text of a file, in UTF-8 with or without a byte order mark, else in Latin-1."""
    with file_errors(file):
        raw = file.read_bytes()
    if b"\0" in raw:
        raise InputError(f"{file}: a binary file, and no text")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def _cells(file: Path, format: Format) -> Iterator[tuple[int, list[str]]]:
    """Line and cells of each row. Spreadsheets of some languages separate those of a CSV file by semicolons, and write
    a number with a comma."""
    csv.field_size_limit(MAX_CELL)
    text = decoded(file)
    first = re.sub(r'"[^"]*"', "", text.partition("\n")[0])  # between the cells
    decimal = all(re.fullmatch(r"[^,]*|[^,]*\d,\d[^,]*", cell) for cell in first.split(";"))
    semicolons = format == "csv" and ";" in first and decimal
    delimiter = "\t" if format == "tsv" else ";" if semicolons else ","
    reader = csv.reader(StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        for cells in filter(None, reader):
            cells = [cell.strip() for cell in cells]
            if semicolons:
                cells = [cell.replace(",", ".") if _DECIMAL_COMMA.fullmatch(cell) else cell for cell in cells]
            yield reader.line_num, cells
    except csv.Error as error:
        raise InputError(f"{file}: line {reader.line_num}: {error}") from error


def _records(
    file: Path, names: Sequence[str], rows: Iterator[tuple[int, list[str]]], missing: Collection[str]
) -> Iterator[tuple[int, dict[str, str]]]:
    for line, cells in rows:
        if len(cells) != len(names):
            raise InputError(f"{file}: line {line}: {len(cells)} cells, and the table has {len(names)} columns")
        yield line, {name: cell for name, cell in zip(names, cells, strict=True) if cell not in missing}


def _label(file: Path, line: int, label: str, labelled: bool) -> str:
    if labelled and not label:
        raise InputError(f"{file}: line {line}: no label")
    return label


def _lines(file: Path, label_first: bool, labelled: bool) -> Table:
    rows, labels = [], []
    for line, text in enumerate(decoded(file).split("\n"), start=1):
        if not text.strip():
            continue
        before, tab, after = text.partition("\t") if label_first else text.rpartition("\t")
        if labelled and not tab:
            raise InputError(f"{file}: line {line}: no tab between label and text")
        label, said = (before, after) if label_first else (after, before)
        labels.append(_label(file, line, label.strip() if tab else "", labelled))
        rows.append({TEXT: said if tab else text})
    return Table((TEXT,), rows, labels)


def _of_counts(
    file: Path, names: Sequence[str], label: str, found: Iterator[tuple[int, dict[str, str]]], labelled: bool
) -> Table:
    if missing := [name for name in _COUNTED if name not in names]:
        raise InputError(f"{file}: no column {missing[0]!r}; counts of terms have {', '.join(_COUNTED)} and a label")
    documents: dict[str, dict[str, int]] = {}
    labels: dict[str, str] = {}
    for line, record in found:
        document, term, count = (record.get(name, "") for name in _COUNTED)
        if not count.isdecimal():
            raise InputError(f"{file}: line {line}: count {count!r} is no whole number")
        if len(count) > LONGEST:
            raise InputError(f"{file}: line {line}: count {count[:LONGEST]}... is none that can be kept")
        terms = documents.setdefault(document, {})
        terms[term] = terms.get(term, 0) + int(count)
        said = record.get(label, "")
        if said not in MISSING and labels.setdefault(document, said) != said:
            raise InputError(
                f"{file}: line {line}: document {document!r} has two labels, {labels[document]!r}, {said!r}"
            )
    if labelled and (unsaid := [document for document in documents if document not in labels]):
        raise InputError(f"{file}: document {unsaid[0]!r} has no label")
    return Table(
        (TERMS,), [{TERMS: terms} for terms in documents.values()], [labels.get(each, "") for each in documents]
    )
