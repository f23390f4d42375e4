"""The rules of storage nodes: numbers of starts never go down, and words are said once.

They hold whoever commits, so what an older start of a node, or a clone of it, still has to tell is
refused however late it comes.
"""

from __future__ import annotations

import re
from typing import Final

from msgspec.structs import replace

from receiver.metadata.commit.judging.record_checks import SIGNED_64, refusal_of
from receiver.metadata.model import records
from receiver.metadata.state.tables.place_tables.storage_nodes import StorageNodeRow

__all__ = ["check_drained", "check_moved", "check_registered", "check_word"]

_UUID: Final = re.compile(r"[0-9a-f]{32}\Z")
_LONGEST: Final = 4096
"""Characters of a name, as of a path."""
_MOST_ADDRESSES: Final = 16


def check_registered(op: records.NodeRegistered, row: StorageNodeRow | None) -> StorageNodeRow:
    """Refuse a node that is none, or an older start of one; returns what the row comes to be.

    Args:
        op: the record.
        row: of the node before it, None if it is new.
    """
    if _UUID.match(op.uuid) is None:
        raise refusal_of(op, f"{op.uuid!a} is no node")
    names = (op.name, op.host, *op.addresses)
    if not op.name or len(op.addresses) > _MOST_ADDRESSES or max(map(len, names)) > _LONGEST:
        raise refusal_of(op, f"{op.name[:80]!a} on {op.host[:80]!a} is no name of a node")
    if op.boot and _UUID.match(op.boot) is None:
        raise refusal_of(op, f"{op.boot[:80]!a} is no id of a start")
    if not 0 < op.instance < SIGNED_64.stop:
        raise refusal_of(op, f"{op.instance} is no number of a start")
    before = 0 if row is None else row.instance
    if op.instance < before:
        raise refusal_of(op, f"start {op.instance} of {op.uuid} is older than {before}")
    if row is not None and row.kind != op.kind:
        raise refusal_of(op, f"{op.uuid} is a node of kind {row.kind}")
    addresses = tuple(op.addresses)
    if row is not None:
        return replace(
            row,
            name=op.name,
            host=op.host,
            instance=op.instance,
            addresses=addresses,
            boot=op.boot,
        )
    return StorageNodeRow(
        uuid=op.uuid,
        kind=op.kind,
        name=op.name,
        host=op.host,
        instance=op.instance,
        addresses=addresses,
        boot=op.boot,
        created=0,
        changed=0,
    )


def check_word(
    op: records.NodeDraining | records.NodeLost, row: StorageNodeRow | None
) -> StorageNodeRow:
    """Refuse a word on a node that is not there, or that was said already."""
    if row is None:
        raise refusal_of(op, f"there is no node {op.uuid!a}")
    field = "draining" if isinstance(op, records.NodeDraining) else "lost"
    wanted = op.draining if isinstance(op, records.NodeDraining) else op.lost
    if bool(getattr(row, field)) == wanted:
        raise refusal_of(op, f"{row.name} is {'' if wanted else 'not '}{field} already")
    return replace(row, **{field: int(wanted)})


def check_drained(op: records.FileMoved, row: StorageNodeRow | None) -> None:
    """Refuse a move off a node that is not drained any more."""
    if row is None or not row.draining or row.lost or row.kind != "directory":
        raise refusal_of(op, f"{op.node!a} is no directory that is drained")
    if not op.data_dir or op.data_dir == row.name:
        raise refusal_of(op, f"{op.data_dir!a} is no other directory")


def check_moved(
    op: records.FileMoved, size: int, md5: str, resource: records.ResourceMeta | None
) -> None:
    """Refuse a copy of other bytes than the catalogue has now.

    Args:
        op: the record.
        size: of the file.
        md5: of it.
        resource: that it has, as the catalogue tells.
    """
    if (op.size, op.md5) != (size, md5):
        raise refusal_of(op, f"{op.physical} has other bytes than were copied")
    told = "" if resource is None else resource.md5
    if op.resource is not None and op.resource != told:
        raise refusal_of(op, f"{op.physical} has another resource than was copied")
