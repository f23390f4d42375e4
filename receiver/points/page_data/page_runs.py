"""Pages of one series that stand together, decoded by one call for all of them.

What is done once a page is a fourth of the work of reading pages of ten thousand points, and nearly
all of it where they have a hundred. So the pages of a group, or the only pages of many chunks, are
laid one behind the other, and a kernel goes over all of them. It takes what is as it should be to
the last byte; of anything else it says no, and the caller decodes page by page, which also finds
out what is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from common.tsfile import DataType, Encoding
from receiver.points.columns import BINARY, dtype_of
from receiver.points.decoding import Times
from receiver.points.encodings import (
    FLOATS,
    BadPage,
    Bytes,
    Unsupported,
    decode_values,
    has_old_form,
    is_rounded,
)
from receiver.points.encodings.gorilla import END_DOUBLE, END_FLOAT, END_INT32, END_INT64
from receiver.points.jit import readonly
from receiver.points.page_data import page_kernels
from receiver.points.page_data.chunk_window import DataPage, Pages

__all__ = [
    "DenseValues",
    "PagePlaces",
    "decode_pages",
    "has_kernel",
    "plain_run",
    "times_run",
    "values_run",
]

_Places: TypeAlias = npt.NDArray[np.int64]
_ENDS: Final = {
    DataType.INT32: END_INT32,
    DataType.DATE: END_INT32,
    DataType.INT64: END_INT64,
    DataType.TIMESTAMP: END_INT64,
    DataType.FLOAT: END_FLOAT,
    DataType.DOUBLE: END_DOUBLE,
}
_BITS: Final[dict[int, type[np.generic]]] = {4: np.int32, 8: np.int64}


class PagePlaces(NamedTuple):
    """Where pages begin and end in the bytes, and where among the values."""

    starts: _Places
    ends: _Places
    lows: _Places
    highs: _Places


class DenseValues(NamedTuple):
    """Values of some pages, nulls left out.

    Attributes:
        values: one behind the other.
        valid: which rows have one; None: all.
        counts: how many values each page has.
    """

    values: npt.NDArray[Any]
    valid: npt.NDArray[np.bool_] | None
    counts: _Places


def has_kernel(encoding: int, code: int) -> bool:
    """Whether values of a type and an encoding are decoded by one call."""
    if is_rounded(encoding, code, old_form=True) or has_old_form(encoding, code):
        return False
    if encoding == Encoding.TS_2DIFF:
        return code not in FLOATS and code in _ENDS
    return code in (_ENDS if encoding == Encoding.GORILLA else FLOATS) and encoding in (
        Encoding.GORILLA,
        Encoding.PLAIN,
    )


def decode_pages(
    encoding: int,
    code: int,
    data: Bytes,
    places: PagePlaces,
    out: Any,
    good: npt.NDArray[np.bool_],
) -> None:
    """Decode values of pages into rows of ``out``; those that cannot be become no good.

    Args:
        encoding: of all of them, which must lose nothing and have had one form only.
        code: type.
        data: has the pages.
        places: where the values of each stand in ``data``, and go to.
        out: of the type's numbers.
        good: one bool a page.
    """
    if encoding == Encoding.TS_2DIFF and code not in FLOATS:
        page_kernels.deltas(data, *places, out, good)
    elif encoding == Encoding.GORILLA and code in _ENDS:
        kernel = page_kernels.xors_64 if out.itemsize == 8 else page_kernels.xors_32
        kernel(data, *places, out.view(_BITS[out.itemsize]), _ENDS[DataType(code)], good)
    elif encoding == Encoding.PLAIN and code in FLOATS:
        page_kernels.plain_numbers(data, *places, out.view(_BITS[out.itemsize]), good)
    else:
        listed = zip(*(each.tolist() for each in places), strict=True)
        for number, (start, end, low, high) in enumerate(listed):
            try:
                out[low:high] = decode_values(encoding, code, data, start, end, high - low)
            except (BadPage, Unsupported):
                good[number] = False


def times_run(contents: Sequence[Bytes], bounds: _Places) -> Times | None:
    """The times of pages, encoded as TS_2DIFF; None if one of the pages is not just that.

    Args:
        contents: of the pages, out of their compression.
        bounds: where the times of each begin among those of all, and the end.
    """
    data, starts, ends = _joined(contents)
    times, good = np.empty(int(bounds[-1]), np.int64), np.ones(len(contents), np.bool_)
    page_kernels.deltas(data, starts, ends, bounds[:-1], bounds[1:], times, good)
    return times if good.all() else None


def values_run(
    pages: Pages, listed: Sequence[DataPage], contents: Sequence[Bytes], bounds: _Places
) -> DenseValues | None:
    """The values of pages of an aligned series; None if one is to be decoded by itself.

    Args:
        pages: of the chunk.
        listed: those of them that are decoded.
        contents: of these, out of their compression.
        bounds: where the rows of each begin among those of all, and the end.
    """
    if pages.code in BINARY or not has_kernel(pages.encoding, pages.code):
        return None
    data, starts, ends = _joined(contents)
    valid, good = np.empty(int(bounds[-1]), np.bool_), np.ones(len(listed), np.bool_)
    counts, splits = np.zeros(len(listed), np.int64), np.zeros(len(listed), np.int64)
    page_kernels.bitmaps(data, starts, ends, bounds[:-1], bounds[1:], valid, counts, splits, good)
    said = [count if page.row is None else page.points
            for page, count in zip(listed, counts.tolist(), strict=True)]  # fmt: skip
    if not good.all() or counts.tolist() != said:
        return None
    highs = np.cumsum(counts)
    values = np.empty(int(highs[-1]), dtype_of(pages.code))
    places = PagePlaces(splits, ends, highs - counts, highs)
    decode_pages(pages.encoding, pages.code, data, places, values, good)
    if not good.all():
        return None
    return DenseValues(values, None if len(values) == len(valid) else valid, counts)


def plain_run(
    pages: Pages, contents: Sequence[Bytes], bounds: _Places
) -> tuple[Times, npt.NDArray[Any]] | None:
    """Times, as TS_2DIFF, and values of pages that have both; None as of ``values_run``."""
    if pages.code in BINARY or not has_kernel(pages.encoding, pages.code):
        return None
    data, starts, ends = _joined(contents)
    lows, highs = bounds[:-1], bounds[1:]
    times, good = np.empty(int(bounds[-1]), np.int64), np.ones(len(contents), np.bool_)
    splits = np.zeros(len(contents), np.int64)
    page_kernels.plain_times(data, starts, ends, lows, highs, times, splits, good)
    if not good.all():
        return None
    values = np.empty(len(times), dtype_of(pages.code))
    places = PagePlaces(splits, ends, lows, highs)
    decode_pages(pages.encoding, pages.code, data, places, values, good)
    return (times, values) if good.all() else None


def _joined(contents: Sequence[Bytes]) -> tuple[Bytes, _Places, _Places]:
    """Bytes one behind the other: where each begins, and where it ends."""
    ends = np.cumsum([len(each) for each in contents], dtype=np.int64)
    starts = np.concatenate((np.zeros(1, np.int64), ends[:-1]))
    return readonly(np.concatenate(contents)), starts, ends
