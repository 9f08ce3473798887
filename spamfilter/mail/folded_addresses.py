"""Addresses in the one form in which they are compared: ASCII letters in lower case, the domain in ASCII (RFC 5890)."""

import string
import unicodedata

LONGEST_LABEL = 63
"""Characters of a label: of a longer one, which no name has, the conversion would take its square in time."""
_TO_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)


def lowered(text: str) -> str:
    """A text with ASCII letters in lower case. Other letters stay: U+212A is not a k.

    >>> lowered("K\u212a@Example.org") == "k\u212a@example.org"
    True
    """
    return text.translate(_TO_LOWER)


def folded(address: str) -> str:
    """An address, or a domain, in this form.

    >>> folded("Anna@M\u00fcller.Example")
    'anna@xn--mller-kva.example'
    """
    local, at, domain = lowered(address).rpartition("@")
    return f"{local}{at}{in_ascii(domain)}"


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
        plain.encode()  # raises for a surrogate, of which Python has a Punycode
        return "xn--" + plain.encode("punycode").decode("ascii")
    except UnicodeError:
        return label
