"""Copies on storage nodes, as operators see them; files that come back from there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from common.errors import TsferryError
from receiver.load.upkeep.loaded_file_checks import is_to_be_there
from receiver.operator.views.copy_views import (
    BackView,
    CopiesView,
    FailedBack,
    OfferedDeletions,
    OfferedFile,
    OfferedTable,
    OfferedView,
    StrangeReplica,
)

if TYPE_CHECKING:
    from receiver.operator.directories import RunningReceiver
    from receiver.operator.views.copy_views import MendRequest
    from receiver.placement.copy_service import CopyService

__all__ = ["bring_back", "copies_view", "copy_concerns", "mend_files", "offered_view"]

_MOST_OFFERED: Final = 10_000


def copies_view(there: RunningReceiver) -> CopiesView:
    """How far the copies are."""
    service, config = there.copies, there.config.nodes
    counting = {uuid for uuid, node in service.nodes().items() if node.counts}
    with there.engine.reading() as state:
        rows = state.placement_table.rows
        tablets = [
            (tablet, rows.get(tablet.id), table.replicas or config.replicas)
            for table in state.loaded_tables.there()
            for tablet in state.tablet_table.of_table(table.id)
        ]
        placed = [(tablet, row) for tablet, row, _ in tablets if row is not None]
        whole = sum(
            len(counting.intersection(service.book.complete(state, tablet, row))) == len(row.nodes)
            for tablet, row in placed
        )
    short = sum(row is None or len(row.nodes) < wanted for _, row, wanted in tablets)
    released, nowhere = service.released.all(), service.released.nowhere()
    return CopiesView(
        replicas=config.replicas,
        before_ack=config.before_ack,
        tablets=len(tablets),
        placed=len(placed),
        creating=sum(not row.running for _, row in placed),
        short=short if config.replicas else 0,
        whole=whole,
        busy=service.condition.busy(),
        strange=tuple(
            StrangeReplica(node=node, tablet=tablet)
            for node, tablet in sorted(service.assignment.last.strange)
        ),
        newer=tuple(
            StrangeReplica(node=node, tablet=tablet)
            for node, tablet in sorted(service.assignment.last.newer)
        ),
        evict_copies=config.evict_copies,
        released=released.files,
        released_bytes=released.size,
        nowhere=nowhere.files,
        first_nowhere=nowhere.first,
    )


def bring_back(there: RunningReceiver) -> BackView:
    """Have all files in the data directories that readers see and that nodes have alone."""
    found = there.copies.back.bring_all()
    failed = tuple(FailedBack(physical=name, reason=why) for name, why in found.failed)
    return BackView(files=found.files, size=found.size, failed=failed)


def mend_files(there: RunningReceiver, request: MendRequest) -> BackView:
    """Have whole files in place of those that were found damaged or missing, from storage nodes."""
    files = size = 0
    failed: list[FailedBack] = []
    for name in request.files:
        with there.engine.reading() as state:
            row = state.files.get(name)
        if row is None or not is_to_be_there(row):
            continue
        try:
            came = there.copies.back.mend(row)
        except (TsferryError, OSError) as error:
            failed.append(FailedBack(physical=name, reason=str(error)))
            continue
        if came:
            files, size = files + 1, size + row.size
        else:
            failed.append(FailedBack(physical=name, reason="no storage node gives it"))
    return BackView(files=files, size=size, failed=tuple(failed))


def offered_view(there: RunningReceiver) -> OfferedView:
    """What storage nodes have and the catalogue has not; the nodes are asked now."""
    found, silent = there.copies.offers.find(_MOST_OFFERED + 1)
    files = [
        OfferedFile(
            node=each.node,
            tablet=each.tablet,
            table=each.table,
            physical=each.file.physical,
            size=each.file.size,
            md5=each.file.md5,
            sender=each.file.sender,
            path=each.file.path,
            commit=each.file.commit,
            retired=each.file.retired,
            deletions=tuple(
                OfferedDeletions(form=one.form, content=one.content) for one in each.file.deletions
            ),
        )
        for each in found
    ]
    files.sort(key=lambda each: (each.physical, each.md5))
    return OfferedView(
        files=tuple(files[:_MOST_OFFERED]),
        tables=tuple(
            OfferedTable(
                table=each.table,
                node=each.node,
                version=each.attributes.version,
                ttl=each.attributes.ttl,
                replicas=each.attributes.replicas,
            )
            for each in there.copies.offers.tables()
        ),
        more=len(files) > _MOST_OFFERED,
        silent=tuple(sorted(silent)),
    )


def copy_concerns(service: CopyService) -> list[str]:
    """What is not as it should be, in numbers."""
    last = service.assignment.last
    found = []
    if last.short:
        found.append(f"{last.short} tablets have fewer storage nodes than are wanted.")
    if last.strange:
        found.append(f"{len(last.strange)} replicas at storage nodes are not known here.")
    if last.newer:
        found.append(f"{len(last.newer)} replicas know more of their tables than is known here.")
    nowhere = service.released.nowhere().files
    if nowhere:
        found.append(
            f"{nowhere} files are on no disk here, and no storage node that is heard from is known "
            "to have them: `tsferry-receiver copies status` names the first."
        )
    busy = service.condition.busy()
    return found if busy is None else [*found, f"No task is taken: {busy}."]
