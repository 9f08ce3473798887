"""Keeping the connection to the next hop open while a client sends its mail slowly."""

import asyncio
import logging

from spamfilter.errors import NextHopError
from spamfilter.relay.next_hops import Conversation
from spamfilter.system.escaping import printable

log = logging.getLogger(__name__)

KEEP_ALIVE_SECONDS = 60.0
"""Time between two NOOPs to the next hop; Postfix hangs up after 300 s."""


class kept_alive:  # noqa: N801 - a context manager, named like those of contextlib
    """A context in which the next hop gets a NOOP every KEEP_ALIVE_SECONDS, so that it does not hang up.

    peer: for the log. If the next hop has hung up, the delivery will report it.
    """

    def __init__(self, conversation: Conversation, peer: str) -> None:
        self._conversation = conversation
        self._peer = peer
        self._received = False
        self._asking: asyncio.Task[None] | None = None

    async def __aenter__(self) -> None:
        self._wait()

    async def __aexit__(self, *error: object) -> None:
        self._received = True
        self._timer.cancel()
        if self._asking is not None:
            await self._asking

    def _wait(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(KEEP_ALIVE_SECONDS, self._ask)

    def _ask(self) -> None:
        self._asking = asyncio.ensure_future(self._asked())

    async def _asked(self) -> None:
        try:
            await self._conversation.command(b"NOOP")
        except NextHopError as error:
            log.warning("%s: %s", self._peer, printable(str(error), 300))
            self._conversation.abort()
        else:
            if not self._received:
                self._wait()
