"""The stores and receivers that this process reads, each opened once; memory and threads for it.

Credentials are those of the process's own environment. What is opened stays open for the life of
the process: workers of Spark read one file after the other, of the same store.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from receiver.storage.reading.block_cache import BlockCache
from receiver.storage.reading.file_tiers import FileTiers, ShutStores
from receiver.storage.reading.ranged_file import RangedFile
from receiver.storage.stores.store_opening import StoreOptions, open_store

if TYPE_CHECKING:
    from collections.abc import Callable

    from receiver.storage.reading.copy_reads import CopyReads
    from receiver.storage.reading.file_tiers import BlockOrigin
    from receiver.storage.reading.receiver_reads import ReceiverReads
    from receiver.storage.reading.stored_place import (
        ReceiverAddress,
        StoreAddress,
        StoredPlace,
    )
    from receiver.storage.stores.object_store import ObjectStore

__all__ = ["OpenStores", "of_process", "opened_at"]

_CACHE = 128 << 20
"""docs/storage.md, *Reading from the store*, has what it brings."""
_THREADS = 16


class OpenStores:
    """Stores by their addresses.

    Attributes:
        cache: the memory of all readers.
        pool: threads that fetch ahead.
    """

    def __init__(self, capacity: int = _CACHE) -> None:
        """Open none yet; `capacity` are the bytes of the memory."""
        self.cache = BlockCache(capacity)
        self.pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="ahead")
        self._stores: dict[StoreAddress, ObjectStore] = {}
        self._receivers: dict[ReceiverAddress, ReceiverReads] = {}
        self._copies: dict[ReceiverAddress, CopyReads] = {}
        self._tokens: dict[str, str] = {}
        self._shut = ShutStores()
        self._lock = threading.Lock()

    def give_token(self, url: str, token: str | None) -> None:
        """Read from a receiver by this token, in this process, in place of its environment's."""
        with self._lock:
            if token is not None:
                self._tokens[url] = token

    def file(self, place: StoredPlace, *, together: int = 1) -> RangedFile:
        """A reader of a file.

        Args:
            place: of the file.
            together: how many are read at once, of which each has its part of the memory.

        Raises:
            ConfigError: the address means no store, or what it needs is not installed.
            StoreRefusedError: there is no such directory, or no region is known.
            UsageError: there is no way to the receiver that would keep a token secret.
        """
        origin, told = self._origin(place)
        distrust = origin.distrust if isinstance(origin, FileTiers) else lambda: False
        return RangedFile(
            origin,
            place,
            self.cache,
            self.pool,
            together=together,
            told=told,
            distrust=distrust,
        )

    def store(self, address: StoreAddress) -> ObjectStore:
        """A store, which stays open; raises as `opened_at`."""
        with self._lock:
            if address not in self._stores:
                self._stores[address] = opened_at(address)
            return self._stores[address]

    def close(self) -> None:
        """Let go of all of it; who reads is done."""
        self.pool.shutdown(wait=True)
        with self._lock:
            for store in self._stores.values():
                store.close()
            for receiver in self._receivers.values():
                receiver.close()
            for copies in self._copies.values():
                copies.close()
            self._copies.clear()
            self._stores.clear()
            self._receivers.clear()

    def _origin(self, place: StoredPlace) -> tuple[BlockOrigin, Callable[[], bytes | None] | None]:
        if place.receiver is None:
            assert place.store is not None
            return self.store(place.store), None
        asked = self._asked(place.receiver)
        copies = self._copied(place.receiver, asked)
        tiers = FileTiers(place, self.store, asked, self._shut, copies)
        return tiers, tiers.told_digests

    def _asked(self, address: ReceiverAddress) -> ReceiverReads:
        # Only here: who reads a store alone does without it.
        from receiver.storage.reading.receiver_reads import ReceiverReads

        with self._lock:
            if address not in self._receivers:
                token = self._tokens.get(address.url)
                self._receivers[address] = ReceiverReads(address, token)
            return self._receivers[address]

    def _copied(self, address: ReceiverAddress, receiver: ReceiverReads) -> CopyReads:
        from receiver.storage.reading.copy_reads import CopyReads

        with self._lock:
            if address not in self._copies:
                self._copies[address] = CopyReads(receiver, address.ca_cert)
            return self._copies[address]


def opened_at(address: StoreAddress) -> ObjectStore:
    """Open a store, by the credentials of this process; the caller closes it.

    Raises:
        ConfigError: the address means no store, or what it needs is not installed.
        StoreRefusedError: there is no such directory, or no region is known.
    """
    options = StoreOptions(
        endpoint=address.endpoint,
        region=address.region,
        profile=_known(address.profile),
        path_style=address.path_style,
    )
    return open_store(address.url, options)


def _known(profile: str | None) -> str | None:
    """A profile, if this machine has one of its name; others have credentials elsewhere."""
    if profile is None:
        return None
    try:
        from botocore.session import Session
    except ImportError:
        return None  # opening the store says what is missing
    return profile if profile in Session().available_profiles else None


of_process = OpenStores()
"""Those of this process; nothing is opened before it is needed."""
