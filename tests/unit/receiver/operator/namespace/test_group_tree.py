import pytest

from common.errors import NotFoundError
from receiver.operator.namespace import group_tree
from receiver.operator.namespace.group_partitions import partition_window
from receiver.operator.namespace.group_tree import count_series, tree_level
from tests.support.node_world import A, Edge, World, path_of, tsfile
from tests.support.tsfile_bytes import build


@pytest.fixture
def engine(tmp_path):
    with World(tmp_path).node() as node:
        files = {
            path_of(n, sg="root.a", partition=n % 3): tsfile(f"root.a.d{n}", first=n, points=n)
            for n in range(1, 10)
        }
        files[path_of(50, sg="root.a").replace("sequence", "unsequence")] = tsfile(
            "root.a.d1", first=900, points=7
        )
        files[path_of(70, sg="plant")] = build({("ta ble", "u1", None): {"h": [(1, 1.5)]}})
        files[path_of(60, sg="root.ab")] = tsfile("root.ab.x.y.d", points=100)
        Edge(node, uuid=A).round(files)
        yield node.engine


def walked(engine, group, node=None, **more):
    """Every child of a node, a page of two at a time."""
    found, after = [], None
    while True:
        level = tree_level(engine, group, node, after=after, limit=2, **more)
        assert len(level.children) <= 2
        found += level.children
        after = level.next
        if after is None:
            return found


def test_the_tree_is_walked_from_the_group_down_to_its_series(engine):
    top = walked(engine, "root.a")
    assert [(each.name, each.kind, each.series) for each in top] == [
        (f"d{n}", "device", 1) for n in range(1, 10)
    ]
    assert [each.kind for each in walked(engine, "root.ab")] == ["node"]
    level = tree_level(engine, "root.ab", "root.ab.x.y.d", limit=9)
    (series,) = level.children
    assert (series.kind, series.row.heat) == ("series", 100)
    assert level.above[0] == ("root.ab", "root.ab")
    assert [name for name, _ in level.above[1:]] == ["x", "y", "d"]
    assert (level.device, level.owner, level.count) == ("root.ab.x.y.d", A, 1)


def test_a_page_of_the_tree_looks_at_so_many_nodes_and_no_more(engine, monkeypatch):
    looked = []
    monkeypatch.setattr(
        group_tree, "_inner", lambda tree, row, at, inner=group_tree._inner: (
            looked.append(row), inner(tree, row, at)
        )[1]
    )  # fmt: skip
    assert tree_level(engine, "root.a", limit=4).count == 9
    assert len(looked) == 4


def test_a_database_of_tables_has_its_tables_in_it(engine):
    (table,) = walked(engine, "plant")
    assert (table.name, table.kind, table.series) == ("ta ble", "node", 0)
    (device,) = walked(engine, "plant", table.path)
    level = tree_level(engine, "plant", device.path, limit=9)
    assert (level.device, level.owner) == ("/plant/`ta ble`:u1", A)
    assert [name for name, _ in level.above] == ["plant", "ta ble", ":u1"]
    assert [each.name for each in level.children] == ["h"]
    assert count_series(engine, "plant") == 1


def test_what_is_not_in_the_group_is_not_found_there(engine):
    for node in ("root.ab.x", "root.a.none", "root", "root.a.d1.s1"):
        with pytest.raises(NotFoundError):
            tree_level(engine, "root.a", node, limit=5)
    assert tree_level(engine, "none", limit=5) is None


def test_the_tree_is_shown_as_it_was(engine):
    first = str(engine.oldest_answerable)
    assert tree_level(engine, "root.a", at=first, limit=5) is None
    now = tree_level(engine, "root.a", at=str(engine.newest_commit), limit=5)
    assert [each.name for each in now.children] == ["d1", "d2", "d3", "d4", "d5"]


def test_series_are_counted_by_group_while_that_is_little_work(engine, monkeypatch):
    assert count_series(engine, "root.a") == 9
    assert count_series(engine, "none") == 0
    monkeypatch.setattr(group_tree, "_SERIES", 5)
    assert count_series(engine, "root.a") is None


def test_partitions_come_in_windows_and_none_is_left_out(engine):
    found = partition_window(engine, "root.a", width=5)
    assert {each: total.points for each, total in found.totals.items()} == {
        2: 2 + 5 + 8, 1: 1 + 4 + 7, 0: 3 + 6 + 9 + 7
    }  # fmt: skip
    assert (found.count, found.whole.points, found.whole.files) == (3, 52, 10)
    seen, until = [], None
    while True:
        window = partition_window(engine, "root.a", until, width=2)
        seen += window.totals
        if window.earlier is None:
            break
        until = window.earlier
    assert seen == [2, 1, 0]
    assert partition_window(engine, "root.a", window.later, width=2).totals.keys() >= {2}
    nothing = partition_window(engine, "none", width=2)
    assert (nothing.totals, nothing.count, nothing.whole.points) == ({}, 0, 0)
