"""The manual pages, from what `--help` says and from the sample configuration, so that they say nothing else.

    python docs/manual.py docs/man

writes spamfilter.1 and spamfilter.toml.5, in the macros of man(7). A test holds them to this.
"""

import argparse
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click

from spamfilter import __version__
from spamfilter.cli import main
from spamfilter.commands import COMMANDS, find
from spamfilter.system.packaged_files import shipped

SAMPLE = "config/spamfilter.toml"
EXITS = (
    ("0", "Done."),
    ("1", "Not allowed, or not all of it could be done; of doctor: there are warnings."),
    ("2", "Wrong usage or input; standard error names the file, key or line. Of doctor: something has failed."),
    ("75", "The database is busy or its disk full, or the relay or the next hop does not answer; try again."),
    ("130", "Interrupted."),
)
FILES = (
    ("/etc/spamfilter/spamfilter.toml", "The configuration, if there is one: spamfilter.toml(5)."),
    ("/var/lib/spamfilter/spamfilter.db", "What was learnt, and the journal of what was judged."),
    ("/run/spamfilter/feedback.sock", "The socket by which users mark mail."),
)
ENVIRONMENT = (
    ("SPAMFILTER_CONFIG", "The configuration file."),
    ("SPAMFILTER_SECTION__KEY", "Any key of it, as SPAMFILTER_VERDICT__SPAM=0.95."),
    ("STATE_DIRECTORY", "The folder of the database; systemd sets it."),
)


def pages() -> dict[str, str]:
    """File name -> page."""
    return {"spamfilter.1": "\n".join(_program()) + "\n", "spamfilter.toml.5": "\n".join(_configuration()) + "\n"}


def roff(text: str) -> str:
    """Text that troff shows as it is.

    >>> roff(".a-b 'c\\\\d")
    "\\\\&.a\\\\-b 'c\\\\ed"
    """
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{text}" if text[:1] in (".", "'") else text


def _head(name: str, section: int, what: str) -> Iterator[str]:
    yield f'.TH "{name.upper()}" "{section}" "" "spamfilter {__version__}" "spamfilter"'
    yield ".SH NAME"
    yield f"{roff(name)} \\- {roff(what)}"


def _tagged(pairs: tuple[tuple[str, str], ...]) -> Iterator[str]:
    for tag, text in pairs:
        yield ".TP"
        yield f"\\fB{roff(tag)}\\fR"
        yield roff(text)


def _program() -> Iterator[str]:
    context = click.Context(main, info_name="spamfilter", **main.context_settings)
    summary, _, rest = (main.help or "").partition("\n\n")
    yield from _head("spamfilter", 1, "spam filter in front of a mail server")
    yield ".SH SYNOPSIS"
    yield "\\fBspamfilter\\fR [\\fIoptions\\fR] \\fIcommand\\fR [\\fIarguments\\fR]"
    yield ".SH DESCRIPTION"
    yield from _paragraphs(summary)
    yield ".PP"
    yield from _paragraphs(rest)
    yield ".SH OPTIONS"
    yield from _options(context)
    yield ".SH COMMANDS"
    for name in COMMANDS:
        command = find(name)
        assert command is not None
        yield from _command(command, click.Context(command, context, name))
    for title, pairs in (("EXIT STATUS", EXITS), ("ENVIRONMENT", ENVIRONMENT), ("FILES", FILES)):
        yield f".SH {title}"
        yield from _tagged(pairs)
    yield ".SH SEE ALSO"
    yield "\\fBspamfilter.toml\\fR(5)"


def _command(command: click.Command, context: click.Context) -> Iterator[str]:
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    yield f".SS {roff(usage)}"
    yield from _paragraphs(command.help or "")
    yield from _options(context)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            part = command.get_command(context, name)
            assert part is not None
            yield from _command(part, click.Context(part, context, name))


def _paragraphs(text: str) -> Iterator[str]:
    """Paragraphs as help pages have them; one that begins with \\b keeps its lines."""
    for number, paragraph in enumerate(re.split(r"\n\s*\n", text.strip())):
        if number:
            yield ".PP"
        lines = [line.strip() for line in paragraph.splitlines()]
        if lines[0] == "\b":
            yield from (".nf", *map(roff, lines[1:]), ".fi")
        elif lines[0].startswith("Example: "):
            yield "Example:"
            yield from (".PP", ".RS", roff(" ".join(lines).removeprefix("Example: ")), ".RE")
        else:
            yield roff(" ".join(lines))


def _options(context: click.Context) -> Iterator[str]:
    for parameter in context.command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None and "--help" not in record[0]:
            yield ".TP"
            yield f"\\fB{roff(record[0])}\\fR"
            yield roff(record[1])


def _configuration() -> Iterator[str]:
    yield from _head("spamfilter.toml", 5, "configuration of spamfilter")
    text = re.sub(r"^#(?=\[\[|[a-z_]+ = )", "", shipped(SAMPLE).read_text(encoding="utf-8"), flags=re.MULTILINE)
    intro, *sections = re.split(r"^\[\[?([a-z_.]+)\]\]?\n", text, flags=re.MULTILINE)
    first, *others = _blocks(intro)
    yield ".SH DESCRIPTION"
    yield roff(first[0])
    for comment, _ in others:
        yield ".PP"
        yield roff(comment)
    for name, body in zip(sections[::2], sections[1::2], strict=True):
        yield f".SH [{roff(name)}]"
        for comment, keys in _blocks(body):
            for key in keys:
                yield ".TP"
                yield f"\\fB{roff(key)}\\fR"
            yield roff(comment or "As in the sections above.")
    yield ".SH SEE ALSO"
    yield "\\fBspamfilter\\fR(1)"


def _blocks(text: str) -> Iterator[tuple[str, list[str]]]:
    """A comment, and the keys that follow it with their defaults."""
    comment: list[str] = []
    keys: list[str] = []
    for line in text.splitlines():
        if line.startswith("#"):
            if keys:
                yield " ".join(comment), keys
                comment, keys = [], []
            if line == "#" and comment:
                yield " ".join(comment), []
                comment = []
            elif line != "#":
                comment.append(line[1:].strip())
        elif line:
            tomllib.loads(line)
            keys.append(line)
    if comment or keys:
        yield " ".join(comment), keys


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    folder.mkdir(exist_ok=True)
    for file, page in pages().items():
        (folder / file).write_text(page, encoding="utf-8")
