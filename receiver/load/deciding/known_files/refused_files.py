"""What a task enters into the quarantine of its sender, and what it clears there.

Refused files are named there for an operator; what is loaded, gone, or has other content by now is
named no more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from common.wire import Result
from receiver.metadata.commit.guards import Guard
from receiver.metadata.model import records

if TYPE_CHECKING:
    from collections.abc import Mapping

    from receiver.load.deciding.known_files.candidates import Candidate, Change
    from receiver.load.folder.current_task import Planned
    from receiver.load.folder.staged import Verified
    from receiver.metadata.model.records import FileOutcome
    from receiver.metadata.state.state import State

__all__ = ["RefusedFiles"]

_SETTLED = frozenset(
    {Result.LOADED, Result.ALREADY, Result.EXPIRED, Result.DELETED, Result.RETIRED}
)
"""Outcomes after which nothing of a path is refused any more."""


class RefusedFiles:
    """The quarantine entries of one change, which is given all its outcomes before."""

    def __init__(
        self,
        state: State,
        sender: str,
        planned: Mapping[str, Planned],
        candidates: Mapping[str, Candidate],
        change: Change,
    ) -> None:
        """Begin with what is committed.

        Args:
            state: committed.
            sender: whose.
            planned: what was planned in the task, by path.
            candidates: the verified files of its manifest, by path.
            change: that its operations go to.
        """
        self._state = state
        self._sender = sender
        self._planned = planned
        self._candidates = candidates
        self._change = change

    def enter(self) -> None:
        """Enter what was refused; clear what is loaded, gone, or has other content by now."""
        for path, outcome in list(self._change.outcomes.items()):
            entry = self._entry(path, outcome)
            if entry is not None:
                self._put(entry)
            elif outcome.result in _SETTLED:
                self._clear(path, keep=None)
        for planned in self._planned.values():
            if planned.path in self._change.outcomes or planned.refused is not Result.CONFLICT:
                continue
            self._put(
                records.QuarantinePut(
                    sender=self._sender,
                    path=planned.path,
                    digest=planned.tail,
                    size=planned.size,
                    hold=False,
                    reason=planned.reason or "conflict",
                    device=planned.device,
                )
            )

    def _entry(self, path: str, outcome: FileOutcome) -> records.QuarantinePut | None:
        candidate = self._candidates.get(path)
        if outcome.result not in (Result.CONFLICT, Result.REFUSED, Result.QUARANTINED):
            return None
        planned = self._planned.get(path)
        if candidate is None and planned is None:
            return None
        found: Verified | Planned | None = candidate.staged if candidate else planned
        assert found is not None
        return records.QuarantinePut(
            sender=self._sender,
            path=path,
            digest=found.tail,
            size=found.size,
            hold=outcome.hold,
            reason=outcome.reason or str(outcome.result),
            device=outcome.device,
        )

    def _put(self, entry: records.QuarantinePut) -> None:
        known = self._state.quarantine.get((entry.sender, entry.path, entry.digest))
        if known is not None and known.hold:
            return  # the operator's word stands
        self._clear(entry.path, keep=entry.digest)
        if known is None or (known.reason, known.device) != (entry.reason, entry.device):
            self._change.ops.append(entry)

    def _clear(self, path: str, *, keep: str | None) -> None:
        for row in self._state.quarantine_table.at_path(self._sender, path):
            if row.digest != keep:
                key = (row.sender, row.path, row.digest)
                self._change.guards.append(Guard("quarantine", key, row.changed))
                self._change.ops.append(records.QuarantineDrop(*key))
                if row.kept is not None:
                    self._change.kept_gone.append(row.kept)
