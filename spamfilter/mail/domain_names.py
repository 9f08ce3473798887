"""Domain names in one form: letters beyond ASCII as the name server knows them (RFC 5890), A-label for U-label."""

import unicodedata

LONGEST_LABEL = 63
"""Characters of a label: of a longer one, which no name has, the conversion would take its square in time."""


def in_ascii(domain: str) -> str:
    """The domain with each label that is not ASCII in Punycode (RFC 3492); what is no such label stays as it is.

    >>> in_ascii("M\\u00fcller.example"), in_ascii("xn--mller-kva.example")
    ('xn--mller-kva.example', 'xn--mller-kva.example')
    """
    return domain if domain.isascii() else ".".join(map(_label, domain.split(".")))


def _label(label: str) -> str:
    plain = unicodedata.normalize("NFC", label.lower())
    if plain.isascii() or len(label) > LONGEST_LABEL:  # U+212A is not a k
        return label
    try:
        return "xn--" + plain.encode("punycode").decode("ascii")
    except UnicodeError:  # a surrogate
        return label
