"""What a forwarding centre has handed up of files that are at their end, and so are on no list.

    <schema dir>/sync/<host>_<port>/handed.state     `TSFH`, a version byte, and 8 bytes a name

A file whose edge has it no more stays visible here, and above; it is on no list of loaded files,
for its end was told. Without this it would be new again in each round. A name is kept as its
xxh3-64. Losing the file loses no data: what is at its end is offered once more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from common.digests import xxh3_64

if TYPE_CHECKING:
    from collections.abc import Iterable

    from common.durable import Tree

__all__ = ["Handed"]

_FILE = "handed.state"
_MAGIC = b"TSFH\x01"
_WIDTH = 8


class Handed:
    """Names that the receiver above has, though no list has them."""

    def __init__(self, sync: Tree, endpoint: str) -> None:
        self._tree = sync
        self._rel = f"{endpoint}/{_FILE}"
        self._names: frozenset[bytes] = frozenset()

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
        body = content[len(_MAGIC) :]
        if content.startswith(_MAGIC) and not len(body) % _WIDTH:
            handed._names = frozenset(body[at : at + _WIDTH] for at in range(0, len(body), _WIDTH))
        return handed

    def __contains__(self, name: object) -> bool:
        return bool(self._names) and _key(str(name)) in self._names

    def add(self, names: Iterable[str]) -> None:
        """Remember more: on disk before this returns."""
        self._become(self._names | set(map(_key, names)))

    def keep(self, names: Iterable[str]) -> None:
        """Forget all but these."""
        if self._names:
            self._become(self._names & set(map(_key, names)))

    def clear(self) -> None:
        """Forget all: the receiver above has another past."""
        self._become(frozenset())

    def _become(self, names: frozenset[bytes]) -> None:
        if names == self._names:
            return
        self._tree.make_dirs(self._rel.rpartition("/")[0])
        self._tree.write_atomic(self._rel, _MAGIC + b"".join(sorted(names)))
        self._names = names


def _key(name: str) -> bytes:
    return bytes.fromhex(xxh3_64(name.encode()))
