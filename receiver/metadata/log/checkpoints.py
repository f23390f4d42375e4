r"""Checkpoints: the whole state as of a commit, so that a start reads only the log behind it.

    head     "TSFSNAP\n", version uint32, 0 uint32, LSN uint64, salt uint64, check uint64
    section  "TSFs", length of the name uint32, length of the content uint64, content check uint64,
             head check uint64, name, zeros to a multiple of 8, content, zeros to a multiple of 8
    end      "TSFe", 0 uint32, number of sections uint64, check of all content checks uint64,
             head check uint64

Numbers are little-endian; checks are xxh3-64 with the salt as seed, a section's head check covers
its name too. What the sections hold is said by who made them (`receiver.metadata.log.freeze`).

A checkpoint is written beside, flushed, renamed, and read back from the disk; only then may the
older ones and the log before it go. Two are kept, so that damage to one loses nothing.
"""

from __future__ import annotations

import mmap
import os
import re
import secrets
import struct
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import xxhash

from common import crash
from common.durable import temporary_name
from common.errors import DamagedError
from receiver.metadata.model.errors import NewerLogError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from _typeshed import ReadableBuffer

    from common.durable import Tree, WriteFile

__all__ = [
    "KEPT",
    "Checkpoint",
    "checkpoint_name",
    "checkpoints",
    "open_checkpoint",
    "remove_older",
    "write_checkpoint",
]

_VERSION = 2
KEPT = 2
"""Checkpoints that stay."""

_NAME = re.compile(r"mtree\.snapshot-([1-9][0-9]{0,18})\.tsf\Z")
_MAGIC = b"TSFSNAP\n"
_HEAD = struct.Struct("<8sIIQQ")
_SECTION = struct.Struct("<4sIQQ")
_SECTION_MAGIC = b"TSFs"
_END_MAGIC = b"TSFe"
_CHECK = struct.Struct("<Q")
_HEAD_SIZE = _HEAD.size + _CHECK.size
_SECTION_SIZE = _SECTION.size + _CHECK.size
_ALIGN = 8
_LONGEST_NAME = 256
_SLICE = 2 << 20
"""Bytes between two flushes of the file: one flush of all would hold up those of the log."""


class Checkpoint(NamedTuple):
    """A checkpoint, as its name tells."""

    lsn: int
    name: str


def checkpoint_name(lsn: int) -> str:
    """The name of the checkpoint of an LSN."""
    return f"mtree.snapshot-{lsn}.tsf"


def checkpoints(tree: Tree) -> list[Checkpoint]:
    """The checkpoints of a schema directory, the newest first."""
    found = (Checkpoint(int(match[1]), match.string) for match in tree.matching(_NAME))
    return sorted(found, reverse=True)


# -- writing -------------------------------------------------------------------------------------


def write_checkpoint(
    tree: Tree, lsn: int, sections: Iterable[tuple[str, ReadableBuffer]]
) -> Checkpoint:
    """Write a checkpoint and read it back.

    Args:
        tree: the schema directory.
        lsn: of the last commit in it.
        sections: name and content of each; names are unique.

    Raises:
        NoSpaceError: the disk is full; nothing is left of it.
        DamagedError: it does not read back as it was written; it is removed.
    """
    made = Checkpoint(lsn, checkpoint_name(lsn))
    temporary = temporary_name()
    try:
        with tree.create(temporary, mode=0o640) as file:
            out = _Writer(file)
            _write(out, lsn, sections)
            file.sync()
            crash.point("checkpoint.written")
        tree.rename(temporary, made.name)
    except crash.SimulatedCrash:
        raise
    except BaseException:
        tree.unlink(temporary, sync=False)
        raise
    crash.point("checkpoint.renamed")
    try:
        _verify(tree, made, out.written)
    except DamagedError:
        tree.unlink(made.name)  # or it would count as one of those that are kept
        raise
    crash.point("checkpoint.verified")
    return made


class _Writer:
    """A file written from its begin to its end, flushed now and then."""

    def __init__(self, file: WriteFile) -> None:
        self._file = file
        self._size = 0
        self._flushed = 0
        self._digest = xxhash.xxh3_64()

    @property
    def written(self) -> tuple[int, int]:
        """Bytes, and the digest of all."""
        return self._size, self._digest.intdigest()

    def write(self, content: ReadableBuffer) -> None:
        view = memoryview(content).cast("B")
        for begin in range(0, len(view), _SLICE):
            some = view[begin : begin + _SLICE]
            self._size += self._file.write(some, at=self._size)
            self._digest.update(some)
            if self._size - self._flushed >= _SLICE:
                self._file.sync()
                self._flushed = self._size

    def pad(self) -> None:
        self.write(bytes(-self._size % _ALIGN))


def _write(out: _Writer, lsn: int, sections: Iterable[tuple[str, ReadableBuffer]]) -> None:
    salt = secrets.randbits(64)
    head = _HEAD.pack(_MAGIC, _VERSION, 0, lsn, salt)
    out.write(head + _checked(salt, head))
    number, every = 0, xxhash.xxh3_64(seed=salt)
    for name, content in sections:
        raw = memoryview(content)
        raw = raw.cast("B") if raw.nbytes else memoryview(b"")
        check = _digest(raw, salt)
        every.update(_CHECK.pack(check))
        encoded = name.encode()
        head = _SECTION.pack(_SECTION_MAGIC, len(encoded), raw.nbytes, check)
        out.write(head + _checked(salt, head + encoded) + encoded)
        out.pad()
        out.write(raw)
        out.pad()
        number += 1
    head = _SECTION.pack(_END_MAGIC, 0, number, every.intdigest())
    out.write(head + _checked(salt, head))


def _digest(content: memoryview, salt: int) -> int:
    """xxh3-64, in slices: the interpreter's lock may be held for each."""
    state = xxhash.xxh3_64(seed=salt)
    for begin in range(0, len(content), _SLICE):
        state.update(content[begin : begin + _SLICE])
    return state.intdigest()


def _checked(salt: int, head: bytes) -> bytes:
    return _CHECK.pack(xxhash.xxh3_64_intdigest(head, seed=salt))


def _verify(tree: Tree, made: Checkpoint, written: tuple[int, int]) -> None:
    """Read it from the disk, a slice at a time: what it was made of is in memory twice already."""
    if _read_back(tree, made) == written:
        return
    with open_checkpoint(tree, made):  # which says where the damage is
        raise _damage(str(tree.path / made.name), 0, "it does not read back as it was written")


def _read_back(tree: Tree, made: Checkpoint) -> tuple[int, int] | None:
    at, digest, some = 0, xxhash.xxh3_64(), memoryview(bytearray(_SLICE))
    fd = tree.open_read(made.name)
    try:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        while got := os.preadv(fd, [some], at):
            digest.update(some[:got])
            at += got
    except OSError:
        return None
    finally:
        os.close(fd)
    return at, digest.intdigest()


# -- reading -------------------------------------------------------------------------------------


@contextmanager
def open_checkpoint(tree: Tree, wanted: Checkpoint) -> Iterator[dict[str, memoryview]]:
    """The sections of a checkpoint, every check done; they are gone when the block ends.

    It is read, not mapped: a page that has to come from the disk would stop all threads.

    Raises:
        FileNotFoundError: it has just been removed.
        DamagedError: it is damaged; the message names file and offset.
        NewerLogError: a newer version of tsferry wrote it.
    """
    what = str(tree.path / wanted.name)
    fd = tree.open_read(wanted.name)
    at = 0
    try:
        # Not a `bytearray`: clearing it would stop all threads for as long as it takes.
        content = mmap.mmap(-1, max(1, os.fstat(fd).st_size), flags=mmap.MAP_PRIVATE)
        with memoryview(content) as into:
            while at < len(into) and (got := os.preadv(fd, [into[at : at + _SLICE]], at)):
                at += got
    except OSError as error:  # a bad sector: another checkpoint, or the log, stands in for it
        raise _damage(what, at, f"it cannot be read: {error.strerror}") from error
    finally:
        os.close(fd)
    if at < _HEAD_SIZE + _SECTION_SIZE:
        raise _damage(what, 0, "it is too short")
    with memoryview(content)[:at] as whole:
        parsed = _Parsed(whole, what, wanted.lsn)
        try:
            yield parsed.sections
        finally:
            for each in parsed.views:
                each.release()


class _Parsed:
    """A checkpoint, cut into its sections."""

    def __init__(self, whole: memoryview, what: str, lsn: int) -> None:
        self.sections: dict[str, memoryview] = {}
        self.views: list[memoryview] = []
        self._whole = whole
        self._what = what
        try:
            self._salt = self._read_head(lsn)
            self._read_sections()
        except BaseException:
            for each in self.views:
                each.release()
            raise

    def _read_head(self, lsn: int) -> int:
        raw = bytes(self._whole[:_HEAD_SIZE])
        if not raw.startswith(_MAGIC):
            raise _damage(self._what, 0, "this is no checkpoint of the metadata engine")
        _, version, _, found, salt = _HEAD.unpack_from(raw)
        # The head is the same in all versions: a version that is only damage must not keep the
        # checkpoint before from standing in.
        if raw[_HEAD.size :] != _checked(salt, raw[: _HEAD.size]):
            raise _damage(self._what, 0, "its head does not match its check")
        if version > _VERSION:
            raise NewerLogError(
                f"{self._what} has version {version}, written by a newer tsferry; "
                f"this one reads versions up to {_VERSION}"
            )
        if found != lsn:
            raise _damage(self._what, 0, f"it is of LSN {found}, unlike its name")
        return int(salt)

    def _read_sections(self) -> None:
        at, every = _HEAD_SIZE, xxhash.xxh3_64(seed=self._salt)
        while True:
            magic, name_size, size, check = self._section_head(at)
            if magic == _END_MAGIC:
                if (size, check) != (len(self.sections), every.intdigest()):
                    raise _damage(self._what, at, "sections are missing")
                if at + _SECTION_SIZE != len(self._whole):
                    raise _damage(self._what, at, "something follows its end")
                return
            name = bytes(self._whole[at + _SECTION_SIZE :][:name_size]).decode()
            begin = self._after_padding(at + _SECTION_SIZE + name_size)
            content = self._whole[begin : begin + size]
            self.views.append(content)
            if _digest(content, self._salt) != check:
                raise _damage(self._what, at, f"the section {name!r} does not match its check")
            every.update(_CHECK.pack(check))
            self.sections[name] = content
            at = self._after_padding(begin + size)

    def _after_padding(self, at: int) -> int:
        end = at + -at % _ALIGN
        if any(self._whole[at:end]):
            raise _damage(self._what, at, "what fills up to the next section is not empty")
        return end

    def _section_head(self, at: int) -> tuple[bytes, int, int, int]:
        raw = bytes(self._whole[at : at + _SECTION_SIZE])
        if len(raw) < _SECTION_SIZE:
            raise _damage(self._what, at, "it is cut off")
        magic, name_size, size, check = _SECTION.unpack_from(raw)
        if magic not in (_SECTION_MAGIC, _END_MAGIC) or name_size > _LONGEST_NAME:
            raise _damage(self._what, at, "no section begins here")
        name = bytes(self._whole[at + _SECTION_SIZE :][:name_size])
        if raw[_SECTION.size :] != _checked(self._salt, raw[: _SECTION.size] + name):
            raise _damage(self._what, at, "the head of a section does not match its check")
        if magic == _SECTION_MAGIC and at + size > len(self._whole):
            raise _damage(self._what, at, "it is cut off")
        return magic, name_size, size, check


def _damage(what: str, at: int, why: str) -> DamagedError:
    return DamagedError(
        f"{what} is damaged at offset {at}: {why}", extra={"file": what, "offset": at}
    )


# -- removing ------------------------------------------------------------------------------------


def remove_older(tree: Tree) -> list[Checkpoint]:
    """Remove all but the newest checkpoints, the oldest first; returns those that stay."""
    found = checkpoints(tree)
    for each in reversed(found[KEPT:]):
        tree.unlink(each.name)
        crash.point("checkpoint.removed")
    return found[:KEPT]
