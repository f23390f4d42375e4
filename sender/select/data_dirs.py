"""The data directories: their markers, and which of them count now.

`<data dir>/.tsferry` is made by `init` and holds the sender's uuid. Without it the directory counts
as not mounted: an empty mount point must never look like a directory whose files were all deleted.

    tsferry data directory 1
    sender a45b6e63eb434aad891264b5c08d448e
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Self

from common.durable import Closing, Tree
from common.errors import TooLargeError, TsferryError, UsageError
from common.names import is_sender_uuid
from sender.select.found import Unmounted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

__all__ = ["MARKER", "DataDirs", "mark", "read_marker"]

MARKER = ".tsferry"
_HEAD = "tsferry data directory 1"
_LIMIT = 4096


class DataDirs(Closing):
    """The data directories that count, each held open for as long as a round needs it.

    An open directory keeps its disk from being unmounted, so close this between rounds.

    Attributes:
        trees: those that count.
        unmounted: the others, and why.
        elsewhere: for one who only looks, where lists lie under the name that the receiver had
            before: data directory -> `<host>_<port>`.
    """

    def __init__(self, trees: dict[Path, Tree], unmounted: tuple[Unmounted, ...] = ()) -> None:
        self.trees = trees
        self.unmounted = unmounted
        self.elsewhere: dict[Path, str] = {}

    @classmethod
    def open(cls, paths: Iterable[Path], uuid: str) -> Self:
        """Open those whose marker names this sender; the others are `unmounted`, with a reason."""
        trees: dict[Path, Tree] = {}
        unmounted = []
        for path in paths:
            try:
                tree = Tree(path)
            except OSError as error:
                unmounted.append(Unmounted(path, f"cannot be opened: {error.strerror}"))
                continue
            problem = _problem(tree, uuid)
            if problem is None:
                trees[path] = tree
            else:
                unmounted.append(Unmounted(path, problem))
                tree.close()
        return cls(trees, tuple(unmounted))

    @classmethod
    def unmarked(cls, paths: Iterable[Path]) -> Self:
        """Open directories of a receiver on this node: they have no markers, existing is enough."""
        trees: dict[Path, Tree] = {}
        unmounted = []
        for path in paths:
            try:
                trees[path] = Tree(path)
            except OSError as error:
                unmounted.append(Unmounted(path, f"cannot be opened: {error.strerror}"))
        return cls(trees, tuple(unmounted))

    @property
    def mounted(self) -> tuple[Path, ...]:
        """Paths of those that count."""
        return tuple(self.trees)

    def __iter__(self) -> Iterator[tuple[Path, Tree]]:
        return iter(self.trees.items())

    def close(self) -> None:
        """Close all; closing twice is harmless."""
        for tree in self.trees.values():
            tree.close()


def _problem(tree: Tree, uuid: str) -> str | None:
    try:
        owner = read_marker(tree)
    except (OSError, TsferryError) as error:
        return f"its marker {MARKER} cannot be read: {error}"
    if owner is None:
        return (
            f"has no marker {MARKER}: counts as not mounted "
            "(if it is mounted and new, tsferry-sender init makes the marker)"
        )
    if owner != uuid:
        return (
            f"its marker {MARKER} names the sender {owner}, this one is {uuid}: two senders must "
            "not share a data directory; if it was taken over, tsferry-sender init --adopt"
        )
    return None


def read_marker(tree: Tree) -> str | None:
    """The uuid in a directory's marker, None if it has none.

    Raises:
        UsageError: the marker is damaged.
    """
    try:
        content = tree.read(MARKER, limit=_LIMIT)
    except FileNotFoundError:
        return None
    except TooLargeError:
        content = b""
    lines = content.decode("utf-8", "replace").splitlines()
    uuid = lines[1].removeprefix("sender ") if len(lines) == 2 else ""
    if lines[:1] != [_HEAD] or not is_sender_uuid(uuid):
        raise UsageError(f"{tree.path / MARKER} is damaged: remove it and run tsferry-sender init")
    return uuid


def mark(path: Path, uuid: str, *, adopt: bool = False) -> bool:
    """Make a directory's marker; whether there was something to do.

    Args:
        path: the data directory, which must be there.
        uuid: this sender's.
        adopt: replace the marker of another sender, or a damaged one.

    Raises:
        UsageError: the directory is not there, or has another sender's marker.
    """
    try:
        tree = Tree(path)
    except OSError as error:
        raise UsageError(
            f"data directory {path}: {error.strerror}; make or mount it first"
        ) from error
    with tree:
        owner = None
        with suppress(*((UsageError,) if adopt else ())):
            owner = read_marker(tree)
        if owner == uuid:
            return False
        if owner is not None and not adopt:
            raise UsageError(
                f"{path} belongs to the sender {owner}, this one is {uuid}; "
                "--adopt takes it over, if that sender is gone"
            )
        tree.write_atomic(MARKER, f"{_HEAD}\nsender {uuid}\n".encode())
    return True
