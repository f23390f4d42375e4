"""What a load wants to know of a file, read from its tail: once, as the file comes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from common.tsfile import Corrupt
from common.tsfile.proving import series_statistics
from receiver.load.schema.registering import read_series
from receiver.metadata.model.paths import IllegalPathError
from receiver.metadata.model.records import DeviceRange, LoadedDevice

if TYPE_CHECKING:
    from common.tsfile import Tail, TsFileOrigin

__all__ = ["TailFacts", "facts_of", "facts_worth_keeping"]

_MOST_SERIES: Final = 1000
"""Of a file whose facts are kept: those of a larger one take long to pack, and much room."""


class TailFacts(msgspec.Struct, frozen=True, array_like=True):
    """What a tail says of a file.

    Attributes:
        version: of the TsFile format.
        devices: with their ranges, in the file's order.
        registers: its series, as the schema names them.
        first: earliest time, None without points.
        last: latest time.
        series: how many.
        points: how many.
        index_bytes: from the end of its data on.
        statistics: root of its table of series with zeros for digests; empty: not computed.
    """

    version: int
    devices: Sequence[DeviceRange]
    registers: Sequence[LoadedDevice]
    first: int | None
    last: int | None
    series: int
    points: int
    index_bytes: int
    statistics: str = ""

    def pack(self) -> bytes:
        """The bytes to keep them as."""
        return msgspec.msgpack.encode(self)

    @staticmethod
    def unpack(data: bytes) -> TailFacts:
        """What `pack` gave."""
        return _decoder.decode(data)


_decoder = msgspec.msgpack.Decoder(TailFacts)


def facts_of(source: TsFileOrigin, tail: Tail, sg: str) -> TailFacts:
    """The facts of a file.

    Args:
        source: the file.
        tail: of it, complete; read with `structure`.
        sg: the storage group that its directory names.

    Raises:
        OSError: the file cannot be read.
        Corrupt: a chunk is not what the index says.
        IllegalPathError: a device has a name that is no path.
    """
    return TailFacts(
        version=tail.version or 0,
        devices=[DeviceRange(each.name_in(sg), each.start, each.end) for each in tail.devices],
        registers=read_series(source, tail, sg),
        first=tail.first_time,
        last=tail.last_time,
        series=tail.series_count,
        points=tail.point_count,
        index_bytes=tail.size - tail.meta_offset,
    )


def facts_worth_keeping(source: TsFileOrigin, tail: Tail, sg: str) -> TailFacts | None:
    """The facts of a file that is small enough, with its statistics; None where a load has to look.

    Args:
        source: the file.
        tail: of it, complete; read with `structure`.
        sg: the storage group that its directory names.

    Raises:
        OSError: the file cannot be read.
    """
    if tail.series_count > _MOST_SERIES:
        return None
    try:
        facts = facts_of(source, tail, sg)
    except (Corrupt, IllegalPathError):
        return None
    return msgspec.structs.replace(facts, statistics=series_statistics(tail).root)
