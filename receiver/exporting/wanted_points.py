"""Which series and times are exported, and what the schema says of each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from common.formats.schemaitems import Group, Item, SeriesItem
from common.tsfile.device_names import bare_measurement
from receiver.metadata.model.paths import (
    Nodes,
    Pattern,
    device_nodes,
    format_path,
    parse_stored,
)
from receiver.spark.source.read_plans.selection import TimeRange

if TYPE_CHECKING:
    from receiver.spark.finder import DataFile

__all__ = ["KnownSeries", "SchemaSeries", "WantedPoints"]


@dataclass(frozen=True, slots=True)
class WantedPoints:
    """What is asked for.

    Attributes:
        pattern: of series; a device of a table stands at root.`/database`.table.`:tags`.
        span: times.
    """

    pattern: Pattern
    span: TimeRange = field(default_factory=TimeRange)

    def takes_device(self, name: str) -> bool:
        """Whether a series of the device may be meant."""
        return self.pattern.takes_child(self._state(device_nodes(name)))

    def takes(self, device: str, measurement: str) -> bool:
        """Whether a series of a file is meant."""
        return self.pattern.matches(series_nodes(device, measurement))

    def takes_group(self, path: str) -> bool:
        """Whether something below a storage group may be meant."""
        return bool(self._state(parse_stored(path)))

    def takes_file(self, file: DataFile) -> bool:
        """Whether the catalogue has a device in it that may be meant, at times that are."""
        if not self.span.meets(file.first, file.last) or file.devices is None:
            return False
        return any(
            self.span.meets(first, last) and self.takes_device(name)
            for name, first, last in file.devices.ranges()
        )

    def _state(self, nodes: Nodes) -> int:
        state = Pattern.START
        for node in nodes:
            state = self.pattern.advance(state, node)
        return state


@lru_cache(1 << 16)
def series_nodes(device: str, measurement: str) -> Nodes:
    """Where a series of a file stands in the tree; its name may be back-quoted there."""
    is_table = device.startswith("/")
    return (*device_nodes(device), measurement if is_table else bare_measurement(measurement))


class KnownSeries(NamedTuple):
    """What the schema has of a series."""

    data_type: int
    encoding: int
    compression: int
    aligned: bool


class SchemaSeries:
    """The series of the schema that are meant, and how each is to be written."""

    def __init__(self, items: Iterable[Item], wanted: WantedPoints) -> None:
        """Take what is meant of a whole schema.

        Attributes:
            groups: storage groups that may have some of it.
            series: that are meant, by path.
        """
        self.groups: list[Group] = []
        self.series: list[SeriesItem] = []
        self._known: dict[Nodes, KnownSeries] = {}
        self._aligned: dict[Nodes, bool] = {}
        shared: dict[KnownSeries, KnownSeries] = {}
        for item in items:
            if isinstance(item, Group):
                if wanted.takes_group(item.path):
                    self.groups.append(item)
            elif isinstance(item, SeriesItem):
                nodes = parse_stored(item.path)
                if wanted.pattern.matches(nodes):
                    known = KnownSeries(item.type, item.encoding, item.compression, item.aligned)
                    self.series.append(item)
                    self._known[nodes] = shared.setdefault(known, known)
                    self._aligned[nodes[:-1]] = item.aligned

    def of(self, device: str, measurement: str) -> KnownSeries | None:
        """A series of a file; None if the schema does not have it."""
        return self._known.get(series_nodes(device, measurement))

    def is_aligned(self, device: str) -> bool | None:
        """Whether the series of a device share their times; None if the schema has none of it."""
        return self._aligned.get(device_nodes(device))

    @staticmethod
    def name_of(device: str, measurement: str) -> str:
        """The path of a series of a file, for messages."""
        return format_path(series_nodes(device, measurement))
