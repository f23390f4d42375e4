"""Copies of loaded files on their way into another data directory, on the disk.

A batch is copied to `moving/<number>/` of the directory that it goes to. `files` there names what
the batch is of, and is on the disk before any copy gets its name; it stays until the commit is
durable that says where the files are. So whoever finds it knows which names a life that was cut off
may have given, and takes away those that no commit tells of, as long as the file lies elsewhere
still: the last copy of anything stays.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Final, NamedTuple

from common import crash
from common.digests import read_blocks
from common.errors import Integrity, TsferryError
from common.names import FilePath
from common.text_numbers import whole_number
from receiver.datadirs.disks import NAMING
from receiver.load.placing import move_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from common.durable import Tree
    from receiver.load.placing import Move
    from receiver.metadata.engine import Engine
    from receiver.metadata.model.records import ResourceMeta

__all__ = [
    "MOVING",
    "CataloguedFile",
    "FileCopy",
    "UnfitCopyError",
    "clear_copies",
    "copy_batch",
    "known_file",
    "name_copies",
    "sweep_copies",
    "take_copy_back",
]

log = logging.getLogger(__name__)

MOVING: Final = "moving"
"""What is on its way into a data directory, in it."""
_FILES: Final = "files"


class UnfitCopyError(Integrity):
    """What lies at a file's place is not what the catalogue has, so it is not copied."""

    slug = "unfit-copy"


class CataloguedFile(NamedTuple):
    """A file as the catalogue has it.

    Attributes:
        physical: its name in a data directory.
        size: bytes.
        md5: of them.
        resource: that it has; None for none.
        data_dir: that it lies in, as the configuration names it.
        is_merged: whether it is what a merge made, and no file of its own.
    """

    physical: str
    size: int
    md5: str
    resource: ResourceMeta | None
    data_dir: str
    is_merged: bool = False


class FileCopy(NamedTuple):
    """A copy that waits for its name.

    Attributes:
        at: its number in the batch.
        file: of which it is.
        resource: MD5 of the resource that went along, empty for none; None where the file has one,
            and it was not there.
    """

    at: int
    file: CataloguedFile
    resource: str | None


def known_file(engine: Engine, physical: str) -> CataloguedFile | None:
    """What the catalogue has under a name now, in whatever state; None for nothing."""
    with engine.reading() as state:
        row = state.files.get(physical)
        output = None if row is not None else state.compacted_table.output(physical)
    if row is not None:
        return CataloguedFile(physical, row.size, row.md5, row.resource, row.data_dir)
    if output is not None:
        return CataloguedFile(
            physical, output.size, output.md5, None, output.data_dir, is_merged=True
        )
    return None


def copy_batch(
    source: Tree,
    target: Tree,
    number: int,
    files: Sequence[CataloguedFile],
    *,
    pace: Callable[[int], None],
    without: Callable[[CataloguedFile], bool],
) -> tuple[list[FileCopy], dict[str, str]]:
    """Copy files, with their resources, to where they wait for their names; flushed.

    Args:
        source: the directory that they lie in.
        target: the one that they go to.
        number: of the batch there; nothing has it.
        files: to be copied.
        pace: is told of bytes that were copied, and waits.
        without: whether a file goes although the resource that was told of is not there.

    Returns:
        the copies; and why there are none of the others, by name.
    """
    rel = _staged(number)
    target.make_dirs(rel)
    target.write_atomic(f"{rel}/{_FILES}", "\n".join(each.physical for each in files).encode())
    crash.point("move.begun")
    copied: list[FileCopy] = []
    unfit: dict[str, str] = {}
    for at, each in enumerate(files):
        try:
            _copy(source, each.physical, target, f"{rel}/{at}", each.size, each.md5, pace)
            resource = _copy_resource(source, target, f"{rel}/{at}.resource", each, pace)
            if resource is None and not without(each):
                raise UnfitCopyError("its resource is not there as it was loaded")
        except UnfitCopyError as error:
            unfit[each.physical] = error.message
            for name in (f"{rel}/{at}", f"{rel}/{at}.resource"):
                target.unlink(name, sync=False)
            continue
        copied.append(FileCopy(at, each, resource))
    crash.point("move.copied")
    return copied, unfit


def _copy_resource(
    source: Tree, target: Tree, to: str, each: CataloguedFile, pace: Callable[[int], None]
) -> str | None:
    if each.resource is None:
        return ""
    rel = FilePath.parse(each.physical).resource.text
    try:
        _copy(source, rel, target, to, each.resource.size, each.resource.md5, pace)
    except UnfitCopyError:
        target.unlink(to, sync=False)
        return None
    return each.resource.md5


def _copy(
    source: Tree,
    rel: str,
    target: Tree,
    to: str,
    size: int,
    digest: str,
    pace: Callable[[int], None],
) -> None:
    """Copy what is to have a digest; flushed, and compared with it, when this returns."""
    target.unlink(to, sync=False)
    with target.create(to) as file:
        other = file.write_exactly(_blocks(source, rel, pace), size, digest)
    if other is not None:
        raise UnfitCopyError(
            f"{source.path / rel} has {other}, and {size} with {digest} were loaded"
        )


def _blocks(tree: Tree, rel: str, pace: Callable[[int], None]) -> Iterator[bytes]:
    """What a file has; a disk that does not read it is in the way of this file, and of no other."""
    try:
        fd = tree.open_read(rel)
    except (OSError, TsferryError) as error:
        raise UnfitCopyError(f"{tree.path / rel}: {error}") from error
    try:
        blocks = read_blocks(fd)
        while True:
            try:
                block = next(blocks, b"")
            except OSError as error:
                raise UnfitCopyError(f"{tree.path / rel}: {error}") from error
            if not block:
                return
            yield block
            pace(len(block))
    finally:
        os.close(fd)


def name_copies(target: Tree, number: int, copies: Sequence[FileCopy]) -> dict[str, str]:
    """Give copies their names; when this returns they are on the disk.

    Args:
        target: the directory that they are in.
        number: of their batch.
        copies: of it.

    Returns:
        what is in the way of the others, by the names of the files.
    """
    moves: list[Move] = []
    of: dict[str, str] = {}
    for each in copies:
        rel, path = f"{_staged(number)}/{each.at}", FilePath.parse(each.file.physical)
        if each.resource:
            moves.append((f"{rel}.resource", path.resource))
        moves.append((rel, path))
        of |= {rel: path.text, f"{rel}.resource": path.text}
    with NAMING:
        stuck = move_in(target, moves)
    crash.point("move.named")
    return {of[rel]: why for rel, why in stuck.items()}


def clear_copies(target: Tree, number: int) -> None:
    """Take away what is left of a batch: its commit is durable, or it was taken back."""
    rel = _staged(number)
    # What says which names may be there goes when none can be there any more.
    for name, _ in sorted(target.listing(rel), key=lambda each: each[0] == _FILES):
        target.unlink(f"{rel}/{name}", sync=False)
    target.remove_empty(rel)


def take_copy_back(engine: Engine, trees: Sequence[Tree], target: Tree, physical: str) -> bool:
    """Take a copy away that no commit tells of, if its file lies elsewhere or is none any more.

    Args:
        engine: the metadata engine.
        trees: the data directories that count.
        target: the directory of the copy.
        physical: its name.

    Returns:
        whether it is gone.
    """
    with NAMING:
        known = known_file(engine, physical)
        if known is not None:
            if known.data_dir == str(target.path):
                return False
            others = (tree for tree in trees if tree is not target)
            if not any(_has(tree, physical, known.size) for tree in others):
                return False
        target.unlink(physical, sync=False)
        target.unlink(FilePath.parse(physical).resource.text)
    crash.point("move.taken_back")
    return True


def _has(tree: Tree, physical: str, size: int) -> bool:
    found = tree.stat(physical)
    return found is not None and found.st_size == size


def sweep_copies(engine: Engine, trees: Sequence[Tree]) -> int:
    """Put right what lives that were cut off left; only while nothing is moved. How many batches.

    Args:
        engine: the metadata engine.
        trees: the data directories that count.
    """
    count = 0
    for tree in trees:
        for number in _batches(tree):
            try:
                names = tree.read(f"{_staged(number)}/{_FILES}").decode().split("\n")
            except (OSError, UnicodeDecodeError):
                names = []  # it was cut off before anything could be named
            for physical in filter(None, names):
                take_copy_back(engine, trees, tree, physical)
            clear_copies(tree, number)
            crash.point("move.swept")
            count += 1
        tree.sweep_temporaries(MOVING, deep=False)
    if count:
        log.info("what unfinished moves left is gone", extra={"batches": count})
    return count


def _batches(tree: Tree) -> Iterator[int]:
    numbers = (whole_number(name) for name, _ in tree.listing(MOVING))
    return (each for each in numbers if each is not None)


def _staged(number: int) -> str:
    return f"{MOVING}/{number}"
