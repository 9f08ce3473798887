"""Authentication-Results (RFC 8601): which sender our own mail server has proved.

Guarantee: only the topmost field of each trusted name counts, and only above the second Received; anything in it that
is malformed or said twice proves nothing.
"""

from collections.abc import Collection, Iterator
from itertools import islice

from spamfilter.mail.folded_addresses import in_ascii, lowered
from spamfilter.relay.sender_lists.raw_header import RawHeader

LONGEST = 8_192
"""Characters of a field: one with results for ten signatures has 2,000."""

Statement = tuple[str, str, dict[str, str]]
"""Method, result, and properties as ptype.property -> value; all in lower case."""


def statements(header: RawHeader, names: Collection[str]) -> Iterator[Statement]:
    """What the fields of our own server say. names: its names in these fields (authserv-id), in lower case."""
    received = [place for place, _ in islice(header.fields(b"received"), 10)]
    seen: set[str] = set()
    for place, value in header.fields(b"authentication-results"):
        # The topmost Received is our server's. Below the next one stands what came with the mail.
        if len(received) > 1 and place > received[1]:
            return
        read = _read(value)
        if read is None:
            return  # whose field it is cannot be said, so that one of the same name below it may be forged
        name, found = read
        if name in names and name not in seen:
            yield from found
        seen.add(name)


def proved_domain(found: Collection[Statement], domain: str) -> str:
    """ "dmarc" or "dkim" if that proves this domain of From, else ''."""
    dmarc = [each for each in found if each[0] == "dmarc"]
    if len(dmarc) == 1 and dmarc[0][1] == "pass" and _domain(dmarc[0][2].get("header.from", "")) == domain:
        return "dmarc"
    for method, result, said in found:
        if method == "dkim" and result == "pass":
            signer = _domain(said.get("header.d") or said.get("header.i", ""))
            # Without a list of public suffixes, the signature of a sub-domain says nothing about the domain above it.
            if signer and (domain == signer or domain.endswith(f".{signer}")):
                return "dkim"
    return ""


def proved_envelope(found: Collection[Statement], domain: str) -> str:
    """ "spf" if that proves this domain of the envelope sender, else ''."""
    spf = [each for each in found if each[0] == "spf" and "smtp.mailfrom" in each[2]]
    if len(spf) == 1 and spf[0][1] == "pass" and _domain(spf[0][2]["smtp.mailfrom"]) == domain:
        return "spf"
    return ""


def _domain(value: str) -> str:
    return in_ascii(value.rpartition("@")[2].removesuffix("."))


def _read(value: str) -> tuple[str, list[Statement]] | None:
    """The name of a field and its statements; None if it is malformed.

    >>> _read('mx.x 1; dmarc=pass (p=none; "x") header.from=a.org; spf=fail reason="; dkim=pass"')
    ('mx.x', [('dmarc', 'pass', {'header.from': 'a.org'}), ('spf', 'fail', {'reason': '; dkim=pass'})])
    """
    parts = _parts(value)
    if not parts or not parts[0] or len(parts[0]) > 2:
        return None
    found = []
    for words in parts[1:]:
        if not words or words == ["none"]:
            continue
        method, equals, result = words[0].partition("=")
        said: dict[str, str] = {}
        for word in words[1:]:
            key, also, text = word.partition("=")
            if not also or key in said:
                return None
            said[key] = text
        if not equals:
            return None
        found.append((method.partition("/")[0], result, said))
    return parts[0][0], found


def _parts(value: str) -> list[list[str]] | None:
    """The words between semicolons, in lower case, without comments and quotes; None if one of these is not closed."""
    if len(value) > LONGEST:
        return None
    parts: list[list[str]] = [[]]
    word: list[str] = []
    depth, quoted, escaped = 0, False, False
    for letter in lowered(value) + " ":
        if escaped:
            escaped = False
            if not depth:
                word.append(letter)
        elif letter == "\\" and (depth or quoted):
            escaped = True
        elif quoted:
            if letter == '"':
                quoted = False
            else:
                word.append(letter)
        elif letter == "(":
            depth += 1
        elif depth:
            depth -= letter == ")"
        elif letter == '"':
            quoted = True
        elif letter in " \t;":
            if word:
                parts[-1].append("".join(word))
                word = []
            if letter == ";":
                parts.append([])
        else:
            word.append(letter)
    return None if depth or quoted or escaped else parts
