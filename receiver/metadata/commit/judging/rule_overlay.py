"""Committed state with the changes of one commit over it, as far as rules look at it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from receiver.metadata.commit.judging.record_checks import refusal_of
from receiver.metadata.commit.series_rules.schema_rules import SchemaRules
from receiver.metadata.commit.touched import Touched, TouchedKey
from receiver.metadata.model import records
from receiver.metadata.state.table_rows import FileState

if TYPE_CHECKING:
    from receiver.metadata.commit.pace import Pace
    from receiver.metadata.state.state import State
    from receiver.metadata.state.tables.file_tables.compacted_rows import CompactedRow

__all__ = ["THERE", "FileOnTrial", "Rule", "RuleOverlay"]

T = TypeVar("T")

THERE = (FileState.LIVE, FileState.RETIRED, FileState.QUARANTINED)
"""States of files whose bytes are kept for their readers."""


@dataclass(frozen=True, slots=True)
class FileOnTrial:
    """What the rules need to know of a file."""

    sender: str
    path: str
    state: FileState
    retired: bool
    names: tuple[str, ...] = ()

    @property
    def held(self) -> bool:
        """Whether its sender has it on its list."""
        return self.state is not FileState.DELETED and not self.retired


class RuleOverlay:
    """See the module.

    Attributes:
        state: committed.
        changes: what stands under the keys that the commit has changed.
        compacts: whether there is a compaction in the commit.
        final: files that it makes final.
        final_inputs: the files that these take the place of.
        pace: lets others in between two steps.
        schema: the rules of storage groups and series.
        touched: keys that the commit looked at and changes.
    """

    __slots__ = (
        "changes",
        "compacts",
        "final",
        "final_inputs",
        "pace",
        "schema",
        "state",
        "touched",
    )

    def __init__(self, state: State, *, notes: bool, pace: Pace | None = None) -> None:
        """Begin with what is committed; see `Draft`."""
        self.state = state
        self.pace = pace
        self.changes: dict[TouchedKey, Any] = {}
        self.compacts = False
        self.final: frozenset[str] = frozenset()
        self.final_inputs: frozenset[str] = frozenset()
        self.touched = Touched()
        counts = state.max_memory is not None
        self.schema = SchemaRules(state.schema, self.touched, notes=notes, counts=counts, pace=pace)

    def get(self, key: TouchedKey, committed: Callable[[], T]) -> T:
        """What stands under a key: as this commit has it, or as it is committed."""
        if key in self.changes:
            found: T = self.changes[key]
            return found
        self.touched.read.add(key)
        return committed()

    def put(self, key: TouchedKey, value: object) -> None:
        """Have something stand under a key from now on."""
        self.schema.draft.put(self.changes, key, value)
        self.touched.written.add(key)

    def knows_sender(self, uuid: str) -> bool:
        """Whether a sender was seen."""
        return self.get(("sender", uuid), lambda: uuid in self.state.senders)

    def need_sender(self, uuid: str, op: records.Op) -> None:
        """See that a sender was seen."""
        if not self.knows_sender(uuid):
            raise refusal_of(op, f"sender {uuid} is not known")

    def directory(self, name: str) -> str | None:
        """The sender that has a directory."""

        def committed() -> str | None:
            row = self.state.sender_table.of_directory(name)
            return None if row is None else row.uuid

        return self.get(("directory", name), committed)

    def owner(self, device: str) -> str | None:
        """The sender that has a device."""

        def committed() -> str | None:
            row = self.state.owners.get(device)
            return None if row is None else row.sender

        return self.get(("owner", device), committed)

    def need_file(self, physical: str, op: records.Op, *states: FileState) -> FileOnTrial:
        """A file that must be in one of some states."""
        found = self.file(physical)
        if found is None:
            raise refusal_of(op, f"there is no file {physical}")
        if found.state not in states:
            raise refusal_of(op, f"{physical} is {found.state}")
        return found

    def file(self, physical: str) -> FileOnTrial | None:
        """What is known of a file; None if there is none."""

        def committed() -> FileOnTrial | None:
            row = self.state.files.get(physical)
            if row is None:
                return None
            return FileOnTrial(row.sender, row.path, row.state, row.retired, row.names)

        return self.get(("file", physical), committed)

    def put_file(self, physical: str, file: FileOnTrial) -> None:
        """Have a file stand so, and its paths with it."""
        self.put(("file", physical), file)
        for path in (file.path, *file.names):
            self.put(("path", file.sender, path), physical if file.held else None)

    def held(self, sender: str, path: str) -> str | None:
        """The file that a sender has under a path."""

        def committed() -> str | None:
            row = self.state.file_table.held(sender, path)
            return None if row is None else row.physical

        return self.get(("path", sender, path), committed)

    def is_done(self, sender: str, task: str) -> bool:
        """Whether a task was done."""
        return self.get(("task", sender, task), lambda: self.state.task_table.has(sender, task))

    def shake(self, physical: str) -> None:
        """What rests on a file matters: a commit that adds to it has to be true before this one."""
        self.touched.read.add(("resting", physical))

    def compaction(self, ident: int) -> CompactedRow | None:
        """A compaction, by its id."""
        return self.get(("compacted", ident), lambda: self.state.compacted_table.rows.get(ident))


Rule: TypeAlias = Callable[[RuleOverlay, Any], None]
"""Sees that an operation may follow those before it, and remembers what it changes."""
