"""The result of a run in a few lines for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from common.console.terminal import counted, printable
from receiver.spark.report.results import Severity

if TYPE_CHECKING:
    from receiver.spark.report.summary import ReportedFinding, Summary

__all__ = ["place", "text"]

SHOWN = 20
_ORDER = (Severity.BAD, Severity.UNPROVED, Severity.PROBLEM)


def text(summary: Summary) -> str:
    """The counts, then the first findings that need somebody; names cannot steer the terminal."""
    lines = [
        f"{counted(summary.files, 'file', form=',')}, {summary.bytes:,} bytes, "
        f"{summary.series:,} series, "
        f"{counted(summary.points, 'point', form=',')} decoded in {summary.seconds:.1f} s",
        f"{summary.proved:,} proved, {summary.bad:,} bad, {summary.unproved:,} unproved; "
        f"{counted(summary.problems, 'problem', form=',')}, {summary.notes:,} notes",
    ]
    if summary.merged_points is not None:
        lines.append(
            f"{counted(summary.merged_points, 'point', form=',')} for readers, each time of "
            "a series once"
        )
    if summary.passed_over:
        lines.append(
            f"{counted(summary.passed_over, 'file was', 'files were', form=',')} not asked "
            f"for ({summary.scope})"
        )
    if summary.merged:
        lines.append(
            f"{summary.merged - summary.merged_uncompared:,} of {summary.merged:,} merged files "
            "compared with what they stand for, "
            f"{summary.merged_bad:,} bad, {summary.merged_unproved:,} unproved"
        )
    if summary.delivery is not None:
        done = summary.delivery
        stale = f", {done.stale:,} changed meanwhile" if done.stale else ""
        mended = f", {done.mended:,} mended from other copies" if done.mended else ""
        dissolved = f", {done.dissolved:,} compactions dissolved" if done.dissolved else ""
        right = f", {done.merges_verified:,} compactions verified" if done.merges_verified else ""
        lines.append(
            f"committed: {done.verified:,} verified, {done.quarantined:,} in quarantine"
            f"{mended}{right}{dissolved}{stale}"
        )
    serious = [each for each in summary.findings if each.severity != Severity.NOTE]
    serious.sort(key=lambda each: _ORDER.index(Severity(each.severity)))
    for each in serious[:SHOWN]:
        lines.append(
            printable(
                f"  {each.severity} {each.check}: {each.physical}{place(each)}: {each.detail}"
            )
        )
    if len(serious) > SHOWN:
        lines.append(f"  and {len(serious) - SHOWN:,} more findings; see --json or --report")
    return "\n".join(lines)


def place(found: ReportedFinding) -> str:
    """Where in its file, in brackets; empty for the whole file."""
    parts = []
    if found.device is not None:
        series = found.device
        if found.measurement is not None:
            series += f".{found.measurement}" if found.measurement else " (time column)"
        parts.append(series)
    if found.offset is not None:
        parts.append(f"offset {found.offset}")
    return f" [{', '.join(parts)}]" if parts else ""
