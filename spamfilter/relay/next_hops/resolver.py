"""Look-ups of a host name in separate threads.

A look-up cannot be cancelled: while name servers do not answer, getaddrinfo(3) blocks its thread for ten seconds or
more, and asyncio has few threads. Guarantee: at most one look-up runs at a time, in its own thread, and its answer is
shared by all callers. A caller may stop waiting at any time, and the process can exit meanwhile.
"""

import asyncio
import ipaddress
import socket
from concurrent.futures import Future
from contextlib import suppress
from threading import Thread

from spamfilter.errors import NoThread
from spamfilter.system.threads import start


class Resolver:
    """The look-ups of one host."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._answer: Future[list[str]] | None = None

    async def addresses(self) -> list[str]:
        """The addresses of the host, the best first. Raises OSError."""
        with suppress(ValueError):
            return [str(ipaddress.ip_address(self._host))]
        if self._answer is None or self._answer.done():
            answer: Future[list[str]] = Future()
            answer.set_running_or_notify_cancel()  # so that a caller that stops waiting does not cancel it
            try:
                start(Thread(target=self._look_up, args=[answer], name="resolver", daemon=True))
            except NoThread as error:
                raise OSError(f"{self._host}: {error}") from error
            self._answer = answer
        return await asyncio.wrap_future(self._answer)

    def _look_up(self, answer: "Future[list[str]]") -> None:
        try:
            infos = socket.getaddrinfo(self._host, None, type=socket.SOCK_STREAM)
            answer.set_result(list(dict.fromkeys(str(info[4][0]) for info in infos)))
        except OSError as error:
            answer.set_exception(error)
        except Exception as error:  # an invalid name, no memory; every error must reach the callers
            answer.set_exception(OSError(f"{self._host}: {str(error) or type(error).__name__}"))
