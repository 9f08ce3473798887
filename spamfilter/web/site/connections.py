"""How long a connection may take, and how many there are at a time; the server itself bounds neither.

Guarantee: a connection that has sent no whole header of a request for HEADER_SECONDS, or whose answer has not gone out
within ANSWER_SECONDS, is cut. When all places are taken, a new connection gets that of the one that has waited longest
for a header: whoever asks at once is served, however many others dawdle.
"""

import asyncio
from typing import Any, cast

from uvicorn.protocols.http.h11_impl import H11Protocol

MOST_CONNECTIONS = 200
"""Connections at a time: a browser opens six."""
HEADER_SECONDS = 10.0
"""From the connection, or from the last answer, to the end of a request's header: it is one packet, as a rule."""
ANSWER_SECONDS = 300.0
"""From there until the answer has been handed to the system: the report of a year behind others, on a slow line."""


class Bounded(H11Protocol):
    """A connection of the server with these bounds."""

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
        """Whether its next request is still to come to its end of header."""
        return self.cycle is None or self.cycle.response_complete

    def handle_events(self) -> None:
        super().handle_events()
        if not self.waits and self.cycle is not self._answering:
            self._answering = self.cycle
            self._within(ANSWER_SECONDS)

    def on_response_complete(self) -> None:
        self._within(HEADER_SECONDS)
        super().on_response_complete()

    def _within(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._since = self.loop.time()
        self._timer = self.loop.call_later(seconds, self.cut)

    def cut(self) -> None:
        """End it at once; what was not read by then is lost."""
        self.connections.discard(self)
        self.transport.abort()
