"""Hides passwords, passphrases and private keys in a text that quotes a configuration.

No key of the configuration takes a secret. Users write them all the same, as in smtp://user:password@host, and the
error about that must not bring them into a log. In doubt it hides too much rather than too little.
"""

import re

HIDDEN = "***"

_PRIVATE_KEY = re.compile(r"-----BEGIN[^'\"]*")
_USER = re.compile(r"://(?!/).*@")
"""User and password of a URL, up to the last @ of the line, as a password may have an @, too. A path begins with /."""
_NAMED = re.compile(
    r"""(['"](?:file:/*)?/[^'"\s]*['"])|"""
    r"""((?:passw|passphrase|secret|credential|token)[\w.]{0,60}['"]?\s?[=:]\s?)"""
    r"""('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[^\s,;:}]+)""",
    re.IGNORECASE,
)
"""A quoted path, which may end like a name, as '/etc/passwd'; or a name that tells of a secret, and its value: a string
as Python shows it, or a bare word."""


def redacted(text: str) -> str:
    """The text with HIDDEN instead of what looks like a secret."""
    text = _PRIVATE_KEY.sub(HIDDEN, text)
    text = _USER.sub(f"://{HIDDEN}@", text)
    return _NAMED.sub(lambda found: found[1] or f"{found[2]}{HIDDEN}", text)
