"""A sender's schema, from its blocks to the commit of the task."""

from __future__ import annotations

import pytest

from common import wire
from common.errors import (
    DigestError,
    GoneError,
    NoSpaceError,
    OffsetError,
    ProtocolError,
    TooLargeError,
)
from common.formats.schemaitems import Dropped, Group, Item, SeriesItem, encode_items
from common.formats.schemawire import encode_schema_block
from common.formats.tlogtext import write_slot
from common.wire import SchemaKind
from receiver.load.schema import task_schema
from receiver.metadata.model.paths import parse_pattern
from receiver.node import Node
from receiver.operator.edges.senders import list_running_senders
from tests.support.node_world import (
    A,
    B,
    Edge,
    World,
    manifest_entry,
    path_of,
    plan_entry,
    results,
    tsfile,
)

LOG = b"2,root.sg\n0,root.sg.d1.s1,2,0,0,,temperature,0\n0,root.sg.d1.s2,3,0,1,,,\n"
TLOG = write_slot({"unit": "c"}, {"maker": "x"}, None)


@pytest.fixture
def edge(node: Node) -> Edge:
    edge = Edge(node)
    edge.check()
    return edge


def block(
    data: bytes,
    at: int = 0,
    *,
    base: int = 0,
    identity: str = "log",
    slots: dict[int, bytes] | None = None,
    kind: SchemaKind = SchemaKind.TEXT,
) -> bytes:
    return encode_schema_block(kind, identity, base, at, data, slots)


def send(edge: Edge, task: str, body: bytes) -> int:
    return edge.node.tasks.schema(edge.who, edge.uuid, task, edge.epoch, body).size


def staged(edge: Edge, task: str) -> wire.SchemaStaged | None:
    request = wire.StartRequest(engine=edge.node.engine.uuid, epoch=edge.epoch)
    answer = edge.node.tasks.start(edge.who, edge.uuid, task, request)
    edge.epoch = answer.epoch
    return answer.schema_staged


def end(
    edge: Edge,
    task: str,
    size: int,
    *,
    base: int = 0,
    identity: str = "log",
    news: int | None = None,
    kind: SchemaKind = SchemaKind.TEXT,
    offset: int | None = None,
) -> wire.SchemaPosition | None:
    """End a task without files; what is applied of the schema then."""
    reached = base + size if offset is None else offset
    schema = wire.SchemaEnd(
        kind=kind,
        identity=identity,
        base=base,
        size=size,
        offset=reached,
        news=reached if news is None else news,
        mark="a mark",
    )
    request = wire.EndRequest(manifest=[], schema=schema)
    edge.node.tasks.end(edge.who, edge.uuid, task, edge.epoch, request)
    answer = edge.node.tasks.answer(edge.who, edge.uuid, task, 60.0)
    assert answer.state is wire.TaskState.DONE
    edge.outcome(task)
    return answer.schema_position


def ship(edge: Edge, data: bytes, slots: dict[int, bytes] | None = None, **how: object) -> object:
    task = edge.start()
    base, identity = how.get("base", 0), how.get("identity", "log")
    send(edge, task, block(data, base=base, identity=identity, slots=slots))  # type: ignore[arg-type]
    return end(edge, task, len(data), **how)  # type: ignore[arg-type]


def paths(node: Node) -> list[str]:
    with node.engine.reading() as state:
        rows = state.schema.series.match(parse_pattern("root.**"))
        return [state.schema.series.describe(row).path for row in rows]


# -- what comes of it ----------------------------------------------------------------------------


def test_a_schema_is_applied_with_the_outcome_of_its_task(edge: Edge) -> None:
    position = ship(edge, LOG, {0: TLOG})
    assert isinstance(position, wire.SchemaPosition)
    assert (position.identity, position.offset, position.mark) == ("log", len(LOG), "a mark")
    assert (position.applied, position.unapplied) == (3, 0)
    assert paths(edge.node) == ["root.sg.d1.s1", "root.sg.d1.s2"]
    assert edge.check().schema_position == position
    assert position.commit == edge.newest
    with edge.node.engine.reading() as state:
        row = state.schema.series.describe(
            state.schema.series.find(("root", "sg", "d1", "temperature"))
        )
    assert edge.node.engine.tags_of(row.tags_at) == ({"unit": "c"}, {"maker": "x"})


def test_the_position_of_nobody_is_none(edge: Edge) -> None:
    answer = edge.check()
    assert answer.schema
    assert answer.schema_position is None


def test_a_log_goes_on_behind_what_is_applied(edge: Edge) -> None:
    ship(edge, LOG, {0: TLOG})
    more = b"1,root.sg.d1.s2\n13,root.sg.d1.s1,heat\n"
    position = ship(edge, more, base=len(LOG))
    assert isinstance(position, wire.SchemaPosition)
    assert position.offset == len(LOG) + len(more)
    assert position.applied == 5
    assert paths(edge.node) == ["root.sg.d1.s1"]


def test_a_piece_that_does_not_begin_where_the_log_is_applied_is_left(edge: Edge) -> None:
    first = ship(edge, LOG)
    task = edge.start()
    send(edge, task, block(b"2,root.x\n", base=7))
    assert end(edge, task, 9, base=7) == first
    task = edge.start()
    send(edge, task, block(b"2,root.x\n", base=len(LOG), identity="other"))
    assert end(edge, task, 9, base=len(LOG), identity="other") == first


def test_a_schema_that_did_not_come_whole_is_left_and_the_task_done(edge: Edge) -> None:
    task = edge.start()
    send(edge, task, block(LOG[:20]))
    assert end(edge, task, len(LOG)) is None
    assert paths(edge.node) == []


def test_a_resent_log_brings_no_old_deletion_over_loaded_data(edge: Edge) -> None:
    content = tsfile("root.sg.d1")
    edge.round({path_of(1): content})
    log = b"2,root.sg\n0,root.sg.d1.s1,2,0,0,,,\n1,root.sg.d1.s1\n"
    position = ship(edge, log)
    assert isinstance(position, wire.SchemaPosition)
    assert position.unapplied == 1
    assert "loaded data" in position.failed[0].reason
    assert paths(edge.node) == ["root.sg.d1.s1"]
    position = ship(edge, log, identity="once more", news=len(log) - 5)
    assert paths(edge.node) == ["root.sg.d1.s1"]
    position = ship(edge, log, identity="now it is new", news=len(log) - len("1,root.sg.d1.s1\n"))
    assert paths(edge.node) == []


def test_schema_goes_before_the_files_that_need_it(edge: Edge) -> None:
    content = tsfile("root.sg.d1")  # its series s1 is INT64
    task = edge.start()
    send(edge, task, block(LOG, slots={0: TLOG}))
    edge.plan(task, [plan_entry(path_of(1), content)])
    edge.batch(task, {path_of(1): content})
    request = wire.EndRequest(
        manifest=[manifest_entry(path_of(1), content)],
        schema=wire.SchemaEnd(
            kind=SchemaKind.TEXT, identity="log", base=0, size=len(LOG), offset=len(LOG)
        ),
    )
    edge.node.tasks.end(edge.who, edge.uuid, task, edge.epoch, request)
    assert results(edge.outcome(task)) == {path_of(1): "loaded"}
    with edge.node.engine.reading() as state:
        row = state.schema.series.describe(state.schema.series.find(("root", "sg", "d1", "s1")))
        there = state.schema_positions[A]
        file = state.file_table.live(A, path_of(1))
    assert file is not None
    assert row.created == there.changed == file.created
    assert (row.alias, row.heat) == ("temperature", 5)


def test_a_file_whose_series_the_schema_makes_with_another_type_is_held(edge: Edge) -> None:
    content = tsfile("root.sg.d1")
    log = b"2,root.sg\n0,root.sg.d1.s1,3,0,0,,,\n"
    task = edge.start()
    send(edge, task, block(log))
    edge.plan(task, [plan_entry(path_of(1), content)])
    edge.batch(task, {path_of(1): content})
    request = wire.EndRequest(
        manifest=[manifest_entry(path_of(1), content)],
        schema=wire.SchemaEnd(
            kind=SchemaKind.TEXT, identity="log", base=0, size=len(log), offset=len(log)
        ),
    )
    edge.node.tasks.end(edge.who, edge.uuid, task, edge.epoch, request)
    (outcome,) = edge.outcome(task).values()
    assert (outcome.result, outcome.hold) == ("quarantined", True)
    assert "FLOAT" in (outcome.reason or "")
    assert paths(edge.node) == ["root.sg.d1.s1"]


def test_another_senders_device_is_reported_with_its_reason(edge: Edge, node: Node) -> None:
    other = Edge(node, B)
    other.check()
    other.round({path_of(1): tsfile("root.sg.d1")})
    position = ship(edge, LOG, {0: TLOG})
    assert isinstance(position, wire.SchemaPosition)
    assert position.unapplied == 2
    assert {each.record for each in position.failed} == {"root.sg.d1.s1", "root.sg.d1.s2"}
    (mine,) = [each for each in list_running_senders(node.operator) if each.uuid == A]
    assert mine.schema == position


def test_bad_lines_are_reported_and_the_rest_goes_on(edge: Edge) -> None:
    log = b"2,root.sg\nrubbish\n0,root.sg.d,1.s,3,0,1,,,\n0,root.sg.x.s,3,0,1,,,700\ntorn"
    position = ship(edge, log)
    assert isinstance(position, wire.SchemaPosition)
    assert [each.record for each in position.failed] == ["rubbish", "root.sg.x.s"]
    assert paths(edge.node) == ["root.sg.`d,1`.s", "root.sg.x.s"]


def test_a_large_schema_is_applied_in_steps(edge: Edge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_schema, "_STEP", 7)
    log = b"2,root.sg\n" + b"".join(
        f"0,root.sg.d{each // 3}.s{each},2,0,0,,,\n".encode() for each in range(50)
    )
    before = edge.node.engine.newest_commit
    position = ship(edge, log)
    assert isinstance(position, wire.SchemaPosition)
    assert (position.applied, position.unapplied) == (51, 0)
    assert len(paths(edge.node)) == 50
    with edge.node.engine.reading() as state:
        made = {
            state.schema.series.describe(
                state.schema.series.find(("root", "sg", f"d{each // 3}", f"s{each}"))
            ).created
            for each in range(50)
        }
    assert len(made) == 8
    assert all(before < each <= position.commit for each in made)


def test_changes_of_another_receiver_are_taken_as_they_are(edge: Edge) -> None:
    items: list[Item] = [
        Group(path="root.sg"),
        SeriesItem(path="root.sg.d1.s1", type=1, encoding=0, compression=0, alias="x"),
    ]
    data = encode_items(items) + b'{"is":"nothing"}\n'

    def tell(said: bytes, base: int, offset: int) -> wire.SchemaPosition | None:
        task = edge.start()
        body = encode_schema_block(SchemaKind.CHANGES, "engine-e", base, 0, said)
        send(edge, task, body)
        return end(
            edge,
            task,
            len(said),
            base=base,
            identity="engine-e",
            kind=SchemaKind.CHANGES,
            offset=offset,
        )

    position = tell(data, 0, 1000)
    assert position is not None
    assert (position.offset, position.applied, position.unapplied) == (1000, 2, 1)
    position = tell(encode_items([Dropped(path="root.sg.d1.s1")]), 1000, 2000)
    assert position is not None
    assert position.offset == 2000
    assert paths(edge.node) == []


# -- blocks --------------------------------------------------------------------------------------


def test_blocks_follow_each_other_and_may_come_twice(edge: Edge) -> None:
    task = edge.start()
    assert send(edge, task, block(LOG[:10])) == 10
    assert send(edge, task, block(LOG[:10])) == 10
    assert send(edge, task, block(LOG[10:30], 10)) == 30
    assert send(edge, task, block(LOG[10:30], 10)) == 30
    assert send(edge, task, block(LOG[30:], 30)) == len(LOG)
    assert end(edge, task, len(LOG)) is not None
    assert len(paths(edge.node)) == 2


@pytest.mark.parametrize(
    ("body", "offset"),
    [
        (block(b"x", 5), 10),
        (block(b"x", 11), 10),
        (block(b"x", (1 << 63) - 1), 10),
        (block(b"x", 10, identity="other"), 0),
        (block(b"x", 10, base=1), 0),
        (block(b"x", 10, kind=SchemaKind.CHANGES), 0),
    ],
)
def test_a_block_in_a_wrong_place_is_refused_with_the_right_one(
    edge: Edge, body: bytes, offset: int
) -> None:
    task = edge.start()
    send(edge, task, block(LOG[:10]))
    with pytest.raises(OffsetError) as caught:
        send(edge, task, body)
    assert caught.value.extra["offset"] == offset
    assert send(edge, task, block(LOG[10:], 10)) == len(LOG)


def test_a_block_at_the_begin_takes_the_place_of_all(edge: Edge) -> None:
    task = edge.start()
    send(edge, task, block(b"2,root.old\n"))
    assert send(edge, task, block(LOG, identity="new")) == len(LOG)
    assert end(edge, task, len(LOG), identity="new") is not None
    assert paths(edge.node) == ["root.sg.d1.s1", "root.sg.d1.s2"]


def test_a_log_that_begins_as_before_is_begun_anew(edge: Edge) -> None:
    task = edge.start()
    send(edge, task, block(LOG[:10]))
    send(edge, task, block(LOG[10:], 10))
    assert send(edge, task, block(LOG[:10])) == 10
    assert send(edge, task, block(LOG[10:], 10, slots={0: TLOG})) == len(LOG)
    assert end(edge, task, len(LOG)) is not None
    with edge.node.engine.reading() as state:
        row = state.schema.series.describe(state.schema.series.find(("root", "sg", "d1", "s1")))
    assert edge.node.engine.tags_of(row.tags_at) == ({"unit": "c"}, {"maker": "x"})


def test_a_block_that_was_damaged_on_its_way_is_not_taken(edge: Edge) -> None:
    task = edge.start()
    body = bytearray(block(LOG))
    body[-1] ^= 1
    with pytest.raises(DigestError):
        send(edge, task, bytes(body))
    with pytest.raises(ProtocolError):
        send(edge, task, block(LOG)[:-1])
    with pytest.raises(ProtocolError):
        send(edge, task, block(LOG) + b"x")
    with pytest.raises(ProtocolError):
        send(edge, task, b"rubbish")
    assert staged(edge, task) is None


def test_a_block_needs_an_open_task(edge: Edge) -> None:
    task = edge.start()
    end(edge, task, 0)
    with pytest.raises(GoneError):
        send(edge, task, block(LOG))


def test_a_stage_outlives_the_process_and_a_dropped_task(world: World) -> None:
    with world.node() as node:
        edge = Edge(node)
        edge.check()
        send(edge, edge.start(), block(LOG[:10], slots={0: TLOG}))
    with world.node() as node:
        edge.node = node
        found = staged(edge, "7" * 32)
        assert found is not None
        assert (found.identity, found.base, found.size) == ("log", 0, 10)
        task = edge.start("8" * 32)
        assert staged(edge, task) == found
        send(edge, task, block(LOG[10:], 10))
        assert end(edge, task, len(LOG)) is not None
        assert len(paths(node)) == 2
        assert staged(edge, edge.start()) is None


@pytest.mark.slow
def test_every_torn_end_of_a_stage_is_cut_to_a_block(world: World) -> None:
    with world.node() as node:
        edge = Edge(node)
        edge.check()
        task = edge.start()
        send(edge, task, block(LOG[:10]))
        first = (world.folder() / "schema.stage").read_bytes()
        send(edge, task, block(LOG[10:], 10))
        whole = (world.folder() / "schema.stage").read_bytes()
    for cut in range(0, len(whole), 7):
        (world.folder() / "schema.stage").write_bytes(whole[:cut])
        with world.node() as node:
            edge.node = node
            found = staged(edge, task)
        expected = None if cut < len(first) else 10
        assert (None if found is None else found.size) == expected
        kept = (world.folder() / "schema.stage").read_bytes()
        assert kept == (first if cut >= len(first) else b"")


def test_a_stage_with_a_gap_counts_up_to_it(world: World) -> None:
    with world.node() as node:
        edge = Edge(node)
        edge.check()
        task = edge.start()
        send(edge, task, block(LOG[:10]))
    stage = world.folder() / "schema.stage"
    first = stage.read_bytes()
    for wrong in (block(LOG[20:], 20), block(LOG[10:], 10, identity="other"), block(LOG[:10])):
        stage.write_bytes(first + wrong)
        with world.node() as node:
            edge.node = node
            found = staged(edge, task)
        assert found is not None
        assert found.size == 10
        assert stage.read_bytes() == first


def test_blocks_have_limits(tmp_path) -> None:  # type: ignore[no-untyped-def]
    limits = {"max_chunk_bytes": 4096, "max_unloaded_bytes": 6000}
    with World(tmp_path, limits=limits).node() as node:
        edge = Edge(node)
        edge.check()
        task = edge.start()
        with pytest.raises(TooLargeError):
            send(edge, task, block(bytes(5000)))
        send(edge, task, block(bytes(3500)))
        with pytest.raises(NoSpaceError):
            send(edge, task, block(bytes(3500), 3500))


@pytest.mark.parametrize(
    "members",
    [{"identity": ""}, {"identity": "x" * 200}, {"mark": "m" * 2000}, {"news": 50}],
)
def test_an_end_that_cannot_be_recorded_is_refused(edge: Edge, members: dict[str, object]) -> None:
    given = {"kind": SchemaKind.TEXT, "identity": "log", "base": 0, "size": 9, "offset": 9}
    request = wire.EndRequest(manifest=[], schema=wire.SchemaEnd(**(given | members)))  # type: ignore[arg-type]
    task = edge.start()
    with pytest.raises(ProtocolError):
        edge.node.tasks.end(edge.who, edge.uuid, task, edge.epoch, request)
