"""Who this engine is in the store, and the copies of its log that it goes on with.

With its log in etcd a machine that is new, or whose directory was made anew, goes on by itself as
the next incarnation: etcd lets one process at a time write, and remembers who it is in the store.
The frames of the log go to etcd first, so the copies may lack some and never have more; where they
do, etcd was turned back, and nobody goes on without an operator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from common.errors import BusyError, ConflictError
from receiver.storage.log_copies.log_shipping import ForkedLogError, LogShipper
from receiver.storage.stores.incarnation import own_incarnation, succeed
from receiver.storage.stores.store_manifests import StoreManifest

if TYPE_CHECKING:
    from common.durable import Tree
    from receiver.metadata.engine import Engine
    from receiver.storage.stores.incarnation import Incarnation
    from receiver.storage.stores.object_store import ObjectStore

__all__ = ["claim_log", "put_fork"]

_TRIES = 5


def claim_log(
    engine: Engine, store: ObjectStore, home: Tree, *, restored: int = 0
) -> tuple[Incarnation, LogShipper]:
    """Become, or stay, the owner of the copies.

    Args:
        engine: open for writing.
        store: whose prefix is this engine's.
        home: the schema directory.
        restored: LSN up to which the directory was made of the copies just now.

    Raises:
        FencedError: another receiver has taken over; without etcd also: this directory is not what
            was copied.
        ConflictError: the copies have commits that etcd lacks.
        StoreAwayError, StoreRefusedError: of the store.
        UnreachableError: etcd does not answer.
    """
    notes, shared = engine.notes, restored

    def look() -> None:
        nonlocal shared
        newest = StoreManifest.newest(store, engine.uuid)
        if newest is None:
            return
        if newest.lsn > engine.published().lsn or engine.timestamp_of(newest.lsn) not in (
            None,  # before the history that is kept
            newest.ts,
        ):
            raise ConflictError(
                f"{store.url} has commits up to LSN {newest.lsn} that are not in etcd: etcd was "
                "turned back. If they are to be given up: `tsferry-receiver storage takeover`"
            )
        shared = newest.lsn

    owner = own_incarnation(store, home, engine.uuid, notes=notes, succeeds=look)
    try:
        return owner, LogShipper(engine.published, home, store, owner, shared=shared)
    except ForkedLogError:
        if notes is None:
            raise
    look()
    owner = succeed(store, home, owner, notes)
    return owner, LogShipper(engine.published, home, store, owner, shared=shared)


def put_fork(engine: Engine, store: ObjectStore, home: Tree, *, restored: int) -> None:
    """Have a restored directory in the store as the history that goes on from there.

    Until that is there, the newest copies are those of before: a machine that was lost would come
    back with what its restore had left out.

    Args:
        engine: open for writing.
        store: that it was restored from.
        home: the schema directory.
        restored: LSN up to which it was made of the copies.

    Raises:
        BusyError: the log was cut under every try.
    """
    _, shipper = claim_log(engine, store, home, restored=restored)
    for _ in range(_TRIES):
        try:
            shipper.ship()
        except FileNotFoundError:
            continue  # a checkpoint was made, and what it stands for has gone
        return
    raise BusyError(f"{home.path}: its files went under each of {_TRIES} looks; say it again")
