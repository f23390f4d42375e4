"""Looking without touching: what a round would do, and how things stand with a receiver.

Nothing here writes anything or takes a lock, so it works beside a running daemon.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from common import wire
from common.durable import Tree
from common.errors import NotFoundError, StoppedError, TsferryError
from common.network.certificates import CertificateFile
from common.wire import TaskState, Time
from sender.kept.receiver_file import ReceiverFile
from sender.kept.receiver_state import ReceiverState
from sender.kept.seen_incarnations import refuse_replaced
from sender.kept.troubles import Troubles
from sender.plan.next_round import Known, NextRound, next_round
from sender.plan.plan_options import PlanOptions
from sender.round.compared_lists.comparing import compare
from sender.round.compared_lists.same_centre import StateFolders, look_for_folders, look_for_lists
from sender.round.file_source import Source, open_source
from sender.round.recovery import LeftBehind, lacked_by, look_over
from sender.round.round_words.round_report import (
    FileReason,
    RoundReport,
    kept_deletions,
    of_held_records,
    verified_json,
)
from sender.round.round_words.shown_rounds import (
    LastRound,
    LostShown,
    ReasonShown,
    RoundAhead,
    TroubleShown,
    VerifiedShown,
    WaitingShown,
)
from sender.schema.notes import SchemaNotes
from sender.schema.shipping import look_at_schema
from sender.schema.standing import SchemaAhead, SchemaStanding, schema_standing
from sender.select.facts import ContentFacts
from sender.select.found import LocalFile, Scan, Span, Why
from sender.select.listed_table import listed_sum
from sender.send.remote import Remote

__all__ = ["LookedAt", "ReceiverStanding", "dry_run", "standing", "viewing"]


@dataclass
class LookedAt:
    """What is here and what is listed, for one receiver.

    Attributes:
        kept: opened without repair.
        source: of the files.
        scan: the local files.
    """

    kept: ReceiverState
    source: Source
    scan: Scan

    def left_behind(
        self,
        outcome_of: Callable[[str], wire.TaskAnswer | None],
        check: wire.CheckAnswer | None = None,
    ) -> LeftBehind:
        """What a recovery would do."""
        kept = self.kept
        state = kept.ledger, kept.logs, kept.snapshot, kept.dirs, outcome_of
        return look_over(*state) if check is None else look_over(*state, lacked_by(check))

    def known(self, left: LeftBehind, check: wire.CheckAnswer | None = None) -> Known:
        """What a round would know now."""
        kept, entries = self.kept, self.kept.ledger.entries
        number = kept.looks.now.last + 1 if check is None else check.look
        return Known.of(
            kept,
            kept.looks.take(
                number,
                self.scan,
                entries,
                left.last_copies,
                self.source.deletion_file,
                SparingFacts(kept.facts).md5,
                restored=check is not None and check.anew,
            ),
            entries=left.entries,
            last_copies=left.last_copies,
            check=check,
            source_lost=self.source.lost,
            source_doubt=self.source.doubt,
        )


@contextmanager
def viewing(
    remote: Remote, folders: StateFolders | None = None, *, accept_source: bool = False
) -> Iterator[LookedAt]:
    """Open what a receiver has, scan, and close it again.

    Args:
        remote: to the receiver.
        folders: where its things lie, if that was found out.
        accept_source: look as if a round with this option had begun.

    Raises:
        UsageError: no data directory counts, or two configured names are of one centre.
    """
    with remote.sync_tree() as sync:
        if folders is None:
            folders = look_for_folders(remote, sync, patient=True)
        memory = ReceiverFile.open(sync, folders.memory)
        if accept_source:
            memory.suppose(accept_source=True)
        source = open_source(remote, memory, remember=False)
        with source.dirs:
            look_for_lists(remote, source.dirs, folders)
            kept = ReceiverState.open(
                sync,
                source.dirs,
                folders.memory,
                source.facts(),
                repair=False,
                md5_known=source.md5_known,
            )
            kept.memory = memory
            yield LookedAt(kept, source, source.scan(kept.ledger.entries, kept.handed.has))


# -- dry run -----------------------------------------------------------------------------------


def dry_run(remote: Remote, *, accept_source: bool) -> RoundAhead:
    """Check, scan and plan; nothing is sent and nothing is changed."""
    with viewing(remote, accept_source=accept_source) as view:
        kept, now = view.kept, view.kept.memory.now
        request = remote.check_request(now, kept.looks.now.last)
        remote.prefer(now)
        check = remote.patiently(lambda: remote.check(request))
        refuse_replaced(now, remote.name, check.engine, check.incarnation)
        view.scan = view.source.scan(kept.ledger.entries, kept.handed_to(check))
        left = view.left_behind(lambda task: _committed(remote, task), check)
        known = view.known(left, check)
        compared = compare(remote, known, now.compared)
        options = PlanOptions.of(remote.config, accept_source=now.accept_source)
        ahead = next_round(compared.known, options, kept.facts, compared.inventory)
        unfinished = sorted(
            {state.task for state in kept.logs.left_over().values() if state.task is not None}
        )
        schema = look_at_schema(remote, kept.sync, kept.directory, check)
        held = of_held_records(check.held_records)
        return _as_plan(remote.name, ahead, unfinished, held, schema)


def _committed(remote: Remote, task: str) -> wire.TaskAnswer | None:
    """A task's answer if its load is done; a round would wait for one that is not."""
    try:
        answer = remote.patiently(lambda: remote.client.task(task))
    except NotFoundError:
        return None
    return answer if answer.state is TaskState.DONE else None


def _as_plan(
    name: str,
    ahead: NextRound,
    unfinished: list[str],
    records: list[FileReason],
    schema: SchemaAhead | None,
) -> RoundAhead:
    work = ahead.work
    held = [*records, *(FileReason(each.path.text, each.reason) for each in work.held)]
    return {
        "receiver": name,
        "dry_run": True,
        "unfinished": unfinished,
        "tasks": [
            {
                "additions": [
                    {
                        "file": each.path.text,
                        "size": each.bytes,
                        "replaces": each.replaces,
                        "resource_only": each.resource_only,
                    }
                    for each in task.additions
                ],
                "deletions": [each.path.text for each in task.deletions],
            }
            for task in work.tasks
        ],
        "files": work.files,
        "bytes": sum(task.bytes for task in work.tasks),
        "held": [{"file": each.file, "reason": each.reason} for each in held],
        "skipped": [{"file": each.file.path.text, "reason": each.reason} for each in work.skipped],
        "waiting": _waiting(ahead.scan),
        "up_to_date": work.unchanged + len(work.refreshed),
        "schema": schema,
    }


# -- status ------------------------------------------------------------------------------------


@dataclass
class ReceiverStanding:
    """How things stand with one receiver, as far as this node knows.

    Attributes:
        receiver: its name.
        url: its address, the first of the configuration.
        standby_urls: further ones, of those that may take its place.
        address: the one of them that answered last; None if that is not known.
        listed: files that are loaded there.
        let_go: files that are on the list, and that it let go by itself: past their TTL, deleted by
            its operator, another sender's now.
        pending_files: closed files that are not.
        pending_bytes: of these.
        complete_until: data time before which nothing of this node is unloaded; None if unknown.
        troubles: files that were not taken.
        waiting: files that are not closed or not ready, and why.
        clashes: paths with different content in several data directories.
        unmounted: data directories that do not count, and why.
        doubts: why the list will be compared anew, if so.
        verified: files that the receiver had loaded at the last check (`files`), and how many of
            them it had verified (`verified`); None if it was never told.
        last_round: the last one, as `sync --json` shows it.
        last_task: the last task that was loaded, in that round or an earlier one.
        lost: files that neither side has any more (`files`), the earliest time of their data
            (`since`), and the first of them by name (`named`: file, reason); None for nothing.
        held_records: deletions that wait for the receiver's operator, as it told last, and why.
        held_ends: files that are gone here, and whose ends wait, as of the last round.
        named_ends: some of these, and why.
        kept_deletions: files whose deletion file shrank or vanished, which withdraws nothing.
        schema: how far the schema log is applied there, and why some of it is not; None for no log.
        token_until: when the token for it ends, as it told last; None for never.
        certificate_until: when its certificate ends, likewise.
        client_certificate_until: when the certificate ends that is shown to it; None without one.
        problem: why all this could not be found out.
    """

    receiver: str
    url: str
    standby_urls: tuple[str, ...] = ()
    address: str | None = None
    listed: int = 0
    let_go: int = 0
    pending_files: int = 0
    pending_bytes: int = 0
    complete_until: Time | None = None
    troubles: tuple[TroubleShown, ...] = ()
    waiting: tuple[WaitingShown, ...] = ()
    clashes: tuple[FileReason, ...] = ()
    unmounted: tuple[FileReason, ...] = ()
    doubts: tuple[str, ...] = ()
    verified: VerifiedShown | None = None
    last_round: LastRound | None = None
    last_task: str | None = None
    lost: LostShown | None = None
    held_records: tuple[FileReason, ...] = ()
    held_ends: int = 0
    named_ends: tuple[ReasonShown, ...] = ()
    kept_deletions: tuple[FileReason, ...] = ()
    schema: SchemaStanding | None = None
    token_until: float | None = None
    certificate_until: float | None = None
    client_certificate_until: float | None = None
    problem: str | None = None

    @property
    def held_there(self) -> int:
        """Deletions that the receiver holds until its operator lets them through."""
        guarded = self.last_round is not None and self.last_round.get("guarded", False)
        return len(self.held_records) + (self.held_ends if guarded else 0)

    @property
    def ended_early(self) -> Mapping[str, object] | None:
        """The error of the last round; None also where it was stopped, and goes on."""
        error = None if self.last_round is None else self.last_round.get("error")
        if not isinstance(error, dict) or error.get("type") == StoppedError.slug:
            return None
        return error


def standing(remote: Remote) -> ReceiverStanding:
    """Look at one receiver's lists and the files.

    No receiver is asked, but one under a name that is new here while another name is used no more:
    it may be that centre.
    """
    found = ReceiverStanding(remote.name, remote.entry.url, remote.entry.standby_urls)
    found.client_certificate_until = CertificateFile(remote.entry.client_cert).until()
    try:
        with remote.sync_tree() as sync:
            folders = look_for_folders(remote, sync, patient=False)
            _from_memory(found, sync, folders.memory)
        with viewing(remote, folders) as view:
            known = view.known(view.left_behind(lambda task: None))
            facts = SparingFacts(view.kept.facts)
            lost = view.kept.memory.now.lost
            left = next_round(known, PlanOptions.of(remote.config), facts).remaining(facts, lost)
            found.listed = listed_sum(known.entries).files
            found.let_go = len(known.entries) - found.listed
            found.lost = _lost_json(lost)
            found.pending_files, found.pending_bytes = left.files, left.bytes
            found.complete_until = left.complete_until
            found.waiting = tuple(_waiting(known.scan))
            found.kept_deletions = tuple(kept_deletions(known.look, remote))
            found.clashes = tuple(FileReason(c.path.text, c.reason) for c in view.scan.clashes)
            found.unmounted = tuple(
                FileReason(str(each.data_dir), each.reason) for each in view.scan.unmounted
            ) + tuple(
                FileReason(f"{each.data_dir}/{each.rel}", each.reason)
                for each in known.scan.not_looked_at
            )
            found.doubts = view.kept.ledger.doubts
    except TsferryError as error:
        found.problem = error.message
    return found


_COMPARED = 1 << 30
"""Bytes that are read for a look at most."""


class SparingFacts:
    """`ContentFacts` that reads only so many bytes for whoever just looks.

    What was touched is compared by its content; where much was, the rest counts as not loaded.
    """

    def __init__(self, facts: ContentFacts) -> None:
        self._facts = facts
        self._left = _COMPARED

    def md5(self, file: LocalFile) -> str | None:
        """See `ContentFacts.md5`; None once the bytes are used up."""
        if file.size > self._left:
            return None
        self._left -= file.size
        return self._facts.md5(file)

    def span(self, file: LocalFile) -> Span | None:
        """See `ContentFacts.span`."""
        return self._facts.span(file)


def _from_memory(found: ReceiverStanding, sync: Tree, directory: str) -> None:
    memory = ReceiverFile.open(sync, directory)
    found.address = memory.now.address or (found.url if memory.now.engine else None)
    found.verified = verified_json(memory.now.verified)
    found.held_records = tuple(of_held_records(memory.now.held_records))
    found.token_until = memory.now.token_until
    found.certificate_until = memory.now.certificate_until
    last = memory.now.last_round or {}
    found.last_round = _whole(found.receiver, last) if last else None
    found.held_ends = last.get("held_count", 0)
    found.named_ends = tuple(last.get("held_ends", ()))
    found.last_task = memory.now.last_task.task if memory.now.last_task is not None else None
    found.schema = schema_standing(SchemaNotes.open(sync, directory).now)
    troubles = Troubles.open(sync, directory, clock=lambda: 0.0)
    found.troubles = tuple(
        {
            "file": each.path,
            "kind": str(each.kind),
            "reason": each.reason,
            "device": each.device,
            "hold": each.hold and not each.retry,
            "since": each.since,
            "rounds": each.rounds,
        }
        for each in troubles
    )


def _whole(receiver: str, last: dict[str, Any]) -> LastRound:
    """What was noted of a round, with all members: a program of before knew fewer."""
    none = RoundReport(receiver).as_json()
    noted: Any = {**none, "ended": 0.0, "held_ends": [], "held_count": 0, "guarded": False, **last}
    found: LastRound = noted
    return found


def _lost_json(lost: wire.LostFiles | None) -> LostShown | None:
    if lost is None:
        return None
    named: list[ReasonShown] = [{"file": each.path, "reason": each.reason} for each in lost.named]
    return {"files": lost.files, "since": lost.since, "named": named}


def _waiting(scan: Scan) -> list[WaitingShown]:
    return [
        {
            "file": each.text,
            "data_dir": str(each.data_dir),
            "why": str(each.why),
            "reason": each.reason,
            "size": each.size,
        }
        for each in scan.waiting
        if each.why is not Why.FILTERED
    ]
