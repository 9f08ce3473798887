"""The changes to a header that `mail.tagging.mark` has made, as the mail server is told of them.

Guarantee: the mail server that makes these changes has the header that a next hop would get.
"""

from collections import Counter
from collections.abc import Sequence

from spamfilter.mail.tagging import fields_added, subject_of
from spamfilter.relay.milter.packets import change, insert


def changes(forged: Sequence[bytes], before: bytes, after: bytes, *, leading_space: bool) -> list[bytes]:
    """The packets by which a header becomes another one.

    forged: names of the fields that are removed, in their order. leading_space: whether the mail server wants values
    with the blank after the colon.
    """
    blank = b" " if leading_space else b""
    # From the last to the first, because a mail server may count anew after each.
    numbers = Counter(forged)
    found = []
    for name in reversed(forged):
        found.append(change(name, numbers[name], b""))
        numbers[name] -= 1
    was, subject = subject_of(before), subject_of(after)
    if subject is not None and subject != was:
        value = blank + subject.replace(b"\r\n", b"\n")
        found.append(insert(b"Subject", value) if was is None else change(b"Subject", 1, value))
    found += [insert(name, blank + value) for name, value in reversed(fields_added(after))]
    return found
