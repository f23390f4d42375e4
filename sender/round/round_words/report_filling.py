"""What of a round is put into its report: of the scan and the plan, and, cut short, for status."""

from __future__ import annotations

from collections.abc import Callable

from common.names import FilePath
from sender.kept.troubles import Trouble
from sender.plan.plan import RoundPlan
from sender.round.round_words.refusals import report_trouble
from sender.round.round_words.round_report import FileDevice, FileReason, RoundReport
from sender.select.found import Scan

__all__ = ["fill_report", "short_summary"]

_LISTED = 100
"""Entries of a list that are kept for status."""


def fill_report(
    report: RoundReport,
    scan: Scan,
    work: RoundPlan,
    trouble_of: Callable[[FilePath], Trouble | None],
) -> None:
    """Enter what a scan and a plan say into a report."""
    report.waiting = sum(1 for each in scan.waiting if each.why != "filtered")
    report.up_to_date = work.unchanged + len(work.refreshed)
    report.held += [FileReason(each.path.text, each.reason) for each in work.held]
    report.unmounted += [FileReason(str(each.data_dir), each.reason) for each in scan.unmounted]
    report.unmounted += [
        FileReason(f"{each.data_dir}/{each.rel}", each.reason) for each in scan.not_looked_at
    ]
    report.conflicts += [FileDevice(each.path.text, None, each.reason) for each in scan.clashes]
    for skipped in work.skipped:
        trouble = trouble_of(skipped.file.path)
        if trouble is None or skipped.held:
            where = report.held if skipped.held else report.changed
            where.append(FileReason(skipped.file.path.text, skipped.reason))
        elif not trouble.dropped:
            report_trouble(report, trouble)


def short_summary(report: RoundReport, ended: float) -> dict[str, object]:
    """A report as it is kept for status: its lists are cut, so that it stays small on disk.

    Args:
        report: of the round.
        ended: when it did, seconds since the epoch.
    """
    summary = report.as_json() | {
        "ended": ended,
        "held_ends": [{"file": each.file, "reason": each.reason} for each in report.held],
        "held_count": len(report.held),
        "guarded": report.guarded,
    }
    return {
        key: value[:_LISTED] if isinstance(value, list) else value for key, value in summary.items()
    }
