"""One round with one receiver: check, recover, look, plan, and one task after the other."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import msgspec

from common import crash, wire
from common.durable import Tree
from common.errors import NameRefusedError, NotFoundError, TooLargeError, TsferryError
from common.names import FilePath
from common.network.certificates import CertificateFile
from common.system_errors import system_error
from common.wire import History, Propagate
from sender.kept.receiver_file import ReceiverFile
from sender.kept.receiver_state import ReceiverState
from sender.kept.seen_incarnations import remember_incarnation
from sender.kept.seen_looks.looks import EdgeLook, Looks
from sender.kept.takeover import under_way
from sender.kept.troubles import expired_paths
from sender.plan.assurance import remaining
from sender.plan.begun_anew import in_turn
from sender.plan.next_round import Known, NextRound, next_round
from sender.plan.plan import RoundPlan
from sender.plan.plan_options import PlanOptions
from sender.plan.task_plan import TaskPlan
from sender.round.compared_lists.comparing import Compared, compare
from sender.round.compared_lists.freed_news import forget_settled, lacks_mark
from sender.round.compared_lists.list_remaking import ListRemaking, note_held, note_lost
from sender.round.compared_lists.same_centre import claim, take_over
from sender.round.file_source import Source, open_source
from sender.round.recovery import RecoveryReport
from sender.round.rested import Rested, left_at_rest
from sender.round.resuming import LeftOpenTask, Resuming
from sender.round.round_words.report_filling import fill_report, short_summary
from sender.round.round_words.round_report import FileReason, RoundReport, kept_deletions, overdue
from sender.round.waiting import wait_until_loaded
from sender.schema.shipping import SchemaShip, open_schema
from sender.select.entry import Entry
from sender.select.found import Scan
from sender.select.listed_table import with_other_resources
from sender.send.connection.addresses import is_elsewhere
from sender.send.remote import Remote
from sender.send.sent_bytes.progress import Meter

__all__ = ["Round", "RoundOptions"]

_log = logging.getLogger(__name__)


class RoundOptions(msgspec.Struct, frozen=True):
    """What is asked of a round.

    Attributes:
        accept_source: what this node has is all that it should have; until a round has come to
            its end.
        forget: throw the list away first and compare all with the receiver (`resync`).
        schema: send the whole schema again.
        only_recover: stop after the recovery.
        accept_receiver: the centre that answers is the right one, though it was replaced.
    """

    accept_source: bool = False
    forget: bool = False
    schema: bool = False
    only_recover: bool = False
    accept_receiver: bool = False


@dataclass
class Round:
    """A round; the remote's lock is held by the caller.

    Attributes:
        remote: to the receiver.
        options: what is asked.
        meter: hears of progress.
        rested: what the last one left, if no change was told of since; then what this one leaves.
        clock: seconds, for durations.
        rests_at: when the first of the files that wait for their rest will have rested, by the
            clock; None where none waits for that.
        new_id: makes task ids.
    """

    remote: Remote
    options: RoundOptions = field(default_factory=RoundOptions)
    meter: Meter | None = None
    rested: Rested | None = None
    clock: Callable[[], float] = time.monotonic
    new_id: Callable[[], str] = lambda: secrets.token_hex(16)
    rests_at: float | None = field(default=None, init=False)

    def run(self) -> RoundReport:
        """Do it; an error of ours that ends it is in the report, never raised.

        Where another address may have taken the place of the one that was spoken to, it begins anew
        at whichever answers, once: nothing is carried on with one that did not answer the check.
        """
        report = self._once()
        remote = self.remote
        if self._is_begun and remote.addresses.are_several and is_elsewhere(report.error):
            assert report.error is not None
            _log.warning("%s: the round begins anew: %s", remote.name, report.error.message)
            report = self._once().behind(report)
        return report

    def _once(self) -> RoundReport:
        self._is_begun = False
        self._report = RoundReport(self.remote.name)
        self._meter = self.meter or Meter(self.remote.name)
        begin = self.clock()
        with self.remote.sync_tree() as sync:
            memory: ReceiverFile | None = None
            try:
                take_over(self.remote, sync)
                memory = ReceiverFile.open(sync, self.remote.directory)
                self._run(sync, memory)
            except TsferryError as error:
                self._report.error = error
            except OSError as error:
                # A disk that fails, or was unmounted under way: nothing to see in a traceback.
                self._report.error = system_error(error) or TsferryError(
                    f"the file system: {error}"
                )
            finally:
                self._report.seconds = self.clock() - begin
            if memory is None and not under_way(sync, self.remote.directory):
                memory = ReceiverFile.open(sync, self.remote.directory)
            if memory is not None:
                self._remember(memory)
        return self._report

    def _remember(self, memory: ReceiverFile) -> None:
        done = {"accept_source": False} if self._report.error is None else {}
        ended = time.time()
        if self._report.error is not None:
            before = memory.now.failing_since
            self._report.failing_since = ended if before is None else before
        try:
            memory.update(
                last_round=short_summary(self._report, ended),
                failing_since=self._report.failing_since,
                **done,
            )
        except (TsferryError, OSError) as error:
            _log.error("%s: the round cannot be noted for status: %s", self.remote.name, error)

    def _run(self, sync: Tree, memory: ReceiverFile) -> None:
        if memory.problem:
            _log.warning("%s", memory.problem)
        if self.options.accept_source:
            memory.update(accept_source=True)
        rested, self.rested = self.rested, None
        self.remote.prefer(memory.now)
        self._meter.step("check")
        if rested is not None and self._rests(sync, memory, rested):
            self.rested = rested
            return
        looks = Looks.open(sync, self.remote.directory)
        if looks.problem:
            _log.warning("looks.state is unusable, all is seen anew: %s", looks.problem)
        check = self._check(memory, looks.now.last)
        claim(self.remote, sync, memory, check.engine)
        source = open_source(self.remote, memory, remember=True)
        with source.dirs:
            kept = ReceiverState.open(
                sync,
                source.dirs,
                self.remote.directory,
                source.facts(),
                md5_known=source.md5_known,
                looks=looks,
            )
            kept.memory = memory
            self._with_kept(kept, source, check)

    def _with_kept(self, kept: ReceiverState, source: Source, check: wire.CheckAnswer) -> None:
        if self.options.forget:
            kept.ledger.forget()
        resumable, recovered = Resuming(
            self.remote, kept, check, self._report, self._meter, clock=self.clock
        ).run()
        if self.options.only_recover:
            return
        if check.anew:
            kept.looks.begin_anew()
        look = self._look(kept, source, check, recovered)
        known = Known.of(
            kept,
            look,
            last_copies=recovered.last_copies,
            check=check,
            source_lost=source.lost,
            source_doubt=source.doubt,
        )
        compared = self._compared(kept, known)
        ahead = self._ahead(kept, compared)
        look = self._note_look(kept, compared, ahead)
        remaking = ListRemaking(self.remote, kept, check, self._report)
        remaking.take_back(ahead)
        remaking.become(ahead)
        if compared.agreed is not None:  # it costs no write of its own
            kept.memory.suppose(compared=check.newest_commit)
        if check.history is History.CONTINUES and check.compares:
            forget_settled(self.remote, kept, check.limits)
        self._report_plan(kept, look, ahead)
        if not check.resources:
            self._tell_of_resources(ahead)
        kept.ledger.refresh(ahead.work.refreshed)
        crash.point("round.planned")
        try:
            with open_schema(self.remote, kept.sync, check, whole=self.options.schema) as schema:
                self._tasks(kept, source, check, look, ahead.work, resumable, schema)
        finally:
            self._stand(kept, source.left(ahead.scan, kept.handed))
        source.settle(kept.handed)
        self.rested = left_at_rest(self.remote, kept.sync, compared, ahead, self._report)

    def _look(
        self,
        kept: ReceiverState,
        source: Source,
        check: wire.CheckAnswer,
        recovered: RecoveryReport,
    ) -> EdgeLook:
        """What is here now, with the number of this look."""
        self._meter.step("scan")
        anew = source.lost and source.accepted
        if check.history is not History.CONTINUES or self.options.forget or anew:
            kept.handed.clear()
        scan = source.scan(kept.ledger.entries, kept.handed_to(check))
        # From the end of the scan: a look that comes too late finds it, one too early does not.
        self.rests_at = None if scan.rests_in is None else self.clock() + scan.rests_in
        return kept.looks.take(
            check.look,
            scan,
            kept.ledger.entries,
            recovered.last_copies,
            source.deletion_file,
            kept.facts.md5,
            restored=check.anew,
        )

    def _ahead(self, kept: ReceiverState, compared: Compared) -> NextRound:
        """What is to be done."""
        self._meter.step("plan")
        ahead = next_round(compared.known, self._plan_options(kept), kept.facts, compared.inventory)
        self._meter.happened(
            "planned",
            tasks=len(ahead.work.tasks),
            files=sum(len(task.additions) for task in ahead.work.tasks),
            bytes=sum(task.bytes for task in ahead.work.tasks),
            gone=sum(len(task.deletions) for task in ahead.work.tasks),
        )
        return ahead

    def _note_look(self, kept: ReceiverState, compared: Compared, ahead: NextRound) -> EdgeLook:
        """Record what the look has seen; returns it with what the comparison tells of it."""
        if compared.changed or ahead.ending:
            kept.ledger.refresh((*compared.changed, *ahead.ending))
        look = ahead.look
        if ahead.rebuilt is not None:
            look = look.knowing(ahead.rebuilt.entries)
        kept.looks.record(look)  # first: once a history is begun, nobody compares again
        return look

    def _report_plan(self, kept: ReceiverState, look: EdgeLook, ahead: NextRound) -> None:
        """Enter what the scan and the plan say; troubles of what is gone are forgotten."""
        with kept.changing_troubles() as troubles:
            troubles.prune(ahead.scan)
        if ahead.postponed is not None:
            _log.warning("%s: %s", self.remote.name, ahead.postponed)
            self._report.held.append(FileReason("all that is listed", ahead.postponed))
        fill_report(self._report, ahead.scan, ahead.work, kept.troubles.by_path.get)
        self._report.kept_deletions = kept_deletions(look, self.remote)
        self._report.overdue += overdue(look, self.remote.config.wait_alarm, time.time())

    def _tell_of_resources(self, ahead: NextRound) -> None:
        """A receiver of an earlier version takes a resource only with its file."""
        changed = with_other_resources(ahead.scan.files, ahead.listed, unknown=False)
        if (one := next(changed, None)) is not None:
            _log.info(
                "%s: takes no .resource without its file, as it is of an earlier version; that of "
                "%s, for one, is another one by now",
                self.remote.name,
                one.path,
            )

    def _tasks(
        self,
        kept: ReceiverState,
        source: Source,
        check: wire.CheckAnswer,
        look: EdgeLook,
        work: RoundPlan,
        resumable: LeftOpenTask,
        schema: SchemaShip | None,
    ) -> None:
        if schema is not None:
            self._report.schema = schema.report
        tasks = work.tasks
        pressing = schema is not None and schema.pressing
        if not tasks and (pressing or self._has_new_mode(kept) or lacks_mark(kept)):
            tasks = (TaskPlan(),)
        if not tasks:
            return
        from sender.round.second_look import SecondLook
        from sender.round.task_run import TaskRun

        again = SecondLook(source, look, kept.ledger.entries, self._report)
        for planned in in_turn(tasks, lambda: kept.ledger.entries):
            each = again.confirmed(planned)

            def run(task: str, each: TaskPlan = each) -> None:
                _log.info(
                    "%s: a task of %d files (%d bytes), %d deletions",
                    self.remote.name,
                    len(each.additions),
                    each.bytes,
                    len(each.deletions),
                    extra={"task": task},
                )
                TaskRun(
                    self.remote,
                    kept,
                    check,
                    look,
                    each,
                    task,
                    self._report,
                    self._meter,
                    schema=schema,
                    again=again,
                    source=source,
                    clock=self.clock,
                ).run()

            self._go_on(kept, run, None if each.anew else resumable.take(each))
            crash.point("round.task_done")

    def _go_on(self, kept: ReceiverState, run: Callable[[str], None], begun: str | None) -> None:
        """Run a task that the receiver has open, or under a new id.

        What was planned under an id counts on, be it gone by now; so it may have become too much.
        Nothing of it is committed then, and its log has nothing to say any more.
        """
        if begun is not None:
            try:
                return run(begun)
            except TooLargeError as error:
                _log.info("%s: task %s begins anew: %s", self.remote.name, begun, error)
                kept.logs.remove()
        return run(self.new_id())

    def _has_new_mode(self, kept: ReceiverState) -> bool:
        """Whether the receiver has to hear what a gone file means from now on.

        Otherwise the next end would be what tells it, and would be judged as before the change.
        """
        told = kept.memory.now.propagate or Propagate.REPLACED
        return bool(kept.ledger.entries) and told != self.remote.config.propagate_deletes

    def _stand(self, kept: ReceiverState, scan: Scan) -> None:
        """What is left to do, for status and heartbeats."""
        report = self._report
        expired = expired_paths(kept.troubles.by_path, scan)
        lost = kept.memory.now.lost
        left = remaining(scan, kept.ledger.entries, kept.facts, expired, lost)
        report.pending_files, report.pending_bytes = left.files, left.bytes
        report.complete_until = left.complete_until
        report.looked = True
        if len(self.remote.config.receivers) == 1:
            self.remote.digests.settle(lambda rel: _is_listed(rel, kept.ledger.entries))
        self.remote.scanner.forget(scan.files, kept.ledger.entries)

    # -- check and recovery ----------------------------------------------------------------

    def _rests(self, sync: Tree, memory: ReceiverFile, rested: Rested) -> bool:
        """Whether there still is nothing to do, as far as was told and the receiver says."""
        check = self._check(memory, rested.look)
        if not self._report.quiet or not rested.holds(self.remote, check, self._since):
            return False
        with open_schema(self.remote, sync, check, whole=False) as schema:
            if schema is not None:
                self._report.schema = schema.report
                if schema.pressing or schema.report.problem is not None:
                    return False
        rested.tell(self._report)
        return True

    def _check(self, memory: ReceiverFile, last_look: int) -> wire.CheckAnswer:
        now = memory.now
        self._since = now.compared
        request = self.remote.check_request(now, last_look)
        anybody = self.options.accept_receiver
        check = self.remote.patiently(lambda: self.remote.check(request, anybody=anybody))
        self._is_begun = True
        self._report.address = self.remote.addresses.now
        remember_incarnation(
            memory,
            self.remote.name,
            check.engine,
            check.incarnation,
            accept=self.options.accept_receiver,
        )
        if check.busy is not None:
            self._meter.step("load")
            with suppress(NotFoundError):
                wait_until_loaded(self.remote, check.busy, clock=self.clock)
        if check.history is History.CONTINUES:
            newest = max(now.newest_commit, check.newest_commit)
            memory.update(engine=check.engine, newest_commit=newest, verified=check.verified)
        memory.update(
            token_until=check.token_until,
            certificate_until=check.certificate_until,
            address=self.remote.addresses.now if self.remote.addresses.are_several else None,
        )
        self._report.token_until = check.token_until
        self._report.certificate_until = check.certificate_until
        shown = CertificateFile(self.remote.entry.client_cert).until()
        self._report.client_certificate_until = shown
        self._report.verified = check.verified
        note_held(self._report, memory, check.held_records)
        note_lost(self._report, memory, check.lost)
        return check

    def _compared(self, kept: ReceiverState, known: Known) -> Compared:
        """Both sides' lists, compared: by their sums, or in full where that is to be."""
        if known.comparison is not None:
            self._meter.step("inventory")
        found = compare(self.remote, known, self._since)
        comparison = found.known.comparison
        if comparison is not None:
            assert known.check is not None
            first = known.check.history is History.NEW and kept.memory.now.engine is None
            _log.log(
                logging.INFO if first else logging.WARNING,
                "%s: %s; all is compared with the inventory",
                self.remote.name,
                comparison.reason,
            )
        return found

    # -- plan ------------------------------------------------------------------------------

    def _plan_options(self, kept: ReceiverState) -> PlanOptions:
        allowed = kept.memory.now.accept_source
        return PlanOptions.of(self.remote.config, accept_source=allowed)


def _is_listed(rel: str, entries: Mapping[FilePath, Entry]) -> bool:
    try:
        return FilePath.parse(rel) in entries
    except NameRefusedError:
        return False  # of a flat layout: its name does not tell its path
