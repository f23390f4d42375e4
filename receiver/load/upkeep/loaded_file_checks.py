"""Whether a file is on the disk as it was loaded, and a merged one as it was written."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from common.digests import md5_of_fd
from common.durable import Tree
from common.errors import TsferryError
from common.names import FilePath
from common.tsfile import read_tail
from receiver.load.upkeep.fsck_findings import STRAY, Found
from receiver.metadata.model.merged_names import is_merged
from receiver.metadata.state.table_rows import FileState

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from receiver.metadata.state.table_rows import FileRow
    from receiver.metadata.state.tables.file_tables.compacted_rows import (
        CompactedOutput,
        CompactedRow,
    )
    from receiver.metadata.state.tables.file_tables.uploaded import InStore

__all__ = ["check_file", "check_merged", "is_to_be_there"]

_MakeFound = Callable[[str, str], "Found"]


def is_to_be_there(row: FileRow) -> bool:
    """Whether readers see it, or would see it again if what it rests on were lost."""
    return row.visible or row.state is FileState.SUPERSEDED


def check_file(
    row: FileRow, tree: Tree | None, stored: InStore, *, at_nodes: bool, all_here: bool
) -> Iterator[Found]:
    """Compare a loaded file with its row.

    Args:
        row: of the file.
        tree: the data directory that has it; none, if it is in none of them.
        stored: whether the object store is to have it.
        at_nodes: whether storage nodes are to have it.
        all_here: whether no data directory is away.
    """
    elsewhere = "store" if stored.file else "nodes" if at_nodes else ""

    def found(kind: str, detail: str) -> Found:
        repair = "quarantine it, so that its sender sends it again"
        if elsewhere == "store":
            repair = f"move it to {STRAY}/: the object store has it"
        elif elsewhere:
            repair = "with the server up, fsck --repair brings it back from a storage node"
        elif is_merged(row.physical):
            repair = "quarantine it: what it is made of is read again, as far as that is still here"
        elif row.state is FileState.SUPERSEDED:
            repair = "forget it: other files give all of its points"
        return Found(
            kind=kind,
            path=row.physical,
            detail=detail,
            repair=repair,
            sender=row.sender,
            elsewhere=elsewhere,
        )

    if tree is None:
        if all_here:  # on a disk that is not mounted nothing is lost
            yield found("missing", f"{row.path} is in none of the data directories")
        return
    try:
        fd = tree.open_read(row.physical)
        try:
            yield from _check_content(row, fd, found)
        finally:
            os.close(fd)
    except (OSError, TsferryError) as error:
        yield found("unreadable", str(error))
        return
    rel = FilePath.parse(row.physical).resource.text
    if not (stored.resource and not tree.exists(rel)):
        yield from _check_resource(row, tree)


def check_merged(row: CompactedRow, trees: Sequence[Tree], *, all_here: bool) -> Iterator[Found]:
    """What is read in place of others: where it is not as it was made, those are read again."""
    for output in row.outputs:

        def found(kind: str, detail: str, output: CompactedOutput = output) -> Found:
            repair = "read the files that it was made of in its place"
            return Found(
                kind="merged", path=output.physical, detail=f"{kind}: {detail}", repair=repair
            )

        tree = next((each for each in trees if each.exists(output.physical)), None)
        if tree is None:
            if all_here:
                yield found("missing", "it is in none of the data directories")
            continue
        try:
            fd = tree.open_read(output.physical)
            try:
                yield from _check_content(output, fd, found)
            finally:
                os.close(fd)
        except (OSError, TsferryError) as error:
            yield found("unreadable", str(error))


def _check_content(row: FileRow | CompactedOutput, fd: int, found: _MakeFound) -> Iterator[Found]:
    size = os.fstat(fd).st_size
    if size != row.size:
        yield found("size", f"{size} bytes, {row.size} were loaded")
        return
    tail = read_tail(fd, structure=True)
    if not tail.complete:
        yield found("structure", f"{tail.status}: {tail.reason}")
        return
    md5 = md5_of_fd(fd)
    if md5 != row.md5:
        yield found("md5", f"{md5}, {row.md5} was loaded")


def _check_resource(row: FileRow, tree: Tree) -> Iterator[Found]:
    """A resource decides nothing, so a bad one is told of and left."""
    if row.resource is None:
        return
    rel = FilePath.parse(row.physical).resource.text
    try:
        fd = tree.open_read(rel)
    except (OSError, TsferryError) as error:
        yield Found(kind="resource", path=rel, detail=str(error), sender=row.sender)
        return
    try:
        md5 = md5_of_fd(fd)
    finally:
        os.close(fd)
    if md5 != row.resource.md5:
        detail = f"MD5 {md5}, {row.resource.md5} was loaded"
        yield Found(kind="resource", path=rel, detail=detail, sender=row.sender)
