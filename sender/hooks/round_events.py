"""What a round has to tell: a function of its report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from xxhash import xxh3_64_hexdigest

from common.errors import (
    DiskError,
    FailedSyncError,
    NoSpaceError,
    ReadOnlyError,
    StoppedError,
    TsferryError,
)
from common.hooks.event_content import (
    FilesLoadedEvent,
    FilesTold,
    RoundEnded,
    StandingTrouble,
    ToldFile,
    told_files,
)
from common.hooks.hook_event import EventKind

if TYPE_CHECKING:
    from common.hooks.hook_service import HookService
    from sender.round.round_words.round_report import FileReason, RoundReport

__all__ = ["ToldOfRound", "round_events", "tell_round"]


class ToldOfRound(NamedTuple):
    """One thing that a round has to tell.

    Attributes:
        kind: of it.
        what: it.
        standing: in which way it stands, empty if it is over; None for what only happened.
    """

    kind: EventKind
    what: msgspec.Struct
    standing: str | None = None


def tell_round(hooks: HookService, sender: str, label: str, report: RoundReport) -> None:
    """Tell what came of a round; what stands is told where it is not as it was told last.

    Args:
        hooks: are told.
        sender: uuid of it.
        label: that it goes by.
        report: of the round.
    """
    for kind, what, standing in round_events(sender, label, report):
        if standing is None:
            hooks.happened(kind, what)
        else:
            hooks.stands(kind, f"{kind}:{report.receiver}", standing, what)


def round_events(sender: str, label: str, report: RoundReport) -> Iterator[ToldOfRound]:
    """What a round has to tell; nothing of one that was stopped.

    Args:
        sender: uuid of it.
        label: that it goes by.
        report: of the round.
    """
    if isinstance(report.error, StoppedError):
        return
    if report.sent or report.resources:
        yield ToldOfRound("loaded", _loaded(sender, label, report))
    yield from _files(sender, label, report)
    yield from _troubles(report)
    yield from _round(sender, label, report)


def _loaded(sender: str, label: str, report: RoundReport) -> FilesLoadedEvent:
    return FilesLoadedEvent(
        sender=sender,
        label=label,
        receiver=report.receiver,
        task=report.tasks[-1] if report.tasks else "",
        files=report.sent + report.resources,
        bytes=report.bytes,
    )


def _files(sender: str, label: str, report: RoundReport) -> Iterator[ToldOfRound]:
    def of(kind: EventKind, files: Sequence[ToldFile], *, stands: bool = True) -> ToldOfRound:
        what = FilesTold(
            sender=sender,
            label=label,
            receiver=report.receiver,
            files=len(files),
            named=told_files(files),
        )
        return ToldOfRound(kind, what, _which(files) if stands else None)

    if report.wanted:
        yield of("verification_failed", _reasons(report.wanted), stands=False)
    if report.lost or report.error is None:
        yield of("lost", _reasons(report.lost))
    if not report.looked:  # nobody knows what stands
        return
    conflicts = [
        ToldFile(path=each.file, reason=each.reason, device=each.device or "")
        for each in report.conflicts
    ]
    yield of("conflict", conflicts)
    yield of("quarantined", _reasons([*report.quarantined, *report.refused]))
    held = [*report.held_records, *(report.held if report.guarded else ())]
    yield of("deletions_held", _reasons(held))


def _troubles(report: RoundReport) -> Iterator[ToldOfRound]:
    """The disk, and a process that writes no more; not what a receiver says of its own."""
    error = report.error
    if error is not None and "status" in error.extra:
        return
    if isinstance(error, ReadOnlyError | FailedSyncError):
        what = StandingTrouble(problem=error.message, receiver=report.receiver)
        yield ToldOfRound("read_only", what, "failed")
        return
    if error is None:
        gone = StandingTrouble(problem="", receiver=report.receiver)
        yield ToldOfRound("read_only", gone, "")
    if isinstance(error, NoSpaceError | DiskError) or _is_of_the_file_system(error):
        assert error is not None
        what = StandingTrouble(problem=error.message, receiver=report.receiver)
        yield ToldOfRound("disk", what, "failed")
    elif report.looked:
        away = "; ".join(f"{each.file} {each.reason}" for each in report.unmounted)
        what = StandingTrouble(problem=away, receiver=report.receiver)
        yield ToldOfRound("disk", what, "away" if away else "")


def _is_of_the_file_system(error: TsferryError | None) -> bool:
    return (
        error is not None
        and isinstance(error.__cause__ or error.__context__, OSError)
        and (type(error) is TsferryError)
    )


def _round(sender: str, label: str, report: RoundReport) -> Iterator[ToldOfRound]:
    """Of those that did something each; of others where they end otherwise than the one before."""
    error = report.error
    what = RoundEnded(
        sender=sender,
        label=label,
        receiver=report.receiver,
        tasks=tuple(report.tasks),
        loaded=report.sent + report.resources,
        already=report.already,
        deleted=report.deleted,
        retired=report.retired,
        conflicts=len(report.conflicts),
        quarantined=len(report.quarantined),
        refused=len(report.refused),
        failed=len(report.failed),
        held=len(report.held) + len(report.held_records),
        bytes=report.bytes,
        duration=round(report.seconds, 3),
        pending=report.pending_files,
        exit_code=report.exit_code,
        error="" if error is None else error.message,
    )
    if report.tasks:
        yield ToldOfRound("round", what)
    standing = "" if error is None else error.slug
    yield ToldOfRound("round", what, standing)


def _reasons(found: Iterable[FileReason]) -> list[ToldFile]:
    return [ToldFile(path=each.file, reason=each.reason) for each in found]


def _which(files: Sequence[ToldFile]) -> str:
    """Which files stand so, in few bytes; empty for none."""
    paths = sorted(each.path for each in files)
    return xxh3_64_hexdigest("\n".join(paths).encode("utf-8", "replace")) if paths else ""
