"""Senders with their epochs, and the tokens that open the door to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from receiver.metadata.model import records
from receiver.metadata.state.table_rows import SchemaPositionRow, SenderRow, TokenRow

if TYPE_CHECKING:
    from collections.abc import Mapping

    from receiver.metadata.state.table_rows import FileRow, OwnerRow
    from receiver.metadata.state.tables import Appliers

__all__ = ["KEPT_FAILURES", "SchemaPositions", "SenderTable", "TokenTable"]

KEPT_FAILURES = 100
"""Records of a schema log that could not be applied, of which a sender's row tells."""


class SenderTable:
    """Senders.

    Attributes:
        rows: by uuid.
    """

    def __init__(self, files: Mapping[str, FileRow], owners: Mapping[str, OwnerRow]) -> None:
        """Begin with none.

        Args:
            files: rows by physical path.
            owners: rows by device.
        """
        self.rows: dict[str, SenderRow] = {}
        self._files, self._owners = files, owners
        self._directories: dict[str, str] = {}

    def of_directory(self, directory: str) -> SenderRow | None:
        """Whose folder beneath `sync-receiver/` this is."""
        found = self._directories.get(directory)
        return None if found is None else self.rows[found]

    def restore(self, row: SenderRow) -> None:
        """Put a row in as it was."""
        self.rows[row.uuid] = row
        self._directories[row.directory] = row.uuid

    def operations(self) -> Appliers:
        """What it does with operations."""
        return {
            records.SenderSeen: self._sender_seen,
            records.EpochSet: self._epoch_set,
            records.TaskDone: self._task_done,
            records.SenderMode: self._sender_mode,
            records.ListBegun: self._list_begun,
            records.LatenessSet: self._lateness_set,
            records.FileUndeleted: self._file_undeleted,
        }

    def _sender_seen(self, op: records.SenderSeen, ts: int) -> None:
        known = self.rows.get(op.uuid)
        if known is None:
            row = SenderRow(
                uuid=op.uuid,
                label=op.label,
                directory=op.directory,
                first_seen=ts,
                created=ts,
                changed=ts,
            )
        else:
            row = msgspec.structs.replace(known, label=op.label, changed=ts)
        self.rows[op.uuid] = row
        self._directories[op.directory] = op.uuid

    def _epoch_set(self, op: records.EpochSet, ts: int) -> None:
        self.rows[op.sender] = msgspec.structs.replace(
            self.rows[op.sender],
            epoch=op.current,
            previous=op.previous,
            epoch_task=op.task,
            confirmed=op.confirmed,
            restored=ts if op.restored else self.rows[op.sender].restored,
            changed=ts,
        )

    def _list_begun(self, op: records.ListBegun, ts: int) -> None:
        row = self.rows[op.sender]
        self.rows[op.sender] = msgspec.structs.replace(row, restored=0, changed=ts)

    def _file_undeleted(self, op: records.FileUndeleted, ts: int) -> None:
        """Of its sender, and of those that have its devices by now: they may have the content."""
        owners = (self._owners.get(each.name) for each in op.devices)
        concerned = {self._files[op.physical].sender, *(each.sender for each in owners if each)}
        for uuid in concerned & self.rows.keys():
            # Nobody who decides about a sender depends on it, so `changed` stays.
            self.rows[uuid] = msgspec.structs.replace(self.rows[uuid], called_back=ts)

    def _lateness_set(self, op: records.LatenessSet, ts: int) -> None:
        row = self.rows[op.sender]
        self.rows[op.sender] = msgspec.structs.replace(row, late_after=op.late_after, changed=ts)

    def _sender_mode(self, op: records.SenderMode, ts: int) -> None:
        self.rows[op.sender] = msgspec.structs.replace(
            self.rows[op.sender], propagate=op.propagate, mode_look=op.look, changed=ts
        )

    def _task_done(self, op: records.TaskDone, ts: int) -> None:
        self.rows[op.sender] = msgspec.structs.replace(
            self.rows[op.sender], last_task=op.task, last_commit=ts, changed=ts
        )


class TokenTable:
    """Tokens.

    Attributes:
        rows: by id; a revoked one is gone.
        roles: of all that were ever made, revoked or not.
    """

    def __init__(self) -> None:
        self.rows: dict[str, TokenRow] = {}
        self.roles: set[str] = set()
        self._of_hash: dict[str, str] = {}
        self._of_certificate: dict[str, str] = {}

    def by_certificate(self, name: str) -> TokenRow | None:
        """What a certificate with this name stands for, whether expired or not."""
        found = self._of_certificate.get(name)
        return None if found is None else self.rows[found]

    def by_hash(self, digest: str) -> TokenRow | None:
        """The token with this SHA-256, whether expired or not."""
        found = self._of_hash.get(digest)
        return None if found is None else self.rows[found]

    def restore(self, row: TokenRow) -> None:
        """Put a row in as it was."""
        self.rows[row.id] = row
        self._of_hash[row.hash] = row.id
        if row.certificate is not None:
            self._of_certificate[row.certificate] = row.id
        self.roles.add(row.role)

    def operations(self) -> Appliers:
        """What it does with operations."""
        return {
            records.TokenPut: self._token_put,
            records.TokenRevoke: self._token_revoke,
        }

    def _token_put(self, op: records.TokenPut, ts: int) -> None:
        self.restore(
            TokenRow(
                id=op.id,
                role=op.role,
                hash=op.hash,
                sender=op.sender,
                scope=tuple(op.scope),
                note=op.note,
                expires=op.expires,
                allow_deletes=op.allow_deletes,
                owners=tuple(op.owners),
                certificate=op.certificate,
                created=ts,
                changed=ts,
            )
        )

    def _token_revoke(self, op: records.TokenRevoke, ts: int) -> None:
        gone = self.rows.pop(op.id)
        del self._of_hash[gone.hash]
        if gone.certificate is not None:
            del self._of_certificate[gone.certificate]


class SchemaPositions:
    """How far the schema logs of senders are applied.

    Attributes:
        rows: by uuid of the sender.
    """

    def __init__(self) -> None:
        self.rows: dict[str, SchemaPositionRow] = {}

    def restore(self, row: SchemaPositionRow) -> None:
        """Put a row in as it was."""
        self.rows[row.sender] = row

    def operations(self) -> Appliers:
        """What it does with operations."""
        return {
            records.SchemaSynced: self._schema_synced,
        }

    def _schema_synced(self, op: records.SchemaSynced, ts: int) -> None:
        known = self.rows.get(op.sender)
        # Another log, or the same from its begin again, is counted anew.
        goes_on = known is not None and known.identity == op.identity and known.offset <= op.offset
        before = known if goes_on and not op.whole else None
        failed = [*(before.failed if before else ()), *op.failed][-KEPT_FAILURES:]
        self.rows[op.sender] = SchemaPositionRow(
            sender=op.sender,
            identity=op.identity,
            offset=op.offset,
            mark=op.mark,
            applied=(before.applied if before else 0) + op.applied,
            unapplied=(before.unapplied if before else 0) + op.unapplied,
            failed=tuple(failed),
            created=ts if known is None else known.created,
            changed=ts,
        )
