"""`report.html`: one page that stands alone; no script, nothing fetched, every name escaped."""

from __future__ import annotations

from functools import partial
from importlib.resources import files as resources
from typing import TYPE_CHECKING

from jinja2 import Environment, StrictUndefined

from common.console.terminal import counted, printable
from receiver.spark.report import figures
from receiver.spark.report.charts import short_number
from receiver.spark.report.results import Judgement, Severity

if TYPE_CHECKING:
    from receiver.spark.report.results import DeviceSpan, FileResult, Verification
    from receiver.spark.report.summary import Summary

__all__ = ["LIMIT", "render"]

LIMIT = 500
"""Rows of a table on the page; the Parquet tables have all."""
_GAPS = 30
_MEANINGS = (
    (
        Severity.BAD,
        "The content is not what was loaded, or contradicts itself. Committed, the file is in "
        "quarantine: tsferry-receiver quarantine list. Its sender is asked for it again, unless "
        "its bytes are those that were sent: then it is held until the edge has other content.",
    ),
    (
        Severity.UNPROVED,
        "It could not be judged, and nothing was decided about the file. Remove the cause, then "
        "verify again: tsferry-verify --new.",
    ),
    (
        Severity.PROBLEM,
        "The content is sound, but does not fit to something else. The file stays visible: it "
        "takes somebody who knows the devices (tsferry-receiver owners list).",
    ),
)
_FILE_CHECKS = (
    "every page decoded, each value counted",
    "statistics of pages, chunks and series: count, times, min, max, first, last, sum",
    "times strictly increasing in every series",
    "columns of aligned devices against their time column",
    "structure: index, chunk headers, names",
    "overlaps in time that ranks do not settle",
    "points that stand in sequence and unsequence",
)
_CATALOGUE_CHECKS = (
    "present, size, MD5 as committed",
    "the sender's manifest: count, times and digest of each series",
    "type, encoding and compression against the schema",
    "one owner for each device",
    "data older than its storage group's TTL",
)
_ORDER = {Judgement.BAD: 0, Judgement.UNPROVED: 1, Judgement.PROVED: 2}


def render(summary: Summary, run: Verification) -> str:
    """The page, as text.

    Args:
        summary: of `run`; with what became of the verdicts, if they were committed.
        run: only its small results are used.
    """
    unit = run.time_unit
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    environment.finalize = _visible
    environment.filters["size"] = figures.text_size
    environment.filters["time"] = partial(_time, unit=unit)
    template = environment.from_string(
        resources("receiver.spark.report").joinpath("page.html").read_text("utf-8")
    )
    mood, headline, explanation = _headline(summary)
    serious = [each for each in summary.findings if each.severity != Severity.NOTE]
    rank = [severity for severity, _ in _MEANINGS]
    serious.sort(key=lambda each: (rank.index(Severity(each.severity)), each.physical))
    return template.render(
        s=summary,
        mood=mood,
        headline=headline,
        explanation=explanation,
        tiles=_tiles(summary),
        serious=serious,
        severities={each.severity for each in serious},
        meanings=_MEANINGS,
        notes=[each for each in summary.findings if each.severity == Severity.NOTE],
        labels={each.physical: each.sender_label for each in run.files},
        checks=(*_CATALOGUE_CHECKS, *_FILE_CHECKS) if summary.engine else _FILE_CHECKS,
        points=figures.points(run.days),
        lag=figures.lag(run.files, unit),
        sizes=figures.sizes(run.files),
        gaps=figures.gaps(run.gaps, unit),
        gap_rows=[_gap_row(each, unit) for each in run.gaps[:_GAPS] if each.longest_gap],
        codecs=run.codecs,
        duplicates=run.duplicates,
        files=sorted(run.files, key=_importance),
        limit=LIMIT,
    )


def _headline(s: Summary) -> tuple[str, str, str]:
    if not s.files:
        return "warn", "No files to verify", "The catalogue has none for what was asked for."
    if s.bad:
        headline = (
            f"{s.bad:,} of {counted(s.files, 'file', form=',')} {'is' if s.bad == 1 else 'are'} bad"
        )
        return "bad", headline, _delivered(s) + "See below what was found."
    if s.unproved:
        headline = f"{s.unproved:,} of {counted(s.files, 'file', form=',')} could not be judged"
        return "warn", headline, _delivered(s) + "The others are proved."
    if s.problems:
        headline = (
            f"All {counted(s.files, 'file', form=',')} proved, "
            f"{counted(s.problems, 'problem', form=',')} between them"
        )
        return "warn", headline, _delivered(s) + "Every point is what was sent."
    headline = (
        "The file is proved"
        if s.files == 1
        else f"All {counted(s.files, 'file is', 'files are', form=',')} proved"
    )
    return "good", headline, _delivered(s) + "Every point was decoded, and is what was sent."


def _delivered(s: Summary) -> str:
    if s.delivery is None:
        return "Nothing was committed. " if s.engine else ""
    done = s.delivery
    said = f"Committed: {done.verified:,} verified, {done.quarantined:,} in quarantine"
    if done.mended:
        said += f", {done.mended:,} mended from other copies"
    return f"{said}, {done.stale:,} changed meanwhile. " if done.stale else f"{said}. "


def _tiles(s: Summary) -> list[tuple[str, str]]:
    rate = short_number(s.points / s.seconds) if s.seconds else "-"
    tiles = [
        ("files proved", f"{s.proved:,}"),
        ("bad", f"{s.bad:,}"),
        ("unproved", f"{s.unproved:,}"),
        ("problems", f"{s.problems:,}"),
        ("points", f"{s.points:,}"),
        ("series", f"{s.series:,}"),
        ("data", figures.text_size(s.bytes)),
        ("points a second", rate),
    ]
    return [*tiles, ("not asked for", f"{s.passed_over:,}")] if s.passed_over else tiles


def _importance(file: FileResult) -> tuple[int, int, str]:
    return _ORDER[file.verdict], -file.count(Severity.PROBLEM), file.physical


def _gap_row(span: DeviceSpan, unit: str) -> tuple[str, str, str, str, str]:
    per_second = figures.UNITS[unit]
    usual = "-" if span.typical_interval is None else _length(span.typical_interval / per_second)
    gap = _length((span.longest_gap or 0) / per_second)
    return span.device, usual, gap, _time(span.gap_begins, unit=unit), span.physical


def _length(seconds: float) -> str:
    return figures.duration(seconds)


def _time(time: int | None, *, unit: str) -> str:
    if time is None:
        return "-"
    found = figures.moment(time, unit)
    return str(time) if found is None else found.isoformat(sep=" ")[:19]


def _visible(value: object) -> object:
    """Names may hold what turns the direction of a line, or hides: it is written out."""
    return printable(value) if type(value) is str else value
