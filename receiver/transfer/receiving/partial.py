"""A partial upload on the disk: what was acknowledged is there, and garbage never counts.

    <id>.part     the bytes
    <id>.upload   line 1: what the upload is, as JSON; then a line for each acknowledged block,
                  `<offset> <length> <xxh3-64 of the bytes>`, version 1

A block is written and flushed, then its line is, then the sender is told. The last block of a file
gets no line: the whole file is verified and moved away before anybody is told, so there is no
upload that is complete and unverified. After a crash the lines say how far the bytes count; the
first use reads them again, for the MD5 of the whole, and cuts back to the last block that is what
its line says.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec
import xxhash

from common import crash
from common.decoders import from_json
from common.digests import md5 as new_md5
from common.digests import read_blocks, xxh3_64
from common.errors import TsferryError

if TYPE_CHECKING:
    import hashlib

    from common.durable import Tree, WriteFile

__all__ = ["PartialUpload", "Pending", "UploadBlock", "UploadMeta", "parse_upload"]

_LINE = re.compile(rb"(0|[1-9][0-9]{0,18}) ([1-9][0-9]{0,18}) ([0-9a-f]{16})\Z")


class UploadMeta(msgspec.Struct, frozen=True, kw_only=True):
    """What an upload is.

    Attributes:
        id: 32 hex digits that nobody can guess.
        sender: uuid of the sender.
        owner: the token (or, without tokens, the sender) that made it.
        path: that the file will have.
        length: of the whole file.
        created: seconds since the epoch.
        task: that it belongs to; None: it is a task of its own.
        md5: of the whole file, where it is known.
        tail: digest of the file's tail, where it was planned.
        commit: the newest one when it began, or when the file was planned before that; 0 where
            that was not noted.
    """

    v: int = 1
    id: str
    sender: str
    owner: str
    path: str
    length: int
    created: float
    task: str | None = None
    md5: str | None = None
    tail: str | None = None
    commit: int = 0


class UploadBlock(msgspec.Struct, frozen=True):
    """An acknowledged block."""

    offset: int
    length: int
    xxh3: str

    @property
    def end(self) -> int:
        """The offset behind it."""
        return self.offset + self.length

    def line(self) -> bytes:
        """Its line."""
        return f"{self.offset} {self.length} {self.xxh3}\n".encode()


class Pending(msgspec.Struct, frozen=True):
    """A block that is written and does not count yet; `md5` is that of the file up to its end."""

    block: UploadBlock
    md5: hashlib._Hash


def parse_upload(data: bytes) -> tuple[UploadMeta | None, list[UploadBlock], int]:
    """The upload, its blocks and where the last good line ends; never raises on content.

    Blocks follow each other without a gap and end before the file does; reading stops where not.
    """
    first = data.find(b"\n")
    try:
        meta = from_json(data[: max(first, 0)], UploadMeta)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None, [], 0
    blocks: list[UploadBlock] = []
    at, reached = first + 1, 0
    while (end := data.find(b"\n", at)) >= 0:
        found = _LINE.match(data[at:end])
        if found is None:
            break
        block = UploadBlock(int(found[1]), int(found[2]), found[3].decode())
        if block.offset != reached or block.end >= meta.length:
            break
        blocks.append(block)
        at, reached = end + 1, block.end
    return meta, blocks, at


class PartialUpload:
    """One partial upload. The caller sees to it that one thread at a time writes.

    Attributes:
        meta: what it is.
        offset: bytes that count.
    """

    def __init__(self, tree: Tree, directory: str, meta: UploadMeta) -> None:
        self._tree = tree
        self.part = f"{directory}/{meta.id}.part"
        self.log = f"{directory}/{meta.id}.upload"
        self.meta = meta
        self.offset = 0
        self._md5: hashlib._Hash | None = new_md5()
        """Of the bytes that count; None: they are to be read again first."""
        self._written = 0
        self._md5_written: hashlib._Hash = new_md5()

    @classmethod
    def create(cls, tree: Tree, directory: str, meta: UploadMeta) -> PartialUpload:
        """A new upload; it is there after a power cut when this returns."""
        partial = cls(tree, directory, meta)
        with tree.create(partial.part):
            crash.point("upload.part_made")
        tree.write_atomic(partial.log, msgspec.json.encode(meta) + b"\n")
        return partial

    @classmethod
    def open(cls, tree: Tree, directory: str, name: str) -> PartialUpload | None:
        """The upload `name` that an earlier process left; None, and it is gone, if it is none."""
        rel = f"{directory}/{name}.upload"
        # Flushed before anybody hears an offset of it: a killed process may not have come to that.
        tree.append_file(rel).close()
        meta, blocks, _ = parse_upload(tree.read(rel))
        if meta is None or meta.id != name:
            tree.unlink(rel, sync=False)
            tree.unlink(f"{directory}/{name}.part", sync=False)
            return None
        partial = cls(tree, directory, meta)
        found = tree.stat(partial.part)
        size = found.st_size if found is not None else 0
        partial.offset = max((each.end for each in blocks if each.end <= size), default=0)
        partial._md5 = None  # not known before the bytes are read again
        return partial

    @property
    def touched(self) -> float:
        """When bytes last came, seconds since the epoch."""
        found = self._tree.stat(self.part)
        return found.st_mtime if found is not None else self.meta.created

    def prepare(self) -> int:
        """Make sure that the bytes before `offset` are those that were acknowledged."""
        if self._md5 is None:
            _, blocks, _ = parse_upload(self._tree.read(self.log))
            self._md5, good = self._reread(blocks)
            self._cut(good)
        self._written, self._md5_written = self.offset, self._md5
        return self.offset

    @property
    def written(self) -> int:
        """Bytes that are there without a gap; those behind `offset` may go with the power."""
        return max(self.offset, self._written)

    @property
    def is_read(self) -> bool:
        """Whether `prepare` has nothing to read."""
        return self._md5 is not None

    def _reread(self, blocks: list[UploadBlock]) -> tuple[hashlib._Hash, list[UploadBlock]]:
        whole = new_md5()
        good: list[UploadBlock] = []
        fd = self._tree.open_read(self.part)
        try:
            for block in blocks:
                until_here, check = whole.copy(), xxhash.xxh3_64()
                length = 0
                for piece in read_blocks(fd, start=block.offset, end=block.end):
                    until_here.update(piece)
                    check.update(piece)
                    length += len(piece)
                if length != block.length or check.hexdigest() != block.xxh3:
                    break
                whole = until_here
                good.append(block)
        finally:
            os.close(fd)
        return whole, good

    def _cut(self, good: list[UploadBlock]) -> None:
        """Cut both files back to the good blocks; the log first, as it decides."""
        # The first line as it is: another version may have written it with other fields.
        keep = self._tree.read(self.log).find(b"\n") + 1 + sum(len(each.line()) for each in good)
        with self._tree.append_file(self.log) as file:  # which is flushed by that
            if file.size != keep:
                file.truncate(keep)
        self.offset = good[-1].end if good else 0
        crash.point("upload.cut")
        with self._tree.open_write(self.part) as part:
            part.truncate(self.offset)

    def write(self, file: WriteFile, data: bytes | memoryview) -> Pending:
        """Write bytes behind those that were written; they count after `flush` and `count`."""
        return self.digest(self.put(file, data, self._written), data)

    def put(
        self, file: WriteFile, data: bytes | memoryview, begin: int, xxh3: str | None = None
    ) -> UploadBlock:
        """Write bytes where they belong, perhaps ahead of some before them; `digest` comes next.

        Nobody finds them before they count, whatever becomes of those before them. `xxh3` is
        theirs, where it is known.
        """
        file.write(data, at=begin)
        file.begin_sync()
        return UploadBlock(begin, len(data), xxh3 or xxh3_64(data))

    def digest(self, block: UploadBlock, data: bytes | memoryview) -> Pending:
        """Take bytes into the MD5 of the file, behind those that were taken."""
        whole = self._md5_written.copy()
        whole.update(data)
        self._written, self._md5_written = block.end, whole
        return Pending(block, whole)

    def flush(self, file: WriteFile) -> None:
        """Flush what was written."""
        file.sync()
        crash.point("upload.block_synced")

    def count(self, pending: Pending) -> None:
        """Make a block count that is flushed, and behind which all counts: flush its line."""
        try:
            # `create` or `open` has flushed it: once more would be two flushes of three a block.
            with self._tree.append_file(self.log, settled=True) as log:
                log.append(pending.block.line())
        except BaseException:
            self._md5 = None  # half a line may be left, which `prepare` cuts off
            raise
        crash.point("upload.block_logged")
        self.offset, self._md5 = pending.block.end, pending.md5

    def give_up(self, file: WriteFile, at: int) -> None:
        """Cut off what was written from `at` on; what cannot be cut is written over later."""
        with suppress(OSError, TsferryError):
            file.truncate(at)

    def drop(self) -> None:
        """Remove it; without its log the rest is swept at the next start."""
        self._tree.unlink(self.log, sync=False)
        self._tree.unlink(self.part)
