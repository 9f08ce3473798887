"""The export of what a database has learnt, as JSON lines, and its import into another one.

The first line says what the others are: a whole ledger, entry by entry, so that each learning can still be undone, or
the sum of its counts, in which no message stands. The last line says how many there are, so that a file that was cut
off is not taken for a whole one.
Guarantee: a ledger that was imported gives equal counts, and each mail an equal score; so do counts, where nothing was
learnt before. A file is imported whole or not at all.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any

from spamfilter import __version__
from spamfilter.bayes.calibration import BEFORE, Calibration, Step
from spamfilter.bayes.count_table import SpelledTable
from spamfilter.bayes.counts import MAX_COUNT
from spamfilter.bayes.imported.voices import IMPORTED
from spamfilter.bayes.labels import IMPORT, LABELS, EntryLabel, Label
from spamfilter.bayes.model import part_of
from spamfilter.bayes.tokens import TOKENIZER, Token
from spamfilter.bayes.voices import Voices, VoiceTokens
from spamfilter.errors import CountError, InputError, StoreBusy, file_errors
from spamfilter.learning.filter import Filter, ledger, rules
from spamfilter.learning.transfer.dumps import DumpError
from spamfilter.learning.transfer.imports import Import, announce, is_new
from spamfilter.stores import Entry

FORMAT = 1
"""The version of the format: the first line has it as `spamfilter_export`, and an import knows its own only."""
BEGIN = b'{"spamfilter_export"'
LEDGER, COUNTS = "ledger", "counts"
CONTROL = bytes([*range(0x20), 0x7F])
"""Bytes that no word has."""
MOST = 2**100
"""More than any sum of a calibration, and still a float."""


def export(filter: Filter, counts_only: bool) -> Iterator[str]:
    """The lines of an export, without their ends. filter: of the voices that the counts were made by.

    Raises StoreBusy before the last line if the counts were rebuilt meanwhile, so that the lines are of both, or if the
    first line lacks a voice that was imported meanwhile.
    """
    first: dict[str, object] = {"spamfilter_export": FORMAT, "kind": COUNTS if counts_only else LEDGER}
    first |= {"version": __version__, **rules(filter.voices)}
    first["imported"] = [voice.name for voice in filter.voices if voice.imported]
    written, generation = 0, filter.store.generation
    entries = map(_line_of, ledger(filter.store))
    for line in _counts(filter, first) if counts_only else chain([first], entries):
        yield json.dumps(line, separators=(",", ":"), ensure_ascii=False)
        written += 1
    if filter.store.generation != generation:
        raise StoreBusy(f"{filter.store.where}: its counts were rebuilt, or another filter's imported; export again")
    yield json.dumps({"end": written}, separators=(",", ":"))


def _line_of(entry: Entry) -> dict[str, object]:
    tokens = {name: {token.decode(): n for token, n in some.items()} for name, some in entry.tokens.items()}
    return {
        "id": entry.id,
        "at": entry.at.isoformat(),
        "digest": entry.digest.hex(),
        "label": entry.label,
        "source": entry.source,
        "by": entry.by,
        "undoes": entry.undoes,
        "added": dict(entry.added),
        "calibrated": list(entry.calibrated),
        "tokens": tokens,
    }


def _counts(filter: Filter, first: dict[str, object]) -> Iterator[dict[str, object]]:
    state = filter.rebuilt(filter.store.state({}).last, SpelledTable)
    first["learnt"] = state.learnt
    first["messages"] = {name: counts.messages for name, counts in state.counts.items()}
    first["calibration"] = list(state.calibration)
    yield first
    for name, counts in state.counts.items():
        ham, spam = counts.words["ham"], counts.words["spam"]
        for word in sorted(ham.keys() | spam.keys()):
            yield {"voice": name, "word": word.decode(), "ham": ham.get(word, 0), "spam": spam.get(word, 0)}


class Export:
    """A file that `export` has written. Raises InputError where it is of another format, or not whole."""

    def __init__(self, file: Path) -> None:
        self.file = file
        first = next(self._lines(), None)
        if first is None:
            raise InputError(f"{file}: is empty; nothing was learnt")
        self.first = first[1]
        if self.first.get("spamfilter_export") != FORMAT or self.first.get("kind") not in (LEDGER, COUNTS):
            raise DumpError(file, 1, f"expected an export of format {FORMAT}; import it with the version that wrote it")
        names = self.first.get("imported", [])
        if not isinstance(names, list) or not all(isinstance(name, str) and name in IMPORTED for name in names):
            raise DumpError(file, 1, f"imported voices {names!r} are not known here; known: {', '.join(IMPORTED)}")
        self.imported = frozenset(names)
        self.is_ledger: bool = self.first["kind"] == LEDGER

    def check_rules(self, voices: Voices) -> None:
        """Raises InputError where the counts are of other voices or likelihoods, or of a newer tokenizer."""
        ours, theirs = rules(voices)["voices"], self.first.get("voices")
        if theirs != ours:
            raise InputError(
                f"{self.file}: was learnt with voices {json.dumps(theirs)}, this database with {json.dumps(ours)}; set"
                " [learn] as there, import, and run `spamfilter retrain` after changing it back; nothing was learnt"
            )
        tokenizer = self.first.get("tokenizer")
        if not isinstance(tokenizer, int) or tokenizer > TOKENIZER:
            raise InputError(f"{self.file}: is of a newer version of spamfilter; upgrade this one; nothing was learnt")

    def _lines(self) -> Iterator[tuple[int, dict[str, Any]]]:
        with file_errors(self.file), self.file.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                try:
                    found = json.loads(line)
                except (ValueError, RecursionError) as error:
                    raise DumpError(self.file, number, f"is no JSON ({error})") from None
                if not isinstance(found, dict):
                    raise DumpError(self.file, number, "is no JSON object")
                yield number, found

    def rows(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """The lines between the first and the last one, each with its number."""
        number, ended = 0, False
        for number, found in self._lines():
            if ended:
                raise DumpError(self.file, number, "follows the last line of an export")
            if "end" in found:
                ended = True
                if found["end"] != number - 1:
                    raise DumpError(self.file, number, f"says that {found['end']} lines precede it; lines are missing")
            elif number > 1:
                yield number, found
        if not ended:
            raise DumpError(self.file, number, "is not the last line of an export: the file was cut off")

    def entries(self) -> Iterator[tuple[int, Entry]]:
        """The ledger, each entry with the number of its line."""
        for number, row in self.rows():
            try:
                yield number, _entry_of(row)
            except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
                raise DumpError(self.file, number, f"is no entry of a ledger ({error!r})") from None

    def counts(self, voices: Voices) -> Import:
        """The counts, as an import."""
        kinds = {voice.name: voice.likelihood.name for voice in voices}
        kinds |= {name: IMPORTED[name].likelihood.name for name in self.imported}
        try:
            messages = _numbers(self.first["learnt"])
            voices_messages = {name: _numbers(of) for name, of in self.first["messages"].items()}
            step = _step(self.first["calibration"])
            if unknown := voices_messages.keys() - kinds.keys():
                raise ValueError(f"voice {min(unknown)!r}")  # noqa: TRY301 - handled like what a line lacks
        except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            raise DumpError(self.file, 1, f"lacks the totals of an export of counts ({error!r})") from None
        parts = {(label, voice): part_of(label, voice, kinds[voice]) for voice in voices_messages for label in LABELS}
        tokens: dict[str, dict[Token, int]] = {part: {} for part in parts.values()}
        for number, row in self.rows():
            try:
                word, voice, of = _word(row["word"]), row["voice"], _numbers(row)
                if voice not in voices_messages:
                    raise ValueError(f"voice {voice!r}")  # noqa: TRY301 - handled like the other errors of a line
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise DumpError(self.file, number, f"is no count of a word ({error!r})") from None
            for label in LABELS:
                if of[label]:
                    tokens[parts[label, voice]][word] = of[label]
        added = {part: voices_messages[voice][label] for (label, voice), part in parts.items()}
        return Import(messages, added, tokens, step, self.imported)


def take_in_ledger(filter: Filter, export: Export) -> int:
    """Write the ledger of an export into a database that has learnt nothing. Returns the number of its entries.

    filter: holds all counts in memory. Raises InputError, CountError; then nothing is written.
    """
    announce(filter.store, export.imported)
    ids: dict[int, int] = {}
    with filter.training() as training:
        if not is_new(training.ledger):
            raise InputError(
                f"{filter.store.where}: has learnt already, and a whole ledger goes into a new database only; name one"
                " in [store] url, or export with --counts-only"
            )
        for number, entry in export.entries():
            if entry.undoes is not None and entry.undoes not in ids:
                raise DumpError(export.file, number, f"undoes entry {entry.undoes}, which is not in the file")
            if entry.id in ids:
                raise DumpError(export.file, number, f"has the id {entry.id} of an earlier entry")
            undoes = None if entry.undoes is None else ids[entry.undoes]
            try:
                ids[entry.id] = training.write(replace(entry, undoes=undoes))
            except (CountError, KeyError, TypeError) as error:
                raise DumpError(export.file, number, f"cannot be learnt ({error})") from error
    return len(ids)


def _entry_of(row: dict[str, Any]) -> Entry:
    at, digest = datetime.fromisoformat(row["at"]), bytes.fromhex(row["digest"])
    label: EntryLabel = row["label"]
    if at.tzinfo is None or len(digest) != 16 or label not in (*LABELS, IMPORT):
        raise ValueError("at, digest or label")
    id, undoes = _amount(row["id"]), None if row["undoes"] is None else _amount(row["undoes"])
    added = {_text(voice): _amount(amount) for voice, amount in row["added"].items()}
    tokens: VoiceTokens = {
        _text(voice): {_word(token): _occurrences(n) for token, n in some.items()}
        for voice, some in row["tokens"].items()
    }
    parts = _parts(tokens)
    # A rebuilding of the counts leaves no amounts of an import that was taken back.
    if label == IMPORT and not (tokens.keys() == parts and added.keys() in ({*LABELS, *parts}, set())):
        raise ValueError("added or tokens of an import")
    step, source, by = tuple(map(_sum, row["calibrated"])), _text(row["source"]), _text(row["by"])
    return Entry(label, added, step, tokens, at.astimezone(UTC), digest, source, by, undoes, id)


def _parts(names: Iterable[str]) -> set[str]:
    """Those that `part_of` may have given."""
    return {name for name in names if len(words := name.split()) == 3 and words[0] in LABELS}


def _text(text: str) -> str:
    text.encode()  # raises UnicodeEncodeError, a ValueError, for half of a character
    return text


def _sum(value: object) -> int:
    """A number of a calibration."""
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > MOST:
        raise ValueError(f"{value!r:.40} is no sum")
    return value


def _numbers(row: dict[str, Any]) -> dict[Label, int]:
    return {label: _amount(row[label]) for label in LABELS}


def _amount(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_COUNT:
        raise ValueError(f"{value!r:.40} is no count")
    return value


def _occurrences(value: Any) -> Any:
    """Occurrences of a token, or the value of a numeric attribute."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{value!r} is no number")  # noqa: TRY004 - one kind of error for a line
    return value


def _word(text: str) -> Token:
    word = _text(text).encode()
    if not word or word.translate(None, CONTROL) != word:
        raise ValueError(f"word {text!r}")
    return word


_CALIBRATIONS = (4, 6, 8)
"""Numbers of a calibration, of the earlier versions and this one."""


def _step(calibration: list[int]) -> Step:
    """What leads from nothing learnt to this state of the calibration, which may be of an earlier version."""
    end = Calibration(*map(_sum, calibration))  # raises TypeError for more numbers than it has
    if not isinstance(calibration, list) or len(calibration) not in _CALIBRATIONS or end.messages < BEFORE:
        raise ValueError("calibration")
    for label in LABELS:
        end.step(0.0, label, 1.0)  # raises ZeroDivisionError for sums that no learning can have
    return tuple(to - of for to, of in zip(end, Calibration(), strict=True))
