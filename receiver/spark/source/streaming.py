"""`spark.readStream.format("tsfile")`: each file that a receiver loads, once, in order of commits.

An offset is a commit, so a batch is what was loaded after one commit and up to another. What a
batch holds is fixed by its two offsets, however often it is planned: files that were visible at
the commit `as_of`, the newest one when the batch was planned first. So

* a file that was deleted before its batch was planned is not read (what a compaction replaced,
  while the query was down); one that is deleted later is read still, its bytes stay for the
  history of the receiver;
* a file that was in quarantine by then is put off: the offset carries its name (`held`) until it
  is restored, and is read then, or deleted;
* a file that goes into quarantine after it was read stays read. When its sender sends it again
  that is another file, with a commit of its own.

Of files that overlap others a batch has what alters the answer: values of its files where no file
stands above and the answer was another one before. So what a compaction wrote anew, and values
that are hidden already, come to nothing. What deletions and losses do to the answer is not told.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)

from common.errors import ConflictError, GoneError, UsageError
from receiver.metadata.model.errors import HistoryGoneError
from receiver.spark.source.inferring import catalogue_of, read_tail_of, wanted_of
from receiver.spark.source.read_plans.overlapping import MergedFile
from receiver.spark.source.read_plans.partition import TsFilePartition
from receiver.spark.source.read_plans.slicing import plan as plan_parts
from receiver.spark.source.slice_reader import read_slices

if TYPE_CHECKING:
    import pyarrow as pa

    from receiver.spark.catalogue import Catalogue
    from receiver.spark.finder import DataFile
    from receiver.spark.source.read_plans.read_plan import ReadPlan

__all__ = ["Offset", "TsFileStreamReader", "batch_end", "batch_files", "batch_neighbours"]


@dataclass(frozen=True, slots=True)
class Offset:
    """Where a stream stands.

    Attributes:
        engine: uuid of the receiver's engine.
        commit: files loaded up to it are read, or held.
        as_of: the commit that decided which of them are visible.
        held: physical paths of files that were in quarantine then, to be read when restored.
    """

    engine: str
    commit: int
    as_of: int
    held: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """As Spark writes it into the checkpoint."""
        return {
            "version": 1,
            "engine": self.engine,
            "commit": self.commit,
            "asOf": self.as_of,
            "held": json.dumps(self.held),
        }

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> Offset:
        """From a checkpoint.

        Raises:
            UsageError: it is of something else, or of a newer version.
        """
        try:
            if found["version"] != 1:
                raise UsageError(f"the checkpoint's offset has version {found['version']}, not 1")
            held = tuple(json.loads(found["held"]))
            return cls(found["engine"], int(found["commit"]), int(found["asOf"]), held)
        except (KeyError, ValueError, TypeError) as error:
            raise UsageError(f"the checkpoint holds no offset of tsfile: {found!r}") from error


def batch_files(catalogue: Catalogue, start: Offset, end: Offset) -> list[DataFile]:
    """The files of a batch: the same whenever it is asked.

    Raises:
        HistoryGoneError: `end.as_of` is before the kept history.
    """
    held = frozenset(start.held)
    return [
        each
        for each in catalogue.loads(end.as_of, _since(start)).visible
        if start.commit < each.created <= end.commit or each.name in held
    ]


def batch_neighbours(
    catalogue: Catalogue, start: Offset, end: Offset, files: Iterable[DataFile]
) -> list[MergedFile]:
    """The files that the rows of a batch are held against: those of the answer, then and now.

    What gave the answer before the batch is known as long as the receiver keeps the history of
    that; beyond, what is left of it counts.

    Raises:
        HistoryGoneError: `end.as_of` is before the kept history.
    """
    fresh = {each.name for each in files}
    now = [
        each
        for each in catalogue.loads(end.as_of).visible
        if each.created <= end.commit and each.name not in fresh
    ]
    found = [MergedFile(each, before=True) for each in now]
    known = fresh | {each.name for each in now}
    try:
        then = catalogue.loads(start.as_of).visible if start.as_of else []
    except HistoryGoneError:
        then = []
    left = (each for each in then if each.created <= start.commit and each.name not in known)
    return [*found, *(MergedFile(each, counts=False, before=True) for each in left)]


def batch_end(
    catalogue: Catalogue, start: Offset, newest: int, max_files: int | None = None
) -> Offset:
    """Where a batch that begins at an offset ends; that offset itself, if there is nothing to do.

    Args:
        catalogue: of the receiver.
        start: where it begins.
        newest: the commit that it may reach.
        max_files: about so many files, but at least those of one commit.
    """
    found = catalogue.loads(newest, _since(start))
    fresh = sorted(each.created for each in found.visible if each.created > start.commit)
    commit = newest
    if max_files is not None and len(fresh) > max_files:
        commit = fresh[max_files - 1]
    before = frozenset(start.held)
    held = {
        each.name
        for each in found.held
        if start.commit < each.created <= commit or each.name in before
    }
    restored = any(each.name in before for each in found.visible)
    if not fresh and not restored and held == before:
        return start
    return Offset(start.engine, commit, newest, tuple(sorted(held)))


def _since(start: Offset) -> int:
    # Held files were loaded before the batch: to find them takes a look at all.
    return 0 if start.held else start.commit


class TsFileStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows the catalogue of a receiver."""

    def __init__(self, plan: ReadPlan) -> None:
        """Make a reader; nothing is opened yet.

        Raises:
            UsageError: the options name paths, which have no commits.
        """
        if plan.options.catalog is None:
            raise UsageError(
                f"option path = {plan.options.paths[0]!r}: a stream follows the commits of a "
                "receiver; expected catalog"
            )
        if plan.options.as_of is not None:
            raise UsageError(
                f"option asOf = {str(plan.options.as_of)!r}: expected in batch queries only; a "
                "stream begins behind startingCommit"
            )
        self._plan = plan
        self._catalogue: Catalogue | None = None
        self._target: int | None = None

    def __getstate__(self) -> ReadPlan:
        return self._plan

    def __setstate__(self, plan: ReadPlan) -> None:
        self.__init__(plan)  # type: ignore[misc]

    # -- in the driver -----------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        """Where a new query begins."""
        catalogue = self._current()
        starting = self._plan.options.starting_commit
        behind = None if starting == "latest" else starting
        commit = 0 if starting is None else catalogue.at(behind)
        return Offset(catalogue.uuid, commit, commit).to_dict()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Where the next batch ends.

        Raises:
            ConflictError: the checkpoint is of another receiver.
            GoneError: it knows commits that this receiver does not have (any more).
        """
        begin = Offset.from_dict(start)
        catalogue = self._current()
        self._check(begin, catalogue)
        newest = catalogue.newest if self._target is None else self._target
        if newest < begin.as_of:
            return begin.to_dict()
        most = limit.max_files if isinstance(limit, ReadMaxFiles) else None
        return batch_end(catalogue, begin, newest, most).to_dict()

    def getDefaultReadLimit(self) -> ReadLimit:
        """The option ``maxFilesPerTrigger``."""
        most = self._plan.options.max_files
        return ReadAllAvailable() if most is None else ReadMaxFiles(most)

    def reportLatestOffset(self) -> dict[str, Any]:
        """What there is, for the progress of the query."""
        catalogue = self._current()
        return Offset(catalogue.uuid, catalogue.newest, catalogue.newest).to_dict()

    def prepareForTriggerAvailableNow(self) -> None:
        """Read no further than to the commit that is the newest now."""
        self._target = self._current().newest

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of a batch.

        Raises:
            HistoryGoneError: it was planned so long ago that its files may be gone, and the option
                ``failOnDataLoss`` is true.
        """
        first, last = Offset.from_dict(start), Offset.from_dict(end)
        if first == last:
            return []
        catalogue = self._current()
        self._check(last, catalogue)
        try:
            return self._parts(catalogue, first, last)
        except HistoryGoneError as error:
            if self._plan.options.fail_on_data_loss:
                raise HistoryGoneError(
                    f"a batch planned at commit {last.as_of} is to be read again: {error}; "
                    "with option failOnDataLoss = 'false' what is there now is read",
                    extra=error.extra,
                ) from error
            now = Offset(last.engine, last.commit, catalogue.newest, last.held)
            return self._parts(catalogue, first, now)

    def _parts(self, catalogue: Catalogue, first: Offset, last: Offset) -> list[TsFilePartition]:
        plan, options = self._plan, self._plan.options
        files = wanted_of(options, batch_files(catalogue, first, last))
        beside: list[MergedFile] = []
        if options.merge and files:
            beside = batch_neighbours(catalogue, first, last, files)
            kept = {each.name for each in wanted_of(options, [each.file for each in beside])}
            beside = [each for each in beside if each.file.name in kept]
        parts = plan_parts(
            files,
            plan.selection.span,
            options.partition_bytes,
            plan.picker(),
            read_tail_of,
            merge=options.merge,
            beside=beside,
        )
        return [TsFilePartition(each) for each in parts]

    def stop(self) -> None:
        """Close the catalogue."""
        if self._catalogue is not None:
            self._catalogue.close()
            self._catalogue = None

    def _current(self) -> Catalogue:
        if self._catalogue is None:
            self._catalogue = catalogue_of(self._plan.options)
        else:
            self._catalogue.refresh()
        return self._catalogue

    @staticmethod
    def _check(offset: Offset, catalogue: Catalogue) -> None:
        if offset.engine != catalogue.uuid:
            raise ConflictError(
                f"the checkpoint is of the receiver {offset.engine}, the catalogue of "
                f"{catalogue.uuid}; begin a new query, with another checkpointLocation"
            )
        if offset.commit > catalogue.newest:
            raise GoneError(
                f"the checkpoint knows commit {offset.commit}, the receiver's newest is "
                f"{catalogue.newest}: it was restored from an old copy; begin a new query, with "
                "another checkpointLocation, behind a startingCommit of your choice"
            )

    # -- in the workers ----------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task, as record batches."""
        assert isinstance(partition, TsFilePartition)
        return read_slices(partition.slices, self._plan)
