"""Markers of the receiver's own directories: whose a directory is, which one, and its starts.

`.tsferry-receiver` in a data directory:

    tsferry receiver directory 2
    engine 5d3f0c1b8a9e4f7296b1c0d4e8a7f352
    directory 0b8d7c54a1e64f0f9d6c2f1f7f3a9b11
    instance 12

The directory's uuid is drawn once, and is that of its node in the catalogue
(`receiver.metadata.model.records.node_records`). `instance` counts the starts of a receiver with
it; it is on the disk before anybody hears of that start. A schema directory, and a data directory
of earlier versions, has the first two lines, with a 1 in place of the 2.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from common.errors import Permanent, TooLargeError

if TYPE_CHECKING:
    from common.durable import Tree

__all__ = [
    "RECEIVER_MARKER",
    "DamagedMarkerError",
    "DirectoryMarker",
    "engine_of",
    "read_marker",
    "write_marker",
]

RECEIVER_MARKER: Final = ".tsferry-receiver"
_LIMIT: Final = 4096
_FORM: Final = re.compile(
    r"tsferry receiver directory (?:1\nengine (?P<old>[0-9a-f]{32})"
    r"|2\nengine (?P<engine>[0-9a-f]{32})\ndirectory (?P<directory>[0-9a-f]{32})"
    r"\ninstance (?P<instance>[1-9][0-9]{0,17}))\n?\Z"
)


class DamagedMarkerError(Permanent):
    """A marker says nothing that could be read."""

    slug = "damaged-marker"


class DirectoryMarker(NamedTuple):
    """What a marker says.

    Attributes:
        engine: uuid of the engine that the directory is of.
        directory: its own uuid; empty in a schema directory, and of earlier versions.
        instance: how often a receiver has started with it; 0 where it has no uuid.
    """

    engine: str
    directory: str = ""
    instance: int = 0

    def text(self) -> str:
        """As it stands in the file."""
        if not self.directory:
            return f"tsferry receiver directory 1\nengine {self.engine}\n"
        return (
            f"tsferry receiver directory 2\nengine {self.engine}\ndirectory {self.directory}\n"
            f"instance {self.instance}\n"
        )


def read_marker(tree: Tree) -> DirectoryMarker | None:
    """The marker of a directory, None if it has none.

    Raises:
        DamagedMarkerError: the marker is none, or is of a later version.
        OSError: it cannot be read.
    """
    try:
        content = tree.read(RECEIVER_MARKER, limit=_LIMIT)
    except FileNotFoundError:
        return None
    except TooLargeError:
        content = b""
    found = _FORM.match(content.decode("utf-8", "replace"))
    if found is None:
        raise DamagedMarkerError(
            f"its marker {RECEIVER_MARKER} is damaged, or of a later version than this program"
        )
    if found["old"] is not None:
        return DirectoryMarker(found["old"])
    return DirectoryMarker(found["engine"], found["directory"], int(found["instance"]))


def write_marker(tree: Tree, marker: DirectoryMarker) -> None:
    """Put a marker in the place of what is there; it is on the disk when this returns.

    Raises:
        NoSpaceError, DiskError, ReadOnlyError: it is as it was.
    """
    tree.write_atomic(RECEIVER_MARKER, marker.text().encode())


def engine_of(tree: Tree) -> str | None:
    """The uuid of the engine in a directory's marker, None if it has none.

    Raises:
        DamagedMarkerError: the marker is none.
        OSError: it cannot be read.
    """
    marker = read_marker(tree)
    return None if marker is None else marker.engine
