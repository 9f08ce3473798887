"""Every false end of mail, against a real Postfix behind us: it gets the messages that were judged, and no other.

These are the ends that have fooled servers; `benchmarks/smuggling.py` tries the whole product.
"""

from collections.abc import Iterator
from itertools import product

import pytest

from spamfilter.relay.next_hops.dot_stuffing import BLOCK
from tests.hostile.chain_smtp import SETTINGS, Chain, chain
from tests.hostile.smuggling_smtp import DOTS, ENDS, PLACES, case, check
from tests.support.doors import RELAYING

LINE_ENDS = ("CR LF", "CR", "LF", "CR CR LF", "NUL CR LF", "nothing")
"""Those of which every pair is tried here."""
FAMOUS = {
    "LF . LF": b"\n.\n",
    "LF . CR LF": b"\n.\r\n",
    "CR LF . LF": b"\r\n.\n",
    "CR . CR": b"\r.\r",
    "CR LF . CR": b"\r\n.\r",
    "CR . CR LF": b"\r.\r\n",
    "LF . CR CR LF": b"\n.\r\r\n",
    "CR LF NUL . CR LF": b"\r\n\0.\r\n",
    "CR LF . NUL CR LF": b"\r\n.\0\r\n",
    "the true end": b"\r\n.\r\n",
    "the true end twice": b"\r\n.\r\n.\r\n",
    "dotted lines": b"\r\n..\r\n...\r\n..x\r\n",
    "dots in a row": b"\r\n..\r\n...\r\n.\n.\r\n",
}
"""CVE-2023-51764, -51765 and -51766 are among them."""


@pytest.fixture(scope="module")
def servers() -> Iterator[Chain]:
    with chain() as running:
        yield running


@pytest.mark.parametrize("first", LINE_ENDS)
@pytest.mark.parametrize("setting", SETTINGS)
def test_a_false_end_hides_no_mail(servers: Chain, setting: str, first: str) -> None:
    """All dots, and all line ends behind them."""
    cases = [case(f"{dot}, {end}", ENDS[first] + DOTS[dot] + ENDS[end]) for dot, end in product(DOTS, LINE_ENDS)]
    check(servers, setting, cases)


@pytest.mark.parametrize("door", RELAYING)
@pytest.mark.parametrize("setting", SETTINGS)
def test_a_false_end_elsewhere_hides_no_mail(servers: Chain, setting: str, door: str) -> None:
    cases = [case(f"{name} {place}", FAMOUS[name], place) for name, place in product(FAMOUS, PLACES)]
    check(servers, setting, cases, door)


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_line_that_begins_after_data_is_the_first_of_the_mail(servers: Chain, setting: str) -> None:
    """A dot first in DATA ends an empty mail, and no other sequence there does."""
    starts = {f"{dot}, {end}": DOTS[dot] + ENDS[end] for dot, end in product(DOTS, LINE_ENDS)}
    check(servers, setting, [case(name, start, "first in DATA") for name, start in starts.items()])


@pytest.mark.parametrize("door", RELAYING)
@pytest.mark.parametrize("setting", SETTINGS)
def test_the_borders_of_packets_mean_nothing(servers: Chain, setting: str, door: str) -> None:
    """Each end divided at every byte, from before it to behind it, and in packets of one byte."""
    cases = []
    for name, end in FAMOUS.items():
        cuts = range(-1, len(end) + 2)
        cases += [case(f"{name} cut at {cut}", end, cuts=[cut]) for cut in cuts]
        cases.append(case(f"{name} byte by byte", end, cuts=cuts))
    check(servers, setting, cases, door)


@pytest.mark.parametrize("setting", SETTINGS)
def test_the_borders_of_blocks_mean_nothing(servers: Chain, setting: str) -> None:
    """A large mail is handed on in blocks; a dot or a line end at a border is what it is elsewhere."""
    cases = []
    for name in ("dotted lines", "the true end", "LF . CR LF"):
        for shift in range(-6, 4):
            size = BLOCK + shift - len(b"\r\nhello")
            filler = (b"x" * 62 + b"\r\n") * (size // 64) + b"y" * (size % 64)
            cases.append(case(f"{name} at {shift}", filler + FAMOUS[name]))
    check(servers, setting, cases)
