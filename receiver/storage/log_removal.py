"""Removes manifests that were replaced `storage.grace` ago, and the copies that no other names.

The newest manifest reaches back to the begin of the history. Another one is there for who has read
it and goes by it, and in case that the newest is damaged; so it stays for the grace, and all that
it names with it. The list of the bucket only says which manifests to read: what goes is what one
that goes names, and the next in order does not (`log_shipping`: what one has left behind none
names again). It goes before the manifest that names it, so who is cut off finds it once more.

While no checkpoint of the newest manifest is good nothing goes: an older one may have to stand in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from common import crash
from common.errors import DamagedError
from receiver.storage.incarnation import check_owner
from receiver.storage.object_check import md5_of_object
from receiver.storage.object_store import ObjectMissingError
from receiver.storage.store_manifests import manifests, read_manifest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from receiver.metadata.engine import Engine
    from receiver.storage.incarnation import Incarnation
    from receiver.storage.object_store import ObjectStore
    from receiver.storage.store_manifests import FilePiece, StoreManifest

__all__ = ["LogRemover"]

_MANY = 500
"""Manifests that go in one pass, at most."""


class LogRemover:
    """Removes what is due, when it is called; one thread at a time."""

    def __init__(
        self,
        engine: Engine,
        store: ObjectStore,
        owner: Incarnation,
        *,
        grace: float,
        newest: Callable[[], StoreManifest | None],
        go_on: Callable[[], None] = lambda: None,
    ) -> None:
        """Prepare; nothing is done before `run_once`.

        Args:
            engine: the metadata engine, for its clock.
            store: where the copies are.
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
        self._good = ""

    def run_once(self) -> int:
        """Remove all that is due; returns how many manifests went.

        Raises:
            FencedError: another receiver has taken over.
            DamagedError: a manifest cannot be read, or there is no good checkpoint.
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
            gone = [key for key in sorted(_names(going)) if key not in stays]
            if any(each.piece.key in gone for each in going.checkpoints):
                self._see_a_good_one(newest)
            for key in gone:
                self._go_on()
                self._store.remove(key)
                crash.point("storage.log.removed")
            self._store.remove(going.key)
            count += 1
            if count == _MANY:
                break
        return count

    def _replaced(self, newest: StoreManifest) -> Iterator[tuple[StoreManifest, StoreManifest]]:
        """Manifests that were replaced long enough ago, the oldest first, each with the next."""
        oldest = self._engine.clock.cautious() - self._grace
        before: StoreManifest | None = None
        for found in manifests(self._store, self._owner.engine):
            # Both clocks have to say so; by which of them it came is not known.
            if found.key > newest.key or found.modified > oldest:
                return
            following = read_manifest(self._store, found.key)
            if following.key != found.key:
                raise DamagedError(f"{self._store.url}/{found.key} is the manifest {following.key}")
            if self._engine.times.seconds(following.ts) > oldest:
                return
            if before is not None:
                yield before, following
            before = following

    def _see_a_good_one(self, newest: StoreManifest) -> None:
        """See that the newest manifest has a checkpoint that is what was put."""
        for each in reversed(newest.checkpoints):
            if each.piece.key == self._good or self._is_good(each.piece):
                self._good = each.piece.key
                return
        if newest.segments[0].first_lsn > 1:
            raise DamagedError(
                f"{self._store.url}/{newest.key} names no checkpoint that is good; the older "
                "ones stay"
            )

    def _is_good(self, piece: FilePiece) -> bool:
        try:
            return md5_of_object(self._store, piece.key, piece.size) == piece.md5
        except ObjectMissingError:
            return False


def _names(manifest: StoreManifest) -> set[str]:
    return {piece.key for piece in manifest.pieces}
