"""The list as the receiver's inventory has it: what a comparison would make of it, in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from common.errors import NameRefusedError
from common.names import FilePath
from common.wire import LOADED
from sender.select.entry import Entry, EntryState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from common.wire import InventoryEntry
    from sender.select.found import LocalFile

__all__ = ["Rebuilt", "rebuilt"]


class Rebuilt(msgspec.Struct, frozen=True):
    """What the receiver's inventory makes of the list.

    Attributes:
        entries: the list as it is to be.
        taken: paths that the receiver has and the list had not, or with other content.
        dropped: paths that the list had and the receiver has not.
    """

    entries: Mapping[FilePath, Entry]
    taken: tuple[FilePath, ...]
    dropped: tuple[FilePath, ...]

    @property
    def kept(self) -> int:
        """Entries that the inventory confirmed."""
        return len(self.entries) - len(self.taken)


def rebuilt(
    entries: Mapping[FilePath, Entry],
    pending: Mapping[FilePath, Entry],
    inventory: Iterable[InventoryEntry],
    present: Mapping[FilePath, LocalFile],
    home: Path | None,
    keeps: Callable[[Entry, InventoryEntry | None], bool] = lambda entry, item: False,
) -> Rebuilt:
    """Make the list what the receiver says it has of this sender.

    What was known under the same content keeps its facts. The rest is taken as
    `EntryState.LISTED`: its content is known, but not yet which local file holds it; the next plan
    compares (and never reads "gone" from that alone).

    Args:
        entries: the list as it was.
        pending: what was sent and not folded in yet.
        inventory: all of it, every page.
        present: the local files, to find the data directory of each path.
        home: the data directory of a path that is nowhere; None if no directory counts.
        keeps: whether an entry stays on the list although the receiver does not have it loaded
            (but perhaps in quarantine).
    """
    found: dict[FilePath, Entry] = {}
    taken = []
    bad: dict[FilePath, InventoryEntry] = {}
    for item in inventory if home is not None else ():
        path = _path(item)
        if path is None:
            continue
        if item.state != LOADED:
            bad[path] = item
            continue
        entry = _known((entries.get(path), pending.get(path)), item)
        if entry is None:
            taken.append(path)
            at = _home(present.get(path), entries.get(path), home)
            times = (item.first_time, item.last_time)
            entry = Entry(path, at, item.size, 0, 0, item.md5, *times, EntryState.LISTED)
        found[path] = entry
    for path, entry in entries.items():
        if path not in found and keeps(entry, bad.get(path)):
            found[path] = entry
    dropped = tuple(path for path in entries if path not in found)
    return Rebuilt(found, tuple(taken), dropped)


def _path(item: InventoryEntry) -> FilePath | None:
    """The path of an inventory entry; what the other side says is checked too."""
    try:
        return FilePath.parse(item.path)
    except NameRefusedError:
        return None


def _known(candidates: tuple[Entry | None, ...], item: InventoryEntry) -> Entry | None:
    for each in candidates:
        if each is not None and (each.size, each.md5) == (item.size, item.md5):
            kept = EntryState.LISTED if each.state is EntryState.LISTED else EntryState.LOADED
            return replace(each, state=kept)
    return None


def _home(file: LocalFile | None, entry: Entry | None, default: Path | None) -> Path:
    for each in (file, entry):
        if each is not None:
            return each.data_dir
    assert default is not None
    return default
