"""Files merged for those who read them: what an operator asks for, and how far it is."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from common.durable import free_bytes
from common.errors import NotFoundError
from receiver.background.work_queue import WorkQueue
from receiver.compaction.compactor import Compactor
from receiver.compaction.merge_progress import merge_progress
from receiver.compaction.merged_upkeep import MergedUpkeep
from receiver.datadirs.disks import Disks
from receiver.open_engine import open_engine
from receiver.operator.directories import RunningReceiver
from receiver.operator.views.compact_views import (
    CompactedPartition,
    CompactView,
    KeptBackPartition,
    MergeTotals,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from receiver.compaction.merge_progress import CompactAnswer
    from receiver.config import ReceiverConfig
    from receiver.operator.directories import ReceiverDirectories

__all__ = ["compact_files", "compact_stopped", "merge_totals"]

_MOST_SAID: Final = 100
"""Partitions that are named of those whose merges are not final."""


def compact_files(there: RunningReceiver, path: str, partition: str | None) -> CompactView:
    """Have a running server merge what can be merged of storage groups.

    Args:
        there: the server.
        path: of a storage group, or of what several lie below.
        partition: number of one partition; all if left out.

    Raises:
        NotFoundError: there is no such partition.
    """
    return _view(there.compactor.compact(path, partition), path)


def compact_stopped(config: ReceiverConfig, path: str, partition: str | None) -> CompactView:
    """The same where no server runs: it is done when this returns.

    What is retired and may yet be proved to be given by others is left alone.

    Raises:
        NotFoundError: there is no such partition.
        LockedError: a server runs.
        UsageError: files cannot be decoded here.
    """
    with open_engine(config) as engine, Disks.open(config, engine) as disks:
        compactor = Compactor.configured(
            config,
            engine,
            disks,
            WorkQueue(engine),
            is_busy=lambda: False,
            room=lambda: free_bytes(disks.roomiest().path) - 2 * config.limits.min_free_bytes,
            awaits_proof=lambda _, __: config.proofs.enabled,
            by_itself=False,
        )
        MergedUpkeep(
            engine, disks, keep_deleted=config.load.keep_deleted, is_pressed=lambda: False
        ).recover()
        try:
            view = _view(compactor.compact(path, partition), path)
            compactor.run_once()
            problem = compactor.progress().problem
        finally:
            compactor.close()
    return CompactView(partitions=view.partitions, done=True, problem=problem)


def merge_totals(there: ReceiverDirectories) -> MergeTotals:
    """How far it is."""
    if isinstance(there, RunningReceiver):
        now = there.compactor.progress()
    else:
        now = merge_progress(there.engine)
    with there.engine.reading() as state:
        unverified = sum(not row.verified for row in state.compacted_table.holding())
    kept_back = _kept_back(there) if isinstance(there, RunningReceiver) else []
    return MergeTotals(
        enabled=there.config.merge.enabled,
        compactions=now.compactions,
        inputs=now.inputs,
        outputs=now.outputs,
        output_bytes=now.output_bytes,
        last=now.last,
        last_at=there.engine.times.seconds(now.last) if now.last else None,
        did=now.did,
        waiting=now.waiting,
        problem=now.problem,
        final=now.final,
        final_bytes=now.final_bytes,
        final_inputs=now.final_inputs,
        kept_back=next(map(_kept_back_text, kept_back), None),
        kept_back_count=sum(each.merges for each in kept_back),
        kept_back_partitions=tuple(kept_back[:_MOST_SAID]),
        unverified=unverified,
    )


def _kept_back(there: RunningReceiver) -> list[KeptBackPartition]:
    """Merges that are old enough to be final and are not, by partition and reason."""
    reasons = dict(there.final_merges.kept_back)
    with there.engine.reading() as state:
        rows = {ident: state.compacted_table.rows.get(ident) for ident in reasons}
    counts = Counter((row.key, reasons[ident]) for ident, row in rows.items() if row)
    return [
        KeptBackPartition(
            storage_group=key.sg,
            virtual_group=key.vsg,
            partition=key.partition,
            merges=count,
            reason=reason,
        )
        for (key, reason), count in sorted(counts.items())
    ]


def _kept_back_text(each: KeptBackPartition) -> str:
    return f"{each.storage_group}/{each.virtual_group}/{each.partition}: {each.reason}"


def _view(answers: Sequence[CompactAnswer], path: str) -> CompactView:
    if not answers:
        raise NotFoundError(
            f"there are no files of storage group {path[:200]!a}, or below it; `tables` has their "
            "names"
        )
    return CompactView(
        partitions=[
            CompactedPartition(
                storage_group=each.key.sg,
                virtual_group=each.key.vsg,
                partition=each.key.partition,
                files=each.files,
                work=each.work,
                reason=each.reason,
            )
            for each in answers
        ]
    )
