"""Tables that were put and that no manifest names: they are noted before they are put.

    storage/tree-tables.json    {"ident": ..., "since": {"<key>": <seconds since the epoch>}}

Who dies between a table and its manifest makes another one at the next start, for more commits have
come. Nothing in the store tells the old one from one that is about to be named, so it is known by
this note alone: by who put it, as the same owner. Whoever lost the note leaves the table there.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import msgspec

from common.decoders import from_json
from receiver.storage.tree.tree_manifests import TreeManifest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from common.durable import Tree
    from receiver.storage.stores.incarnation import Incarnation

__all__ = ["UnnamedTables"]

_FILE = "storage/tree-tables.json"
_MOST = 1 << 24


class _Note(msgspec.Struct, frozen=True):
    ident: str
    since: dict[str, float]


class UnnamedTables:
    """The tables of one owner; for the thread that puts them and the one that removes them."""

    def __init__(self, home: Tree, owner: Incarnation, clock: Callable[[], float]) -> None:
        """Read what was noted.

        Args:
            home: the schema directory.
            owner: as whom tables are put; what others put is none of its own.
            clock: seconds since the epoch.
        """
        self._home = home
        self._owner = owner
        self._clock = clock
        self._lock = threading.Lock()
        self._since = _read(home, owner)
        self._open: set[str] = set()

    def begin(self, keys: Iterable[str]) -> None:
        """These are about to be put; noted when it returns."""
        with self._lock:
            self._open.update(keys)
            now = self._clock()
            self._since |= dict.fromkeys(self._open, now)
            self._write()

    def settle(self, newest: TreeManifest | None) -> None:
        """This is the newest manifest: what it names is known by it from now on.

        Of all others that were put nothing is under way any more.
        """
        with self._lock:
            for each in () if newest is None else newest.tables:
                self._since.pop(each.key, None)  # noted with the next that is put
            self._open.clear()

    def due(self, oldest: float) -> list[str]:
        """Those that were put before a time."""
        with self._lock:
            return sorted(
                key
                for key, since in self._since.items()
                if since < oldest and key not in self._open
            )

    def remove(self, key: str, remove: Callable[[str], None]) -> None:
        """Remove one, unless it has been put once more meanwhile."""
        with self._lock:
            if key in self._open or key not in self._since:
                return
            remove(key)
            del self._since[key]
            self._write()

    def _write(self) -> None:
        self._home.make_dirs("storage")
        note = _Note(self._owner.ident, self._since)
        self._home.write_atomic(_FILE, msgspec.json.encode(note))


def _read(home: Tree, owner: Incarnation) -> dict[str, float]:
    try:
        found = from_json(home.read(_FILE, limit=_MOST), _Note)
    except (FileNotFoundError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return {}  # then they stay
    return dict(found.since) if found.ident == owner.ident else {}
