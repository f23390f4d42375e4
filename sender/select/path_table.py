"""Many files in little memory: a table by directory, whose cost is bytes and not objects.

A `PathTable` is a mapping from paths to files, as a dict would be, that never changes: a changed
one is another table, which shares all directories that are as they were. The files of a directory
are a block of three pieces of bytes, in order of their names:

    names     one after the other, with a newline between two
    numbers   size, modification time and inode of each (`NUMBERS`)
    rest      what else is known of each, by the `RowForm` of the table

A file is an object only while somebody looks at it. Two tables are compared a directory at a time:
where nothing has changed their bytes are the same, and often the same object.

The functions take any mapping; for one that is no table they do what they say file by file.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, ItemsView, Iterable, Iterator, Mapping, ValuesView
from itertools import count
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import msgspec

from common.names import FilePath, Kind

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "NUMBERS",
    "Directory",
    "PathBlock",
    "PathBlockBuilder",
    "PathTable",
    "RowForm",
    "differing",
    "directory_of",
    "directory_text",
    "have_same_paths",
    "having",
    "joined",
    "lacking",
    "one_of_each_directory",
    "pack_numbers",
    "with_changes",
]

NUMBERS: Final = struct.Struct("<qqQ")
"""Size, modification time in nanoseconds, inode."""

Directory = tuple[bool, str, str, int]
"""Whether it is `unsequence`, storage group, virtual group, partition: sorts as paths do."""


class TableRow(Protocol):
    """What can stand in a table."""

    @property
    def path(self) -> FilePath:
        """Its path."""
        ...

    @property
    def data_dir(self) -> Path:
        """The data directory that it is of."""
        ...


R = TypeVar("R", bound=TableRow)
T = TypeVar("T")


class RowForm(Protocol[R]):
    """How a kind of files stands in blocks.

    Attributes:
        rest: the form of what is known of a file beside its numbers.
    """

    rest: struct.Struct

    def where(self, row: R) -> str | None:
        """The directory that it lies in, if that is not the one of its path."""
        ...

    def pack(self, row: R) -> tuple[bytes, bytes]:
        """Its numbers, and the rest."""
        ...

    def row(
        self, path: FilePath, block: PathBlock, numbers: tuple[int, int, int], rest: tuple[Any, ...]
    ) -> R:
        """The file again."""
        ...


def pack_numbers(size: int, mtime_ns: int, inode: int) -> bytes:
    """The numbers of a file; what no file can have is brought to what one can."""
    try:
        return NUMBERS.pack(size, mtime_ns, inode)
    except struct.error:
        return NUMBERS.pack(_int64(size), _int64(mtime_ns), inode % (1 << 64))


def _int64(number: int) -> int:
    return max(-(1 << 63), min(number, (1 << 63) - 1))


class PathBlock(msgspec.Struct, eq=False):
    """Files of one directory and one data directory; never changed once it is made.

    Attributes:
        directory: that their paths are in.
        data_dir: that they are of.
        where: the directory that they lie in, if that is not the one of their paths.
        names: see the module.
        numbers: likewise.
        rest: likewise.
        tally: what was counted of them, kept by whoever did.
    """

    directory: Directory
    data_dir: Path
    where: str | None
    names: bytes
    numbers: bytes
    rest: bytes
    tally: Any = None

    def __len__(self) -> int:
        return len(self.numbers) // NUMBERS.size

    def list_names(self) -> list[str]:
        """The names, in order."""
        return self.names.decode().split("\n")

    def numbers_at(self, at: int) -> bytes:
        """Those of one file."""
        return self.numbers[at * NUMBERS.size : (at + 1) * NUMBERS.size]

    def numbers_by_name(self) -> dict[str, bytes]:
        """The numbers of each file."""
        return {name: self.numbers_at(at) for at, name in enumerate(self.list_names())}

    def is_as(self, other: PathBlock) -> bool:
        """Whether both have the same files by name and numbers."""
        return (
            self.names == other.names
            and self.numbers == other.numbers
            and self.data_dir == other.data_dir
        )


class PathBlockBuilder:
    """Gathers files of one directory, in any order, each name once."""

    def __init__(self, directory: Directory, data_dir: Path, where: str | None = None) -> None:
        self._place = (directory, data_dir, where)
        self._names: list[str] = []
        self._numbers: list[bytes] = []
        self._rest: list[bytes] = []

    def add(self, name: str, numbers: bytes, rest: bytes) -> None:
        """Take a file in."""
        self._names.append(name)
        self._numbers.append(numbers)
        self._rest.append(rest)

    def block(self, like: PathBlock | None = None) -> PathBlock | None:
        """All of them, None for none; what is as in `like` is not held twice."""
        if not self._names:
            return None
        names, numbers, rest = self._names, self._numbers, self._rest
        if any(map(str.__gt__, names, names[1:])):
            order = sorted(range(len(names)), key=names.__getitem__)
            names = [names[at] for at in order]
            numbers, rest = [numbers[at] for at in order], [rest[at] for at in order]
        made = PathBlock(*self._place, "\n".join(names).encode(), b"".join(numbers), b"".join(rest))
        if like is not None:
            made.names = like.names if like.names == made.names else made.names
            made.numbers = like.numbers if like.numbers == made.numbers else made.numbers
        return made


def directory_of(path: FilePath) -> Directory:
    """The directory of a path, as tables have it."""
    return (path.kind is Kind.UNSEQUENCE, path.sg, path.vsg, path.partition)


def directory_text(directory: Directory) -> str:
    """The same as paths have it, without a trailing slash."""
    late, sg, vsg, partition = directory
    return f"{Kind.UNSEQUENCE if late else Kind.SEQUENCE}/{sg}/{vsg}/{partition}"


def _path(directory: Directory, name: str) -> FilePath:
    kind = Kind.UNSEQUENCE if directory[0] else Kind.SEQUENCE
    return FilePath(kind, *directory[1:], name)


class PathTable(Mapping[FilePath, R]):
    """See the module."""

    __slots__ = ("_asked", "_blocks", "_count", "_form")

    def __init__(self, form: RowForm[R], blocks: Iterable[PathBlock] = ()) -> None:
        """A table of blocks; those of one directory share no name."""
        self._form = form
        self._blocks: dict[Directory, tuple[PathBlock, ...]] = {}
        for each in blocks:
            self._blocks[each.directory] = (*self._blocks.get(each.directory, ()), each)
        self._counted()

    @classmethod
    def of(cls, form: RowForm[R], rows: Iterable[R]) -> PathTable[R]:
        """A table of files; of two with one path the later counts."""
        return cls(form).changed(rows)

    def _counted(self) -> None:
        self._count = sum(len(each) for each in self.blocks())
        # The names of the directory that was asked about last: most questions are about one.
        self._asked: tuple[Directory, tuple[PathBlock, ...], dict[str, int]] | None = None

    # -- as a mapping ----------------------------------------------------------------------

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[FilePath]:
        for block in self.blocks():
            for name in block.list_names():
                yield _path(block.directory, name)

    def __getitem__(self, path: FilePath) -> R:
        found = self.get(path)
        if found is None:
            raise KeyError(path)
        return found

    def __contains__(self, path: object) -> bool:
        return isinstance(path, FilePath) and self._find(path) is not None

    def get(self, path: FilePath, default: T | None = None) -> R | T | None:  # type: ignore[override]
        """The file at a path."""
        found = self._find(path)
        if found is None:
            return default
        return self._row(path, *found)

    def items(self) -> ItemsView[FilePath, R]:
        """All, a directory after the other."""
        return _Items(self)

    def values(self) -> ValuesView[R]:
        """The same without the paths."""
        return _Values(self)

    def _find(self, path: FilePath) -> tuple[PathBlock, int] | None:
        directory = directory_of(path)
        asked = self._asked
        if asked is None or asked[0] != directory:
            blocks = self._blocks.get(directory)
            if blocks is None:
                return None
            names = (name for each in blocks for name in each.list_names())
            asked = self._asked = (directory, blocks, dict(zip(names, count(), strict=False)))
        at = asked[2].get(path.name)
        if at is None:
            return None
        for block in asked[1]:
            if at < len(block):
                return block, at
            at -= len(block)
        raise AssertionError("a name beyond its blocks")

    # -- as blocks -------------------------------------------------------------------------

    @property
    def form(self) -> RowForm[R]:
        """The form of its files."""
        return self._form

    def directories(self) -> Mapping[Directory, tuple[PathBlock, ...]]:
        """The blocks of each directory."""
        return self._blocks

    def blocks(self) -> Iterator[PathBlock]:
        """All blocks."""
        for several in self._blocks.values():
            yield from several

    def row(self, block: PathBlock, name: str, at: int) -> R:
        """One file of a block, by its name and where that stands."""
        return self._row(_path(block.directory, name), block, at)

    def _row(self, path: FilePath, block: PathBlock, at: int) -> R:
        rest = self._form.rest.unpack_from(block.rest, at * self._form.rest.size)
        size, mtime_ns, inode = NUMBERS.unpack_from(block.numbers, at * NUMBERS.size)
        return self._form.row(path, block, (size, mtime_ns, inode), rest)

    def rows(self, block: PathBlock) -> Iterator[R]:
        """All files of a block."""
        numbers, rests = NUMBERS.iter_unpack(block.numbers), self._form.rest.iter_unpack(block.rest)
        directory, row = block.directory, self._form.row
        for name, number, rest in zip(block.list_names(), numbers, rests, strict=True):
            yield row(_path(directory, name), block, number, rest)

    # -- another one -----------------------------------------------------------------------

    def changed(self, added: Iterable[R] = (), removed: Iterable[FilePath] = ()) -> PathTable[R]:
        """This table without some paths, and with files, which take the place of others."""
        changes: dict[Directory, dict[str, R | None]] = {}
        for path in removed:
            if path in self:
                changes.setdefault(directory_of(path), {})[path.name] = None
        for each in added:
            changes.setdefault(directory_of(each.path), {})[each.path.name] = each
        if not changes:
            return self
        made = PathTable(self._form)
        made._blocks = dict(self._blocks)
        for directory, rows in changes.items():
            blocks = tuple(self._changed_blocks(directory, rows))
            if blocks:
                made._blocks[directory] = blocks
            else:
                made._blocks.pop(directory, None)
        made._counted()
        return made

    def _changed_blocks(
        self, directory: Directory, rows: dict[str, R | None]
    ) -> Iterator[PathBlock]:
        builders: dict[tuple[Path, str | None], PathBlockBuilder] = {}
        size = self._form.rest.size

        def builder(data_dir: Path, where: str | None) -> PathBlockBuilder:
            at = (data_dir, where)
            if at not in builders:
                builders[at] = PathBlockBuilder(directory, data_dir, where)
            return builders[at]

        for block in self._blocks.get(directory, ()):
            into = builder(block.data_dir, block.where)
            for at, name in enumerate(block.list_names()):
                if name not in rows:
                    rest = block.rest[at * size : (at + 1) * size]
                    into.add(name, block.numbers_at(at), rest)
        for name, row in rows.items():
            if row is not None:
                packed = self._form.pack(row)
                builder(row.data_dir, self._form.where(row)).add(name, *packed)
        for each in builders.values():
            if (made := each.block()) is not None:
                yield made


class _Items(ItemsView[FilePath, R]):
    _mapping: PathTable[R]

    def __iter__(self) -> Iterator[tuple[FilePath, R]]:
        for row in self._mapping.values():
            yield row.path, row


class _Values(ValuesView[R]):
    _mapping: PathTable[R]

    def __iter__(self) -> Iterator[R]:
        for block in self._mapping.blocks():
            yield from self._mapping.rows(block)


# -- of any mapping ------------------------------------------------------------------------------


def with_changes(
    files: Mapping[FilePath, R], added: Iterable[R] = (), removed: Iterable[FilePath] = ()
) -> Mapping[FilePath, R]:
    """The same without some paths, and with files, which take the place of others."""
    if isinstance(files, PathTable):
        return files.changed(added, removed)
    gone = set(removed)
    made = {path: each for path, each in files.items() if path not in gone}
    made.update((each.path, each) for each in added)
    return made


def lacking(
    files: Mapping[FilePath, R], other: Mapping[FilePath, Any]
) -> Iterator[tuple[FilePath, R]]:
    """Files whose path the other one has not."""
    if not (isinstance(files, PathTable) and isinstance(other, PathTable)):
        yield from ((path, each) for path, each in files.items() if path not in other)
        return
    for directory, blocks in files.directories().items():
        theirs = other.directories().get(directory, ())
        if [each.names for each in blocks] == [each.names for each in theirs]:
            continue
        there = {name for each in theirs for name in each.list_names()}
        for block in blocks:
            yield from ((r.path, r) for r in files.rows(block) if r.path.name not in there)


def differing(
    files: Mapping[FilePath, R], before: Mapping[FilePath, R]
) -> Iterator[tuple[FilePath, R]]:
    """Files, but for those of directories that certainly are as they were."""
    if not (isinstance(files, PathTable) and isinstance(before, PathTable)):
        yield from files.items()
        return
    for directory, blocks in files.directories().items():
        if before.directories().get(directory) is not blocks:
            yield from ((each.path, each) for block in blocks for each in files.rows(block))


def one_of_each_directory(files: Mapping[FilePath, Any] | Iterable[FilePath]) -> Iterator[FilePath]:
    """Paths, one at least of each directory that has any."""
    if not isinstance(files, PathTable):
        yield from files
        return
    for directory, blocks in files.directories().items():
        yield _path(directory, blocks[0].names.partition(b"\n")[0].decode())


def having(files: PathTable[R], other: PathTable[Any]) -> Iterator[tuple[FilePath, R]]:
    """Files whose path the other one has as well."""
    for directory in files.directories().keys() & other.directories().keys():
        there = {n for each in other.directories()[directory] for n in each.list_names()}
        for block in files.directories()[directory]:
            yield from ((r.path, r) for r in files.rows(block) if r.path.name in there)


def have_same_paths(one: PathTable[Any], other: PathTable[Any]) -> bool:
    """Whether both have the same paths, whatever is known of them."""
    return len(one) == len(other) and not any(lacking(one, other))


def joined(
    one: PathTable[R],
    other: PathTable[R],
    gives_way: Callable[[R, R], bool] = lambda first, second: False,
) -> PathTable[R]:
    """The files of both; of two with one path the first, unless it gives way to the second."""
    if not one:
        return other
    stays: list[FilePath] = []
    goes: list[FilePath] = []
    for path, new in having(other, one):
        (stays if gives_way(one[path], new) else goes).append(path)
    one, other = one.changed(removed=stays), other.changed(removed=goes)
    return PathTable(one.form, [*one.blocks(), *other.blocks()])
