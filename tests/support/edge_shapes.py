"""How an edge's database lays its points out in files, and its deletions beside them.

A point is (series, time) -> value to everybody else. A row of a table that has no value is a point
of the series `ROW`, as every row of a table is.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from tests.support.tsfile_bytes import DeviceKey, Devices, varint, vstr

WEEK = 604_800_000
SPAN = 16
"""Times of a time partition."""
STEP = 1_000_000
"""Between two times on disk; numbers of deletions are smaller."""
SERIES = "ab"
ROW = ""
ALL = "*"
"""All series of a database, of a deletion."""
EVERYWHERE = 2**63 - 1

Key: TypeAlias = tuple[str, int]
"""(series, time)."""
Points: TypeAlias = dict[Key, int]


def on_disk(time: int) -> int:
    """A time as files have it."""
    return time // SPAN * WEEK + time % SPAN * STEP


def in_mind(stamp: int) -> int:
    """The time that files have so; of the end of a deletion its number is left out."""
    return stamp // WEEK * SPAN + stamp % WEEK // STEP


class DeletionLine(NamedTuple):
    """A record of a deletion file."""

    number: int
    series: str
    low: int
    high: int
    offset: int

    def hides(self, key: Key) -> bool:
        return self.series in (key[0], ALL) and self.low <= key[1] <= self.high


@dataclass(frozen=True)
class Shape:
    """One storage group or database.

    Attributes:
        group: as directories are named.
        aligned: whether its series share a time column.
        table: whether it is of the table model.
        form: of its deletion files: `mods` or `mods2`.
    """

    group: str
    aligned: bool = False
    table: bool = False
    form: str = "mods"

    @property
    def lanes(self) -> str:
        """Devices, by the series that stand for them."""
        return SERIES[0] if self.aligned or self.table else SERIES

    def lane(self, series: str) -> str:
        """The device that a series is of."""
        return series if len(self.lanes) > 1 else self.lanes

    def device(self, series: str) -> DeviceKey:
        if self.table:
            return "t", "x"
        return f"{self.group}.{'d' if self.aligned else series}"

    def path(self, series: str) -> str:
        """Of a series, as deletions name it."""
        return f"{self.device(series)}.{series if self.aligned else 's'}"

    def has(self, device: str) -> bool:
        """Whether a reader means one of its devices by that name."""
        return device.startswith(f"/{self.group}/" if self.table else f"{self.group}.")

    def series(self, device: str, measurement: str) -> str:
        """The series that a reader names so."""
        return device.rpartition(".")[2] if len(self.lanes) > 1 else measurement

    def laid_out(self, points: Mapping[Key, int]) -> Devices:
        """Points as a file has them."""
        found: dict[DeviceKey, dict[str, list[tuple[int, int | None]]]] = {}
        for (series, time), value in sorted(points.items()):
            of_device = found.setdefault(self.device(series), {})
            if series != ROW:
                column = series if len(self.lanes) == 1 else "s"
                of_device.setdefault(column, []).append((on_disk(time), value))
            elif not any((other, time) in points for other in SERIES):
                of_device.setdefault(SERIES[0], []).append((on_disk(time), None))
        return {  # type: ignore[return-value]
            device: {name: sorted(column) for name, column in columns.items()}
            for device, columns in found.items()
        }

    # -- deletions -------------------------------------------------------------------------

    def record(self, line: DeletionLine) -> bytes:
        """A record, whose end carries its number."""
        low, high = on_disk(line.low), on_disk(line.high) + line.number
        if self.form == "mods":
            return f"DELETION,{self.path(line.series)},{line.offset},{low},{high}\n".encode()
        times = struct.pack(">qq", low, high)
        if self.table:
            return b"\x00" + times + vstr("t") + b"\x00" + varint(0)
        return b"\x01" + times + vstr(self.path(line.series))

    def lines(self, content: bytes) -> Iterator[DeletionLine]:
        """The records of a deletion file."""
        if self.form == "mods":
            for line in content.decode().splitlines():
                _, path, offset, low, high = line.split(",")
                yield self._line(path, int(low), int(high), int(offset))
            return
        while content:
            low, high = struct.unpack_from(">qq", content, 1)
            length = content[17] >> 1
            name, rest = content[18 : 18 + length].decode(), content[18 + length :]
            content = rest[2:] if self.table else rest
            yield self._line(name, low, high, EVERYWHERE)

    def _line(self, path: str, low: int, high: int, offset: int) -> DeletionLine:
        device, _, measurement = path.rpartition(".")
        series = ALL if self.table else self.series(device, measurement)
        return DeletionLine(high % WEEK % STEP, series, in_mind(low), in_mind(high), offset)


PLAIN = Shape("root.e")
ALIGNED = Shape("root.e", aligned=True)
BINARY = Shape("root.e", form="mods2")
TABLE = Shape("e", table=True, form="mods2")
