"""Removes tables of the tree: what replaced manifests named alone, and what none ever named.

The rule of the manifests is that of the log's (`store_removal`). Tables that were put by who died
before its manifest are known by a note of its own (`unnamed_tables`); they go after the same grace.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from common import crash
from receiver.storage.stores.incarnation import check_owner
from receiver.storage.stores.store_removal import ManifestRemover
from receiver.storage.tree.tree_manifests import TreeManifest

if TYPE_CHECKING:
    from receiver.storage.tree.unnamed_tables import UnnamedTables

__all__ = ["TreeRemover"]


class TreeRemover(ManifestRemover[TreeManifest]):
    """Removes what is due, when it is called; one thread at a time."""

    _form = TreeManifest

    def __init__(self, *given: Any, unnamed: UnnamedTables, **more: Any) -> None:
        """Prepare; nothing is done before `run_once`.

        Args:
            given: see `StoreRemover`.
            unnamed: tables that this owner put, and that no manifest names yet.
            more: see `StoreRemover`.
        """
        super().__init__(*given, **more)
        self._unnamed = unnamed

    def run_once(self) -> int:
        """See `ManifestRemover`; tables that no manifest ever named are not counted."""
        count = super().run_once()
        newest = self._newest()
        if newest is not None and newest.incarnation == self._owner.number:
            self._sweep()
        return count

    def _sweep(self) -> None:
        due = self._unnamed.due(self._engine.clock.cautious() - self._grace)
        if due:
            check_owner(self._store, self._owner)
        for key in due:
            self._go_on()
            self._unnamed.remove(key, self._remove)

    def _names(self, made: TreeManifest) -> set[str]:
        return {each.key for each in made.tables}

    def _remove(self, key: str) -> None:
        self._store.remove(key)
        crash.point("storage.tree.removed")
