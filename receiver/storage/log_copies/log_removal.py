"""Removes manifests that were replaced `storage.grace` ago, and the copies that no other names.

The newest manifest reaches back to the begin of the history. Another one is there for who has read
it and goes by it, and in case that the newest is damaged; so it stays for the grace, and all that
it names with it (`store_removal` has the rule).

While no checkpoint of the newest manifest is good nothing goes: an older one may have to stand in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from common import crash
from common.errors import DamagedError
from receiver.storage.objects.object_check import md5_of_object
from receiver.storage.stores.object_store import ObjectMissingError
from receiver.storage.stores.store_manifests import StoreManifest
from receiver.storage.stores.store_removal import ManifestRemover

if TYPE_CHECKING:
    from receiver.storage.stores.store_manifests import FilePiece

__all__ = ["LogRemover"]


class LogRemover(ManifestRemover[StoreManifest]):
    """Removes what is due, when it is called; one thread at a time."""

    _form = StoreManifest
    _good = ""
    """Key of a checkpoint that was read and is what was put."""

    def _names(self, made: StoreManifest) -> set[str]:
        return {piece.key for piece in made.pieces}

    def _let_go(self, going: StoreManifest, gone: list[str], newest: StoreManifest) -> None:
        if any(each.piece.key in gone for each in going.checkpoints):
            self._see_a_good_one(newest)

    def _remove(self, key: str) -> None:
        self._store.remove(key)
        crash.point("storage.log.removed")

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
