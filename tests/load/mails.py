"""Made mails that look to the filter like real ones: header, words of a vocabulary that ends, some links.

The same numbers make the same mails. The vocabulary ends, as that of real mail nearly does, so that counts in memory
grow to a size that is known.
"""

import random
from functools import cache

from spamfilter.bayes.labels import Label

VOCABULARY = 20_000
MEAN, LARGEST = 4_000, 60_000
"""Bytes of a body: the mean of real mail without its attachments, with a long tail."""
FIRST_WORDS = {"ham": 2_000, "spam": 2_000}
"""Words that only this class has; the others are everybody's."""


@cache
def vocabulary() -> list[str]:
    chance = random.Random("vocabulary")
    letters = "aaabcdeeeefghiiiklmnnooopqrrsssttttuuvwxyz"
    return ["".join(chance.choices(letters, k=chance.randint(3, 11))) for _ in range(VOCABULARY)]


def body(chance: random.Random, label: Label, size: int) -> str:
    """Lines of words, common ones more often, a tenth of them of this class alone."""
    words = vocabulary()
    own = 0 if label == "ham" else FIRST_WORDS["ham"]
    shared = sum(FIRST_WORDS.values())
    lines, length = [], 0
    while length < size:
        line = " ".join(
            words[own + int(FIRST_WORDS[label] * chance.random() ** 2)]
            if chance.random() < 0.1
            else words[shared + int((VOCABULARY - shared) * chance.random() ** 4)]
            for _ in range(11)
        )
        lines.append(line)
        length += len(line) + 2
    lines.append(f"http://www.{words[own + chance.randrange(100)]}.example/{chance.randrange(1000)}")
    return "\r\n".join(lines)


def made(name: str, label: Label, size: int = 0) -> bytes:
    """A mail of this name, with line ends of the wire. size: bytes of its body, by chance where 0."""
    chance = random.Random(f"{label} {name}")
    size = size or min(LARGEST, int(chance.lognormvariate(0, 0.9) * MEAN * 2 / 3))
    user, subject = chance.randrange(500), " ".join(chance.choices(vocabulary()[:4000], k=5))
    return (
        f"Received: from mail{user % 50}.example.org (mail{user % 50}.example.org [192.0.2.{user % 50}])\r\n"
        f"\tby mx.example.test (Postfix) with ESMTP id {chance.getrandbits(44):X}\r\n"
        f"\tfor <user@example.test>; Sat, 21 Nov 2026 12:00:00 +0000 (UTC)\r\n"
        f"Message-ID: <{name}.{label}@example.org>\r\nDate: Sat, 21 Nov 2026 12:00:00 +0000\r\n"
        f"From: User {user} <user{user}@example.org>\r\nTo: user@example.test\r\nSubject: {subject}\r\n"
        f"MIME-Version: 1.0\r\nContent-Type: text/plain; charset=us-ascii\r\n\r\n{body(chance, label, size)}\r\n"
    ).encode("ascii")
