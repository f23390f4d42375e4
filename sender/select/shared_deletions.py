"""The deletion files of a TsFile: its own, and which part concerns it of one that several share.

A 2.x database can let files of a partition share a `<level>-<n>.mods2` beside them (apache/iotdb,
``PartitionLevelModFileManager``, ``TsFileResource``; a constant of the source, off in all that was
looked at, decides it). The resource of a TsFile names the file, and the byte at which it was given
to that TsFile: what stands before is others' alone, whatever follows is written once for all that
share it. What a TsFile had in a `.mods2` of its own by then stays there and counts as well.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from common.errors import TsferryError
from common.names import RESOURCE
from sender.select.found import LocalDeletions, SharedDeletions, stat_identity

if TYPE_CHECKING:
    from collections.abc import Collection, Set
    from pathlib import Path

    from common.durable import Tree
    from common.names import FilePath
    from sender.select.eligibility import Beside
    from sender.select.file_verdicts import WalkedDirectory
    from sender.select.stat_cache import StatCache

__all__ = ["Shared", "deletions_beside", "shared_deletions"]

_MOST_RESOURCE = 256 << 20


class Shared(NamedTuple):
    """What a shared deletion file has of one TsFile, and the file's (size, mtime_ns, inode)."""

    part: SharedDeletions
    identity: tuple[int, int, int]


def shared_deletions(
    tree: Tree, rel: str, present: Set[str], cache: StatCache, now: float
) -> Shared | str | None:
    """The part that concerns a TsFile; None where none does, a text where that cannot be told.

    Args:
        tree: the data directory.
        rel: of the TsFile.
        present: shared deletion files in its directory.
        cache: of what was read from files.
        now: by the scanner's clock.
    """
    from common.tsfile.resource import parse_resource

    directory, _, name = rel.rpartition("/")
    at = rel + RESOURCE
    stat = tree.stat(at)
    if stat is None:
        return None
    known = cache.at(tree.path, directory, f"{name}{RESOURCE}", stat_identity(stat), now)
    try:
        if known.resource is None:
            known.resource = parse_resource(tree.read(at, limit=_MOST_RESOURCE))
    except (OSError, TsferryError) as error:
        return f"{name}{RESOURCE} cannot be read: {error}"
    resource = known.resource
    if resource.opaque:
        return (
            f"{name}{RESOURCE} does not tell whether {min(present)} concerns it: {resource.opaque}"
        )
    if resource.shared_deletions is None:
        return None
    shared, begin = resource.shared_deletions
    found = tree.stat(f"{directory}/{shared}") if shared in present else None
    if found is None:
        return f"{name}{RESOURCE} names {shared}, which is not beside it"
    if not 0 <= begin <= found.st_size:
        return f"{name}{RESOURCE} names {shared} from byte {begin} on; it has {found.st_size}"
    return Shared(SharedDeletions(f"{directory}/{shared}", begin), stat_identity(found))


def deletions_beside(
    data_dir: Path,
    place: WalkedDirectory,
    beside: Beside,
    path: FilePath,
    inode: int,
    shared: Shared | str | None,
) -> Collection[LocalDeletions]:
    """The deletion files of a TsFile; a shared one has the form of `.mods2`.

    Args:
        data_dir: that all of this is in.
        place: the directory of the TsFile.
        beside: what is in it.
        path: of the TsFile.
        inode: of it.
        shared: what `shared_deletions` says of it.
    """
    found: dict[str, LocalDeletions] = {}
    for form in beside.deletion_files(path.name):
        rel = place.at(f"{path.name}.{form}")
        try:
            stat = os.stat(f"{path.name}.{form}", dir_fd=place.fd, follow_symlinks=False)
        except FileNotFoundError:
            continue
        # What is no regular file is not read, so that its TsFile waits.
        identity = stat_identity(stat)
        found[form] = LocalDeletions(path, data_dir, rel, form, identity, inode)
    if isinstance(shared, Shared):
        own = found.get("mods2") or LocalDeletions(path, data_dir, "", "mods2", (0, 0, 0), inode)
        size, mtime, number = map(sum, zip(own.identity, shared.identity, strict=True))
        found["mods2"] = replace(own, identity=(size, mtime, number), shared=shared.part)
    return found.values()
