"""What a catalogue wants to know of the series of a file: name, type, codecs, how far they reach.

Less than `Device.series`, and several times as fast: nothing is decoded but what is asked for, and
of the chunks only the first one's header is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from common.tsfile.byte_source import ByteSource, TsFileOrigin, opened
from common.tsfile.chunk_headers import read_header
from common.tsfile.device import Device
from common.tsfile.layout import DataType
from common.tsfile.series import chunk_offsets, entries
from common.tsfile.tail import Tail

__all__ = ["Outline", "read_outlines"]


class Outline(NamedTuple):
    """One measurement of one device.

    Attributes:
        measurement: its bare name.
        data_type: code, see `DataType`.
        encoding: code of its first chunk, see `Encoding`.
        compression: the same, see `Compression`.
        last: time of its newest point, None without points; in the writer's unit.
    """

    measurement: str
    data_type: int
    encoding: int
    compression: int
    last: int | None


def read_outlines(source: TsFileOrigin, tail: Tail) -> Iterator[tuple[Device, list[Outline]]]:
    """Yield each device with its measurements, both in the file's order.

    Args:
        source: the file.
        tail: of that file, complete; read with `structure`.

    Raises:
        OSError: the file cannot be read.
        Corrupt: the header of a chunk is not where the index says, or is of another series.
    """
    with opened(source) as file:
        for device in tail.devices:
            yield device, list(_outlines(file, device, tail.meta_offset))


def _outlines(file: ByteSource, device: Device, limit: int) -> Iterator[Outline]:
    index = device.index
    for begin, end in device.runs:
        for entry in entries(index, begin, end):
            _, name, code, count, _, last, *_ = entry
            if code == DataType.VECTOR:
                continue
            offset = next(chunk_offsets(index, entry))
            encoding, compression = read_header(file, offset, name, code, limit)
            yield Outline(name, code, encoding, compression, last if count else None)
