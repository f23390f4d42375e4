"""The devices of a task's rows: numbered as they come, and what the receiver knows of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from common.errors import ConflictError, UsageError
from common.tsfile import DataType
from common.tsfile.device_names import (
    bare_measurement,
    device_name,
    device_segments,
    in_database,
    parse_name,
    split_database,
    split_path,
    tree_name,
)
from receiver.metadata.model.paths import device_nodes, format_path

if TYPE_CHECKING:
    import numpy.typing as npt

    from receiver.operator.views.write_wire import KnownDevice
    from receiver.spark.sink.sink_calls import WriteCalls
    from receiver.spark.sink.write_plan import WritePlan

__all__ = ["DeviceBook", "SinkDevice"]

_VERSION = 4


@dataclass(frozen=True, slots=True)
class SinkDevice:
    """A device of the rows.

    Attributes:
        name: as the catalogue has it.
        segments: as a file of version 4 has it.
        is_table: whether it is of a table.
        group: number of its storage group, or database, and owner.
        aligned: whether its series share their times.
        known: what the receiver knows.
    """

    name: str
    segments: tuple[str | None, ...]
    is_table: bool
    group: int
    aligned: bool
    known: KnownDevice

    def type_of(self, measurement: str) -> int | None:
        """Of a series that is known."""
        return self.known.types.get(measurement if self.is_table else bare_measurement(measurement))

    def check(self, measurement: str, data_type: int) -> None:
        """See that a type is the one that is known.

        Raises:
            ConflictError: it is another.
        """
        known = self.type_of(measurement)
        if known is not None and known != data_type:
            raise ConflictError(
                f"device {self.name}, series {measurement}: {DataType(data_type).name} in the rows,"
                f" {DataType(known).name} at the receiver; nothing is written"
            )


class DeviceBook:
    """Numbers devices, and the storage groups of each owner: a file has those of one.

    Attributes:
        devices: by number.
        groups: names of storage groups and databases, by number; one of several owners has several.
    """

    def __init__(self, plan: WritePlan, calls: WriteCalls) -> None:
        """Know none yet."""
        self.devices: list[SinkDevice] = []
        self.groups: list[str] = []
        self._plan, self._calls = plan, calls
        self._by_key: dict[str | tuple[str | None, ...], int] = {}
        self._group_numbers: dict[tuple[str, str], int] = {}

    def of_names(self, names: pa.Array) -> npt.NDArray[np.int32]:
        """The devices of a column of names.

        Raises:
            UsageError: one is none.
            ConflictError: one is another sender's.
        """
        found = names.dictionary_encode()
        texts: list[str] = found.dictionary.to_pylist()
        self._learn([self._parsed(each) for each in texts if each not in self._by_key])
        numbers = np.array([self._by_key[each] for each in texts], np.int32)
        which: npt.NDArray[np.int64] = found.indices.to_numpy(zero_copy_only=False)
        return numbers[which]

    def of_tags(self, columns: Sequence[pa.Array], rows: int) -> npt.NDArray[np.int32]:
        """The devices of the plan's table, by columns of tags; raises as `of_names`."""
        mixed = np.zeros(rows, np.int64)
        for column in columns:
            found = column.dictionary_encode(null_encoding="encode")
            codes = found.indices.to_numpy(zero_copy_only=False).astype(np.int64)
            # Renumbered at each step, so that no product of many columns overflows.
            _, mixed = np.unique(mixed * max(1, len(found.dictionary)) + codes, return_inverse=True)
        _, firsts, which = np.unique(mixed, return_index=True, return_inverse=True)
        options = self._plan.options
        keys: list[tuple[str | None, ...]] = []
        for row in firsts:
            tags: list[str | None] = [column[int(row)].as_py() for column in columns]
            while tags and tags[-1] is None:  # no part of an id, as files have it
                tags.pop()
            keys.append((options.table_name, *tags))
        fresh = [each for each in dict.fromkeys(keys) if each not in self._by_key]
        parsed = [
            (each, in_database(device_name(each, table=True), options.database or ""), each, True)
            for each in fresh
        ]
        self._learn(parsed)
        numbers = np.array([self._by_key[each] for each in keys], np.int32)
        return numbers[which]

    def _parsed(self, text: str) -> tuple[str, str, tuple[str | None, ...], bool]:
        """A device by its name: as it came, as the catalogue has it, its segments, of a table?"""
        database, name = split_database(text)
        try:
            is_table, nodes = parse_name(name)
        except ValueError as error:
            raise UsageError(f"device {text!r}: {error}{_as_the_catalogue_has(name)}") from error
        if not is_table:
            if database is not None:
                raise UsageError(f"device {text!r}: no table stands behind the database")
            is_outside = nodes[0] != "root" and self._plan.options.group is None
            if is_outside or (len(nodes) < 2 and nodes[0] == "root"):
                raise UsageError(
                    f"device {text!r}: expected a path such as root.site.d1, or option sg; or a "
                    "table's device, /database/table:tag"
                )
            return text, text, device_segments(text, _VERSION), False
        database = database or self._plan.options.group
        if database is None:
            raise UsageError(f"device {text!r}: expected its database, as /site/..., or option sg")
        if self._plan.options.tag_columns is None and len(nodes) > 1:
            raise UsageError(
                f"device {text!r}: expected option tagColumns: names of the tags of its table, "
                "which the long form does not say"
            )
        return text, in_database(name, database), nodes, True

    def _learn(
        self,
        parsed: Sequence[tuple[str | tuple[str | None, ...], str, tuple[str | None, ...], bool]],
    ) -> None:
        if not parsed:
            return
        found = self._calls.known([name for _, name, _, _ in parsed])
        for (key, name, segments, is_table), known in zip(parsed, found, strict=True):
            if known.refused is not None:
                raise ConflictError(f"device {name}: {known.refused}; nothing is written")
            group = self._group(name, known, is_table=is_table)
            aligned = is_table or bool(
                self._plan.options.aligned if known.aligned is None else known.aligned
            )
            self._by_key[key] = len(self.devices)
            self.devices.append(SinkDevice(name, segments, is_table, group, aligned, known))

    def _group(self, name: str, known: KnownDevice, *, is_table: bool) -> int:
        if is_table:
            group = split_database(name)[0] or ""
        else:
            group = self._plan.options.group or known.group or format_path(device_nodes(name)[:2])
        owned = group, known.owner or self._plan.owner
        number = self._group_numbers.setdefault(owned, len(self.groups))
        if number == len(self.groups):
            self.groups.append(group)
        return number


def _as_the_catalogue_has(name: str) -> str:
    """How a path is to be written, if it is one but for quotes."""
    nodes = split_path(name)
    if nodes[0] != "root" or not all(nodes) or "*" in name:
        return ""
    return f"; expected {tree_name(nodes)}"
