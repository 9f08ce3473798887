"""The header of a mail as it was written, for decisions about its sender: nothing is decoded or repaired.

Guarantee: time linear in the bytes that are read, at most HEADER_READ. What is ambiguous is not a sender that can be
proved: two From fields, a second address, or a form that mail programs may read differently.
"""

import re
from collections.abc import Iterator
from itertools import islice

from spamfilter.mail.folded_addresses import folded

HEADER_READ = 65_536
"""Bytes of a header that are read: real ones have a tenth of it. A sender in a longer one cannot be proved."""
MOST_FIELDS = 50
"""Fields of one name that are read; forwarders and lists add a handful of Authentication-Results."""
LONGEST_ADDRESS = 320
"""Characters of an address: 64 and 255 of RFC 5321 section 4.5.3.1, and the @."""

# Up to a CR LF that no blank follows. Its parts exclude each other, so the time is linear.
_VALUE = rb"[ \t]*:([^\r]*(?:\r(?:\n[ \t]|(?!\n))[^\r]*)*)"
_COMMENT = re.compile(r"\([^()]*\)")
_BETWEEN = re.compile("[,;:]")
_SPECIAL = frozenset('<>@,;:"\\')


class RawHeader:
    """whole: whether all of the header was read."""

    def __init__(self, mail: bytes) -> None:
        end = 0 if mail.startswith(b"\r\n") else mail.find(b"\r\n\r\n", 0, HEADER_READ)
        self.whole = end >= 0 or len(mail) <= HEADER_READ
        self._raw = b"\r\n" + mail[: end if end >= 0 else HEADER_READ]

    def fields(self, name: bytes) -> Iterator[tuple[int, str]]:
        """Place and unfolded value of the first MOST_FIELDS fields of a name."""
        pattern = rb"\r\n" + re.escape(name) + _VALUE
        for found in islice(re.finditer(pattern, self._raw, re.IGNORECASE), MOST_FIELDS):
            yield found.start(), found[1].replace(b"\r\n", b"").decode("utf-8", "replace").strip()


def addresses(value: str) -> list[str]:
    """All addresses of a From field, in lower case, generously read: those in angle brackets, else all.

    It is read with comments and without, as programs differ in where one begins.

    >>> addresses('"Boss" <Boss@Example.org>, b@example.net'), addresses("a@x (A), b@x")
    (['boss@example.org'], ['a@x', 'b@x'])
    >>> addresses("list: b @ example.net (x <a@x>);")
    ['a@x', 'b@example.net']
    """
    found: dict[str, None] = {}
    for text in (value, _COMMENT.sub(" ", value)):
        parts = [part.partition(">")[0] for part in text.split("<")[1:]] or _BETWEEN.split(text)
        for part in parts:
            words = "@".join(map(str.strip, part.split("@"))).split()
            found |= dict.fromkeys(address for word in words if (address := spelled(word.partition("(")[0])))
    return [*found]


def spelled(text: str) -> str:
    """An address in the spelling of the rules, '' if the text is none.

    >>> spelled(" Boss@Example.ORG. ")
    'boss@example.org'
    """
    text = text.strip().removesuffix(".")
    if len(text) > LONGEST_ADDRESS or "@" not in text[1:]:
        return ""
    return folded(text)


def only_address(value: str) -> str:
    """The address of a From field that every program reads in the same way, '' for any other.

    >>> only_address('"Doe, J." <j@example.org>'), only_address('"a@b" x <j@example.org>')
    ('j@example.org', '')
    """
    name, address = "", value
    if value.endswith(">"):
        name, _, address = value[:-1].rpartition("<")
    name = name.strip()
    if len(name) > 1 and name[0] == name[-1] == '"':
        plain = '"' not in name[1:-1] and "\\" not in name
    else:
        plain = _SPECIAL.isdisjoint(name)
    local, _, domain = address.rpartition("@")
    if not plain or not local or not domain or not _SPECIAL.isdisjoint(local + domain) or set(address) & set(" \t()"):
        return ""
    return spelled(address)
