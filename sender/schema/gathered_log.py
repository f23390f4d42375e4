"""All that a schema directory says, gathered into one text log that only grows.

A binary log, a snapshot of the tree or the logs of several regions become lines of a text log, in
the order in which they were found: so one position says how far all of them are applied. The lines
are kept beside what is remembered of the receiver, and each file is read on from where it was read
to; a round in which none has changed reads none.

Format, version 1: `schema_lines.txt`, and `schema_lines.state`, one JSON object, `Gathered`,
replaced as a whole after the lines are flushed. Both can be lost: then all is read again. What the
lines have beyond the size in the state was never told, and is written over.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, Final

import msgspec

from common import crash
from common.console.terminal import counted
from common.decoders import from_json
from common.digests import read_blocks, xxh3_128
from common.durable import Tree, memory_file
from common.errors import DamagedError, Transient
from common.formats.mtreetext import plain_line, read_tree, tree_log
from sender.schema.beside import TLOG, SchemaFile, database_of, schema_files
from sender.schema.binary_log import BinaryLog, binary_nodes
from sender.schema.tag_files import tags_at

if TYPE_CHECKING:
    from sender.schema.notes import SchemaNotes

__all__ = ["ChangedError", "Gathered", "edge_check", "gather"]

_LINES: Final = "schema_lines.txt"
_STATE: Final = "schema_lines.state"
_VERSION: Final = 1
_EDGE: Final = 4096
_PIECE: Final = 1 << 20
_TREES: Final = ("tree", "binary tree")


class ChangedError(Transient):
    """The log was cut while it was read; the next round looks again."""

    slug = "schema-changed"


class _Read(msgspec.Struct, kw_only=True):
    """A file as far as it was read.

    Attributes:
        inode: of the file.
        whole: its size then.
        mtime_ns: its time then.
        read: bytes that became lines.
        check: by which these are known again.
        unread: what is in them that is not read, with the number of its records.
        problem: why it was not read to its end.
    """

    inode: int
    whole: int
    mtime_ns: int
    read: int = 0
    check: str = ""
    unread: dict[str, int] = {}
    problem: str | None = None


class Gathered(msgspec.Struct, kw_only=True):
    """What the lines are made of.

    Attributes:
        version: of this format.
        size: of the lines.
        check: by which they are known again.
        files: by name, as far as they were read.
        tlogs: names of the files with tags; the place of one is in its offsets.
    """

    version: int = _VERSION
    size: int = 0
    check: str = ""
    files: dict[str, _Read] = {}
    tlogs: list[str] = []

    def unread(self) -> list[str]:
        """What is not read of the files, in words."""
        said = [each.problem for each in self.files.values() if each.problem is not None]
        kinds: dict[str, int] = {}
        for each in self.files.values():
            for what, count in each.unread.items():
                kinds[what] = kinds.get(what, 0) + count
        return said + [
            f"{what}: {counted(count, 'record')}" for what, count in sorted(kinds.items())
        ]


def edge_check(descriptor: int, size: int) -> str:
    """Digest of what a file has at its begin, and before a size."""
    head = os.pread(descriptor, min(_EDGE, size), 0)
    begin = max(0, size - _EDGE)
    return xxh3_128(head + os.pread(descriptor, size - begin, begin)).hex()


def gather(
    tree: Tree, notes: SchemaNotes | None, files: Sequence[SchemaFile]
) -> tuple[int, Gathered]:
    """The lines, open for reading, and what they are made of. The caller closes them.

    Args:
        tree: the schema directory.
        notes: beside which the lines are kept; None: they are in memory only.
        files: of the directory, from `schema_files`.

    Raises:
        ChangedError: a checkpoint was taken while it was read.
        DamagedError: a snapshot, or the log of a whole database, is damaged.
        NoSpaceError: there is no room for the lines.
    """
    kept = None if notes is None else _Kept(notes)
    state = None if kept is None else kept.state()
    if state is not None and not _goes_on(tree, state, files):
        state = None
    if kept is not None and state is not None:
        if all(_same(state.files.get(each.name), each) for each in files):
            return kept.open(), state
        old = state.size
    else:
        state, old = Gathered(), 0
    lines = _new_lines(tree, files, state)
    if kept is not None and kept.writes:
        kept.write(lines, state, old)
        return kept.open(), state
    before = kept.lines(old) if kept is not None and old else []
    descriptor = memory_file(chain(before, lines))
    state.size = os.fstat(descriptor).st_size
    return descriptor, state


def _same(known: _Read | None, file: SchemaFile) -> bool:
    now = (file.found.st_ino, file.found.st_size, file.found.st_mtime_ns)
    return known is not None and (known.inode, known.whole, known.mtime_ns) == now


def _goes_on(tree: Tree, state: Gathered, files: Sequence[SchemaFile]) -> bool:
    """Whether the files that became lines are there, and have at most grown."""
    there = {each.name for each in files}
    if not there.issuperset(state.files):
        return False
    for file in files:
        known = state.files.get(file.name)
        if known is None:
            if file.kind in _TREES:
                return False
        elif not _same(known, file):
            if file.kind in _TREES or known.inode != file.found.st_ino:
                return False
            if not _is_checked(tree, file, known):
                return False
    return True


def _is_checked(tree: Tree, file: SchemaFile, known: _Read) -> bool:
    descriptor = tree.open_read(file.name)
    try:
        return edge_check(descriptor, known.read) == known.check
    finally:
        os.close(descriptor)


# -- reading ---------------------------------------------------------------------------------------


def _new_lines(tree: Tree, files: Sequence[SchemaFile], state: Gathered) -> Iterator[bytes]:
    for file in files:
        known = state.files.get(file.name)
        if known is not None and _same(known, file):
            continue
        if known is None:
            known = state.files[file.name] = _Read(inode=0, whole=0, mtime_ns=0)
            database = database_of(file.name)
            if database is not None:
                yield f"{plain_line('2', database)}\n".encode()
        descriptor = tree.open_read(file.name)
        try:
            found = os.fstat(descriptor)
            yield from _lines(descriptor, file, known, state)
            known.inode, known.whole = found.st_ino, found.st_size
            known.mtime_ns = found.st_mtime_ns
            known.check = edge_check(descriptor, known.read)
        finally:
            os.close(descriptor)
    if _wholes(files) != _wholes(schema_files(tree)):
        raise ChangedError("a checkpoint of the schema was taken while it was read; once more")


def _wholes(files: Sequence[SchemaFile]) -> list[tuple[str, int]]:
    """What a checkpoint of a whole database replaces."""
    return [(each.name, each.found.st_ino) for each in files if each.kind != "region"]


def _lines(descriptor: int, file: SchemaFile, known: _Read, state: Gathered) -> Iterator[bytes]:
    if file.kind == "text":
        yield from _text_lines(descriptor, known)
    elif file.kind in _TREES:
        nodes = read_tree if file.kind == "tree" else binary_nodes
        content = b"".join(read_blocks(descriptor))
        yield from map(str.encode, tree_log(nodes(content, file.name), file.name))
        known.read = len(content)
    else:
        yield from map(str.encode, _binary_lines(descriptor, file, known, state))


def _binary_lines(
    descriptor: int, file: SchemaFile, known: _Read, state: Gathered
) -> Iterator[str]:
    log = BinaryLog(descriptor, file.name, known.read, unread=known.unread)
    if file.kind == "region":
        log.region, log.tags_at = True, tags_at(_place(state.tlogs, file.tlog))
    known.problem = None
    try:
        yield from log.lines()
    except DamagedError as error:
        if not log.region:
            raise
        # One region that is damaged keeps no other one back.
        known.problem = f"the log of a region is read up to its damage: {error.message}"
    known.read = log.read


def _text_lines(descriptor: int, known: _Read) -> Iterator[bytes]:
    rest = b""
    for block in read_blocks(descriptor, start=known.read):
        whole, end, rest = (rest + block).rpartition(b"\n")
        known.read += len(whole) + len(end)
        yield whole + end


def _place(tlogs: list[str], name: str) -> int:
    """The place of a region's tags; the first one is that of a whole database."""
    for each in (TLOG, name):
        if each not in tlogs:
            tlogs.append(each)
    return tlogs.index(name)


# -- what is kept ----------------------------------------------------------------------------------


class _Kept:
    """The two files."""

    def __init__(self, notes: SchemaNotes) -> None:
        self._tree = notes.tree
        self._at = notes.folder
        self.writes = notes.keeps

    def state(self) -> Gathered | None:
        """What the lines are made of, if both are there and belong together."""
        with suppress(FileNotFoundError, msgspec.MsgspecError, UnicodeDecodeError):
            state = from_json(self._tree.read(f"{self._at}/{_STATE}"), Gathered)
            descriptor = self.open()
            try:
                whole = os.fstat(descriptor).st_size >= state.size
                if state.version == _VERSION and whole:
                    return state if edge_check(descriptor, state.size) == state.check else None
            finally:
                os.close(descriptor)
        return None

    def open(self) -> int:
        """The lines, open for reading."""
        return self._tree.open_read(f"{self._at}/{_LINES}")

    def lines(self, size: int) -> Iterator[bytes]:
        """Their first bytes."""
        descriptor = self.open()
        try:
            yield from read_blocks(descriptor, end=size)
        finally:
            os.close(descriptor)

    def write(self, lines: Iterable[bytes], state: Gathered, size: int) -> None:
        """Add lines behind a size; behind nothing, they take the place of those that are there."""
        self._tree.make_dirs(self._at)
        rel = f"{self._at}/{_LINES}" if size else f"{self._at}/.{_LINES}"
        if not size:
            self._tree.unlink(rel, sync=False)
        with self._tree.open_write(rel) if size else self._tree.create(rel) as file:
            for piece in _pieces(lines):
                size += file.write(piece, at=size)
            file.sync()
            state.size, state.check = size, edge_check(file.fileno(), size)
        crash.point("gathered.lines_written")
        if rel.endswith(f".{_LINES}"):
            self._tree.rename(rel, f"{self._at}/{_LINES}")
            crash.point("gathered.lines_renamed")
        self._tree.write_atomic(f"{self._at}/{_STATE}", msgspec.json.encode(state))
        crash.point("gathered.noted")


def _pieces(lines: Iterable[bytes]) -> Iterator[bytes]:
    waiting: list[bytes] = []
    size = 0
    for line in lines:
        waiting.append(line)
        size += len(line)
        if size >= _PIECE:
            yield b"".join(waiting)
            waiting, size = [], 0
    yield b"".join(waiting)
