"""Rules of tables, their tablets, and the places that these and files lie at."""

from __future__ import annotations

from typing import TYPE_CHECKING

from receiver.metadata.commit.judging.cache_rules import check_cache_slots
from receiver.metadata.commit.judging.node_rules import (
    check_drained,
    check_moved,
    check_registered,
    check_word,
)
from receiver.metadata.commit.judging.placement_rules import (
    check_placed,
    check_released,
    check_running,
)
from receiver.metadata.commit.judging.record_checks import refusal_of
from receiver.metadata.commit.judging.rule_overlay import THERE, Rule, RuleOverlay
from receiver.metadata.commit.judging.tablet_rules import (
    check_table_dropped,
    check_table_forgotten,
    check_table_known,
    check_table_made,
    check_tablet_dropped,
    check_tablet_forgotten,
    check_tablet_made,
)
from receiver.metadata.commit.tablet_making import table_nodes
from receiver.metadata.model import records
from receiver.metadata.model.errors import TableExistsError
from receiver.metadata.model.paths import format_path
from receiver.metadata.state.table_rows import FileState
from receiver.metadata.state.tables.file_tables.retired import partition_of

if TYPE_CHECKING:
    from receiver.metadata.state.tables.place_tables.storage_nodes import StorageNodeRow

__all__ = ["PLACE_RULES"]


def _table(on: RuleOverlay, name: str) -> str | None:
    """The id of the table that has a name."""

    def committed() -> str | None:
        row = on.state.loaded_tables.named(name)
        return None if row is None else row.id

    return on.get(("table", name), committed)


def _table_name(on: RuleOverlay, ident: str) -> str | None:
    """The name of a table that is there."""

    def committed() -> str | None:
        row = on.state.loaded_tables.rows.get(ident)
        return None if row is None or row.dropped else row.name

    return on.get(("table_id", ident), committed)


def _table_made(on: RuleOverlay, op: records.TableMade) -> None:
    check_table_made(on.state, op)
    if _table(on, op.name) is not None or _table_name(on, op.id) is not None:
        raise TableExistsError(f"there is a table {op.name}", extra={"path": op.name})
    on.put(("table", op.name), op.id)
    on.put(("table_id", op.id), op.name)
    # It is told the TTL of its group, and who sets that tells the tables that are there: both
    # looked at what is committed.
    nodes = table_nodes(op.name) or ()
    groups = (format_path(nodes[:end]) for end in range(2, len(nodes) + 1))
    on.touched.shared.update([("storage_group", each) for each in groups])


def _table_dropped(on: RuleOverlay, op: records.TableDropped) -> None:
    name = _table_name(on, op.id)
    check_table_dropped(op, name)
    on.touched.sweep()
    on.put(("table", name), None)
    on.put(("table_id", op.id), None)


def _table_told(on: RuleOverlay, op: records.TableReplicasSet | records.TableTtlSet) -> None:
    name = _table_name(on, op.id)
    check_table_known(op, name)
    on.put(("table_id", op.id), name)


def _table_forgotten(on: RuleOverlay, op: records.TableForgotten) -> None:
    check_table_forgotten(on.state, op)
    _gone_once(on, "forgotten_table", op)
    on.put(("table_id", op.id), None)
    for row in on.state.tablet_table.every_of(op.id):
        if row.dropped:  # it goes with its table
            on.put(("tablet", row.id), True)


def _tablet_made(on: RuleOverlay, op: records.TabletMade) -> None:
    check_tablet_made(on.state, op)
    if _table_name(on, op.table) is None:
        raise refusal_of(op, f"there is no table {op.table!a}")
    none: tuple[records.TabletMade, ...] = ()
    made = on.get(("tablets", op.table), lambda: none)
    for other in made:
        if other.id == op.id or (op.begin < other.end and other.begin < op.end):
            raise refusal_of(op, f"tablet {other.id} has partitions of it")
    on.put(("tablets", op.table), (*made, op))


def _tablet_dropped(on: RuleOverlay, op: records.TabletDropped) -> None:
    name, begin, end = check_tablet_dropped(on.state, op)
    if _table_name(on, on.state.tablet_table.rows[op.id].table) is None:
        raise refusal_of(op, f"there is no tablet {op.id!a}")
    on.touched.sweep()  # a file that is loaded meanwhile has to find it, or to make another one
    for kind, *key in on.changes:
        if kind == "file":
            place = partition_of(str(key[0]))
            if place.sg == name and begin <= int(place.partition) < end:
                raise refusal_of(op, f"the tablet {op.id} has files")
    _gone_once(on, "tablet", op)


def _tablet_forgotten(on: RuleOverlay, op: records.TabletForgotten) -> None:
    check_tablet_forgotten(on.state, op)
    _gone_once(on, "tablet", op)


def _gone_once(
    on: RuleOverlay,
    what: str,
    op: records.TabletDropped | records.TabletForgotten | records.TableForgotten,
) -> None:
    if _goes(on, what, op.id):
        raise refusal_of(op, f"{op.id} goes twice")
    on.put((what, op.id), True)


def _goes(on: RuleOverlay, what: str, ident: str) -> bool:
    """Whether a tablet, or a table that is forgotten, goes by this very commit."""
    return on.get((what, ident), lambda: False)


def _node(on: RuleOverlay, uuid: str) -> StorageNodeRow | None:
    return on.get(("node", uuid), lambda: on.state.node_table.rows.get(uuid))


def _node_registered(on: RuleOverlay, op: records.NodeRegistered) -> None:
    on.put(("node", op.uuid), check_registered(op, _node(on, op.uuid)))


def _node_told(on: RuleOverlay, op: records.NodeDraining | records.NodeLost) -> None:
    on.put(("node", op.uuid), check_word(op, _node(on, op.uuid)))


def _node_forgotten(on: RuleOverlay, op: records.NodeForgotten) -> None:
    if _node(on, op.uuid) is None:
        raise refusal_of(op, f"there is no node {op.uuid!a}")
    on.put(("node", op.uuid), None)


def _placement(on: RuleOverlay, tablet: str) -> int:
    """The generation that a tablet is placed by, 0 for none."""

    def committed() -> int:
        row = on.state.placement_table.rows.get(tablet)
        return 0 if row is None else row.generation

    return on.get(("placement", tablet), committed)


def _tablet_placed(on: RuleOverlay, op: records.TabletPlaced) -> None:
    row = on.state.tablet_table.rows.get(op.tablet)
    is_gone = row is None or row.dropped or _goes(on, "tablet", op.tablet)
    if row is None or is_gone or _table_name(on, row.table) is None:
        raise refusal_of(op, f"there is no tablet {op.tablet!a}")
    check_placed(op, _placement(on, op.tablet))
    for each in op.nodes:
        if _node(on, each) is None:
            raise refusal_of(op, f"there is no node {each!a}")
    on.put(("placement", op.tablet), op.generation)


def _tablet_running(on: RuleOverlay, op: records.TabletRunning) -> None:
    check_running(op, _placement(on, op.tablet))
    on.put(("placement", op.tablet), op.generation)


def _cache_slots_set(on: RuleOverlay, op: records.CacheSlotsSet) -> None:
    def committed() -> int:
        row = on.state.cache_slots.row
        return 0 if row is None else row.version

    check_cache_slots(op, on.get(("cache_slots",), committed))
    for each in op.nodes:
        if _node(on, each) is None:
            raise refusal_of(op, f"there is no node {each!a}")
    on.put(("cache_slots",), op.version)


def _file_released(on: RuleOverlay, op: records.FileReleased) -> None:
    on.need_file(op.physical, op, *THERE)
    key = partition_of(op.physical)
    table = on.state.loaded_tables.named(key.sg)
    tablet = on.state.tablet_table.rows.get(op.tablet)
    placed = on.state.placement_table.rows.get(op.tablet)
    if table is None or tablet is None or placed is None or tablet.table != table.id:
        raise refusal_of(op, f"there is no placed tablet {op.tablet!a} of {key.sg}")
    if not tablet.begin <= int(key.partition) < tablet.end:
        raise refusal_of(op, f"{op.physical} is not in the tablet {op.tablet}")
    check_released(op, _placement(on, op.tablet), placed.nodes)
    on.put(("released", op.physical), op)


def _copy_doubted(on: RuleOverlay, op: records.CopyDoubted) -> None:
    on.need_file(op.physical, op, *FileState)
    if _node(on, op.node) is None:
        raise refusal_of(op, f"there is no node {op.node!a}")


def _master_life_begun(on: RuleOverlay, op: records.MasterLifeBegun) -> None:
    if not op.life or on.get(("life", op.life), lambda: op.life in on.state.master_lives.rows):
        raise refusal_of(op, "it has begun already")
    if op.after > on.state.newest:
        raise refusal_of(op, f"the newest commit is {on.state.newest}")
    on.put(("life", op.life), True)


def _file_moved(on: RuleOverlay, op: records.FileMoved) -> None:
    check_drained(op, _node(on, op.node))
    merged = on.state.compacted_table.of_output(op.physical)
    if merged is not None:
        row = on.compaction(merged.id)
        made = on.state.compacted_table.output(op.physical)
        if row is None or made is None:
            raise refusal_of(op, f"there is no file {op.physical}")
        check_moved(op, made.size, made.md5, None)
        on.put(("compacted", merged.id), row)
        return
    file = on.need_file(op.physical, op, *FileState)
    loaded = on.state.files.get(op.physical)
    if loaded is None or ("file", op.physical) in on.changes:
        raise refusal_of(op, f"{op.physical} is changed by this very commit")
    check_moved(op, loaded.size, loaded.md5, loaded.resource)
    on.put(("file", op.physical), file)


PLACE_RULES: dict[type, Rule] = {
    records.TableMade: _table_made,
    records.TableDropped: _table_dropped,
    records.TableForgotten: _table_forgotten,
    records.TabletMade: _tablet_made,
    records.TabletDropped: _tablet_dropped,
    records.TabletForgotten: _tablet_forgotten,
    records.TableReplicasSet: _table_told,
    records.TableTtlSet: _table_told,
    records.NodeRegistered: _node_registered,
    records.NodeDraining: _node_told,
    records.NodeLost: _node_told,
    records.NodeForgotten: _node_forgotten,
    records.TabletPlaced: _tablet_placed,
    records.TabletRunning: _tablet_running,
    records.CacheSlotsSet: _cache_slots_set,
    records.FileReleased: _file_released,
    records.CopyDoubted: _copy_doubted,
    records.MasterLifeBegun: _master_life_begun,
    records.FileMoved: _file_moved,
}
