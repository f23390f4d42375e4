"""What a task says, judged by itself: entries of its manifest, looks, deletion files, paths."""

from __future__ import annotations

from typing import TYPE_CHECKING

from common.digests import is_md5
from common.errors import NameRefusedError, ProtocolError
from common.names import FilePath, is_sender_uuid
from common.tsfile.deletion_records import whole_records
from common.tsfile.primitives import Malformed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from common.wire import DeletionsPart, ManifestEntry

__all__ = [
    "check_floor",
    "check_looks",
    "check_manifest",
    "check_part",
    "is_tsfile_path",
    "tsfile_path",
]


def check_manifest(manifest: Iterable[ManifestEntry], seen: set[str]) -> None:
    """Check entries, and put their paths into `seen`."""
    for entry in manifest:
        if tsfile_path(entry.path).text in seen:
            raise ProtocolError(f"{entry.path!a} stands in the manifest twice")
        if entry.size < 0 or not is_md5(entry.md5) or entry.series < 0 or entry.points < 0:
            raise ProtocolError(f"{entry.path!a}: size, md5, series or points are none")
        if entry.proof is not None and not is_md5(entry.proof.root):
            raise ProtocolError(f"{entry.path!a}: its root is not 32 hex digits")
        seen.add(entry.path)


def check_looks(manifest: Iterable[ManifestEntry], last_looks: Iterable[int], look: int) -> None:
    """Refuse looks that have not been: the numbers rank files.

    A resumed task has the look that it began with, and that one had what went away since.
    """
    for entry in manifest:
        if max(entry.first_look, entry.closed_look) > look:
            raise ProtocolError(f"{entry.path!a}: seen in a look behind the task's, {look}")
        if entry.last_look > look:
            raise ProtocolError(f"{entry.path!a}: gone since a look behind the task's, {look}")
    if any(last > look for last in last_looks):
        raise ProtocolError(f"a path is gone since a look behind the task's, {look}")


def check_floor(part: DeletionsPart, look: int) -> None:
    """Refuse a floor that would reach files which come later; no look could have is told as 0.

    A resumed task has the look that it began with, which may be the last before a deletion.
    A forwarded one counts in the looks of the engine that took it from its author.
    """
    if not part.author and part.floor > look:
        raise ProtocolError(
            f"{part.path}: its {part.form} is told for files up to look {part.floor}, and the "
            f"task's look is {look}"
        )


def check_part(part: DeletionsPart) -> None:
    """Refuse a part of a deletion file that is not whole records of an edge."""
    tsfile_path(part.path)
    if part.author and list(map(is_sender_uuid, part.author.split("@"))) != [True, True]:
        raise ProtocolError(f"{part.path}: {part.author[:80]!a} is no edge and engine")
    try:
        whole = whole_records(part.content, part.form)
    except Malformed as error:
        raise ProtocolError(f"{part.path}: {part.form}: {error}") from error
    if not part.content or whole != len(part.content):
        raise ProtocolError(f"{part.path}: the part of its {part.form} is no whole records")


def tsfile_path(text: str) -> FilePath:
    """The path of a TsFile; a resource has no place of its own in a task."""
    path = FilePath.parse(text)
    if path.is_resource:
        raise ProtocolError(f"{path}: a resource goes with its TsFile, not by itself")
    return path


def is_tsfile_path(text: str) -> bool:
    """Whether a text is the path of a TsFile."""
    try:
        tsfile_path(text)
    except (NameRefusedError, ProtocolError):
        return False
    return True
