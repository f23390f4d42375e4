"""Loading one task: collect, decide, move, commit, finish. Every step can be done again.

    collect   the verified files of the manifest, read once more by the receiver itself
    keep      what the sender says of their series (`load.folder.manifests`)
    decide    `load.deciding.change`, on committed state
    move      files to their final names, directories synced
    commit    all of the task in one
    finish    resources that came alone to their places, load.log, clean-up of the folder

A crash before the commit leaves files under their final names without a row: the next attempt
finds them there. A crash after it leaves only the finish to do.
"""

from __future__ import annotations

import logging
from collections import Counter
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING

from common import crash
from common.errors import ConflictError, TooLargeError, TsferryError
from common.formats.linelog import LoadLog
from common.names import RESOURCE, FilePath
from common.wire import Result
from receiver.datadirs.disks import NAMING, whole_in
from receiver.load.collecting import Collected
from receiver.load.deciding.change import decide_change
from receiver.load.deciding.decision_pauses import pauses
from receiver.load.deciding.known_files.candidates import Change, physical_name
from receiver.load.deciding.known_files.centre_loads import owner_guards, whole_or_nothing
from receiver.load.folder.current_task import LOAD_LOG
from receiver.load.folder.manifests import remove_tables, write_tables
from receiver.load.folder.obstacles import is_of_one_path
from receiver.load.mandate import mandate_guards, nothing_taken, why_withdrawn
from receiver.load.placing import move_back, move_in, replace_resource
from receiver.load.schema.registering import Registering
from receiver.load.schema.task_schema import SchemaPart, TaskSchema
from receiver.metadata.commit.draft import Draft
from receiver.metadata.commit.guards import Guard
from receiver.metadata.model import records
from receiver.metadata.model.errors import GuardFailed, RefusedCommitError, SchemaConflictError
from receiver.metadata.model.records import FileOutcome
from receiver.metadata.state.placed_files import parts_elsewhere

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from common.durable import Tree
    from receiver.config import DeletesConfig
    from receiver.load.folder.current_task import CurrentTask
    from receiver.load.folder.sender_folder import SenderFolder
    from receiver.load.upkeep.ttl import Ttl
    from receiver.metadata.engine import Engine
    from receiver.metadata.state.state import State
    from receiver.metadata.state.table_rows import FileRow

__all__ = ["finish", "load_task"]

log = logging.getLogger(__name__)

_ATTEMPTS = 20
"""Decisions that may be overtaken by an operator before the load waits a moment."""
_DROPPED = frozenset({Result.ALREADY, Result.REFUSED, Result.QUARANTINED, Result.EXPIRED})


def load_task(
    engine: Engine,
    trees: Sequence[Tree],
    folder: SenderFolder,
    current: CurrentTask,
    *,
    ttl: Ttl,
    clock: Callable[[], float],
    keep_bytes: int,
    tokens_required: bool = False,
    deletes: DeletesConfig | None = None,
) -> None:
    """Make one attempt to load a task and to clean up after it.

    Args:
        engine: the metadata engine.
        trees: the data directories.
        folder: of the sender.
        current: the task; its end is durable.
        ttl: says what is not taken in any more.
        clock: seconds since the epoch.
        keep_bytes: of files in conflict that may stay for a later round.
        tokens_required: whether each sender needs a token.
        deletes: how much a sender may delete.

    Raises:
        TsferryError, OSError: it could not be done now; making another attempt is safe.
    """
    with folder.lock:
        if not _is_done(engine, folder, current):
            # The commit of the attempt before may be true without an answer: what it has placed
            # is loaded then, and would be taken back where it is decided otherwise by now.
            engine.settle()
        if not _is_done(engine, folder, current):
            _commit(
                engine,
                trees,
                folder,
                current,
                ttl,
                clock,
                tokens_required=tokens_required,
                deletes=deletes,
            )
        finish(engine, trees, folder, current, keep_bytes=keep_bytes)


def _is_done(engine: Engine, folder: SenderFolder, current: CurrentTask) -> bool:
    with engine.reading() as state:
        return state.task_table.has(folder.uuid, current.id)


def _commit(
    engine: Engine,
    trees: Sequence[Tree],
    folder: SenderFolder,
    current: CurrentTask,
    ttl: Ttl,
    clock: Callable[[], float],
    *,
    tokens_required: bool,
    deletes: DeletesConfig | None,
) -> None:
    def withdrawn(state: State) -> str | None:
        return current.withdrawn or why_withdrawn(
            state, current.record, clock(), tokens_required=tokens_required
        )

    def decided() -> Change:
        return _decide(
            engine,
            trees,
            folder,
            current,
            ttl,
            collected,
            schema,
            trusting=trusting,
            deletes=deletes,
        )

    if current.withdrawn is not None:  # what keeps it from being read does not keep it from ending
        _end_with_nothing(engine, folder, current, current.withdrawn)
        return
    collected = Collected(folder, current, clock)
    collected.read()
    write_tables(folder, current.id, collected.proofs)
    crash.point("load.tables")
    schema = TaskSchema.read(engine, folder, current)
    with engine.reading() as state:
        may_write = withdrawn(state) is None
    if schema is not None and may_write:
        schema.prepare()
    trusting = True
    for attempt in range(1, _ATTEMPTS + 1):
        with engine.reading() as state:
            reason = withdrawn(state)
            mandate = mandate_guards(state, current.record)
        if reason is None:
            change = decided()
            change.guards += mandate
        else:
            change = _nothing(folder, current, reason)
        crash.point("load.decided")
        while stuck := _place(folder, current, change):
            collected.leave(stuck)
            change = decided()
            change.guards += mandate
        with engine.reading() as state:
            if reason is None and withdrawn(state) is not None:
                continue  # while it was decided, or moved: that takes its time
        try:
            engine.commit(change.ops, change.guards)
        except (RefusedCommitError, SchemaConflictError):
            if attempt == _ATTEMPTS:
                raise
            trusting = False  # or it was overtaken: what is there now decides
            continue
        except (GuardFailed, ConflictError):
            continue
        except TooLargeError:
            collected.put_off(change)
            continue
        crash.point("load.committed")
        folder.note_stuck(collected.stuck, [entry.path for entry in current.record.manifest or ()])
        _tell(folder, current, change)
        for kept in change.kept_gone:
            folder.tree.unlink(kept, sync=False)
        return
    raise GuardFailed(f"task {current.id}: overtaken {_ATTEMPTS} times; tried again in a moment")


def _nothing(folder: SenderFolder, current: CurrentTask, reason: str) -> Change:
    log.warning("nothing of a task is taken: %s", reason, extra={"task": current.id})
    done = Guard("task", (folder.uuid, current.id), 0)
    taken = nothing_taken(current.record, reason, current.deletions_told)
    return Change(ops=[taken], guards=[done])


def _end_with_nothing(
    engine: Engine, folder: SenderFolder, current: CurrentTask, reason: str
) -> None:
    change = _nothing(folder, current, reason)
    crash.point("load.decided")
    _place(folder, current, change)
    engine.commit(change.ops, change.guards)
    crash.point("load.committed")
    _tell(folder, current, change)


def _decide(
    engine: Engine,
    trees: Sequence[Tree],
    folder: SenderFolder,
    current: CurrentTask,
    ttl: Ttl,
    collected: Collected,
    schema: TaskSchema | None,
    *,
    trusting: bool,
    deletes: DeletesConfig | None,
) -> Change:
    # What is of the centre can be of very many files; others commit in the middle of the decision.
    for commits in (True, False) if current.record.centre is not None else (False,):
        moment = ttl.moment()
        with engine.reading() as state:
            before = owner_guards(state, collected.candidates.values()) if commits else []
            part, first = _with_schema(state, schema)
            drafts = [first]

            def registering(drafts: list[Draft] = drafts, state: State = state) -> Registering:
                draft = drafts.pop() if drafts else _with_schema(state, schema)[1]
                return Registering(
                    draft,
                    level=engine.options.storage_group_level,
                    trusting=trusting,
                    creates=engine.options.auto_create,
                )

            between = pauses(engine.reading(), commits=commits)
            change = decide_change(
                state,
                current.record,
                current.planned,
                collected.candidates,
                collected.failed,
                current.deletions_told,
                resources=collected.resources,
                registering=registering,
                stands=partial(_stands, state, trees),
                expiry=ttl.expiry(state, moment),
                data_dir=str(folder.tree.path),
                deletes=deletes,
                between=between,
            )
            change = whole_or_nothing(state, current.record, change, between)
            if before == (owner_guards(state, collected.candidates.values()) if commits else []):
                break
    change.ops[:0] = part.ops
    change.guards += part.guards
    return change


def _stands(state: State, trees: Sequence[Tree], row: FileRow) -> bool:
    return whole_in(trees, row, parts_elsewhere(state, row))


def _with_schema(state: State, schema: TaskSchema | None) -> tuple[SchemaPart, Draft]:
    """What a task's schema does, and a draft that has taken it."""
    draft = Draft(state)
    return SchemaPart([], []) if schema is None else schema.decide(draft), draft


def _tell(folder: SenderFolder, current: CurrentTask, change: Change) -> None:
    done = [op for op in change.ops if isinstance(op, records.TaskDone)]
    counts = Counter(each.result.value for op in done for each in op.outcomes)
    log.info("a task is committed", extra={"sender": folder.uuid, "task": current.id, **counts})


def _place(folder: SenderFolder, current: CurrentTask, change: Change) -> dict[str, str]:
    """Move what is loaded in, and what an earlier decision had moved, and this does not, out.

    Returns:
        what stands in the way of files that cannot be placed, by path.
    """
    loads = {load.candidate.path.text: load.candidate.path for load in change.loads}
    left = [
        FilePath.parse(entry.path)
        for entry in current.record.manifest or ()
        if entry.path not in loads
    ]
    move_back(
        folder.tree,
        [
            (folder.staged_at(each), physical_name(folder.uuid, current.id, each))
            for path in left
            for each in (path, path.resource)
        ],
    )
    moves = []
    for load in change.loads:
        moves.append((folder.staged_at(load.candidate.path), load.physical))
        if load.candidate.resource is not None:
            moves.append((folder.staged_at(load.candidate.path.resource), load.physical.resource))
    stuck = move_in(folder.tree, moves)
    found: dict[str, str] = {}
    for path in loads.values():
        why = stuck.get(folder.staged_at(path)) or stuck.get(folder.staged_at(path.resource))
        if why is not None:
            found[path.text] = why
    return found


# -- after the commit ----------------------------------------------------------------------------


def finish(
    engine: Engine,
    trees: Sequence[Tree],
    folder: SenderFolder,
    current: CurrentTask,
    *,
    keep_bytes: int,
) -> None:
    """Do what follows the commit of a task; the same again after a crash in the middle.

    Called late for a task whose folder is already at the next one, it does nothing.
    """
    with engine.reading() as state:
        row = state.task_table.get(folder.uuid, current.id)
    if row is None or not _is_there(folder, current):
        current.close()
        return
    outcomes = row.outcomes
    _place_resources(engine, trees, folder, _with(outcomes, Result.ALREADY))
    crash.point("finish.resources")
    if not current.record.single:
        _write_load_log(folder, outcomes)
        crash.point("finish.load_log")
    if not _with(outcomes, Result.LOADED):
        remove_tables(folder, current.id)
    if current.record.centre is not None:  # nobody comes back for what is left of it
        keep_bytes = 0
    _clear_staged(folder, outcomes, keep_bytes, single=current.record.single)
    if current.record.schema is not None:
        folder.schema.clear()
    crash.point("finish.staged")
    if not current.record.single:
        folder.forget_task()
    crash.point("finish.done")


def _place_resources(
    engine: Engine, trees: Sequence[Tree], folder: SenderFolder, already: Iterable[FileOutcome]
) -> None:
    """Put resources that came without their TsFiles beside these, in the place of the old ones."""
    for outcome in already:
        came = folder.staged.get(outcome.path + RESOURCE)
        if came is None:
            continue
        with engine.reading() as state:
            row = state.file_table.held(folder.uuid, outcome.path)
            stored = row is not None and parts_elsewhere(state, row).file
        if row is not None and row.resource == records.ResourceMeta(came.size, came.md5):
            with NAMING:
                rel = folder.staged.at(came.path)
                replace_resource(folder.tree, rel, trees, row, stored=stored)


def _is_there(folder: SenderFolder, current: CurrentTask) -> bool:
    """Whether the folder still holds what belongs to this task."""
    if not current.record.single:
        return folder.task is not None and folder.task.id == current.id
    paths = [entry.path for entry in current.record.manifest or ()]
    staged = [folder.staged.get(path) for path in paths]
    return all(each is not None and each.single == current.id for each in staged)


def _write_load_log(folder: SenderFolder, outcomes: Iterable[FileOutcome]) -> None:
    with (
        folder.beside(LOAD_LOG),
        closing(LoadLog.open(folder.tree, folder.at(LOAD_LOG))) as load_log,
    ):
        load_log.record(
            deleted=[FilePath.parse(each.path) for each in _with(outcomes, Result.DELETED)],
            loaded=[FilePath.parse(each.path) for each in _with(outcomes, Result.LOADED)],
        )


def _clear_staged(
    folder: SenderFolder, outcomes: list[FileOutcome], keep_bytes: int, *, single: bool
) -> None:
    """Forget what has moved, remove what nobody wants.

    What is in conflict, or was left by a task that was dropped, stays for a later round, the
    oldest only as long as it does not take the room of what is to come.
    """
    staged = folder.staged
    staged.drop(_and_resources(_with(outcomes, Result.LOADED)))
    unwanted = [each for each in outcomes if each.result in _DROPPED]
    unwanted += _with(outcomes, Result.DELETED) + _with(outcomes, Result.RETIRED)
    if single:  # its client was told; nobody comes back for it
        unwanted += _with(outcomes, Result.MISSING)
    staged.discard(_and_resources(unwanted))
    for old in sorted(staged.all(), key=lambda each: each.at):
        if staged.bytes <= keep_bytes:
            break
        if old.single is None:
            staged.discard([old.path])
    _remove_empty(folder, outcomes)


def _remove_empty(folder: SenderFolder, outcomes: Iterable[FileOutcome]) -> None:
    directories = {each.path.rpartition("/")[0] for each in outcomes}
    for directory in sorted(directories):
        try:
            while directory and folder.tree.remove_empty(folder.at(f"data/{directory}")):
                directory = directory.rpartition("/")[0]
        except (OSError, TsferryError) as error:
            if not is_of_one_path(error):
                raise
            log.warning("an empty directory stays", extra={"error": str(error)})


def _with(outcomes: Iterable[FileOutcome], result: Result) -> list[FileOutcome]:
    return [each for each in outcomes if each.result is result]


def _and_resources(outcomes: Iterable[FileOutcome]) -> list[str]:
    return [text for each in outcomes for text in (each.path, each.path + RESOURCE)]
