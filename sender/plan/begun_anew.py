"""The tasks of a round in which a sender's list begins anew: it was restored from a copy."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from msgspec.structs import replace

from sender.plan.task_plan import TaskPlan, ToldDeletion, Work, cut, too_many

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from common.names import FilePath
    from sender.plan.additions import Addition
    from sender.plan.task_plan import TaskLimits
    from sender.select.entry import Entry
    from sender.select.found import LocalDeletions, TimePartition

__all__ = ["in_turn", "tasks_anew", "why_not_at_once"]


def tasks_anew(
    additions: Sequence[Addition],
    gone: Iterable[Entry],
    deletion_files: Sequence[LocalDeletions],
    limits: TaskLimits,
) -> tuple[TaskPlan, ...]:
    """One task, if all of it is no more than one may have, else several.

    The list begins anew with the commit of the first. That has all but the bytes: the ends, the
    deletion files, and each file that the receiver has already, for that begins anew with the list.
    What is not here ends below all that is, whenever that comes: so nothing waits for anything, and
    what stood for a file that is yet to come is visible until then.

    Args:
        additions: all files that are not listed as they are.
        gone: what is listed and not here.
        deletion_files: all there are.
        limits: of a task.
    """
    ends = tuple(ToldDeletion(each.path, each.data_dir) for each in gone)
    whole = TaskPlan(tuple(additions), ends, deletion_files=tuple(deletion_files), anew=True)
    if limits.hold(whole):
        return (whole,)
    work: dict[TimePartition, Work] = defaultdict(Work)
    for addition in additions:
        if not addition.replaces:
            work[addition.path.group].additions.append(addition)
    return replace(whole, bytes_later=True), *cut(work, limits)


def why_not_at_once(first: TaskPlan, limits: TaskLimits) -> str | None:
    """Why a receiver does not take the task with which a list begins anew; None if it does."""
    most = limits.most_parts
    counts = {
        "{} files come at once": len(first.additions),
        "{} files end at once": len(first.deleted_paths),
        "deletion files are told in {} parts at once": limits.parts_of(first.deletion_files),
    }
    for words, number in counts.items():
        if number > most:
            return too_many(words.format(number), most)
    return None


def in_turn(
    tasks: Sequence[TaskPlan], entries: Callable[[], Mapping[FilePath, Entry]]
) -> Iterator[TaskPlan]:
    """The tasks of a round, each without the files that an earlier one brought already.

    Args:
        tasks: of any round.
        entries: what is listed by now.
    """
    for task in tasks:
        if task.anew or not tasks[0].bytes_later:
            yield task
            continue
        listed = entries()
        coming = tuple(
            each
            for each in task.additions
            if (entry := listed.get(each.path)) is None or not entry.is_of(each.file)
        )
        if coming:
            yield replace(task, additions=coming)
