"""Decoders for the values and times in the pages of a TsFile.

    values = decode_values(Encoding.GORILLA, DataType.DOUBLE, data, 0, len(data), count)

One module a family of encodings, each with its ``DECODERS``: (encoding, type) -> decoder. They
cover every pair that the Java writers from 0.12 on and the C++ writer have an encoder for:

    encoding    BOOLEAN  INT32 DATE  INT64 TIMESTAMP  FLOAT DOUBLE  TEXT STRING BLOB
    PLAIN       x        x           x                x             x
    RLE         x        x           x                x (decimal)
    TS_2DIFF             x           x                x (decimal)
    GORILLA              x           x                x
    GORILLA_V1                                        x
    REGULAR              x           x
    ZIGZAG               x           x
    DICTIONARY                                                      TEXT STRING (BLOB)
    CHIMP                x           x                x
    SPRINTZ              x           x                x
    RLBE                 x           x                x
    CAMEL                                             DOUBLE
    FREQ                 INT32       INT64            x

DIFF and BITMAP are numbers in the format for which no writer has an encoder that it can be told
to use: ``Unsupported``.

(decimal): the writer rounds to some decimal places (2 unless told otherwise), so what stands in
the page is not what it was given, and the statistics, which are made of what it was given, are
not met by the values (``is_rounded``).
"""

from __future__ import annotations

from types import ModuleType
from typing import Final

import numpy as np
import numpy.typing as npt

from common.tsfile import DataType, Encoding
from receiver.points.encodings import (
    camel,
    chimp,
    dictionary,
    freq,
    gorilla,
    gorilla_v1,
    plain,
    regular,
    rlbe,
    rle,
    sprintz,
    ts2diff,
    zigzag,
)
from receiver.points.encodings.codes import (
    FEWER,
    MORE,
    TOO_LARGE,
    TRAILING,
    BadPage,
    Unsupported,
    describe,
)
from receiver.points.encodings.decoder import Binaries, Bytes, Decoder, Values
from receiver.points.jit import readonly

__all__ = [
    "FLOATS",
    "BadPage",
    "Binaries",
    "Bytes",
    "Unsupported",
    "Values",
    "decode_times",
    "decode_values",
    "has_old_form",
    "is_rounded",
]

_FAMILIES: Final[tuple[ModuleType, ...]] = (
    plain,
    rle,
    ts2diff,
    gorilla,
    gorilla_v1,
    zigzag,
    dictionary,
    regular,
    chimp,
    sprintz,
    rlbe,
    camel,
    freq,
)
_DECODERS: Final[dict[tuple[int, int], Decoder]] = {
    pair: decoder for family in _FAMILIES for pair, decoder in family.DECODERS.items()
}
_OLD_DECODERS: Final[dict[tuple[int, int], Decoder]] = dict(rlbe.OLD_DECODERS)
_ROUNDING: Final = frozenset({Encoding.RLE, Encoding.TS_2DIFF})
FLOATS: Final = frozenset({DataType.FLOAT, DataType.DOUBLE})


def is_rounded(encoding: int, data_type: int, *, old_form: bool = False) -> bool:
    """Whether a writer may have lost something before or as it encoded.

    Then statistics, which are made of what it was given, need not match. ``old_form``: as of
    ``decode_values``.
    """
    if encoding in (Encoding.SPRINTZ, Encoding.CAMEL, Encoding.FREQ):
        return True
    if encoding == Encoding.RLBE:
        return old_form and data_type in FLOATS
    return encoding in _ROUNDING and data_type in FLOATS


def has_old_form(encoding: int, data_type: int) -> bool:
    """Whether older writers (before 2.1) wrote something else under this code.

    They alone made files of version 3. In version 4 both forms occur; the new one, which loses
    nothing, is it where what it decodes to meets the statistics, the old one otherwise.
    """
    return (encoding, data_type) in _OLD_DECODERS


def decode_values(
    encoding: int,
    data_type: int,
    data: Bytes,
    pos: int,
    end: int,
    count: int,
    *,
    old_form: bool = False,
) -> Values:
    """Decode the values of one page.

    Args:
        encoding: code in the chunk header.
        data_type: code in the chunk header.
        data: uint8, contiguous.
        pos: where the encoded values begin.
        end: where they end; nothing behind is read.
        count: how many there are, nulls not counted. Memory for so many is taken at once: it is
            for the caller to bound.
        old_form: as writers before 2.1 encoded, where that differs (``has_old_form``).

    Returns:
        ``count`` values: uint8 (0 or 1) for BOOLEAN, int32 for INT32 and DATE, int64 for INT64
        and TIMESTAMP, float32, float64, or ``Binaries`` for TEXT, STRING, BLOB.

    Raises:
        BadPage: they cannot be decoded, or are not ``count``, or bytes are left over.
        Unsupported: no writer has this encoding for this type, or the values are too large.
        ValueError: ``pos``, ``end`` or ``count`` make no sense.
    """
    pair = (encoding, data_type)
    decoder = (old_form and _OLD_DECODERS.get(pair)) or _DECODERS.get(pair)
    if decoder is None:
        raise Unsupported(encoding, data_type)
    values = _run(decoder, encoding, data_type, data, pos, end, count)
    if len(values) < count:
        raise BadPage(f"{describe(FEWER)}: {len(values)}, not {count}", end)
    return values


def decode_times(
    encoding: int, data: Bytes, pos: int, end: int, most: int
) -> npt.NDArray[np.int64]:
    """Decode the times of one page, as many as there are.

    The encoding of an aligned device's times stands in its time chunk. That of a plain device's
    times stands nowhere: it is TS_2DIFF, unless a database was configured otherwise.

    Args:
        encoding: of the times: TS_2DIFF, PLAIN, RLE, REGULAR, or any other of INT64.
        data: uint8, contiguous.
        pos: where they begin.
        end: where they end; nothing behind is read.
        most: as many as there may be; exactly as many as there are if the encoding has an end
            that is a value too (GORILLA, CHIMP). Memory for so many is taken at once.

    Returns:
        int64, at most ``most``.

    Raises:
        BadPage: they cannot be decoded, or there are more, or bytes are left over.
        Unsupported: no writer has this encoding for times.
        ValueError: ``pos``, ``end`` or ``most`` make no sense.
    """
    decoder = _DECODERS.get((encoding, DataType.INT64))
    if decoder is None:
        raise Unsupported(encoding, DataType.VECTOR)
    values = _run(decoder, encoding, DataType.VECTOR, data, pos, end, most)
    assert isinstance(values, np.ndarray)
    return values


def _run(
    decoder: Decoder, encoding: int, data_type: int, data: Bytes, pos: int, end: int, most: int
) -> Values:
    """Decode up to ``most`` values, and see that nothing is wrong and nothing left over."""
    if not (0 <= pos <= end <= len(data) and most >= 0):
        raise ValueError(f"no bytes {pos} to {end} of {len(data)}, or no {most} values")
    values, _, at, error = decoder(readonly(data), pos, end, most)
    if error == TOO_LARGE:
        raise Unsupported(encoding, data_type, describe(error))
    if error:
        raise BadPage(describe(error), min(int(at), end))
    if at != end:
        raise BadPage(describe(MORE if len(values) == most else TRAILING), min(int(at), end))
    return values
