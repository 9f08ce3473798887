"""Look-ups of host names in separate threads.

A look-up cannot be cancelled: while name servers do not answer, getaddrinfo(3) blocks its thread for ten seconds or
more, and asyncio has few threads. Guarantee: for each name at most one look-up runs at a time, in its own thread, and
its answer is shared by all callers. A caller may stop waiting at any time, and the process can exit meanwhile.
"""

import asyncio
import ipaddress
import socket
import threading
from contextlib import suppress


class Resolver:
    """The running look-ups by name."""

    def __init__(self) -> None:
        self._asked: dict[str, asyncio.Future[list[str]]] = {}

    async def addresses(self, host: str) -> list[str]:
        """The addresses of a host, the best first. Raises OSError."""
        with suppress(ValueError):
            return [str(ipaddress.ip_address(host))]
        answer = self._asked.get(host)
        if answer is None:
            answer = asyncio.get_running_loop().create_future()
            answer.add_done_callback(_read)
            look_up = threading.Thread(target=self._look_up, args=(host, answer), name="resolver", daemon=True)
            look_up.start()
            self._asked[host] = answer
        return await asyncio.shield(answer)

    def _look_up(self, host: str, answer: "asyncio.Future[list[str]]") -> None:
        found: list[str] | OSError
        try:
            infos = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
            found = list(dict.fromkeys(str(info[4][0]) for info in infos))
        except OSError as error:
            found = error
        except Exception as error:  # an invalid name, no memory; every error must reach the callers
            found = OSError(f"{host}: {str(error) or type(error).__name__}")
        with suppress(RuntimeError):  # the event loop has stopped meanwhile
            answer.get_loop().call_soon_threadsafe(self._tell, host, answer, found)

    def _tell(self, host: str, answer: "asyncio.Future[list[str]]", found: list[str] | OSError) -> None:
        del self._asked[host]
        if isinstance(found, OSError):
            answer.set_exception(found)
        else:
            answer.set_result(found)


def _read(answer: "asyncio.Future[list[str]]") -> None:
    """Read the error of an answer, because asyncio logs errors that nobody has read."""
    if not answer.cancelled():
        answer.exception()
