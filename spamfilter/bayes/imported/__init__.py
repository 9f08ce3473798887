"""The words that other filters find in a mail, so that their counts can be looked up: a file for each filter.

`tokens` finds the words of a Message, `counted` spells a word of the filter's dump in the same way.
These are not the other programs' parsers: they read what a Message has, at most 4,000 bytes of text. How much of what
each filter finds is found here, and how accurate that is, measures benchmarks/imported.py.
Imports: mail only. Start with bogofilter.
"""

from collections.abc import Callable, Iterator

from spamfilter.bayes.imported import bogofilter, spamassassin, spambayes
from spamfilter.mail.message import Message

IMPORTED_TOKENS: dict[str, Callable[[Message], Iterator[bytes]]] = {
    "bogofilter": bogofilter.tokens,
    "spamassassin": spamassassin.tokens,
    "spambayes": spambayes.tokens,
}
"""Filter -> the words that it finds, valid UTF-8 without control characters."""
