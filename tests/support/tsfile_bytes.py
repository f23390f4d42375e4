"""Small, valid TsFiles (v3, v4; tree and table model) from plain Python values.

For tests that need a real TsFile without a native package. Same input, same bytes. The pages are
PLAIN and uncompressed, times are TS_2DIFF, so any reader of the format can decode them.

    build({"root.sg.d1": {"s1": [(1, 10), (2, 20)], "s2": [(1, 0.5)]}})           # a v4 tree file
    build({"root.sg.d1": {"s1": [(1, 10)]}}, version=3)                            # the same, v3
    build({"root.sg.d1": {"a": [(1, 1)], "b": [(2, 2)]}}, aligned=["root.sg.d1"])  # one time column
    build({("sensors", "plant1", None): {"temp": [(1, 20.5)]}})                    # table model
    build({"root.sg.d1": {"s1": [(1, 10)]}}, pad_to=5_000_000)                     # exactly 5 MB
    build(SAMPLE, chunks=3, page_points=10)                                        # more structure

This module shares no code with the reader that it tests.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import re
import struct
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

Value = bool | int | float | str | bytes
Points = Sequence[tuple[int, Value]]
DeviceKey = str | tuple[str | None, ...]
Devices = Mapping[DeviceKey, Mapping[str, Points]]

SAMPLE: Final[Devices] = {
    "root.sg.d1": {"s1": [(t, t * 10) for t in range(1, 101)]},
    "root.sg.d2": {"s1": [(t, t / 4) for t in range(50, 60)], "s2": [(50, "on"), (59, "off")]},
}

MAGIC: Final = b"TsFile"
CODES: Final = {
    "BOOLEAN": 0, "INT32": 1, "INT64": 2, "FLOAT": 3, "DOUBLE": 4, "TEXT": 5,
    "VECTOR": 6, "TIMESTAMP": 8, "DATE": 9, "BLOB": 10, "STRING": 11,
}  # fmt: skip
PLAIN, TS_2DIFF, UNCOMPRESSED = 0, 4, 0
TIME_FLAG, VALUE_FLAG = 0x80, 0x40
INTERNAL_DEVICE, LEAF_DEVICE, INTERNAL_MEASUREMENT, LEAF_MEASUREMENT = range(4)
_UNSET_START, _UNSET_END = 2**63 - 1, -(2**63)


def build(
    devices: Devices,
    *,
    version: int = 4,
    types: Mapping[str, str] | None = None,
    aligned: Collection[str] = (),
    timeless: Collection[str] = (),
    chunks: int = 1,
    page_points: int = 1000,
    max_degree: int = 256,
    pad_to: int | None = None,
    properties: Mapping[str, str | None] | None = None,
) -> bytes:
    """Return the bytes of one closed TsFile.

    Args:
        devices: device -> measurement -> points ``(time, value)``, times increasing. A device is
            a path (``"root.sg.d1"``, nodes may be back-quoted) or, for a table-model file (v4), a
            tuple ``(table, tag, ...)``, ``None`` for a null tag. All keys are of the one kind.
        version: 3 or 4.
        types: measurement -> type name (``"INT32"``); otherwise bool is BOOLEAN, int INT64,
            float DOUBLE, str TEXT, bytes BLOB. A measurement without points needs its type here.
        aligned: tree devices whose series share one time column (table devices always do).
        timeless: those of them whose time column is left out, as Java does without a point.
        chunks: chunk groups a device's points are spread over.
        page_points: points (rows) a page; a chunk of more than one page carries page statistics.
        max_degree: fan-out of the index tree; small values make deep trees of small files.
        pad_to: grow the file to exactly this many bytes (or, where a length prefix steps over
            it, up to 8 more) by a measurement ``pad`` with one BLOB, in the first device.
        properties: what the v4 footer carries, instead of "not encrypted".

    Raises:
        ValueError: when the file cannot be of that shape or is larger than ``pad_to`` already.
    """
    make = functools.partial(
        _File, version=version, types=dict(types or {}), aligned=frozenset(aligned),
        timeless=frozenset(timeless), chunks=chunks, page_points=page_points, degree=max_degree,
        properties=properties,
    )  # fmt: skip
    if pad_to is None:
        return make(devices).whole()
    length = pad_to - len(make(_padded(devices, 0)).whole())
    if length < 0:
        raise ValueError(f"the file has {pad_to - length} bytes unpadded, more than {pad_to}")
    content = make(_padded(devices, length)).whole()
    while len(content) > pad_to and length:
        shorter = max(0, length - (len(content) - pad_to))
        smaller = make(_padded(devices, shorter)).whole()
        if len(smaller) < pad_to:
            return content if shorter + 1 == length else _nearest(make, devices, shorter, pad_to)
        length, content = shorter, smaller
    return content


def flushed(
    flushes: Sequence[Devices],
    *,
    closed: bool,
    aligned: Collection[DeviceKey] = (),
    types: Mapping[str, str] | None = None,
) -> tuple[bytes, list[dict[DeviceKey, int]]]:
    """A v4 file as a database writes it: each flush adds chunks, which may hold the same times.

    The bytes of an open one are the begin of those that it has later.

    Args:
        flushes: in order; each series of a device is one chunk. A value of a table may be None:
            of a row that has none, of any of its series.
        closed: whether the index and the footer are there.
        aligned: tree devices whose series share one time column.
        types: see `build`.

    Returns:
        The bytes, and for each flush device -> offset of the header of its (first) chunk.
    """
    together: dict[DeviceKey, dict[str, list[tuple[int, Value]]]] = {}
    for devices in flushes:
        for key, series in devices.items():
            for name, points in series.items():
                together.setdefault(key, {}).setdefault(name, []).extend(points)
    every = {
        key: {name: sorted(points, key=lambda each: each[0]) for name, points in series.items()}
        for key, series in together.items()
    }
    file = _File(
        every, version=4, types=dict(types or {}), aligned=frozenset(map(str, aligned)),
        timeless=frozenset(), chunks=1, page_points=1000, degree=256, properties=None,
    )  # fmt: skip
    offsets = file.flush(flushes)
    return (file.whole() if closed else bytes(file.out)), offsets


def _nearest(make: Callable[[Devices], _File], devices: Devices, low: int, pad_to: int) -> bytes:
    """The smallest file of at least ``pad_to`` bytes with a pad longer than ``low``."""
    for length in range(low + 1, low + 16):
        content = make(_padded(devices, length)).whole()
        if len(content) >= pad_to:
            return content
    raise AssertionError("sixteen bytes step over every length prefix")


def _padded(devices: Devices, length: int) -> Devices:
    """``devices`` with a BLOB of ``length`` bytes at the first time of the first device."""
    first = min(devices, key=_sort_key)
    time = min(time for points in devices[first].values() for time, _ in points)
    return {**devices, first: {**devices[first], "pad": [(time, noise(length))]}}


def noise(length: int) -> bytes:
    """``length`` bytes which no block repeats and nothing compresses, always the same."""
    return _noise(1 << max(0, length - 1).bit_length())[:length]


@functools.lru_cache(maxsize=4)
def _noise(length: int) -> bytes:
    return hashlib.shake_128(b"tsferry").digest(length)


class _Column(NamedTuple):
    """One series of one device as it will stand in the file."""

    name: str
    code: int
    flag: int
    points: list[tuple[int, Any]]


class _Series(NamedTuple):
    column: _Column
    written: list[tuple[int, bytes]]  # (offset of the chunk header, the chunk's statistics)


class _File:
    """One file on its way to bytes: data section, index, footer."""

    def __init__(
        self,
        devices: Devices,
        *,
        version: int,
        types: dict[str, str],
        aligned: frozenset[str],
        timeless: frozenset[str],
        chunks: int,
        page_points: int,
        degree: int,
        properties: Mapping[str, str | None] | None,
    ) -> None:
        kinds = {isinstance(key, tuple) for key in devices}
        if version not in (3, 4) or len(kinds) > 1 or (version == 3 and True in kinds):
            raise ValueError("version is 3 or 4; table devices need 4 and stand alone")
        self.version, self.types, self.aligned = version, types, aligned
        self.timeless = timeless
        self.chunks, self.page_points, self.degree = chunks, page_points, degree
        self.properties = {"encryptLevel": "0", "encryptType": "UNENCRYPTED", "encryptKey": None}
        if properties is not None:
            self.properties = dict(properties)
        self.devices = {key: devices[key] for key in sorted(devices, key=_sort_key)}
        self.out = bytearray(MAGIC + bytes([version]))
        self.flushes: dict[DeviceKey, list[_Series]] = {}

    def flush(self, flushes: Sequence[Devices]) -> list[dict[DeviceKey, int]]:
        """Write the data section; `whole` adds the rest. Offsets of the first chunks."""
        parts: dict[DeviceKey, dict[str, _Series]] = {}
        offsets: list[dict[DeviceKey, int]] = []
        for devices in flushes:
            offsets.append({})
            for key in sorted(devices, key=_sort_key):
                self.out += b"\x00" + self._device_id(key)
                offsets[-1][key] = len(self.out)
                for part in self._columns(key, devices[key]):
                    of_key = parts.setdefault(key, {})
                    whole, written = of_key.setdefault(
                        part.name, _Series(part._replace(points=[]), [])
                    )
                    whole.points.extend(part.points)
                    written.append((len(self.out), statistics(part.code, part.points)))
                    self.out += self._chunk(part, part.points)
        for of_key in parts.values():
            for whole, _ in of_key.values():
                whole.points.sort(key=lambda point: point[0])
        self.flushes = {
            key: [of_key[name] for name in sorted(of_key)] for key, of_key in parts.items()
        }
        return offsets

    def whole(self) -> bytes:
        written = self.flushes or {key: self._write_device(key) for key in self.devices}
        meta_offset = len(self.out)
        self.out += b"\x02"
        roots = [(key, self._write_series(series)) for key, series in written.items()]
        footer = self._footer(roots, meta_offset)
        self.out += footer + struct.pack(">i", len(footer)) + MAGIC
        return bytes(self.out)

    # the data section

    def _write_device(self, key: DeviceKey) -> list[_Series]:
        columns = self._columns(key)
        series = [_Series(column, []) for column in columns]
        rows = max((len(column.points) for column in columns), default=0)
        step = max(1, -(-rows // self.chunks))
        for low in range(0, max(rows, 1), step):
            self.out += b"\x00" + self._device_id(key)
            for column, offsets in series:
                part = column.points[low : low + step]
                if part or column.flag or not offsets:
                    offsets.append((len(self.out), statistics(column.code, part)))
                    self.out += self._chunk(column, part)
        return series

    def _columns(self, key: DeviceKey, series: Mapping[str, Points] | None = None) -> list[_Column]:
        """The series of a device, or a part of them."""
        given = self.devices[key] if series is None else series
        series = {name: list(points) for name, points in sorted(given.items())}
        codes = {name: self._code(name, points) for name, points in series.items()}
        if not (isinstance(key, tuple) or key in self.aligned):
            return [_Column(name, codes[name], 0, points) for name, points in series.items()]
        times = sorted({time for points in series.values() for time, _ in points})
        columns = [_Column("", CODES["VECTOR"], TIME_FLAG, [(time, time) for time in times])]
        if key in self.timeless:
            columns = []
        for name, points in series.items():
            values = dict(points)
            rows = [(time, values.get(time)) for time in times]
            columns.append(_Column(name, codes[name], VALUE_FLAG, rows))
        return columns

    def _code(self, name: str, points: Points) -> int:
        if name in self.types:
            return CODES[self.types[name]]
        kinds = {bool: "BOOLEAN", int: "INT64", float: "DOUBLE", str: "TEXT", bytes: "BLOB"}
        seen = {type(value) for _, value in points if value is not None}
        if len(seen) != 1:
            raise ValueError(f"{name}: values of one type, or the type's name in types=")
        return CODES[kinds[seen.pop()]]

    def _chunk(self, column: _Column, part: list[tuple[int, Any]]) -> bytes:
        starts = range(0, len(part), self.page_points)
        pages = [part[low : low + self.page_points] for low in starts]
        if all(value is None for _, value in part):
            pages = []
        body = b"".join(_page(column, page, with_statistics=len(pages) > 1) for page in pages)
        marker = (5 if len(pages) <= 1 else 1) | column.flag
        encoding = TS_2DIFF if column.flag == TIME_FLAG else PLAIN
        return (
            bytes([marker]) + vstr(column.name) + uvarint(len(body))
            + bytes([column.code, UNCOMPRESSED, encoding]) + body
        )  # fmt: skip

    # the index

    def _write_series(self, series: list[_Series]) -> bytes:
        """Write a device's TimeseriesMetadata and index; its root node is returned."""
        entries = []
        for at, (column, written) in enumerate(series):
            if at % self.degree == 0:
                entries.append((vstr(column.name), len(self.out)))
            many = len(written) > 1
            chunks = b"".join(
                struct.pack(">q", offset) + (stats if many else b"") for offset, stats in written
            )
            self.out += bytes([column.flag | many]) + vstr(column.name) + bytes([column.code])
            self.out += uvarint(len(chunks)) + statistics(column.code, column.points) + chunks
        return self._tree(entries, LEAF_MEASUREMENT, INTERNAL_MEASUREMENT)

    def _device_tree(self, roots: list[tuple[DeviceKey, bytes]]) -> bytes:
        entries = []
        for key, root in roots:
            entries.append((self._device_id(key), len(self.out)))
            self.out += root
        return self._tree(entries, LEAF_DEVICE, INTERNAL_DEVICE)

    def _tree(self, entries: list[tuple[bytes, int]], leaf: int, internal: int) -> bytes:
        kind = leaf
        while True:
            end = len(self.out)
            groups = [
                entries[low : low + self.degree]
                for low in range(0, max(1, len(entries)), self.degree)
            ]
            ends = [group[0][1] for group in groups[1:]] + [end]
            nodes = [_node(group, end, kind) for group, end in zip(groups, ends, strict=True)]
            if len(nodes) == 1:
                return nodes[0]
            entries = []
            for group, node in zip(groups, nodes, strict=True):
                entries.append((group[0][0], len(self.out)))
                self.out += node
            kind = internal

    # the footer

    def _footer(self, roots: list[tuple[DeviceKey, bytes]], meta_offset: int) -> bytes:
        if self.version == 3:
            return self._device_tree(roots) + struct.pack(">q", meta_offset)
        tables: dict[str, list[tuple[DeviceKey, bytes]]] = {}
        for key, root in roots:
            tables.setdefault(_segments(key)[0] or "", []).append((key, root))
        trees = [vstr(name) + self._device_tree(members) for name, members in tables.items()]
        schemas = [self._schema(name) for name in tables if isinstance(roots[0][0], tuple)]
        properties = [vstr(key) + vstr(value) for key, value in self.properties.items()]
        return (
            uvarint(len(trees)) + b"".join(trees) + uvarint(len(schemas)) + b"".join(schemas)
            + struct.pack(">q", meta_offset) + b"\x00"
            + varint(len(properties)) + b"".join(properties)
        )  # fmt: skip

    def _schema(self, table: str) -> bytes:
        """tag1..tagN and then the fields, as Java lays a TableSchema out."""
        tags, fields = 0, {}
        for key, series in self.devices.items():
            if key[0] == table:
                tags = max(tags, len(key) - 1)
                fields |= {name: self._code(name, points) for name, points in series.items()}
        columns = [(f"tag{at + 1}", CODES["STRING"], 0) for at in range(tags)]
        columns += [(name, code, 1) for name, code in sorted(fields.items())]
        return vstr(table) + uvarint(len(columns)) + b"".join(
            blob(name.encode()) + bytes([code, PLAIN, UNCOMPRESSED])
            + struct.pack(">ii", 0, category)
            for name, code, category in columns
        )  # fmt: skip

    def _device_id(self, key: DeviceKey) -> bytes:
        if self.version == 3:
            return vstr(str(key))
        segments = _segments(key)
        return uvarint(len(segments)) + b"".join(map(vstr, segments))


def _segments(key: DeviceKey) -> tuple[str | None, ...]:
    """A path as v4 cuts it: up to three nodes together, then one each; no nulls at the end."""
    if isinstance(key, tuple):
        return key if key[-1] is not None else _segments(key[:-1])
    nodes = re.findall(r"`(?:[^`]|``)*`|[^.]+", key)
    head = max(1, min(3, len(nodes) - 1))
    return (".".join(nodes[:head]), *nodes[head:])


def _sort_key(key: DeviceKey) -> tuple[bytes, ...]:
    return tuple(b"" if part is None else b"\x01" + part.encode() for part in _segments(key))


def _node(entries: list[tuple[bytes, int]], end: int, kind: int) -> bytes:
    children = b"".join(key + struct.pack(">q", offset) for key, offset in entries)
    return uvarint(len(entries)) + children + struct.pack(">qb", end, kind)


# primitives


def uvarint(number: int) -> bytes:
    """LEB128."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def varint(number: int) -> bytes:
    """Zig-zag LEB128."""
    return uvarint(number << 1 if number >= 0 else (-number << 1) - 1)


def vstr(text: str | None) -> bytes:
    """A string behind its zig-zag length."""
    if text is None:
        return varint(-1)
    raw = text.encode()
    return varint(len(raw)) + raw


def blob(raw: bytes) -> bytes:
    """Bytes behind their int32 length."""
    return struct.pack(">i", len(raw)) + raw


def resource(
    devices: Mapping[str, tuple[int, int]], shared: str | None = None, begin: int = 0
) -> bytes:
    """A `.resource` of a 2.x database: times of devices, a shared deletion file and where in it."""
    count, names = struct.pack(">i", len(devices)), list(devices)
    ranges = b"".join(struct.pack(">qq", *devices[name]) for name in names)
    ids = b"".join(uvarint(1) + vstr(name) + struct.pack(">i", at) for at, name in enumerate(names))
    tail = struct.pack(">i", -1)
    if shared is not None:
        tail = blob(shared.encode()) + struct.pack(">q", begin)
    return b"\x01\x03" + count + ranges + ids + struct.pack(">qq", 0, 0) + tail + b"\x00"


# statistics, pages


def statistics(code: int, points: Sequence[tuple[int, Any]]) -> bytes:
    """The Statistics of ``points`` (nulls left out), empty ones included."""
    times = [time for time, value in points if value is not None]
    values = [_raw(value) for _, value in points if value is not None]
    head = struct.pack(">qq", times[0], times[-1]) if times else struct.pack(
        ">qq", _UNSET_START, _UNSET_END
    )  # fmt: skip
    return uvarint(len(times)) + head + _body(code, values)


def _body(code: int, values: list[Any]) -> bytes:
    if code in (CODES["VECTOR"], CODES["BLOB"]):
        return b""
    if code in (CODES["TEXT"], CODES["STRING"]):
        first, last = (values[0], values[-1]) if values else (b"", b"")
        body = blob(first) + blob(last)
        if code == CODES["STRING"]:
            body += blob(min(values, default=b"")) + blob(max(values, default=b""))
        return body
    first, last = (values[0], values[-1]) if values else (0, 0)
    if code == CODES["BOOLEAN"]:
        return struct.pack(">??q", first, last, sum(values))
    low, high = min(values, default=0), max(values, default=0)
    shapes = {"INT32": ">4iq", "DATE": ">4iq", "INT64": ">4qd", "TIMESTAMP": ">4qd"}
    shapes |= {"FLOAT": ">4fd", "DOUBLE": ">4dd"}
    shape = next(shapes[name] for name in shapes if CODES[name] == code)
    total = sum(values) if shape.endswith("q") else _added_up(values)
    return struct.pack(shape, low, high, first, last, total)


def _added_up(values: Sequence[Any]) -> float:
    """One after the other, as Java does it; ``sum`` of Python 3.12 rounds less."""
    total = float(values[0]) if values else 0.0
    for value in values[1:]:
        total += float(value)
    return total


def _raw(value: Value) -> bool | int | float | bytes:
    return value.encode() if isinstance(value, str) else value


def _page(column: _Column, rows: list[tuple[int, Any]], *, with_statistics: bool) -> bytes:
    values = _values(column.code, [value for _, value in rows if value is not None])
    if column.flag == TIME_FLAG:
        body = times([time for time, _ in rows])
    elif column.flag == VALUE_FLAG:
        if all(value is None for _, value in rows):
            return uvarint(0)
        body = struct.pack(">i", len(rows)) + _bitmap(rows) + values
    else:
        encoded = times([time for time, _ in rows])
        body = uvarint(len(encoded)) + encoded + values
    header = uvarint(len(body)) * 2
    return header + (statistics(column.code, rows) if with_statistics else b"") + body


def _bitmap(rows: list[tuple[int, Any]]) -> bytes:
    """One bit a row, the highest first, set where there is a value."""
    bits = "".join("0" if value is None else "1" for _, value in rows)
    width = -(-len(bits) // 8)
    return int(bits.ljust(width * 8, "0"), 2).to_bytes(width, "big")


def _values(code: int, values: list[Any]) -> bytes:
    """PLAIN."""
    raw = [_raw(value) for value in values]
    if code in (CODES["INT32"], CODES["DATE"]):
        return b"".join(map(varint, raw))
    if code in (CODES["TEXT"], CODES["STRING"], CODES["BLOB"]):
        return b"".join(varint(len(value)) + value for value in raw)
    shape = {0: "?", 2: "q", 8: "q", 3: "f", 4: "d", 6: "q"}[code]
    return struct.pack(f">{len(raw)}{shape}", *raw)


def times(stamps: Sequence[int]) -> bytes:
    """TS_2DIFF, blocks of a first value and up to 128 deltas."""
    return b"".join(_block(stamps[low : low + 129]) for low in range(0, len(stamps), 129))


def _block(stamps: Sequence[int]) -> bytes:
    deltas = [later - earlier for earlier, later in itertools.pairwise(stamps)]
    least = min(deltas, default=2**63 - 1)
    width = max((delta - least for delta in deltas), default=0).bit_length()
    packed = 0
    for delta in deltas:
        packed = packed << width | (delta - least)
    size = -(-len(deltas) * width // 8)
    packed <<= size * 8 - len(deltas) * width
    header = struct.pack(">iiqq", len(deltas), width, least, stamps[0])
    return header + packed.to_bytes(size, "big")
