"""Escapes text that comes by mail or over the network, so that it does no harm where it is shown.

Guarantee: nothing that `harmless` returns moves a terminal's cursor, changes its colours or the order of letters, or
rings its bell; what `printable` returns is one line of ASCII.
"""

"".encode("unicode_escape")  # loads the codec, which would fail once the process has no file descriptors left


def harmless(text: str, keep: str = "") -> str:
    """The text with control and other invisible characters escaped, without those in `keep`.

    >>> harmless("gr\u00fcn\\x1b[2J\\u202e"), harmless("a\\tb\\r\\n", keep="\\t\\n")
    ('gr\u00fcn\\\\x1b[2J\\\\u202e', 'a\\tb\\\\r\\n')
    """
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() or letter in keep else letter.encode("unicode_escape").decode()
        for letter in text
    )


def printable(text: str, most: int = 120) -> str:
    """The text as printable ASCII without line breaks, for headers, replies and logs; at most `most` characters.

    >>> printable("subject:gr\u00fcn\\r\\nBcc: x")
    'subject:gr\\\\xfcn\\\\r\\\\nBcc: x'
    """
    escaped = text[:most].encode("unicode_escape").decode("ascii")
    return escaped[:most]
