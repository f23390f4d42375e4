"""The receiver's words about files, as entries of the report and of the list of troubles."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from common import wire
from common.errors import ConflictError, ForbiddenError, NotATsFileError, TsferryError
from common.names import FilePath
from common.wire import Action, Result
from sender.kept.troubles import Trouble, TroubleKind
from sender.plan.additions import Addition
from sender.round.round_words.round_report import FileDevice, FileReason, RoundReport
from sender.select.found import LocalFile

__all__ = ["Verdicts", "report_trouble"]

_REFUSALS = {
    Action.CONFLICT: TroubleKind.CONFLICT,
    Action.EXPIRED: TroubleKind.EXPIRED,
    Action.REFUSED: TroubleKind.REFUSED,
}
_RESULTS = {
    Result.CONFLICT: TroubleKind.CONFLICT,
    Result.REFUSED: TroubleKind.REFUSED,
    Result.QUARANTINED: TroubleKind.QUARANTINED,
    Result.EXPIRED: TroubleKind.EXPIRED,
    Result.MISSING: TroubleKind.FAILED,
}


class Verdicts:
    """Collects what became of the files of a task."""

    def __init__(
        self, report: RoundReport, tell: Callable[..., None] = lambda what, **members: None
    ) -> None:
        """Begin with none; `tell` hears of each file in trouble (`Meter.happened`)."""
        self._words: dict[FilePath, int] = {}
        self._report = report
        self._tell = tell
        self.troubles: list[tuple[LocalFile, Trouble]] = []
        self.lost: set[FilePath] = set()
        """Additions that are not in the task any more."""
        self.expired: set[FilePath] = set()
        """Those of them that need not be loaded."""

    def asked(self, additions: Iterable[Addition]) -> None:
        """The receiver is asked for these, with what the operator has said of them.

        Of what it was asked for in an earlier life that is not known any more.
        """
        self._words = {
            each.path: each.trouble.words for each in additions if each.trouble is not None
        }

    def changed(self, path: FilePath, reason: str) -> None:
        """The file is not any more what was chosen; no trouble, the next scan sees it."""
        self.lost.add(path)
        self._report.changed.append(FileReason(path.text, reason))

    def unfit(self, file: LocalFile, reason: str) -> None:
        """It is no sound TsFile: not worth any byte on the line."""
        self._note(file, TroubleKind.QUARANTINED, reason, hold=True)

    def decided(self, file: LocalFile, decision: wire.PlanDecision) -> None:
        """The plan's answer is against it."""
        kind = _REFUSALS[decision.action]
        if kind is TroubleKind.REFUSED and decision.hold:
            kind = TroubleKind.QUARANTINED
        reason = decision.reason or str(decision.action)
        self._note(
            file,
            kind,
            reason,
            device=decision.device,
            hold=decision.hold,
            commit=decision.commit,
        )

    def clash(self, file: LocalFile, theirs: str | None) -> None:
        """The receiver holds other content under this path and says that it is the same."""
        reason = f"same path and size, other content: MD5 {theirs} is loaded there"
        self._note(file, TroubleKind.CONFLICT, reason)

    def failed(self, file: LocalFile, error: TsferryError) -> None:
        """Its transfer ended with an error."""
        kind, hold = TroubleKind.FAILED, False
        if isinstance(error, NotATsFileError):
            kind, hold = TroubleKind.QUARANTINED, True
        elif isinstance(error, ConflictError):
            kind = TroubleKind.CONFLICT
        elif isinstance(error, ForbiddenError):
            kind = TroubleKind.REFUSED
        device = error.extra.get("device")
        self._note(
            file, kind, error.message, device=device if isinstance(device, str) else None, hold=hold
        )

    def outcome(self, file: LocalFile, outcome: wire.Outcome, commit: int = 0) -> None:
        """The committed outcome of an addition that was not loaded."""
        reason = outcome.reason or str(outcome.result)
        if outcome.result is Result.MISSING:
            reason = f"not loaded: {outcome.reason or 'it was not received whole'}"
        self._note(
            file,
            _RESULTS[outcome.result],
            reason,
            device=outcome.device,
            hold=outcome.hold,
            commit=commit,
        )

    def committed(self, outcome: wire.Outcome, addition: Addition | None, commit: int = 0) -> None:
        """What a commit says of a path of the task; `addition` is what was to be loaded there."""
        report = self._report
        match outcome.result:
            case Result.LOADED:
                report.sent += 1
                self._tell("loaded", file=outcome.path, already=False)
            case Result.ALREADY:
                self._tell("loaded", file=outcome.path, already=True)
                if addition is not None and addition.resource_only:
                    report.resources += 1
                else:
                    report.already += 1
            case Result.DELETED:
                report.deleted += addition is None
            case Result.RETIRED:
                report.retired += 1
            case Result.HELD:
                reason = outcome.reason or "its partition is not whole yet"
                report.held.append(FileReason(outcome.path, reason))
                report.guarded |= outcome.hold
            case _ if addition is not None and addition.path not in self.lost:
                self.outcome(addition.file, outcome, commit)

    def _note(
        self,
        file: LocalFile,
        kind: TroubleKind,
        reason: str,
        *,
        device: str | None = None,
        hold: bool = False,
        commit: int = 0,
    ) -> None:
        path = file.path
        self.lost.add(path)
        if kind is TroubleKind.EXPIRED:
            self.expired.add(path)
        trouble = Trouble(
            path=path.text,
            size=file.size,
            mtime_ns=file.mtime_ns,
            kind=kind,
            reason=reason,
            device=device,
            hold=hold,
            words=self._words.get(path, 0),
            commit=commit,
        )
        self.troubles.append((file, trouble))
        report_trouble(self._report, trouble)
        self._tell("refused", file=path.text, kind=str(kind.value), reason=reason, device=device)


def report_trouble(report: RoundReport, trouble: Trouble) -> None:
    """Enter a file in trouble into a report."""
    entry = FileReason(trouble.path, trouble.reason)
    if trouble.kind is TroubleKind.CONFLICT:
        report.conflicts.append(FileDevice(trouble.path, trouble.device, trouble.reason))
    elif trouble.kind is TroubleKind.QUARANTINED:
        report.quarantined.append(entry)
    elif trouble.kind is TroubleKind.EXPIRED:
        report.expired.append(entry)
    elif trouble.kind is TroubleKind.REFUSED:
        report.refused.append(entry)
    else:
        report.failed.append(entry)
