"""A master that was restored from an older copy takes back what its nodes have seen since."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.centre import centre
from tests.support.edge import Edge
from tests.support.node_process import NodeProcess
from tests.support.procs import wait_until

pytestmark = pytest.mark.slow

_NODES = """[nodes]
replicas = 1
before_ack = 1
"""


def test_what_was_loaded_since_a_restored_copy_and_freed_at_the_edge_comes_back_from_a_node(
    tmp_path: Path,
) -> None:
    with centre(tmp_path, _NODES) as there:
        url = there.start()
        token = there.call("token", "create", "--role", "node")["token"]
        node = NodeProcess(tmp_path / "node", there.processes, url, token)
        node.start()
        edge = Edge(tmp_path / "edge", url)
        edge.write(1)
        wait_until(lambda: edge.round().exit_code == 0, "a round that is loaded")
        there.stop()
        schema, older = there.root / "schema", tmp_path / "older"
        shutil.copytree(schema, older)
        there.start()
        path = edge.write(2)
        wait_until(lambda: edge.round().exit_code == 0, "a round that is loaded")
        content = edge.content(path)
        edge.remove(path)  # it was freed
        there.stop()
        shutil.rmtree(schema)
        shutil.copytree(older, schema)
        for each in there.data.rglob("*-2-0-0.*"):
            each.unlink()
        there.start()
        assert [each["path"] for each in there.call("files")["files"]] == [edge.path(1)]

        wait_until(lambda: offered_by(there), "what the node offers")
        into = tmp_path / "offered"
        (offer,) = there.call("copies", "offered", "--into", str(into))["files"]
        assert (offer["sender"], offer["path"]) == (edge.uuid, path)
        assert (into / edge.uuid / path).read_bytes() == content
        assert node.status()["doubt"]  # and so nothing of it goes at the node meanwhile
        done = there.call("load", str(into / edge.uuid), "--as", edge.uuid)
        assert [each["result"] for each in done["files"]] == ["loaded"]
        files = there.call("files")["files"]
        found = [(Path(each["data_dir"]) / each["physical"]).read_bytes() for each in files]
        assert sorted(found) == sorted([edge.content(edge.path(1)), content])


def offered_by(centre):
    """What nodes offer; nothing while one has not been heard yet, which is exit code 3."""
    try:
        return centre.call("copies", "offered")["files"]
    except AssertionError:
        return []
