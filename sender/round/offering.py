"""The files of a task, offered to the receiver, which says what it wants of each.

That the receiver has a file counts only if it has the same content: by MD5, and where that is not
known here yet, the file is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from common import crash, wire
from common.names import FilePath
from common.wire import Action
from sender.kept.loaded_list.snapshot import SnapshotFile
from sender.kept.receiver_state import ReceiverState
from sender.plan.additions import Addition
from sender.plan.task_plan import TaskPlan
from sender.round.file_source import Source
from sender.round.round_words.refusals import Verdicts
from sender.select.found import LocalFile
from sender.send.calls import UploadState
from sender.send.remote import Remote
from sender.send.sent_bytes.content import Prepared, pages, prepare, without_devices
from sender.send.sent_bytes.node_sending import NodeOffer
from sender.send.sent_bytes.proofs import Proofs
from sender.send.sent_bytes.sending import SendJob

__all__ = ["Offering"]


class Offering:
    """Offers the additions of one task.

    Attributes:
        whole: files that the receiver has whole, with the MD5 of what is here; by path.
        unmarked: those of which an older receiver does not tell whether it has their resources.
        passed_over: files whose resource it does not take.
    """

    def __init__(
        self,
        remote: Remote,
        kept: ReceiverState,
        check: wire.CheckAnswer,
        source: Source,
        plan: TaskPlan,
        additions: Mapping[FilePath, Addition],
        *,
        task: str,
        epoch: str | None,
        proofs: Proofs,
        verdicts: Verdicts,
        clock: Callable[[], float],
    ) -> None:
        """Prepare.

        Args:
            remote: the receiver.
            kept: what lies here for it.
            check: its answer at the beginning of the round.
            source: of the files.
            plan: the task's.
            additions: of it, by path.
            task: its id.
            epoch: of it.
            proofs: hear of the files that the receiver has.
            verdicts: hear of those that are not in the task any more.
            clock: seconds, for how long a node's place lasts.
        """
        self._remote = remote
        self._kept = kept
        self._check = check
        self._source = source
        self._deletion_files = plan.deletion_files
        self._additions = additions
        self._task = task
        self._epoch = epoch
        self._proofs = proofs
        self._verdicts = verdicts
        self._clock = clock
        self.whole: dict[str, tuple[Prepared, str]] = {}
        self.unmarked: set[str] = set()
        self.passed_over: list[LocalFile] = []

    def jobs(self, taken: Sequence[SnapshotFile]) -> list[SendJob]:
        """Ask what to do with each file; returns what is to be sent.

        Raises:
            StoppedError: told to stop.
            TsferryError: the receiver is out of reach, or refuses.
        """
        jobs: list[SendJob] = []
        for page in pages(self._prepared(taken), self._check.limits):
            self._remote.go_on()
            for prepared, decision in self._sure(page, self.ask(page)):
                jobs += self._decided(without_devices(prepared), decision)
            crash.point("task.planned")
        return jobs

    def _prepared(self, taken: Sequence[SnapshotFile]) -> Iterator[Prepared]:
        """The files that can be offered, one by one as they are read."""
        deleted_from = {file.path for file in self._deletion_files}
        with self._kept.snapshot.staying() as snapshot:
            for snap in taken:
                self._remote.go_on()
                addition = self._additions[snap.path]
                known = self._listed_md5(addition) or self._kept.md5_known(addition.file)
                origin = self._source.origin(snap.path)
                edge = "" if origin is None else origin.sender
                found = prepare(snapshot, snap, addition, known, edge, proofs=self._proofs)
                if isinstance(found, Prepared) and snap.path in deleted_from:
                    entry = msgspec.structs.replace(found.entry, deletes=True)
                    yield msgspec.structs.replace(found, entry=entry)
                elif isinstance(found, Prepared):
                    yield found
                elif found.changed:
                    self._verdicts.changed(addition.path, found.reason)
                else:
                    self._verdicts.unfit(addition.file, found.reason)

    def ask(self, offered: Sequence[Prepared]) -> list[wire.PlanDecision]:
        """What the receiver wants done with files, in their order."""
        nodes = self._remote.nodes
        page = wire.PlanPage(
            entries=[each.entry for each in offered],
            nodes=nodes is not None,
            avoid=[] if nodes is None else nodes.avoided(),
        )
        answer = self._remote.patiently(
            lambda: self._remote.client.plan(self._task, self._epoch, page)
        )
        return answer.decisions

    def _sure(
        self, page: Sequence[Prepared], decisions: Sequence[wire.PlanDecision]
    ) -> list[tuple[Prepared, wire.PlanDecision]]:
        """Files with what the receiver wants done with each, judged by the whole content.

        That a content is not to come again would end the matter for good, and the end of a file is
        no proof of what is before it: bytes that were bad at the receiver may be good here.
        """
        found: list[tuple[Prepared, wire.PlanDecision]] = []
        again: list[Prepared] = []
        for prepared, decision in zip(page, decisions, strict=True):
            addition, entry = prepared.addition, prepared.entry
            is_for_good = decision.action is Action.EXPIRED and decision.hold
            if not is_for_good or entry.md5 is not None or addition.resource_only:
                found.append((prepared, decision))
                continue
            self._remote.go_on()
            md5 = self._kept.facts.md5(addition.file)
            if md5 is None:
                self._proofs.drop(entry.path)
                self._verdicts.changed(addition.path, "changed while it was compared")
                continue
            entry = msgspec.structs.replace(entry, md5=md5)
            again.append(msgspec.structs.replace(prepared, entry=entry))
        for some in pages(again, self._check.limits):
            found += zip(some, self.ask(some), strict=True)
        return found

    def plan_anew(self, prepared: Prepared) -> tuple[wire.PlanDecision, NodeOffer | None]:
        """What to do with a file now."""
        decision = self.ask([prepared])[0]
        return decision, self._offer_of(decision)

    def is_whole(self, prepared: Prepared) -> bool:
        """After an answer was lost: has the receiver taken the file in?"""
        decision = self.ask([prepared])[0]
        return decision.action in (Action.HAVE, Action.ALREADY) and (
            decision.md5 == self._kept.facts.md5(prepared.addition.file)
        )

    def _offer_of(self, decision: wire.PlanDecision) -> NodeOffer | None:
        node = decision.node
        return None if node is None else NodeOffer(node, self._clock() + node.lasts)

    def _decided(self, prepared: Prepared, decision: wire.PlanDecision) -> Iterator[SendJob]:
        file = prepared.addition.file
        match decision.action:
            case action if prepared.addition.resource_only and action is not Action.ALREADY:
                # What became of the file itself, the comparison of both lists tells.
                self._proofs.drop(prepared.entry.path)
                if action in (Action.EXPIRED, Action.CONFLICT, Action.REFUSED):
                    self.passed_over.append(file)
            case Action.SEND:
                offer = self._offer_of(decision)
                yield SendJob(prepared, resource=decision.resource, offer=offer)
            case Action.RESUME:
                begin = None
                if decision.upload is not None and 0 <= decision.offset <= file.size:
                    begin = UploadState(decision.upload, decision.offset)
                offer = self._offer_of(decision)
                yield SendJob(prepared, resource=decision.resource, begin=begin, offer=offer)
            case Action.HAVE | Action.ALREADY:
                yield from self._compare(prepared, decision)
            case _:
                self._proofs.drop(prepared.entry.path)
                self._verdicts.decided(file, decision)

    def _compare(self, prepared: Prepared, decision: wire.PlanDecision) -> Iterator[SendJob]:
        """The receiver says that it has the file: it counts only if the content is the same."""
        file = prepared.addition.file
        ours = self._listed_md5(prepared.addition) or self._kept.facts.md5(file)
        if ours is None:
            self._verdicts.changed(file.path, "changed while it was compared")
        elif decision.md5 == ours:
            if decision.resource and prepared.entry.resource is not None:
                yield SendJob(prepared, file=False, resource=True)
            self.whole[prepared.entry.path] = (prepared, ours)
            if decision.action is Action.ALREADY and not self._check.resources:
                self.unmarked.add(prepared.entry.path)
            if decision.action is Action.HAVE:
                self._proofs.add(prepared.entry.path, prepared.snap)
            else:
                self._proofs.drop(prepared.entry.path)
        elif decision.action is Action.HAVE:
            yield SendJob(prepared, resource=decision.resource)
        elif prepared.entry.md5 is None:
            entry = msgspec.structs.replace(prepared.entry, md5=ours)
            again = msgspec.structs.replace(prepared, entry=entry)
            yield from self._decided(again, self.ask([again])[0])
        else:
            self._verdicts.clash(file, decision.md5)

    def _listed_md5(self, addition: Addition) -> str | None:
        """Of a file that is listed as it is: only its resource is read, which may be small."""
        entry = self._kept.ledger.entries.get(addition.path) if addition.resource_only else None
        return entry.md5 if entry is not None and entry.is_of(addition.file) else None
