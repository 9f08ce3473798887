"""A connection of a mail server: whether it may connect, what it sends, how long it may take.

Guarantee: a peer that breaks the protocol, or that may not connect, is disconnected, and then the mail server does what
it is configured to do without a filter (milter_default_action). While a mail is handed over, no further packet is
obeyed.
"""

import asyncio
import logging
import math
import socket
from typing import cast

from spamfilter.relay.limits.connections import LIMIT_REPLIES
from spamfilter.relay.limits.deadline import Deadline
from spamfilter.relay.milter.packets import END, LOCAL, REPLY, Decoder, ProtocolError, packet
from spamfilter.relay.milter.session import Session
from spamfilter.relay.relay import Relay
from spamfilter.system import unix_socket
from spamfilter.system.logs import SELDOM

log = logging.getLogger(__name__)

WAITING = 2**20
"""Bytes that may wait unread while a mail is handed over: a mail server sends nothing then."""
TEMPORARY = packet(REPLY, b"451 4.3.0 Temporary fault; try again later\0")


class Connection(asyncio.Protocol):
    def __init__(self, relay: Relay, submission: bool = False) -> None:
        """submission: not asked, as the mail server itself says whose mail it is."""
        self._relay = relay
        self._decoder = Decoder()
        self._busy = False
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._deadline = Deadline(self._timed_out)
        self._waits = "session_seconds"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        sock = transport.get_extra_info("socket")
        proven = sock is not None and sock.family == socket.AF_UNIX
        self._peer = LOCAL if proven else str((transport.get_extra_info("peername") or ("",))[0])
        self._session = Session(self._relay, self._peer, proven=proven, gone=transport.is_closing)
        if proven and not unix_socket.is_mail_server(user := unix_socket.user_of(sock)):
            self._end(f"uid {user} is not the mail server ({unix_socket.MAIL_SERVER}); refused")
        elif not proven and not self._relay.trusts(self._peer):
            self._end("not in relay.trusted; refused")
        elif limit := self._relay.crowd.enter(self, self._peer, self._relay.limits, trusted=True):
            self._relay.limit_log.noted(limit, f"the mail server {self._peer} is disconnected")
            self._transport.abort()
        else:
            self._relay.metrics.count("sessions")
            self._wait()

    def connection_lost(self, error: Exception | None) -> None:
        self._relay.crowd.leave(self)
        self._deadline.cancel()
        if not self._busy:
            self._session.clear()

    def data_received(self, data: bytes) -> None:
        if self._transport.is_closing():
            return
        self._decoder.feed(data)
        if not self._busy:
            self._obey()
        elif self._decoder.unread > WAITING:
            self._transport.pause_reading()

    def leave_if_idle(self) -> None:
        """Disconnect unless a mail is running; after that no new one begins."""
        if not self._busy and self._session.transaction is None:
            self._transport.close()

    def leave(self) -> None:
        """Cut the connection; an answer that is not sent yet is dropped."""
        self._transport.abort()

    def _obey(self) -> None:
        """Obey the packets that are there, up to the end of a mail."""
        try:
            while not self._session.closed and (found := self._decoder.packet()) is not None:
                command, data = found
                if command == END:
                    self._busy = True
                    self._deadline.set(math.inf)
                    # The hand-over goes on even if the connection ends.
                    self._relay.in_background(self._hand_over(data))
                    return
                if answer := self._session.obey(command, data):
                    self._transport.write(answer)
        except ProtocolError as error:
            self._end(f"breaks the milter protocol: {error}; disconnected")
            return
        except Exception:
            self._fault()
            self._transport.abort()
            return
        if self._session.closed:
            self._transport.close()
        self._wait()

    async def _hand_over(self, data: bytes) -> None:
        try:
            answer = await self._session.end(data)
        except ProtocolError as error:
            self._end(f"breaks the milter protocol: {error}; disconnected")
            return
        except Exception:
            self._fault()
            answer = TEMPORARY
        finally:
            self._busy = False
        if self._transport.is_closing():
            self._session.clear()
            return
        self._transport.write(answer)
        if self._relay.draining:
            self._transport.close()
            return
        self._transport.resume_reading()
        self._obey()

    def _fault(self) -> None:
        """Log the exception that is being handled, a fault of ours."""
        log.exception("milter: %s: a command failed", self._peer)
        self._relay.metrics.count("faults", "session")

    def _end(self, why: str) -> None:
        log.warning("milter: %s: %s", self._peer, why, extra=SELDOM)
        self._transport.abort()

    def _wait(self) -> None:
        """Set the deadline for the next packet. A client of the mail server may be slow, the text of its mail is not:
        the mail server has it already."""
        limits, transaction = self._relay.limits, self._session.transaction
        if self._session.incoming is not None:
            self._waits, until = "data_seconds", self._loop.time() + limits.data_seconds
        elif transaction is not None:
            self._waits, until = "transaction_seconds", transaction.began + limits.transaction_seconds
        else:
            self._waits, until = "session_seconds", self._began + limits.session_seconds
        self._deadline.set(until)

    def _timed_out(self) -> None:
        self._relay.limit_log.noted(self._waits, f"the mail server {self._peer}: {LIMIT_REPLIES[self._waits].text}")
        self._transport.abort()
