"""Which bytes of a file a task is going to read, by its index: what is worth fetching together.

It is a forecast and nothing rests on it. The index says where chunks begin, not where they end: how
far a chunk of a device reaches is told by the one behind it, unless that lies far away, in what was
written later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from common.tsfile import DataType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from common.tsfile import Device, Series, Tail
    from receiver.spark.source.read_plans.selection import TimeRange

__all__ = ["wanted_ranges"]

_BEFORE: Final = 256
"""Where the header of a group stands, before its first chunk."""
_HEAD: Final = 1024
"""Bytes of a chunk that are no points: its own header, and those of pages."""
_MOST_POINT: Final = 32
"""Bytes a point takes at most, in all files but those of long texts."""
_POINT: Final = 4


def wanted_ranges(
    tail: Tail,
    devices: Iterable[Device],
    span: TimeRange,
    takes: Callable[[Series], bool],
) -> Iterator[tuple[int, int]]:
    """Offsets from and to, of the chunks of devices, in no order; some may overlap.

    Args:
        tail: of the file.
        devices: that are read.
        span: of time that is read.
        takes: whether a series is.
    """
    for device in devices:
        series = [*device.series()]
        times = device.time_column()
        every = [*series, *([] if times is None else [times])]
        begins = sorted({chunk.offset for each in every for chunk in each.chunks})
        if begins:  # whoever reads a device looks there whether it is its own
            yield max(0, begins[0] - _BEFORE), begins[0]
        behind = dict(zip(begins, [*begins[1:], tail.meta_offset], strict=True))
        for each in every:
            if each.data_type != DataType.VECTOR and not takes(each):
                continue
            for chunk in each.chunks:
                said = chunk.statistics
                if said.count and span.meets(said.start, said.end):
                    end = behind[chunk.offset]
                    if end - chunk.offset > _HEAD + _MOST_POINT * said.count:
                        end = min(end, chunk.offset + _HEAD + _POINT * said.count)
                    yield max(0, chunk.offset - _BEFORE), end
