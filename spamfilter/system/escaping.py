"""What comes by mail or over the network, written so that it does no harm where it is shown.

Guarantee: nothing that `harmless` returns moves the cursor, changes colours or the order of letters, or rings; what
`printable` returns is one line of ASCII.
"""

"".encode("unicode_escape")  # loads the codec, while there still are descriptors to load it by


def harmless(text: str, keep: str = "") -> str:
    """Text without control and other invisible characters but those in `keep`; they are written out.

    >>> harmless("gr\u00fcn\\x1b[2J\\u202e"), harmless("a\\tb\\r\\n", keep="\\t\\n")
    ('gr\u00fcn\\\\x1b[2J\\\\u202e', 'a\\tb\\\\r\\n')
    """
    if text.isprintable():  # most are: the names of many files are written in a tenth of the time
        return text
    return "".join(
        letter if letter.isprintable() or letter in keep else letter.encode("unicode_escape").decode()
        for letter in text
    )


def printable(text: str, most: int = 120) -> str:
    """Text as printable ASCII without line breaks, for headers, replies and logs; at most `most` characters.

    >>> printable("subject:gr\u00fcn\\r\\nBcc: x")
    'subject:gr\\\\xfcn\\\\r\\\\nBcc: x'
    """
    escaped = text[:most].encode("unicode_escape").decode("ascii")
    return escaped[:most]
