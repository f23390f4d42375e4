"""Outputs that came from elsewhere: read again here, before anybody is told of them.

Who merged has compared them with what it merged, point by point. What is looked at here is what
went wrong on the way, and what no merge of these files can be: other bytes than were sent, no whole
TsFile, devices or times that no input has, counts that the file itself does not have, outputs that
overlap each other.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from common.digests import md5_of_fd
from common.errors import DamagedError
from common.tsfile import read_tail
from receiver.compaction.worth_merging.merge_asked import MergeOutput
from receiver.metadata.model.paths import IllegalPathError
from receiver.metadata.model.records.record_parts import DeviceRange

if TYPE_CHECKING:
    from collections.abc import Iterable

    from common.durable import Tree
    from common.tsfile import Tail
    from receiver.metadata.state.table_rows import FileRow

__all__ = ["OutputRefusedError", "TimesOfInputs", "checked_output"]


class OutputRefusedError(DamagedError):
    """What an executor sent is not what it says, or no merge of the files that it was asked for."""

    slug = "output-refused"
    http_status = 422


class _Span(NamedTuple):
    first: int
    last: int


class TimesOfInputs:
    """Devices of the files that are merged, and between which times each has rows."""

    def __init__(self, rows: Iterable[FileRow]) -> None:
        """Gather them."""
        self._spans: dict[str, _Span] = {}
        self._given: dict[str, list[_Span]] = {}
        for row in rows:
            for name, first, last in row.devices.ranges():
                known = self._spans.get(name, _Span(first, last))
                self._spans[name] = _Span(min(first, known.first), max(last, known.last))

    def take(self, called: str, devices: Iterable[DeviceRange]) -> None:
        """See that a further output has nothing that no input has, nor another output.

        Raises:
            OutputRefusedError: it has.
        """
        for each in devices:
            known = self._spans.get(each.name)
            if known is None:
                raise OutputRefusedError(f"{called}: no input has rows of device {each.name}")
            if each.first is None or each.last is None:
                continue
            if not known.first <= each.first <= each.last <= known.last:
                raise OutputRefusedError(
                    f"{called}: device {each.name} has {each.first} to {each.last}, its inputs "
                    f"{known.first} to {known.last}"
                )
            others = self._given.setdefault(each.name, [])
            if any(each.first <= other.last and other.first <= each.last for other in others):
                raise OutputRefusedError(f"{called}: another output has times of {each.name}, too")
            others.append(_Span(each.first, each.last))


def checked_output(tree: Tree, rel: str, said: MergeOutput, database: str) -> MergeOutput:
    """Flush an output, and read all of it again.

    Args:
        tree: the data directory.
        rel: where it lies.
        said: of it, but for its devices, which the file has, and of which there may be many.
        database: that its tables are in.

    Returns:
        what the file itself has.

    Raises:
        OutputRefusedError: it is not what was said.
        OSError: it cannot be read.
    """
    if tree.stat(rel) is None:
        raise OutputRefusedError(f"{rel}: nothing of it came")
    tree.sync_file(rel)
    fd = tree.open_read(rel)
    try:
        size = os.fstat(fd).st_size
        if size != said.size:
            raise OutputRefusedError(f"{rel}: {size} bytes came of {said.size}")
        found = md5_of_fd(fd)
        if found != said.md5:
            raise OutputRefusedError(f"{rel}: MD5 {found} is read here, {said.md5} was made")
        tail = read_tail(fd, chunk_headers=True)
    finally:
        os.close(fd)
    if not tail.complete:
        raise OutputRefusedError(f"{rel}: {tail.status.replace('_', ' ')}: {tail.reason}")
    made = _output_of(rel, tail, said, database)
    for name in ("version", "series", "points", "first", "last"):
        if getattr(made, name) != getattr(said, name):
            raise OutputRefusedError(f"{rel}: its {name} are not those that were made")
    return made


def _output_of(rel: str, tail: Tail, said: MergeOutput, database: str) -> MergeOutput:
    if tail.first_time is None or tail.last_time is None:
        raise OutputRefusedError(f"{rel}: it has no row")
    try:
        devices = tuple(
            DeviceRange(each.name_in(database), each.start, each.end) for each in tail.devices
        )
    except IllegalPathError as error:
        raise OutputRefusedError(f"{rel}: {error.message}") from error
    return MergeOutput(
        path=said.path,
        size=tail.size,
        md5=said.md5,
        version=tail.version or 0,
        series=tail.series_count,
        points=tail.point_count,
        first=tail.first_time,
        last=tail.last_time,
        devices=devices,
    )
