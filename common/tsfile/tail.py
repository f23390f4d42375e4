"""The tail of a TsFile: devices, series, statistics, without touching the data.

The order of reading: footer (TsFileMetadata), then the index it leads to in one read, then the
index tree, device by device. Everything is checked against what is left before it is used; a file
which is not what it says becomes a verdict, never an exception and never half a result.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from common.tsfile.byte_source import ByteSource, LastBlock, TsFileOrigin, opened
from common.tsfile.chunk_headers import read_codecs
from common.tsfile.device import Device, add_up
from common.tsfile.device_names import device_name, is_table_id
from common.tsfile.footer import Footer, TableSchema, read_footer
from common.tsfile.index import DeviceEntry, IndexTree
from common.tsfile.layout import FOOTER_SIZE, HEAD_SIZE, SEPARATOR
from common.tsfile.primitives import Corrupt, Malformed, located
from common.tsfile.series import Series
from common.tsfile.tail_status import Status, TailVerdict, status_of

__all__ = ["MAX_INDEX_BYTES", "Tail", "read_tail"]

MAX_INDEX_BYTES: Final = 256 * 1024 * 1024  # about two million series


class Tail(TailVerdict, frozen=True):
    """A verdict and, of a complete file, all its metadata; of any other there is none.

    Attributes:
        devices: in the file's order.
        tables: schemas, of a table-model file (v4).
        properties: of the footer (v4), raw.
        meta_offset: where the data section ends and the index begins, 0 if unknown.
        first_time: of all points; None without points. In the writer's unit.
        last_time: the same.
        series_count: measurements over all devices, empty ones included, time columns not.
        point_count: points over all measurements.
    """

    devices: tuple[Device, ...] = ()
    tables: tuple[TableSchema, ...] = ()
    properties: dict[str, bytes | None] = msgspec.field(default_factory=dict)
    meta_offset: int = 0
    first_time: int | None = None
    last_time: int | None = None
    series_count: int = 0
    point_count: int = 0

    @property
    def device_count(self) -> int:
        """How many devices there are."""
        return len(self.devices)

    @property
    def encrypt_level(self) -> str:
        """``"0"``: in the clear; ``"1"``, ``"2"``: pages are encrypted (this metadata never is)."""
        return (self.properties.get("encryptLevel") or b"0").decode("ascii", "replace")

    def series(self) -> Iterator[tuple[Device, Series]]:
        """Decode all measurements, device by device."""
        return ((device, series) for device in self.devices for series in device.series())


def read_tail(
    source: TsFileOrigin,
    *,
    structure: bool = True,
    chunk_headers: bool = False,
    max_index_bytes: int = MAX_INDEX_BYTES,
) -> Tail:
    """Read all metadata of a TsFile.

    Args:
        source: a file descriptor (its offset is not touched), the file's bytes, or a path.
        structure: also check what need not hold to be able to read on: each series against its
            chunks, keys against what they lead to, names that occur once, the separator.
        chunk_headers: also read the header of each chunk (one read each) and compare it with its
            series; only they know the encoding and compression. Implies ``structure``.
        max_index_bytes: a larger index is refused, and so are metadata of more than a quarter of
            it (``CORRUPT``, and the reason says so). Memory is about the index and half a kilobyte
            a device; at worst, an index of nothing but tiny devices, twelve times the index.

    Raises:
        OSError: the file cannot be read. Bad content raises nothing.
    """
    with opened(source) as file:
        verdict = status_of(file)
        if not verdict.complete:
            return _without_metadata(verdict, verdict.status, verdict.reason)
        try:
            checked = structure or chunk_headers
            return _read(LastBlock(file), verdict, checked, chunk_headers, max_index_bytes)
        except Corrupt as bad:
            return _without_metadata(verdict, Status.CORRUPT, str(bad))


def _without_metadata(verdict: TailVerdict, status: Status, reason: str) -> Tail:
    return Tail(status, verdict.version, verdict.size, reason)


def _read(
    file: ByteSource,
    verdict: TailVerdict,
    structure: bool,
    chunk_headers: bool,
    max_index_bytes: int,
) -> Tail:
    version = verdict.version or 0
    footer, metadata_offset = _read_footer(file, version, max_index_bytes // 4)
    meta_offset = footer.meta_offset
    if not HEAD_SIZE <= meta_offset < metadata_offset:
        raise Corrupt(f"a meta offset of {meta_offset}, outside of the file's {file.size} bytes")
    length = metadata_offset - meta_offset
    if length > max_index_bytes:
        raise Corrupt(f"an index of {length} bytes, more than the limit of {max_index_bytes}")
    index = file.read(meta_offset, length)
    if structure and index[0] != SEPARATOR:
        raise Corrupt(f"byte {index[0]:#04x} instead of the separator at offset {meta_offset}")
    tables = frozenset(table.name for table in footer.tables)
    with located(meta_offset, "the index"):
        devices, names = [], set()
        for entry in _entries(footer, index, version, structure):
            totals = add_up(index, entry.runs, meta_offset, check=structure)
            codecs = read_codecs(file, index, entry.runs, meta_offset) if chunk_headers else None
            table = version > 3 and is_table_id(entry.key, tables)
            name = device_name(entry.key, table=table)
            if structure and name in names:
                raise Malformed(f"a second device of the name {name!r},", entry.runs[0][0])
            names.add(name)
            devices.append(Device(name, entry.key, table, totals, index, entry.runs, codecs))
    return _sum_up(verdict, footer, tuple(devices))


def _read_footer(file: ByteSource, version: int, limit: int) -> tuple[Footer, int]:
    """Read TsFileMetadata and where it begins; its length has been checked with the status."""
    length = int.from_bytes(file.read(file.size - FOOTER_SIZE, 4), "big", signed=True)
    if length > limit:
        raise Corrupt(f"metadata of {length} bytes, more than the limit of {limit}")
    begin = file.size - FOOTER_SIZE - length
    with located(begin, "the metadata"):
        return read_footer(file.read(begin, length), version), begin


def _entries(footer: Footer, index: bytes, version: int, structure: bool) -> Iterator[DeviceEntry]:
    tree = IndexTree(index, footer.meta_offset, segmented=version > 3, strict=structure)
    seen = set()
    for name, root in footer.roots:
        for entry in tree.devices(root):
            if structure and version > 3 and name not in ("", entry.key[0]):
                raise Malformed(f"device {entry.key} in the table {name!r},", entry.runs[0][0])
            if structure and entry.key in seen:
                raise Malformed(f"device {entry.key} for the second time,", entry.runs[0][0])
            seen.add(entry.key)
            yield entry


def _sum_up(verdict: TailVerdict, footer: Footer, devices: tuple[Device, ...]) -> Tail:
    starts = [device.start for device in devices if device.start is not None]
    ends = [device.end for device in devices if device.end is not None]
    return Tail(
        verdict.status,
        verdict.version,
        verdict.size,
        "complete, and its index is sound",
        devices=devices,
        tables=footer.tables,
        properties=footer.properties,
        meta_offset=footer.meta_offset,
        first_time=min(starts, default=None),
        last_time=max(ends, default=None),
        series_count=sum([device.series_count for device in devices]),
        point_count=sum([device.point_count for device in devices]),
    )
