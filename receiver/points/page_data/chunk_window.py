"""The bytes of one chunk: its header, then page after page, a window of the file at a time.

Layout of the header: byte marker (low six bits 5: one page, 1: several), vstr measurement, uvarint
size of the pages, bytes data type, compression, encoding. Source: apache/tsfile, ``ChunkHeader``.
"""

from __future__ import annotations

import dataclasses
from typing import Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from common.tsfile import Corrupt, Statistics
from common.tsfile.byte_source import ByteSource
from common.tsfile.chunk_headers import LONGEST_FRAME, MARKERS
from common.tsfile.primitives import Malformed, read_uvarint, read_vstr
from receiver.points.encodings import Bytes
from receiver.points.errors import DamagedData, DataPlace, UnsupportedData
from receiver.points.page_data import pages
from receiver.points.page_data.compression import BadCompression, UnsupportedCompression, decompress

__all__ = [
    "MAX_PAGE_BYTES",
    "MAX_PAGE_POINTS",
    "WINDOW_BYTES",
    "DataPage",
    "PageSource",
    "Pages",
    "TakesPages",
]

MAX_PAGE_POINTS: Final = 8 * 1024 * 1024
"""Writers end a page at 10,000 points, older ones at a million."""
MAX_PAGE_BYTES: Final = 128 * 1024 * 1024
"""Writers end a page at 64 KiB; a single large text or blob can make it longer."""
WINDOW_BYTES: Final = 1024 * 1024
_MAX_WINDOW: Final = MAX_PAGE_BYTES + MAX_PAGE_BYTES // 8  # incompressible bytes grow a little

_SEVERAL, _ONE = MARKERS
_LIKELY_BYTES: Final = 128  # of a page header and a point; if there are more, they are read later
_TABLE_ROWS: Final = 128
_BAD: Final = {
    pages.BAD_SIZE: "a page header whose sizes or count are larger than the format allows",
    pages.BAD_TYPE: "page statistics of a data type that has none",
    pages.BAD_BINARY: "page statistics with a value of negative length",
}


class DataPage(NamedTuple):
    """A page as its header has it.

    Attributes:
        number: within the chunk.
        offset: of its header, absolute.
        data: where its bytes begin in the window.
        compressed: how many there are.
        uncompressed: how many they become; 0 for an empty page.
        points: how many, from the chunk's statistics where the header has none.
        start: time of the first point, likewise.
        end: time of the last point, likewise.
        row: statistics as in ``pages``, None where the header has none.
        binaries: the body of statistics of TEXT or STRING, where the header has any.
    """

    number: int
    offset: int
    data: int
    compressed: int
    uncompressed: int
    points: int
    start: int
    end: int
    row: npt.NDArray[np.int64] | None
    binaries: bytes


@dataclasses.dataclass(frozen=True, slots=True)
class PageSource:
    """Where pages are read from, and how far to believe them.

    Attributes:
        file: what holds the chunks.
        limit: where its data section ends.
        version: of the format; 3 is what Java alone has written.
        window: bytes to read at once.
    """

    file: ByteSource
    limit: int
    version: int
    window: int = WINDOW_BYTES


class TakesPages(Protocol):
    """Is given the bytes of pages, see `PageKeeper`."""

    def take(self, pages: Pages, page: DataPage, content: bytes) -> None:
        """Take those of a page that is about to be decoded."""


class Pages:
    """The pages of one chunk, in order.

    Attributes:
        place: of the chunk.
        code: data type.
        encoding: code in the header.
        compression: code in the header.
        several: whether each page has statistics of its own.
        begin: offset of the first page.
        end: offset behind the last.
        statistics: of the chunk, as the index has them.
        one_by_one: whether the writer is known to add sums up one value after the other.
        old_form: whether values have the form of before TsFile 2.1, None if it is not known.
        keeper: is given the bytes of each page that is decoded.
    """

    def __init__(
        self, source: PageSource, place: DataPlace, offset: int, code: int, statistics: Statistics
    ) -> None:
        """Read and check the header.

        Args:
            source: what holds the chunk.
            place: of the chunk; its measurement must be the header's.
            offset: of the header.
            code: data type, must be the header's.
            statistics: of the chunk, as the index has them.

        Raises:
            DamagedData: there is no header of this series.
        """
        self.place = place
        self.code = int(code)  # numba takes long to see what an IntEnum is
        self.statistics = statistics
        self.one_by_one = source.version == 3
        self.old_form: bool | None = True if source.version == 3 else None
        self.keeper: TakesPages | None = None
        self._source = source
        self._base = offset
        self._number = 0
        self._at = 0
        self._rows: list[list[int]] = []
        self._table = pages.new_table(0)
        self._next_row = 0
        longest = LONGEST_FRAME + len((place.measurement or "").encode())
        wanted = longest + min(source.window, _LIKELY_BYTES * (1 + statistics.count))
        self._buffer = self._read(offset, min(wanted, source.limit - offset))
        self._data: Bytes
        size = self._read_header()
        self.begin = offset + self._at
        self.end = self.begin + size
        if self.end > source.limit:
            raise self.damaged(f"a chunk of {size} bytes, more than there are")
        self._buffer = self._buffer[: self._at + size]
        self._data = np.frombuffer(self._buffer, np.uint8)

    def damaged(
        self, reason: str, page: DataPage | None = None, at: int | None = None
    ) -> DamagedData:
        """An error about the chunk, or one of its pages, or the byte ``at`` of its content."""
        return DamagedData(reason, self._place(page, at))

    def unsupported(self, reason: str, page: DataPage | None = None) -> UnsupportedData:
        """The same for what is not read."""
        return UnsupportedData(reason, self._place(page, None))

    def _place(self, page: DataPage | None, at: int | None) -> DataPlace:
        if page is None:
            return dataclasses.replace(self.place, offset=at)
        offset = page.offset if at is None or self.compression else self._base + page.data + at
        return dataclasses.replace(self.place, page=page.number, offset=offset)

    def _read(self, offset: int, length: int) -> bytes:
        try:
            return self._source.file.read(offset, length)
        except Corrupt as shrank:
            raise DamagedData(str(shrank), self.place) from shrank

    def _read_header(self) -> int:
        buffer = self._buffer
        try:
            marker = buffer[0]
            name, pos = read_vstr(buffer, 1)
            size, pos = read_uvarint(buffer, pos)
            code, self.compression, self.encoding = buffer[pos], buffer[pos + 1], buffer[pos + 2]
        except (Malformed, IndexError):
            raise DamagedData("no chunk header", self.place) from None
        if marker & 0x3F not in (_SEVERAL, _ONE):
            raise DamagedData(f"a chunk that begins with {marker:#04x}", self.place)
        if (name, code) != (self.place.measurement, self.code):
            reason = f"a chunk of series {name!r}, type {code}, instead of type {self.code}"
            raise DamagedData(reason, self.place)
        self.several = marker & 0x3F == _SEVERAL
        self._at = pos + 3
        return size

    # page after page

    def peek(self) -> list[int] | None:
        """The next page's row of the table, None at the end."""
        if self._next_row == len(self._rows) and not self._scan():
            return None
        return self._rows[self._next_row]

    @property
    def passed(self) -> int:
        """How many pages ``next`` gave."""
        return self._number

    def ahead(self, size: int) -> int:
        """How many of the next pages come to about so many bytes; at least one.

        It is judged by those whose headers were read.
        """
        if self.peek() is None:
            return 1
        total = 0
        sizes = [row[pages.UNCOMPRESSED] for row in self._rows[self._next_row :]]
        for number, each in enumerate(sizes):
            total += each
            if total > size:
                return max(1, number)
        return len(sizes) * size // max(1, total)

    def next(self) -> DataPage | None:
        """The next page, None at the end."""
        row = self.peek()
        if row is None:
            return None
        index, self._next_row = self._next_row, self._next_row + 1
        number, self._number = self._number, self._number + 1
        at, binaries = row[pages.BODY_AT], b""
        if at >= 0:
            count, start, end = row[pages.COUNT], row[pages.START], row[pages.END]
            own = self._table[index, pages.STATISTICS]
            if self.code in (5, 11):
                binaries = self._buffer[at : row[pages.DATA_AT]]
        else:
            known = self.statistics
            count, start, end, own = known.count, known.start, known.end, None
            if not row[pages.UNCOMPRESSED]:
                count = 0
        page = DataPage(
            number, self._base + row[0], row[1], row[2], row[3], count, start, end, own, binaries
        )  # fmt: skip
        if count > MAX_PAGE_POINTS:
            raise self.unsupported(f"a page of {count} points, more than {MAX_PAGE_POINTS}", page)
        if page.uncompressed > MAX_PAGE_BYTES:
            raise self.unsupported(
                f"a page of {page.uncompressed} bytes, more than {MAX_PAGE_BYTES}", page
            )
        return page

    def _scan(self) -> bool:
        """Read the headers of the next pages; whether there are any."""
        wanted = self._source.window
        while self._base + self._at < self.end:
            room = self.end - self._base
            pos, held = self._at, min(len(self._buffer), room)
            table = pages.new_table(_TABLE_ROWS if self.several else 1)
            found, self._at, state, needed = pages.scan_pages(
                self._data, pos, held, self.code, self.several, table
            )
            if found:
                self._table, self._rows, self._next_row = table, table[:found].tolist(), 0
                if not self.several and self._base + self._at < self.end:
                    raise self.damaged(
                        "bytes behind the only page of a chunk", None, self._base + self._at
                    )
                return True
            at = self._base + self._at
            if state in _BAD:
                raise self.damaged(_BAD[state], None, at)
            if held == room:
                raise self.damaged("a page that reaches beyond its chunk", None, at)
            wanted = max(wanted, needed)
            if wanted > _MAX_WINDOW:
                place = self._place(None, at)
                raise UnsupportedData(f"a page of more than {MAX_PAGE_BYTES} bytes", place)
            self._base, self._at = at, 0
            self._buffer = self._read(at, min(wanted, self.end - at))
            self._data = np.frombuffer(self._buffer, np.uint8)
            wanted *= 2
        return False

    def stored(self, page: DataPage) -> bytes:
        """The page's bytes as they stand in the file; as ``content``."""
        return self._data[page.data : page.data + page.compressed].tobytes()

    def content(self, page: DataPage) -> Bytes:
        """The page's bytes, decompressed; only for the page that ``next`` gave last.

        Raises:
            DamagedData: they do not decompress to as many as the header says.
            UnsupportedData: the compression is not read.
        """
        raw = self._data[page.data : page.data + page.compressed]
        if self.keeper is not None:
            self.keeper.take(self, page, self.stored(page))
        try:
            return decompress(self.compression, raw, page.uncompressed)
        except BadCompression as bad:
            raise self.damaged(bad.reason, page) from bad
        except UnsupportedCompression as other:
            raise self.unsupported(other.reason, page) from other
