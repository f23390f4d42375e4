"""The files that a plan sends; where they are many, as bytes until their task is on.

A first look plans all that there is. A file that is new, and that nothing else of it depends on, is
an object only while its part of the plan is made, and while its task runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, overload

import msgspec

from sender.select.found import LOCAL_FILES
from sender.select.path_table import NUMBERS, PathBlockBuilder, PathTable, directory_of

if TYPE_CHECKING:
    from pathlib import Path

    from common.names import FilePath
    from sender.kept.troubles import Trouble
    from sender.select.found import LocalFile, TimePartition
    from sender.select.path_table import Directory, PathBlock

__all__ = [
    "Addition",
    "Additions",
    "NewFiles",
    "age",
    "bytes_of",
    "in_little_memory",
    "new_additions",
]

_MANY = 64
"""Fewer are kept as they are."""


class Addition(msgspec.Struct, frozen=True):
    """A file to send.

    Attributes:
        file: the file.
        replaces: other content of this path is loaded: it goes with the commit that brings this.
        trouble: what is known of this content from before.
        resource_only: it is loaded, and only its resource is another one than the receiver has.
    """

    file: LocalFile
    replaces: bool = False
    trouble: Trouble | None = None
    resource_only: bool = False

    @property
    def bytes(self) -> int:
        """Bytes that are to be sent."""
        if self.resource_only:
            return self.file.resource_mark[0]
        return self.file.size

    @property
    def is_plain(self) -> bool:
        """Whether the file is all that there is to say."""
        return not (self.replaces or self.trouble or self.resource_only)

    @property
    def retry(self) -> bool:
        """Whether the operator asked for another try."""
        return self.trouble is not None and self.trouble.retry

    @property
    def path(self) -> FilePath:
        """The path that it travels under."""
        return self.file.path

    @property
    def goes_with_ends(self) -> bool:
        """Whether it and the ends of its partition are told together or not at all."""
        return self.replaces or (self.path.is_product and not self.resource_only)


def age(addition: Addition) -> tuple[str, int, int, str]:
    """Sequence before unsequence, then as the database made them."""
    path = addition.path
    stem = path.stem
    created, version = (stem.created, stem.version) if stem else (0, 0)
    return (path.kind, created, version, path.name)


class Additions(Sequence[Addition]):
    """Additions of a task, in their order; those that are bytes become objects while one looks.

    Attributes:
        bytes: of all files.
    """

    __slots__ = ("_count", "_parts", "bytes")

    def __init__(self, parts: Iterable[tuple[Addition, ...] | _NewPart]) -> None:
        self._parts = tuple(parts)
        self._count = sum(map(len, self._parts))
        self.bytes = sum(map(bytes_of, self._parts))

    @classmethod
    def joined(cls, several: Iterable[Sequence[Addition]]) -> Sequence[Addition]:
        """Those of several tasks, one behind the other."""
        parts: list[tuple[Addition, ...] | _NewPart] = []
        for each in several:
            parts += each._parts if isinstance(each, Additions) else (tuple(each),)
        if not any(isinstance(each, _NewPart) for each in parts):
            return tuple(chain.from_iterable(parts))
        return cls(parts)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Addition]:
        return chain.from_iterable(self._parts)

    @overload
    def __getitem__(self, at: int) -> Addition: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[Addition]: ...

    def __getitem__(self, at: int | slice) -> Addition | Sequence[Addition]:
        return tuple(self)[at]


class _NewPart:
    """New files of one partition, sorted by age when they are looked at."""

    __slots__ = ("blocks",)

    def __init__(self, blocks: tuple[PathBlock, ...]) -> None:
        self.blocks = blocks

    def __len__(self) -> int:
        return sum(map(len, self.blocks))

    def __iter__(self) -> Iterator[Addition]:
        return iter(sorted(new_additions(self.blocks), key=age))


def bytes_of(additions: Iterable[Addition]) -> int:
    """Bytes of the files."""
    if isinstance(additions, Additions):
        return additions.bytes
    if isinstance(additions, _NewPart):
        return sum(size for b in additions.blocks for size, _, _ in NUMBERS.iter_unpack(b.numbers))
    return sum(each.bytes for each in additions)


class NewFiles:
    """New files by partition, in blocks.

    Args:
        like: blocks that have some of them: one that has the same is taken, not made again.
    """

    def __init__(self, like: Callable[[Directory], Iterable[PathBlock]]) -> None:
        self._like = like
        self._blocks: dict[TimePartition, list[PathBlock]] = {}
        self._place: tuple[Directory, Path, str | None] | None = None
        self._builder: PathBlockBuilder | None = None

    def add(self, file: LocalFile) -> None:
        """Take a file in; those of a directory one behind the other."""
        place = (directory_of(file.path), file.data_dir, LOCAL_FILES.where(file))
        if self._builder is None or place != self._place:
            self._seal()
            self._place, self._builder = place, PathBlockBuilder(*place)
        self._builder.add(file.path.name, *LOCAL_FILES.pack(file))

    def _seal(self) -> None:
        if self._builder is None or self._place is None:
            return
        directory, _, where = self._place
        made, self._builder = self._builder.block(), None
        assert made is not None
        for each in self._like(directory):
            if each.where == where and each.is_as(made) and each.rest == made.rest:
                made = each
        self._blocks.setdefault(directory[1:], []).append(made)

    def by_group(self) -> Mapping[TimePartition, Sequence[PathBlock]]:
        """The blocks of each partition."""
        self._seal()
        return self._blocks


def new_additions(blocks: Iterable[PathBlock]) -> Iterator[Addition]:
    """Files of blocks, to be sent."""
    table = PathTable(LOCAL_FILES)
    for block in blocks:
        yield from map(Addition, table.rows(block))


def in_little_memory(
    additions: Sequence[Addition], like: Sequence[PathBlock] = ()
) -> Sequence[Addition]:
    """Additions of one partition, in order of age, as they wait for their task.

    Args:
        additions: the additions.
        like: blocks that have the files of some.
    """
    if len(additions) < _MANY or not all(each.is_plain for each in additions):
        return tuple(additions)
    made = NewFiles(lambda directory: (each for each in like if each.directory == directory))
    for each in sorted(additions, key=lambda each: (each.path.kind, str(each.file.data_dir))):
        made.add(each.file)
    (blocks,) = made.by_group().values()
    return Additions([_NewPart(tuple(blocks))])
