"""Records of the log about storage nodes that keep what others read from the object store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from receiver.metadata.model.records.record_parts import Record

__all__ = ["CACHE_SLOTS", "CacheSlotsSet"]

CACHE_SLOTS: Final = 1024
"""How many there are, for good: whoever has a file of a partition asks the node of its slot."""


class CacheSlotsSet(Record, frozen=True, tag=135):
    """From now on these nodes have these slots; readers ask them for what lies in the object store.

    Attributes:
        version: 1 for the first, and one more with each further one.
        nodes: uuids, none twice; none where no node keeps anything.
        sizes: bytes that each of them keeps, in the same order.
        owners: for each of the `CACHE_SLOTS` slots two bytes, big-endian: which of the nodes has
            it. Empty without nodes.
    """

    version: int
    nodes: Sequence[str]
    sizes: Sequence[int]
    owners: bytes
