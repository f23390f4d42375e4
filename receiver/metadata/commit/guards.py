"""Guards: a commit that holds only if nothing it was decided on has changed meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from receiver.metadata.model.errors import GuardFailed
from receiver.metadata.model.paths import format_path, parse_stored

if TYPE_CHECKING:
    from collections.abc import Iterable

    from receiver.metadata.commit.touched import Touched
    from receiver.metadata.state.state import State

__all__ = ["Guard", "Table", "UnchangedGuard", "check_guards", "note_guard"]

Table = Literal[
    "owner",
    "moves",
    "file",
    "path",
    "sender",
    "token",
    "quarantine",
    "task",
    "series",
    "storage_group",
    "table_drop",
    "schema_position",
    "delete_window",
    "held_deletes",
    "lost",
    "key",
    "keys",
    "node",
    "work",
    "state",
]


@dataclass(frozen=True, slots=True)
class Guard:
    """A row that must be as the caller saw it.

    Attributes:
        table: of the row.
        key: device for "owner"; none for "moves", the newest transfer or release of any device;
            physical path for "file"; (sender, path) for "path", the file that takes that path; uuid
            for "sender"; id for "token"; (sender, path, digest) for "quarantine"; (sender, task)
            for "task"; path in its stored form for "series" and "storage_group"; name for
            "table_drop", the newest drop of a table that had it; uuid of the sender for
            "schema_position"; (sender, storage group) for "delete_window"; digest for
            "held_deletes"; (sender, path, MD5) for "lost"; uuid for "node"; key for "key", prefix
            for "keys", which are all that begin with it; id, as text, for "work", whose row changes
            with each attempt; none for "state", which is all that is committed.
        changed: `changed` of the row that the caller saw, 0 for none. Of a series, a storage group
            and a key of the key-value store, `State.changed` also tells of its deletion.
    """

    table: Table
    key: str | tuple[str, ...]
    changed: int

    def holds(self, found: int) -> bool:
        """Whether a row is as it was seen; `found` is the commit that it is from now."""
        return found == self.changed

    def keys(self, state: State) -> list[tuple[object, ...]]:
        """The keys of `receiver.metadata.commit.judging.rules` that this guard looks at."""
        if self.table == "series" and isinstance(self.key, str):
            nodes = parse_stored(self.key)
            return [(format_path(nodes[:-1]), nodes[-1])]
        if self.table == "work" and isinstance(self.key, str):
            return [("work", int(self.key))]
        own = self.key if isinstance(self.key, tuple) else (self.key,)
        keys: list[tuple[object, ...]] = [(self.table, *own)]
        if self.table == "path" and (row := state.file_table.held(*own)) is not None:
            keys.append(("file", row.physical))
        return keys


@dataclass(frozen=True, slots=True)
class UnchangedGuard(Guard):
    """A row that no commit after `changed` may have touched; of a series, a storage group or a key.

    `State.changed` tells of the deletion of such rows, so a later one shows.
    """

    def holds(self, found: int) -> bool:
        """See `Guard.holds`."""
        return found <= self.changed


def check_guards(state: State, guards: Iterable[Guard]) -> None:
    """Compare guards with committed state.

    Raises:
        GuardFailed: one does not hold; it names the row.
    """
    for guard in guards:
        found = state.changed(guard.table, guard.key)
        if not guard.holds(found):
            raise GuardFailed(
                f"{guard.table} {guard.key!r} was changed by commit {found}, "
                f"the caller had seen commit {guard.changed}; look again",
                extra={"table": guard.table, "key": guard.key, "changed": found},
            )


def note_guard(touched: Touched, guard: Guard, state: State) -> None:
    """Note what a guard looks at, so that no commit that changes it is in one batch before its own.

    One that looks at more than a row is a batch of its own: a row that comes below a prefix, or any
    at all, has no key that could be compared.
    """
    touched.read.update(guard.keys(state))
    if guard.table in ("keys", "state"):
        touched.exclusive = True
