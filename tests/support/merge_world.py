"""Files that overlap in all ways, what was deleted of them, and what a dictionary says they hold.

What readers get is reckoned here time by time and cell by cell, from what was drawn; nothing of the
readers' or the merge's code has a part in it.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final

import numpy as np

from common.tsfile import ColumnCategory, Compression, DataType, Encoding, TableColumn, TableSchema
from common.tsfile.device_names import device_segments
from receiver.metadata.model.ranks import NOW, Rank, highest
from receiver.points import Binaries, Column
from receiver.points.columns import dtype_of
from receiver.superseding.asking import FileAsked, NotesAsked
from receiver.writing.chunk_pages import SeriesForm
from receiver.writing.page_compression import compressed_as
from receiver.writing.page_cuts import Cuts
from receiver.writing.tsfile_writer import TsFileWriter
from receiver.writing.value_encoding import SAFE, written_as
from tests.support.tsfile_bytes import flushed

TYPES: Final = tuple(each for each in SAFE if each != DataType.VECTOR)
OLD_TYPES: Final = TYPES[:6]
EDGES: Final = (-(2**63), -(2**63) + 1, 2**63 - 2, 2**63 - 1)
ORIGINS: Final = (0, 0, 0, -30, -(2**40), 1_700_000_000_000, 1_700_000_000_000_000_000)
"""Of times, in units from a second to a nanosecond; some are before 1970, or on both sides."""
NANS: Final = (0x7FF8000000000000, 0x7FF0000000000001, -0x8000000000000, -1)
"""Bits of a DOUBLE, as 64 bits with a sign: whoever compares values takes one for another."""
TABLE: Final = "wind"
SENDERS: Final = ("one", "two")

Cells = dict[int, dict[str, Any]]
"""Rows of a device by time; a cell that is not there is a null."""
Answer = dict[str, Cells]
"""By the name of the device."""


@dataclass
class MadeFile:
    """A file.

    Attributes:
        rows: device -> rows of each flush, one after the other.
        version: of the format.
    """

    asked: FileAsked
    rank: Rank
    rows: dict[str, list[Cells]]
    version: int


@dataclass
class Deletion:
    """One that a sender told, of the file `physical` or of none; it reaches others by its floor.

    Attributes:
        form: of its deletion file, see `DELETION_FORMS`.
        reaches: whether the chunks of its own file are older than it; in others it hides all.
    """

    sender: str
    physical: str | None
    floor: int
    what: tuple[str | None, str | None, int, int]
    form: str = "mods2"
    reaches: bool = True


class MergeWorld:
    """One case.

    Attributes:
        versions: of the format, that files may have: an edge that was upgraded has both.
        has_properties: whether the columns of a file's table have some.
        step: between two times.
        codecs: of each series the (encoding, compression) that files have it with.
    """

    def __init__(self, rng: Random, directory: Path) -> None:
        self._rng, self._directory = rng, directory
        self._more = Random(rng.getrandbits(64))
        self.is_table = rng.random() < 0.4
        self.versions = (4,) if self.is_table else rng.choice(((3,), (4,), (4,), (3, 4)))
        types = OLD_TYPES if 3 in self.versions else TYPES
        names = ("a", "b", "c", "d")[: rng.randint(1, 4)]
        self.types = {name: rng.choice(types) for name in names}
        self.aligned = {each: self.is_table or rng.random() < 0.5 for each in self._device_names()}
        self.step = 1
        self.times = self._times()
        self.codecs: dict[tuple[str, str], set[tuple[int, int]]] = {}
        self.has_properties = False
        self.files: list[MadeFile] = []
        self.deletions: list[Deletion] = []
        self._with_circles = rng.random() < 0.3
        for number in range(rng.randint(1, 7)):
            self.files.append(self._file(number))
        for _ in range(rng.choice((0, 0, 1, 4))):
            self.deletions.append(self._deletion())

    def _device_names(self) -> list[str]:
        if self.is_table:
            return [f"{TABLE}:t1", f"{TABLE}:null.x", TABLE + ":"][: self._rng.randint(1, 3)]
        return ["root.sg.d1", "root.sg.d2", "root.sg.d1.`a.b`"][: self._rng.randint(1, 3)]

    def _times(self) -> list[int]:
        rng = self._rng
        some = list(range(rng.choice((6, 20, 60))))
        if rng.random() < 0.2:
            return [*some, *EDGES]
        self.step = self._more.choice((1, 1, 1, 7, 1000))
        origin = self._more.choice(ORIGINS)
        return [origin + each * self.step for each in some]

    @property
    def version(self) -> int:
        """Of the outputs."""
        return max(each.version for each in self.files)

    # -- files ---------------------------------------------------------------------------------

    def _file(self, number: int) -> MadeFile:
        rng = self._rng
        version = rng.choice(self.versions)
        by_flush = rng.random() < 0.3 and version == 4 and self._can_flush
        flushes = rng.randint(1, 3) if by_flush else 1
        rows: dict[str, list[Cells]] = {}
        for device in rng.sample(list(self.aligned), rng.randint(1, len(self.aligned))):
            rows[device] = [self._cells(device) for _ in range(flushes)]
        if by_flush:
            content = self._flushed(rows, flushes)
        else:
            content = self._written({device: found[0] for device, found in rows.items()}, version)
        path = self._directory / f"in-{number}.tsfile"
        path.write_bytes(content)
        rank = self._rank(number)
        asked = FileAsked(
            physical=f"sequence/root.sg/0/0/{number}.tsfile", path=str(path),
            sender=rng.choice(SENDERS), size=len(content),
            md5=hashlib.md5(content).hexdigest(), series=0, points=0, start=None, end=None,
            name=rank.name, first=rank.first, closed=rank.closed, last=rank.last,
            loaded=rank.loaded,
        )  # fmt: skip
        return MadeFile(asked, rank, rows, version)

    @property
    def _can_flush(self) -> bool:
        plain = {DataType.INT64, DataType.DOUBLE, DataType.BOOLEAN, DataType.INT32}
        in_reach = (
            self.times[0] > -100 and self.times[-1] < 100
        )  # differences of that writer do not wrap around
        return in_reach and set(self.types.values()) <= plain

    def _rank(self, number: int) -> Rank:
        rng = self._rng
        physical = f"sequence/root.sg/0/0/{number}.tsfile"
        if not self._with_circles:
            name: Any = (rng.randint(0, 1), number, number, 0, 0)
            return Rank(name, 1, rng.randint(1, 3), NOW, number, physical)
        name = None if rng.random() < 0.1 else tuple(rng.randint(0, 2) for _ in range(5))
        first = rng.randint(1, 6)
        closed = rng.randint(first, 7)
        last = rng.choice([NOW, closed, rng.randint(closed, 8)])
        return Rank(name, first, closed, last, rng.randint(1, 3), physical)

    def _cells(self, device: str) -> Cells:
        rng = self._rng
        low = rng.randrange(len(self.times))
        pool = self.times[low : low + rng.choice((3, 10, 80))]
        times = rng.sample(pool, rng.randint(1, len(pool)))
        names = rng.sample(list(self.types), rng.randint(1, len(self.types)))
        found: Cells = {}
        for time in sorted(times):
            row = {name: self._value(name) for name in names if rng.random() < 0.8}
            if row or self.aligned[device]:
                found[time] = row
        if not found or not any(found.values()):
            found[min(times)] = {names[0]: self._value(names[0])}
        return dict(sorted(found.items()))

    def _value(self, name: str) -> Any:
        """As bits, or bytes."""
        rng, code = self._rng, self.types[name]
        if code == DataType.BOOLEAN:
            return rng.randint(0, 1)
        if code in (DataType.TEXT, DataType.STRING, DataType.BLOB):
            return rng.choice((b"", b"on", b"off", bytes(rng.randrange(256) for _ in range(5))))
        if code == DataType.DATE:
            return rng.choice((10101, 19700101, 20240229, 99991231))
        bits = np.dtype(dtype_of(code)).itemsize * 8
        if code in (DataType.FLOAT, DataType.DOUBLE):
            form, whole = ("<f", "<i") if bits == 32 else ("<d", "<q")
            some = rng.choice((0.0, -0.0, 1.5, float("nan"), float("-inf"), rng.random() * 1e9))
            if bits == 64 and self._more.random() < 0.1:
                return self._more.choice(NANS)
            if rng.random() < 0.9:
                return struct.unpack(whole, struct.pack(form, some))[0]
        most = 2 ** (bits - 1)
        return rng.choice((0, 1, -1, most - 1, -most, rng.randint(-most, most - 1)))

    def _written(self, rows: Mapping[str, Cells], version: int) -> bytes:
        """One flush, by the project's writer, with pages and chunks cut at random."""
        rng = self._rng
        cuts = Cuts(
            page_points=rng.choice((1, 5, 100)), page_bytes=rng.choice((1, 30, 1000)), page_texts=1,
            chunk_points=rng.choice((1, 7, 1000)), chunk_bytes=rng.choice((1, 100, 10000)),
            group_bytes=rng.choice((1, 100, 10000)),
        )  # fmt: skip
        content = bytearray()
        tables = [self._table()] if self.is_table else []
        self.has_properties |= self.is_table
        writer = TsFileWriter(content.extend, version=version, tables=tables, cuts=cuts)
        for device, cells in rows.items():
            segments = device_segments(device, version)
            names = [each for each in self.types if any(each in row for row in cells.values())]
            if self.aligned[device] and rng.random() < 0.2:
                names = list(self.types)  # some without a value
            forms = [self._form(device, name) for name in names]
            if self.aligned[device]:
                with writer.aligned_device(segments, forms) as target:
                    columns = [self._column(name, cells) for name in names]
                    target.write(np.array(list(cells), np.int64), columns)
                continue
            with writer.plain_device(segments) as plain:
                for form in forms:
                    points = {t: row for t, row in cells.items() if form.measurement in row}
                    times = np.array(list(points), np.int64)
                    plain.write(form, times, self._column(form.measurement, points))
        writer.finish()
        return bytes(content)

    def _form(self, device: str, name: str) -> SeriesForm:
        code = self.types[name]
        encoding = int(written_as(self._rng.choice(list(Encoding)), code))
        packed = self._rng.choice(list(Compression))
        if packed == Compression.LZMA2 and self._rng.random() < 0.8:  # it takes its time
            packed = Compression.LZ4
        compression = int(compressed_as(packed))
        self.codecs.setdefault((device, name), set()).add((encoding, compression))
        return SeriesForm(name, int(code), encoding, compression)

    def _column(self, name: str, cells: Cells) -> Column:
        code = self.types[name]
        valid = np.array([name in row for row in cells.values()])
        values = [row.get(name) for row in cells.values()]
        dtype = dtype_of(code)
        if dtype is None:
            whole = [value or b"" for value in values]
            offsets = np.cumsum([0, *map(len, whole)], dtype=np.int32)
            found: Any = Binaries(offsets, np.frombuffer(b"".join(whole), np.uint8))
        else:
            kind = np.dtype(dtype)
            bits = np.dtype(f"i{kind.itemsize}") if kind.kind == "f" else kind
            found = np.array([value or 0 for value in values], bits).view(kind)
        return Column(int(code), found, None if valid.all() else valid)

    def _table(self) -> TableSchema:
        tags = [
            TableColumn(name, DataType.STRING, Encoding.PLAIN, Compression.LZ4, ColumnCategory.TAG)
            for name in ("site", "unit")
        ]
        fields = [
            TableColumn(
                name, code, SAFE[code], Compression.LZ4, ColumnCategory.FIELD, (("unit", name),)
            )
            for name, code in self.types.items()
        ]
        return TableSchema(TABLE, (*tags, *fields))

    def _flushed(self, rows: Mapping[str, list[Cells]], flushes: int) -> bytes:
        """Several flushes, whose times may be the same, by the tests' own writer."""

        def value(name: str, bits: Any) -> Any:
            if self.types[name] == DataType.DOUBLE:
                return struct.unpack("<d", struct.pack("<q", bits))[0]
            return bool(bits) if self.types[name] == DataType.BOOLEAN else bits

        def key(device: str) -> Any:
            return tuple(_segments(device)) if self.is_table else device

        parts = []
        for number in range(flushes):
            devices: dict[Any, dict[str, list[Any]]] = {}
            for device, several in rows.items():
                series: dict[str, list[Any]] = {}
                for name in self.types:
                    points = [
                        (time, value(name, row[name]) if name in row else None)
                        for time, row in several[number].items()
                        if name in row or self.is_table
                    ]
                    if any(each is not None for _, each in points):
                        series[name] = points
                        codec = int(Encoding.PLAIN), int(Compression.UNCOMPRESSED)
                        self.codecs.setdefault((device, name), set()).add(codec)
                devices[key(device)] = series
            parts.append(devices)
        for several in rows.values():
            if not self.is_table:  # a row of the tree model without a value is none
                for number, cells in enumerate(several):
                    several[number] = {time: row for time, row in cells.items() if row}
        types = {name: DataType(code).name for name, code in self.types.items()}
        aligned = [] if self.is_table else [each for each, yes in self.aligned.items() if yes]
        return flushed(parts, closed=True, types=types, aligned=aligned)[0]

    # -- deletions -----------------------------------------------------------------------------

    def _deletion(self) -> Deletion:
        rng = self._rng
        file = rng.choice(self.files).asked
        low, high = sorted((rng.choice(self.times), rng.choice(self.times)))
        what = (
            rng.choice((None, *self.aligned)), rng.choice((None, None, *self.types)), low, high
        )  # fmt: skip
        physical = rng.choice((None, file.physical, file.physical))
        floor = rng.choice((0, 1, 2, 4, 8))
        if self.is_table or self._more.random() < 0.5:
            return Deletion(file.sender, physical, floor, what)
        if what[1] is None and what[0] is not None:  # 0.12 would mean all that lies below, too
            what = (what[0], self._more.choice(list(self.types)), low, high)
        if self._more.random() < 0.3:
            what = (*what[:2], -(2**63), high)
        return Deletion(file.sender, physical, floor, what, "mods", self._more.random() < 0.8)

    def notes(self) -> tuple[NotesAsked, ...]:
        """As a receiver has them."""
        return tuple(
            NotesAsked(each.sender, each.physical, each.form, self._record(each), each.floor, 1)
            for each in self.deletions
        )

    def _record(self, deletion: Deletion) -> bytes:
        device, name, low, high = deletion.what
        if deletion.form == "mods":
            path, offset = f"{device or 'root.**'}.{name or '*'}", 2**63 - 1
            times = f"{high}" if low == -(2**63) else f"{low},{high}"
            return f"DELETION,{path},{offset if deletion.reaches else 1},{times}\n".encode()
        span = struct.pack(">qq", low, high)
        if not self.is_table:
            path = f"{device or 'root.**'}.{name or '*'}"
            return b"\x01" + span + _vstr(path)
        tags = b"\x00" if device is None else b"\x01" + _device(_segments(device))
        columns = [] if name is None else [name]
        listed = b"".join(map(_vstr, columns))
        return b"\x00" + span + _vstr(TABLE) + tags + _varint(len(columns)) + listed

    # -- the answer ----------------------------------------------------------------------------

    def answer(self) -> Answer:
        """What readers get of all files."""
        found: Answer = {}
        for device in self.aligned:
            given = [(each, self.given(each, device)) for each in self.files]
            times = sorted({time for _, cells in given for time in cells})
            rows: Cells = {}
            for time in times:
                row = {}
                for name in self.types:
                    having = [
                        (each.rank, cells[time][name])
                        for each, cells in given
                        if name in cells.get(time, {})
                    ]
                    if having:
                        top = highest([rank for rank, _ in having])
                        row[name] = next(value for rank, value in having if rank is top)
                if row or self.is_table:
                    rows[time] = row
            if rows:
                found[device] = rows
        return found

    def given(self, file: MadeFile, device: str) -> Cells:
        """What a file gives of a device, without what was deleted of it."""
        rows: Cells = {}
        for cells in file.rows.get(device, ()):
            for time, row in cells.items():
                rows.setdefault(time, {}).update(row)
        for each in self.deletions:
            of, name, low, high = each.what
            is_own = each.physical == file.asked.physical
            reaches = (
                each.floor and each.sender == file.asked.sender and each.floor >= file.asked.closed
            )
            if not (each.reaches if is_own else reaches) or of not in (None, device):
                continue
            for time in [time for time in rows if low <= time <= high]:
                if name is None:
                    del rows[time]
                else:
                    rows[time].pop(name, None)
        return rows


def _segments(device: str) -> list[str | None]:
    segments = list(device_segments(device, 4))
    while segments and segments[-1] is None:
        segments.pop()
    return segments


def _varint(number: int) -> bytes:
    return _uvarint(number << 1)


def _uvarint(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def _vstr(text: str | None) -> bytes:
    return _varint(len(text.encode())) + text.encode() if text is not None else _uvarint(1)


def _device(segments: Sequence[str | None]) -> bytes:
    return _uvarint(len(segments)) + b"".join(map(_vstr, segments))
