"""Which node has which cache slot, and which slot a file is in: pure functions.

By rendezvous: each node draws a number for each slot, and the one with the best has it, where a
node that keeps twice as much wins twice as often. What a node draws hangs on nothing but the node
and the slot, so one that comes takes its share and one that goes gives its own away, and no slot
goes from one node that stays to another.

Source: Thaler, Ravishankar, *Using name-based mappings to increase hit rates* (1998); weights as in
Schindelhauer, Schomaker, *Weighted distributed hash tables* (2005): -ln(u) / weight, the least.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from common.digests import xxh3_64
from receiver.metadata.model.records.cache_records import CACHE_SLOTS

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["owners_of", "rendezvous", "slot_of"]


def slot_of(group: str, partition: int) -> int:
    """The slot of all files of a partition: the tag that is hashed in place of their keys.

    Args:
        group: storage group, or database.
        partition: its number.
    """
    tag = f"{partition}\n{group}".encode("utf-8", "surrogatepass")
    return int(xxh3_64(tag), 16) % CACHE_SLOTS


def rendezvous(what: str, weights: Mapping[str, int]) -> str:
    """The one of some names that something belongs to.

    Args:
        what: it.
        weights: of each name, above 0; one at least.
    """
    return min(weights, key=lambda name: (_drawn(what, name) / weights[name], name))


def _drawn(what: str, name: str) -> float:
    number = int(xxh3_64(f"{what}\n{name}".encode("utf-8", "surrogatepass")), 16)
    return -math.log((number + 1) / (1 << 64))


def owners_of(weights: Mapping[str, int]) -> tuple[list[str], bytes]:
    """Nodes in order, and the owners of all slots as `records.CacheSlotsSet` has them.

    Args:
        weights: bytes that each node keeps, by its uuid, above 0.
    """
    nodes = sorted(weights)
    if not nodes:
        return [], b""
    numbers = {node: at.to_bytes(2) for at, node in enumerate(nodes)}
    return nodes, b"".join(
        numbers[rendezvous(f"slot {slot}", weights)] for slot in range(CACHE_SLOTS)
    )
