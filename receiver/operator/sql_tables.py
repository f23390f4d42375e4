"""`create table` and `alter table` in SQL: what an operator's calls do, by the path of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from receiver.metadata.commit.tablet_making import table_nodes
from receiver.metadata.model.errors import TableRefusedError
from receiver.metadata.model.paths import format_path, is_outside_tree
from receiver.metadata.sql.statements import CreateTable
from receiver.operator.namespace.table_changes import change_table, make_table
from receiver.operator.views.table_views import TableChange, TableRequest

if TYPE_CHECKING:
    from receiver.metadata.model.paths import Nodes
    from receiver.metadata.sql.statements import AlterTable
    from receiver.operator.directories import RunningReceiver

__all__ = ["tables_by_sql"]


def tables_by_sql(there: RunningReceiver, statement: CreateTable | AlterTable) -> str:
    """Carry a statement out; how its table stands then, in words.

    Raises:
        TsferryError: as `make_table` and `change_table`; nothing is changed.
    """
    name, parts = _name(statement.path), statement.partitions
    if isinstance(statement, CreateTable):
        request = TableRequest(
            name=name,
            replicas=statement.replicas,
            splits=parts.splits,
            begin=parts.begin,
            end=parts.end,
            every=parts.every,
        )
        found, done = make_table(there, request), "made"
    else:
        change = TableChange(
            replicas=statement.replicas,
            as_configured=statement.as_configured,
            splits=parts.splits,
            begin=parts.begin,
            end=parts.end,
            every=parts.every,
        )
        found, done = change_table(there, name, change), "altered"
    tablets = "1 tablet" if found.tablets == 1 else f"{found.tablets} tablets"
    copies = f", {found.replicas} replicas of each" if found.replicas else ""
    return f"table {found.id} {done}: {tablets}{copies}, {found.state}"


def _name(nodes: Nodes) -> str:
    """What the directory of a table is called that stands at a path."""
    is_database = len(nodes) == 2 and is_outside_tree(nodes)
    name = nodes[1][1:] if is_database else ".".join(nodes)
    if table_nodes(name) != nodes:
        path = format_path(nodes)
        raise TableRefusedError(f"no directory is called as {path}", extra={"path": path})
    return name
