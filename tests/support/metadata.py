"""Operations for tests of the metadata engine, and its state as plain values to compare."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

import msgspec

from common.durable import Tree
from receiver.metadata.engine import Engine
from receiver.metadata.log.frames import LOG_NAME, create_log, encode_payload
from receiver.metadata.model import records
from receiver.metadata.state.packed_file import whole
from receiver.metadata.state.state import State
from receiver.metadata.state.table_rows import FileState
from receiver.metadata.state.tables.file_tables.file_index import GroupKey

A = "aa" * 16
B = "bb" * 16
TASK = "7a" * 16


def seen(sender: str = A, label: str = "edge") -> records.SenderSeen:
    return records.SenderSeen(sender, label, f"127.0.0.1_{sender}")


def path(stem: str = "1-1-0", *, kind: str = "sequence", sg: str = "root.t", part: int = 0) -> str:
    return f"{kind}/{sg}/0/{part}/{stem}.tsfile"


def physical(logical: str, tag: int) -> str:
    return f"{logical.removesuffix('.tsfile')}.{tag:016x}.tsfile"


def digest(text: str) -> str:
    return hashlib.md5(text.encode()).hexdigest()


def load(
    logical: str | None = None,
    tag: int = 1,
    *,
    sender: str = A,
    devices: dict[str, tuple[int, int] | None] | None = None,
    content: str = "x",
    **changes: Any,
) -> records.FileLoaded:
    """A load; `devices` maps a name to (first, last), None for a device without points."""
    logical = path() if logical is None else logical
    devices = {"root.t.d1": (1, 9)} if devices is None else devices
    spans = [span for span in devices.values() if span]
    op = records.FileLoaded(
        sender=sender,
        path=logical,
        physical=physical(logical, tag),
        size=100 + len(content),
        md5=digest(content),
        tail=digest(f"tail {content}"),
        version=4,
        devices=[
            records.DeviceRange(name, *(span or (None, None))) for name, span in devices.items()
        ],
        first=min((span[0] for span in spans), default=None),
        last=max((span[1] for span in spans), default=None),
        series=len(devices),
        points=10,
        task=TASK,
    )
    return msgspec.structs.replace(op, **changes)


def token(ident: str = "t1", *, role: Any = "operator", sender: str | None = None, **changes: Any):
    hashed = hashlib.sha256(ident.encode()).hexdigest()
    op = records.TokenPut(ident, role, hashed, sender, [], "a note", None)
    return msgspec.structs.replace(op, **changes)


def plain(state: State) -> dict[str, Any]:
    """Everything a caller can see, as values that compare."""
    return {
        "uuid": state.uuid,
        "newest": state.newest,
        "listed": {uuid: state.file_table.listed.of(uuid) for uuid in state.senders},
        "senders": dict(state.senders),
        "tokens": dict(state.tokens),
        "hashes": {row.hash: state.token_table.by_hash(row.hash) for row in state.tokens.values()},
        "owners": dict(state.owners),
        "files": {key: _file(row) for key, row in state.files.items()},
        "groups": {
            key: [row.physical for row in state.file_table.group(key)]
            for key in map(GroupKey.of, state.file_table.directories())
        },
        "catalogue": [row.physical for row in state.file_table.catalogue(None, 1 << 30)],
        "orders": [
            [row.physical for row in state.file_table.among(each, None, 1 << 30)]
            for each in FileState
        ],
        "devices": [device for device, _ in state.owner_table.page(None, 1 << 30)],
        "inventories": {
            sender: [
                (row.path, row.physical)
                for row in state.file_table.inventory(sender, None, 1 << 30)
            ]
            for sender in state.senders
        },
        "uploaded": dict(state.uploaded_table.rows),
        "ended": list(state.uploaded_table.ended),
        "upload times": dict(state.upload_times.rows),
        "wanted": {
            sender: [row.physical for row in state.file_table.wanted(sender)]
            for sender in state.senders
        },
        "deleted": [row.physical for row in state.file_table.deleted()],
        "totals": {sender: state.file_table.totals(sender) for sender in state.senders},
        "verified": {sender: state.file_table.verified(sender) for sender in state.senders},
        "tables": dict(state.loaded_tables.rows),
        "tablets": dict(state.tablet_table.rows),
        "adoptions": dict(state.adoption_table.rows),
        "nodes": list(state.node_table.versions()),
        "partitions": {
            (group, each): itemgetter(0, 1, 4)(
                state.file_table.by_partition.of(group, each, each + 1)
            )
            for group in state.file_table.by_partition.groups()
            for each in state.file_table.by_partition.partitions(group)
        },
        "directories": {
            name: state.file_table.by_directory.of(name)
            for name in state.file_table.by_directory.names()
        },
        "quarantine": dict(state.quarantine),
        "tasks": {
            sender: {
                row.task: (row.commit, row.outcomes)
                for row in state.task_table
                if row.sender == sender
            }
            for sender in state.senders
        },
    }


def _file(row: Any) -> dict[str, Any]:
    fields = msgspec.structs.asdict(whole(row))
    devices = fields.pop("devices")
    return fields | {"names": devices.names(), "ranges": list(devices.ranges())}


def log_file(directory: Path) -> Path:
    return directory / "mlog-1.tsf"


def has_commit(engine: Engine, ts: int) -> bool:
    """Whether there is a commit with exactly this timestamp."""
    with engine.reading():
        engine.check_answerable(ts)
        return ts in engine.window.commits


def unjudged_log(home: Path, commits: Sequence[tuple[int, Sequence[records.Op]]]) -> None:
    """A log as 0.1.0 left it, whose timestamps followed any clock: (timestamp, operations)."""
    first = commits[0][0] - 1
    made = (first, [records.EngineMade("ee" * 16)])
    payload = encode_payload([(ts, records.encode_ops(ops)) for ts, ops in [made, *commits]])
    with Tree(home, create=True) as tree:
        create_log(tree, LOG_NAME, 1, payload)
