"""Tables that are made by hand, ahead of what is loaded, and what is said of them later.

    made = create_table(engine, "root.wind", [2900, 2904, 2908], replicas=2)   # two tablets
    alter_table(engine, "root.wind", replicas=3)

All of a table is one commit: its storage group, where that is not there, its row, its tablets, and
how many copies it has. So nobody ever sees a part of it, and of two that make one name the second
is refused, in the one order that commits have. Nothing is asked of a node here: the tablets are
placed by the background task, as those are that loads make.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol
from uuid import uuid4

from common.errors import NameRefusedError
from common.names import FilePath, Kind
from receiver.metadata.commit.judging.tablet_rules import MOST_REPLICAS
from receiver.metadata.commit.tablet_making import table_nodes
from receiver.metadata.model import records
from receiver.metadata.model.errors import (
    StorageGroupNestedError,
    TableExistsError,
    TableMissingError,
    TableRefusedError,
)
from receiver.metadata.model.paths import IllegalPathError, format_path, parse_stored

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from receiver.metadata.commit.guards import Guard
    from receiver.metadata.model.paths import Nodes
    from receiver.metadata.state.lock import Reading
    from receiver.metadata.state.state import State
    from receiver.metadata.state.tables.place_tables.tablets import LoadedTableRow

__all__ = ["MOST_TABLETS_MADE", "TableAlteration", "alter_table", "create_table", "table_named"]

MOST_TABLETS_MADE: Final = 10_000
"""Of one call: a commit of two megabytes."""
_WIDEST: Final = 1000
"""Partitions of a tablet: a list of its files looks at each of them."""
_OUTERMOST: Final = 1 << 50
"""Numbers of partitions lie below this: far beyond any time in milliseconds."""


class _Engine(Protocol):
    """What reads and commits."""

    def reading(self) -> Reading:
        """Committed state, for a block."""

    def commit(self, ops: Sequence[records.Op], guards: Sequence[Guard] = ()) -> int:
        """The timestamp of a commit."""


class TableAlteration(NamedTuple):
    """What is to be said of a table.

    Attributes:
        replicas: storage nodes that are to have its tablets; None where nothing is said of that.
        is_as_configured: it is to have as many as configured.
        splits: partitions at which further tablets begin, and the last of them ends.
    """

    replicas: int | None = None
    is_as_configured: bool = False
    splits: Sequence[int] = ()


def create_table(
    engine: _Engine, name: str, splits: Sequence[int], *, replicas: int | None = None
) -> tuple[str, int]:
    """Make a table, with the tablets between splits; its id, and the commit.

    Args:
        engine: that it is to be in.
        name: of the storage group, or of the database of the table model, as the directory of its
            files is called.
        splits: numbers of partitions, increasing: at each but the last a tablet begins, which ends
            at the next one. Without any there is no tablet yet.
        replicas: storage nodes that are to have each tablet; None for as many as configured.

    Raises:
        TableExistsError: there is one of that name.
        TableRefusedError: the name, the splits or the replicas are none.
        StorageGroupNestedError: it would lie in another storage group, or one in it.
    """
    nodes = _check_name(name)
    _check_splits(name, splits)
    _check_replicas(name, replicas)
    ident = uuid4().hex
    with engine.reading() as state:
        if state.loaded_tables.named(name) is not None:
            raise TableExistsError(f"there is a table {name}", extra={"path": name})
        group = state.schema.groups.of(nodes)
    if group is not None and group != nodes:
        raise StorageGroupNestedError(
            f"{name} lies in the storage group {format_path(group)}: files come to that one",
            extra={"path": name, "other": format_path(group)},
        )
    # Also where it is there now: somebody may delete it before this is committed.
    made = records.StorageGroupSet(format_path(nodes), if_missing=True)
    ops: list[records.Op] = [made, records.TableMade(ident, name), *_tablets(ident, splits)]
    if replicas is not None:
        ops.append(records.TableReplicasSet(ident, replicas))
    return ident, engine.commit(ops)


def alter_table(engine: _Engine, table: str, change: TableAlteration) -> int:
    """Say something else of a table, by its name or id; the commit, the newest if nothing is new.

    Raises:
        TableMissingError: there is none.
        TableRefusedError: the splits or the replicas are none, or there is a tablet where one is to
            be made.
        RefusedCommitError: somebody made one there at the same moment.
    """
    _check_splits(table, change.splits)
    _check_replicas(table, change.replicas)
    with engine.reading() as state:
        row, newest = table_named(state, table), state.newest
        for begin, end in pairwise(change.splits):
            there = next(state.tablet_table.overlapping(row.id, begin, end), None)
            if there is not None:
                raise _refused(
                    row.name,
                    f"partitions {there.begin} to {there.end - 1} have a tablet, and one from "
                    f"{begin} to {end - 1} is asked for: `show tablets {row.name}` has all",
                )
    ops: list[records.Op] = [*_tablets(row.id, change.splits)]
    is_said = change.replicas is not None or change.is_as_configured
    if is_said and change.replicas != row.replicas:
        ops.append(records.TableReplicasSet(row.id, change.replicas))
    return engine.commit(ops) if ops else newest


def table_named(state: State, table: str) -> LoadedTableRow:
    """A table that is there, by its name or id.

    Raises:
        TableMissingError: there is none.
    """
    found = state.loaded_tables.named(table) or state.loaded_tables.rows.get(table)
    if found is None or found.dropped:
        raise TableMissingError(f"there is no table {table[:200]!a}", extra={"path": table})
    return found


def _tablets(table: str, splits: Sequence[int]) -> Iterator[records.TabletMade]:
    for begin, end in pairwise(splits):
        yield records.TabletMade(uuid4().hex, table, begin, end, by_hand=True)


def _check_name(name: str) -> Nodes:
    """Where a table of a name stands in the schema; the name is that of a directory of files."""
    nodes = table_nodes(name)
    why = "expected a storage group, or a database"
    try:
        FilePath.parse(f"{Kind.SEQUENCE}/{name}/0/0/1-1-0-0.tsfile")
        parse_stored(format_path(nodes or ()))
    except (NameRefusedError, IllegalPathError) as error:
        nodes, why = None, error.message
    if nodes is None or len(nodes) < 2:
        raise TableRefusedError(
            f"{name[:200]!a} is no name of a table: {why}", extra={"path": name}
        )
    return nodes


def _check_splits(name: str, splits: Sequence[int]) -> None:
    if len(splits) == 1:
        raise _refused(name, f"one split, {splits[0]}, bounds no tablet: expected two at least")
    if len(splits) > MOST_TABLETS_MADE + 1:
        raise _refused(
            name, f"{len(splits) - 1} tablets: {MOST_TABLETS_MADE} at most are made at once"
        )
    for begin, end in pairwise(splits):
        if begin >= end:
            raise _refused(name, f"the split {end} stands behind {begin}: they have to increase")
        if end - begin > _WIDEST:
            raise _refused(
                name, f"a tablet from {begin} to {end}: {_WIDEST} partitions at most lie in one"
            )
    if splits and not -_OUTERMOST < splits[0] < splits[-1] < _OUTERMOST:
        raise _refused(name, f"{splits[0]} to {splits[-1]} are no partitions of any time")


def _check_replicas(name: str, replicas: int | None) -> None:
    if replicas is not None and not 1 <= replicas <= MOST_REPLICAS:
        raise _refused(name, f"{replicas} replicas: expected 1 to {MOST_REPLICAS}")


def _refused(name: str, why: str) -> TableRefusedError:
    return TableRefusedError(f"{name}: {why}", extra={"path": name})
