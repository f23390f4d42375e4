"""Cutting the work of a round into tasks of bounded size, at borders of partitions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from sender.plan.additions import Additions, age, bytes_of, in_little_memory, new_additions

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from common.names import FilePath
    from sender.plan.additions import Addition
    from sender.select.found import LocalDeletions, TimePartition
    from sender.select.path_table import PathBlock

__all__ = ["TaskLimits", "TaskPlan", "ToldDeletion", "Work", "cut", "too_many"]


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
        bytes_later: of its additions only what the receiver has already, and what replaces other
            content, is in it; the others come with the tasks behind it.
    """

    additions: Sequence[Addition] = ()
    deletions: tuple[ToldDeletion, ...] = ()
    mirror: bool = False
    deletion_files: tuple[LocalDeletions, ...] = ()
    anew: bool = False
    bytes_later: bool = False

    @property
    def bytes(self) -> int:
        """Bytes of the files to send."""
        return bytes_of(self.additions)

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
        if not paths:
            return self
        left = replace(
            self, additions=tuple(each for each in self.additions if each.path not in paths)
        )
        if settled or self.anew:
            return left
        return left.without_ends(
            each.path.group
            for each in self.additions
            if each.path in paths
            and (each.goes_with_ends or (self.mirror and not each.resource_only))
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
    """What one partition has to do.

    Attributes:
        additions: files to send, but for
        new: those that are new, and that nothing else of it depends on.
        deletions: ends to tell.
        deletion_files: of which something is to be told.
    """

    additions: list[Addition] = field(default_factory=list)
    new: Sequence[PathBlock] = ()
    deletions: list[ToldDeletion] = field(default_factory=list)
    deletion_files: list[LocalDeletions] = field(default_factory=list)


@dataclass(frozen=True)
class TaskLimits:
    """What a task may have.

    Attributes:
        files: of it, and ends.
        bytes: of the files.
        most_parts: of deletion files.
        parts: in how many one is told.
    """

    files: int
    bytes: int
    most_parts: int = 1 << 62
    parts: Callable[[LocalDeletions], int] = lambda file: 1

    def parts_of(self, files: Iterable[LocalDeletions]) -> int:
        """Of several deletion files."""
        return sum(map(self.parts, files))

    def hold(self, task: TaskPlan) -> bool:
        """Whether a task is within them."""
        number = len(task.additions) + len(task.deletions) + len(task.deletion_files)
        fits = number <= self.files and task.bytes <= self.bytes
        return fits and self.parts_of(task.deletion_files) <= self.most_parts


def too_many(what: str, most: int) -> str:
    """Why something is held that a receiver does not take in one task."""
    return f"{what}, and the receiver takes {most} in one task: raise its limits.max_task_items"


def cut(
    work: Mapping[TimePartition, Work], limits: TaskLimits, *, mirror: bool = False
) -> tuple[TaskPlan, ...]:
    """Tasks in order, oldest partitions first.

    The ends of a partition, and what goes together with them, stay in one task, however large; in
    a mirror that is the whole partition. What need not wait for them may be cut, and goes before:
    deletion files of what is loaded, too.
    """
    tasks: list[TaskPlan] = []
    pieces: list[TaskPlan] = []
    files = size = parts = 0
    for piece in _pieces(work, limits, mirror):
        more = len(piece.additions) + len(piece.deletions) + len(piece.deletion_files)
        told = limits.parts_of(piece.deletion_files)
        too_many = files + more > limits.files or parts + told > limits.most_parts
        if pieces and (too_many or size + piece.bytes > limits.bytes):
            tasks.append(_joined(pieces, mirror))
            pieces, files, size, parts = [], 0, 0, 0
        pieces.append(piece)
        files += more
        size += piece.bytes
        parts += told
    if pieces:
        tasks.append(_joined(pieces, mirror))
    return tuple(tasks)


def _joined(pieces: list[TaskPlan], mirror: bool) -> TaskPlan:
    return TaskPlan(
        Additions.joined(piece.additions for piece in pieces),
        tuple(each for piece in pieces for each in piece.deletions),
        mirror,
        tuple(each for piece in pieces for each in piece.deletion_files),
    )


def _pieces(
    work: Mapping[TimePartition, Work], limits: TaskLimits, mirror: bool
) -> Iterator[TaskPlan]:
    """Each partition, or, where it may be cut, its parts."""
    for group in sorted(work, key=lambda each: (each[2], each[0], each[1])):
        new = work[group].new
        additions = sorted((*work[group].additions, *new_additions(new)), key=age)
        deletions = tuple(sorted(work[group].deletions, key=lambda each: each.path))
        together = bool(deletions) or any(each.goes_with_ends for each in additions)
        beside: dict[FilePath, list[LocalDeletions]] = {each.path: [] for each in additions}
        alone: list[LocalDeletions] = []
        for deletion_file in work[group].deletion_files:
            beside.get(deletion_file.path, alone).append(deletion_file)
        for several in _cut_files(alone, limits):
            yield TaskPlan(deletion_files=several)
        before: list[Addition] = []
        last: list[Addition] = []
        for each in additions:
            goes = each.goes_with_ends or (mirror and not each.resource_only)
            (last if together and goes else before).append(each)
        for part in _cut_additions(before, beside, limits):
            yield _with_deletion_files(part, beside, new)
        if together:
            yield replace(_with_deletion_files(last, beside, new), deletions=deletions)


def _cut_files(
    files: Iterable[LocalDeletions], limits: TaskLimits
) -> Iterator[tuple[LocalDeletions, ...]]:
    several: list[LocalDeletions] = []
    parts = size = 0
    for each in files:
        told = limits.parts(each)
        too_many = len(several) >= limits.files or parts + told > limits.most_parts
        if several and (too_many or size + each.size > limits.bytes):
            yield tuple(several)
            several, parts, size = [], 0, 0
        several.append(each)
        parts += told
        size += each.size
    if several:
        yield tuple(several)


def _cut_additions(
    additions: Iterable[Addition],
    beside: Mapping[FilePath, Sequence[LocalDeletions]],
    limits: TaskLimits,
) -> Iterator[list[Addition]]:
    part: list[Addition] = []
    parts = size = 0
    for each in additions:
        told = limits.parts_of(beside[each.path])
        too_many = len(part) >= limits.files or parts + told > limits.most_parts
        if part and (too_many or size + each.bytes > limits.bytes):
            yield part
            part, parts, size = [], 0, 0
        part.append(each)
        parts += told
        size += each.bytes
    if part:
        yield part


def _with_deletion_files(
    part: Sequence[Addition],
    beside: Mapping[FilePath, Sequence[LocalDeletions]],
    new: Sequence[PathBlock],
) -> TaskPlan:
    """Files with what belongs to them."""
    along = tuple(each for one in part for each in beside[one.path])
    return TaskPlan(in_little_memory(part, new), deletion_files=along)
