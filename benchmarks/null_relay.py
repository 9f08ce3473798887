"""A relay of aiosmtpd and aiosmtplib that judges nothing: what the speed of ours is compared with.

    python benchmarks/null_relay.py NEXT_HOP_PORT

Says its own port on the first line of its output. A connection to the next hop is kept for each client.
"""

import asyncio
import sys
from typing import Any

import aiosmtplib
from aiosmtpd.smtp import SMTP, Envelope, Session

LARGEST = 2**26
"""Bytes of a mail, and of its longest line: more than any load has."""


class Hand:
    """The handler of one client."""

    def __init__(self, port: int) -> None:
        self.next = aiosmtplib.SMTP(hostname="127.0.0.1", port=port, use_tls=False, start_tls=False)

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802 - aiosmtpd's
        if not self.next.is_connected:
            await self.next.connect()
        content = envelope.original_content or b""
        _, reply = await self.next.sendmail(envelope.mail_from or "", envelope.rcpt_tos, content)
        return f"250 {reply}"


class Server(SMTP):
    """aiosmtpd's, without its limit of lines: real mail has long ones."""

    line_length_limit = LARGEST

    def connection_lost(self, error: Exception | None) -> None:
        self.event_handler.next.close()
        super().connection_lost(error)


async def serve(next_hop: int) -> None:
    def made() -> Any:
        return Server(Hand(next_hop), data_size_limit=LARGEST, hostname="null.test")

    server = await asyncio.get_running_loop().create_server(made, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
