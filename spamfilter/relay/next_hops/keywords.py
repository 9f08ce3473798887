"""The keywords that a next hop announces, for clients that say EHLO before a connection to it is needed.

Guarantee: however many clients say EHLO, that makes one connection at a time, and while the next hop answers one every
FRESH_SECONDS at most.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping

from spamfilter.errors import NextHopError
from spamfilter.relay.next_hops.next_hop import Conversation, Reply

FRESH_SECONDS = 60.0
"""Age from which on keywords are asked for again: a next hop that was changed is known soon."""


def keywords_of(reply: Reply) -> Mapping[str, str]:
    """Keyword in capitals -> its parameters, of a reply to EHLO."""
    lines = reply.raw.decode("ascii", "replace").splitlines()[1:]
    found = (line[4:].strip().partition(" ") for line in lines)
    return {keyword.upper(): parameters for keyword, _, parameters in found}


class Keywords:
    """The keywords that were announced last. connect: makes a connection, and calls `learn`."""

    def __init__(self, connect: Callable[[], Awaitable[Conversation]]) -> None:
        self._connect = connect
        self._known: Mapping[str, str] = {}
        self._at = -math.inf
        self._asking: asyncio.Future[None] | None = None

    def learn(self, keywords: Mapping[str, str]) -> None:
        """Keep the keywords of a new connection."""
        self._known, self._at = keywords, asyncio.get_running_loop().time()

    async def known(self) -> Mapping[str, str]:
        """The keywords, also old ones if the next hop cannot be asked. Raises NextHopError if there are none."""
        if asyncio.get_running_loop().time() - self._at > FRESH_SECONDS:
            if self._asking is None:  # all clients wait for the same connection
                self._asking = asyncio.ensure_future(self._ask())
                self._asking.add_done_callback(self._asked)
            try:
                await asyncio.shield(self._asking)
            except NextHopError:
                if self._at == -math.inf:
                    raise
        return self._known

    async def _ask(self) -> None:
        (await self._connect()).release()

    def _asked(self, asking: "asyncio.Future[None]") -> None:
        self._asking = None
        if not asking.cancelled():
            asking.exception()  # asyncio logs errors that nobody has read
