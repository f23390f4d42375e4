"""The merged files of a run: dealt out to workers, and what they come to."""

from __future__ import annotations

import pickle
import zlib
from collections import defaultdict
from typing import TYPE_CHECKING, Final

from receiver.spark.report.results import Finding, Judgement, MergedResult, Severity
from receiver.spark.verify.examining.merge_checks import (
    MergePart,
    MergePartResult,
    check_merge_part,
)
from receiver.spark.verify.examining.parts import GROUPS_PER_CORE, PART_BYTES
from receiver.spark.verify.session import SparkFailedError, was_interrupted
from receiver.spark.work import deal

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession

    from receiver.spark.verify.committed import CommittedFiles
    from receiver.spark.verify.examining.merge_checks import CompactionAsked

__all__ = ["merge_parts", "prove_merges"]

_OPENING: Final = 256 << 10
"""Bytes that an input more counts as."""


def prove_merges(
    spark: SparkSession | None, catalogue: CommittedFiles, limit: float
) -> tuple[MergedResult, ...]:
    """Prove the merged files that are asked for; see `CommittedFiles.compactions`.

    Args:
        spark: where; not needed where there are none.
        catalogue: has them.
        limit: seconds for a part.
    """
    asked = catalogue.compactions()
    if not asked or spark is None:
        return ()
    results: dict[int, list[MergePartResult]] = defaultdict(list)
    parts = [part for at, one in enumerate(asked) for part in merge_parts(at, one)]
    for each in _done(spark, parts, limit):
        results[each.number].append(each)
    return tuple(
        result for at, one in enumerate(asked) for result in _results(catalogue, one, results[at])
    )


def merge_parts(number: int, asked: CompactionAsked) -> Iterator[MergePart]:
    """The parts of a compaction: each output as a whole, and its points in shares."""
    sizes = [each.size or 0 for each in asked.outputs]
    for at, size in enumerate(sizes):
        yield MergePart(number, asked, at, 0, 1, size // 3)
    read = sum(sizes) + sum(each.size + _OPENING for each in asked.inputs)
    shares = max(1, -(-sum(sizes) // PART_BYTES))
    for share in range(shares):
        yield MergePart(number, asked, None, share, shares, read // shares)


def _done(spark: SparkSession, parts: Sequence[MergePart], limit: float) -> list[MergePartResult]:
    context = spark.sparkContext
    groups = deal(parts, GROUPS_PER_CORE * context.defaultParallelism, lambda part: part.weight)
    packed = [zlib.compress(pickle.dumps(each, pickle.HIGHEST_PROTOCOL), 1) for each in groups]
    tasks = context.parallelize(packed, len(packed)).map(lambda group: _checked(group, limit))
    try:
        return [each for several in tasks.collect() for each in pickle.loads(several)]  # noqa: S301 - of our own workers
    except Exception as error:  # Spark raises errors of several libraries
        failed = SparkFailedError.of(error)
        if was_interrupted(error):
            raise failed from error
        found = Finding(Severity.UNPROVED, "worker", None, None, None, str(failed))
        return [MergePartResult(each.number, each.output, findings=((each.output or 0, found),))
                for each in parts]  # fmt: skip


def _checked(packed: bytes, limit: float) -> bytes:
    """In a worker: parts in, results out."""
    group: list[MergePart] = pickle.loads(zlib.decompress(packed))  # noqa: S301 - from our own driver
    return pickle.dumps([check_merge_part(each, limit) for each in group])


def _results(
    catalogue: CommittedFiles, asked: CompactionAsked, parts: Sequence[MergePartResult]
) -> Iterator[MergedResult]:
    findings: dict[int, list[Finding]] = defaultdict(list)
    sizes: dict[int, int] = {}
    for part in parts:
        for at, found in part.findings:
            if found not in findings[at]:
                findings[at].append(found)
        if part.output is not None:
            sizes[part.output] = part.size
            if part.absent:
                findings[part.output].append(catalogue.absences.of_output(asked, part))
    compared = all(part.compared for part in parts if part.output is None)
    outputs = [(each.physical, each.md5 or "") for each in asked.outputs] or [(asked.name, "")]
    for at, (name, md5) in enumerate(outputs):
        severities = {each.severity for each in findings[at]}
        yield MergedResult(
            physical=name,
            compaction=asked.ident,
            stands_for=len(asked.inputs),
            size=sizes.get(at, 0),
            points=sum(part.points for part in parts) if at == 0 else 0,
            verdict=_judged(severities),
            compared=compared,
            md5=md5,
            findings=tuple(findings[at]),
            seconds=sum(part.seconds for part in parts) if at == 0 else 0.0,
        )


def _judged(severities: set[Severity]) -> Judgement:
    if Severity.BAD in severities:
        return Judgement.BAD
    return Judgement.UNPROVED if Severity.UNPROVED in severities else Judgement.PROVED
