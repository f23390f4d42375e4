"""A file that is on no disk here: read from a storage node, the object store, or a receiver.

Nodes come first: they are there for it. The store is next, for a receiver has other things to do.
A process that has no credentials for
it, lacks what it needs, or does not reach it asks the receiver from then on, for a while. Other
bytes than were uploaded are no reason to go on: they are told of.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, NamedTuple, Protocol

from common.digests import md5
from common.errors import ConfigError, NotFoundError, TsferryError, UnreachableError
from receiver.storage.reading.block_digests import blocks_key
from receiver.storage.stores.object_store import (
    ObjectArchivedError,
    ObjectMissingError,
    StoreAwayError,
    StoreRefusedError,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from receiver.storage.reading.copy_reads import CopyReads
    from receiver.storage.reading.receiver_reads import ReceiverReads
    from receiver.storage.reading.stored_place import StoreAddress, StoredPlace
    from receiver.storage.stores.object_store import ObjectStore

__all__ = ["BlockOrigin", "FileTiers", "NoTierError", "ShutStores"]

_SHUT = 60.0
"""Seconds that a store which gave nothing is not asked again where there is a receiver."""
_MOST_SHUT = 10_000
"""Stores and objects that are remembered; then it begins anew."""


class NoTierError(UnreachableError):
    """Neither the store gives a file, nor the receiver."""

    slug = "no-tier"


class BlockOrigin(Protocol):
    """What the blocks of a file are fetched from."""

    url: str

    def read(self, key: str, offset: int, length: int) -> bytes:
        """So many bytes of an object; see `ObjectStore.read`."""
        ...


class _Shut(NamedTuple):
    until: float
    why: TsferryError


class ShutStores:
    """The stores that give this process nothing, and until when that is believed.

    Of a store that keeps an object in an archive that object alone.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._shut: dict[tuple[StoreAddress, str], _Shut] = {}
        self._lock = threading.Lock()

    def why(self, address: StoreAddress, key: str) -> TsferryError | None:
        """Why it is not to be asked for an object now; None: it is."""
        now = self._monotonic()
        with self._lock:
            found = [self._shut.get((address, each)) for each in ("", key)]
        return next((each.why for each in found if each is not None and each.until > now), None)

    def note(self, address: StoreAddress, why: TsferryError, key: str = "") -> None:
        """It gave nothing, or not this object."""
        now = self._monotonic()
        with self._lock:
            if len(self._shut) >= _MOST_SHUT:
                self._shut.clear()  # what is still to be had nowhere costs a question more
            self._shut[address, key] = _Shut(now + _SHUT, why)


class FileTiers:
    """Reads one file where it is given; see `BlockOrigin`."""

    def __init__(
        self,
        place: StoredPlace,
        store: Callable[[StoreAddress], ObjectStore],
        receiver: ReceiverReads | None,
        shut: ShutStores,
        copies: CopyReads | None = None,
    ) -> None:
        """Ask nothing yet.

        Args:
            place: of the file.
            store: opens a store, which may fail.
            receiver: that is asked then; None for none.
            shut: stores that are not to be asked.
            copies: nodes that are asked first; None for none.
        """
        self.url = receiver.url if place.store is None and receiver else place.store_url
        self._place, self._store, self._receiver, self._shut = place, store, receiver, shut
        self._copies = copies
        self._gave: set[str] = set()

    def read(self, key: str, offset: int, length: int) -> bytes:
        """See `ObjectStore.read`; the key is the file's, or that of the digests of its blocks.

        Raises:
            NoTierError: it is to be had nowhere.
            TsferryError: of the store, where there is no receiver.
        """
        if self._copies is not None and key == self._place.key:
            found = self._copies.read(self._place.physical, offset, length)
            if found is not None:
                self._gave.add(found[0])
                return found[1]
        elif self._copies is not None and self._place.blocks:
            kept = self._copies.digests(self._place.physical)
            if kept is not None and md5(kept).hexdigest() == self._place.blocks:
                return kept[offset : offset + length]
        refused: TsferryError | None = None
        address = self._place.store
        if address is not None:
            refused = None if self._receiver is None else self._shut.why(address, key)
            if refused is None:
                try:
                    return self._store(address).read(key, offset, length)
                except ObjectArchivedError as error:  # of this one object, for hours
                    if self._receiver is None:
                        raise
                    self._shut.note(address, error, key)
                    refused = error
                except (StoreRefusedError, StoreAwayError, ConfigError) as error:
                    if self._receiver is None:
                        raise
                    self._shut.note(address, error)
                    refused = error
                except ObjectMissingError as error:  # of this one object
                    if self._receiver is None:
                        raise
                    refused = error
        return self._of_receiver(key, offset, length, refused)

    def distrust(self) -> bool:
        """What was read is not what the file has; whether it may be read once more.

        Nodes that gave of it are not asked for this file for a while; of other tiers it is told.
        """
        if self._copies is None or not self._gave:
            return False
        for url in self._gave:
            self._copies.distrust(url, self._place.physical)
        self._gave.clear()
        return True

    def told_digests(self) -> bytes | None:
        """Packed digests of the file's blocks, of the receiver where it is what is read.

        For a file whose row vouches for none. A store that can be read is read without them.
        """
        if self._receiver is None:
            return None
        if self._copies is not None and self._copies.read(self._place.physical, 0, 1) is not None:
            try:
                return self._receiver.digests(self._place.physical)
            except (TsferryError, OSError):
                return None  # it is read whole then, and has its MD5
        address = self._place.store
        if address is not None:
            key = self._place.key
            if self._shut.why(address, key) is None:
                self.read(key, 0, 1)  # the way there is known by going it
            if self._shut.why(address, key) is None:
                return None
        return self._of_receiver(blocks_key(self._place.key), 0, 1 << 30, None)

    def _of_receiver(
        self, key: str, offset: int, length: int, refused: TsferryError | None
    ) -> bytes:
        assert self._receiver is not None
        try:
            if key == self._place.key:
                return self._receiver.read(self._place.physical, offset, length)
            return self._receiver.digests(self._place.physical)[offset : offset + length]
        except (TsferryError, OSError) as error:
            if refused is None:
                raise
            said = error.message if isinstance(error, TsferryError) else str(error)
            kind = NotFoundError if _missing(refused) and _missing(error) else NoTierError
            raise kind(f"{refused.message}; and not from the receiver: {said}") from error


def _missing(error: Exception) -> bool:
    return isinstance(error, NotFoundError)
