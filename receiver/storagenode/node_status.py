"""What a storage node tells its operator of itself, as JSON."""

from __future__ import annotations

from common.wire import Struct
from common.wire.base import CommitTs
from receiver.heartbeats.node_wire import DirectoryRoom

__all__ = ["NODE_STATUS", "CacheStatus", "NodeStatus"]

NODE_STATUS = "/v1/node"


class CacheStatus(Struct, frozen=True, kw_only=True):
    """What a node keeps of the object store for others; the counts are since its start.

    Attributes:
        capacity: bytes that it may keep.
        used: bytes that it keeps.
        blocks: of files, and digests.
        rotten: blocks that were not what was kept, and went.
        slots: the version of the cache slots that it has heard of; 0 before the first.
        from_disk: bytes that it had.
        from_nodes: bytes that nodes had which had its slots before.
        from_store: bytes that it read in the store.
        requests: to the store.
    """

    capacity: int
    used: int
    blocks: int
    rotten: int = 0
    slots: int = 0
    from_disk: int = 0
    from_nodes: int = 0
    from_store: int = 0
    requests: int = 0


class NodeStatus(Struct, frozen=True, kw_only=True):
    """How a node is.

    Attributes:
        node: its uuid.
        instance: counts its starts.
        version: of the program.
        url: where it is called, as its master is told; empty before it listens.
        masters: those that it may speak to, the one first that it speaks to by the configuration.
        engine: that it belongs to; empty before its first registration.
        incarnation: of that engine, the highest that was seen.
        commit: the newest that was seen of it.
        heard: seconds since a master last took a heartbeat; None before the first.
        problem: why it is of no use now; None if it is.
        concerns: what is not as it should be.
        doubt: why no order is carried out that destroys something; empty if they are.
        started: when this process opened its directories, seconds since the epoch.
        tablets: that it holds.
        files: in these.
        bytes: of these.
        directories: of its data.
        uploads: files that edges send here, and that no replica has yet.
        whole_uploads: those of them that are whole, and wait for the master.
        upload_bytes: of all of them, as far as they have come.
        behind: tablets that are not known to be complete.
        rotten: files whose bytes are not those that came, until others have taken their place.
        scrubbed: when the last whole reading of all that it holds began, seconds since the epoch; 0
            for never.
        cache: what it keeps of the object store for others; None for nothing.
        troubles: what does not go on with its copies.
    """

    node: str
    instance: int
    version: str
    url: str = ""
    masters: tuple[str, ...] = ()
    engine: str = ""
    incarnation: int = 0
    commit: CommitTs = 0
    heard: float | None = None
    problem: str | None = None
    concerns: tuple[str, ...] = ()
    doubt: str = ""
    started: float = 0.0
    tablets: int = 0
    files: int = 0
    bytes: int = 0
    directories: tuple[DirectoryRoom, ...] = ()
    uploads: int = 0
    whole_uploads: int = 0
    upload_bytes: int = 0
    behind: int = 0
    rotten: int = 0
    scrubbed: float = 0.0
    cache: CacheStatus | None = None
    troubles: tuple[str, ...] = ()
