"""How a task opens its files: on the disk where they are there, else from the object store.

Those that come from the store are fetched ahead, in the order of the slices: their indexes, and the
first of what is going to be read of them.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, NamedTuple

from common.durable import Closing
from common.errors import Integrity, NotFoundError, Permanent
from common.tsfile import Status, read_tail
from receiver.spark.late_uploads import place_again, place_now
from receiver.spark.source.read_plans.overlapping import MergeSlice
from receiver.spark.source.read_plans.picking import row_device
from receiver.spark.source.wanted_ranges import wanted_ranges
from receiver.storage.reading.open_stores import of_process
from receiver.storage.reading.prefetching import PREFETCHED_BYTES, fetched_ahead

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import ExitStack

    from common.tsfile import Series, Tail
    from receiver.points import TsFileReader
    from receiver.spark.finder import DataFile
    from receiver.spark.source.read_plans.picking import Picker
    from receiver.spark.source.read_plans.read_plan import ReadPlan
    from receiver.spark.source.read_plans.slicing import Slice
    from receiver.storage.reading.ranged_file import RangedFile
    from receiver.storage.reading.stored_place import StoredPlace

__all__ = ["ChangedFileError", "FileOpener", "MissingFileError"]

_log = logging.getLogger(__name__)

_AHEAD = 8 << 20
"""Bytes of one file that are fetched before it is opened, at most."""


class MissingFileError(Permanent):
    """A file that was listed is not there."""

    slug = "missing-file"


class ChangedFileError(Integrity):
    """A file is not the one that was listed."""

    slug = "changed-file"


class _Need(NamedTuple):
    """A file, and what is read of it."""

    file: DataFile
    part: Slice | MergeSlice
    bytes: int
    """That are fetched of it ahead, about."""


class _Stored(NamedTuple):
    """A file of the store that was begun to be read."""

    source: RangedFile
    tail: Tail


class FileOpener(Closing):
    """Opens the files of some slices, each when its turn comes."""

    def __init__(
        self, slices: Sequence[Slice | MergeSlice], plan: ReadPlan, picker: Picker
    ) -> None:
        """Begin to fetch; `slices` are in the order in which their files are going to be opened."""
        self._plan, self._picker = plan, picker
        self._requests = self._bytes = 0
        needs = [each for part in slices for each in _needs(part)]
        self._ahead = fetched_ahead(
            needs, self._fetch_absent, lambda need: need.bytes, of_process.pool
        )

    def close(self) -> None:
        """Fetch nothing more."""
        self._ahead.close()
        if self._requests:
            extra = {"requests": self._requests, "bytes": self._bytes}
            _log.info("read from the object store", extra=extra)

    def open(self, file: DataFile, part: Slice | MergeSlice, stack: ExitStack) -> TsFileReader:
        """A reader of a file, which must be the next one of those that the store has too.

        Raises:
            MissingFileError: it is nowhere.
            ChangedFileError: it is not what was listed.
            TsferryError: of the store.
        """
        stored = None if file.place is None else next(self._ahead)[1]()
        local = None if stored is not None else _open_local(file, stack)
        if local is not None:
            fd, path = local
            beside = path if file.deletions is None else None
            return self._reader(file, fd, None, stack, beside)
        if stored is None:
            if file.place is None:
                raise MissingFileError(file.why_absent())
            stored = self._fetch(_Need(file, part, 0))  # it has made room here just now
        stack.callback(self._count, stored.source)
        stack.enter_context(stored.source)
        return self._reader(file, stored.source, stored.tail, stack)

    def _reader(
        self,
        file: DataFile,
        source: int | RangedFile,
        tail: Tail | None,
        stack: ExitStack,
        beside: str | None = None,
    ) -> TsFileReader:
        # Only here: the driver, which plans, needs no compiler.
        from receiver.points import TsFileReader
        from receiver.points.deleted.deletions import Deletions

        deletions, options = None, self._plan.options
        if options.deletions and beside is not None:
            deletions = Deletions.beside(beside)
        elif options.deletions and file.deletions:
            tail = tail or read_tail(source)
            deletions = Deletions.noted(file.deletions.own, file.deletions.others, tail.devices)
        for dropped in () if deletions is None else deletions.dropped:
            _log.warning("%s", dropped)
        return stack.enter_context(
            TsFileReader(source, name=file.name, deletions=deletions, text=options.text, tail=tail)
        )

    # -- of the store ------------------------------------------------------------------------

    def _fetch_absent(self, need: _Need) -> _Stored | None:
        """In another thread: what is not on the disk."""
        return None if need.file.local() is not None else self._fetch(need)

    def _fetch(self, need: _Need) -> _Stored:
        assert need.file.place is not None
        place = place_now(need.file.place)
        try:
            return self._fetch_at(place, need)
        except NotFoundError as error:
            return self._fetch_at(place_again(place, error), need)

    def _fetch_at(self, place: StoredPlace, need: _Need) -> _Stored:
        files = need.part.files if isinstance(need.part, MergeSlice) else ()
        source = of_process.file(place, together=max(1, len(files)))
        tail = read_tail(source)
        if tail.status is Status.COMPLETE:
            source.expect(self._ranges(need, tail))
            source.bring(need.bytes)
        return _Stored(source, tail)

    def _ranges(self, need: _Need, tail: Tail) -> Iterator[tuple[int, int]]:
        named, database = need.part.devices, need.file.database
        devices = [
            each
            for each in self._picker.devices(need.file, tail)
            if named is None or each.name in named or row_device(each, database) in named
        ]
        return wanted_ranges(tail, devices, need.part.span, self._takes)

    def _takes(self, series: Series) -> bool:
        return self._picker.takes_measurement(series.measurement)

    def _count(self, source: RangedFile) -> None:
        self._requests += source.requests
        self._bytes += source.fetched


def _needs(part: Slice | MergeSlice) -> list[_Need]:
    """Files of a slice that may have to come from the store, in the order of their opening."""
    files = [each.file for each in part.files] if isinstance(part, MergeSlice) else [part.file]
    most = min(_AHEAD, PREFETCHED_BYTES // len(files))
    return [_Need(each, part, min(each.size, most)) for each in files if each.place is not None]


def _open_local(file: DataFile, stack: ExitStack) -> tuple[int, str] | None:
    """A descriptor and the path; None if it is not on this machine."""
    path = file.local()
    if path is None:
        return None
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    stack.callback(os.close, fd)
    size = os.fstat(fd).st_size
    if size != file.size:
        raise ChangedFileError(f"{file.name}: {size} bytes, it had {file.size} when it was listed")
    return fd, path
