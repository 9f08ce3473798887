"""The table of targets; evidence of each lies in tests/evidence/NAME/."""

from pathlib import Path

from tests.fuzzing import configuration, dialogue, feedback_socket, mailboxes, milter, next_hop, parser, tokenizer
from tests.fuzzing.target import Target

EVIDENCE = Path(__file__).parents[1] / "evidence"

TARGETS: dict[str, Target] = {
    "parser": parser.target,
    "tokenizer": tokenizer.target,
    "dialogue": dialogue.target,
    "configuration": configuration.target,
    "mailboxes": mailboxes.target,
    "feedback_socket": feedback_socket.target,
    "milter": milter.target,
    "next_hop": next_hop.target,
}
