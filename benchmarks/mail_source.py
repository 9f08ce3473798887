"""A client that sends many different mails over connections that it keeps, as a process of its own.

    python benchmarks/mail_source.py PORT CONNECTIONS NAME FOLDER

sends every file of the folder, in the order of their names, each to a recipient of its own, NAME-NUMBER@bulk.test;
whichever connection is free takes the next one. MAIL, RCPT and DATA go together, as mail servers send them. Prints a
line of JSON: when it began and ended by the machine's monotonic clock, and the seconds of processor between. Ends
with 1 and the reply at the first mail that is not accepted.
"""

import asyncio
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

DOMAIN = "bulk.test"


def on_the_wire(mail: bytes) -> bytes:
    """A mail as it follows DATA: lines end in CR LF, none is longer than RFC 5321 allows, dots are doubled."""
    lines = mail.replace(b"\r\n", b"\n").replace(b"\r", b"\n").removesuffix(b"\n").split(b"\n")
    pieces = (line[at : at + 998] for line in lines for at in range(0, max(len(line), 1), 998))
    return b"".join(b"." * piece.startswith(b".") + piece + b"\r\n" for piece in pieces) + b".\r\n"


async def talk(port: int, name: str, mails: Iterator[tuple[int, bytes]]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)

    async def expect(code: bytes) -> None:
        while (line := await reader.readline())[3:4] == b"-":
            pass
        if not line.startswith(code):
            raise ConnectionError(f"not accepted: {line.decode(errors='replace')}")

    await expect(b"220")
    writer.write(b"EHLO client.test\r\n")
    await expect(b"250")
    for number, mail in mails:
        recipient = f"{name}-{number}@{DOMAIN}"
        writer.write(f"MAIL FROM:<sender@example.org>\r\nRCPT TO:<{recipient}>\r\nDATA\r\n".encode())
        for code in (b"250", b"250", b"354"):
            await expect(code)
        writer.write(mail)
        await writer.drain()
        await expect(b"250")
    writer.write(b"QUIT\r\n")
    await expect(b"221")
    writer.close()


async def send(port: int, connections: int, name: str, mails: list[bytes]) -> None:
    left = iter(enumerate(mails))
    await asyncio.gather(*(talk(port, name, left) for _ in range(connections)))


def main() -> None:
    port, connections, name, folder = sys.argv[1:]
    mails = [on_the_wire(file.read_bytes()) for file in sorted(Path(folder).iterdir())]
    began, before = time.monotonic(), time.process_time()
    try:
        asyncio.run(send(int(port), int(connections), name, mails))
    except ConnectionError as error:
        raise SystemExit(str(error)) from None
    print(json.dumps({"began": began, "ended": time.monotonic(), "cpu": time.process_time() - before}))


if __name__ == "__main__":
    main()
