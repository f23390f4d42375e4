"""How far a forwarding centre has handed up what its catalogue says, beside the list.

    <schema dir>/sync/<host>_<port>/handed.state
        `TSFH`, a version byte, the uuid of the engine below (16 bytes), a commit of it (uint64,
        big-endian), then 8 bytes for each name

A file whose edge has it no more stays visible here, and above; it is on no list of loaded files,
for its end was told. Without this it would be new again in each round. And one that is on the list
may stand otherwise here than when it was handed up, since its edge gave it another name. What was
the case at the commit is handed up; of what came since, the names (their xxh3-64) that are.

Losing the file loses no data: all is offered once more, and nothing travels.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, TypeAlias

from common.digests import xxh3_64

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from common.durable import Tree

__all__ = ["Handed", "HandedUp"]

HandedUp: TypeAlias = "Callable[[str, str, int], bool]"
"""`Handed.has`."""

_FILE = "handed.state"
_MAGIC = b"TSFH\x01"
_HEAD = struct.Struct(">16sQ")
_NOWHERE = bytes(16)
_WIDTH = 8


class Handed:
    """What the receiver above was told.

    Attributes:
        mark: what the catalogue said at this commit is handed up.
    """

    def __init__(self, sync: Tree, endpoint: str) -> None:
        self._tree = sync
        self._rel = f"{endpoint}/{_FILE}"
        self._engine = _NOWHERE
        self._names: frozenset[bytes] = frozenset()
        self.mark = 0

    @classmethod
    def open(cls, sync: Tree, endpoint: str) -> Handed:
        """Read what is remembered; what is no such file remembers nothing.

        Args:
            sync: `<schema dir>/sync`; stays the caller's to close.
            endpoint: `<host>_<port>`.
        """
        handed = cls(sync, endpoint)
        try:
            content = sync.read(handed._rel)
        except FileNotFoundError:
            return handed
        body = content[len(_MAGIC) + _HEAD.size :]
        if content.startswith(_MAGIC) and len(content) >= len(_MAGIC) + _HEAD.size:
            handed._engine, handed.mark = _HEAD.unpack_from(content, len(_MAGIC))
            ends = range(_WIDTH, len(body) + 1, _WIDTH)
            handed._names = frozenset(body[end - _WIDTH : end] for end in ends)
        return handed

    def has(self, engine: str, name: str, changed: int = 0) -> bool:
        """Whether something is handed up.

        Args:
            engine: uuid of the engine below.
            name: of it.
            changed: the commit since which it is as it is; 0 where only the name counts.
        """
        if bytes.fromhex(engine) != self._engine:
            return False
        return 0 < changed <= self.mark or (bool(self._names) and _key(name) in self._names)

    def add(self, engine: str, names: Iterable[str]) -> None:
        """Remember more: on disk before this returns."""
        below, added = bytes.fromhex(engine), frozenset(map(_key, names))
        if below == self._engine:
            self._become(below, self.mark, self._names | added)
        elif added:
            self._become(below, 0, added)

    def settle(self, engine: str, commit: int, names: Iterable[str]) -> None:
        """All that the catalogue said at a commit is handed up; but for these, names are forgotten.

        Args:
            engine: uuid of the engine below.
            commit: of it.
            names: that no commit tells of.
        """
        kept = self._names & frozenset(map(_key, names))
        self._become(bytes.fromhex(engine), commit, kept)

    def clear(self) -> None:
        """Forget all: the receiver above has another past."""
        self._become(self._engine, 0, frozenset())

    def _become(self, engine: bytes, mark: int, names: frozenset[bytes]) -> None:
        if (engine, mark, names) == (self._engine, self.mark, self._names):
            return
        self._tree.make_dirs(self._rel.rpartition("/")[0])
        content = _MAGIC + _HEAD.pack(engine, mark) + b"".join(sorted(names))
        self._tree.write_atomic(self._rel, content)
        self._engine, self.mark, self._names = engine, mark, names


def _key(name: str) -> bytes:
    return bytes.fromhex(xxh3_64(name.encode()))
