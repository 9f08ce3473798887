"""A message as it is sent after DATA: RFC 5321 section 4.5.2.

Guarantee: what the next hop takes the dots out of again is the message, byte for byte, whatever lies where two blocks
meet.
"""

from collections.abc import Iterator, Sequence

BLOCK = 262_144
"""Bytes written before waiting for the socket to drain."""


def stuffed(parts: Sequence[bytes | memoryview]) -> Iterator[bytes]:
    """The message in blocks: dots doubled, the last line ended.

    What is small is one block, for one system call. Of what is large there is never a copy of the whole.
    """
    if sum(map(len, parts)) <= BLOCK:
        parts = [b"".join(parts)]
    end = b"\r\n"  # of what was sent: a message begins as a line does
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
