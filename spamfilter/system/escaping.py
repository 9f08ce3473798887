"""Escapes text that comes by mail or over the network, so that it does no harm where it is shown.

Guarantee: nothing that `harmless` returns moves a terminal's cursor, changes its colours or the order of letters, or
rings its bell; what `printable` returns is one line of ASCII.
"""

import unicodedata

"".encode("unicode_escape")  # loads the codec, which would fail once the process has no file descriptors left


JOINERS = "\N{ZERO WIDTH NON-JOINER}\N{ZERO WIDTH JOINER}"


def harmless(text: str, keep: str = "") -> str:
    """The text with control and other invisible characters escaped, without those in `keep`.

    A space of another width is a space. A joiner stays between characters beyond ASCII, where Persian, Indic scripts
    and emoji need it.

    >>> harmless("gr\u00fcn\\x1b[2J\\u202e"), harmless("a\\tb\\r\\n", keep="\\t\\n")
    ('gr\u00fcn\\\\x1b[2J\\\\u202e', 'a\\tb\\\\r\\n')
    """
    if text.isprintable():
        return text

    def shown(letter: str, before: str, after: str) -> str:
        if letter.isprintable() or letter in keep:
            return letter
        if unicodedata.category(letter) == "Zs":
            return " "
        if letter in JOINERS and all(beside.isprintable() and not beside.isascii() for beside in (before, after)):
            return letter
        return letter.encode("unicode_escape").decode()

    return "".join(map(shown, text, f" {text}", f"{text[1:]} "))


def printable(text: str, most: int = 120) -> str:
    """The text as printable ASCII without line breaks, for headers, replies and logs; at most `most` characters.

    >>> printable("subject:gr\u00fcn\\r\\nBcc: x")
    'subject:gr\\\\xfcn\\\\r\\\\nBcc: x'
    """
    escaped = text[:most].encode("unicode_escape").decode("ascii")
    return escaped[:most]
