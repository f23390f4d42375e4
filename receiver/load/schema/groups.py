"""What a foreign schema says of storage groups: what is missing is made, and nothing taken away."""

from __future__ import annotations

from typing import TYPE_CHECKING

from common.schemaitems import UNSET, Group
from receiver.metadata.model import records
from receiver.metadata.model.paths import Nodes, format_path

if TYPE_CHECKING:
    from receiver.load.schema.authority import Authority
    from receiver.metadata.schema import Schema

__all__ = ["GroupPlan", "Refused"]


class Refused(Exception):
    """An item that is not applied; the message says why."""


class GroupPlan:
    """Storage groups that are made in one commit, over those that are there.

    Attributes:
        ops: that make them, and set their TTL.
    """

    def __init__(self, schema: Schema, authority: Authority, level: int) -> None:
        """Begin with none.

        Args:
            schema: committed.
            authority: whose word it is.
            level: nodes below root of a group that a device needs; 0 counts as 1.
        """
        self._schema = schema
        self._authority = authority
        self._level = level or 1
        self._made: dict[Nodes, None] = {}
        self._above: set[Nodes] = set()
        self.ops: list[records.Op] = []

    def take(self, path: Nodes, item: Group) -> None:
        """Plan what an item says.

        Raises:
            Refused: it is not done.
        """
        there = self._schema.storage_group_of(path)
        if there is None:
            self._make(path)
            if isinstance(item.ttl, int):
                self.ops.append(records.TtlSet(item.path, item.ttl))
        elif there != path:
            if item.ttl is not UNSET:
                raise Refused(f"it lies in storage group {format_path(there)}, which has its own")
        elif item.ttl is not UNSET:
            self._lengthen(path, item.ttl)

    def _lengthen(self, path: Nodes, ttl: int | None) -> None:
        here = self._schema.ttl(path)
        if here == ttl:
            return
        if ttl is None:
            raise Refused(f"its TTL of {here} ms is not taken away by a schema from elsewhere")
        if here is None or ttl < here:
            kept = "for ever" if here is None else f"{here} ms"
            raise Refused(f"a TTL of {ttl} ms is shorter than what is kept here ({kept})")
        self.ops.append(records.TtlSet(format_path(path), ttl))

    def _make(self, path: Nodes) -> None:
        """Plan a storage group that is missing.

        Raises:
            Refused: it cannot be there.
        """
        if path in self._made:
            return
        why = self._authority.refusal_of_group(path)
        if why is not None:
            raise Refused(why)
        if any(path[:depth] in self._made for depth in range(2, len(path))):
            raise Refused("it would lie in a storage group that is made with it")
        if path in self._above or self._schema.has_storage_group_below(path):
            raise Refused("a storage group lies below it already; storage groups do not nest")
        self._made[path] = None
        self._above.update(path[:depth] for depth in range(1, len(path)))
        self.ops.append(records.StorageGroupSet(format_path(path)))

    def dropped(self, path: Nodes) -> None:
        """See that a group that was deleted is not here either.

        Raises:
            Refused: it is.
        """
        if self._schema.storage_group_of(path) == path:
            raise Refused(
                "storage groups are not deleted by a schema from elsewhere; delete it here"
            )

    def need(self, device: Nodes) -> None:
        """See that a device lies in a storage group, or make one.

        Raises:
            Refused: that cannot be done.
        """
        if self._schema.storage_group_of(device) is not None:
            return
        if any(device[:depth] in self._made for depth in range(2, len(device) + 1)):
            return
        database = device[1].startswith("/")
        self._make(device[:2] if database else device[: max(2, 1 + self._level)])
