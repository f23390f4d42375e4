"""What the series of a file are in the schema: types must be the same, codecs may differ."""

from __future__ import annotations

from typing import TYPE_CHECKING

from common.tsfile import Compression, DataType, Encoding
from receiver.metadata.model.paths import device_name, parse_stored
from receiver.spark.report.results import Finding, Severity
from receiver.spark.verify.examining.packed_outlines import DeviceOutline, unpack_outline

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from enum import IntEnum

    from receiver.metadata.schema import Schema

__all__ = ["SchemaCheck"]

_NAMED = 5
"""Series that a note names."""
_MOST_TYPES = 20
"""Series of other types that are findings of their own."""


class SchemaCheck:
    """Compares outlines of files with the schema; what it found of one it remembers."""

    def __init__(self, schema: Schema) -> None:
        """Keep the schema, which must not change as long as this is used."""
        self._schema = schema
        self._known: dict[bytes, tuple[Finding, ...]] = {}

    def findings(self, packed: bytes) -> tuple[Finding, ...]:
        """What is to be said of a file with this outline (`packed_outlines.pack_outline`)."""
        found = self._known.get(packed)
        if found is None:
            found = self._known[packed] = tuple(self._compare(unpack_outline(packed)))
        return found

    def _compare(self, devices: Sequence[DeviceOutline]) -> Iterator[Finding]:
        types, gone, codecs = 0, _Some(), _Some()
        for device in devices:
            nodes = parse_stored(device.device)
            name = device_name(nodes)
            missing, differing = self._schema.devices.compare(nodes, device.names, device.types)
            for at in missing:
                gone.add(f"{name}.{device.names[at]}")
            for at in differing:
                types += 1
                if types <= _MOST_TYPES:
                    yield self._other_type(nodes, name, device, at)
            others = {*missing, *differing}
            same = [at for at in range(len(device.names)) if at not in others]
            for text in self._other_codecs(nodes, name, device, same):
                codecs.add(text)
        if types > _MOST_TYPES:
            detail = f"{types - _MOST_TYPES} more series are of another type than in the schema"
            yield Finding(Severity.PROBLEM, "type", None, None, None, detail)
        if gone.count:
            detail = f"{gone.count} series are not in the schema, or not any more: {gone}"
            yield Finding(Severity.NOTE, "schema", None, None, None, detail)
        if codecs.count:
            detail = f"{codecs.count} series are encoded otherwise than the schema has it: {codecs}"
            yield Finding(Severity.NOTE, "codec", None, None, None, detail)

    def _other_type(
        self, nodes: tuple[str, ...], name: str, device: DeviceOutline, at: int
    ) -> Finding:
        measurement = device.names[at]
        (row,) = self._schema.devices.rows(nodes, [measurement])
        kind = self._schema.nodes.kind(row)
        here = _name(DataType, device.types[at])
        there = (
            _name(DataType, self._schema.series.type_of(row))
            if kind == "leaf"
            else f"no series: {kind}"
        )
        detail = f"{here} in the file, {there} in the schema"
        return Finding(Severity.PROBLEM, "type", name, measurement, None, detail)

    def _other_codecs(
        self, nodes: tuple[str, ...], name: str, device: DeviceOutline, positions: list[int]
    ) -> Iterator[str]:
        rows = self._schema.devices.rows(nodes, [device.names[at] for at in positions])
        series = self._schema.series.describe_many(rows)
        for at, row in zip(positions, series, strict=True):
            encoding, compression = device.encodings[at], device.compressions[at]
            if (encoding, compression) != (row.encoding, row.compression):
                yield (
                    f"{name}.{device.names[at]} {_codecs(encoding, compression)}, "
                    f"not {_codecs(row.encoding, row.compression)}"
                )


class _Some:
    """The first of many texts, and how many there are."""

    def __init__(self) -> None:
        self.count = 0
        self._first: list[str] = []

    def add(self, text: str) -> None:
        self.count += 1
        if len(self._first) < _NAMED:
            self._first.append(text)

    def __str__(self) -> str:
        return "; ".join(self._first) + ("; ..." if self.count > len(self._first) else "")


def _codecs(encoding: int, compression: int) -> str:
    return f"{_name(Encoding, encoding)}/{_name(Compression, compression)}"


def _name(kind: type[IntEnum], code: int) -> str:
    try:
        return kind(code).name
    except ValueError:
        return str(code)
