"""Files that a merge is made of, with pages that it takes over, and what they give."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from common.tsfile import Compression, Encoding
from common.tsfile.device_names import device_segments
from receiver.compaction.making.merging import merge_files
from receiver.compaction.worth_merging.merge_asked import MergeAnswer, MergeAsked
from receiver.metadata.model.ranks import NOW
from receiver.points import Column, TsFileReader
from receiver.superseding.asking import FileAsked, NotesAsked
from receiver.writing.chunk_pages import SeriesForm
from receiver.writing.page_cuts import Cuts, part_of
from receiver.writing.tsfile_writer import TsFileWriter
from receiver.writing.value_encoding import written_as
from tests.live.merged import Name
from tests.live.written_files import BEGIN, TABLE, Knows, Written, points, values

PAGE = 400
"""Rows of a page that is taken over, and of a mean of them (`device_rows._LEAST_PAGE`) here."""
STEP = 1_000
FOREVER = 2**63 - 1


@dataclass
class MergeCase:
    """Files of one edge: a later one stands above, and some of what an early one has is deleted.

    Attributes:
        written: by device and measurement, what readers get.
    """

    directory: Path
    version: int
    written: Written = field(default_factory=dict)
    _files: list[FileAsked] = field(default_factory=list)
    _notes: list[NotesAsked] = field(default_factory=list)

    def add(self, content: bytes, name: tuple[int, int, int, int, int] | None = None) -> FileAsked:
        """A file more, which stands above the others unless it has another name."""
        number = len(self._files) + 1
        path = self.directory / f"in-{number}.tsfile"
        path.write_bytes(content)
        file = FileAsked(
            physical=f"sequence/root.m/0/0/{number}.tsfile", path=str(path), sender="edge",
            size=len(content), md5=hashlib.md5(content).hexdigest(), series=0, points=0,
            start=None, end=None, name=name or (0, number, number, 0, 0), first=1, closed=1,
            last=NOW, loaded=number,
        )  # fmt: skip
        self._files.append(file)
        return file

    def add_real(self, path: Path) -> None:
        """A file of a server, and what it has deleted of it."""
        name = Name.of(path)
        rank = (int(name.unsequence), name.version, name.created, name.inner, name.cross)
        file = self.add(path.read_bytes(), rank)
        for form in ("mods", "mods2"):
            beside = path.with_name(f"{path.name}.{form}")
            if beside.exists():
                self._note(file, form, beside.read_bytes())

    def delete(self, file: FileAsked, device: str, name: str, first: int, last: int) -> None:
        """Of one file alone; `written` is told by whoever asks."""
        record = f"DELETION,{device}.{name},{FOREVER},{first},{last}\n".encode()
        self._note(file, "mods", record)

    def _note(self, file: FileAsked, form: str, content: bytes) -> None:
        self._notes.append(NotesAsked(file.sender, file.physical, form, content, 0, 1))

    def merge(self, target: int, database: str = "m") -> MergeAnswer:
        """All of them, into outputs that are named as servers want files to be."""
        out = self.directory / "out"
        out.mkdir()
        asked = MergeAsked(
            tuple(self._files), tuple(self._notes), database, str(out), "m", target, 64 << 20, 0
        )
        answer = merge_files(asked)
        for number, each in enumerate(answer.outputs, 1):
            Path(each.path).rename(out / f"{BEGIN}-{number}-0-0.tsfile")
        return answer

    def outputs(self) -> list[Path]:
        return sorted((self.directory / "out").iterdir(), key=lambda path: Name.of(path))

    def taken_over(self) -> dict[str, int]:
        """Of each series, how many pages of the outputs are those of an input, byte by byte."""
        had = {page for each in self._files for page in _pages(Path(str(each.path)))}
        found: dict[str, int] = {}
        for name, page in itertools.chain.from_iterable(map(_pages, self.outputs())):
            found[name] = found.get(name, 0) + ((name, page) in had)
        return found


def _pages(path: Path) -> list[tuple[str, bytes]]:
    found = []
    with TsFileReader(path) as reader:
        for device in reader.tail.devices:
            for name, series in reader.columns(device).items():
                for ref in reader.chunks(device, series):
                    pages = reader.pages(device, series, ref)
                    while page := pages.next():
                        if page.uncompressed:
                            found.append((f"{device.name}.{name}", pages.stored(page)))
    return found


# -- of trees ------------------------------------------------------------------------------------


def tree_case(directory: Path, knows: Knows, version: int, group: str) -> MergeCase:
    """Every type, encoding and compression that a server knows, aligned and not.

    Four files one behind the other with pages of 400 rows, a fifth with late data for the second
    one, and five small ones behind them; of the third one something is deleted.
    """
    case = MergeCase(directory, version)
    chance = np.random.default_rng(11)
    codes = itertools.cycle(knows.compressions)
    forms = [
        SeriesForm(f"{code.name.lower()}_{encoding.name.lower()}", code, encoding, next(codes))
        for code in knows.types
        for encoding in knows.encodings
        if written_as(encoding, code) == encoding
    ]
    devices = [f"{group}.plain"] + [f"{group}.aligned"] * knows.aligned
    long = [np.arange(PAGE * 2) + number * PAGE * 2 for number in range(4)]
    late = long[1][10:300:3] + PAGE // 2
    small = [long[3][-1] + 1 + np.arange(30) + 30 * number for number in range(5)]
    for number, rows in enumerate([*long, late, *small]):
        file = case.add(_tree(case, devices, forms, BEGIN + STEP * rows, chance))
        if number == 2:
            first, last = (BEGIN + STEP * int(rows[at]) for at in (50, 60))
            for device in devices:
                name = forms[0].measurement
                case.delete(file, device, name, first, last)
                kept = case.written[device, name]
                case.written[device, name] = {
                    at: value for at, value in kept.items() if not first <= at <= last
                }
    return case


def _tree(
    case: MergeCase, devices: Sequence[str], forms: Sequence[SeriesForm], times: Any, chance: Any
) -> bytes:
    content = bytearray()
    cuts = Cuts(page_points=PAGE, page_bytes=1 << 20, page_texts=PAGE)
    writer = TsFileWriter(content.extend, version=case.version, cuts=cuts)
    for name in devices:
        aligned = name.endswith(".aligned")
        columns = [_values(form, times, chance, aligned) for form in forms]
        segments = device_segments(name, case.version)
        if aligned:
            with writer.aligned_device(segments, forms) as target:
                target.write(times, columns)
        else:
            with writer.plain_device(segments) as plain:
                for form, column in zip(forms, columns, strict=True):
                    plain.write(form, times, column)
        for form, column in zip(forms, columns, strict=True):
            of = case.written.setdefault((name, form.measurement), {})
            of.update(points(times, column))
    writer.finish()
    return bytes(content)


def _values(form: SeriesForm, times: Any, chance: Any, nulls: bool) -> Column:
    """As many as there are times; of 93 and more some are extremes."""
    rows = max(len(times), 100)
    valid = chance.random(rows) < 0.7 if nulls else None
    return part_of(values(form.data_type, rows, chance, valid), 0, len(times))


# -- of tables -----------------------------------------------------------------------------------

Cells = dict[tuple[Any, ...], dict[str, Any]]
"""(site, unit, time) -> column -> value."""


def table_case(directory: Path) -> tuple[MergeCase, Cells]:
    """Three files one behind the other and a late one, with nulls that hide nothing."""
    case, cells = MergeCase(directory, 4), Cells()
    chance = np.random.default_rng(12)
    forms = [
        SeriesForm(each.name, each.data_type, encoding, compression)
        for each, (encoding, compression) in zip(
            TABLE.columns[2:],
            (
                (Encoding.PLAIN, Compression.LZ4),
                (Encoding.GORILLA, Compression.SNAPPY),
                (Encoding.DICTIONARY, Compression.ZSTD),
            ),
            strict=True,
        )
    ]
    long = [np.arange(PAGE * 2) + number * PAGE * 2 for number in range(3)]
    for rows in (*long, long[1][10:300:3]):
        times = BEGIN + STEP * rows
        content = bytearray()
        cuts = Cuts(page_points=PAGE, page_bytes=1 << 20, page_texts=PAGE)
        writer = TsFileWriter(content.extend, version=4, tables=[TABLE], cuts=cuts)
        for tags in (("north", "u1"), ("größe", "a b")):
            columns = [_values(form, times, chance, nulls=True) for form in forms]
            with writer.aligned_device(("written", *tags), forms) as device:
                device.write(times, columns)
            for at in times.tolist():
                cells.setdefault((*tags, at), {})
            for form, column in zip(forms, columns, strict=True):
                for at, value in points(times, column).items():
                    cells[(*tags, at)][form.measurement] = value
        writer.finish()
        case.add(bytes(content))
    return case, cells
