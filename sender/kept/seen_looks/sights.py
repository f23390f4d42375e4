"""Files that are here and not on the list, in little memory: by directory, and as bytes."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain

import msgspec

__all__ = ["Sight", "Sights"]

_ROW = struct.Struct("<QQQd")


class Sight(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A file that is here and is not on the list.

    Attributes:
        inode: of it.
        first: the first look that had it.
        closed: the first look that had it closed; 0 while it is open.
        since: when that look was, seconds since the epoch, of a file that waits; 0 where that is
            not known, as of what an earlier version saw.
    """

    inode: int
    first: int
    closed: int
    since: float = 0.0


class Sights(Mapping[str, Sight]):
    """Path -> sight; never changed once it is made.

    The names of a directory are one piece of bytes, in order, with a newline between two; what was
    seen of each is another.

    Args:
        items: paths and sights, those of a directory one behind the other at best; of two with one
            path the later counts.
    """

    __slots__ = ("_asked", "_count", "_directories", "_odd")

    def __init__(self, items: Iterable[tuple[str, Sight]] = ()) -> None:
        self._directories: dict[str, tuple[bytes, bytes]] = {}
        self._odd: dict[str, Sight] = {}
        """What does not fit into that form: no file of a database."""
        self._asked: tuple[str, dict[str, bytes]] = ("", {})
        directory, rows = "", dict[str, bytes]()
        for path, sight in items:
            above, _, name = path.rpartition("/")
            row = _row(name, sight)
            if row is None:
                self._odd[path] = sight
                continue
            if above != directory:
                self._seal(directory, rows)
                directory, rows = above, self._rows(above)
            rows[name] = row
        self._seal(directory, rows)
        packed = sum(len(each) // _ROW.size for _, each in self._directories.values())
        self._count = packed + len(self._odd)

    def _seal(self, directory: str, rows: dict[str, bytes]) -> None:
        if rows:
            names = sorted(rows)
            packed = b"".join(map(rows.__getitem__, names))
            self._directories[directory] = "\n".join(names).encode(), packed

    def _rows(self, directory: str) -> dict[str, bytes]:
        names, rows = self._directories.get(directory, (b"", b""))
        several = (rows[at : at + _ROW.size] for at in range(0, len(rows), _ROW.size))
        return dict(zip(names.decode().split("\n"), several, strict=False))

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[str]:
        for directory, (names, _) in self._directories.items():
            for name in names.decode().split("\n"):
                yield f"{directory}/{name}" if directory else name
        yield from self._odd

    def __getitem__(self, path: str) -> Sight:
        if path in self._odd:
            return self._odd[path]
        directory, _, name = path.rpartition("/")
        if self._asked[0] != directory or not self._asked[1]:  # most questions are about one
            self._asked = directory, self._rows(directory)
        return Sight(*_ROW.unpack(self._asked[1][name]))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sights):
            return NotImplemented
        return self._directories == other._directories and self._odd == other._odd

    __hash__ = None  # type: ignore[assignment]

    def pieces(self) -> Iterator[bytes]:
        """The JSON of all, piece by piece."""
        yield b"{"
        packed = (self._of(directory) for directory in self._directories)
        for number, several in enumerate(chain(packed, [self._odd] if self._odd else [])):
            yield (b"," if number else b"") + msgspec.json.encode(several)[1:-1]
        yield b"}"

    def _of(self, directory: str) -> dict[str, Sight]:
        at = f"{directory}/" if directory else ""
        rows = self._rows(directory).items()
        return {f"{at}{name}": Sight(*_ROW.unpack(row)) for name, row in rows}


def _row(name: str, sight: Sight) -> bytes | None:
    if "\n" in name or not name:
        return None
    try:
        name.encode()
        return _ROW.pack(sight.inode, sight.first, sight.closed, sight.since)
    except (struct.error, UnicodeEncodeError):
        return None
