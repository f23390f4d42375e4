"""The content of one page, decoded; what cannot be is an error that names the page."""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from common.tsfile import Encoding, Statistics
from receiver.points.encodings import (
    BadPage,
    Binaries,
    Bytes,
    Unsupported,
    Values,
    decode_times,
    decode_values,
    has_old_form,
)
from receiver.points.errors import DamagedData, UnsupportedData
from receiver.points.page_data.chunk_window import DataPage, Pages
from receiver.points.summaries import first_out_of_order, row_statistics

__all__ = ["Times", "guessed_times", "page_times", "page_values"]

Times: TypeAlias = npt.NDArray[np.int64]

_LEAST_TIME: Final = -(2**63)
_OTHER_TIMES: Final = (Encoding.PLAIN, Encoding.RLE, Encoding.GORILLA)


def page_times(
    pages: Pages, page: DataPage, encoding: int, content: Bytes, pos: int, end: int
) -> Times:
    """Decode the times of one page, as many as the file says.

    Args:
        pages: of the chunk.
        page: of ``pages``.
        encoding: of the times.
        content: of the page.
        pos: where in it they begin.
        end: where in it they end.

    Raises:
        DamagedData: they cannot be decoded, or are more or fewer.
        UnsupportedData: their encoding is not read.
    """
    try:
        times = decode_times(encoding, content, pos, end, page.points)
    except BadPage as bad:
        raise pages.damaged(f"times: {bad.reason}", page, bad.at) from bad
    except Unsupported as other:
        raise pages.unsupported(f"times: {other.reason}", page) from other
    if len(times) != page.points:
        raise pages.damaged(f"{len(times)} times, not {page.points} as is said of it", page)
    return times


def guessed_times(
    pages: Pages, page: DataPage, content: Bytes, pos: int, end: int
) -> tuple[int, Times]:
    """Decode the times of a page when nothing says how they are encoded.

    It is TS_2DIFF, unless a database was configured otherwise. Another one counts only if it
    gives exactly what is said of the page: as many times, the first, the last, in order.

    Returns:
        The encoding, and the times.

    Raises:
        DamagedData: no encoding gives that; what is wrong with TS_2DIFF.
    """
    try:
        times = page_times(pages, page, Encoding.TS_2DIFF, content, pos, end)
        if not len(times) or (times[0], times[-1]) == (page.start, page.end):
            return Encoding.TS_2DIFF, times
    except DamagedData:
        times = None
    for encoding in _OTHER_TIMES:
        try:
            guess = page_times(pages, page, encoding, content, pos, end)
        except (DamagedData, UnsupportedData):
            continue
        in_order = first_out_of_order(guess, _LEAST_TIME) < 0
        if len(guess) and in_order and (guess[0], guess[-1]) == (page.start, page.end):
            return encoding, guess
    if times is None:
        times = page_times(pages, page, Encoding.TS_2DIFF, content, pos, end)  # says what is wrong
    return Encoding.TS_2DIFF, times


def page_values(pages: Pages, page: DataPage, content: Bytes, pos: int, count: int) -> Values:
    """Decode the values of one page, which stand from ``pos`` on.

    Args:
        pages: of the chunk.
        page: of ``pages``.
        content: of the page.
        pos: where in it they begin.
        count: how many there are, nulls left out.

    Raises:
        DamagedData: they cannot be decoded, or are more or fewer.
        UnsupportedData: their encoding is not read.
    """
    try:
        if pages.old_form is None and has_old_form(pages.encoding, pages.code):
            return _in_either_form(pages, page, content, pos, count)
        return _values(pages, content, pos, count, old_form=bool(pages.old_form))
    except BadPage as bad:
        raise pages.damaged(f"values: {bad.reason}", page, bad.at) from bad
    except Unsupported as other:
        raise pages.unsupported(other.reason, page) from other


def _values(pages: Pages, content: Bytes, pos: int, count: int, *, old_form: bool) -> Values:
    return decode_values(
        pages.encoding, pages.code, content, pos, len(content), count, old_form=old_form
    )


def _in_either_form(pages: Pages, page: DataPage, content: Bytes, pos: int, count: int) -> Values:
    """The new form where its values are what is said of the page, otherwise the old one."""
    said = pages.statistics if page.row is None else row_statistics(pages.code, page.row)
    broken: BadPage | None = None
    try:
        values = _values(pages, content, pos, count, old_form=False)
        if not count or _meets(values, said):
            pages.old_form = False if count else None
            return values
    except BadPage as bad:
        broken = bad
    try:
        older = _values(pages, content, pos, count, old_form=True)
    except BadPage:
        if broken:
            raise broken from None
        return values  # as it is: the check says what is wrong with it
    pages.old_form = True
    return older


def _meets(values: Values, said: Statistics) -> bool:
    assert not isinstance(values, Binaries)
    ends = values[[0, -1]].tolist()
    return all(
        one == other or (one != one and other != other)
        for one, other in zip(ends, (said.first, said.last), strict=True)
    )
