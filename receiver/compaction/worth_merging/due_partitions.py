"""Which partitions are due to be merged, and what was learnt of each since something came to it.

After a start every partition is gone over once, from then on those that a commit has touched. What
could not be merged is remembered in memory, and tried again when something comes to its partition,
and after a start.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from common.config.shared_rules import PER_MILLISECOND
from receiver.compaction.merge_progress import MERGE
from receiver.compaction.worth_merging.expiring import is_expiring
from receiver.compaction.worth_merging.merge_due import files_of
from receiver.compaction.worth_merging.touched_partitions import TouchedPartitions
from receiver.metadata.model import records
from receiver.metadata.state.table_rows import FileState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from receiver.compaction.worth_merging.choosing import MergeChoice
    from receiver.compaction.worth_merging.merge_due import MergeRules, PartitionFiles
    from receiver.metadata.engine import Engine
    from receiver.metadata.state.tables.file_tables.retired import PartitionKey

__all__ = ["DuePartitions", "LearntOfPartition"]

_MOST_DEATHS: Final = 20
"""Of the process over one partition, until that is left alone."""


@dataclass
class LearntOfPartition:
    """What was learnt of a partition since something came to it.

    Attributes:
        refused: marks of what is not to be merged.
        died: marks of what the process died over once.
        deaths: of the process over it.
        problem: of the last that failed.
        not_before: nothing of it is tried, by the monotonic clock.
        quiet_at: it is not merged by itself before, in seconds since the epoch.
    """

    refused: set[bytes] = field(default_factory=set)
    died: set[bytes] = field(default_factory=set)
    deaths: int = 0
    problem: str = ""
    not_before: float = 0.0
    quiet_at: float = 0.0


class DuePartitions:
    """See the module; for the thread that merges, but for `met` and `add`.

    Attributes:
        rules: what is left alone.
    """

    def __init__(self, engine: Engine, rules: MergeRules, monotonic: Callable[[], float]) -> None:
        """Begin with none; the first `follow` finds all.

        Args:
            engine: the metadata engine.
            rules: what is left alone.
            monotonic: seconds.
        """
        self.rules = rules
        self._engine = engine
        self._monotonic = monotonic
        self._touched = TouchedPartitions(engine)
        self._learnt: dict[PartitionKey, LearntOfPartition] = {}
        self._met: set[PartitionKey] = set()

    def waiting(self) -> list[PartitionKey]:
        """Those that are to be looked at, the longest waiting first."""
        return self._touched.all()

    def add(self, key: PartitionKey) -> None:
        """Have one looked at."""
        self._touched.add(key)

    def met(self, key: PartitionKey) -> None:
        """Have one looked at before others: a reader met many files there."""
        self._met.add(key)
        self._touched.add(key)

    def is_met(self, key: PartitionKey) -> bool:
        """Whether a reader met many files there, since it was looked at."""
        return key in self._met

    def looked_at(self, key: PartitionKey) -> None:
        """What a reader met there is dealt with."""
        self._met.discard(key)

    def below(self, path: str, partition: str | None) -> list[PartitionKey]:
        """Partitions of a storage group, or of what several lie below; None for all of these."""
        self.follow()
        return [
            each
            for each in self._touched.every()
            if f"{each.sg}.".startswith(f"{path}.") and partition in (None, each.partition)
        ]

    def follow(self) -> None:
        """Forget what was learnt of partitions that commits have touched."""
        for key, commit in self._touched.follow().items():
            at = self._engine.times.seconds(commit) if commit else 0.0
            self._learnt[key] = LearntOfPartition(quiet_at=self.rules.quiet_at(key, at))

    def at(self, key: PartitionKey) -> LearntOfPartition:
        """What was learnt of one."""
        return self._learnt.setdefault(key, LearntOfPartition())

    def forget(self, key: PartitionKey) -> None:
        """Try anew what could not be merged."""
        self._learnt[key] = LearntOfPartition()

    def note(self, key: PartitionKey, problem: str) -> LearntOfPartition:
        """Why something of it was not merged."""
        learnt = self.at(key)
        learnt.problem = f"{'/'.join(key)}: {problem}"
        return learnt

    def problem(self) -> str | None:
        """Why something of any was not merged; any thread may ask."""
        return next((each.problem for each in list(self._learnt.values()) if each.problem), None)

    def is_due(self, key: PartitionKey) -> bool:
        """Whether something of it is to be merged by itself now."""
        now = self._engine.clock.cautious()
        learnt = self.at(key)
        if now < learnt.quiet_at or self._monotonic() < learnt.not_before:
            return False
        there = files_of(self._engine, key)
        learnt.quiet_at = self.rules.quiet_at(key, there.touched)
        if now < learnt.quiet_at:
            return False
        is_due = (
            not self._is_cancelled(there)
            and bool(self.choices(there, forced=False))
            and not self._is_expiring(there)
        )
        if not is_due and not self._awaits_proofs(there):
            self._touched.drop(key)
        return is_due

    def choices(self, there: PartitionFiles, *, forced: bool) -> list[MergeChoice]:
        """What of a partition is to be merged, in order; `forced` if an operator asked for it."""
        learnt = self._learnt.get(there.key)
        if learnt is None:
            return there.choices(self.rules, forced=forced)
        if learnt.deaths >= _MOST_DEATHS:
            return []
        return there.choices(self.rules, refused=learnt.refused, forced=forced)

    def first_of(
        self, scope: Iterable[records.WorkPlace], *, forced: bool
    ) -> tuple[PartitionFiles, MergeChoice] | None:
        """What of a scope is to be merged next; None if nothing is."""
        self.follow()
        places = list(scope)
        for key in self._touched.every():
            if any(
                key.sg == each.group and each.partition in ("", key.partition) for each in places
            ):
                there = files_of(self._engine, key)
                choices = self.choices(there, forced=forced)
                if choices:
                    return there, choices[0]
        return None

    def has_changed(self, choice: MergeChoice) -> bool:
        """Whether a file of it is not as it was when it was chosen."""
        with self._engine.reading() as state:
            now = [state.files.get(row.physical) for row in choice.rows]
        return any(
            row is None or row.changed != before.changed
            for row, before in zip(now, choice.rows, strict=True)
        )

    def _awaits_proofs(self, there: PartitionFiles) -> bool:
        """Whether files of it may be superseded yet: that they are not is told by no commit."""
        return any(
            row.state is FileState.RETIRED and self.rules.awaits_proof(there.key, row)
            for row in there.rows
        )

    def _is_expiring(self, there: PartitionFiles) -> bool:
        rules = self.rules
        interval = max(1, rules.partition_interval * PER_MILLISECOND[rules.unit])
        return is_expiring(self._engine, there.rows, rules.unit, interval)

    def _is_cancelled(self, there: PartitionFiles) -> bool:
        """Whether an operator has cancelled merging it since the last file came."""
        place = records.WorkPlace(there.key.sg, there.key.partition)
        with self._engine.reading() as state:
            rows = state.work_table.cancelled()
        return any(
            row.kind == MERGE and row.changed > there.last and place in row.scope for row in rows
        )
