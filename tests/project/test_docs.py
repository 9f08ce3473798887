"""The documentation against the program, in both directions."""

import re
from collections.abc import Iterable
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from spamfilter import commands
from spamfilter.config.settings import Settings
from spamfilter.learning.bulk.training import Outcome
from spamfilter.reports.drift import Drift
from spamfilter.reports.rendering import report_json
from spamfilter.reports.report import (
    LearntMessage,
    LearntWord,
    MatteringWord,
    Named,
    Report,
    Size,
    Trouble,
    WaitingMessage,
    build,
)
from spamfilter.reports.report_figures import Calibrated, Delay, Figures, Rate, Slot
from spamfilter.service.control_socket.client import LOOKED_AT
from spamfilter.stores import Trainings
from tests.support.memory_store import MemoryStore

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = {path: path.read_text(encoding="utf-8") for path in (ROOT / "README.md", *sorted(DOCS.glob("*.md")))}


def documented(section: str) -> set[str]:
    """The names in the first column of a section of docs/json.md."""
    text = (DOCS / "json.md").read_text(encoding="utf-8").split(f"## {section}\n")[1].split("\n## ")[0]
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    return {name for row in rows for name in re.findall(r"`([a-z0-9_]+)`", row)}


def spoken_of(section: str) -> set[str]:
    """All names in a section of docs/json.md."""
    text = (DOCS / "json.md").read_text(encoding="utf-8").split(f"## {section}\n")[1].split("\n## ")[0]
    return set(re.findall(r"`([a-z0-9_]+)`", text))


def test_the_report_and_its_description_name_the_same() -> None:
    types = (Report, Figures, Rate, Delay, Slot, Calibrated, Named, Trouble, MatteringWord, LearntWord, Size, Drift)
    parts = (LearntMessage, WaitingMessage, Trainings)
    assert spoken_of("stats --json") >= {field.name for type in (*types, *parts) for field in fields(type)} - {
        "figures",
        "zone",
    }


def test_the_report_has_what_its_description_names_first() -> None:
    report = build(MemoryStore(), ["fields"], datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 3, 8, tzinfo=UTC))
    assert documented("stats --json") == report_json(report).keys()


def test_the_outcome_of_a_training_and_its_description_name_the_same() -> None:
    assert documented("train --json") == {field.name for field in fields(Outcome)}


def test_the_size_of_a_mail_over_the_feedback_socket_is_as_documented() -> None:
    assert f"bytes of the mail that follows this line: 1 to {LOOKED_AT}," in PAGES[DOCS / "json.md"]


@pytest.mark.parametrize("name", commands.COMMANDS)
def test_each_command_stands_in_a_page(name: str) -> None:
    assert any(re.search(rf"spamfilter (--config \S+ )?{name}\b", text) for text in PAGES.values()), name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_names_no_command_that_is_not_there(page: Path) -> None:
    named = set(re.findall(r"(?:^ *|`|bin/|&& )spamfilter (?:--config \S+ )?([a-z-]+)", PAGES[page], re.MULTILINE))
    assert named - {"--version"} <= set(commands.COMMANDS)


def test_the_readme_names_every_page() -> None:
    assert sorted(path.name for path in PAGES if path.parent == DOCS and f"docs/{path.name}" not in README) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_link_of_a_page_leads_somewhere(page: Path) -> None:
    links = set(re.findall(r"\]\((?!https?:|#)([^)#]+)", PAGES[page]))
    assert sorted(link for link in links if not (page.parent / link).exists()) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_link_to_a_heading_leads_to_one(page: Path) -> None:
    links = set(re.findall(r"\]\((?!https?:)([^)#]*)#([^)]+)\)", PAGES[page]))
    targets = {(link, anchor): page.parent.joinpath(link).resolve() if link else page for link, anchor in links}
    assert sorted(link for link, target in targets.items() if link[1] not in anchors(target)) == []


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub makes of a page's headings."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_names_no_key_that_is_not_there(page: Path) -> None:
    """That of the changes names former ones, too."""
    named = set(re.findall(r"\[([a-z]+)\]`?\s+`?([a-z_]+)`", PAGES[page])) if page.stem != "changes" else set()
    keys = {(section, key) for section, field in Settings.model_fields.items() for key in keys_of(field.annotation)}
    assert sorted(one for one in named if one[0] in Settings.model_fields and one not in keys) == []


def keys_of(section: Any) -> Iterable[str]:
    return getattr(section, "model_fields", ())


@pytest.mark.parametrize("name", commands.COMMANDS)
def test_each_command_shows_an_example(name: str) -> None:
    command = commands.find(name)
    assert command is not None
    assert "Example: spamfilter " in (command.help or "")


def test_each_dependency_has_its_reason() -> None:
    declared = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    names = set(re.findall(r'^  "([a-z0-9-]+)(?:\[[a-z]+\])?>=', declared, re.MULTILINE)) | {"hatchling"}
    reasons = (DOCS / "dependencies.md").read_text(encoding="utf-8").partition("Not used:")[0]
    assert set(re.findall(r"\*\*([a-z0-9-]+)\*\*", reasons)) == names


def test_each_file_that_the_flow_names_exists() -> None:
    """A path below spamfilter/, or its end where the text names the folder beside it."""
    text = (DOCS / "flow.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:[a-z_]+/)+|(?:[a-z_]+/)*[a-z_]+\.py)`", text)) - {"spamfilter/"}
    assert len(named) > 40
    below = [path.relative_to(ROOT).as_posix() for path in ROOT.joinpath("spamfilter").rglob("*")]
    below += [path.relative_to(ROOT).as_posix() for path in ROOT.joinpath("tests").rglob("*.py")]
    missing = [name for name in named if not any(f"/{path}".endswith(f"/{name.rstrip('/')}") for path in below)]
    assert sorted(missing) == []
