"""The files that are merged: opened when they are needed, their bytes those that were loaded."""

from __future__ import annotations

import os
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from common.digests import md5, read_blocks
from common.durable import Closing
from common.errors import StoppedError
from common.tsfile import read_tail
from common.tsfile.byte_source import ByteSource, source_of
from receiver.compaction.merge_pace import MergePace, PacedSource
from receiver.points import DamagedData, DataPlace, TsFileReader, UnsupportedData
from receiver.superseding.noted import NotesOfPartition

if TYPE_CHECKING:
    from collections.abc import Callable

    from receiver.compaction.worth_merging.merge_asked import MergeAsked
    from receiver.points.encodings import Bytes
    from receiver.superseding.asking import FileAsked

__all__ = ["InputFile", "InputFiles"]

_Places: TypeAlias = npt.NDArray[np.int64]

_SMALL: Final = 1 << 20
"""Bytes of a file that is held whole: one read in place of two for each chunk."""
_MOST_DESCRIPTORS: Final = 256


class InputFile(NamedTuple):
    """A file that is open.

    Attributes:
        number: among those that are merged.
        reader: of its points, without what was deleted.
        bytes: of the file.
        fd: to be closed; None where it is held whole.
        held: bytes that it takes in memory, about.
    """

    number: int
    reader: TsFileReader
    bytes: ByteSource
    fd: int | None
    held: int


class InputFiles(Closing):
    """The files by their numbers.

    Attributes:
        files: as they were asked for.
    """

    def __init__(
        self, asked: MergeAsked, stopped: Callable[[], bool], pace: MergePace | None = None
    ) -> None:
        """Open none of them yet.

        Args:
            asked: has them.
            stopped: is asked before a file is opened.
            pace: of reading; without one it is as fast as it can be.

        Raises:
            UnsupportedData: a file stands in some devices otherwise than in others.
        """
        self.files: Final = asked.files
        for file in asked.files:
            if file.cuts:
                raise UnsupportedData("devices of it were transferred", DataPlace(file.physical))
        self._notes = NotesOfPartition(asked.notes)
        self._most, self._stopped = asked.memory // 3, stopped
        self._pace = pace or MergePace(0)
        self._open: OrderedDict[int, InputFile] = OrderedDict()
        self._held = self._descriptors = 0
        self._known: dict[int, tuple[int, int, int]] = {}
        sizes = np.array([each.size for each in asked.files], np.int64)
        is_held = sizes <= _SMALL
        if sizes[is_held].sum() > self._most:
            is_held[:] = False
        ends = np.cumsum(np.where(is_held, sizes, 0))
        self._held_bytes = np.empty(int(ends[-1]) if len(ends) else 0, np.uint8)
        self._begins = np.where(is_held, ends - sizes, -1)
        self._limits = np.zeros(len(sizes), np.int64)

    def open(self, number: int, together: int = 1) -> InputFile:
        """A file opened. It stays so while no more than `together` others are asked for.

        Raises:
            DamagedData: its bytes are not those that were loaded, or are no TsFile.
            OSError: it cannot be read.
            StoppedError: it shall not be any more.
        """
        found = self._open.get(number)
        if found is not None:
            self._open.move_to_end(number)
            return found
        if self._stopped():
            raise StoppedError("the merge was stopped")
        while len(self._open) >= together and (
            self._held > self._most or self._descriptors >= _MOST_DESCRIPTORS
        ):
            self._close(self._open.popitem(last=False)[1])
        found = self._open[number] = self._opened(number)
        self._held += found.held
        self._descriptors += found.fd is not None
        return found

    def gather(
        self, numbers: _Places, offsets: _Places, likely: _Places
    ) -> tuple[Bytes, _Places, _Places]:
        """Bytes of data sections: what holds them, where each begins, and where it ends there.

        Args:
            numbers: of the files, which were open before.
            offsets: in those.
            likely: bytes that are wanted, at most.
        """
        begins = self._begins[numbers]
        if (begins >= 0).all():
            return self._held_bytes, begins + offsets, begins + self._limits[numbers]
        parts = []
        wanted = np.minimum(likely, self._limits[numbers] - offsets)
        for number, offset, length in zip(
            numbers.tolist(), offsets.tolist(), wanted.tolist(), strict=True
        ):
            parts.append(self.open(number).bytes.read(offset, length))
        ends = np.cumsum(wanted)
        return np.frombuffer(b"".join(parts), np.uint8), ends - wanted, ends

    def close(self) -> None:
        """Close all."""
        while self._open:
            self._close(self._open.popitem()[1])

    def _close(self, one: InputFile) -> None:
        one.reader.close()
        self._held -= one.held
        if one.fd is not None:
            self._descriptors -= 1
            os.close(one.fd)

    def _opened(self, number: int) -> InputFile:
        file = self.files[number]
        if file.path is None:
            raise FileNotFoundError(f"{file.physical}: its bytes are not there")
        fd = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if os.fstat(fd).st_size != file.size:
                raise _changed(file)
            if self._begins[number] >= 0:
                opened = self._readable(number, source_of(self._read(number, fd)), None)
            else:
                self._check(number, fd)
                opened = self._readable(number, PacedSource(source_of(fd), self._pace), fd)
        except BaseException:
            os.close(fd)
            raise
        if opened.fd is None:
            os.close(fd)
        return opened

    def _read(self, number: int, fd: int) -> memoryview:
        """The whole of a file, into the place where it is held."""
        file, begin = self.files[number], int(self._begins[number])
        content = self._held_bytes.data[begin : begin + file.size]
        self._pace.take(file.size)
        filled = 0
        for block in read_blocks(fd, end=file.size):
            content[filled : filled + len(block)] = block
            filled += len(block)
        if filled < file.size or md5(content).hexdigest() != file.md5:
            raise _changed(file)
        return content

    def _check(self, number: int, fd: int) -> None:
        """Compare the bytes with the MD5 that was loaded, unless they were while it stood so."""
        there = os.fstat(fd)
        identity = there.st_ino, there.st_size, there.st_mtime_ns
        if self._known.get(number) != identity and self._md5(fd) != self.files[number].md5:
            raise _changed(self.files[number])
        self._known[number] = identity

    def _md5(self, fd: int) -> str:
        digest = md5()
        for block in read_blocks(fd):
            self._pace.take(len(block))
            digest.update(block)
        return digest.hexdigest()

    def _readable(self, number: int, source: ByteSource, fd: int | None) -> InputFile:
        # What its structure has to be was seen when it was loaded, and these are those bytes.
        file, tail = self.files[number], read_tail(source, structure=False)
        self._limits[number] = tail.meta_offset
        reader = TsFileReader(
            source,
            name=file.physical,
            deletions=self._notes.of(file, tail.devices),
            text="binary",
            tail=tail,
        )
        held = 2 * (file.size - tail.meta_offset)
        return InputFile(number, reader, source, fd, held)


def _changed(file: FileAsked) -> DamagedData:
    return DamagedData("its bytes are not those that were loaded", DataPlace(file.physical))
