"""From a catalogue (or plain files) and a Spark session to the outcome of a run."""

from __future__ import annotations

import datetime
import time
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from common.tsfile.device_names import in_database
from common.tsfile.proof import SeriesTable
from receiver.load.merge_verdicts import BadMerge, ProvedMerge
from receiver.load.upkeep.verdicts import (
    Verdict,
)
from receiver.spark.finder import kind_of, shown
from receiver.spark.report.results import (
    FileResult,
    Finding,
    Judgement,
    MergedResult,
    Severity,
    Verification,
)
from receiver.spark.source.crowding import crowded_among
from receiver.spark.verify.examining.part_rows import span_table
from receiver.spark.verify.examining.parts import Expected, PartResult, PartSpan
from receiver.spark.verify.examining.subjects import Neighbours, Subject
from receiver.spark.verify.job import VerifyJob
from receiver.spark.verify.merge_proofs import prove_merges

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession

    from common.wire import CrowdedPartition
    from receiver.spark.finder import DataFile
    from receiver.spark.verify.committed import CommittedFile, CommittedFiles
    from receiver.spark.verify.examining.part_rows import Settings
    from receiver.spark.verify.job_progress import JobProgress

__all__ = [
    "Run",
    "bad_merges",
    "crowded_of",
    "proved_merges",
    "verdicts_of",
    "verify_catalogue",
    "verify_plain",
]

_MOST_IN_RESULTS = 100
"""Of one file, in the results."""
_MOST_SERIES = 20
"""Series of one file that are named as different from the manifest."""
_WEIGHT = {Severity.BAD: 0, Severity.UNPROVED: 1, Severity.PROBLEM: 2, Severity.NOTE: 3}


@dataclass(frozen=True, slots=True)
class Run:
    """What is the same for a whole run.

    Attributes:
        spark: session; None where there is nothing to do.
        settings: for the workers.
        progress: told how far it is.
        scope: what was asked for, in words.
        begun: seconds since the epoch.
        started: by the monotonic clock.
    """

    spark: SparkSession | None
    settings: Settings
    progress: JobProgress
    scope: str
    begun: float
    started: float


def verify_catalogue(run: Run, catalogue: CommittedFiles) -> tuple[Verification, VerifyJob]:
    """Verify the files of a catalogue; the job is to be closed when its tables were read."""
    files = catalogue.files
    subjects = [
        Subject(
            each.expected,
            each.row.size,
            each.current,
            each.row.rank,
            each.row.sender,
            catalogue.cuts_of(each.row),
        )
        for each in files
    ]
    job = VerifyJob(run.spark, subjects, run.settings, run.progress, _neighbours(catalogue))
    run.progress.say("comparing with the catalogue")
    results = tuple(
        _committed(catalogue, file, job.results[at], job.findings.get(at, ()))
        for at, file in enumerate(files)
    )
    run.progress.say("comparing merged files with what they stand for")
    merged = prove_merges(run.spark, catalogue, run.settings.limit)
    run.progress.clear()
    return replace(_outcome(run, job, results, catalogue), merged=merged), job


def verify_plain(run: Run, files: Sequence[DataFile]) -> tuple[Verification, VerifyJob]:
    """Verify files of no receiver."""
    subjects = [Subject(_unknown(each), each.size, rank=each.standing) for each in files]
    job = VerifyJob(run.spark, subjects, run.settings, run.progress)
    results = []
    for at, file in enumerate(subjects):
        part = job.results[at]
        findings = [*part.findings, *job.findings.get(at, ())]
        if part.absent:
            findings.append(_whole(Severity.UNPROVED, "present", "it is not there"))
        results.append(_result(file.expected, None, part, findings))
    return _outcome(run, job, tuple(results), None), job


def _unknown(file: DataFile) -> Expected:
    """A file of no receiver: nothing is known of it but what its path tells."""
    (path,) = file.locations
    return Expected(path, database=file.database or "", kind=kind_of(path) or "")


def _neighbours(catalogue: CommittedFiles) -> Neighbours:
    """Files that the scope left out, as far as those in it may overlap with them."""
    found = catalogue.neighbours()
    spans = [
        PartSpan(device, first, last, 0, None, None, None)
        for each in found
        for device, first, last in each.ranges
    ]
    numbers = [at for at, each in enumerate(found) for _ in each.ranges]
    files = [
        Subject(each.expected, 0, rank=each.rank, sender=each.sender, cuts=each.cuts)
        for each in found
    ]
    return Neighbours(files, span_table(numbers, spans))


def verdicts_of(files: Sequence[FileResult], expected: Sequence[Expected]) -> list[Verdict]:
    """What the engine is told: of files that could be judged, in their order."""
    verdicts = []
    for file, known in zip(files, expected, strict=True):
        if file.verdict is Judgement.PROVED:
            verdicts.append(Verdict(known.physical, known.md5 or ""))
        elif file.verdict is Judgement.BAD:
            as_sent = (file.size, file.md5) == (known.size, known.md5)
            verdicts.append(Verdict(known.physical, known.md5 or "", _reason(file), as_sent))
    return verdicts


def bad_merges(outcome: Verification) -> list[BadMerge]:
    """The compactions that are to be dissolved."""
    found: dict[int, str] = {}
    for each in outcome.merged:
        if each.verdict is Judgement.BAD:
            found.setdefault(each.compaction, f"{each.physical}: {_reason(each)}")
    return [BadMerge(*each) for each in found.items()]


def proved_merges(outcome: Verification) -> list[ProvedMerge]:
    """The compactions of which all was compared, and found to be what readers get otherwise."""
    found: dict[int, list[MergedResult]] = defaultdict(list)
    for each in outcome.merged:
        found[each.compaction].append(each)
    return [
        ProvedMerge(
            ident, tuple((each.physical, each.size, each.md5) for each in outputs if each.md5)
        )
        for ident, outputs in found.items()
        if all(each.compared and each.verdict is Judgement.PROVED for each in outputs)
    ]


def crowded_of(job: VerifyJob, catalogue: CommittedFiles) -> list[CrowdedPartition]:
    """Partitions in which readers meet many files, or such that overlap."""
    replaced = catalogue.replaced()
    names = [
        each.expected.physical for each in catalogue.files if each.expected.physical not in replaced
    ]
    overlapping = job.overlapping_files.difference(replaced)
    return crowded_among(names, overlapping)


def _reason(file: FileResult | MergedResult) -> str:
    bad = [each for each in file.findings if each.severity is Severity.BAD]
    first = bad[0]
    place = "" if first.device is None else f"{first.device}"
    if first.measurement:
        place += f".{first.measurement}"
    if first.offset is not None:
        place += f" at offset {first.offset}"
    more = f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
    return f"verification: {first.check}: {place and f'{place.strip()}: '}{first.detail}{more}"


def _outcome(
    run: Run, job: VerifyJob, files: tuple[FileResult, ...], catalogue: CommittedFiles | None
) -> Verification:
    return Verification(
        engine=catalogue.uuid if catalogue else "",
        commit=catalogue.commit if catalogue else 0,
        scope=run.scope,
        time_unit=run.settings.unit,
        begun=_moment(run.begun),
        seconds=time.monotonic() - run.started,
        master=(run.spark.sparkContext.master or "") if run.spark else "",
        files=files,
        days=job.days,
        codecs=job.codecs,
        gaps=job.widest_gaps(),
        duplicates=job.duplicates,
        passed_over=catalogue.passed_over if catalogue else 0,
        chunks=job.chunks,
        spans=job.spans,
        unlooked=job.unlooked,
        merged_points=merged_points(job, files, catalogue),
    )


def merged_points(
    job: VerifyJob, files: Sequence[FileResult], catalogue: CommittedFiles | None
) -> int | None:
    """The points of all files that readers get; None where that takes more than this run has read.

    Where no two files of one kind overlap, a time of a series stands in one sequence and in one
    unsequence file at most, and those in both were counted. What deletions hide, what retired files
    give, and files that were not asked for or not proved, are not known so cheaply.
    """
    if catalogue is None or catalogue.passed_over or catalogue.is_hidden:
        return None
    if job.overlapping or job.unlooked or any(each.verdict != Judgement.PROVED for each in files):
        return None
    shared = [each.points for each in job.duplicates]
    counted = [each for each in shared if each is not None]
    if len(counted) < len(shared):
        return None
    return sum(each.points for each in files) - sum(counted)


# -- one file ------------------------------------------------------------------------------------


def _committed(
    catalogue: CommittedFiles, file: CommittedFile, part: PartResult, related: Sequence[Finding]
) -> FileResult:
    findings = [*part.findings, *file.findings, *related]
    if part.absent:
        findings.append(catalogue.absences.of_file(file.row, part.host))
    if part.outline is not None:
        findings += catalogue.against_schema(file, part.outline)
    if part.table is not None:
        findings += _against_manifest(catalogue, file, part.table)
    return _result(file.expected, file, part, findings)


def _against_manifest(
    catalogue: CommittedFiles, file: CommittedFile, packed: bytes
) -> Iterator[Finding]:
    """The file's table of series is not the one that was sent: which series differ, and how."""
    found, sent = SeriesTable.unpack(packed), catalogue.sent_table(file)
    if isinstance(sent, str):
        detail = f"its series are not those of the sender's manifest; which ones is unknown: {sent}"
        yield _whole(Severity.BAD, "manifest", detail)
        return
    count = 0
    for each in sent.differences(found):
        count += 1
        if count <= _MOST_SERIES:
            name = _catalogue_name(each.device, file.expected)
            yield Finding(Severity.BAD, "manifest", name, each.measurement, None, each.detail)
    if count > _MOST_SERIES:
        detail = f"{count - _MOST_SERIES} more series differ from the sender's manifest"
        yield _whole(Severity.BAD, "manifest", detail)
    if not count:
        yield _whole(Severity.BAD, "manifest", "its series stand in another order than was sent")


def _catalogue_name(device: str, expected: Expected) -> str | None:
    if not device:
        return None
    of_table = in_database(device, expected.database)
    return of_table if of_table in (expected.devices or ()) else device


def _result(
    expected: Expected, file: CommittedFile | None, part: PartResult, findings: list[Finding]
) -> FileResult:
    row = file.row if file else None
    findings.sort(key=lambda each: _WEIGHT[each.severity])
    return FileResult(
        physical=shown(expected.physical),
        sender=row.sender if row else "",
        sender_label=file.label if file else "",
        path=row.path if row else "",
        task=row.task if row else "",
        kind=expected.kind,
        storage_group=expected.database,
        partition=_partition(expected),
        size=part.size,
        md5=part.md5,
        format_version=part.version,
        devices=part.devices,
        series=part.series,
        points=part.points,
        chunks=part.chunks,
        pages=part.pages,
        first_time=part.first_time,
        last_time=part.last_time,
        loaded_commit=row.created if row else 0,
        loaded_at=_moment(file.loaded_at) if file else None,
        verdict=_judge(findings),
        findings=_capped(findings, part.dropped),
        seconds=part.seconds,
    )


def _judge(findings: Sequence[Finding]) -> Judgement:
    severities = {each.severity for each in findings}
    if Severity.BAD in severities:
        return Judgement.BAD
    return Judgement.UNPROVED if Severity.UNPROVED in severities else Judgement.PROVED


def _capped(findings: list[Finding], dropped: int) -> tuple[Finding, ...]:
    more = dropped + max(0, len(findings) - _MOST_IN_RESULTS + 1)
    if not dropped and len(findings) <= _MOST_IN_RESULTS:
        return tuple(findings)
    kept = findings[: _MOST_IN_RESULTS - 1]
    return (*kept, _whole(kept[0].severity, kept[0].check, f"and {more} more findings"))


def _whole(severity: Severity, check: str, detail: str) -> Finding:
    return Finding(severity, check, None, None, None, detail)


def _partition(expected: Expected) -> int | None:
    parts = expected.physical.rsplit("/", 2)
    try:
        return int(parts[-2]) if expected.kind else None
    except (ValueError, IndexError):
        return None


def _moment(seconds: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC)
