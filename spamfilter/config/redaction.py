"""Hides passwords, passphrases and private keys in a text that quotes a configuration.

No key of the configuration takes a secret. Users write them all the same, as in smtp://user:password@host, and the
error about that must not bring them into a log. In doubt it hides too much rather than too little.
"""

import re

HIDDEN = "***"

_PRIVATE_KEY = re.compile(r"-----BEGIN[^'\"]*")
_NAMED = re.compile(
    r"""((?:passw|passphrase|secret|credential|token)[\w.]{0,60}['"]?\s?[=:]\s?)"""
    r"""('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[^\s,;:}]+)""",
    re.IGNORECASE,
)
"""A name that tells of a secret, and its value: a string as Python shows it, or a bare word."""


def redacted(text: str) -> str:
    """The text with HIDDEN instead of what looks like a secret."""
    text = _PRIVATE_KEY.sub(HIDDEN, text)
    text = "\n".join(map(_without_user, text.split("\n")))
    return _NAMED.sub(rf"\g<1>{HIDDEN}", text)


def _without_user(line: str) -> str:
    """A line without user and password of a URL, up to the last @, as a password may have an @, too."""
    before, found, rest = line.partition("://")
    if not found or "@" not in rest:
        return line
    return f"{before}://{HIDDEN}@{rest.rpartition('@')[2]}"
