"""Limits of number and time for connections; uvicorn itself has none.

Guarantee: a connection is cut if it sends no whole request header within HEADER_SECONDS, or if its answer is not sent
within ANSWER_SECONDS. When MOST_CONNECTIONS are open, a new connection replaces the one that has waited longest for a
header, so a client that asks at once is served, however many slow ones there are. A request that is not HTTP gets 400,
or nothing if its answer has begun, and no line of the log.
"""

import asyncio
from typing import Any, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

MOST_CONNECTIONS = 200
"""Connections at a time: a browser opens six."""
HEADER_SECONDS = 10.0
"""From the connection, or the last answer, to the end of a request header, which is usually one packet."""
ANSWER_SECONDS = 300.0
"""From there until the answer is sent: time for the report of a year, after others, on a slow line."""


class Bounded(H11Protocol):
    """uvicorn's connection with these limits."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._since = self.loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._answering: object = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as the server has it
        if len(self.connections) >= MOST_CONNECTIONS:
            waiting = [one for one in cast("set[Bounded]", self.connections) if one.waits]
            if not waiting:
                self.transport = transport
                transport.abort()
                return
            min(waiting, key=lambda one: one._since).cut()
        super().connection_made(transport)
        self._within(HEADER_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            super().connection_lost(exc)

    @property
    def waits(self) -> bool:
        """Whether it waits for the rest of a request header."""
        return self.cycle is None or self.cycle.response_complete

    def handle_events(self) -> None:
        super().handle_events()
        if not self.waits and self.cycle is not self._answering:
            self._answering = self.cycle
            self._within(ANSWER_SECONDS)

    def on_response_complete(self) -> None:
        self._within(HEADER_SECONDS)
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        if self.cycle is not None:
            self.cycle.disconnected = True  # h11 would raise for a second answer, and the log would have a traceback
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self.transport.close()

    def _within(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._since = self.loop.time()
        self._timer = self.loop.call_later(seconds, self.cut)

    def cut(self) -> None:
        """Cut the connection; data that the client has not read is lost."""
        self.connections.discard(self)
        self.transport.abort()
