"""What a load at the centre would come to: its files are read where they lie, and compared."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from common.config.shared_rules import PER_MILLISECOND
from common.console.step_progress import stepping
from common.wire import Result
from receiver.metadata.model.records import FileOutcome
from receiver.operator.centre.centre_files import content_of, looked_at, size_of
from receiver.operator.centre.load_judge import all_refused
from receiver.row_checks.check_process import CheckedRows, RowChecks
from receiver.transfer.begun.look_numbers import latest_look

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from receiver.config import ReceiverConfig
    from receiver.load.deciding.known_files.candidates import Candidate
    from receiver.load.folder.current_task import TaskRecord
    from receiver.metadata.engine import Engine
    from receiver.operator.centre.centre_files import CentreFile
    from receiver.operator.centre.centre_runs import LoadRun
    from receiver.operator.centre.load_judge import LoadJudge

__all__ = ["CentreLooks", "LookedFiles"]

_COMPARED: Final = "waiting for another comparison"


class _Broken(NamedTuple):
    """A file with a row that does not pass: its path, the device, and why."""

    path: str
    device: str | None
    reason: str


@dataclass
class LookedFiles:
    """Files as they were read where they lie.

    Attributes:
        files: by the path that each is loaded under, without copies within the load.
        outcomes: of those copies.
        sources: where each lies, in their order.
        checked: paths of those whose rows were put to the constraints.
        broken: the first of these whose rows do not pass.
    """

    files: dict[str, tuple[CentreFile, Candidate]] = field(default_factory=dict)
    outcomes: dict[str, FileOutcome] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    checked: set[str] = field(default_factory=set)
    broken: _Broken | None = None

    def size(self, path: str) -> int:
        """Bytes of a file; 0 of a copy within the load."""
        found = self.files.get(path)
        return 0 if found is None else found[1].staged.size


class CentreLooks:
    """Looks at the files of loads; any thread may call."""

    def __init__(
        self,
        config: ReceiverConfig,
        engine: Engine,
        judge: LoadJudge,
        *,
        clock: Callable[[], float],
    ) -> None:
        self._engine = engine
        self._judge = judge
        self._rows = RowChecks(
            config.load.constraints,
            memory=config.proofs.memory,
            seconds=config.load.constraint_time,
        )
        self._interval = config.partition_interval_ms * PER_MILLISECOND[config.time_unit]
        self._clock = clock
        self._comparing = threading.Lock()
        """A comparison takes `proofs.memory`, so there is one at a time."""

    def read(self, run: LoadRun, files: Sequence[CentreFile]) -> LookedFiles:
        """Read files where they lie, and put the rows of those that are new to the constraints.

        Raises:
            NotATsFileError: a file is none, or not closed.
            UsageError: as the layout has it.
            ReadOnlyError, ConflictError: as `LoadRun.go_on`.
        """
        looked = LookedFiles()
        seen: dict[tuple[str, str], str] = {}
        for number, file in enumerate(stepping("reading files", files, size_of, run.step.told)):
            run.go_on()
            candidate = looked_at(file, run.task, number, interval=self._interval, at=self._clock())
            path, content = candidate.path.text, content_of(candidate)
            looked.sources[path] = str(file.source)
            if content in seen:
                why = f"as {seen[content]}"
                looked.outcomes[path] = FileOutcome(path, Result.ALREADY, reason=why)
            else:
                seen[content] = str(file.source)
                looked.files[path] = file, candidate
        self._check_rows(run, looked, self._unknown(looked))
        return looked

    def judged(
        self, run: LoadRun, record: TaskRecord, looked: LookedFiles, *, among_new: bool
    ) -> tuple[TaskRecord, dict[str, FileOutcome]]:
        """What would become of files by what is committed now; and the record with that.

        Args:
            run: the load.
            record: of its task.
            looked: the files.
            among_new: whether they are compared with each other, too.

        Raises:
            ReadOnlyError, ConflictError: as `LoadRun.go_on`.
        """
        run.wait_for(lambda: self._comparing.acquire(blocking=False), _COMPARED)
        try:
            run.step.begin("comparing with what is loaded")
            record = msgspec.structs.replace(record, look=latest_look(self._engine))
            found = self._judge.outcomes(
                record, looked.files, among_new=among_new, stopped=lambda: run.is_stopped
            )
        finally:
            self._comparing.release()
        run.go_on()
        record, outcomes = found
        fresh = [path for path, each in outcomes.items() if each.result is not Result.ALREADY]
        self._check_rows(run, looked, fresh)
        bad = looked.broken
        if bad is not None and bad.path in fresh:
            outcomes |= all_refused(outcomes, bad.path, bad.device, bad.reason)
        return record, outcomes

    def _unknown(self, looked: LookedFiles) -> list[str]:
        """Paths of files whose content is nowhere here: others may be left out in the end."""
        if not self._rows.are_any:
            return []
        with self._engine.reading() as state:
            return [
                path
                for path, (_, each) in looked.files.items()
                if not any(state.file_table.of_tail(each.staged.tail))
            ]

    def _check_rows(self, run: LoadRun, looked: LookedFiles, paths: Iterable[str]) -> None:
        """Put the rows of files to the constraints, if there are any and that was not done."""
        paths = list(paths)
        left = [looked.files[path] for path in paths if path not in looked.checked]
        bad = looked.broken
        if not left or not self._rows.are_any or (bad is not None and bad.path in paths):
            return  # one that is bad is enough, unless it is left out

        def each() -> Iterator[CheckedRows]:
            step = stepping("checking rows", left, lambda one: one[1].staged.size, run.step.told)
            for file, candidate in step:
                path = candidate.path
                looked.checked.add(path.text)
                yield CheckedRows(str(file.source), path.text, path.sg)

        found = self._rows.first_broken(each(), lambda: run.is_stopped)
        run.go_on()
        if found is not None:
            looked.broken = _Broken(found[0].name, found[2], found[1])
