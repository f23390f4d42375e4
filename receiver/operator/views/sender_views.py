"""What operators are told of senders.

Times are seconds since the epoch, except those that are called commits, which are commit
timestamps (milliseconds << 18 | counter).
"""

from __future__ import annotations

from common.wire import Heartbeat, SchemaPosition, Struct
from common.wire.base import CommitTs

__all__ = [
    "LateView",
    "SenderView",
    "SharedLabel",
]


class SenderView(Struct, frozen=True, kw_only=True):
    """A sender as the receiver knows it.

    Attributes:
        uuid: of the sender.
        label: what it calls itself.
        directory: its folder beneath `sync-receiver`.
        epoch: number of its epoch, without the secret part; 0 before the first task.
        first_seen: commit of the first contact.
        last_task: id of its last committed task.
        last_commit: commit of that task.
        last_commit_at: when that was.
        open_task: id of a task that was started and has no end.
        loading: id of a task that is being loaded.
        trouble: why a load has to wait, if it has.
        files: of it in the catalogue, and visible.
        bytes: of those.
        quarantined: files that were refused or found bad.
        removed: whether an operator removed it.
        verified: of `files`, how many a verification has proved.
        staged_bytes: received and not loaded.
        uploads: begun and not finished.
        heartbeat: its last one.
        heartbeat_at: when that came.
        failing_since: since when its heartbeats tell of rounds that end early; None if they do not.
        clone_refused_at: when a machine under its uuid was last turned away, since another one had
            used up its epoch; None for never, and once an operator let one in.
        version: of the program there, as it said last.
        heard_at: when it was heard last, by a heartbeat or the begin of a round; None where that is
            not known (a node that only reads).
        late_after: silence, in seconds, after which it is late; 0 for never.
        late_after_own: whether that was set for it (`senders set`); else it is as configured.
        late: whether it is; None where it is not known when it was heard.
        schema: how far its schema log is applied, and what of it is not; None for nothing.
        listed: files that it has listed here; of a box that was replaced none, whatever is kept.
    """

    uuid: str
    label: str = ""
    directory: str = ""
    epoch: int = 0
    first_seen: CommitTs = 0
    last_task: str | None = None
    last_commit: CommitTs = 0
    last_commit_at: float | None = None
    open_task: str | None = None
    loading: str | None = None
    trouble: str | None = None
    files: int = 0
    bytes: int = 0
    quarantined: int = 0
    removed: bool = False
    verified: int = 0
    staged_bytes: int = 0
    uploads: int = 0
    heartbeat: Heartbeat | None = None
    heartbeat_at: float | None = None
    failing_since: float | None = None
    clone_refused_at: float | None = None
    schema: SchemaPosition | None = None
    listed: int | None = None
    version: str = ""
    heard_at: float | None = None
    late_after: float = 0.0
    late_after_own: bool = False
    late: bool | None = None


class LateView(Struct, frozen=True, kw_only=True):
    """A sender that is late: its label, and when it was heard last."""

    sender: str
    label: str = ""
    heard_at: float | None = None
    """When it was heard last; None for never."""


class SharedLabel(Struct, frozen=True, kw_only=True):
    """A label that several senders have, and their uuids."""

    label: str
    senders: tuple[str, ...]
