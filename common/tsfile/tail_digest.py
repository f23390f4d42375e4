"""What tells one TsFile from another without reading it whole."""

from __future__ import annotations

from typing import Final

import xxhash

from common.tsfile.byte_source import TsFileOrigin, opened

__all__ = ["TAIL_DIGEST_BYTES", "tail_digest"]

TAIL_DIGEST_BYTES: Final = 64 * 1024


def tail_digest(source: TsFileOrigin) -> str:
    """Digest the last 64 KiB (or all, of a smaller file): 32 hex digits of XXH3-128, canonical.

    The end of a TsFile holds its statistics, times and offsets, so two files of different data
    hardly ever share it. It tells them apart; it does not prove that they are the same.

    Raises:
        OSError: the file cannot be read.
        Corrupt: it shrank while it was read.
    """
    with opened(source) as file:
        length = min(file.size, TAIL_DIGEST_BYTES)
        return xxhash.xxh3_128_hexdigest(file.read(file.size - length, length))
