"""What is to be proved: the committed files, and what the catalogue alone can say of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from common.durable import Closing
from common.errors import NotFoundError, TsferryError
from receiver.datadirs.disks import Disks
from receiver.load.deciding.expiry import Expiry
from receiver.load.folder.manifests import read_table
from receiver.metadata.model.centre_source import is_centre
from receiver.metadata.state.table_rows import FileState
from receiver.metadata.state.transfer_cuts import TransferCuts
from receiver.spark.local_catalogue import LocalCatalogue, StoreCatalogue
from receiver.spark.report.results import Finding, Severity
from receiver.spark.verify.examining.absences import Absences
from receiver.spark.verify.examining.merge_checks import CompactionAsked
from receiver.spark.verify.examining.parts import Expected
from receiver.spark.verify.examining.schemacheck import SchemaCheck
from receiver.spark.verify.file_scope import FileScope
from receiver.storage.cache.stored_files import place_of
from receiver.storage.reading.stored_place import ReceiverAddress, StoreAddress, StoredPlace
from receiver.superseding.due import file_asked, notes_asked, notes_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from common.tsfile.proof import SeriesTable
    from receiver.config import ReceiverConfig
    from receiver.datadirs.disks import Away
    from receiver.metadata.model.ranks import Rank, TransferCut
    from receiver.metadata.state.state import State
    from receiver.metadata.state.table_rows import FileRow
    from receiver.metadata.state.tables.file_tables.compacted_rows import (
        CompactedOutput,
        CompactedRow,
    )

__all__ = ["CommittedFile", "CommittedFiles", "Neighbour"]

_EXPIRY_GRACE_S = 3600.0
"""Beyond the TTL, until a file that is still there is worth a word: nothing is deleted at once."""


@dataclass(frozen=True, slots=True)
class CommittedFile:
    """A loaded file as the catalogue has it.

    Attributes:
        expected: what its bytes must show.
        row: of the catalogue.
        label: the name that its sender gave itself.
        directory: of its sender's folder.
        loaded_at: when it was loaded, seconds since the epoch.
        findings: what is wrong with it as far as the catalogue alone can tell.
    """

    expected: Expected
    row: FileRow
    label: str
    directory: str
    loaded_at: float
    findings: tuple[Finding, ...]

    @property
    def current(self) -> bool:
        """Whether it is part of its sender's present set (a retired file is not)."""
        return not self.row.retired and self.row.state is not FileState.RETIRED


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A file that is not asked for, with what the catalogue has of its devices.

    Attributes:
        expected: where it is.
        ranges: (device, first, last).
        rank: where it stands among files that overlap it.
        sender: whose it is.
        cuts: where it stands otherwise, in devices that were transferred.
    """

    expected: Expected
    ranges: tuple[tuple[str, int, int], ...]
    rank: Rank
    sender: str
    cuts: tuple[TransferCut, ...] = ()


class CommittedFiles(Closing):
    """The committed files at one commit; a context manager.

    Attributes:
        uuid: of the engine.
        commit: the newest one that is seen.
        files: those that are asked for, by physical path.
        passed_over: how many visible files are not.
        is_hidden: whether points may be hidden: a file is retired, or deletions are applied.
        absences: judges those that workers do not find.
    """

    def __init__(
        self,
        config: ReceiverConfig,
        scope: FileScope,
        clock: Callable[[], float] | None = None,
        *,
        receiver: ReceiverAddress | None = None,
        copies: bool = False,
    ) -> None:
        """Read the catalogue.

        Args:
            config: of the receiver.
            scope: which files.
            clock: seconds since the epoch; as far as the receiver would believe it, if left out.
            receiver: that gives files to workers which have no other way to them.
            copies: read the copies in `storage.url` alone, of a receiver that need not be there.

        Raises:
            NotFoundError: no engine is there, or no such task is committed.
            DamagedError: the receiver's log is damaged.
        """
        self._config = config
        self._roots = tuple(map(str, config.data_dirs))
        self._names: dict[int | tuple[str, ...], tuple[str, ...]] = {}
        self._store = StoreAddress.of(config.storage)
        self._receiver = receiver
        self._copies = copies
        if copies and self._store is not None:
            self._catalogue: LocalCatalogue = StoreCatalogue(self._store)
        else:
            self._catalogue = LocalCatalogue(
                config.schema_dir, data_dirs=self._roots, config=config
            )
        self.uuid, self.commit = self._catalogue.uuid, self._catalogue.newest
        visible = self._catalogue.rows(self.commit).visible
        now = (clock or self._catalogue.engine.clock.cautious)()
        times = self._catalogue.times
        away = () if copies else self._look_away()
        self.absences = Absences(config, visible, away, has_store=self._store is not None)
        with self._catalogue.engine.reading() as state:
            self._schema = SchemaCheck(state.schema)
            self._cuts = TransferCuts(state.owner_table.moves, self.commit)
            expiry = Expiry(state.schema, now - _EXPIRY_GRACE_S, config.time_unit)
            rows = [row for row in visible if scope.wants(row, now, times)]
            self.files = [self._committed(state, row, expiry) for row in rows]
            self._others = [row for row in visible if not scope.wants(row, now, times)]
            self._visible = visible
            self._merges = [] if copies else self._wanted_merges(state, scope, rows, now)
            self.passed_over = len(self._others)
            self.is_hidden = any(not each.current for each in self.files) or any(
                each.applied for row in state.deletion_table for each in row.segments
            )
            known = scope.task is None or any(
                state.task_table.has(each, scope.task) for each in state.senders
            )
        if not rows and not known:
            self.close()
            raise NotFoundError(f"--task {scope.task}: no such task is committed here")

    def _wanted_merges(
        self, state: State, scope: FileScope, rows: Sequence[FileRow], now: float
    ) -> list[CompactedRow]:
        names, times = {row.physical for row in rows}, self._catalogue.times
        return [
            each
            for each in state.compacted_table.at(self.commit)
            if scope.wants_merge(each.verified, now, times) or names.issuperset(each.inputs)
        ]

    def _look_away(self) -> Sequence[Away]:
        with Disks.look(self._config, self._catalogue.engine) as disks:
            return disks.away()

    def close(self) -> None:
        """Let the state go."""
        self._catalogue.close()

    def neighbours(self) -> list[Neighbour]:
        """The current files that are not asked for, in the partitions of those that are."""
        places = {_partition_of(each.row.physical) for each in self.files}
        with self._catalogue.engine.reading() as state:
            return [
                Neighbour(
                    Expected(
                        row.physical,
                        self._roots,
                        database=_partition_of(row.physical)[0],
                        kind=row.physical.split("/")[0],
                        place=self._place(state, row),
                    ),
                    tuple(row.devices.ranges()),
                    row.rank,
                    row.sender,
                    self.cuts_of(row),
                )
                for row in self._others
                if row.state is FileState.LIVE and _partition_of(row.physical) in places
            ]

    def cuts_of(self, row: FileRow) -> tuple[TransferCut, ...]:
        """Where a file stands otherwise, in devices that were transferred."""
        return self._cuts.of(row)

    def compactions(self) -> list[CompactionAsked]:
        """Those that hold and are asked for, or whose inputs all are: these are read in any case.

        None of the copies in a store: no merged file is there.
        """
        rows = {row.physical: row for row in self._visible} if self._merges else {}
        with self._catalogue.engine.reading() as state:
            return [
                self._compaction(state, each, [rows[name] for name in each.inputs])
                for each in self._merges
            ]

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to do."""
        return not self.files and not self._merges

    def replaced(self) -> frozenset[str]:
        """Files that readers read merged ones in place of."""
        with self._catalogue.engine.reading() as state:
            rows = state.compacted_table.at(self.commit)
            return frozenset(name for row in rows for name in row.inputs)

    def _compaction(
        self, state: State, row: CompactedRow, inputs: Sequence[FileRow]
    ) -> CompactionAsked:
        notes, devices = notes_of(state, {each.sender for each in inputs}, row.sg)
        return CompactionAsked(
            ident=row.id,
            outputs=tuple(self._output(row, each) for each in row.outputs),
            inputs=tuple(file_asked(each, None, self.cuts_of(each)) for each in inputs),
            notes=tuple(notes_asked(notes, devices, self.commit)),
            database=row.sg,
            roots=self._roots,
            name=f"sequence/{'/'.join(row.key)}/merged-{row.id}",
        )

    def _output(self, row: CompactedRow, output: CompactedOutput) -> Expected:
        place = None
        if (asked := self._receiver) is not None:
            name = output.physical
            place = StoredPlace(None, name, output.size, output.md5, "", asked, name)
        return Expected(
            physical=output.physical,
            roots=self._roots,
            size=output.size,
            md5=output.md5,
            devices=tuple(output.devices.names()),
            series=output.series,
            points=output.points,
            database=row.sg,
            kind="sequence",
            place=place,
        )

    # -- questions about one file, once it was read --------------------------------------------

    def against_schema(self, file: CommittedFile, outline: bytes) -> tuple[Finding, ...]:
        """How types and codecs of a file differ from the schema."""
        if not file.row.registered:
            return ()  # loaded before there was a schema, and not yet taken in
        with self._catalogue.engine.reading():
            return self._schema.findings(outline)

    def sent_table(self, file: CommittedFile) -> SeriesTable | str:
        """What the sender said of the series of a file; or why that is not known any more."""
        try:
            table = read_table(self._config.data_dirs, file.directory, file.row)
        except (TsferryError, OSError) as error:
            return str(error)
        return "the sender's table of series is not kept here" if table is None else table

    # -- reading -------------------------------------------------------------------------------

    def _committed(self, state: State, row: FileRow, expiry: Expiry) -> CommittedFile:
        manifest, sender = row.manifest, state.senders.get(row.sender)
        kind, database = row.physical.split("/")[:2]
        expected = Expected(
            physical=row.physical,
            roots=self._roots,
            size=row.size,
            md5=row.md5,
            devices=self._devices(row),
            series=row.series,
            points=row.points,
            manifest_series=manifest.series if manifest else None,
            manifest_points=manifest.points if manifest else None,
            manifest_root=(manifest.root or None) if manifest else None,
            database=database,
            kind=kind,
            place=self._place(state, row),
        )
        return CommittedFile(
            expected=expected,
            row=row,
            label=sender.label if sender else "",
            directory=sender.directory if sender else "",
            loaded_at=state.clock.times.seconds(row.created),
            findings=(*_ownership(state, row, expected.devices or ()), *_expired(row, expiry)),
        )

    def _place(self, state: State, row: FileRow) -> StoredPlace | None:
        physical = row.physical
        if self._store is not None and state.uploaded_table.parts(row).file:
            there = state.uploaded_table.rows[physical]
            return place_of(self._store, self.uuid, there, row.md5, self._receiver)
        if self._receiver is not None:
            return StoredPlace(None, physical, row.size, row.md5, "", self._receiver, physical)
        if not self._copies or self._store is None:
            return None  # here it should be on a disk
        return StoredPlace(self._store, "", row.size, row.md5, "", None, physical, self.uuid)

    def _devices(self, row: FileRow) -> tuple[str, ...]:
        """Names of a file's devices: one object for all files that have the same ones."""
        shared = id(row.devices.parts()[0])
        if shared not in self._names:
            names = tuple(row.devices.names())
            self._names[shared] = self._names.setdefault(names, names)
        return self._names[shared]


def _partition_of(physical: str) -> tuple[str, str]:
    """Storage group and time partition: files of one device that overlap have both in common."""
    _, sg, _, partition, _ = physical.split("/")
    return sg, partition


def _ownership(state: State, row: FileRow, devices: Sequence[str]) -> Iterator[Finding]:
    """A file must come from the owner that its devices had when it was loaded.

    A device that was transferred or released later is no fault of the file. What the centre loads
    without an edge may be in the name of any owner: the rules of the commit have looked at that.
    """
    if is_centre(row.sender):
        return
    for device in devices:
        owner = state.owners.get(device)
        if owner is not None and owner.sender != row.sender and owner.since <= row.created:
            detail = f"it belongs to {owner.sender}, not to {row.sender}"
            yield Finding(Severity.PROBLEM, "owner", device, None, None, detail)


def _expired(row: FileRow, expiry: Expiry) -> Iterator[Finding]:
    if expiry.is_past_row(row):
        detail = (
            "all of it is past the TTL of its storage groups, and it is still here: files do not "
            "expire, or no receiver runs (see tsferry-receiver status)"
        )
        yield Finding(Severity.PROBLEM, "ttl", None, None, None, detail)
