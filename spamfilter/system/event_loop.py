"""The event loop of the relay: uvloop's if the extra `fast` is installed, asyncio's otherwise.

Guarantee: the relay does the same on both. SPAMFILTER_PLAIN chooses asyncio's, as it chooses Python instead of compiled
code.
"""

import asyncio
import os
from collections.abc import Callable


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """A function that makes uvloop's event loop; None for asyncio's."""
    if os.environ.get("SPAMFILTER_PLAIN"):
        return None
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
