"""What may be shown of a text that quotes a configuration: no password, passphrase or private key.

No key of the configuration takes one. They get into it all the same, as in smtp://user:password@host, and the sentence
that refuses them must not carry them into a log. What is hidden is rather too much than too little.
"""

import re

HIDDEN = "***"

_PRIVATE_KEY = re.compile(r"-----BEGIN[^'\"]*")
_NAMED = re.compile(
    r"""((?:passw|passphrase|secret|credential|token)[\w.]{0,60}['"]?\s?[=:]\s?)"""
    r"""('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[^\s,;:}]+)""",
    re.IGNORECASE,
)
"""A name that promises a secret, and its value: as Python shows it, or bare."""


def redacted(text: str) -> str:
    """The text without what looks like a secret."""
    text = _PRIVATE_KEY.sub(HIDDEN, text)
    text = "\n".join(map(_without_user, text.split("\n")))
    return _NAMED.sub(rf"\g<1>{HIDDEN}", text)


def _without_user(line: str) -> str:
    """A line without what stands between :// and the last @, as passwords may have an @, too."""
    before, found, rest = line.partition("://")
    if not found or "@" not in rest:
        return line
    return f"{before}://{HIDDEN}@{rest.rpartition('@')[2]}"
