"""Which partitions are due to be merged, and what a merge is asked: as of one commit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from receiver.compaction.worth_merging.choosing import MergeChoice, MergeLimits, choose
from receiver.compaction.worth_merging.file_units import met_by_others
from receiver.compaction.worth_merging.merge_asked import MergeAsked
from receiver.datadirs.disks import place_of
from receiver.metadata.commit.judging.compaction_rules import times_of_files
from receiver.metadata.state.ranges import ids_of
from receiver.metadata.state.table_rows import FileState
from receiver.metadata.state.transfer_cuts import TransferCuts
from receiver.superseding.due import file_asked, notes_asked, notes_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from common.config.shared_rules import TimeUnit
    from common.durable import Tree
    from receiver.metadata.engine import Engine
    from receiver.metadata.state.deletion_rows import DeletionsRow
    from receiver.metadata.state.table_rows import FileRow
    from receiver.metadata.state.tables.file_tables.compacted_rows import CompactedRow
    from receiver.metadata.state.tables.file_tables.retired import PartitionKey

__all__ = ["MergeRules", "PartitionFiles", "asked_of", "files_of"]


@dataclass(frozen=True, slots=True)
class MergeRules:
    """What is left alone for now.

    Attributes:
        limits: of one merge.
        quiet: seconds since the last file of a partition came or ended.
        partition_interval: width of a partition in milliseconds.
        unit: of the times of the data.
        trees: gives the data directories that count now.
        awaits_proof: whether a retired file may soon be superseded.
    """

    limits: MergeLimits
    quiet: float
    partition_interval: int
    trees: Callable[[], Sequence[Tree]]
    awaits_proof: Callable[[PartitionKey, FileRow], bool]
    unit: TimeUnit = "ms"

    def quiet_at(self, key: PartitionKey, touched: float) -> float:
        """When a partition is written no more: its time is over, and nothing came for a while.

        Args:
            key: of the partition.
            touched: when the last file came or ended; all in seconds since the epoch.
        """
        ended = (int(key.partition) + 1) * self.partition_interval / 1000
        return max(touched, ended) + self.quiet


@dataclass(frozen=True, slots=True)
class PartitionFiles:
    """A partition as of a commit: rows never change.

    Attributes:
        key: of the partition.
        at: the commit.
        rows: of its visible files.
        compactions: that hold in it.
        cut: physical paths of files that transfers of devices cut.
        notes: deletions that may reach the files.
        note_devices: see `notes_of`.
        last: the commit in which the last file came or ended.
        touched: when that was, seconds since the epoch.
        elsewhere: gives the files of other partitions that have a device and a time of one of
            these; as of another commit, so that has to be seen to once more.
    """

    key: PartitionKey
    at: int
    rows: Sequence[FileRow]
    compactions: Sequence[CompactedRow]
    cut: frozenset[str]
    notes: Sequence[DeletionsRow]
    note_devices: Mapping[str, Sequence[str]]
    last: int
    touched: float
    elsewhere: Callable[[], Sequence[FileRow]]

    def choices(
        self, rules: MergeRules, *, refused: Collection[bytes] = (), forced: bool = False
    ) -> list[MergeChoice]:
        """What of it to merge now; see `choose`. What overlaps files elsewhere is left alone."""
        found = self._choices(rules, self.cut, refused, forced)
        met = met_by_others(self.rows, self.elsewhere()) if found else frozenset()
        return self._choices(rules, self.cut | met, refused, forced) if met else found

    def _choices(
        self,
        rules: MergeRules,
        left_alone: frozenset[str],
        refused: Collection[bytes],
        forced: bool,
    ) -> list[MergeChoice]:
        trees = rules.trees()

        def may_merge(row: FileRow) -> bool:
            return (
                row.physical not in left_alone
                and not (row.state is FileState.RETIRED and rules.awaits_proof(self.key, row))
                and place_of(trees, row) is not None
            )

        return choose(
            self.rows,
            self.compactions,
            rules.limits,
            may_merge=may_merge,
            refused=refused,
            forced=forced,
        )


def files_of(engine: Engine, key: PartitionKey) -> PartitionFiles:
    """A partition as it is now."""
    with engine.reading() as state:
        rows = state.file_table.partition(*key)
        cuts = TransferCuts(state.owner_table.moves, state.newest)
        notes, devices = notes_of(state, {row.sender for row in rows}, key.sg)
        last = max((_came_or_ended(row) for row in rows), default=0)
        return PartitionFiles(
            key=key,
            at=state.newest,
            rows=rows,
            compactions=state.compacted_table.of_partition(key),
            cut=frozenset(row.physical for row in rows if cuts.of(row)),
            notes=notes,
            note_devices=devices,
            last=last,
            touched=state.clock.times.seconds(last),
            elsewhere=lambda: _elsewhere(engine, key, rows),
        )


def _elsewhere(engine: Engine, key: PartitionKey, rows: Sequence[FileRow]) -> list[FileRow]:
    ids = ids_of(row.devices for row in rows)
    with engine.reading() as state:
        return state.file_table.beside(key, ids, *times_of_files(rows))


def _came_or_ended(row: FileRow) -> int:
    """The last commit of a row that says something of its partition: verifications do not."""
    return row.created if row.changed == row.verified else row.changed


def asked_of(
    there: PartitionFiles,
    choice: MergeChoice,
    rules: MergeRules,
    *,
    directory: str,
    name: str,
    memory: int,
    rate: int = 0,
) -> MergeAsked:
    """The question for what was chosen.

    Args:
        there: that it was chosen from.
        choice: what is to be merged.
        rules: say where files are.
        directory: where the outputs go.
        name: that those begin with.
        memory: bytes for decoded points.
        rate: bytes a second that are read and written; 0 for no limit.
    """
    trees = rules.trees()
    return MergeAsked(
        files=tuple(file_asked(row, place_of(trees, row)) for row in choice.rows),
        notes=tuple(notes_asked(there.notes, there.note_devices, there.at)),
        database=there.key.sg,
        directory=directory,
        name=name,
        target_bytes=rules.limits.target_bytes,
        memory=memory,
        interval=rules.limits.interval,
        bytes_per_second=rate,
    )
