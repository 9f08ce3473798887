"""Mail by the milter protocol: the mail server asks about each mail, and delivers it itself.

packets.py is the protocol as bytes and values, session.py the mails of a connection, incoming.py a mail that comes,
changes.py what is done to its header, connection.py the wire.
"""

import asyncio
import socket
from collections.abc import Callable
from functools import partial

from spamfilter.relay.accepting import FrontEnd
from spamfilter.relay.milter.connection import Connection

__all__ = ["MilterFrontEnd"]


class MilterFrontEnd(FrontEnd):
    """Milter on any number of sockets."""

    def connection(self, sock: socket.socket, submission: bool) -> Callable[[], asyncio.BaseProtocol]:
        return partial(Connection, self._relay)
