"""What was found of merged files that readers read in place of others, and what becomes of it.

One that is bad is nobody's: its compaction is dissolved, and readers read its inputs. That one is
right is committed with the bytes that were read: it is said of these, and of this compaction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Self

from receiver.load.upkeep.verdicts import kept_reason
from receiver.metadata.model import records
from receiver.metadata.model.errors import GuardFailed, RefusedCommitError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from receiver.metadata.engine import Engine
    from receiver.metadata.state.tables.file_tables.compacted_rows import CompactedRow

__all__ = ["BadMerge", "ProvedMerge", "dissolve_bad", "record_merges"]

_ATTEMPTS = 20


class BadMerge(NamedTuple):
    """A compaction whose outputs are not what readers get of its inputs.

    Attributes:
        ident: of it.
        reason: what was found.
    """

    ident: int
    reason: str


class ProvedMerge(NamedTuple):
    """A compaction whose outputs were found to be what readers get of its inputs.

    Attributes:
        ident: of it.
        outputs: physical path, size and MD5 of each that was read.
    """

    ident: int
    outputs: tuple[tuple[str, int, str], ...]

    @classmethod
    def of(cls, row: CompactedRow) -> Self:
        """A compaction of which these very outputs were read."""
        outputs = tuple((each.physical, each.size, each.md5) for each in row.outputs)
        return cls(row.id, outputs)


def dissolve_bad(engine: Engine, merges: Sequence[BadMerge]) -> int:
    """Dissolve compactions, in one commit; returns how many are read no more, now or before.

    Raises:
        GuardFailed: they were changed all the time by others; once more in a moment.
        TsferryError: the engine takes no commits.
    """
    ended = {each.ident: kept_reason(each.reason) for each in merges}
    for _ in range(_ATTEMPTS):
        with engine.reading() as state:
            compactions = state.compacted_table.rows
            ops = [
                records.CompactionDissolved(ident, reason)
                for ident, reason in ended.items()
                if (known := compactions.get(ident)) is not None and not known.dissolved
            ]
        if ops:
            try:
                engine.commit(ops)
            except RefusedCommitError:  # one was dissolved meanwhile: look again
                continue
        return len(ended)
    raise GuardFailed(f"compactions were changed {_ATTEMPTS} times; deliver this again in a moment")


def record_merges(
    engine: Engine, merges: Sequence[ProvedMerge], *, by: records.MergeVerifier
) -> int:
    """Commit that compactions give what their inputs give; returns of how many that is so now.

    What was dissolved meanwhile, is final by now, or has other merged files than were read, is left
    out: nothing is known of that.

    Raises:
        GuardFailed: they were changed all the time by others; once more in a moment.
        TsferryError: the engine takes no commits.
    """
    read = {each.ident: each for each in merges}
    for _ in range(_ATTEMPTS):
        with engine.reading() as state:
            compactions = state.compacted_table.rows
            known = [
                each
                for ident, each in read.items()
                if (row := compactions.get(ident)) is not None
                and not row.dissolved
                and each == ProvedMerge.of(row)
            ]
        ops = [
            records.CompactionVerified(
                each.ident, [records.VerifiedOutput(*output) for output in each.outputs], by
            )
            for each in known
        ]
        if ops:
            try:
                engine.commit(ops)
            except RefusedCommitError:  # one was dissolved meanwhile: look again
                continue
        return len(ops)
    raise GuardFailed(f"compactions were changed {_ATTEMPTS} times; deliver this again in a moment")
