"""The names of the targets: of a module here, and of its evidence in tests/evidence/NAME/."""

from importlib import import_module
from pathlib import Path
from typing import cast

from tests.fuzzing.target import Target

EVIDENCE = Path(__file__).parents[1] / "evidence"

TARGETS = (
    "parser",
    "tokenizer",
    "dialogue",
    "configuration",
    "mailboxes",
    "feedback_socket",
    "lmtp",
    "milter",
    "next_hop",
)


def target(name: str) -> Target:
    """A target; only its module is imported, since what is imported is instrumented, which takes seconds."""
    return cast("Target", import_module(f"tests.fuzzing.{name}").target)
