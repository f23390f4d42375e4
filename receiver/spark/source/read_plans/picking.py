"""Which files, devices and series a query wants, as far as is known before they are read."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from common.tsfile import DataType, Device, TableSchema, parse_name, split_database
from receiver.metadata.model.paths import device_nodes
from receiver.metadata.model.ranks import NOW, cut_in
from receiver.spark.value_types import table_tags, value_column

if TYPE_CHECKING:
    from collections.abc import Iterator

    from common.tsfile import Series, Tail
    from receiver.spark.finder import DataFile
    from receiver.spark.source.read_plans.selection import Selection, TimeRange
    from receiver.spark.source.read_plans.source_options import SourceOptions

__all__ = ["DATA_TYPE", "DEVICE", "MEASUREMENT", "TAG_PREFIX", "Picker", "row_device", "tags_of"]

DEVICE, MEASUREMENT, DATA_TYPE = "device", "measurement", "data_type"
"""How conditions call these columns, whatever their names are in the result."""
TAG_PREFIX = "tag:"
"""Before the name of a tag, in lower case, in a condition about it."""


def row_device(device: Device, database: str | None) -> str:
    """The device's name in the result: of a table, behind its database where that is known."""
    return device.name if database is None else device.name_in(database)


def _has_ended(file: DataFile, device: Device) -> bool:
    """Whether a transfer of the device ended it in this file, which goes on with others."""
    cut = cut_in(file.cuts, row_device(device, file.database))
    return cut is not None and cut.last != NOW


class Picker:
    """Decides by options and filters; made anew in each process."""

    def __init__(self, options: SourceOptions, selection: Selection) -> None:
        self._options = options
        self._database: str | None = None
        self._table: str | None = None
        if options.table is not None:
            self._database, self._table = split_database(options.table)
        self._columns = None if options.columns is None else frozenset(options.columns)
        self._selection = selection
        self._tags = [each for each in selection.conditions if each.column.startswith(TAG_PREFIX)]
        self._values = [
            each.column for each in selection.conditions if each.column.startswith("value_")
        ]
        self.takes_name = lru_cache(1 << 16)(self._takes_name)

    @property
    def span(self) -> TimeRange:
        """The times that are wanted."""
        return self._selection.span

    # -- devices -----------------------------------------------------------------------------

    def takes_device(
        self, device: Device, database: str | None, schema: TableSchema | None = None
    ) -> bool:
        """Whether rows of a device are wanted, whatever their time.

        Args:
            device: of a file.
            database: that the file's tables are in, if known.
            schema: of the device's table; conditions on tags need it.
        """
        if device.is_table:
            if not self._takes_table(device.segments[0] or "", database):
                return False
            if self._tags and not self._takes_tags(device, schema):
                return False
        elif self._tags or self._table is not None or not self._matches(device.name):
            return False
        return self._selection.takes({DEVICE: row_device(device, database)})

    def _takes_table(self, table: str, database: str | None) -> bool:
        if self._options.devices:
            return False
        if self._table is None:
            return True
        return table == self._table and self._database in (None, database)

    def _takes_tags(self, device: Device, schema: TableSchema | None) -> bool:
        tags = {} if schema is None else tags_of(device, schema)
        lower = {name.lower(): tag for name, tag in tags.items()}
        # A tag that this file's table does not have (yet) is NULL.
        return all(
            each.holds(lower.get(each.column.removeprefix(TAG_PREFIX))) for each in self._tags
        )

    def _matches(self, name: str) -> bool:
        patterns = self._options.devices
        return not patterns or any(each.matches(device_nodes(name)) for each in patterns)

    def _takes_name(self, name: str) -> bool:
        """Whether a device of a catalogue may be wanted, which is known by its name alone."""
        if name.startswith("/"):
            database, rest = split_database(name)
            try:
                _, parts = parse_name(rest)
            except ValueError:
                return True  # the file itself will tell
            if not self._takes_table(parts[0] or "", database):
                return False
        elif self._tags or self._table is not None or not self._matches(name):
            return False
        return self._selection.takes({DEVICE: name})

    # -- files -------------------------------------------------------------------------------

    def takes_file(self, file: DataFile) -> bool:
        """Whether a file may hold wanted points, as far as a catalogue can tell."""
        span = self._selection.span
        if span.is_empty:
            return False
        if not file.is_known:
            return True
        if not span.meets(file.first, file.last):
            return False
        if file.devices is None:
            return True
        seen = False
        for name, first, last in file.devices.ranges():
            seen = True
            if span.meets(first, last) and self.takes_name(name):
                return True
        # A deleted file has names without ranges.
        return not seen and any(map(self.takes_name, file.devices))

    def devices(self, file: DataFile, tail: Tail) -> Iterator[Device]:
        """The wanted devices of a file that have points in the wanted time."""
        schemas = {each.name: each for each in tail.tables}
        for device in tail.devices:
            if not self._selection.span.meets(device.start, device.end):
                continue
            if not self._options.retired and _has_ended(file, device):
                continue
            schema = schemas.get(device.segments[0] or "") if device.is_table else None
            if self.takes_device(device, file.database, schema):
                yield device

    # -- series ------------------------------------------------------------------------------

    def takes_measurement(self, measurement: str) -> bool:
        """Whether a measurement is wanted."""
        if self._columns is not None and measurement not in self._columns:
            return False
        return self._selection.takes({MEASUREMENT: measurement})

    def series(self, device: Device) -> Iterator[Series]:
        """The wanted series of a device that have points in the wanted time (long form)."""
        span = self._selection.span
        for series in device.series():
            if span.meets(series.start, series.end) and self.takes_series(
                series.measurement, series.data_type
            ):
                yield series

    def takes_series(self, measurement: str, data_type: int) -> bool:
        """Whether points of a series are wanted, whatever their time (long form)."""
        column = value_column(data_type, self._options.text)
        if column is None or not self.takes_measurement(measurement):
            return False
        # The value stands in one column, in all others there is NULL.
        values = {each: "value" if each == column else None for each in self._values}
        values[DATA_TYPE] = DataType(data_type).name
        return self._selection.takes(values)


def tags_of(device: Device, schema: TableSchema) -> dict[str, str | None]:
    """Tags of a device of a table, by name; those behind its last segment are NULL."""
    names = table_tags(schema)
    given = device.segments[1:]
    return dict(zip(names, (*given, *[None] * (len(names) - len(given))), strict=False))
