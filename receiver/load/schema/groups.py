"""What a foreign schema says of storage groups: what is missing is made, and nothing taken away."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import UNSET

from common.formats.schemaitems import Group
from receiver.metadata.model import records
from receiver.metadata.model.paths import Nodes, format_path

if TYPE_CHECKING:
    from collections.abc import Callable

    from receiver.load.schema.authority import Authority
    from receiver.metadata.commit.draft import Draft

__all__ = ["GroupPlan", "Refused"]


class Refused(Exception):
    """An item that is not applied; the message says why."""


class GroupPlan:
    """Storage groups that are made in one commit, over those that are there."""

    def __init__(
        self, draft: Draft, authority: Authority, level: int, take: Callable[[records.Op], None]
    ) -> None:
        """Begin with none.

        Args:
            draft: of the commit.
            authority: whose word it is.
            level: nodes below root of a group that a device needs; 0 counts as 1.
            take: takes what makes a group, or sets its TTL, into the draft; raises `Refused`.
        """
        self._draft = draft
        self._authority = authority
        self._level = level or 1
        self._take = take

    def take(self, path: Nodes, item: Group) -> None:
        """Plan what an item says.

        Raises:
            Refused: it is not done.
        """
        there = self._draft.schema.group_of(path)
        if there is None:
            self._make(path)
            if isinstance(item.ttl, int):
                self._take(records.TtlSet(item.path, item.ttl))
        elif there != path:
            if self._draft.state.schema.groups.of(path) is None:
                raise Refused("it would lie in a storage group that is made with it")
            if item.ttl is not UNSET:
                raise Refused(f"it lies in storage group {format_path(there)}, which has its own")
        elif item.ttl is not UNSET:
            self._lengthen(path, item.ttl)

    def _lengthen(self, path: Nodes, ttl: int | None) -> None:
        here = self._draft.state.schema.groups.ttl(path)
        if here == ttl:
            return
        if ttl is None:
            raise Refused(f"its TTL of {here} ms is not taken away by a schema from elsewhere")
        if here is None or ttl < here:
            kept = "for ever" if here is None else f"{here} ms"
            raise Refused(f"a TTL of {ttl} ms is shorter than what is kept here ({kept})")
        self._take(records.TtlSet(format_path(path), ttl))

    def _make(self, path: Nodes) -> None:
        """Plan a storage group that is missing.

        Raises:
            Refused: it cannot be there.
        """
        why = self._authority.refusal_of_group(path)
        if why is not None:
            raise Refused(why)
        if self._draft.schema.group_below(path) is not None:
            raise Refused("a storage group lies below it already; storage groups do not nest")
        self._take(records.StorageGroupSet(format_path(path)))

    def dropped(self, path: Nodes) -> None:
        """See that a group that was deleted is not here either.

        Raises:
            Refused: it is.
        """
        if self._draft.schema.group_of(path) == path:
            raise Refused(
                "storage groups are not deleted by a schema from elsewhere; delete it here"
            )

    def need(self, device: Nodes) -> None:
        """See that a device lies in a storage group, or make one.

        Raises:
            Refused: that cannot be done.
        """
        if self._draft.schema.group_of(device) is not None:
            return
        database = device[1].startswith("/")
        self._make(device[:2] if database else device[: max(2, 1 + self._level)])
