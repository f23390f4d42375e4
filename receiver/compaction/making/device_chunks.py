"""The chunks of one device in all files of a merge, and where their bytes are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

import numpy as np
import numpy.typing as npt

from receiver.points.chunks import chunk_refs
from receiver.points.index_tables import ChunkTable, chunk_table
from receiver.points.many_chunks import Chunks, PlacedChunk

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from receiver.compaction.making.survey import SeenDevice
    from receiver.points import TsFileReader
    from receiver.points.chunks import ChunkRef
    from receiver.points.deleted.deletions import Deletions
    from receiver.points.device_merge import Standing
    from receiver.points.encodings import Bytes

__all__ = ["DeviceChunks", "MergeFiles", "MergeStanding", "ReadableFile"]

_Places = npt.NDArray[np.int64]

_ENTRIES: Final = 500_000
"""Series of files that are looked up together: what the index has of their chunks is held."""
_MOST_OFFSET: Final = 1 << 48


class ReadableFile(Protocol):
    """A file that is open."""

    @property
    def reader(self) -> TsFileReader:
        """Of its points, without what was deleted; texts as binary."""


class MergeFiles(Protocol):
    """Where the files of a merge are, by their numbers."""

    def open(self, number: int, together: int = 1) -> ReadableFile:
        """A file opened. It stays so while no more than `together` others are asked for.

        Raises:
            TsferryError, OSError: it cannot be read.
        """

    def gather(
        self, numbers: _Places, offsets: _Places, likely: _Places
    ) -> tuple[Bytes, _Places, _Places]:
        """Bytes of data sections: what holds them, where each begins, and where it ends there.

        Args:
            numbers: of the files, which were open before.
            offsets: in those.
            likely: bytes that are wanted, at most.
        """


class MergeStanding(Protocol):
    """How the files of a merge stand to each other, by their numbers."""

    def order(self, numbers: Sequence[int]) -> Sequence[int] | None:
        """Of each of some files its place, the lowest first; None where there is a circle."""

    def ladder(self, numbers: Sequence[int]) -> Standing:
        """Which of any of some files is the highest."""


class DeviceChunks:
    """The chunks of a device, by its series."""

    def __init__(self, files: MergeFiles, device: SeenDevice) -> None:
        """Look at nothing yet.

        Args:
            files: of the merge.
            device: which.
        """
        self._files, self._device = files, device
        self._known: dict[str, Chunks] = {}
        self._names = list(device.series)

    def of(self, name: str) -> Chunks:
        """All chunks of a series, of times those of ``""``.

        Raises:
            DamagedData: pages are not those of the device.
            UnsupportedData: they are encrypted.
        """
        if name not in self._known:
            at_once = max(1, _ENTRIES // len(self._device.files))
            first = self._names.index(name)
            times = [""] if self._device.aligned else []
            self._known = self._read(dict.fromkeys([*times, *self._names[first:][:at_once]]))
        return self._known[name]

    def _read(self, names: Iterable[str]) -> dict[str, Chunks]:
        number = {name: at for at, name in enumerate(names)}
        known: dict[tuple[str, ...], _Places] = {}
        tables, series = [], []
        for table in self._tables():
            tables.append(table)
            if table.names not in known:  # thousands of files have the same series
                known[table.names] = np.array([number.get(each, -1) for each in table.names])
            series.append(np.repeat(known[table.names], np.diff(table.lows)))
        which = np.concatenate(series)
        order = np.argsort(which, kind="stable")
        counts = [len(each.offsets) for each in tables]
        every = Chunks(
            np.repeat(np.array(self._device.files, np.int64), counts),
            np.concatenate([each.offsets for each in tables]),
            np.concatenate([each.statistics for each in tables]),
        ).take(order)
        edges = np.searchsorted(which[order], np.arange(len(number) + 1))
        return {
            name: Chunks(*(each[edges[at] : edges[at + 1]] for each in every))
            for name, at in number.items()
        }

    def _tables(self) -> Iterator[ChunkTable]:
        held = self._device.tables
        for at, number in enumerate(self._device.files):
            reader = self._files.open(number).reader
            device = reader.device(self._device.name)
            table = chunk_table(device) if held is None else held[at]
            reader.require_readable(device, int(table.offsets.min()))
            yield table

    def beside(self, name: str, times: Chunks) -> tuple[Chunks, _Places]:
        """The chunks of a series of an aligned device, each with the number of its times.

        Args:
            name: of the series.
            times: some chunks of times; those of the series that stand with others are left out.

        Raises:
            DamagedData: values without times, or two chunks of values for one of times.
        """
        every, chunks = self.of(""), self.of(name)
        order = np.argsort(_keys(every), kind="stable")
        keys = _keys(every)[order]
        mine = np.argsort(_keys(chunks), kind="stable")
        chunks = chunks.take(mine)
        at = np.searchsorted(keys, _keys(chunks), "right") - 1
        has = (at >= 0) & (every.files[order[at]] == chunks.files)
        again = has.copy()
        again[1:] &= at[1:] == at[:-1]
        again[:1] = False
        for file in np.unique(chunks.files[(again | ~has) & (chunks.counts > 0)]).tolist():
            self._refs(name, file)  # says what is wrong
        wanted, number = _keys(times), np.full(len(keys), -1, np.int64)
        number[np.searchsorted(keys, wanted)] = np.arange(len(wanted))
        here = has & ~again & (number[at] >= 0)
        return chunks.take(here), number[at[here]]

    def deletions(self) -> dict[int, Deletions]:
        """By file, where something is deleted of any device of it."""
        readers = {each: self._files.open(each).reader for each in self._device.files}
        return {each: one.deletions for each, one in readers.items() if one.deletions}

    # -- what decodes them wants to know -------------------------------------------------------

    def gather(self, chunks: Chunks, likely: _Places) -> tuple[Bytes, _Places, _Places]:
        """See ``ChunkSource``."""
        return self._files.gather(chunks.files, chunks.offsets, likely)

    def placed(self, name: str, file: int, offset: int) -> PlacedChunk:
        """See ``ChunkSource``."""
        reader = self._files.open(file).reader
        device = reader.device(self._device.name)
        series = reader.series(device, name)
        ref = next(each for each in self._refs(name, file) if each.offset == offset)
        return PlacedChunk(reader, device, series, ref)

    def _refs(self, name: str, file: int) -> list[ChunkRef]:
        reader = self._files.open(file).reader
        device = reader.device(self._device.name)
        series = reader.series(device, name)
        return chunk_refs(series, reader.times_of(device), reader.place(device, series))


def _keys(chunks: Chunks) -> _Places:
    return chunks.files * _MOST_OFFSET + chunks.offsets
