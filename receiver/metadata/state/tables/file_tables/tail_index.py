"""Files by the digest of their tail, in little memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from receiver.metadata.state.table_rows import FileRow

__all__ = ["TailIndex"]


class TailIndex:
    """Physical paths by digest; a digest is kept as bytes where it is one, in half of them."""

    def __init__(self) -> None:
        """Make an empty one."""
        self._found: dict[bytes | str, str | tuple[str, ...]] = {}

    def of(self, tail: str) -> tuple[str, ...]:
        """The files with this digest."""
        found = self._found.get(_raw(tail), ())
        return (found,) if isinstance(found, str) else found

    def add(self, row: FileRow) -> None:
        """Put a file in."""
        # Nearly every tail is of one file: its name alone costs less than a tuple with it.
        raw = _raw(row.tail)
        there = self._found.get(raw)
        if there is None:
            self._found[raw] = row.physical
        else:
            several = (there,) if isinstance(there, str) else there
            self._found[raw] = (*several, row.physical)

    def drop(self, row: FileRow) -> None:
        """Take it out."""
        left = tuple(each for each in self.of(row.tail) if each != row.physical)
        if left:
            self._found[_raw(row.tail)] = left if len(left) > 1 else left[0]
        else:
            del self._found[_raw(row.tail)]

    def shrink(self) -> None:
        """Give back the room of what was taken out."""
        self._found = dict(self._found)


def _raw(digest: str) -> bytes | str:
    """A digest in half the bytes; whatever else stands in its place stays as it is."""
    try:
        raw = bytes.fromhex(digest)
    except ValueError:
        return digest
    return raw if raw.hex() == digest else digest
