"""What removes something of a store: as the owner, behind a grace, and never by a list alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Generic, TypeVar

from receiver.storage.stores.incarnation import check_owner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from receiver.metadata.engine import Engine
    from receiver.storage.stores.incarnation import Incarnation
    from receiver.storage.stores.numbered_manifest import NumberedManifest
    from receiver.storage.stores.object_store import ObjectStore

__all__ = ["ManifestRemover", "StoreRemover"]

_MANY = 500
"""Manifests that go in one pass, at most."""


_M = TypeVar("_M", bound="NumberedManifest")


class StoreRemover(Generic[_M]):
    """Removes what is due, when it is called; one thread at a time."""

    def __init__(
        self,
        engine: Engine,
        store: ObjectStore,
        owner: Incarnation,
        *,
        grace: float,
        newest: Callable[[], _M | None],
        go_on: Callable[[], None] = lambda: None,
    ) -> None:
        """Prepare; nothing is done before it is called.

        Args:
            engine: the metadata engine, for its clock.
            store: where the objects are.
            owner: who removes them.
            grace: seconds that what nobody needs any more stays.
            newest: gives the newest manifest in the store.
            go_on: called before each removal; may raise to stop.
        """
        self._engine = engine
        self._store = store
        self._owner = owner
        self._grace = grace
        self._newest = newest
        self._go_on = go_on


class ManifestRemover(StoreRemover[_M], ABC):
    """Removes manifests that were replaced `storage.grace` ago, and what no other names.

    A list of the bucket only says which manifests to read: what goes is what one that goes names,
    and neither the next nor the newest does, for what one has left behind none names again. It goes
    before the manifest that names it, so who is cut off finds it once more.
    """

    _form: type[_M]

    def run_once(self) -> int:
        """Remove all that is due; returns how many manifests went.

        Raises:
            FencedError: another receiver has taken over.
            DamagedError: a manifest cannot be read, or what is needed to let others go is damaged.
            StoreAwayError, StoreRefusedError: of the store.
        """
        newest = self._newest()
        if newest is None or newest.incarnation != self._owner.number:
            return 0
        count = 0
        for going, following in self._replaced(newest):
            if not count:
                check_owner(self._store, self._owner)
            stays = self._names(following) | self._names(newest)
            gone = sorted(self._names(going) - stays)
            self._let_go(going, gone, newest)
            for key in gone:
                self._go_on()
                self._remove(key)
            self._store.remove(going.key)
            count += 1
            if count == _MANY:
                break
        return count

    def _replaced(self, newest: _M) -> Iterator[tuple[_M, _M]]:
        """Manifests that were replaced long enough ago, the oldest first, each with the next."""
        oldest = self._engine.clock.cautious() - self._grace
        before: _M | None = None
        for found in self._form.listed(self._store, self._owner.engine):
            # Both clocks have to say so; by which of them it came is not known.
            if found.key > newest.key or found.modified > oldest:
                return
            following = self._form.read(self._store, found.key)
            if self._engine.times.seconds(following.ts) > oldest:
                return
            if before is not None:
                yield before, following
            before = following

    @abstractmethod
    def _names(self, made: _M) -> set[str]:
        """Keys of all that a manifest names."""

    def _let_go(self, going: _M, gone: list[str], newest: _M) -> None:
        """See that objects which a manifest alone names may go; what is raised keeps them."""

    @abstractmethod
    def _remove(self, key: str) -> None:
        """Remove an object."""
