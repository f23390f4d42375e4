import pytest

from receiver.operator import group_content
from receiver.operator.group_content import content_of_group
from tests.support.node_world import A, Edge, World, path_of, tsfile


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
        files[path_of(60, sg="root.ab")] = tsfile("root.ab.d", points=100)
        Edge(node, uuid=A).round(files)
        yield node.engine


def test_points_are_counted_by_partition_and_series_by_group(engine):
    found = content_of_group(engine, "root.a", 10)
    assert found.points == {0: 3 + 6 + 9 + 7, 1: 1 + 4 + 7, 2: 2 + 5 + 8}
    assert found.series == 9
    assert content_of_group(engine, "root.ab", 1).points == {0: 100}
    assert content_of_group(engine, "root.b", 0).points == {}


def test_what_is_too_much_is_not_counted(engine, monkeypatch):
    assert content_of_group(engine, "root.a", 20_001).points is None
    monkeypatch.setattr(group_content, "_SERIES", 5)
    assert content_of_group(engine, "root.a", 10).series is None


def test_a_database_of_tables_has_no_series_of_the_tree(engine):
    assert content_of_group(engine, "plant", 0).series == 0
