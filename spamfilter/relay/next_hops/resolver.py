"""Names of hosts to their addresses, beside the event loop and beside the threads that others need.

A look-up cannot be broken off: while name servers are silent, getaddrinfo(3) holds its thread for ten seconds and more,
and asyncio has few threads. Guarantee: for one name one look-up runs at a time, in a thread of its own, and all who ask
meanwhile share its answer; nobody waits for it longer than they choose to, nor does the end of the process.
"""

import asyncio
import ipaddress
import socket
import threading
from contextlib import suppress


class Resolver:
    """The look-ups that are running, by name."""

    def __init__(self) -> None:
        self._asked: dict[str, asyncio.Future[list[str]]] = {}

    async def addresses(self, host: str) -> list[str]:
        """The addresses of a host, the best first; an address is its own. Raises OSError."""
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
        except Exception as error:  # a name that is none, no memory: untold, it would never be asked again
            found = OSError(f"{host}: {error or type(error).__name__}")
        with suppress(RuntimeError):  # the loop has ended meanwhile
            answer.get_loop().call_soon_threadsafe(self._tell, host, answer, found)

    def _tell(self, host: str, answer: "asyncio.Future[list[str]]", found: list[str] | OSError) -> None:
        del self._asked[host]
        if isinstance(found, OSError):
            answer.set_exception(found)
        else:
            answer.set_result(found)


def _read(answer: "asyncio.Future[list[str]]") -> None:
    """Perhaps nobody waits for it any more; asyncio would complain of an error that nobody has read."""
    if not answer.cancelled():
        answer.exception()
