"""When `backup` last copied everything: `backup.json` in the schema directory, for `status`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from common.decoders import from_json
from common.durable import Tree
from common.errors import TsferryError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["BackupNote", "read_backup_note", "write_backup_note"]

BACKUP_FILE: Final = "backup.json"


class BackupNote(msgspec.Struct, frozen=True, kw_only=True):
    """The last backup that had everything.

    Attributes:
        at: when it ended, seconds since the epoch, by the clock of the machine.
        commit: that it has.
        directory: where it is.
    """

    at: float
    commit: int
    directory: str


def write_backup_note(schema_dir: Path, note: BackupNote) -> None:
    """Keep it; durable on return.

    Raises:
        TsferryError, OSError: it cannot be written.
    """
    with Tree(schema_dir) as tree:
        tree.write_atomic(BACKUP_FILE, msgspec.json.encode(note))


def read_backup_note(schema_dir: Path) -> BackupNote | None:
    """What was kept; None for nothing, or what cannot be read."""
    try:
        with Tree(schema_dir) as tree:
            return from_json(tree.read(BACKUP_FILE), BackupNote)
    except (TsferryError, OSError, ValueError, RecursionError):
        return None
