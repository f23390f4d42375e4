"""The tail of a TsFile: the series of each device, the index tree over them, and the footer.

Device for device its TimeseriesMetadata, then the nodes over them; then the nodes of the devices,
table for table; the roots stand in the footer. A node has up to 256 children, as the servers have
it; children stand before their parents. See ``common.tsfile.index`` and ``footer``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from common.tsfile import TableSchema
from common.tsfile.layout import (
    INTERNAL_DEVICE,
    INTERNAL_MEASUREMENT,
    LEAF_DEVICE,
    LEAF_MEASUREMENT,
    MAGIC,
    SEPARATOR,
)
from common.tsfile.primitives import uvarint_bytes, vstr_bytes
from receiver.writing.bloom_filter import BloomFilter
from receiver.writing.structures import (
    DeviceSegments,
    device_bytes,
    node_bytes,
    schema_bytes,
)

__all__ = ["DEGREE", "DeviceIndex", "write_tail"]

DEGREE: Final = 256
"""Children of a node, and series of a run, at most."""
_PROPERTIES: Final = (
    ("encryptLevel", "0"),
    ("encryptKey", None),
    ("encryptType", "org.apache.tsfile.encrypt.UNENCRYPTED"),
)
"""What the Java library wants to be told of a file that is not encrypted."""

DeviceIndex: TypeAlias = list[tuple[str, bytes, int]]
"""Of each series of a device: its name (time column: ""), TimeseriesMetadata, number of chunks."""

_Entries: TypeAlias = list[tuple[bytes, int]]


class _Out:
    """Where the tail goes, and how far it is."""

    def __init__(self, write: Callable[[bytes], object], position: int) -> None:
        self._write, self.position = write, position

    def put(self, content: bytes) -> int:
        """Write; the position where it begins."""
        begin = self.position
        self._write(content)
        self.position += len(content)
        return begin


def write_tail(
    write: Callable[[bytes], object],
    position: int,
    version: int,
    devices: Mapping[DeviceSegments, DeviceIndex],
    tables: Sequence[TableSchema],
) -> None:
    """Write all that follows the data section.

    Args:
        write: takes the bytes, in order.
        position: how long the data section is.
        version: 3 or 4.
        devices: their series, in any order of both.
        tables: of version 4.
    """
    out = _Out(write, position)
    out.put(bytes((SEPARATOR,)))
    bloom = BloomFilter(sum(entry[2] for series in devices.values() for entry in series))
    roots: dict[str, list[tuple[bytes, bytes]]] = {}
    for segments in sorted(devices, key=_order):
        series = sorted(devices[segments], key=lambda entry: _utf16(entry[0]))
        for name, _, _ in series:
            bloom.add(segments, name)
        table = "" if version == 3 else segments[0] or ""
        root = _measurements(out, series)
        roots.setdefault(table, []).append((device_bytes(segments, version), root))
    _footer(out, version, roots, tables, position, bloom)


def _order(segments: DeviceSegments) -> tuple[bytes, ...]:
    """As Java compares devices: segment for segment, by UTF-16; a null is before all else."""
    return tuple(b"" if part is None else b"\x01" + _utf16(part) for part in segments)


def _utf16(text: str) -> bytes:
    return text.encode("utf-16-be")


def _measurements(out: _Out, series: DeviceIndex) -> bytes:
    """Write a device's series and the nodes over them; its root is returned."""
    entries: _Entries = []
    for low in range(0, len(series), DEGREE):
        run = series[low : low + DEGREE]
        entries.append((vstr_bytes(run[0][0]), out.put(b"".join(each[1] for each in run))))
    return _tree(out, entries, LEAF_MEASUREMENT, INTERNAL_MEASUREMENT)


def _tree(out: _Out, entries: _Entries, leaf: int, internal: int) -> bytes:
    """Write the nodes above some children that stand up to here; the root is returned."""
    kind = leaf
    while True:
        nodes = list(_nodes(entries, out.position, kind))
        if len(nodes) == 1:
            return nodes[0][1]
        entries = [(key, out.put(node)) for key, node in nodes]
        kind = internal


def _nodes(entries: _Entries, end: int, kind: int) -> Iterator[tuple[bytes, bytes]]:
    """The nodes over some children, each with its first key; of no children an empty one."""
    for low in range(0, max(1, len(entries)), DEGREE):
        group = entries[low : low + DEGREE]
        behind = entries[low + DEGREE][1] if low + DEGREE < len(entries) else end
        yield group[0][0] if group else b"", node_bytes(group, behind, kind)


def _devices(out: _Out, roots: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Write the roots of the devices of a table and the nodes over them; its root is returned."""
    entries = [(key, out.put(root)) for key, root in roots]
    return _tree(out, entries, LEAF_DEVICE, INTERNAL_DEVICE)


def _footer(
    out: _Out,
    version: int,
    roots: Mapping[str, list[tuple[bytes, bytes]]],
    tables: Sequence[TableSchema],
    meta_offset: int,
    bloom: BloomFilter,
) -> None:
    offset = meta_offset.to_bytes(8, "big")
    if version == 3:
        footer = [_devices(out, roots.get("", ())), offset, bloom.encode(version)]
    else:
        trees = [vstr_bytes(name) + _devices(out, members) for name, members in roots.items()]
        footer = [uvarint_bytes(len(trees)), *trees, uvarint_bytes(len(tables))]
        footer += [*map(schema_bytes, tables), offset, bloom.encode(version)]
        footer.append(uvarint_bytes(2 * len(_PROPERTIES)))  # zig-zag, as the other writers
        footer += [vstr_bytes(key) + vstr_bytes(value) for key, value in _PROPERTIES]
    whole = b"".join(footer)
    out.put(whole + len(whole).to_bytes(4, "big") + MAGIC)
