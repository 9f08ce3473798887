"""Mail over SMTP, on aiosmtpd: a transparent proxy in front of the next hop.

server.py adapts aiosmtpd's class to a proxy, client.py has limits and the end of a connection, dialogue.py the
commands, incoming.py the mail after DATA. The transaction itself is in ../session, new connections in ../accepting.py.
"""

import asyncio
import socket
from collections.abc import Callable
from functools import partial

from spamfilter.relay.accepting import FrontEnd
from spamfilter.relay.smtp.dialogue import Dialogue

__all__ = ["SmtpFrontEnd"]


class SmtpFrontEnd(FrontEnd):
    """SMTP on any number of sockets. dialogue: the class of a connection."""

    dialogue: type[Dialogue] = Dialogue

    def connection(self, sock: socket.socket, submission: bool) -> Callable[[], asyncio.BaseProtocol]:
        return partial(self.dialogue, self._relay, submission=submission)
