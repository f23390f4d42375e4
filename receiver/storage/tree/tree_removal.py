"""Removes manifests of the tree that were replaced `storage.grace` ago, and what no other names.

The rule is that of the log's (`log_removal`): a list of the bucket only says which manifests to
read. What goes is what one that goes names, and neither the next nor the newest does, for what one
has left behind none names again. Tables go before the manifest that names them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from common import crash
from receiver.storage.incarnation import check_owner
from receiver.storage.tree.tree_manifests import read_tree, tree_manifests

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from receiver.metadata.engine import Engine
    from receiver.storage.incarnation import Incarnation
    from receiver.storage.object_store import ObjectStore
    from receiver.storage.tree.tree_manifests import TreeManifest

__all__ = ["TreeRemover"]

_MANY = 500
"""Manifests that go in one pass, at most."""


class TreeRemover:
    """Removes what is due, when it is called; one thread at a time."""

    def __init__(
        self,
        engine: Engine,
        store: ObjectStore,
        owner: Incarnation,
        *,
        grace: float,
        newest: Callable[[], TreeManifest | None],
        go_on: Callable[[], None] = lambda: None,
    ) -> None:
        """Prepare; nothing is done before `run_once`.

        Args:
            engine: the metadata engine, for its clock.
            store: where the tables are.
            owner: who removes them.
            grace: seconds that a manifest stays when there is a newer one.
            newest: gives the newest manifest in the store.
            go_on: called before each removal; may raise to stop.
        """
        self._engine = engine
        self._store = store
        self._owner = owner
        self._grace = grace
        self._newest = newest
        self._go_on = go_on

    def run_once(self) -> int:
        """Remove all that is due; returns how many manifests went.

        Raises:
            FencedError: another receiver has taken over.
            DamagedError: a manifest cannot be read.
            StoreAwayError, StoreRefusedError: of the store.
        """
        newest = self._newest()
        if newest is None or newest.incarnation != self._owner.number:
            return 0
        count = 0
        for going, following in self._replaced(newest):
            if not count:
                check_owner(self._store, self._owner)
            stays = _names(following) | _names(newest)
            for key in sorted(_names(going) - stays):
                self._go_on()
                self._store.remove(key)
                crash.point("storage.tree.removed")
            self._store.remove(going.key)
            count += 1
            if count == _MANY:
                break
        return count

    def _replaced(self, newest: TreeManifest) -> Iterator[tuple[TreeManifest, TreeManifest]]:
        """Manifests that were replaced long enough ago, the oldest first, each with the next."""
        oldest = self._engine.clock.cautious() - self._grace
        before: TreeManifest | None = None
        for found in tree_manifests(self._store, self._owner.engine):
            # Both clocks have to say so; by which of them it came is not known.
            if found.key > newest.key or found.modified > oldest:
                return
            following = read_tree(self._store, found.key)
            if self._engine.times.seconds(following.ts) > oldest:
                return
            if before is not None:
                yield before, following
            before = following


def _names(manifest: TreeManifest) -> set[str]:
    return {each.key for each in manifest.tables}
