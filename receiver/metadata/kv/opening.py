"""The key-value store that a configuration asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from receiver.metadata.etcd.gateway import EtcdClient
from receiver.metadata.kv.embedded import EmbeddedKV
from receiver.metadata.kv.etcd_kv import EtcdKV

if TYPE_CHECKING:
    from receiver.metadata.engine import Engine
    from receiver.metadata.etcd.gateway import EtcdSettings
    from receiver.metadata.model.snapshot_kv import SnapshotKV

__all__ = ["open_kv"]


def open_kv(engine: Engine, etcd: EtcdSettings | None = None) -> SnapshotKV:
    """The store in the log of an engine, or one in etcd that several processes share.

    Args:
        engine: its options say how long the ring is.
        etcd: how to reach the cluster; the keys stand beneath `<prefix>/keys`, apart from the log.
    """
    if etcd is None:
        return EmbeddedKV(engine)
    prefix = f"{etcd.prefix.rstrip('/')}/keys"
    return EtcdKV(EtcdClient(etcd), prefix, ring=engine.options.kv_ring)
