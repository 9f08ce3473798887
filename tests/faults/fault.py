"""What a next hop can be told to do instead of its duty."""

import threading
from dataclasses import dataclass, field
from typing import Literal

How = Literal["close", "reset", "half", "hang"]
"""How a connection ends: with FIN, with RST, with FIN one way only, or not at all: silence."""


@dataclass(frozen=True)
class Say:
    """These bytes instead of the usual reply."""

    reply: bytes


@dataclass(frozen=True)
class Break:
    """So many bytes of the usual reply, then the end. At the stage BODY: so many bytes of the message are read.

    keeps: at the stage DOT, whether the message was taken before that.
    """

    how: How
    after: int = 0
    keeps: bool = False


@dataclass(frozen=True)
class Drip:
    """The usual reply, byte by byte, with so many seconds between them."""

    seconds: float


@dataclass(frozen=True)
class Hold:
    """Wait at this stage until released; then all is as usual."""

    reached: threading.Event = field(default_factory=threading.Event)
    release: threading.Event = field(default_factory=threading.Event)


Fault = Say | Break | Drip | Hold


@dataclass(frozen=True)
class Cut:
    """End each new connection when so many bytes of it were sent, or received."""

    how: How
    sent: int | None = None
    received: int | None = None
