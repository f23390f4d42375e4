"""Cutting the work of a round into tasks of bounded size, at borders of partitions."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from common.names import FilePath
    from sender.select.found import LocalDeletions, LocalFile, TimePartition

__all__ = ["Addition", "TaskPlan", "ToldDeletion", "Work", "cut"]


class Addition(msgspec.Struct, frozen=True):
    """A file to send.

    Attributes:
        file: the file.
        replaces: other content of this path is loaded: it goes with the commit that brings this.
        retry: the operator asked for another try.
    """

    file: LocalFile
    replaces: bool = False
    retry: bool = False

    @property
    def path(self) -> FilePath:
        """The path that it travels under."""
        return self.file.path

    @property
    def goes_with_ends(self) -> bool:
        """Whether it and the ends of its partition are told together or not at all."""
        return self.replaces or self.path.is_product


class ToldDeletion(msgspec.Struct, frozen=True):
    """A listed file that is gone here.

    Attributes:
        path: its path.
        data_dir: whose list has it.
        explained: local files took its place; only judged in mode `all`.
    """

    path: FilePath
    data_dir: Path
    explained: bool = True


class TaskPlan(msgspec.Struct, frozen=True):
    """One task: all of it is one commit at the receiver.

    Attributes:
        additions: files to send.
        deletions: ends to tell.
        deletion_files: of which something is to be told.
        anew: the sender's list begins anew with this task; its ends wait for nothing.
        mirror: in mode `all` the ends of a partition wait for every file of it, not only for
            products of compactions.
    """

    additions: tuple[Addition, ...] = ()
    deletions: tuple[ToldDeletion, ...] = ()
    mirror: bool = False
    deletion_files: tuple[LocalDeletions, ...] = ()
    anew: bool = False

    @property
    def bytes(self) -> int:
        """Bytes of the files to send."""
        return sum(each.file.size for each in self.additions)

    @property
    def homes(self) -> dict[FilePath, Path]:
        """Data directory of each path, for `SyncLogs.begin`."""
        homes = {each.path: each.data_dir for each in self.deletion_files}
        homes.update((each.path, each.data_dir) for each in self.deletions)
        homes.update((each.path, each.file.data_dir) for each in self.additions)
        return homes

    @property
    def deleted_paths(self) -> list[FilePath]:
        """What the receiver is told to delete: what is gone, and what is replaced."""
        return [each.path for each in self.deletions] + [
            each.path for each in self.additions if each.replaces
        ]

    def without(self, paths: Collection[FilePath], *, settled: bool = False) -> TaskPlan:
        """This task without some additions, and without what goes together with them.

        For files that changed under way, failed or were turned down: what they were to replace
        must stay at the receiver, and nothing else that a compaction made there may come alone.

        Args:
            paths: the additions to leave out.
            settled: they need not be loaded (expired, loaded already): the rest goes on.
        """
        left = replace(
            self, additions=tuple(each for each in self.additions if each.path not in paths)
        )
        if settled or self.anew:
            return left
        return left.without_ends(
            each.path.group
            for each in self.additions
            if each.path in paths and (self.mirror or each.goes_with_ends)
        )

    def without_ends(self, groups: Iterable[TimePartition]) -> TaskPlan:
        """This task without the ends of some partitions, and what goes together with them."""
        held = set(groups)
        return replace(
            self,
            additions=tuple(
                each
                for each in self.additions
                if each.path.group not in held or not each.goes_with_ends
            ),
            deletions=tuple(each for each in self.deletions if each.path.group not in held),
        )


@dataclass
class Work:
    """What one partition has to do."""

    additions: list[Addition] = field(default_factory=list)
    deletions: list[ToldDeletion] = field(default_factory=list)
    deletion_files: list[LocalDeletions] = field(default_factory=list)


def cut(
    work: Mapping[TimePartition, Work], max_files: int, max_bytes: int, *, mirror: bool = False
) -> tuple[TaskPlan, ...]:
    """Tasks in order, oldest partitions first.

    The ends of a partition, and what goes together with them, stay in one task, however large; in
    a mirror that is the whole partition. What need not wait for them may be cut, and goes before.
    """
    tasks: list[TaskPlan] = []
    pieces: list[TaskPlan] = []
    files = size = 0
    for piece in _pieces(work, max_files, max_bytes, mirror):
        more = len(piece.additions) + len(piece.deletions) + len(piece.deletion_files)
        if pieces and (files + more > max_files or size + piece.bytes > max_bytes):
            tasks.append(_joined(pieces, mirror))
            pieces, files, size = [], 0, 0
        pieces.append(piece)
        files += more
        size += piece.bytes
    if pieces:
        tasks.append(_joined(pieces, mirror))
    return tuple(tasks)


def _joined(pieces: list[TaskPlan], mirror: bool) -> TaskPlan:
    return TaskPlan(
        tuple(each for piece in pieces for each in piece.additions),
        tuple(each for piece in pieces for each in piece.deletions),
        mirror,
        tuple(each for piece in pieces for each in piece.deletion_files),
    )


def _pieces(
    work: Mapping[TimePartition, Work], max_files: int, max_bytes: int, mirror: bool
) -> Iterator[TaskPlan]:
    """Each partition, or, where it may be cut, its parts."""
    for group in sorted(work, key=lambda each: (each[2], each[0], each[1])):
        additions = tuple(sorted(work[group].additions, key=_age))
        deletions = tuple(sorted(work[group].deletions, key=lambda each: each.path))
        files = tuple(work[group].deletion_files)
        together = bool(deletions) or any(each.goes_with_ends for each in additions)
        if together and mirror:
            yield TaskPlan(additions, deletions, deletion_files=files)
            continue
        beside: dict[FilePath, list[LocalDeletions]] = defaultdict(list)
        for deletion_file in files:
            beside[deletion_file.path].append(deletion_file)

        part: list[Addition] = []
        size = 0
        for each in additions:
            if each.goes_with_ends:
                continue
            if part and (len(part) >= max_files or size + each.file.size > max_bytes):
                yield _with_deletion_files(part, beside)
                part, size = [], 0
            part.append(each)
            size += each.file.size
        if part:
            yield _with_deletion_files(part, beside)
        if together or beside:
            products = tuple(each for each in additions if each.goes_with_ends)
            left = tuple(each for several in beside.values() for each in several)
            yield TaskPlan(products, deletions, deletion_files=left)


def _with_deletion_files(
    part: Sequence[Addition], beside: dict[FilePath, list[LocalDeletions]]
) -> TaskPlan:
    """Files with what belongs to them, which is taken out of `beside`."""
    along = tuple(each for one in part for each in beside.pop(one.path, ()))
    return TaskPlan(tuple(part), deletion_files=along)


def _age(addition: Addition) -> tuple[str, int, int, str]:
    """Sequence before unsequence, then as the database made them."""
    path = addition.path
    stem = path.stem
    created, version = (stem.created, stem.version) if stem else (0, 0)
    return (path.kind, created, version, path.name)
