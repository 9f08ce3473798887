"""The table of targets; evidence of each lies in tests/evidence/NAME/."""

from functools import partial
from pathlib import Path

from spamfilter.relay.smtp.lmtp import LmtpDialogue
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
    "lmtp": partial(dialogue.target, LmtpDialogue),
    "milter": milter.target,
    "next_hop": next_hop.target,
}
