"""The result of a run as one JSON object."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from common.wire.base import CommitTs
from receiver.spark.report.results import Judgement, Severity

if TYPE_CHECKING:
    from common.wire.base import CommitTs
from receiver.spark.report.results import Verification

__all__ = ["Delivery", "ReportedFinding", "Summary", "summarise"]


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the verdicts in the engine.

    Attributes:
        verified: files that count as verified from now on.
        quarantined: files that are visible no more; wanted again from their senders, or held.
        stale: verdicts without effect: the file was replaced, deleted or quarantined meanwhile.
        dissolved: compactions whose merged files are read no more: their inputs are.
        mended: bad files that are whole again, from storage nodes or the object store.
        merges_verified: compactions whose merged files count as compared with what they stand for.
    """

    verified: int
    quarantined: int
    stale: int
    dissolved: int = 0
    mended: int = 0
    merges_verified: int = 0


class ReportedFinding(msgspec.Struct, frozen=True, kw_only=True):
    """One finding; see `receiver.spark.report.results.Finding`.

    Attributes:
        severity: `problem` or `note`.
        check: which check found it.
        device: null where it is about none.
        measurement: of the series; null where it is about none.
        offset: in the file; null where it is not known.
        detail: in words.
    """

    severity: str
    check: str
    physical: str
    sender: str
    path: str
    device: str | None
    measurement: str | None
    offset: int | None
    detail: str


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """A run, as `--json` prints it and `report.json` holds it (version 2).

    Attributes:
        engine: uuid of the receiver's engine, "" for plain files.
        commit: as of which the catalogue was read.
        scope: what was asked for, in words.
        time_unit: `ms`, `us` or `ns`.
        begun: RFC 3339, UTC.
        seconds: that the run took.
        master: of Spark.
        files: looked at; each of them is one of the next three.
        proved: every point decoded, and what was sent.
        bad: content is not what was loaded, or contradicts itself.
        unproved: could not be judged.
        problems: findings that concern relations: owners, overlaps, types, TTL.
        notes: findings that are no fault.
        bytes: of all files.
        series: of all files, counted in each.
        points: decoded.
        merged_points: of these, what readers get: each time of a series once; None where the run
            does not know it (docs/spark.md).
        chunks: decoded.
        pages: decoded.
        passed_over: visible files that the scope left out.
        merged: merged files that were looked at beside their inputs; none of them counts above.
        merged_uncompared: of these, such as could not be compared with what they stand for.
        merged_bad: of these, such as are not what their inputs give.
        merged_unproved: of these, such as could not be judged.
        delivery: what became of the verdicts; None if they were not committed.
        findings: all, file by file (at most a hundred of each).
    """

    version: int = 2
    engine: str
    commit: CommitTs
    scope: str
    time_unit: str
    begun: str
    seconds: float
    master: str
    files: int
    proved: int
    bad: int
    unproved: int
    problems: int
    notes: int
    bytes: int
    series: int
    points: int
    chunks: int
    pages: int
    passed_over: int
    merged_points: int | None
    merged: int = 0
    merged_bad: int = 0
    merged_unproved: int = 0
    merged_uncompared: int = 0
    delivery: Delivery | None
    findings: list[ReportedFinding]

    @property
    def good(self) -> bool:
        """Whether nothing was found that anybody must look at."""
        merged = self.merged_bad or self.merged_unproved
        return not (self.bad or self.unproved or self.problems or merged)


def summarise(run: Verification, delivery: Delivery | None = None) -> Summary:
    """Count, and list every finding."""
    findings = [
        ReportedFinding(
            severity=each.severity,
            check=each.check,
            physical=each.physical,
            sender=each.sender,
            path=each.path,
            device=each.device,
            measurement=each.measurement,
            offset=each.offset,
            detail=each.detail,
        )
        for each in run.findings()
    ]
    files = run.files
    return Summary(
        engine=run.engine,
        commit=run.commit,
        scope=run.scope,
        time_unit=run.time_unit,
        begun=run.begun.isoformat(timespec="seconds"),
        seconds=round(run.seconds, 3),
        master=run.master,
        files=len(files),
        proved=run.count(Judgement.PROVED),
        bad=run.count(Judgement.BAD),
        unproved=run.count(Judgement.UNPROVED),
        problems=sum(1 for each in findings if each.severity == Severity.PROBLEM),
        notes=sum(1 for each in findings if each.severity == Severity.NOTE),
        bytes=sum(each.size for each in files),
        series=sum(each.series for each in files),
        points=sum(each.points for each in files),
        chunks=sum(each.chunks for each in files),
        pages=sum(each.pages for each in files),
        passed_over=run.passed_over,
        merged_points=run.merged_points,
        merged=len(run.merged),
        merged_bad=sum(each.verdict is Judgement.BAD for each in run.merged),
        merged_unproved=sum(each.verdict is Judgement.UNPROVED for each in run.merged),
        merged_uncompared=sum(not each.compared for each in run.merged),
        delivery=delivery,
        findings=findings,
    )
