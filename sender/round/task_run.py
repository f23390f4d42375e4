"""One sync task, from `sync start` to the list of loaded files (docs/protocol.md, "A round").

The order is what makes it safe to be cut off anywhere: what is about to be true at the receiver is
in sync.log before; what is on the list of loaded files is committed there before; a link goes only
after its file is on the list. Everything that is sent may be sent again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import closing

import msgspec

from common import crash, wire
from common.errors import DigestError, Transient, TsferryError
from common.names import FilePath
from common.wire import Propagate, Result, TaskState
from sender.kept.loaded_list.snapshot import SnapshotFile
from sender.kept.receiver_state import ReceiverState
from sender.kept.seen_looks.looks import EdgeLook
from sender.plan.task_plan import TaskPlan
from sender.round.deletion_telling import DeletionTelling
from sender.round.file_source import Source
from sender.round.offering import Offering
from sender.round.recovery import recover
from sender.round.round_words.refusals import Verdicts
from sender.round.round_words.round_report import (
    FileOffset,
    FileReason,
    RoundReport,
    of_held_records,
)
from sender.round.second_look import SecondLook
from sender.round.waiting import wait_until_loaded
from sender.schema.shipping import SchemaShip
from sender.select.entry import Entry
from sender.send.manifest_pages import end_in_pages
from sender.send.remote import Remote
from sender.send.sent_bytes.content import Prepared
from sender.send.sent_bytes.node_sending import NodeSending
from sender.send.sent_bytes.progress import Meter
from sender.send.sent_bytes.proofs import Proofs
from sender.send.sent_bytes.sending import Fate, Sending, SendJob
from sender.send.sent_bytes.upload import ChangedWhileSentError, ReceivedFile
from sender.send.task_calls import TaskCalls

__all__ = ["TaskRun"]

_log = logging.getLogger(__name__)

_SETTLED = frozenset({Result.LOADED, Result.ALREADY, Result.RETIRED, Result.DELETED})
_PATH_BYTES = 1100
"""Of one path in a page of deletions, at most."""


class TaskRun:
    """Carries out one `TaskPlan`."""

    def __init__(
        self,
        remote: Remote,
        kept: ReceiverState,
        check: wire.CheckAnswer,
        look: EdgeLook,
        plan: TaskPlan,
        task: str,
        report: RoundReport,
        meter: Meter,
        *,
        again: SecondLook,
        source: Source,
        schema: SchemaShip | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._remote = remote
        self._kept = kept
        self._check = check
        self._look = look
        self._again = again
        self._source = source
        # Most are made anew each time they are gone through, which is often done of one task.
        self._plan = msgspec.structs.replace(plan, additions=tuple(plan.additions))
        self._task = task
        self._report = report
        self._meter = meter
        self._schema = schema
        self._schema_end: wire.SchemaEnd | None = None
        self._clock = clock
        self._epoch: str | None = None
        self._additions = {each.path: each for each in self._plan.additions}
        self._left_out: set[str] = set()
        self._tells_mode = False
        self._proofs = Proofs(kept.snapshot, check.limits)
        self._verdicts = Verdicts(report, meter.happened)

    def run(self) -> None:
        """Do it all; what was achieved is in the report, whatever is raised.

        Raises:
            BusyError: the receiver is still loading it; the next round learns what came of it.
            StoppedError: told to stop; the next round goes on with it.
            TsferryError: the receiver is out of reach, or refuses.
        """
        try:
            answer = self._start()
            if answer.state is TaskState.OPEN:
                self._verdicts.asked(self._plan.additions)
                self._ship_schema(answer)
                jobs = self._offer(self._take_snapshot())
                self._delete()
                self._telling.tell(self._plan, self._additions)
                self._send([each for each in jobs if each.path not in self._left_out])
                answer = self._end()
            if answer.state is not TaskState.DONE:
                self._meter.step("load")
                answer = wait_until_loaded(self._remote, self._task, clock=self._clock)
            self._conclude(answer)
        finally:
            self._kept.logs.close()
            if self._verdicts.troubles:
                with self._kept.changing_troubles() as troubles:
                    troubles.record(self._verdicts.troubles)

    # -- start -----------------------------------------------------------------------------

    def _start(self) -> wire.TaskAnswer:
        self._kept.logs.begin(self._task, self._plan.homes)
        crash.point("task.begun")
        request = wire.StartRequest(
            engine=self._check.engine,
            epoch=self._kept.memory.now.epoch,
            propagate=Propagate(self._remote.config.propagate_deletes),
            look=self._look.number,
            anew=self._plan.anew,
        )
        answer = self._remote.patiently(lambda: self._remote.client.start_task(self._task, request))
        crash.point("task.started")
        if answer.state is not TaskState.DONE:
            self._kept.note(answer)
            crash.point("task.epoch")
        self._epoch = answer.epoch
        self._offering = Offering(
            self._remote,
            self._kept,
            self._check,
            self._source,
            self._plan,
            self._additions,
            task=self._task,
            epoch=answer.epoch,
            proofs=self._proofs,
            verdicts=self._verdicts,
            clock=self._clock,
        )
        self._telling = DeletionTelling(
            self._remote, self._look, self._source, self._check.limits, self._task, answer.epoch
        )
        self._tells_mode = answer.state is TaskState.OPEN
        return answer

    def _ship_schema(self, answer: wire.TaskAnswer) -> None:
        """Before the files that need it; what goes wrong with it keeps none of them back."""
        if self._schema is not None and self._schema.due:
            self._remote.go_on()
            self._meter.step("schema")
            self._schema_end = self._schema.ship(self._task, self._epoch, answer.schema_staged)

    def _take_snapshot(self) -> Sequence[SnapshotFile]:
        self._meter.step("plan")
        taken = self._kept.snapshot.take(each.file for each in self._plan.additions)
        crash.point("task.snapshot")
        for dropped in taken.dropped:
            self._verdicts.changed(dropped.path, dropped.reason)
        return taken.files

    # -- plan ------------------------------------------------------------------------------

    def _offer(self, taken: Sequence[SnapshotFile]) -> list[SendJob]:
        """Ask what to do with each file; returns what is to be sent."""
        jobs = self._offering.jobs(taken)
        self._hold_deletions()
        if self._plan.bytes_later:
            sent = (job.prepared.addition for job in jobs if job.file)
            later = {each.path for each in sent if not each.replaces}
            self._leave_out(self._plan.without(later))
        return jobs

    def _hold_deletions(self) -> None:
        """What was to take the place of old files is not in the task: these must stay."""
        expired = self._verdicts.expired
        reduced = self._plan.without(expired, settled=True)
        reduced = reduced.without(self._verdicts.lost - expired)
        going = {each.path for each in reduced.deletions}
        culprits = {path.group: path for path in self._verdicts.lost}
        for each in self._plan.deletions:
            if each.path not in going:
                reason = f"waits for {culprits[each.path.group]}, which is not loaded"
                self._report.held.append(FileReason(each.path.text, reason))
        self._leave_out(reduced)

    def _leave_out(self, reduced: TaskPlan) -> None:
        """Go on with less: what is not in the task any more is neither sent nor in its manifest."""
        if reduced == self._plan:
            return
        staying = {each.path for each in reduced.additions}
        for each in self._plan.additions:
            if each.path not in staying:
                self._left_out.add(each.path.text)
                self._offering.whole.pop(each.path.text, None)
        self._plan = reduced

    # -- deletions and files ---------------------------------------------------------------

    def _delete(self) -> None:
        """Name what is gone; before any file, and in sync.log once the receiver has taken it.

        Raises:
            Transient: it was named in an earlier round, and is not proved any more.
        """
        confirmed = self._again.confirmed(self._plan)
        if confirmed != self._plan and self._kept.logs.has_deletions():
            raise Transient(f"task {self._task} told ends that are not certain any more")
        self._leave_out(confirmed)
        paths = self._plan.deleted_paths
        limits = self._check.limits
        size = max(1, min(limits.max_page_items, limits.max_page_bytes // _PATH_BYTES))
        for at in range(0, len(paths), size):
            self._remote.go_on()
            page = paths[at : at + size]
            body = wire.DeletedPage(paths=[path.text for path in page])
            self._remote.patiently(lambda body=body: self._deleted(body))  # type: ignore[misc]
            crash.point("task.deleted.sent")
            self._kept.logs.deleted(page)
        self._kept.logs.sending()
        self._kept.logs.files(FilePath.parse(text) for text in self._offering.whole)

    def _deleted(self, body: wire.DeletedPage) -> wire.DeletedPage:
        self._remote.client.deleted(self._task, self._epoch, body)
        return body

    def _send(self, jobs: Sequence[SendJob]) -> None:
        self._meter.expect(len(jobs), sum(job.prepared.entry.size for job in jobs if job.file))
        self._meter.step("send")
        for job in jobs:
            if job.begin is not None and job.begin.offset:
                self._meter.sent(job.begin.offset)
        remote = self._remote
        calls = TaskCalls(
            remote.client,
            self._task,
            self._epoch,
            remote.tries,
            remote.stop.is_set,
            self._meter.sent,
        )
        sending = Sending(
            calls,
            self._kept.snapshot,
            remote.config.transfer,
            self._check.limits,
            self._meter,
            self._offering.is_whole,
            self._by_nodes(calls),
        )
        try:
            with closing(sending.run(jobs)) as sent:  # it waits for its threads
                for fates in sent:
                    whole = [job for job, fate in fates if self._took(job, fate)]
                    self._kept.logs.files(job.prepared.addition.path for job in whole)
                    crash.point("task.file.recorded")
                    for job in whole:
                        if job.file:
                            self._proofs.add(job.path, job.prepared.snap)
        finally:
            self._remote.client.close()  # the connections of threads that have ended
            if self._remote.nodes is not None:
                self._remote.nodes.close()

    def _by_nodes(self, calls: TaskCalls) -> NodeSending | None:
        nodes = self._remote.nodes
        if nodes is None:
            return None
        nodes.encodings = self._check.limits.encodings
        return NodeSending(calls, nodes, self._offering.plan_anew, self._clock)

    def _took(self, job: SendJob, fate: Fate) -> bool:
        file = job.prepared.addition.file
        if isinstance(fate, ReceivedFile):
            self._report.bytes += fate.sent
            if fate.resumed is not None:
                self._report.resumed.append(FileOffset(job.path, fate.resumed))
            if job.file:
                known = self._kept.md5_known(file)
                if known is not None and known != fate.md5:
                    reason = f"its bytes have MD5 {fate.md5}, not {known}"
                    reason += f"; {self._source.disproved(file)}"
                    self._verdicts.failed(file, TsferryError(reason))
                    return False
                self._source.read_whole(file, fate.md5)
                self._offering.whole[job.path] = (job.prepared, fate.md5)
            return True
        self._offering.whole.pop(job.path, None)
        if isinstance(fate, ChangedWhileSentError):
            reason = str(fate) if str(fate) != job.path else "changed while it was sent"
            self._verdicts.changed(file.path, reason)
        else:
            _log.warning("%s: %s is left: %s", self._remote.name, job.path, fate.message)
            if isinstance(fate, DigestError) and self._kept.md5_known(file) is not None:
                hint = self._source.disproved(file)
                fate = DigestError(f"{fate.message}; {hint}", extra=fate.extra)
            self._verdicts.failed(file, fate)
        return False

    # -- end -------------------------------------------------------------------------------

    def _end(self) -> wire.TaskAnswer:
        """Announce the end, once it is recorded here what exactly was sent."""
        self._remote.go_on()
        self._kept.ledger.sent(
            Entry.of(prepared.addition.file, md5, prepared.span, self._mark(prepared))
            for prepared, md5 in self._offering.whole.values()
            if not self._source.is_ended(prepared.addition.path)
        )
        self._kept.logs.end()
        crash.point("task.ended")
        manifest = [
            wire.ManifestEntry(
                path=path,
                size=prepared.entry.size,
                md5=md5,
                series=prepared.series,
                points=prepared.points,
                proof=self._proofs.of(path),
                first_look=self._look.first(prepared.addition.path),
                closed_look=self._look.closed(prepared.addition.path),
                last_look=self._look.last_of_copy(prepared.addition.file),
                origin=self._source.origin(prepared.addition.path),
            )
            for path, (prepared, md5) in self._offering.whole.items()
        ]
        deleted = self._plan.deleted_paths
        pages, request = end_in_pages(
            manifest,
            [path.text for path in deleted],
            [self._look.last(path) for path in deleted],
            self._source.ends(deleted),
            self._schema_end,
            self._check.limits,
        )
        for page in pages:
            self._remote.go_on()
            self._remote.patiently(lambda page=page: self._page(page))  # type: ignore[misc]
            crash.point("task.page.sent")
        answer = self._remote.patiently(
            lambda: self._remote.client.end_task(self._task, self._epoch, request)
        )
        crash.point("task.end.sent")
        return answer

    def _mark(self, prepared: Prepared) -> tuple[int, int] | None:
        """Of the resource that the receiver has once it has the file."""
        if prepared.entry.path in self._offering.unmarked:
            return None
        return prepared.addition.file.resource_mark

    def _page(self, page: wire.ManifestPage) -> wire.ManifestPage:
        self._remote.client.manifest(self._task, self._epoch, page)
        return page

    def _conclude(self, answer: wire.TaskAnswer) -> None:
        """Fold in what is committed, and nothing else."""
        crash.point("task.loaded")
        kept = self._kept
        recover(kept.ledger, kept.logs, kept.snapshot, kept.dirs, lambda _: answer)
        kept.note(answer)
        if answer.state is TaskState.DONE:
            self._report.held_records = of_held_records(answer.held_records)
        if self._tells_mode and answer.state is TaskState.DONE:
            kept.memory.update(propagate=Propagate(self._remote.config.propagate_deletes))
        told = self._telling.told.items()
        taken = {each: size for each, size in told if each[0] not in answer.untold}
        if taken and answer.state is TaskState.DONE:
            kept.looks.told(taken)
        if self._offering.passed_over and answer.state is TaskState.DONE:
            kept.ledger.refresh(
                msgspec.structs.replace(
                    kept.ledger.entries[each.path], resource_mark=each.resource_mark
                )
                for each in self._offering.passed_over
                if each.path in kept.ledger.entries
            )
        settled = (each.path for each in answer.outcomes if each.result in _SETTLED)
        self._source.note(kept.handed, map(FilePath.parse, settled))
        crash.point("task.noted")
        if self._schema is not None and self._schema_end is not None:
            self._schema.conclude(answer.schema_position)
        self._report.tasks.append(self._task)
        loaded: list[FilePath] = []
        additions = {path.text: addition for path, addition in self._additions.items()}
        for outcome in answer.outcomes:
            addition = additions.get(outcome.path)
            if addition is not None and outcome.result in (Result.LOADED, Result.ALREADY):
                loaded.append(addition.path)
            self._verdicts.committed(outcome, addition, answer.commit or 0)
        with kept.changing_troubles() as troubles:
            troubles.clear(loaded)
