"""What the task of a load at the centre says of its files, and what is told of them in the end."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from common.digests import md5_of_fd
from common.errors import NotATsFileError
from common.tsfile.deletion_records import whole_records
from common.tsfile.primitives import Malformed
from common.wire import DeletionsPart, ManifestEntry, ResourceEntry
from receiver.load.folder.current_task import Planned
from receiver.operator.centre.centre_files import opened
from receiver.operator.views.load_wire import CentreLoadFile

if TYPE_CHECKING:
    from common.names import FilePath
    from receiver.load.deciding.known_files.candidates import Candidate
    from receiver.metadata.model.records import FileOutcome
    from receiver.operator.centre.centre_files import CentreFile

__all__ = ["deletion_parts", "entry_of", "planned_as", "resource_of_file", "told"]

_LONGEST_PART: Final = 1 << 20
"""Bytes of a deletion file in one record of the log."""


def told(outcome: FileOutcome, source: str, size: int) -> CentreLoadFile:
    """What became of a file, for whoever asked; `source` is where it lay, `size` its bytes."""
    return CentreLoadFile(
        source=source,
        path=outcome.path,
        size=size,
        result=str(outcome.result),
        device=outcome.device,
        reason=outcome.reason,
    )


def entry_of(candidate: Candidate, first: int, look: int) -> ManifestEntry:
    """A file in the manifest of a task that tells of a look, and counts from another."""
    return ManifestEntry(
        path=candidate.path.text,
        size=candidate.staged.size,
        md5=candidate.staged.md5,
        series=candidate.facts.series,
        points=candidate.facts.points,
        first_look=first,
        closed_look=look,
    )


def resource_of_file(file: CentreFile) -> ResourceEntry | None:
    """The resource of a TsFile, as it is now."""
    if file.resource is None:
        return None
    with opened(file.resource) as fd:
        return ResourceEntry(size=os.fstat(fd).st_size, md5=md5_of_fd(fd))


def planned_as(candidate: Candidate, resource: ResourceEntry | None) -> Planned:
    """A file in the plan of a task, with its resource."""
    staged = candidate.staged
    return Planned(
        path=candidate.path.text,
        size=staged.size,
        tail=staged.tail,
        md5=staged.md5,
        resource=resource,
    )


def deletion_parts(file: CentreFile, path: FilePath) -> list[DeletionsPart]:
    """The deletion files of a TsFile, whole; they reach no other file.

    Raises:
        NotATsFileError: one is not whole records.
    """
    parts: list[DeletionsPart] = []
    for form, source in file.deletions:
        with opened(source) as fd:
            content = os.pread(fd, os.fstat(fd).st_size, 0)
        begin = 0
        while begin < len(content):
            piece = content[begin : begin + _LONGEST_PART]
            try:
                size = whole_records(piece, form)
            except Malformed as error:
                raise NotATsFileError(f"{source}: {error}") from error
            if size == 0:
                raise NotATsFileError(f"{source}: byte {begin} begins no whole record")
            parts.append(
                DeletionsPart(path=path.text, form=form, base=begin, content=piece[:size], floor=0)
            )
            begin += size
    return parts
