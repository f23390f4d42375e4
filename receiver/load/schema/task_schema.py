"""The schema that a task brings: from its stage to the operations of the task's commit.

A large schema is applied in steps, so that no commit, and no look at the state, takes long: each
step is true by itself, and the last one stands in the commit of the task, with the position. What a
crash cuts off is done again from the begin, and finds most of it done.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from common import crash
from common.formats.schemaitems import Altered, Dropped, GroupDropped, Item, SeriesItem, read_items
from common.wire import SchemaKind
from receiver.load.schema.authority import Authority
from receiver.load.schema.end_state import Reduced, reduce_text
from receiver.load.schema.schema_change import SchemaChange, decide_schema
from receiver.metadata.commit.draft import Draft
from receiver.metadata.model import records
from receiver.metadata.model.errors import GuardFailed, RefusedCommitError
from receiver.metadata.model.paths import IllegalPathError
from receiver.metadata.state.tables.sender_tables.senders import KEPT_FAILURES
from receiver.scope import Scope

if TYPE_CHECKING:
    from common.wire import SchemaEnd
    from receiver.load.folder.current_task import CurrentTask
    from receiver.load.folder.schema_stage import StagedLog
    from receiver.load.folder.sender_folder import SenderFolder
    from receiver.metadata.commit.guards import Guard
    from receiver.metadata.engine import Engine
    from receiver.metadata.state.state import State

__all__ = ["SchemaPart", "TaskSchema", "apply_items", "import_items", "steps"]

log = logging.getLogger(__name__)

_STEP = 500
"""Things of one commit: while they are decided, and while they are made true, others wait."""
_LONG = 256
"""Characters of names and tags that weigh as much as one more series."""
_ATTEMPTS = 20


@dataclass(frozen=True)
class SchemaPart:
    """What a schema adds to the commit of its task: before all the rest of it."""

    ops: list[records.Op]
    guards: list[Guard]


class TaskSchema:
    """The schema of one task."""

    def __init__(
        self, engine: Engine, sender: str, scope: Scope, end: SchemaEnd, reduced: Reduced
    ) -> None:
        self._engine = engine
        self._sender = sender
        self._scope = scope
        self._end = end
        self._applied = 0
        self._failed = list(reduced.failed)
        *self._first, self._last = [*steps(reduced.items)] or [[]]

    @classmethod
    def read(cls, engine: Engine, folder: SenderFolder, current: CurrentTask) -> TaskSchema | None:
        """What the end of a task names, if it is here and fits; None: there is nothing to do.

        The sender sees by the position that stays what has to come again.
        """
        end = current.record.schema
        if end is None:
            return None
        staged = folder.schema.read(end)
        if isinstance(staged, str):
            log.warning("a schema is left: %s", staged, extra={"sender": folder.uuid})
            return None
        with engine.reading() as state:
            if not _follows(state, folder.uuid, end):
                log.warning("a schema does not begin where the last one ended: it comes again")
                return None
        reduced = _reduced(end, staged)
        return cls(engine, folder.uuid, Scope(current.record.scope), end, reduced)

    def prepare(self) -> None:
        """Apply all but the last step.

        Raises:
            TsferryError: as `Engine.commit`; all of it may be done again.
        """
        for step in self._first:
            self._count(apply_items(self._engine, step, self._sender, self._scope))
            crash.point("taskschema.step")
        self._first = []

    def _count(self, change: SchemaChange) -> None:
        self._applied += change.applied
        self._failed += change.failed

    def decide(self, draft: Draft) -> SchemaPart:
        """What the last step does, taken into a draft, and how far the log is applied with it."""
        change = _decide(self._engine, draft, self._last, self._sender, self._scope)
        failed = self._failed + change.failed
        synced = records.SchemaSynced(
            sender=self._sender,
            identity=self._end.identity,
            offset=self._end.offset,
            applied=self._applied + change.applied,
            failed=[(what[:300], why[:500]) for what, why in failed[:KEPT_FAILURES]],
            unapplied=len(failed),
            mark=self._end.mark,
            whole=self._end.base == 0,
        )
        return SchemaPart([*change.ops, synced], change.guards)


def _follows(state: State, sender: str, end: SchemaEnd) -> bool:
    """Whether a piece of a log begins where the log is applied; a whole one always does."""
    if end.base == 0:
        return True
    there = state.schema_positions.get(sender)
    return there is not None and (there.identity, there.offset) == (end.identity, end.base)


def _reduced(end: SchemaEnd, staged: StagedLog) -> Reduced:
    data = bytes(staged.data)
    if end.kind is SchemaKind.TEXT:
        news = end.base or end.news
        return reduce_text(data, staged.slots, start=end.base, news=news)
    found = Reduced([], [])
    for line, item in read_items(data):
        if isinstance(item, str):
            found.failed.append((line[:200].decode("utf-8", "backslashreplace"), item))
        else:
            found.items.append(item)
    return found


def steps(items: Iterable[Item]) -> Iterator[list[Item]]:
    """Items in pieces that one commit can take in a moment."""
    step: list[Item] = []
    weight = 0
    for item in items:
        step.append(item)
        weight += _weight(item)
        if weight >= _STEP:
            yield step
            step, weight = [], 0
    if step:
        yield step


def _weight(item: Item) -> int:
    size = len(item.path)
    if isinstance(item, SeriesItem | Altered):
        for texts in (item.tags, item.attributes):
            if texts:
                size += sum(len(key) + len(value) for key, value in texts.items())
    return 1 + size // _LONG


def apply_items(
    engine: Engine, items: Sequence[Item], sender: str | None, scope: Scope
) -> SchemaChange:
    """Apply items in one commit; what was decided is in the answer.

    Args:
        engine: the metadata engine.
        items: a step.
        sender: whose word it is; None: an operator's.
        scope: of the token.

    Raises:
        TsferryError: as `Engine.commit`.
    """
    for attempt in range(_ATTEMPTS):
        with engine.reading() as state:
            # Mostly all is taken; what is not is looked for only after it was refused.
            change = _decide(engine, Draft(state), items, sender, scope, trust=attempt == 0)
        try:
            if change.ops:
                engine.commit(change.ops, change.guards)
        except (GuardFailed, RefusedCommitError, IllegalPathError):
            # Or it was overtaken: what is there now decides.
            if attempt == _ATTEMPTS - 1:
                raise
        else:
            break
    return change


def import_items(engine: Engine, items: Iterable[Item], *, dry_run: bool) -> SchemaChange:
    """Apply items on an operator's word: for every device, and nothing is deleted.

    Args:
        engine: the metadata engine.
        items: storage groups first.
        dry_run: only say what would be done.
    """
    done = SchemaChange()
    wanted = (each for each in items if not isinstance(each, Dropped | GroupDropped))
    for step in steps(wanted):
        if dry_run:
            with engine.reading() as state:
                change = _decide(engine, Draft(state), step, None, Scope(()))
        else:
            change = apply_items(engine, step, None, Scope(()))
        done.ops += change.ops
        done.applied += change.applied
        done.failed += change.failed
    return done


def _decide(
    engine: Engine,
    draft: Draft,
    items: Sequence[Item],
    sender: str | None,
    scope: Scope,
    *,
    trust: bool = False,
) -> SchemaChange:
    return decide_schema(
        draft,
        items,
        Authority(draft.state, sender, scope),
        level=engine.options.storage_group_level,
        tag_bytes=engine.options.tag_bytes,
        tags_of=engine.tags_of,
        trust=trust,
    )
