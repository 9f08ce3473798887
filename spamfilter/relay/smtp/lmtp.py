"""Mail over LMTP, on the SMTP front end: LHLO instead of EHLO, and a reply to a mail for each recipient: RFC 2033."""

from spamfilter.relay.next_hops import Reply
from spamfilter.relay.smtp.dialogue import Dialogue
from spamfilter.relay.smtp.server import COMMANDS

HOP_LEAVING = Reply.of("451 4.3.2 The next hop is closing; try again later")
"""For a recipient, instead of 421: after that the client would not listen to the replies for the other recipients."""


class LmtpDialogue(Dialogue):
    protocol = "LMTP"
    commands = ("LHLO", *(command for command in COMMANDS if command not in ("HELO", "EHLO")))
    each = True
    smtp_LHLO = Dialogue.smtp_EHLO

    async def _data(self) -> Reply:
        envelope = self.relaying.transaction
        reply = await super()._data()
        if not self._received or (reply.code == 421 and not reply.each):
            return reply
        each = reply.for_each(len(envelope.recipients) if envelope is not None else 1)
        return Reply.together([HOP_LEAVING if one.code == 421 else one for one in each])
