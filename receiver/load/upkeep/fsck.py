"""Checks everything the receiver has on its disks; with `repair`, puts right what can be.

Only looking works beside a running server and on a stopped one. Repairing needs the engine's lock,
so the server must be down. Nothing is ever deleted: a bad or lost file is quarantined, which makes
its sender send it again, unless the object store or storage nodes are to have it whole; a file that
no row names is moved to `stray/` in its data directory; a torn log is cut where its sound part
ends; the journal of owners is brought up to the engine.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from common import crash
from common.decoders import from_json
from common.digests import md5_of_fd
from common.durable import Tree
from common.errors import DamagedError, NameRefusedError, TsferryError
from common.linelog import parse_load, parse_sync
from common.names import RESOURCE, FilePath, Kind
from common.step_progress import StepCounter, ToldProgress, untold
from common.tsfile import read_tail
from common.wire import Struct
from common.wire.base import CommitTs
from receiver.disks import Disks
from receiver.load.deciding.candidates import physical_name
from receiver.load.folder import json_lines
from receiver.load.folder.current_task import (
    LOAD_LOG,
    PLAN_LOG,
    SYNC_END,
    SYNC_LOG,
    TASK_RECORD,
    Planned,
    TaskRecord,
)
from receiver.load.folder.manifests import damages, kept_tasks, tables_path
from receiver.load.folder.sender_folder import FOLDERS_ROOT, VERIFIED_LOG, Folders
from receiver.load.merged_files import expected_outputs
from receiver.metadata import repair as log_repair
from receiver.metadata.engine import Engine
from receiver.metadata.log.journal import JOURNAL, parse_journal
from receiver.metadata.log.tlog import TLOG_NAME
from receiver.metadata.model import records
from receiver.metadata.model.merged_names import is_merged
from receiver.metadata.state.placed_files import holding_nodes, placed_nodes
from receiver.metadata.state.table_rows import FileState
from receiver.open_engine import open_engine, read_told

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from receiver.config import ReceiverConfig
    from receiver.disks import Away
    from receiver.load.folder.sender_folder import SenderFolder
    from receiver.metadata.model.true_times import TrueTimes
    from receiver.metadata.state.table_rows import FileRow
    from receiver.metadata.state.tables.compactions import CompactedOutput, CompactedRow
    from receiver.metadata.state.tables.uploaded import InStore

__all__ = ["STRAY", "Found", "Report", "examine", "fsck", "is_to_be_there", "strays_among"]

STRAY = "stray"
"""Directory of a data directory for what is not to lie under its name."""
_AT_ONCE = 10_000
"""Names on the disk that are compared with the rows at once."""
_SHOWN = 20
"""Series that a finding names."""
_MakeFound = Callable[[str, str], "Found"]


class Found(Struct, frozen=True, kw_only=True):
    """Something that is not as it should be.

    Attributes:
        kind: `missing`, `size`, `md5`, `structure`, `resource`, `merged` (what is read in place of
            others), `stray`, `log`, `engine`, `metadata`, `tags`, `journal`, `folder`,
            `quarantine`, `manifest` or `unreadable`.
        path: of the file, relative to its data or schema directory.
        detail: what was found.
        repair: what a repair does about it; empty where an operator has to decide.
        repaired: whether it was done.
        sender: uuid of the sender whose file it is.
        elsewhere: of a bad or missing file, who is to have it whole: `store` or `nodes`; empty for
            nobody.
    """

    kind: str
    path: str
    detail: str
    repair: str = ""
    repaired: bool = False
    sender: str | None = None
    elsewhere: str = ""

    @property
    def is_bad_file(self) -> bool:
        """Whether a loaded file is not here as it was loaded."""
        return self.kind in _BAD


class Report(Struct, frozen=True, kw_only=True):
    """What was looked at, and what is wrong.

    Attributes:
        engine: its uuid.
        commit: the newest.
        files: that readers see, or would see.
        bytes: of them.
        remote: files that are in none of the data directories, and in the object store.
        found: what is not as it should be.
    """

    engine: str
    commit: CommitTs
    files: int = 0
    bytes: int = 0
    remote: int = 0
    found: list[Found] = msgspec.field(default_factory=list)

    @property
    def good(self) -> bool:
        """Whether nothing is left to be put right."""
        return all(each.repaired for each in self.found)


def fsck(
    config: ReceiverConfig,
    *,
    repair: bool = False,
    cut_log: bool = False,
    without_nodes: bool = False,
    told: ToldProgress = untold,
) -> Report:
    """Check the directories of a configuration.

    Args:
        config: of the receiver.
        repair: put right what can be.
        cut_log: cut a log of the engine that is damaged in the middle first.
        without_nodes: what only storage nodes could have is quarantined.
        told: hears how far it is.

    Raises:
        NotFoundError: there is no receiver in them.
        LockedError: a repair was asked for, and the server is running.
        DamagedError: the log has nothing sound to keep.
    """
    if cut_log:
        log_repair.cut(config.schema_dir)
    try:
        engine = open_engine(config) if repair else read_told(config)
    except DamagedError as error:
        return Report(engine="", commit=0, found=[_damaged_engine(config.schema_dir, error)])
    with engine, ExitStack() as stack:
        disks = stack.enter_context(Disks.look(config, engine))
        trees = disks.trees
        schema = stack.enter_context(Tree(config.schema_dir))
        report = examine(
            engine, trees, schema, away=disks.away(), without_nodes=without_nodes, told=told
        )
        if repair and trees:
            report = _repair(engine, trees, config.schema_dir, report)
    return report


def _damaged_engine(directory: Path, error: DamagedError) -> Found:
    """What a damaged log still holds, so that a human can choose."""
    where = str(directory)
    try:
        log = log_repair.report(directory)
    except TsferryError:
        return Found(kind="engine", path=where, detail=error.message)
    if log.problem is None:
        return Found(kind="engine", path=where, detail=error.message)
    totals, times = log.state.file_table.totals(), log.state.clock.times
    where_it_is = f"{log.file} is damaged at offset {log.offset}"
    detail = log.problem if log.offset is None else where_it_is
    detail += (
        f"; {log.commits} commits are sound "
        f"(to {_moment(log.newest, times)}: {totals.files} files), "
        f"{len(log.behind)} frames behind the damage cannot be used without what is missing"
    )
    if log.behind:
        first, last = log.behind[0][1], log.behind[-1][2]
        detail += f" ({_moment(first, times)} to {_moment(last, times)})"
    detail += (
        "; restore the file from a copy, or with the server down `fsck --repair --cut-log` keeps "
        "the commits before the damage and puts the rest aside: senders bring their files again; "
        "tokens, owners and attributes that are gone are to be set again"
    )
    return Found(kind="engine", path=where, detail=detail)


def _moment(ts: int, times: TrueTimes) -> str:
    return datetime.fromtimestamp(times.seconds(ts), UTC).isoformat(sep=" ", timespec="seconds")


def examine(
    engine: Engine,
    trees: Sequence[Tree],
    schema: Tree,
    *,
    away: Sequence[Away] = (),
    without_nodes: bool = False,
    told: ToldProgress = untold,
) -> Report:
    """Look at everything, change nothing.

    Args:
        engine: open, for reading at least.
        trees: the data directories.
        schema: the schema directory.
        away: data directories that do not count.
        without_nodes: storage nodes do not count.
        told: hears how far it is.
    """
    found = [
        Found(kind="folder", path=str(each.path), detail=f"the directory is away: {each.reason}")
        for each in away
    ]
    with engine.reading() as state:
        rows = [row for row in state.files.values() if is_to_be_there(row)]
        compactions = list(state.compacted_table.holding())
        stored = [state.uploaded_table.parts(row) for row in rows]
        nodes = [not without_nodes and bool(placed_nodes(state, row.physical)) for row in rows]
        released = {
            row.physical
            for row in rows
            if row.physical in state.released_table.rows
            and holding_nodes(state, row.physical, proved=without_nodes)
        }
        commit = state.newest
    remote = 0
    counter = StepCounter("checking files", len(rows), sum(row.size for row in rows), told)
    for row, in_store, at_nodes in zip(rows, stored, nodes, strict=True):
        tree = next((each for each in trees if each.exists(row.physical)), None)
        if tree is None and (in_store.file or row.physical in released):
            remote += 1
        else:
            found += _check_file(row, tree, in_store, at_nodes=at_nodes, all_here=not away)
        counter.done(row.size)
    for each in compactions:
        found += _check_merged(each, trees, all_here=not away)
    found += _strays(engine, trees)
    for tree in trees:
        found += [
            Found(kind="folder", path=path, detail=detail)
            for path, detail in Folders([tree]).misplaced().items()
        ]
        for folder in _folders(tree):
            if not folder.misplaced():
                found += _check_folder(folder)
            found += _check_tables(folder, engine)
    found += _check_quarantine(engine, trees)
    found += _check_journal(engine, schema)
    found += _check_metadata(engine, schema)
    return Report(
        engine=engine.uuid,
        commit=commit,
        files=len(rows),
        bytes=sum(row.size for row in rows),
        remote=remote,
        found=found,
    )


# -- loaded files --------------------------------------------------------------------------------


def is_to_be_there(row: FileRow) -> bool:
    """Whether readers see it, or would see it again if what it rests on were lost."""
    return row.visible or row.state is FileState.SUPERSEDED


def _check_file(
    row: FileRow, tree: Tree | None, stored: InStore, *, at_nodes: bool, all_here: bool
) -> Iterator[Found]:
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


def _check_merged(row: CompactedRow, trees: Sequence[Tree], *, all_here: bool) -> Iterator[Found]:
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


def _strays(engine: Engine, trees: Sequence[Tree]) -> Iterator[Found]:
    """Files in `sequence/` and `unsequence/` that neither a row nor a task under way names."""
    on_disk = ((tree, rel) for tree in trees for kind in Kind for rel, _ in tree.files(kind))
    unnamed: list[tuple[Tree, str]] = []
    while some := list(islice(on_disk, _AT_ONCE)):
        unnamed += _without_rows(engine, some)
    for tree, rel in strays_among(engine, trees, unnamed):
        repair = f"move it to {STRAY}/{rel}"
        detail = f"no row names it (in {tree.path})"
        yield Found(kind="stray", path=rel, detail=detail, repair=repair)


def strays_among(
    engine: Engine, trees: Sequence[Tree], unnamed: list[tuple[Tree, str]]
) -> Iterator[tuple[Tree, str]]:
    """Of files without a row those that no task, and no merge, is about to name either.

    Args:
        engine: the metadata engine.
        trees: all data directories that are there.
        unnamed: where each is, and its name there.
    """
    expected = {name for tree in trees for name in _expected(tree)}
    merging = {
        name for tree in trees for several in expected_outputs(tree).values() for name in several
    }
    unnamed = _without_rows(engine, unnamed)  # what a task has committed meanwhile has its row
    with engine.reading() as state:
        merging |= {
            each.physical for row in state.compacted_table.rows.values() for each in row.outputs
        }
    for tree, rel in unnamed:
        if rel.removesuffix(RESOURCE) not in expected and rel not in merging:
            yield tree, rel


def _without_rows(engine: Engine, names: list[tuple[Tree, str]]) -> list[tuple[Tree, str]]:
    with engine.reading() as state:
        return [each for each in names if each[1].removesuffix(RESOURCE) not in state.files]


def _expected(tree: Tree) -> Iterator[str]:
    """Physical names of the files that tasks with an end are about to commit."""
    for folder in _folders(tree):
        try:
            record = from_json(tree.read(folder.at(TASK_RECORD)), TaskRecord)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            record = None
        names = [(record.task, each.path) for each in record.manifest or ()] if record else []
        with suppress(OSError, TsferryError):
            staged = folder.staged.recorded()
            names += [(each.single, each.path) for each in staged if each.single is not None]
        for task, text in names:
            try:
                yield physical_name(folder.uuid, task, FilePath.parse(text)).text
            except NameRefusedError:
                continue


# -- folders, logs, journal ----------------------------------------------------------------------


def _folders(tree: Tree) -> list[SenderFolder]:
    folders = Folders([tree])
    return [] if FOLDERS_ROOT in folders.misplaced() else list(folders.in_directory(tree))


def _check_folder(folder: SenderFolder) -> Iterator[Found]:
    tree = folder.tree
    for name, parse in ((SYNC_LOG, parse_sync), (LOAD_LOG, parse_load)):
        rel = folder.at(name)
        if tree.exists(rel):
            data = tree.read(rel)
            state = parse(data)
            if state.problem is not None:
                yield _torn(folder, rel, state.problem, state.good_bytes)
    for name, kind in ((PLAN_LOG, Planned), (VERIFIED_LOG, msgspec.Raw)):
        rel = folder.at(name)
        if tree.exists(rel):
            data = tree.read(rel)
            good = json_lines.parse(data, kind)[1]
            if good != len(data):
                detail = f"{len(data) - good} bytes after byte {good} are no whole line"
                yield _torn(folder, rel, detail, good)
    if not tree.exists(folder.at(SYNC_LOG)):
        for name in (LOAD_LOG, SYNC_END):
            if tree.exists(folder.at(name)):
                detail = "stale: there is no sync.log"
                yield Found(kind="log", path=folder.at(name), detail=detail, sender=folder.uuid)


def _check_tables(folder: SenderFolder, engine: Engine) -> Iterator[Found]:
    """What the sender says of series; a bad one costs only the names in a verification's report."""
    kept = kept_tasks(folder)
    roots: dict[str, dict[str, str]] = {task: {} for task in kept}
    with engine.reading() as state:
        for row in state.files.of({folder.uuid}) if kept else ():
            if row.task in roots and row.manifest is not None:
                roots[row.task][row.path] = row.manifest.root
    for task in kept:
        rel = tables_path(folder.directory, task)
        for detail in damages(folder, task, roots[task]):
            repair = f"move it to {STRAY}/{rel}"
            yield Found(kind="manifest", path=rel, detail=detail, repair=repair, sender=folder.uuid)


def _torn(folder: SenderFolder, rel: str, problem: str, good: int) -> Found:
    return Found(
        kind="log",
        path=rel,
        detail=problem,
        repair=f"cut it after byte {good}",
        sender=folder.uuid,
    )


def _check_quarantine(engine: Engine, trees: Sequence[Tree]) -> Iterator[Found]:
    with engine.reading() as state:
        kept = [row for row in state.quarantine.values() if row.kept is not None]
    for row in kept:
        if row.kept is not None and not any(tree.exists(row.kept) for tree in trees):
            yield Found(
                kind="quarantine",
                path=row.kept,
                detail=f"the bytes kept of {row.path} are gone",
                sender=row.sender,
            )


def _check_journal(engine: Engine, schema: Tree) -> Iterator[Found]:
    with engine.reading() as state:
        owners = {device: row.sender for device, row in state.owners.items()}
    data = schema.read(JOURNAL) if schema.exists(JOURNAL) else b""
    written, good = parse_journal(data)
    if good == len(data) and written == owners:
        return
    detail = (
        f"{len(data) - good} bytes after byte {good} are no whole line"
        if good != len(data)
        else "it does not say what the engine says"
    )
    repair = "bring it up to the engine"
    yield Found(kind="journal", path=JOURNAL, detail=detail, repair=repair)


def _check_metadata(engine: Engine, schema: Tree) -> Iterator[Found]:
    """Files of the engine that its start does not look at, and every entry of the tlog."""
    for each in log_repair.report(schema.path).damages:
        yield Found(kind="metadata", path=each.name, detail=each.problem, repair=each.remedy)
    bad = list(log_repair.bad_tags(engine))
    if bad:
        some = ", ".join(bad[:_SHOWN]) + (", ..." if len(bad) > _SHOWN else "")
        detail = f"tags and attributes of {len(bad)} series cannot be read: {some}"
        repair = "give them the tags that the index knows; their attributes are lost"
        yield Found(kind="tags", path=TLOG_NAME, detail=detail, repair=repair)


# -- repair --------------------------------------------------------------------------------------

_BAD = frozenset({"missing", "size", "md5", "structure", "unreadable"})


def _repair(engine: Engine, trees: Sequence[Tree], schema: Path, report: Report) -> Report:
    with engine.reading() as state:
        superseded = {
            row.physical for row in state.files.values() if row.state is FileState.SUPERSEDED
        }
    done: list[Found] = []
    # Those first: they would come back, without bytes, with what they rest on in quarantine.
    for each in sorted(report.found, key=lambda found: found.path not in superseded):
        repaired = False
        if each.is_bad_file and each.elsewhere:
            # What is missing then is fetched by whoever reads it, and checked.
            repaired = _set_aside(trees, each.path) and each.elsewhere == "store"
        elif each.is_bad_file:
            repaired = _quarantine(engine, each)
        elif each.kind == "merged":
            repaired = _dissolve(engine, each)
        elif each.kind in ("stray", "manifest"):
            repaired = _set_aside(trees, each.path)
        elif each.kind == "log":
            repaired = all(_put_log_right(tree, each.path) for tree in trees)
        elif each.kind == "journal":
            repaired = True  # opening the engine for writing has done it
        elif each.kind == "metadata" and each.repair:
            repaired = log_repair.put_aside(schema, each.path)
        elif each.kind == "tags":
            repaired = bool(log_repair.mend_tags(engine))
        crash.point("fsck.repaired")
        done.append(msgspec.structs.replace(each, repaired=repaired))
    return msgspec.structs.replace(report, found=done)


def _quarantine(engine: Engine, found: Found) -> bool:
    with engine.reading() as state:
        row = state.files.get(found.path)
    if row is None or row.state in (FileState.QUARANTINED, FileState.DELETED):
        return True  # a merged file goes with another one of its merge that is bad
    if row.state is FileState.SUPERSEDED:
        engine.commit([records.FileDeleted(found.path, "superseded")])
    else:
        engine.commit([records.FileQuarantined(found.path, f"{found.kind}: {found.detail}")])
    return True


def _dissolve(engine: Engine, found: Found) -> bool:
    with engine.reading() as state:
        rows = [
            row
            for row in state.compacted_table.holding()
            if any(each.physical == found.path for each in row.outputs)
        ]
    for row in rows:  # none, where another output of it was found first
        engine.commit([records.CompactionDissolved(row.id, f"{found.path}: {found.detail}")])
    return True


def _set_aside(trees: Sequence[Tree], rel: str) -> bool:
    moved = False
    for tree in trees:
        if tree.exists(rel):
            target = f"{STRAY}/{rel}"
            tree.make_dirs(target.rpartition("/")[0])
            tree.rename(rel, target)
            moved = True
    return moved


def _put_log_right(tree: Tree, rel: str) -> bool:
    """Cut a torn log; take a stale one away."""
    if not tree.exists(rel):
        return True
    data = tree.read(rel)
    name = rel.rpartition("/")[2]
    if name in (LOAD_LOG, SYNC_END) and not tree.exists(f"{rel[: -len(name)]}{SYNC_LOG}"):
        return tree.unlink(rel)
    if name == SYNC_LOG:
        good = parse_sync(data).good_bytes
    elif name == LOAD_LOG:
        good = parse_load(data).good_bytes
    else:
        kind = Planned if name == PLAN_LOG else msgspec.Raw
        good = json_lines.parse(data, kind)[1]
    with tree.append_file(rel) as file:
        file.truncate(good)
    return True
