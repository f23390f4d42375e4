"""What operators are told of merged files.

Times are seconds since the epoch, except those that are called commits, which are commit
timestamps (milliseconds << 18 | counter).
"""

from __future__ import annotations

from common.wire import Struct
from common.wire.base import CommitTs

__all__ = [
    "CompactView",
    "CompactedPartition",
    "KeptBackPartition",
    "MergeTotals",
]


class KeptBackPartition(Struct, frozen=True, kw_only=True):
    """Merges of a partition that are old enough to be final, and are not for one reason.

    Attributes:
        storage_group: of the partition.
        virtual_group: of it.
        partition: its number.
        merges: how many.
        reason: why not.
    """

    storage_group: str
    virtual_group: str
    partition: str
    merges: int
    reason: str


class MergeTotals(Struct, frozen=True, kw_only=True):
    """Files that are merged for those who read them.

    Attributes:
        enabled: whether the server merges by itself.
        compactions: that readers read.
        inputs: files that these stand for.
        outputs: files that are read in their place.
        output_bytes: of those.
        last: the commit of the newest, 0 for none.
        last_at: when that was, by what is known of the clock.
        did: what that one did: files, bytes and points before and after, and how long it took.
        waiting: merges that wait or run.
        problem: why something is not merged, None if nothing is in the way.
        final: merged files that took the place of what they were made of for good.
        final_bytes: of those.
        final_inputs: files that were merged into these.
        kept_back: a merge that is old enough to be final, and why it is not; None if there is none.
        kept_back_count: how many such there are, as of the last look.
        kept_back_partitions: where they are, and why; the first 100 in order of their names.
        unverified: merges that readers read and that nobody has compared yet, but for who merged.
    """

    enabled: bool = False
    compactions: int = 0
    inputs: int = 0
    outputs: int = 0
    output_bytes: int = 0
    last: CommitTs = 0
    last_at: float | None = None
    did: str = ""
    waiting: int = 0
    problem: str | None = None
    final: int = 0
    final_bytes: int = 0
    final_inputs: int = 0
    kept_back: str | None = None
    kept_back_count: int = 0
    kept_back_partitions: tuple[KeptBackPartition, ...] = ()
    unverified: int = 0


class CompactedPartition(Struct, frozen=True, kw_only=True):
    """What became of the wish to have a partition merged.

    Attributes:
        storage_group: of the partition.
        virtual_group: of it.
        partition: its number.
        files: that are to be merged.
        work: id of the task; 0 if there is none.
        reason: why not.
    """

    storage_group: str
    virtual_group: str
    partition: str
    files: int = 0
    work: int = 0
    reason: str = ""


class CompactView(Struct, frozen=True, kw_only=True):
    """What became of the wish to have files merged.

    Attributes:
        partitions: in their order.
        done: whether it is done; a server does it behind the scenes.
        problem: why something was not merged, as far as it is done.
    """

    partitions: list[CompactedPartition]
    done: bool = False
    problem: str | None = None
