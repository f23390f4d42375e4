"""The room of a master's disks where there is no object store: nodes have what leaves them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from common.durable import Closing
from receiver.storage.cache.disk_room import DiskRoom
from receiver.storage.cache.object_fetching import sweep_fetched
from receiver.storage.copy_jobs import CopyJobs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from common.durable import Tree
    from receiver.config import StorageConfig
    from receiver.eviction_place import EvictionPlace
    from receiver.metadata.engine import Engine
    from receiver.storage.cache.file_fetching import FetchSource
    from receiver.storage.stores.store_trouble import StoreTrouble

__all__ = ["NodeRoom"]

_ROOM: Final = "room"


class NodeRoom(Closing):
    """Makes room in the background, from `start` to `close`, where there is a capacity.

    Attributes:
        disk_room: of the data directories.
    """

    def __init__(
        self,
        config: StorageConfig,
        engine: Engine,
        trees: Callable[[], Sequence[Tree]],
        source: FetchSource,
        places: Sequence[EvictionPlace],
        *,
        takes: Callable[[Tree], bool] = lambda _: True,
    ) -> None:
        """Prepare.

        Args:
            config: how much room there is.
            engine: the metadata engine.
            trees: gives the data directories that count now.
            source: gives files back.
            places: that have what leaves; none where nothing does.
            takes: whether new files may come to a data directory.
        """
        self._trees = trees
        self._is_limited = config.capacity is not None
        self._jobs = CopyJobs((_ROOM,))
        self.disk_room = DiskRoom(
            config,
            engine,
            trees,
            [source],
            places,
            takes=takes,
            hurry=lambda: self._jobs.hurry(_ROOM),
        )

    def start(self) -> None:
        """Begin; whoever calls holds the engine's lock."""
        for tree in self._trees():
            sweep_fetched(tree)
        if self._is_limited:
            self._jobs.start({_ROOM: self.disk_room.evict})

    def trouble(self) -> StoreTrouble | None:
        """Why no room is made, None if nothing is in the way."""
        return self._jobs.trouble()

    def close(self) -> None:
        """Stop."""
        self._jobs.halt()
        self.disk_room.halt()
        self._jobs.join()
