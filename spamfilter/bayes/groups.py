"""Groups: a domain or a mailbox that has a voice of its own, OWN, beside everybody's.

The voice OWN has the tokens of `fields` again, each after the name of the group: `example.org subject:invoice`. So the
counts of all groups are in one table, and no group's counts speak about another group's mail.

A message that has tokens of OWN teaches this voice alone, and by what all voices say together: a group that agrees with
everybody teaches next to nothing. Counts of the other voices, totals and calibration stay as they are, so that no group
has an influence on the mail of another.
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Literal

from spamfilter.bayes.token_arrays import Spellings, TokenArrays
from spamfilter.bayes.tokens import Tokens

OWN = "own"
Groups = Literal["", "domain", "mailbox"]
"""What has a voice of its own: each domain, each mailbox, or nothing."""
LONGEST = 254
"""Bytes of the longest name of a group: an address by RFC 5321 section 4.5.3.1.3."""
_END = b" "
_DIGEST_SIZE = 16


def group_of(addresses: Iterable[str], groups: Groups) -> str:
    """The group that all these addresses, in lower case, belong to; '' if there is none, or more than one.

    >>> group_of(["anna@example.org", "bert@example.org"], "domain"), group_of(["anna@example.org"], "mailbox")
    ('example.org', 'anna@example.org')
    >>> group_of(["anna@example.org", "bert@example.org"], "mailbox"), group_of(["anna@example.org"], "")
    ('', '')
    """
    found = {address if groups == "mailbox" else address.rpartition("@")[2] for address in addresses if "@" in address}
    if not groups or len(found) != 1:
        return ""
    name = found.pop()
    # A name with a space or a colon would be taken for a part of its tokens; such addresses are quoted, and rare.
    fits = name.isprintable() and not set(name) & {" ", ":"} and not name.startswith("@") and not name.endswith("@")
    return name if fits and 0 < len(name.encode()) <= LONGEST else ""


def digest_in(digest: bytes, group: str) -> bytes:
    """The digest of a message as a group has it: what one group says of it is no mark on the same mail of another."""
    if not group:
        return digest
    return hashlib.blake2b(digest + group.encode(), digest_size=_DIGEST_SIZE).digest()


def own_tokens(tokens: Tokens, group: str) -> Tokens:
    """These tokens of `fields` as those of the group."""
    prefix = group.encode() + _END
    if isinstance(tokens, TokenArrays):
        return TokenArrays(Spellings.of([prefix + token for token in tokens.spellings]), tokens.times)
    return {prefix + token: times for token, times in tokens.items()}


def group_in(tokens: Mapping[str, Tokens]) -> str:
    """The group of a message's tokens; '' if they are of no group."""
    first = next(iter(tokens.get(OWN, ())), b"")
    return first.partition(_END)[0].decode()


def word_in(token: str, voice: str) -> str:
    """A token as the other voices have it."""
    return token.partition(_END.decode())[2] if voice == OWN else token


def teaches_group(added: Mapping[str, int]) -> bool:
    """Whether a learning that has added this is of a group, and of nobody else."""
    return OWN in added


def without_own(tokens: Mapping[str, Tokens]) -> Mapping[str, Tokens]:
    """The tokens that everybody's voices have."""
    return {name: tokens[name] for name in tokens if name != OWN} if OWN in tokens else tokens
