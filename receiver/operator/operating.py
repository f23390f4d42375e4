"""What an operator may see and change; every change is one commit, like all else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import common
from common.durable import Tree
from common.errors import NotFoundError, UsageError
from receiver.load.upkeep.fsck import Report, examine
from receiver.load.upkeep.verdicts import hold_of
from receiver.metadata.commit.guards import Guard
from receiver.metadata.log.checkpoints import checkpoints
from receiver.metadata.model import records
from receiver.metadata.state.state import FileState
from receiver.operator.quarantine import Quarantine
from receiver.operator.tokens import hash_token, list_tokens, make_token, revoke_token
from receiver.operator.views import (
    FilesPage,
    FileView,
    OwnersPage,
    OwnerView,
    QuarantineView,
    SchemaView,
    SenderView,
    StatusView,
    TokenMade,
    TokenView,
)
from receiver.transfer import epochs
from receiver.transfer.listing import page_limit
from receiver.transfer.schema import position_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from receiver.config import ReceiverConfig
    from receiver.load.service import LoadService
    from receiver.metadata.engine import Engine
    from receiver.metadata.state.state import FileRow, SenderRow, State
    from receiver.principal import Principal
    from receiver.transfer.checks import Checks
    from receiver.transfer.uploads import Uploads

__all__ = ["FILE_STATES", "Operating", "hash_token", "make_token"]

_EXPIRED = "expired"
FILE_STATES = (*FileState, _EXPIRED)
"""What files can be asked for by; the last are those of the deleted that the TTL has deleted."""


class Operating:
    """The operator's calls; each checks that it is one."""

    def __init__(
        self,
        config: ReceiverConfig,
        engine: Engine,
        load: LoadService,
        uploads: Uploads,
        checks: Checks,
        *,
        clock: Callable[[], float],
    ) -> None:
        self._config = config
        self._engine = engine
        self._load = load
        self._uploads = uploads
        self._checks = checks
        self._quarantine = Quarantine(engine, load, clock=clock)

    # -- looking -----------------------------------------------------------------------------

    def status(self, who: Principal, *, started: float, problem: str | None) -> StatusView:
        """See `Node.status`."""
        who.must_operate()
        with self._engine.reading() as state:
            files, size = state.file_table.totals()
            senders, devices = len(state.senders), len(state.owners)
            deleted = len(state.file_table.deleted())
            quarantined = len(state.quarantine)
            quarantined += sum(_loaded_bad(state, uuid) for uuid in state.senders)
            verified = state.file_table.verified()
            oldest = min((row.verified for row in _verified(state.files.values())), default=0)
        count, partial = self._uploads.numbers()
        staged = sum(folder.staged.bytes for folder in self._load.folders.all())
        return StatusView(
            engine=self._engine.uuid,
            version=common.__version__,
            newest_commit=self._engine.newest_commit,
            ready=problem is None,
            problem=problem,
            started=started,
            senders=senders,
            devices=devices,
            files=files,
            bytes=size,
            deleted_files=deleted,
            quarantined=quarantined,
            verified=verified,
            unverified=files - verified,
            oldest_verification=oldest,
            uploads=count,
            staged_bytes=staged + partial,
            loading=self._load.loader.waiting,
            free_bytes=self._load.free_bytes(),
            schema=self._schema(),
        )

    def _schema(self) -> SchemaView:
        at, size = self._checkpoint()
        with self._engine.reading() as state:
            schema = state.schema
            groups = schema.storage_groups()
            expiring = sum(group.ttl is not None for group in groups)
            return SchemaView(
                series=schema.series_count,
                devices=schema.device_count,
                storage_groups=len(groups),
                tag_entries=schema.index.entries,
                memory=schema.memory(),
                max_memory=self._config.metadata.max_memory,
                oldest_answerable=self._engine.oldest_answerable,
                checkpoint_at=at,
                checkpoint_bytes=size,
                log_entries=self._engine.entries_since_checkpoint,
                unregistered=sum(
                    row.visible and not row.registered for row in state.files.values()
                ),
                ttl_groups=expiring,
                ttl_suspended=self._load.ttl.suspended if expiring else None,
                expired_files=sum(row.reason == _EXPIRED for row in state.file_table.deleted()),
            )

    def _checkpoint(self) -> tuple[float | None, int]:
        """When the newest checkpoint was written, and its bytes."""
        with Tree(self._config.schema_dir) as tree:
            found = checkpoints(tree)
            there = tree.stat(found[0].name) if found else None
        return (None, 0) if there is None else (there.st_mtime, there.st_size)

    def senders(self, who: Principal) -> list[SenderView]:
        """See `Node.senders`."""
        who.must_operate()
        with self._engine.reading() as state:
            refused: dict[str, int] = {}
            for row in state.quarantine.values():
                refused[row.sender] = refused.get(row.sender, 0) + 1
            found = [
                (
                    row,
                    state.file_table.totals(row.uuid),
                    refused.get(row.uuid, 0) + _loaded_bad(state, row.uuid),
                    state.file_table.verified(row.uuid),
                )
                for row in state.senders.values()
            ]
        return [self._sender(row, *totals, bad, good) for row, totals, bad, good in found]

    def _sender(
        self, row: SenderRow, files: int, size: int, quarantined: int, verified: int
    ) -> SenderView:
        folder = self._load.folders.find(row.uuid)
        task = folder.task if folder is not None else None
        count, partial = self._uploads.numbers(row.uuid)
        beat = self._checks.last_heartbeat(row.uuid)
        with self._engine.reading() as state:
            schema = position_of(state.schema_positions.get(row.uuid))
        return SenderView(
            uuid=row.uuid,
            label=row.label,
            directory=row.directory,
            epoch=epochs.number_of(row.epoch),
            first_seen=row.first_seen,
            last_task=row.last_task,
            last_commit=row.last_commit,
            open_task=task.id if task is not None and not task.loading else None,
            loading=task.id if task is not None and task.loading else None,
            trouble=task.trouble if task is not None else None,
            files=files,
            bytes=size,
            quarantined=quarantined,
            verified=verified,
            staged_bytes=partial + (folder.staged.bytes if folder is not None else 0),
            uploads=count,
            heartbeat=beat[1] if beat is not None else None,
            heartbeat_at=beat[0] if beat is not None else None,
            schema=schema,
        )

    def files(
        self,
        who: Principal,
        *,
        sender: str | None,
        state: str | None,
        unverified: bool = False,
        after: str | None,
        limit: int,
    ) -> FilesPage:
        """See `Node.files`."""
        who.must_operate()
        if state is not None and state not in FILE_STATES:
            raise UsageError(f"state {state[:40]!a}: expected one of {', '.join(FILE_STATES)}")
        limit = page_limit(limit, self._config.limits.max_page_items)
        with self._engine.reading() as tables:
            rows = [
                row
                for row in tables.files.values()
                if (sender is None or row.sender == sender)
                and (_is_in(row, state) if state is not None else row.visible)
                and not (unverified and row.verified)
                and (after is None or row.physical > after)
            ]
        rows.sort(key=lambda row: row.physical)
        page = rows[:limit]
        return FilesPage(
            files=[self._file(row) for row in page],
            next=page[-1].physical if len(rows) > limit else None,
        )

    def _file(self, row: FileRow) -> FileView:
        found = self._load.find_physical(row)
        return FileView(
            sender=row.sender,
            path=row.path,
            physical=row.physical,
            data_dir=str(found[0].path) if found is not None else None,
            size=row.size,
            md5=row.md5,
            state=str(row.state),
            reason=row.reason,
            task=row.task,
            created=row.created,
            deleted=row.deleted,
            first_time=row.first,
            last_time=row.last,
            devices=len(row.devices),
            series=row.series,
            points=row.points,
            resource=row.resource is not None,
            verified=row.verified,
        )

    def fsck(self, who: Principal) -> Report:
        """See `Node.fsck`."""
        who.must_operate()
        with Tree(self._config.schema_dir) as schema:
            return examine(self._engine, self._load.trees, schema)

    # -- senders and owners --------------------------------------------------------------------

    def accept_sender(self, who: Principal, sender: str) -> None:
        """See `Node.accept_sender`."""
        who.must_operate()
        with self._engine.reading() as state:
            row = state.senders.get(sender)
        if row is None:
            raise NotFoundError(f"sender {sender[:60]!a} is not known here")
        self._engine.commit(
            [
                records.EpochSet(
                    sender, epochs.accept(row), previous=None, task=None, confirmed=True
                )
            ],
            [Guard("sender", sender, row.changed)],
        )

    def owners(
        self, who: Principal, *, sender: str | None, after: str | None, limit: int
    ) -> OwnersPage:
        """See `Node.owners`."""
        who.must_operate()
        limit = page_limit(limit, self._config.limits.max_page_items)
        with self._engine.reading() as state:
            found = [
                (device, row)
                for device, row in state.owners.items()
                if (sender is None or row.sender == sender) and (after is None or device > after)
            ]
            labels = {row.uuid: row.label for row in state.senders.values()}
        found.sort(key=lambda each: each[0])
        page = found[:limit]
        return OwnersPage(
            owners=[
                OwnerView(
                    device=device,
                    sender=row.sender,
                    label=labels.get(row.sender, ""),
                    since=row.since,
                )
                for device, row in page
            ],
            next=page[-1][0] if len(found) > limit else None,
        )

    def set_owner(self, who: Principal, device: str, sender: str | None) -> int:
        """See `Node.release_owner` and `Node.transfer_owner`."""
        who.must_operate()
        with self._engine.reading() as state:
            seen = state.changed("owner", device)
            known = sender is None or sender in state.senders
        if not seen:
            raise NotFoundError(f"nobody owns the device {device[:200]!a}")
        if not known:
            raise NotFoundError(f"sender {(sender or '')[:60]!a} is not known here")
        by = f"token {who.token_id}" if who.token_id else "an operator"
        reason = f"{'released' if sender is None else 'transferred'} by {by}"
        return self._engine.commit(
            [records.OwnerSet(device, sender, reason)], [Guard("owner", device, seen)]
        )

    # -- quarantine ------------------------------------------------------------------------------

    def quarantine_list(self, who: Principal, *, sender: str | None) -> list[QuarantineView]:
        """See `Node.quarantine_list`."""
        who.must_operate()
        return self._quarantine.all(sender)

    def quarantine_retry(self, who: Principal, sender: str, path: str, digest: str) -> str:
        """See `Node.quarantine_retry`."""
        who.must_operate()
        return self._quarantine.retry(sender, path, digest)

    def quarantine_drop(self, who: Principal, sender: str, path: str, digest: str) -> None:
        """See `Node.quarantine_drop`."""
        who.must_operate()
        self._quarantine.drop(sender, path, digest)

    # -- TTL ---------------------------------------------------------------------------------------

    def resume_ttl(self, who: Principal) -> str | None:
        """See `Node.resume_ttl`."""
        who.must_operate()
        suspended = self._load.ttl.suspended
        self._load.ttl.resume()
        return suspended

    # -- tokens ------------------------------------------------------------------------------------

    def token_create(
        self,
        who: Principal,
        role: str,
        *,
        sender: str | None,
        scope: Iterable[str],
        note: str,
        expires: float | None,
    ) -> TokenMade:
        """See `Node.token_create`."""
        who.must_operate()
        return make_token(
            self._engine, role, sender=sender, scope=scope, note=note, expires=expires
        )

    def token_list(self, who: Principal) -> list[TokenView]:
        """See `Node.token_list`."""
        who.must_operate()
        return list_tokens(self._engine)

    def token_revoke(self, who: Principal, token_id: str) -> None:
        """See `Node.token_revoke`."""
        who.must_operate()
        revoke_token(self._engine, token_id)


def _is_in(row: FileRow, state: str) -> bool:
    if state == _EXPIRED:
        return row.state is FileState.DELETED and row.reason == _EXPIRED
    return row.state == state


def _loaded_bad(state: State, sender: str) -> int:
    """Loaded files found bad; not those that an entry of the quarantine stands for already."""
    return sum(hold_of(state, row) is None for row in state.file_table.wanted(sender))


def _verified(rows: Iterable[FileRow]) -> Iterator[FileRow]:
    return (row for row in rows if row.verified and row.visible)
