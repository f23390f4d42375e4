"""The snapshot key-value store: texts by key, each change with a timestamp, all of them readable.

    kv = open_kv(engine)
    ts = kv.multi_save({"a": "1"}, lambda ts: ("a/created", str(ts)))
    kv.load("a")          # as of now
    kv.load("a", ts - 1)  # as it was: KeyMissingError

Nothing of tsferry keeps its own knowledge here: it is an interface for those who embed the engine
and want keys with a past beside it. The interface is that of the metaSnapShot design; see
`SnapshotKV`. `embedded` keeps the keys in the log of the engine, `etcd_kv` in a cluster of etcd,
where other programs can read them.
"""

from receiver.metadata.model.snapshot_kv import KeyAddition, SnapshotKV

__all__ = ["KeyAddition", "SnapshotKV"]
