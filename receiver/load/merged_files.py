"""The files that a compaction makes, on the disk: staged, placed, looked for, and gone.

They are written to `merging/<id>/` in a data directory, and get their names beside the inputs when
all are whole, before the commit that tells of them. That directory says in `partition` where they
go, and stays until the commit is durable: so the next start knows which names a life that was cut
off may have given, and takes away those that no commit tells of. An output is a copy of what its
inputs hold, so nothing is ever lost with one.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from common import crash
from common.errors import Transient, TsferryError
from common.names import FilePath, Kind
from common.text_numbers import whole_number
from receiver.datadirs.disks import NAMING
from receiver.load.folder.obstacles import is_of_one_path
from receiver.load.placing import move_in
from receiver.metadata.model.merged_names import is_merged

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Sequence

    from common.durable import Tree
    from receiver.metadata.state.tables.file_tables.retired import PartitionKey

__all__ = [
    "clear_staged",
    "expected_outputs",
    "output_path",
    "place",
    "remove",
    "stage",
    "sweep",
    "take_back",
]

log = logging.getLogger(__name__)

STAGED: Final = "merging"
"""What is being made; of a data directory."""
_INTENT: Final = "partition"
"""Where the outputs go, as `<storage group>/<virtual group>/<partition>`."""


def output_path(key: PartitionKey, ident: int, number: int) -> FilePath:
    """The physical name of an output.

    Args:
        key: of the partition.
        ident: of the compaction.
        number: of the output, from 1.
    """
    name = f"merged-{ident}-{number}.tsfile"
    return FilePath(Kind.SEQUENCE, key.sg, key.vsg, int(key.partition), name)


def stage(tree: Tree, key: PartitionKey, ident: int) -> str:
    """An empty directory for what a compaction makes, relative to the data directory.

    Args:
        tree: the data directory.
        key: of the partition that its outputs go to.
        ident: of the compaction.
    """
    clear_staged(tree, ident)
    rel = _staged(ident)
    tree.make_dirs(rel)
    tree.write_atomic(f"{rel}/{_INTENT}", "/".join(key).encode())
    crash.point("merge.staged")
    return rel


def clear_staged(tree: Tree, ident: int) -> None:
    """Take away what a compaction staged: it is committed, or is not going to be."""
    rel = _staged(ident)
    # What says where outputs may lie goes when none can lie there any more.
    for name, _ in sorted(tree.listing(rel), key=lambda each: each[0] == _INTENT):
        tree.unlink(f"{rel}/{name}", sync=False)
    tree.remove_empty(rel)


def place(tree: Tree, ident: int, made: Sequence[tuple[str, FilePath]]) -> None:
    """Give outputs their names; when this returns they are on the disk.

    Args:
        tree: the data directory.
        ident: of the compaction.
        made: where each lies, and its name.

    Raises:
        Transient: one cannot get its name.
    """
    crash.point("merge.made")
    stuck = move_in(tree, made)
    if stuck:
        why = "; ".join(sorted(stuck.values()))
        raise Transient(f"what compaction {ident} made cannot be put in its place: {why}")
    crash.point("merge.placed")


def take_back(tree: Tree, ident: int) -> None:
    """Take away all that a compaction made which is not committed, whatever came of it."""
    for name in expected_outputs(tree).get(ident, ()):
        tree.unlink(name)
        crash.point("merge.taken_back")
    clear_staged(tree, ident)


def expected_outputs(tree: Tree) -> dict[int, list[str]]:
    """Outputs that are in their places and may not be committed yet, by compaction."""
    found: dict[int, list[str]] = {}
    for name, _ in tree.listing(STAGED):
        number = whole_number(name)
        if number is None:
            continue
        found[number] = []
        try:
            key = tree.read(f"{STAGED}/{name}/{_INTENT}", limit=4096).decode()
            directory = FilePath.parse(f"{Kind.SEQUENCE}/{key}/1.tsfile").directory
        except (OSError, UnicodeDecodeError, TsferryError):
            continue  # it was cut off before anything could be made
        begin = f"merged-{name}-"
        found[int(name)] = [
            f"{directory}/{each}"
            for each, _ in tree.listing(directory)
            if each.startswith(begin) and is_merged(each)
        ]
    return found


def remove(trees: Iterable[Tree], names: Iterable[str]) -> bool:
    """Take outputs away; whether all are gone."""
    gone = True
    trees = list(trees)
    for name in names:
        try:
            with NAMING:
                for tree in trees:
                    tree.unlink(name)
        except (OSError, TsferryError) as error:
            if not is_of_one_path(error):
                raise
            log.warning("a merged file stays", extra={"path": name, "error": str(error)})
            gone = False
        crash.point("merge.unlinked")
    return gone


def sweep(trees: Iterable[Tree], committed: Container[int]) -> int:
    """Take away what lives that were cut off made; only while nothing is being made.

    Args:
        trees: the data directories that count.
        committed: ids of compactions.

    Returns:
        of how many compactions something was there.
    """
    count = 0
    for tree in trees:
        for ident in expected_outputs(tree):
            count += 1
            if ident in committed:
                clear_staged(tree, ident)
            else:
                take_back(tree, ident)
            crash.point("merge.swept")
    return count


def _staged(ident: int) -> str:
    return f"{STAGED}/{ident}"
