"""The rule of cache slots: each version follows the one before, and every slot has a node of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from receiver.metadata.commit.judging.record_checks import SIGNED_64, refusal_of
from receiver.metadata.model.records.cache_records import CACHE_SLOTS

if TYPE_CHECKING:
    from receiver.metadata.model import records

__all__ = ["check_cache_slots"]


def check_cache_slots(op: records.CacheSlotsSet, version: int) -> None:
    """Refuse slots that do not follow those of `version`, 0 for none.

    So of two that were made of the same one only the first is committed.
    """
    if op.version != version + 1 or op.version not in SIGNED_64:
        raise refusal_of(op, f"the cache slots are of version {version}")
    if len(set(op.nodes)) != len(op.nodes) or len(op.sizes) != len(op.nodes):
        raise refusal_of(op, "a node is there twice, or without its size")
    if not all(0 < each < SIGNED_64.stop for each in op.sizes):
        raise refusal_of(op, "a node keeps nothing")
    if len(op.owners) != (2 * CACHE_SLOTS if op.nodes else 0):
        raise refusal_of(op, f"{len(op.owners)} bytes are not the owners of {CACHE_SLOTS} slots")
    if op.nodes and max(_numbers(op.owners)) >= len(op.nodes):
        raise refusal_of(op, "a slot has a node that is none of them")


def _numbers(owners: bytes) -> list[int]:
    return [int.from_bytes(owners[at : at + 2]) for at in range(0, len(owners), 2)]
