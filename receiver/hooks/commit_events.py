"""What a commit has to tell: a function of its records, and of names that the state knows."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from common.hooks.event_content import (
    NAMED,
    FilesLoadedEvent,
    FilesTold,
    RoundEnded,
    ToldFile,
    told_files,
)
from common.hooks.hook_event import EventKind, HookEvent, HookSource, made_event
from common.wire import Result
from receiver.metadata.model import records

__all__ = ["COMMITTED_KINDS", "KnownNames", "commit_events"]

COMMITTED_KINDS: Final[tuple[EventKind, ...]] = (
    "loaded",
    "conflict",
    "quarantined",
    "verification_failed",
    "deletions_held",
    "round",
)
"""What commits tell."""

_Told = tuple[EventKind, msgspec.Struct]


class KnownNames(NamedTuple):
    """What records do not say.

    Attributes:
        label: gives the label of a sender.
        file: gives sender and path of a loaded file by its physical name; None of one that is
            forgotten.
        seconds: gives the moment of a timestamp.
    """

    label: Callable[[str], str]
    file: Callable[[str], tuple[str, str] | None]
    seconds: Callable[[int], float]


def commit_events(commit: records.Commit, who: HookSource, names: KnownNames) -> list[HookEvent]:
    """The events of a commit; their ids are the same whenever it is asked.

    Args:
        commit: of the log.
        who: tells.
        names: what the state knows.
    """
    told = [
        *_loaded(commit, names),
        *_refused(commit, names),
        *_found_bad(commit, names),
        *_held(commit, names),
        *_rounds(commit, names),
    ]
    now = names.seconds(commit.ts)
    return [
        made_event(who, kind, what, now=now, ident=f"evt_{who.uuid}_{commit.ts}_{number}")
        for number, (kind, what) in enumerate(told)
    ]


def _of(commit: records.Commit, *kinds: type) -> Iterator[records.Op]:
    return (op for op in commit.ops if isinstance(op, kinds))


def _loaded(commit: records.Commit, names: KnownNames) -> Iterator[_Told]:
    by_task: dict[tuple[str, str], list[records.FileLoaded]] = defaultdict(list)
    for op in _of(commit, records.FileLoaded):
        assert isinstance(op, records.FileLoaded)
        by_task[op.sender, op.task].append(op)
    for (sender, task), files in by_task.items():
        firsts = [each.first for each in files if each.first is not None]
        lasts = [each.last for each in files if each.last is not None]
        yield (
            "loaded",
            FilesLoadedEvent(
                sender=sender,
                label=names.label(sender),
                task=task,
                files=len(files),
                bytes=sum(each.size for each in files),
                points=sum(each.points for each in files),
                first=min(firsts, default=None),
                last=max(lasts, default=None),
                named=tuple(each.path for each in files[:NAMED]),
                commit=commit.ts,
            ),
        )


def _refused(commit: records.Commit, names: KnownNames) -> Iterator[_Told]:
    """Files that were not taken: about a device or a path that is another's, or otherwise."""
    clashes = {
        (done.sender, each.path)
        for done in _of(commit, records.TaskDone)
        if isinstance(done, records.TaskDone)
        for each in done.outcomes
        if each.result is Result.CONFLICT
    }
    # An entry that a verdict put beside a loaded file tells the same once more.
    verdicts = {
        each.reason
        for each in _of(commit, records.FileQuarantined)
        if isinstance(each, records.FileQuarantined)
    }
    found: Mapping[tuple[EventKind, str], list[ToldFile]] = defaultdict(list)
    for op in _of(commit, records.QuarantinePut):
        assert isinstance(op, records.QuarantinePut)
        if op.hold and op.reason in verdicts:
            continue
        is_clash = op.device is not None or (op.sender, op.path) in clashes
        kind: EventKind = "conflict" if is_clash else "quarantined"
        told = ToldFile(path=op.path, reason=op.reason, device=op.device or "")
        found[kind, op.sender].append(told)
    yield from _told(found, commit, names)


def _found_bad(commit: records.Commit, names: KnownNames) -> Iterator[_Told]:
    found: Mapping[tuple[EventKind, str], list[ToldFile]] = defaultdict(list)
    for op in _of(commit, records.FileQuarantined):
        assert isinstance(op, records.FileQuarantined)
        sender, path = names.file(op.physical) or ("", op.physical)
        found["verification_failed", sender].append(ToldFile(path=path, reason=op.reason))
    yield from _told(found, commit, names)


def _held(commit: records.Commit, names: KnownNames) -> Iterator[_Told]:
    for op in _of(commit, records.DeletesHeld):
        assert isinstance(op, records.DeletesHeld)
        yield (
            "deletions_held",
            FilesTold(
                sender=op.sender,
                label=names.label(op.sender),
                files=len(op.files),
                named=told_files([ToldFile(path=op.group, reason=op.reason)]),
                commit=commit.ts,
            ),
        )


def _rounds(commit: records.Commit, names: KnownNames) -> Iterator[_Told]:
    for op in _of(commit, records.TaskDone):
        assert isinstance(op, records.TaskDone)
        count = Counter(each.result for each in op.outcomes)
        yield (
            "round",
            RoundEnded(
                sender=op.sender,
                label=names.label(op.sender),
                tasks=(op.task,),
                loaded=count[Result.LOADED],
                already=count[Result.ALREADY],
                deleted=count[Result.DELETED],
                retired=count[Result.RETIRED],
                conflicts=count[Result.CONFLICT],
                quarantined=count[Result.QUARANTINED],
                refused=count[Result.REFUSED],
                failed=count[Result.MISSING],
                held=count[Result.HELD],
                commit=commit.ts,
            ),
        )


def _told(
    found: Mapping[tuple[EventKind, str], Sequence[ToldFile]],
    commit: records.Commit,
    names: KnownNames,
) -> Iterable[_Told]:
    for (kind, sender), files in found.items():
        yield (
            kind,
            FilesTold(
                sender=sender,
                label=names.label(sender),
                files=len(files),
                named=told_files(files),
                commit=commit.ts,
            ),
        )
