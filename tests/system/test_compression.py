"""zlib reads what either library compresses, and each library is chosen when it should be."""

import sys
import zlib
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spamfilter.system.compression import compressed, compressor
from tests.support.made import some
from tests.support.real import missing

TEXTS = st.binary(max_size=5_000) | st.tuples(st.binary(min_size=1, max_size=9), st.integers(0, 9_000)).map(
    lambda repeated: repeated[0] * repeated[1]
)


def isal() -> ModuleType:
    try:
        from isal import isal_zlib
    except ImportError:
        missing("isal is not installed: pip install '.[fast]', on a machine that it has wheels for")
    return isal_zlib


@pytest.fixture(params=["isal", "zlib"])
def chosen(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The function chosen at the start, with and without the library."""
    monkeypatch.delenv("SPAMFILTER_PLAIN", raising=False)
    if request.param == "isal":
        isal()
    else:
        monkeypatch.setitem(sys.modules, "isal", None)
    monkeypatch.setattr("spamfilter.system.compression._compress", compressor())


@pytest.mark.usefixtures("chosen")
@some(300)
@given(TEXTS)
def test_zlib_reads_what_was_compressed(text: bytes) -> None:
    assert zlib.decompress(compressed(text)) == text


@pytest.mark.usefixtures("chosen")
def test_it_takes_less_room() -> None:
    lines = b"\n".join(b"word%d" % number for number in range(2_000))
    assert len(compressed(lines)) < len(lines) / 2


def test_isal_is_taken_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPAMFILTER_PLAIN", raising=False)
    assert compressor() is isal().compress
    monkeypatch.setenv("SPAMFILTER_PLAIN", "1")
    assert compressor() is zlib.compress
    monkeypatch.delenv("SPAMFILTER_PLAIN")
    monkeypatch.setitem(sys.modules, "isal", None)
    assert compressor() is zlib.compress
