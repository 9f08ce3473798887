"""FRONT_ENDS: the table of protocols by which mail is received."""

from collections.abc import Callable
from functools import partial

from spamfilter.relay.accepting import FrontEnd
from spamfilter.relay.milter.connection import Connection
from spamfilter.relay.relay import Relay
from spamfilter.relay.smtp.dialogue import Dialogue
from spamfilter.relay.smtp.lmtp import LmtpDialogue

FRONT_ENDS: dict[str, Callable[[Relay], FrontEnd]] = {
    "smtp": partial(FrontEnd, Dialogue),
    "lmtp": partial(FrontEnd, LmtpDialogue),
    "milter": partial(FrontEnd, Connection),
}
