import pytest

from receiver.operator.stored.retired import list_retired
from tests.support.node_world import A, B, Edge, World, path_of, tsfile


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    with World(tmp_path_factory.mktemp("retired")).node() as node:
        for uuid, sg in ((A, "root.a"), (B, "root.b")):
            edge = Edge(node, uuid=uuid)
            files = {
                path_of(n, sg=sg, partition=n % 4): tsfile(f"{sg}.d", first=n * 10)
                for n in range(1, 20)
            }
            late = {path_of(50, sg=sg).replace("sequence", "unsequence"): tsfile(f"{sg}.d")}
            edge.round(files | late)
            gone = [each for n, each in enumerate(files) if n % 4 != 2 and n % 3] + list(late)
            edge.round({}, gone)
        yield node


def plain(node, sender=None):
    with node.engine.reading() as state:
        rows = list(state.files.values())
    return sorted(
        row.physical for row in rows if row.state == "retired" and sender in (None, row.sender)
    )


@pytest.mark.parametrize("sender", [None, A, B, "c" * 32])
@pytest.mark.parametrize("limit", [1, 4, 100])
def test_retired_files_come_in_pages_in_order_of_their_paths(node, sender, limit):
    found, after = [], None
    while True:
        page = list_retired(node.operator, sender=sender, after=after, limit=limit)
        found += [each.physical for each in page.files]
        after = page.next
        if after is None:
            break
    assert found == plain(node, sender)
    assert (len(found) > 10) is (sender is None)


def test_partitions_without_a_retired_file_are_not_looked_at(node, monkeypatch):
    looked = []
    with node.engine.reading() as state:
        group = state.file_table.group
        monkeypatch.setattr(
            state.file_table, "group", lambda key: looked.append(key.partition) or group(key)
        )
    list_retired(node.operator)
    assert "3" not in looked
    assert "1" in looked
