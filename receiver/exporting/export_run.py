"""An export from its begin to its end; one that was cut off goes on where it was.

In the directory meanwhile: a file with the request, which says as of which commit it is, and a
journal with a line for each slice that is done. Both go when the manifest is there. An output that
has its name but no line is written again, over itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

import msgspec

from common.decoders import from_json
from common.durable import Closing, Lock, Tree, is_temporary
from common.errors import NotFoundError, UsageError
from common.wire import Struct, Time
from common.wire.base import WIDE, CommitTs
from receiver.exporting.merged_inputs import MixedTypesError, SliceInputs, both_tables
from receiver.exporting.output_file import OutputFile, WrittenFile
from receiver.exporting.schema_statements import table_statements, tree_statements
from receiver.exporting.time_slices import TimeSlice, as_read, time_slices
from receiver.exporting.wanted_points import SchemaSeries, WantedPoints
from receiver.metadata.model.timestamps import to_seconds
from receiver.points import DamagedData
from receiver.spark.source.file_opening import MissingFileError
from receiver.transfer.schemachanges import SchemaReader

if TYPE_CHECKING:
    from common.tsfile import TableSchema
    from receiver.spark.local_catalogue import LocalCatalogue

__all__ = ["ExportManifest", "ExportRequest", "export_to", "planned"]

log = logging.getLogger(__name__)

MANIFEST: Final = "manifest.json"
SCHEMA, TABLES = "schema.sql", "tables.sql"
_REQUEST: Final = "export.json"
_JOURNAL: Final = "export.journal"
_LOCK: Final = "export.lock"

T = TypeVar("T")


class ExportRequest(Struct, frozen=True, kw_only=True):
    """What is exported.

    Attributes:
        engine: uuid of the engine.
        commit: as of which.
        pattern: of series.
        start: first time, in the files' unit.
        end: last time.
        version: of the files.
        file_bytes: of inputs, about, that come to one output.
        file_points: an output ends with the device that brings it to so many.
    """

    engine: str
    commit: CommitTs
    pattern: str
    start: Time
    end: Time
    version: int
    file_bytes: int
    file_points: Annotated[int, msgspec.Meta(extra={WIDE: True})]


class ExportManifest(Struct, frozen=True, kw_only=True):
    """What an export has come to, or would.

    Attributes:
        request: what was asked for.
        inputs: committed files that have some of it.
        input_bytes: of them.
        files: outputs; none of a dry run.
        points: values in them.
        bytes: of them.
    """

    request: ExportRequest
    inputs: int
    input_bytes: int
    files: list[WrittenFile]
    points: int
    bytes: int


class _Done(Struct, frozen=True, kw_only=True):
    """A line of the journal."""

    number: int
    files: list[WrittenFile]


def planned(
    catalogue: LocalCatalogue, wanted: WantedPoints, request: ExportRequest
) -> tuple[list[TimeSlice], ExportManifest]:
    """The slices, and what they are made of.

    Raises:
        NotFoundError: nothing is.
        HistoryGoneError: the commit is before the kept history.
    """
    slices = time_slices(catalogue.files(request.commit), wanted, request.file_bytes)
    if not slices:
        raise NotFoundError(
            f"--path {request.pattern}: no committed file has such a series at these times, as of "
            f"commit {request.commit}; expected the pattern of series, such as root.plant.** or "
            "root.plant.d1.temperature"
        )
    inputs = {each.name: each.size for part in slices for each in part.files}
    return slices, ExportManifest(
        request=request, inputs=len(inputs), input_bytes=sum(inputs.values()), files=[], points=0,
        bytes=0,
    )  # fmt: skip


def export_to(
    directory: Path,
    catalogue: LocalCatalogue,
    wanted: WantedPoints,
    request: ExportRequest,
    told: Callable[[int, int], object] = lambda _, __: None,
) -> ExportManifest:
    """Export into a directory that is new, empty, or was begun by the same call.

    Args:
        directory: is made.
        catalogue: has the files.
        wanted: of their points.
        request: the same, as it is kept.
        told: is told how many slices are done, of how many.

    Raises:
        UsageError: there is something else in the directory.
        NotFoundError: there is nothing to export.
        TsferryError: an input cannot be read, or the disk is full; said again it goes on.
    """
    with _Export(directory, catalogue, wanted, request) as export:
        return export.run(told)


def unfinished_commit(directory: Path) -> int | None:
    """As of which commit an unfinished export in a directory is; None if there is none."""
    try:
        with Tree(directory) as tree:
            return _decoded(tree.read(_REQUEST), ExportRequest, f"{directory}/{_REQUEST}").commit
    except (FileNotFoundError, NotADirectoryError):
        return None


class _Export(Closing):
    def __init__(
        self,
        directory: Path,
        catalogue: LocalCatalogue,
        wanted: WantedPoints,
        request: ExportRequest,
    ) -> None:
        self._catalogue, self._wanted, self._request = catalogue, wanted, request
        self._slices, self._manifest = planned(catalogue, wanted, request)
        stand_ins = catalogue.stand_ins(request.commit)
        self._stand_ins = {name: each for each in stand_ins for name in each.inputs}
        self._tree = Tree(directory, create=True)
        self._done: dict[int, _Done] = {}
        self._tables: dict[str, dict[str, TableSchema]] = {}
        self._lock: Lock | None = None
        try:
            self._begin()
            items = SchemaReader(catalogue.engine).every(at=request.commit)
            self._schema = SchemaSeries(items, wanted)
        except BaseException:
            self.close()
            raise

    def _begin(self) -> None:
        tree = self._tree
        names = {name for name, _ in tree.listing() if not is_temporary(name)} - {_LOCK}
        if names and _REQUEST not in names:
            raise UsageError(f"{tree.path}: expected an empty or a new directory")
        self._lock = tree.lock(_LOCK)
        tree.sweep_temporaries()
        if not names:
            tree.write_atomic(_REQUEST, msgspec.json.encode(self._request))
            return
        begun = _decoded(tree.read(_REQUEST), ExportRequest, f"{tree.path}/{_REQUEST}")
        if begun != self._request:
            raise UsageError(
                f"{tree.path}: an export that is not finished is there, and it is another one "
                f"({_REQUEST} says which): expected the same call, or another directory"
            )
        for line in self._lines():
            done = _decoded(line, _Done, f"{tree.path}/{_JOURNAL}")
            if all(self._is_there(each) for each in done.files):
                self._done[done.number] = done

    def _lines(self) -> Iterator[bytes]:
        if self._tree.exists(_JOURNAL):
            *whole, _ = self._tree.read(_JOURNAL).split(b"\n")  # what is behind the last is cut off
            yield from whole

    def _is_there(self, file: WrittenFile) -> bool:
        found = self._tree.stat(file.path)
        return found is not None and found.st_size == file.size

    def close(self) -> None:
        """Let go of the directory."""
        if self._lock is not None:
            self._lock.release()
        self._tree.close()

    def run(self, told: Callable[[int, int], object]) -> ExportManifest:
        """Do all that is not done."""
        try:
            self._write_all(told)
        except (UsageError, MixedTypesError):
            if not self._done:  # the same call can never go on, and another should have its place
                for part in self._slices:
                    self._remove_empty(part.directory)
                self._leave()
            raise
        return self._end()

    def _write_all(self, told: Callable[[int, int], object]) -> None:
        with self._tree.append_file(_JOURNAL) as journal:
            kept = b"".join(msgspec.json.encode(each) + b"\n" for each in self._done.values())
            journal.truncate(0)  # a line may have been cut off
            journal.append(kept)
            self._see_tables()
            for count, part in enumerate(self._slices):
                told(count, len(self._slices))
                if part.number not in self._done:
                    done = self._done[part.number] = self._slice(part)
                    journal.append(msgspec.json.encode(done) + b"\n")
        told(len(self._slices), len(self._slices))

    def _see_tables(self) -> None:
        """All of them before the first output: a column has one type in every file."""
        for part in self._slices:
            for each in self._readable(part, self._tables_of):
                known = self._tables.setdefault(part.group, {})
                known[each.name] = both_tables(known.get(each.name), each, part.directory)

    def _tables_of(self, part: TimeSlice, read: TimeSlice) -> list[TableSchema]:
        del part
        with SliceInputs(read, self._wanted, self._schema) as inputs:
            return inputs.tables()

    def _slice(self, part: TimeSlice) -> _Done:
        return self._readable(part, self._made_of)

    def _readable(self, part: TimeSlice, made: Callable[[TimeSlice, TimeSlice], T]) -> T:
        """What is made of a slice, and of the files that give what it holds.

        A merged file of the receiver that is not what was made is read no more: what it stands for
        is there.
        """
        read = as_read(part, self._stand_ins)
        try:
            return made(part, read)
        except (DamagedData, MissingFileError) as error:
            if read.files == part.files:
                raise
            log.warning(
                "%s. It is a merged file: what it was made of is read (tsferry-verify and "
                "tsferry-receiver fsck say which are bad)",
                error.message,
            )
            return made(part, part)

    def _made_of(self, part: TimeSlice, read: TimeSlice) -> _Done:
        with SliceInputs(read, self._wanted, self._schema) as inputs:
            inputs.as_whole(self._tables.get(part.group, {}))
            self._clear(part)
            files = list(self._write(part, inputs, inputs.tables()))
            return _Done(number=part.number, files=files)

    def _clear(self, part: TimeSlice) -> None:
        """Take away what was written of a slice before: it may come to fewer outputs now."""
        for name, _ in self._tree.listing(part.directory):
            if name.startswith(f"{self._moment(part)}-"):
                self._tree.unlink(f"{part.directory}/{name}")

    def _write(
        self, part: TimeSlice, inputs: SliceInputs, tables: list[TableSchema]
    ) -> Iterator[WrittenFile]:
        """The outputs of a slice: one, or more where devices come to very much."""
        output: OutputFile | None = None
        count = 0
        try:
            for device in inputs.devices():
                if output is None:
                    count += 1
                    output = self._output(part, count, tables)
                output.add(device)
                if self._is_full(output):
                    full, output = output.finish(), None
                    yield from [] if full is None else [full]
            last = None if output is None else output.finish()
            output = None
            yield from [] if last is None else [last]
        finally:
            if output is not None:
                output.drop()

    def _is_full(self, output: OutputFile) -> bool:
        request = self._request
        return output.points >= request.file_points or output.size >= request.file_bytes

    def _output(self, part: TimeSlice, count: int, tables: list[TableSchema]) -> OutputFile:
        path = f"{part.directory}/{self._moment(part)}-{count}-0-0.tsfile"
        return OutputFile(self._tree, path, self._request.version, tables, self._schema)

    def _moment(self, part: TimeSlice) -> int:
        """Outputs are called as a database calls its own: by a time, which orders them."""
        return int(to_seconds(self._request.commit) * 1000) + part.number

    def _end(self) -> ExportManifest:
        tree, schema, request = self._tree, self._schema, self._request
        files = [each for number in sorted(self._done) for each in self._done[number].files]
        tree.write_atomic(
            SCHEMA, _text(tree_statements(schema.groups, schema.series, request.version))
        )
        tables = {name: list(each.values()) for name, each in self._tables.items() if each}
        if tables:
            tree.write_atomic(TABLES, _text(table_statements(tables, schema.groups)))
        manifest = msgspec.structs.replace(
            self._manifest,
            files=files,
            points=sum(each.points for each in files),
            bytes=sum(each.size for each in files),
        )
        tree.write_atomic(MANIFEST, msgspec.json.format(msgspec.json.encode(manifest)) + b"\n")
        self._leave()
        return manifest

    def _remove_empty(self, directory: str) -> None:
        while directory and self._tree.remove_empty(directory):
            directory = directory.rpartition("/")[0]

    def _leave(self) -> None:
        for name in (_JOURNAL, _LOCK, _REQUEST):  # the last one says that it is not finished
            self._tree.unlink(name)


def _text(lines: Iterator[str]) -> Iterator[bytes]:
    return (f"{line}\n".encode() for line in lines)


def _decoded(content: bytes, kind: type[T], what: str) -> T:
    try:
        return from_json(content, kind)
    except msgspec.MsgspecError as error:
        raise UsageError(f"{what}: {error}: expected what an export wrote") from error
