"""Compacted files, which readers read in place of others, and the files that these stand for.

A row is no file: whoever asks what is loaded, listed, owned or verified asks for its inputs, which
stay as they are. It holds while every input gives the points that it gave, and while all that
overlaps them stands above them; the commit that changes this dissolves it
(`receiver.metadata.commit.replaced.dissolving`).
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, TypeVar

import msgspec
import numpy as np

from receiver.metadata.model import records
from receiver.metadata.model.centre_source import is_centre
from receiver.metadata.model.ranks import NameRank
from receiver.metadata.state.table_rows import FileState
from receiver.metadata.state.tables.file_tables.compacted_rows import (
    CompactedOutput,
    CompactedRow,
    MergedLeaf,
    is_marked,
    marks_of,
    may_give,
    packed_leaves,
    packed_names,
)
from receiver.metadata.state.tables.file_tables.final_compactions import (
    BY_OPERATORS,
    FinalCompactions,
)
from receiver.metadata.state.tables.file_tables.retired import PartitionKey, partition_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from receiver.metadata.state.ranges import DeviceTable
    from receiver.metadata.state.table_rows import FileRow
    from receiver.metadata.state.tables import Appliers

__all__ = ["CompactedTable"]

T = TypeVar("T")


class CompactedTable:
    """Compactions: those that hold, and those that are dissolved and not yet forgotten.

    Attributes:
        rows: by id.
        finals: those of them whose outputs became files.
    """

    def __init__(self, files: Mapping[str, FileRow], devices: DeviceTable) -> None:
        """Begin with none.

        Args:
            files: the rows of files, by physical path.
            devices: packs what the outputs hold.
        """
        self.rows: dict[int, CompactedRow] = {}
        self.finals = FinalCompactions(self.rows, files)
        self._files = files
        self._devices = devices
        self._holding: dict[PartitionKey, dict[int, None]] = {}
        self._of_sender: dict[str, dict[int, None]] = {}
        self._members: dict[int, array[int]] = {}
        self._reaches: dict[str, _Reaches] = {}
        self._outputs: dict[str, CompactedOutput] = {}

    # -- questions ---------------------------------------------------------------------------

    def __bool__(self) -> bool:
        """Whether any holds."""
        return bool(self._holding)

    def holding(self) -> Iterator[CompactedRow]:
        """Those that hold now."""
        return (self.rows[each] for several in self._holding.values() for each in several)

    def of_partition(self, key: PartitionKey) -> list[CompactedRow]:
        """Those of a partition that hold now."""
        return [self.rows[each] for each in self._holding.get(key, ())]

    def of_sender(self, sender: str) -> list[CompactedRow]:
        """Those of files of a sender that hold now."""
        return [self.rows[each] for each in self._of_sender.get(sender, ())]

    def beside(
        self, key: PartitionKey, sender: str | None, first: int, last: int
    ) -> list[CompactedRow]:
        """Those of other partitions that hold now and have outputs with times in a range.

        Args:
            key: the partition that is left out.
            sender: whose they are, or the centre's, which may have devices of anybody; None, or
                the centre: anybody's.
            first: of the range.
            last: of it.
        """
        senders = [*self._of_sender]
        if sender is not None and not is_centre(sender):
            senders = [each for each in senders if each == sender or is_centre(each)]
        met = [ident for each in senders for ident in self._reach_of(each).met(first, last)]
        return [self.rows[each] for each in met if self.rows[each].key != key]

    def _reach_of(self, sender: str) -> _Reaches:
        found = self._reaches.get(sender)
        if found is None:
            found = self._reaches[sender] = _Reaches(self.of_sender(sender))
        return found

    def of_input(self, physical: str) -> CompactedRow | None:
        """The one that stands for a file now."""
        rows = self.of_partition(partition_of(physical)) if self._holding else ()
        return next((row for row in rows if self.stands_for(row, physical)), None)

    def inside(
        self, files: Collection[FileRow], at: int | None = None
    ) -> dict[str, tuple[str, ...]]:
        """Merged files that readers read in place of files, for now or for good.

        Args:
            files: any.
            at: a commit; now if left out. Of the past it is told of what is for now alone: what is
                for good is read as a file of its own from then on, and before it was not.

        Returns:
            by physical path; those that are read themselves are not among them.
        """
        if not self.rows:
            return {}
        if at is not None:
            return self._inside_then({each.physical: each for each in files}, at)
        found: dict[str, tuple[str, ...]] = {}
        for file in files:
            merged = self._read_for(file)
            if merged is not None:
                found[file.physical] = tuple(dict.fromkeys(merged))
        return found

    def _read_for(self, file: FileRow) -> Iterable[str] | None:
        """The merged files that are read in place of one now; None where it is not merged."""
        if (row := self.of_input(file.physical)) is not None:
            return _that_give(row, file)
        for_good = self._for_good(file)
        if for_good is None:
            return None
        return [name for each in for_good for name in self._read_as(each)]

    def _read_as(self, physical: str) -> Iterable[str]:
        """What a merged file that is a file is read as: it may be merged again, or gone."""
        file = self._files.get(physical)
        if file is None:
            return ()
        again = self._read_for(file)
        if again is not None:
            return again
        return (physical,) if file.visible else ()

    def _inside_then(self, files: Mapping[str, FileRow], at: int) -> dict[str, tuple[str, ...]]:
        keys = {partition_of(each) for each in files}
        rows = [row for row in self.rows.values() if row.holds_at(at) and row.key in keys]
        return {
            each: _that_give(row, files[each])
            for row in rows
            for each in row.inputs
            if each in files
        }

    def _for_good(self, file: FileRow) -> tuple[str, ...] | None:
        """The final outputs that a file was merged into, and not only given by."""
        if file.state is not FileState.SUPERSEDED:
            return None
        makers = [self.finals.maker(each) for each in file.rests]
        if any(each is None or each.final != file.superseded for each in makers):
            return None
        return tuple(file.rests)

    def stands_for(self, row: CompactedRow, physical: str) -> bool:
        """Whether a file is among the inputs of one that holds."""
        return is_marked(self._members[row.id], physical)

    def at(self, ts: int) -> list[CompactedRow]:
        """Those that readers of a commit read."""
        return [row for row in self.rows.values() if row.holds_at(ts)]

    def output(self, physical: str) -> CompactedOutput | None:
        """What readers of some commit may read under a name."""
        return self._outputs.get(physical)

    def of_output(self, physical: str) -> CompactedRow | None:
        """The one that made what readers of some commit may read under a name, and is no file."""
        if physical not in self._outputs:
            return None
        rows = self.rows.values()
        return next(row for row in rows if any(each.physical == physical for each in row.outputs))

    def dissolved(self) -> list[CompactedRow]:
        """Those whose outputs may go, when no reader of an earlier commit needs them."""
        return [row for row in self.rows.values() if row.dissolved and not row.final]

    # -- operations --------------------------------------------------------------------------

    def restore(self, row: CompactedRow) -> None:
        """Put a row in as it was."""
        self.rows[row.id] = row
        self._outputs |= {each.physical: each for each in row.outputs}
        if not row.dissolved:
            self._members[row.id] = marks_of(row.inputs)
            self._holding.setdefault(row.key, {})[row.id] = None
            self._of_sender.setdefault(row.sender, {})[row.id] = None
            self._reaches.pop(row.sender, None)
        if row.final:
            self.finals.put(row)

    def operations(self) -> Appliers:
        """What it does with operations."""
        return {
            records.FilesCompacted: self._files_compacted,
            records.CompactionDissolved: self._compaction_dissolved,
            records.CompactionVerified: self._compaction_verified,
            records.CompactionFinal: self._compaction_final,
            records.CompactionForgotten: self._compaction_forgotten,
            records.FileMoved: self._file_moved,
            records.FileDeleted: self._file_deleted,
            records.FileUndeleted: self.finals.undeleted,
        }

    def _files_compacted(self, op: records.FilesCompacted, ts: int) -> None:
        rows = [self._files[each] for each in op.inputs]
        ranks = [row.rank for row in rows]
        newest = max(rank.first for rank in ranks)
        # Where none had ended when another one came, names alone rank them, and no circle is there.
        is_ladder = all(rank.last >= newest and not rank.below for rank in ranks)
        names = [rank.name if is_ladder else None for rank in ranks]
        key = partition_of(op.inputs[0])
        self.restore(
            CompactedRow(
                id=op.id,
                sender=rows[0].sender,
                authors=tuple(sorted({row.author for row in rows})),
                sg=key.sg,
                vsg=key.vsg,
                partition=key.partition,
                packed=packed_names(op.inputs),
                count=len(rows),
                outputs=tuple(map(self._output, op.outputs)),
                top=_highest(names),
                newest_look=newest,
                oldest_closed=min(row.closed for row in rows),
                created=ts,
                changed=ts,
            )
        )

    def _output(self, made: records.CompactionOutput) -> CompactedOutput:
        return CompactedOutput(
            physical=made.physical,
            size=made.size,
            md5=made.md5,
            version=made.version,
            devices=self._devices.pack(made.devices, made.first, made.last),
            first=made.first,
            last=made.last,
            series=made.series,
            points=made.points,
            data_dir=made.data_dir,
        )

    def _file_moved(self, op: records.FileMoved, ts: int) -> None:
        row = self.of_output(op.physical)
        if row is None:
            return  # it is a file
        outputs = tuple(
            msgspec.structs.replace(each, data_dir=op.data_dir)
            if each.physical == op.physical
            else each
            for each in row.outputs
        )
        self.rows[row.id] = msgspec.structs.replace(row, outputs=outputs)
        self._outputs |= {each.physical: each for each in outputs}

    def _compaction_verified(self, op: records.CompactionVerified, ts: int) -> None:
        row = self.rows[op.id]
        self.rows[op.id] = msgspec.structs.replace(row, verified=ts, verifier=op.by, changed=ts)

    def _hold_no_more(self, row: CompactedRow) -> None:
        del self._members[row.id]
        _take_out(self._holding, row.key, row.id)
        _take_out(self._of_sender, row.sender, row.id)
        self._reaches.pop(row.sender, None)

    def _compaction_final(self, op: records.CompactionFinal, ts: int) -> None:
        row = self.rows[op.id]
        self._hold_no_more(row)
        for each in row.outputs:
            del self._outputs[each.physical]
        became = tuple(each.physical for each in op.outputs)
        leaves, contents = packed_leaves(self._leaves_of(row, became))
        self.restore(
            msgspec.structs.replace(
                row,
                outputs=(),
                dissolved=row.created,
                reason="final",
                final=ts,
                became=became,
                leaves=leaves,
                contents=contents,
                lowest_look=min(map(self._lowest_look_of, row.inputs)),
                news=max(self.finals.news_of(self._files[each]) for each in row.inputs),
                changed=ts,
            )
        )

    def _lowest_look_of(self, physical: str) -> int:
        """The first look that had a file, or what it was merged of before."""
        inner = self.finals.maker(physical)
        return self._files[physical].rank.first if inner is None else inner.lowest_look

    def _leaves_of(self, row: CompactedRow, became: Sequence[str]) -> Iterator[MergedLeaf]:
        """What outputs are made of; of what was merged before, what that is made of."""
        found: dict[tuple[str, str], MergedLeaf] = {}
        for each in row.inputs:
            inner, file = self.finals.maker(each), self._files[each]
            given = _that_give(row, file)
            into = sum(1 << place for place, name in enumerate(became) if name in given) or -1
            if inner is None:
                tail = file.tail if file.points else ""
                leaves = [MergedLeaf(file.md5, path, tail, into) for path in file.paths]
            else:
                bit = 1 << inner.became.index(each)
                leaves = [
                    leaf._replace(into=into) for leaf in inner.merged_leaves if leaf.into & bit
                ]
            for leaf in leaves:
                known = found.get((leaf.md5, leaf.path), leaf)
                found[leaf.md5, leaf.path] = leaf._replace(into=leaf.into | known.into)
        return iter(found.values())

    def _file_deleted(self, op: records.FileDeleted, ts: int) -> None:
        if op.reason in BY_OPERATORS:
            self.finals.deleted_by_operator(op.physical, ts)

    def _compaction_dissolved(self, op: records.CompactionDissolved, ts: int) -> None:
        row = self.rows[op.id]
        self._hold_no_more(row)
        self.rows[op.id] = msgspec.structs.replace(row, dissolved=ts, reason=op.reason, changed=ts)

    def _compaction_forgotten(self, op: records.CompactionForgotten, ts: int) -> None:
        row = self.rows.pop(op.id)
        for each in row.outputs:
            del self._outputs[each.physical]
        if row.final:
            self.finals.drop(row)


class _Reaches:
    """From when to when the outputs of compactions have points."""

    def __init__(self, rows: Iterable[CompactedRow]) -> None:
        found = [
            (row.id, each.first, each.last)
            for row in rows
            for each in row.outputs
            if each.first is not None
        ]
        self._ids = np.array([ident for ident, _, _ in found], np.int64)
        self._firsts = np.array([first for _, first, _ in found], np.int64)
        self._lasts = np.array([last for _, _, last in found], np.int64)

    def met(self, first: int, last: int) -> list[int]:
        """Ids of those that meet a range, each once."""
        found: list[int] = self._ids[(self._firsts <= last) & (self._lasts >= first)].tolist()
        return list(dict.fromkeys(found))


def _that_give(row: CompactedRow, file: FileRow) -> tuple[str, ...]:
    """The outputs that may have points of an input; who asks is told of one too many at worst."""
    mine = file.devices.parts()[0]
    devices = frozenset(mine)
    return tuple(
        each.physical
        for each in row.outputs
        if may_give(each, file) and not devices.isdisjoint(each.devices.parts()[0])
    )


def _take_out(table: dict[T, dict[int, None]], key: T, ident: int) -> None:
    del table[key][ident]
    if not table[key]:
        del table[key]


def _highest(names: Iterable[NameRank | None]) -> NameRank | None:
    several: Sequence[NameRank | None] = list(names)
    known = [each for each in several if each is not None]
    return max(known) if len(known) == len(several) else None
