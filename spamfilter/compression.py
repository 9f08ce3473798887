"""Compresses what is kept of mails: by ISA-L where the extra `fast` is installed, which takes a third of the time and
no more room, by zlib otherwise.

Guarantee: zlib reads what either makes. SPAMFILTER_PLAIN takes zlib, as it takes Python for what is compiled.
"""

import os
import zlib
from collections.abc import Callable

Compress = Callable[[bytes, int], bytes]


def compressor() -> Compress:
    """Takes what is to be compressed, and 1: the least effort."""
    if os.environ.get("SPAMFILTER_PLAIN"):
        return zlib.compress
    try:
        from isal import isal_zlib
    except ImportError:
        return zlib.compress
    compress: Compress = isal_zlib.compress
    return compress


_compress = compressor()


def compressed(text: bytes) -> bytes:
    """The same in less room; `zlib.decompress` takes it back."""
    return _compress(text, 1)
