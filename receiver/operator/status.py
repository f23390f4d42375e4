"""How a receiver is, in numbers."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import msgspec

import common
from common.durable import Tree, free_bytes
from common.network.certificates import CertificateFile, crl_end
from common.wire import Propagate
from receiver.load.deciding.known_files.predecessors_files import heir_of
from receiver.load.folder.sender_folder import folders_in
from receiver.metadata.clock.clock_record import read_record
from receiver.metadata.log.checkpoints import checkpoints
from receiver.metadata.query.lost import lost_files
from receiver.metadata.state.table_rows import FileState
from receiver.operator.asked_work.background_tasks import background_concerns, background_totals
from receiver.operator.asked_work.compact import merge_totals
from receiver.operator.directories import RunningReceiver, time_of
from receiver.operator.edges.edge_troubles import edge_concerns
from receiver.operator.edges.ending import (
    edge_certificates_ending,
    ending_concerns,
    exchanged_concerns,
    tokens_ending,
)
from receiver.operator.edges.lateness import is_edge, label_concerns, late_senders, shared_labels
from receiver.operator.edges.senders import loaded_bad
from receiver.operator.paging import every_row
from receiver.operator.places.copies import copy_concerns
from receiver.operator.places.node_lists import list_directories, node_concerns
from receiver.operator.places.remote_nodes import node_totals, remote_node_concerns
from receiver.operator.stored.backup_note import read_backup_note
from receiver.operator.stored.files import EXPIRED
from receiver.operator.stored.retired import retired_totals
from receiver.operator.stored.storage import storage_concerns
from receiver.operator.views.retired_views import KeptView
from receiver.operator.views.status_views import (
    AwayView,
    ClockView,
    DirectoryView,
    SchemaView,
    StatusView,
)

if TYPE_CHECKING:
    from pathlib import Path

    from receiver.metadata.engine import Engine
    from receiver.metadata.state.state import State
    from receiver.metadata.state.table_rows import FileRow
    from receiver.operator.directories import ReceiverDirectories

__all__ = ["running_status", "short_status", "status"]

_NAMED = 20
"""Senders, labels and tokens that are named, of each kind."""


def status(there: ReceiverDirectories, problem: str | None) -> StatusView:
    """How the receiver is, as far as its directories tell.

    Args:
        there: what to look at.
        problem: why it takes no files.
    """
    return _with_files(there.engine, _at_rest(there, problem))


def _with_files(engine: Engine, view: StatusView) -> StatusView:
    """The same, with what is known when each visible file was looked at."""
    oldest, unregistered, kept = _of_visible(engine)
    return msgspec.structs.replace(
        view,
        oldest_verification=oldest,
        oldest_verification_at=engine.times.seconds(oldest) if oldest else None,
        kept=kept,
        schema=msgspec.structs.replace(view.schema, unregistered=unregistered),
    )


def _at_rest(there: ReceiverDirectories, problem: str | None) -> StatusView:
    engine = there.engine
    directories = _directories(there)
    away = tuple(AwayView(path=str(each.path), reason=each.reason) for each in there.disks.away())
    checkpoint_at, checkpoint_bytes = _checkpoint(there.config.schema_dir)
    retired = retired_totals(there)
    merged = merge_totals(there)
    nodes = node_totals(there)
    background = background_totals(there)
    note = read_backup_note(there.config.schema_dir)
    with engine.reading() as state:
        files, size = state.file_table.totals()
        verified = state.file_table.verified()
        deleted = state.file_table.deleted()
        bad = sum(loaded_bad(state, uuid) for uuid in state.senders)
        schema = _schema(state)
        late = late_senders(there, state)
        return StatusView(
            engine=engine.uuid,
            version=common.__version__,
            newest_commit=engine.newest_commit,
            newest_commit_at=_moment(state, engine.newest_commit),
            ready=problem is None,
            problem=problem,
            senders=sum(map(is_edge, state.senders.values())),
            devices=len(state.owners),
            files=files,
            bytes=size,
            deleted_files=len(deleted),
            held_deletes=len(state.held_deletes.waiting()),
            lost=len(lost_files(state)),
            quarantined=len(state.quarantine) + bad,
            verified=verified,
            unverified=files - verified,
            free_bytes=max((each.free_bytes for each in directories), default=0),
            directories=directories,
            away=away,
            retired=retired,
            merged=merged,
            background=background,
            nodes=nodes,
            schema=msgspec.structs.replace(
                schema,
                max_memory=there.config.metadata.max_memory,
                oldest_answerable=engine.oldest_answerable,
                checkpoint_at=checkpoint_at,
                checkpoint_bytes=checkpoint_bytes,
                log_entries=engine.entries_since_checkpoint,
                expired_files=sum(row.reason == EXPIRED for row in deleted),
            ),
            clock=_noted_clock(there.config.schema_dir, state),
            history_since=state.clock.times.seconds(engine.oldest_answerable) or None,
            late=None if late is None else len(late),
            late_senders=tuple((late or ())[:_NAMED]),
            shared_labels=tuple(shared_labels(state)[:_NAMED]),
            certificate_until=CertificateFile(there.config.listen.tls_cert).until(),
            client_ca_until=CertificateFile(there.config.listen.client_ca).until(),
            client_crl_until=CertificateFile(there.config.listen.client_crl, crl_end).until(),
            backup_at=None if note is None else note.at,
            tokens_ending=tuple(tokens_ending(state, time_of(there))[:_NAMED]),
            edge_certificates_ending=tuple(
                edge_certificates_ending(there, state, time_of(there))[:_NAMED]
            ),
        )


def running_status(there: ReceiverDirectories, problem: str | None) -> StatusView:
    """The same, with what the server is doing."""
    return _with_files(there.engine, short_status(there, problem))


def short_status(there: ReceiverDirectories, problem: str | None) -> StatusView:
    """The same, without what each visible file would have to be looked at for.

    That is the oldest verification, what is kept of old boxes, and files that are not registered.
    Files of tablets that no node is known to have are looked for (`ReleasedFiles.nowhere`), so many
    at most that it takes some tenths of a second.
    """
    view = _at_rest(there, problem)
    if not isinstance(there, RunningReceiver):
        return view
    count, partial = there.uploads.numbers()
    staged = sum(folder.staged.bytes for folder in there.load.folders.all())
    clock = there.engine.clock
    doubt = clock.doubt()
    with there.engine.reading() as state:
        edges = edge_concerns(there, state, time_of(there))
    return msgspec.structs.replace(
        view,
        concerns=(
            *there.load.hindered(),
            *there.load.stuck(),
            *there.load.space.at_quota(),
            *storage_concerns(there),
            *node_concerns(there),
            *background_concerns(view.background, clock()),
            *remote_node_concerns(view.nodes),
            *copy_concerns(there.copies),
            *([] if there.hooks is None else there.hooks.concerns()),
            *ending_concerns(view, time_of(there)),
            *exchanged_concerns(there.config.listen),
            *edges,
            *label_concerns(view),
        ),
        started=there.started,
        uploads=count,
        staged_bytes=staged + partial,
        loading=there.load.loader.waiting,
        centre_loads=tuple(there.centre.under_way()),
        clock=msgspec.structs.replace(
            view.clock,
            doubt=None if doubt is None else doubt.text,
            since=None if doubt is None else doubt.since,
            ahead=0.0 if doubt is None else doubt.ahead,
            time=clock(),
        ),
    )


def _noted_clock(directory: Path, state: State) -> ClockView:
    """As it was last noted; a running server knows better."""
    found, row = read_record(directory), state.clock.row
    return ClockView(
        doubt=None if found is None else found.doubt,
        since=None if found is None else found.doubted_since,
        corrected=row.changed,
        why=row.why,
    )


def _moment(state: State, ts: int) -> float | None:
    return state.clock.times.seconds(ts) if ts else None


def _schema(state: State) -> SchemaView:
    schema = state.schema
    groups = schema.groups.rows()
    return SchemaView(
        series=schema.columns.series_count,
        devices=schema.columns.device_count,
        storage_groups=len(groups),
        tag_entries=schema.index.entries,
        memory=schema.memory.used,
        ttl_groups=sum(group.ttl is not None for group in groups),
    )


def _of_visible(engine: Engine) -> tuple[int, int, tuple[KeptView, ...]]:
    """The oldest verification (0: none), how many are not registered, what is kept of old boxes."""
    oldest = unregistered = 0
    kept: dict[tuple[str, str], list[int]] = defaultdict(list)
    visible = every_row(
        engine,
        lambda state, behind, count: [
            (row, _mirror(state, row)) for row in state.file_table.catalogue(behind, count)
        ],
        lambda each: each[0].physical,
    )
    for row, mirror in visible:
        if row.verified:
            oldest = min(oldest or row.verified, row.verified)
        unregistered += not row.registered
        if mirror is not None:
            kept[row.sender, mirror].append(row.size)
    views = (
        KeptView(sender=sender, by=by, files=len(sizes), bytes=sum(sizes))
        for (sender, by), sizes in sorted(kept.items())
    )
    return oldest, unregistered, tuple(views)


def _mirror(state: State, row: FileRow) -> str | None:
    """The mirror in whose place the sender of a retired file was before; None for none."""
    if row.state is not FileState.RETIRED:
        return None
    heir = state.senders.get(heir_of(state, row) or "")
    if heir is None or heir.uuid == row.sender or heir.propagate is not Propagate.ALL:
        return None
    return heir.uuid


def _directories(there: ReceiverDirectories) -> tuple[DirectoryView, ...]:
    nodes = {each.name: each for each in list_directories(there) if each.state == "draining"}
    found = []
    for tree in there.disks.standing():
        node = nodes.get(str(tree.path))
        found.append(
            DirectoryView(
                path=str(tree.path),
                free_bytes=free_bytes(tree.path),
                senders=folders_in(tree),
                state="standing" if node is None else node.state,
                drain=None if node is None else node.drain,
            )
        )
    return tuple(found)


def _checkpoint(directory: Path) -> tuple[float | None, int]:
    """When the newest checkpoint was written, and its bytes."""
    try:
        with Tree(directory) as tree:
            found = checkpoints(tree)
            there = tree.stat(found[0].name) if found else None
    except FileNotFoundError:  # `away` tells of it
        return None, 0
    return (None, 0) if there is None else (there.st_mtime, there.st_size)
