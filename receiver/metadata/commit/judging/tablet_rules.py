"""The rules of tables and tablets: what may be made, dropped and forgotten."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from common.names import Kind
from receiver.metadata.commit.judging.record_checks import SIGNED_64, parse_path, refusal_of
from receiver.metadata.commit.series_rules.schema_checks import check_ttl
from receiver.metadata.model import records

if TYPE_CHECKING:
    from receiver.metadata.state.state import State

__all__ = [
    "MOST_REPLICAS",
    "check_table_dropped",
    "check_table_forgotten",
    "check_table_known",
    "check_table_made",
    "check_tablet_dropped",
    "check_tablet_forgotten",
    "check_tablet_made",
]

MOST_REPLICAS: Final = 16

_ID: Final = re.compile(r"[0-9a-f]{32}\Z")


def check_table_made(state: State, op: records.TableMade) -> None:
    """Refuse a table with an id that was used, or a name that is none.

    Whether the name is taken is for the caller, who knows what stands earlier in the commit.
    """
    if _ID.match(op.id) is None or op.id in state.loaded_tables.rows:
        raise refusal_of(op, f"{op.id!a} is no new id")
    parse_path(op, f"{Kind.SEQUENCE}/{op.name}/0/0/1-1-0-0.tsfile")


def check_table_dropped(op: records.TableDropped, name: str | None) -> None:
    """Refuse to drop what is not there."""
    if name is None:
        raise refusal_of(op, f"there is no table {op.id!a}")


def check_table_known(op: records.TableReplicasSet | records.TableTtlSet, name: str | None) -> None:
    """Refuse to say of a table what cannot be, or of one that is not there."""
    if name is None:
        raise refusal_of(op, f"there is no table {op.id!a}")
    if isinstance(op, records.TableTtlSet):
        check_ttl(name, op.ttl)
    elif op.replicas is not None and not 1 <= op.replicas <= MOST_REPLICAS:
        raise refusal_of(op, f"{op.replicas} replicas: expected 1 to {MOST_REPLICAS}")


def check_table_forgotten(state: State, op: records.TableForgotten) -> None:
    """Refuse to forget what is there."""
    row = state.loaded_tables.rows.get(op.id)
    if row is None or not row.dropped:
        raise refusal_of(op, f"there is no dropped table {op.id!a}")


def check_tablet_made(state: State, op: records.TabletMade) -> None:
    """Refuse a tablet with an id that was used, with no partitions, or with those of another."""
    if _ID.match(op.id) is None or op.id in state.tablet_table.rows:
        raise refusal_of(op, f"{op.id!a} is no new id")
    if not op.begin < op.end or op.begin not in SIGNED_64 or op.end - 1 not in SIGNED_64:
        raise refusal_of(op, f"{op.begin} to {op.end} are no partitions")
    other = next(state.tablet_table.overlapping(op.table, op.begin, op.end), None)
    if other is not None:
        raise refusal_of(op, f"tablet {other.id} has partitions of it")


def check_tablet_dropped(state: State, op: records.TabletDropped) -> tuple[str, int, int]:
    """Refuse to drop what is not there, was made by hand, or has a file in whatever state.

    Returns:
        the name of its table, and its partitions.
    """
    row = state.tablet_table.rows.get(op.id)
    table = None if row is None else state.loaded_tables.rows[row.table]
    if row is None or row.dropped or table is None or table.dropped:
        raise refusal_of(op, f"there is no tablet {op.id!a}")
    if row.by_hand:
        raise refusal_of(op, f"the tablet {op.id} was made by hand")
    if not state.file_table.is_empty(table.name, row.begin, row.end):
        raise refusal_of(op, f"the tablet {op.id} has files")
    return table.name, row.begin, row.end


def check_tablet_forgotten(state: State, op: records.TabletForgotten) -> None:
    """Refuse to forget what is there, or goes with its table."""
    row = state.tablet_table.rows.get(op.id)
    if row is None or not row.dropped:
        raise refusal_of(op, f"there is no dropped tablet {op.id!a}")
