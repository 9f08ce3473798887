"""FRONT_ENDS: the table of protocols by which mail is received."""

from collections.abc import Callable

from spamfilter.relay.accepting import FrontEnd
from spamfilter.relay.milter import MilterFrontEnd
from spamfilter.relay.relay import Relay
from spamfilter.relay.smtp import SmtpFrontEnd
from spamfilter.relay.smtp.lmtp import LmtpFrontEnd

FRONT_ENDS: dict[str, Callable[[Relay], FrontEnd]] = {
    "smtp": SmtpFrontEnd,
    "lmtp": LmtpFrontEnd,
    "milter": MilterFrontEnd,
}
