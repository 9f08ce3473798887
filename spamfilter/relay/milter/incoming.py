"""A mail that arrives field by field and piece by piece; its memory is counted as it grows, and bounded."""

from spamfilter.mail.line_ends import has_bare_newlines, normalised, normalised_size
from spamfilter.mail.tagging import is_ours
from spamfilter.relay.limits.budget import Reservation

MOST_FORGED = 100
"""Fields with our names that are removed. The mail server may read the whole header for each one, and no mail that
went through filters has more than a few; one with more is rejected."""
STEP = 65_536
"""Bytes by which more memory is taken, as large as the pieces that come."""


class Incoming:
    """A mail until its end. size: bytes so far; forged: names of fields that are ours, in lower case, in their order.

    limit: the limit that the mail exceeds, '' if none; it is dropped then, and only counted.
    """

    def __init__(self, held: Reservation, most: int, *, leading_space: bool) -> None:
        self.size = len(b"\r\n")
        self.forged: list[bytes] = []
        self.limit = ""
        self._held = held
        self._most = most
        self._taken = 0
        self._colon = b":" if leading_space else b": "
        self._head = bytearray()
        self._body = bytearray()

    def field(self, name: bytes, value: bytes) -> None:
        """Add a header field, its lines separated by LF."""
        if b"\n" in value:
            value = value.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
        if len(self.forged) <= MOST_FORGED and is_ours(name):
            self.forged.append(name.lower().rstrip())
        self._add(self._head, b"%b%b%b\r\n" % (name, self._colon, value))

    def body(self, piece: bytes) -> None:
        self._add(self._body, piece)

    def _add(self, part: bytearray, data: bytes) -> None:
        self.size += len(data)
        if self.limit:
            return
        if self.size > self._most:
            self._drop("message_size")
        elif self.size > self._taken and not self._grow(self.size + STEP):
            self._drop("memory_megabytes")
        else:
            part += data

    def _grow(self, size: int) -> bool:
        # No more than may be kept, so that a single mail of the largest size always fits.
        self._taken = min(size, self._most)
        return self._held.grow(self._taken)

    def _drop(self, limit: str) -> None:
        self.limit = limit
        self._head.clear()
        self._body.clear()
        self._held.release()

    def mail(self) -> bytes:
        """The mail, and nothing is left here. The mail server decides on the line ends of what goes on, so a CR or LF
        that stands alone is repaired in this copy alone."""
        self._head += b"\r\n"
        self._head += self._body
        self._body.clear()
        mail = bytes(self._head)
        self._head.clear()
        if has_bare_newlines(mail):
            if not self._grow(normalised_size(mail)):
                self._drop("memory_megabytes")
                return b""
            mail = normalised(mail)
        return mail
