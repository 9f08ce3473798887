"""The event loop of the relay: uvloop's where the extra `fast` is installed, asyncio's otherwise.

Guarantee: the relay does the same on both. SPAMFILTER_PLAIN takes asyncio's, as it takes Python for what is compiled.
"""

import asyncio
import os
from collections.abc import Callable


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """What makes the event loop; None: what asyncio makes by itself."""
    if os.environ.get("SPAMFILTER_PLAIN"):
        return None
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
