"""How much may come: what is free on the disks, what loaded files may take, what was refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from common.durable import free_bytes

if TYPE_CHECKING:
    from common.durable import Tree
    from receiver.datadirs.disks import Disks
    from receiver.load.folder.sender_folder import Folders, SenderFolder

__all__ = ["IncomingSpace", "RoomKeeper"]


class RoomKeeper(Protocol):
    """Keeps what loaded files take within a limit."""

    def room(self) -> int | None:
        """Bytes that they may take more, None for any number."""
        ...

    def make_room(self, size: int) -> None:
        """So many bytes were turned away."""
        ...


class _Shortage(NamedTuple):
    """Most bytes that a sender was refused together, for the disk and for its quota.

    `room` is what those for the disk take there.
    """

    free: int
    room: int
    quota: int


class IncomingSpace:
    """Space for files that come; any thread may ask.

    Attributes:
        cache: limits what loaded files may take; None without an object store.
    """

    def __init__(self, disks: Disks, folders: Folders, *, keep_free: int) -> None:
        """Prepare.

        Args:
            disks: the data directories.
            folders: of the senders.
            keep_free: bytes of a disk that stay free.
        """
        self.cache: RoomKeeper | None = None
        self._disks = disks
        self._folders = folders
        self._keep_free = keep_free
        self._shortages: dict[str, _Shortage] = {}

    def free_bytes(self, folder: SenderFolder | None = None) -> int:
        """Bytes that are free for new files: of a sender, or in the roomiest directory.

        Raises:
            AwayError: the directory that they go to is away.
        """
        if folder is None:
            return free_bytes(self._disks.roomiest().path)
        self._disks.check(folder.tree)
        return free_bytes(folder.tree.path)

    def room(self, folder: SenderFolder | None = None) -> int:
        """Bytes that may be received now.

        Args:
            folder: of who sends them; of a new sender, if left out.

        Raises:
            AwayError: the directory that they go to is away.
        """
        free = self.free_bytes(folder) - self._keep_free
        cache = self._cache_room()
        return free if cache is None else min(free, cache)

    def is_pressed(self) -> bool:
        """Whether space is so short that what is superseded has to make room."""
        return self.free_bytes() < 2 * self._keep_free

    def is_short(self, tree: Tree) -> bool:
        """Whether a data directory has so little room that folders leave it."""
        return free_bytes(tree.path) < 2 * self._keep_free

    def _cache_room(self) -> int | None:
        """What loaded files may take more, with those that wait to be loaded; None for any."""
        room = None if self.cache is None else self.cache.room()
        if room is None:
            return None
        return max(0, room - self._staged_room())

    def _staged_room(self) -> int:
        """What waits to be loaded takes of it, and is not counted with what is."""
        return sum(folder.staged.allocated for folder in self._folders.all())

    # -- what was refused --------------------------------------------------------------------

    def note_shortage(self, uuid: str, *, free: int = 0, room: int = 0, quota: int = 0) -> None:
        """Remember that files of a sender were refused for want of space.

        Args:
            uuid: of the sender.
            free: most bytes, of one or of those that go together, that the disk has no room for.
            room: what these take there.
            quota: most bytes of one that are more than this sender may have waiting here.
        """
        room = max(free, room)
        if free or quota:
            seen = self._shortages.get(uuid, _Shortage(0, 0, 0))
            self._shortages[uuid] = _Shortage(
                max(free, seen.free), max(room, seen.room), max(quota, seen.quota)
            )
        if free:
            self.make_room(room)

    def make_room(self, size: int) -> None:
        """So many bytes were refused: what may leave the disk has to."""
        if self.cache is not None:
            self.cache.make_room(size + self._staged_room())

    def forget_shortage(self, uuid: str) -> None:
        """A sender asks anew."""
        self._shortages.pop(uuid, None)

    def note_taken(self, uuid: str, size: int) -> None:
        """A file of a sender was let in: what was refused before for less is past."""
        seen = self._shortages.get(uuid)
        if seen is not None and size >= max(seen.free, seen.quota):
            self.forget_shortage(uuid)

    def problem(self) -> str | None:
        """Why files are refused for want of space; None if none is."""
        free = self.free_bytes()
        keep = self._keep_free
        if free < keep:
            return f"{free} bytes are free on the disk, {keep} have to stay free"
        if self._cache_room() == 0:
            return (
                "loaded files take all of storage.capacity, and those that are not in the object "
                "store have to stay here"
            )
        short = max(list(self._shortages.values()), default=_Shortage(0, 0, 0))
        if short.room > free - keep:
            return (
                f"a file is refused: {short.free} bytes, of it and of what goes with it, are to "
                f"come, {free} are free on the disk and {keep} have to stay free"
            )
        room = self.room()
        if short.room > room:
            return (
                f"a file is refused: {short.free} bytes, of it and of what goes with it, are to "
                f"come, and storage.capacity leaves room for {room}"
            )
        return None

    def at_quota(self) -> list[str]:
        """Each sender with a file that is refused for its quota."""
        return [
            f"sender {uuid}: {each.quota} bytes of a file are to come, and it has as much "
            "waiting to be loaded as limits.max_unloaded_bytes allows"
            for uuid, each in list(self._shortages.items())
            if each.quota
        ]
