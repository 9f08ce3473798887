"""A message as it is sent after DATA: RFC 5321 section 4.5.2.

Guarantee: after the next hop has removed the doubled dots, the message is the same byte for byte, also where two blocks
meet.
"""

from collections.abc import Iterator, Sequence

BLOCK = 262_144
"""Bytes that are written before waiting for the socket to drain."""


def stuffed(parts: Sequence[bytes | memoryview]) -> Iterator[bytes]:
    """The message in blocks, with doubled dots and an end of the last line.

    A small message is one block, for one system call. A large one is never copied as a whole.
    """
    if sum(map(len, parts)) <= BLOCK:
        parts = [b"".join(parts)]
    end = b"\r\n"  # the last bytes sent; a message begins like a line
    for part in parts:
        for start in range(0, len(part), BLOCK):
            block = bytes(part[start : start + BLOCK])
            # The pattern may lie across two blocks, or more if they are small.
            near = end + block[:2]
            end = (end + block[-2:])[-2:]
            block = block.replace(b"\r\n.", b"\r\n..")
            if near.startswith(b"\r\n."):
                block = b"." + block
            elif near[1:].startswith(b"\r\n."):
                block = block[:1] + b"." + block[1:]
            yield block
    if end != b"\r\n":
        yield b"\r\n"
