"""What is to be proved: the committed files, and what the catalogue alone can say of them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from common.config.units import format_duration
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
from receiver.spark.verify.merge_checks import CompactionAsked
from receiver.spark.verify.parts import Expected
from receiver.spark.verify.schemacheck import SchemaCheck
from receiver.storage.reading.stored_place import ReceiverAddress, StoreAddress, StoredPlace
from receiver.storage.stored_files import place_of
from receiver.superseding.due import file_asked, notes_asked, notes_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from common.tsfile.proof import SeriesTable
    from receiver.config import ReceiverConfig
    from receiver.datadirs.disks import Away
    from receiver.metadata.model.ranks import Rank, TransferCut
    from receiver.metadata.model.true_times import TrueTimes
    from receiver.metadata.state.state import State
    from receiver.metadata.state.table_rows import FileRow
    from receiver.metadata.state.tables.compacted_rows import CompactedOutput, CompactedRow
    from receiver.spark.verify.merge_checks import MergePartResult

__all__ = ["CommittedFile", "CommittedFiles", "FileScope", "Neighbour"]

_EXPIRY_GRACE_S = 3600.0
"""Beyond the TTL, until a file that is still there is worth a word: nothing is deleted at once."""


@dataclass(frozen=True, slots=True)
class FileScope:
    """Which files are asked for; all, if nothing is set.

    Attributes:
        task: only those that this task loaded.
        new: only those without a verdict, or changed since it.
        older_than: only those whose last verdict is more than so many seconds old, or missing.
    """

    task: str | None = None
    new: bool = False
    older_than: float | None = None

    def __str__(self) -> str:
        if self.task is not None:
            return f"task {self.task}"
        if self.new:
            return "new files"
        if self.older_than is not None:
            return f"not verified for {format_duration(self.older_than)}"
        return "all files"

    def wants_merge(self, verified: int, now: float, times: TrueTimes) -> bool:
        """Whether a compaction is among them, whatever of its inputs is; see `wants`."""
        if self.task is not None or (self.new and verified):
            return False
        return self.older_than is None or times.seconds(verified) <= now - self.older_than

    def wants(self, row: FileRow, now: float, times: TrueTimes) -> bool:
        """Whether a file is among them; `now` is in seconds since the epoch."""
        if self.task is not None and row.task != self.task:
            return False
        if self.new and row.verified >= row.changed:
            return False
        return self.older_than is None or times.seconds(row.verified) <= now - self.older_than


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


class _Elsewhere(NamedTuple):
    """Where a file may be but for data directories."""

    stored: bool
    at_nodes: bool


class CommittedFiles(Closing):
    """The committed files at one commit; a context manager.

    Attributes:
        uuid: of the engine.
        commit: the newest one that is seen.
        files: those that are asked for, by physical path.
        passed_over: how many visible files are not.
        is_hidden: whether points may be hidden: a file is retired, or deletions are applied.
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
        self._alive: dict[str, bool] = {}
        self._later: dict[str, _Elsewhere] | None = None
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
        self._away = () if copies else self._look_away()
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

    def output_absence(self, asked: CompactionAsked, part: MergePartResult) -> Finding:
        """What it means that a worker found a merged file in none of the data directories."""
        assert part.output is not None
        physical = asked.outputs[part.output].physical
        where = f" (on {part.host})" if part.host else ""
        for away in self._away:
            return _unproved(f"not found; {away}")
        if any(os.path.lexists(f"{root}/{physical}") for root in self._roots):
            return _unproved(f"this machine sees it, a worker did not{where}")
        with LocalCatalogue(self._config.schema_dir) as now, now.engine.reading() as state:
            row = state.compacted_table.rows.get(asked.ident)
            if row is None or row.dissolved:
                return Finding(
                    Severity.NOTE, "changed", None, None, None, "it was dissolved meanwhile"
                )
            home = row.outputs[part.output].data_dir
        if home and not (Path(home) / physical).parent.is_dir():
            return _unproved(f"not found, nor its directory in {home}: is the disk mounted?")
        places = ", ".join(self._roots)
        return Finding(
            Severity.BAD, "present", None, None, None, f"it is in no data directory: {places}"
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

    def absence(self, file: CommittedFile, host: str = "") -> Finding:
        """What it means that a worker (on `host`) found a file in none of the data directories.

        It is lost only if this machine, which has the receiver's directories, does not see it
        either, though all of them are there and hold files. Everything else says something about
        disks and mounts, and nothing about the file.
        """
        physical, home = file.row.physical, file.row.data_dir
        where = f" (on {host})" if host else ""
        if self._is_remote(physical):
            # One that was uploaded while this ran has no place: the next run reads it there.
            why = "since this began" if self._store else "and storage.url names none"
            return _unproved(f"it is in the object store only{where}, {why}")
        if self._is_remote(physical, at_nodes=True):
            return _unproved(f"it is at storage nodes only{where}: ask a receiver (--receiver)")
        for away in self._away:
            return _unproved(f"not found; {away}")
        for root in self._config.data_dirs:
            try:
                (root / physical).lstat()
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                return _unproved(f"not found{where}, and this machine cannot tell: {error}")
            return _unproved(
                f"this machine sees it in {root}, a worker did not{where}: is the directory "
                "mounted on all of them?"
            )
        if home and home not in self._roots:
            return _unproved(f"not found; it was loaded into {home}, which is not configured")
        if home and not self._is_alive(home):
            return _unproved(f"not found, as all files of {home}: is its disk mounted?")
        if not self._is_visible_now(physical):
            return Finding(
                Severity.UNPROVED, "changed", None, None, None, "it was deleted meanwhile"
            )
        places = ", ".join(self._roots)
        return Finding(
            Severity.BAD, "present", None, None, None, f"it is in no data directory: {places}"
        )

    def _is_alive(self, root: str) -> bool:
        """Whether a data directory holds any of its files, or the directories made for them."""
        if root not in self._alive:
            rows = self._catalogue.rows(self.commit).visible
            base = Path(root)
            self._alive[root] = any(
                (base / row.physical).parent.is_dir() for row in rows if row.data_dir == root
            )
        return self._alive[root]

    def _is_visible_now(self, physical: str) -> bool:
        """Whether the file is in the catalogue still, as it stood when this was first asked."""
        return physical in self._seen_later()

    def _is_remote(self, physical: str, *, at_nodes: bool = False) -> bool:
        """Whether a file is in the store, or at nodes, and this machine sees it in no directory."""
        if any(os.path.lexists(f"{root}/{physical}") for root in self._roots):
            return False
        seen = self._seen_later().get(physical)
        return seen is not None and (seen.at_nodes if at_nodes else seen.stored)

    def _seen_later(self) -> dict[str, _Elsewhere]:
        """Files that are visible still, each with where it may be but for data directories."""
        if self._later is None:
            with LocalCatalogue(self._config.schema_dir) as now:
                rows = now.rows(now.newest).visible
                with now.engine.reading() as state:
                    parts, released = state.uploaded_table.parts, state.released_table.rows
                    self._later = {
                        row.physical: _Elsewhere(parts(row).file, row.physical in released)
                        for row in rows
                    }
        return self._later

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


def _unproved(detail: str) -> Finding:
    return Finding(Severity.UNPROVED, "present", None, None, None, detail)
