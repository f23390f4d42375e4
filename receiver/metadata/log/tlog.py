r"""The tlog: tags and attributes of series, append-only, beside the log.

    head     "TSFTLOG\n", version uint32, 0 uint32, check uint64
    entry    length uint32, check uint64, content (`length` bytes)
    content  msgpack, [{tag: value}, {attribute: value}]

Numbers are little-endian, checks xxh3-64; that of an entry has its offset as seed, so that an entry
in a wrong place is noticed. An entry is never changed: another content is another entry.

The log holds tags and attributes as well, with the offset at which the entries of a commit begin
(`records.Commit.tags_at`), and `tag_layout.layout` gives the same bytes for the same operations. So
the tlog need not be flushed with each commit: what a power cut takes is written again from the log,
the same bytes at the same places. It is flushed before a checkpoint lets go of the log.
"""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING, Self

import msgspec
import xxhash

from common import crash
from common.durable import Closing
from common.durable.flushing import meaning
from common.errors import DamagedError
from receiver.metadata.model.errors import NewerLogError
from receiver.metadata.model.tag_layout import ENTRY

if TYPE_CHECKING:
    from common.durable import Tree, WriteFile

__all__ = ["FIRST_OFFSET", "TLOG_NAME", "Tlog"]

TLOG_NAME = "tlog-1.tsf"
_VERSION = 1

_MAGIC = b"TSFTLOG\n"
_HEAD = struct.Struct("<8sII")
_CHECK = struct.Struct("<Q")
_HEAD_BYTES = _HEAD.pack(_MAGIC, _VERSION, 0)
_HEAD_BYTES += _CHECK.pack(xxhash.xxh3_64_intdigest(_HEAD_BYTES))
FIRST_OFFSET = len(_HEAD_BYTES)
"""The offset of the first entry."""
_AT_ONCE = 448
"""Read for an entry: most need no second look, and memory for so little costs no call."""
_decoder = msgspec.msgpack.Decoder(tuple[dict[str, str], dict[str, str]])


class Tlog(Closing):
    """An open tlog; reading it needs no lock.

    Attributes:
        what: its path, for messages.
        end: where the entries of the next commit begin.
    """

    def __init__(self, fd: int, what: str, file: WriteFile | None) -> None:
        self._fd = -1  # the caller closes it if what follows fails
        self._file: WriteFile | None = None
        self.what = what
        self.end = FIRST_OFFSET
        self._beside: dict[int, bytes] = {}
        if fd >= 0:
            with meaning(what):
                _check_head(os.pread(fd, FIRST_OFFSET, 0), what)
        self._fd = fd
        self._file = file

    @classmethod
    def make(cls, tree: Tree) -> None:
        """Make an empty one, in one step."""
        tree.write_atomic(TLOG_NAME, _HEAD_BYTES, mode=0o640)
        crash.point("tlog.made")

    @classmethod
    def open(cls, tree: Tree) -> Self:
        """Open it for reading and writing.

        Raises:
            DamagedError: this is no tlog.
            NewerLogError: a newer version of tsferry wrote it.
        """
        # As with the log: what a killed process left in memory is flushed, what a failed flush
        # left there is forgotten, and read from the disk.
        tree.sync_file(TLOG_NAME)
        file = tree.open_write(TLOG_NAME)
        try:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            return cls(file.fileno(), str(tree.path / TLOG_NAME), file)
        except BaseException:
            file.close()
            raise

    @classmethod
    def read_only(cls, tree: Tree) -> Self:
        """Open it for reading; what `heal` finds missing, be it all, is kept in memory."""
        try:
            fd = tree.open_read(TLOG_NAME)
        except FileNotFoundError:
            return cls(-1, str(tree.path / TLOG_NAME), None)
        try:
            return cls(fd, str(tree.path / TLOG_NAME), None)
        except BaseException:
            os.close(fd)
            raise

    @classmethod
    def fill(cls, tree: Tree, size: int) -> None:
        """Make a damaged one openable and at least so long; what is missing are no entries."""
        if not tree.exists(TLOG_NAME):
            cls.make(tree)
        with tree.open_write(TLOG_NAME) as file:
            file.write(_HEAD_BYTES, at=0)
            if os.fstat(file.fileno()).st_size < size:
                file.truncate(size)
            file.sync()

    @property
    def size(self) -> int:
        """Bytes of the file, 0 if there is none."""
        return os.fstat(self._fd).st_size if self._fd >= 0 else 0

    # -- writing -----------------------------------------------------------------------------

    def write(self, content: bytes) -> None:
        """Write entries at `end`, without waiting for the disk; `end` stays until `advance`.

        Raises:
            NoSpaceError: the disk is full; the next write goes to the same place.
        """
        assert self._file is not None
        self._file.write(content, at=self.end)

    def advance(self, size: int) -> None:
        """Count so many bytes as written: the commits that they belong to are in the log."""
        self.end += size

    def heal(self, at: int, content: bytes) -> None:
        """See that entries of a commit of the log are there; what is missing is written again."""
        self.end = at + len(content)
        if self._pread(len(content), at) == content:
            return
        if self._file is not None:
            self._file.write(content, at=at)
            return
        begin = 0
        while begin < len(content):
            size = ENTRY.size + ENTRY.unpack_from(content, begin)[0]
            self._beside[at + begin] = content[begin : begin + size]
            begin += size

    @property
    def lost(self) -> bool:
        """Whether a flush did not find room: entries that were not flushed may be gone."""
        return self._file is not None and self._file.lost

    def begin_again(self) -> None:
        """Take writes again after that; what may be gone has to be written by `write_again`."""
        assert self._file is not None
        self._file.begin_again()

    def write_again(self, at: int, content: bytes) -> None:
        """Write entries of a commit of the log where they were.

        Raises:
            NoSpaceError: the disk is full.
        """
        assert self._file is not None
        self._file.write(content, at=at)

    def cut(self) -> int:
        """Drop what is behind `end`, of commits that never were; returns the bytes dropped."""
        assert self._file is not None
        beyond = self.size - self.end
        if beyond > 0:
            self._file.truncate(self.end)
        return max(beyond, 0)

    def sync(self) -> None:
        """Flush what was written.

        Raises:
            NoSpaceError: it is `lost` from then on.
            FailedSyncError: see `common.durable`.
        """
        assert self._file is not None
        self._file.sync()

    def close(self) -> None:
        """Close it; closing twice is harmless."""
        fd, self._fd = self._fd, -1
        if self._file is not None:
            self._file.close()
        elif fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        # Whoever opened an engine only to look at it may forget to close it.
        self.close()

    # -- reading -----------------------------------------------------------------------------

    def read(self, offset: int) -> tuple[dict[str, str], dict[str, str]]:
        """Tags and attributes of the entry at an offset; none of either for -1.

        Raises:
            DamagedError: there is no sound entry.
        """
        if offset < 0:
            return {}, {}
        raw = self._beside.get(offset) or self._pread(_AT_ONCE, offset)
        found = self._parse(offset, raw)
        if found is None:
            raise DamagedError(
                f"{self.what} has no sound entry at offset {offset}; `tsferry-receiver fsck` shows "
                "which series is concerned",
                extra={"file": self.what, "offset": offset},
            )
        return found

    def _parse(self, offset: int, raw: bytes) -> tuple[dict[str, str], dict[str, str]] | None:
        if offset < FIRST_OFFSET or len(raw) < ENTRY.size:
            return None
        size, check = ENTRY.unpack_from(raw)
        if len(raw) < ENTRY.size + size:
            if offset + ENTRY.size + size > self.size:
                return None
            raw = self._pread(ENTRY.size + size, offset)
        content = raw[ENTRY.size : ENTRY.size + size]
        if xxhash.xxh3_64_intdigest(content, seed=offset) != check:
            return None
        try:
            return _decoder.decode(content)
        except msgspec.MsgspecError:
            return None

    def _pread(self, size: int, at: int) -> bytes:
        if self._fd < 0:
            return b""
        with meaning(self.what):
            return os.pread(self._fd, size, at)


def _check_head(raw: bytes, what: str) -> None:
    if len(raw) < FIRST_OFFSET or not raw.startswith(_MAGIC):
        raise DamagedError(
            f"{what} is damaged at offset 0: this is no tlog of the metadata engine; "
            "`tsferry-receiver fsck` shows what can be saved",
            extra={"file": what, "offset": 0},
        )
    version = _HEAD.unpack_from(raw)[1]
    if version > _VERSION:
        raise NewerLogError(
            f"{what} has version {version}, written by a newer tsferry; "
            f"this one reads versions up to {_VERSION}"
        )
    if raw != _HEAD_BYTES:
        raise DamagedError(
            f"{what} is damaged at offset 0: its head does not match its check; "
            "`tsferry-receiver fsck` shows what can be saved",
            extra={"file": what, "offset": 0},
        )
