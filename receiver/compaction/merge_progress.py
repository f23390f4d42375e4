"""How far merging is, and what became of the wish to have a partition merged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from receiver.metadata.state.work_rows import OPEN_WORK

if TYPE_CHECKING:
    from receiver.metadata.engine import Engine
    from receiver.metadata.state.tables.file_tables.retired import PartitionKey

__all__ = ["MERGE", "CompactAnswer", "MergeProgress", "merge_progress"]

MERGE: Final = "merge"
"""Kind of the work."""


class MergeProgress(NamedTuple):
    """How far it is.

    Attributes:
        compactions: that readers read.
        inputs: files that these stand for.
        outputs: files that are read in their place.
        output_bytes: of those.
        last: the commit of the newest, 0 for none.
        did: what the newest did.
        waiting: work that waits or runs.
        problem: why something is not merged, None if nothing is in the way.
        final: files that took the place of what they were made of for good.
        final_bytes: of those.
        final_inputs: files that were merged into these, merged ones too.
    """

    compactions: int = 0
    inputs: int = 0
    outputs: int = 0
    output_bytes: int = 0
    last: int = 0
    did: str = ""
    waiting: int = 0
    problem: str | None = None
    final: int = 0
    final_bytes: int = 0
    final_inputs: int = 0


def merge_progress(engine: Engine) -> MergeProgress:
    """How far it is, as far as an engine knows."""
    with engine.reading() as state:
        rows = list(state.compacted_table.holding())
        work = [row for row in state.work_table.rows.values() if row.kind == MERGE]
        waiting = sum(row.state in OPEN_WORK for row in work)
        finals = [
            (row, [file for each in row.became if (file := state.files.get(each)) is not None])
            for row in state.compacted_table.finals.all()
        ]
    last = max((row.created for row in rows), default=0)
    seen = [(row, [each for each in files if each.visible]) for row, files in finals]
    return MergeProgress(
        compactions=len(rows),
        inputs=sum(row.count for row in rows),
        outputs=sum(len(row.outputs) for row in rows),
        output_bytes=sum(each.size for row in rows for each in row.outputs),
        last=last,
        did=next((row.reason for row in work if row.changed == last), ""),
        waiting=waiting,
        final=sum(len(files) for _, files in seen),
        final_bytes=sum(each.size for _, files in seen for each in files),
        final_inputs=sum(row.count for row, files in seen if files),
    )


class CompactAnswer(NamedTuple):
    """What became of the wish to merge a partition.

    Attributes:
        key: of the partition.
        files: that would be merged now.
        work: id of the work; 0 if there is none.
        reason: why not.
    """

    key: PartitionKey
    files: int = 0
    work: int = 0
    reason: str = ""
