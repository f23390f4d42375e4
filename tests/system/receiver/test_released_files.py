"""Files leave a master's disks for its nodes, over sockets, and are read there as before."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from common.console.cli import run
from common.errors import ConflictError, TsferryError
from receiver.cli.commands import cli
from receiver.metadata.state.table_rows import FileRow
from receiver.operator.client import ADDRESS_FILE, TOKEN_FILE
from receiver.operator.edges.tokens import make_token
from receiver.operator.places.copies import bring_back, copies_view
from receiver.operator.places.forgetting_nodes import forget_node
from receiver.operator.places.node_losses import lose_node
from receiver.operator.status import short_status
from receiver.operator.stored.storage import fetch_files
from receiver.operator.views.node_views import LossRequest
from receiver.storage.reading.block_digests import BlockDigests
from tests.support.node_world import READER, sender
from tests.support.upload_cluster import LARGE, UploadCluster
from tests.support.web import until

FILES = 4


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[UploadCluster]:
    cluster = UploadCluster(
        tmp_path,
        2,
        of_nodes={"evict_copies": 2, "timeout": 1.0},
        # Of two large files one has to go.
        storage={"capacity": 5 * LARGE, "evict_above": 0.4, "evict_to": 0.3},
    )
    yield cluster
    cluster.close()


def _rows(cluster: UploadCluster) -> list[FileRow]:
    with cluster.node.engine.reading() as state:
        return [row for row in state.files.values() if row.visible]


def _away(cluster: UploadCluster) -> list[FileRow]:
    trees = cluster.node.load.disks.standing()
    return [row for row in _rows(cluster) if not any(tree.exists(row.physical) for tree in trees)]


def _is_whole_at_nodes(cluster: UploadCluster) -> bool:
    for each in cluster.machines:
        each.served.node.pulls.run_once()
    cluster.beat()
    view = copies_view(cluster.node.operator)
    return view.tablets == view.whole > 0


def _read(cluster: UploadCluster, row: FileRow) -> bytes:
    """Of whoever has it; nodes that run say so just before, or a busy machine has them down."""
    for each in cluster.machines:
        if each.runs:
            each.beat(cluster.node)
    return b"".join(
        cluster.node.content.read(row, begin, min(1 << 17, row.size - begin))
        for begin in range(0, row.size, 1 << 17)
    )


def _gives(cluster: UploadCluster, row: FileRow) -> bool:
    cluster.beat()
    try:
        return len(_read(cluster, row)) == row.size
    except TsferryError:
        return False


def _fill(cluster: UploadCluster) -> dict[str, bytes]:
    """Send large files, until some have left the master's disks; contents by path."""
    cluster.settle()
    contents: dict[str, bytes] = {}
    for _ in range(FILES):
        path = cluster.write()
        contents[path] = (cluster.edge.data / path).read_bytes()
        report = cluster.edge.round()
        assert report.exit_code == 0, report
        until(lambda: _is_whole_at_nodes(cluster), "copies at both nodes")
    until(lambda: bool(cluster.beat()) or len(_away(cluster)) >= FILES - 1, "files that have left")
    return contents


@pytest.mark.slow
def test_a_master_with_a_small_disk_has_more_than_it_holds(cluster: UploadCluster) -> None:
    contents = _fill(cluster)
    node = cluster.node
    for row in _rows(cluster):
        if row.path in contents:
            assert _read(cluster, row) == contents[row.path]
            BlockDigests.unpack(node.content.digests(row))
    away = _away(cluster)
    assert len(away) >= FILES - 1  # to be read took no room here
    me = cluster.edge.uuid
    inventory = node.listing.inventory(sender(me), me, None, 100, True)
    assert all(each.stands for each in inventory.entries)  # `free` may take it at the edge
    assert cluster.edge.round().exit_code == 0
    assert len(_away(cluster)) == len(away)  # nothing of it was sent again
    entries = node.listing.catalogue(READER, None, 100).entries
    assert {each.path for each in entries if each.stored} >= {row.physical for row in away}
    with node.load.disks.pinned(away[:1]):
        assert len(_away(cluster)) == len(away) - 1
    answer = fetch_files(node.operator, [away[1].physical])
    assert (answer.here or answer.coming) == [away[1].physical]

    cluster.restart()
    row = _away(cluster)[0]
    until(lambda: _gives(cluster, row), "a file that is read at a node")
    until(lambda: _is_whole_at_nodes(cluster), "copies that are known again")
    view = copies_view(cluster.node.operator)
    assert (view.evict_copies, view.nowhere) == (2, 0)
    assert view.released == len(_away(cluster)) > 0

    one, other = cluster.machines
    one.stop()
    assert _read(cluster, row) == contents[row.path]
    until(lambda: _is_down(cluster, one.uuid), "a node that is silent")
    other.beat(cluster.node)
    cluster.node.copies._looked = None  # a look is good for half a second
    preview = lose_node(cluster.node.operator, one.uuid, LossRequest())
    assert (preview.alone, preview.done) == (0, False)
    other.stop()
    until(lambda: _is_down(cluster, other.uuid), "the other one, too")
    preview = lose_node(cluster.node.operator, other.uuid, LossRequest())
    assert preview.alone == len(_away(cluster))
    with pytest.raises(ConflictError, match="no other storage node is known to have"):
        forget_node(cluster.node.operator, other.uuid)
    view = copies_view(cluster.node.operator)
    assert view.nowhere == len(_away(cluster))
    said = f"{view.nowhere} files are on no disk here"
    assert said in " ".join(cluster.node.concerns())
    assert said in " ".join(short_status(cluster.node.operator, None).concerns)
    assert len(bring_back(cluster.node.operator).failed) == view.nowhere


def _is_down(cluster: UploadCluster, uuid: str) -> bool:
    cluster.node.copies._looked = None
    return cluster.node.copies.nodes()[uuid].is_down


@pytest.mark.slow
def test_what_only_nodes_have_is_exported(
    cluster: UploadCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _fill(cluster)
    world = cluster.world
    config = tmp_path / "receiver.toml"
    dirs = [str(each) for each in world.config.data_dirs]
    config.write_text(f'schema_dir = "{world.config.schema_dir}"\ndata_dirs = {dirs}\n')
    words = ["--config", str(config), "export"]
    assert run(cli, "tsferry-receiver", [*words, str(tmp_path / "alone")]) == 1
    assert "--receiver" in capsys.readouterr().err

    # What a server writes into its schema directory when it listens.
    (world.config.schema_dir / ADDRESS_FILE).write_text(cluster.url)
    (world.config.schema_dir / TOKEN_FILE).write_text(
        make_token(cluster.node.engine, "operator").token
    )
    cluster.beat()
    code = run(cli, "tsferry-receiver", [*words, str(tmp_path / "out")])
    assert code == 0, capsys.readouterr()
    manifest = json.loads((tmp_path / "out/manifest.json").read_text())
    assert manifest["inputs"] == len(_rows(cluster))
