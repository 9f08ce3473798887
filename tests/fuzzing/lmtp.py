"""The relay's side of a dialogue by LMTP."""

from functools import partial

from spamfilter.relay.smtp.lmtp import LmtpDialogue
from tests.fuzzing import dialogue

target = partial(dialogue.target, LmtpDialogue)
