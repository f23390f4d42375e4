"""What becomes of the files of a load at the centre: decided as for senders, all of it or nothing.

A dry run and the load ask the same; the loader decides once more on what is committed by then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from common.errors import TsferryError
from common.wire import Result
from receiver.datadirs.disks import whole_in
from receiver.load.deciding.change import decide_change
from receiver.load.deciding.decision_pauses import pauses
from receiver.load.deciding.known_files.centre_loads import whole_or_nothing
from receiver.load.schema.registering import Registering
from receiver.metadata.commit.draft import Draft
from receiver.metadata.model import records
from receiver.metadata.model.centre_source import CENTRE
from receiver.metadata.model.ranks import LOWEST_LOOK
from receiver.metadata.model.records import FileOutcome
from receiver.metadata.state.placed_files import parts_elsewhere
from receiver.operator.centre.centre_entries import entry_of
from receiver.operator.centre.point_overlaps import PointOverlaps
from receiver.operator.centre.table_tags import TableTags

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from receiver.config import ReceiverConfig
    from receiver.load.deciding.known_files.candidates import Candidate
    from receiver.load.folder.current_task import TaskRecord
    from receiver.load.service import LoadService
    from receiver.metadata.engine import Engine
    from receiver.operator.centre.centre_files import CentreFile
    from receiver.shared_points.compare_process import ComparesFiles

__all__ = ["LoadJudge", "all_refused"]

_ALREADY: Final = Result.ALREADY
_GOOD: Final = (Result.LOADED, Result.ALREADY)


class LoadJudge:
    """Judges files on what is committed now; nothing is changed."""

    def __init__(
        self, config: ReceiverConfig, engine: Engine, load: LoadService, compares: ComparesFiles
    ) -> None:
        """Prepare.

        Args:
            config: of the receiver.
            engine: its metadata.
            load: its loader.
            compares: points of files.
        """
        self._config, self._engine, self._load = config, engine, load
        self._points = PointOverlaps(engine, load.disks, compares)
        self._tags = TableTags(engine, load.disks)

    def outcomes(
        self,
        record: TaskRecord,
        looked: Mapping[str, tuple[CentreFile, Candidate]],
        *,
        among_new: bool,
        stopped: Callable[[], bool],
    ) -> tuple[TaskRecord, dict[str, FileOutcome]]:
        """What would become of files, where those in the same times were compared by points.

        Args:
            record: of the load.
            looked: its files, by path.
            among_new: whether a point may not be in two of them either.
            stopped: asked every half second, whether to stop.

        Returns:
            the record, with what was compared, and the outcomes.
        """
        mandate = record.centre
        assert mandate is not None
        outcomes = self._decided(record, [each for _, each in looked.values()])
        fresh = [each for path, each in looked.items() if outcomes[path].result is not _ALREADY]
        other = self._tags.contradiction(fresh)
        if other is not None:
            return record, outcomes | all_refused(outcomes, other.path, None, other.reason)
        if not (among_new or any(outcomes[each.path.text].device for _, each in fresh)):
            return record, outcomes
        shared = self._points.find(fresh, mandate, among_new=among_new, stopped=stopped)
        if shared.compared:
            mandate = msgspec.structs.replace(mandate, compared=list(shared.compared))
            record = msgspec.structs.replace(record, centre=mandate)
            outcomes = self._decided(record, [each for _, each in looked.values()])
        elif shared.path:
            outcomes |= all_refused(outcomes, shared.path, shared.device, shared.reason)
        elif shared.unread:
            outcomes |= {
                path: msgspec.structs.replace(each, reason=f"{each.reason} ({shared.unread})")
                for path, each in outcomes.items()
                if each.result is Result.REFUSED and each.device is not None
            }
        return record, outcomes

    def first_look(self, record: TaskRecord) -> int:
        """The look from which on files of a load count: its own, or one below all that is there."""
        if record.centre is None or not record.centre.is_below:
            return record.look
        with self._engine.reading() as state:
            found = (row.first_look for row in state.files.of({record.sender}))
            lowest = min((each for each in found if 0 < each < LOWEST_LOOK), default=LOWEST_LOOK)
        return max(1, lowest - 1)

    def _decided(
        self, record: TaskRecord, candidates: Sequence[Candidate]
    ) -> dict[str, FileOutcome]:
        """What would become of files by what is committed now; nothing is changed.

        Others may commit while very many are looked at. What is refused by that, or goes wrong, is
        looked at once more while the state stands still: it may have been of no single moment.
        """
        seen = self._engine.newest_commit
        try:
            found = self._looked_at(record, candidates, commits=True)
            if all(each.result in _GOOD for each in found.values()):
                return found
        except (TsferryError, LookupError):
            if self._engine.newest_commit == seen:
                raise
        else:
            if self._engine.newest_commit == seen:
                return found
        return self._looked_at(record, candidates, commits=False)

    def _looked_at(
        self, record: TaskRecord, candidates: Sequence[Candidate], *, commits: bool
    ) -> dict[str, FileOutcome]:
        first = self.first_look(record)
        entries = [entry_of(each, first, record.look) for each in candidates]
        record = msgspec.structs.replace(record, manifest=entries)
        engine, ttl = self._engine, self._load.ttl
        moment, trees = ttl.moment(), self._load.disks.standing()
        with engine.reading() as state:

            def registering() -> Registering:
                made = Registering(
                    Draft(state),
                    level=engine.options.storage_group_level,
                    creates=engine.options.auto_create,
                )
                if record.sender not in state.senders:
                    made.play([records.SenderSeen(record.sender, CENTRE, CENTRE)])
                return made

            change = decide_change(
                state,
                record,
                {},
                {each.path.text: each for each in candidates},
                {},
                registering=registering,
                stands=lambda row: whole_in(trees, row, parts_elsewhere(state, row)),
                expiry=ttl.expiry(state, moment),
                deletes=self._config.deletes,
                between=pauses(engine.reading(), commits=commits),
            )
            between = pauses(engine.reading(), commits=commits)
            return whole_or_nothing(state, record, change, between).outcomes


def all_refused(
    outcomes: Mapping[str, FileOutcome], bad: str, device: str | None, reason: str
) -> dict[str, FileOutcome]:
    """Those of a load of which one file may not be loaded.

    Args:
        outcomes: of its files, by path.
        bad: path of that one.
        device: that the reason names.
        reason: why not.
    """
    others = f"nothing of this load is taken: {bad}: {reason}"
    return {
        path: FileOutcome(
            path,
            Result.REFUSED,
            device=device if path == bad else None,
            reason=reason if path == bad else others,
        )
        for path, each in outcomes.items()
        if each.result is not _ALREADY
    }
