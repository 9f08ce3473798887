"""A mail on its way in: the next hop is kept waiting, and the memory of all mails is bounded.

Guarantee: what does not fit is not held; the mail that is alone always fits.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from spamfilter.errors import NextHopError
from spamfilter.next_hops import Conversation
from spamfilter.verdict import printable

log = logging.getLogger(__name__)

KEEP_ALIVE_SECONDS = 60.0
"""Between NOOPs to a next hop that waits while a client sends slowly; Postfix hangs up after 300 s."""


@asynccontextmanager
async def kept_alive(conversation: Conversation, peer: str) -> AsyncIterator[None]:
    """NOOP to the next hop now and then meanwhile, so that it does not hang up.

    peer: for the log. If the next hop is gone, the hand-over will find out.
    """
    received = asyncio.Event()
    keeping_alive = asyncio.create_task(_keep_alive(conversation, peer, received))
    try:
        yield
    finally:
        received.set()
        await keeping_alive


async def _keep_alive(conversation: Conversation, peer: str, received: asyncio.Event) -> None:
    while not received.is_set():
        try:
            await asyncio.wait_for(received.wait(), KEEP_ALIVE_SECONDS)
        except TimeoutError:
            try:
                await conversation.command(b"NOOP")
            except NextHopError as error:
                log.warning("%s: %s", peer, printable(str(error), 300))
                conversation.abort()
                return
