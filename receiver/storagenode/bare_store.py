"""The store of a node that holds no tablets: what it reports until a master places some there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from receiver.heartbeats.node_wire import ChangedTablets, HeldTablets

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["BareStore"]


class BareStore:
    """Nothing; see `HoldsTablets`."""

    def held(self) -> HeldTablets:
        """No tablets."""
        return HeldTablets(0, ())

    def changed_since(self, sequence: int, most: int) -> ChangedTablets | None:
        """Nothing ever changes."""
        return ChangedTablets(sequence, (), ()) if most > 0 else None

    def notify(self, changed: Callable[[], None]) -> None:
        """Nobody is ever called."""
