"""What the version before left opens as it is, at the receiver and at the sender."""

from __future__ import annotations

import json

import pytest

from receiver.metadata.kv.embedded import EmbeddedKV
from receiver.metadata.sql.executing import execute
from receiver.node import Node
from receiver.operator.stored.files import list_files
from sender.round.look import dry_run, standing
from tests.support.edge import Edge
from tests.support.node_world import B, World, fsck_of, path_of, results, tsfile
from tests.support.node_world import Edge as Sender
from tests.support.previous_version import unpack
from tests.support.scripted_receiver import ScriptedReceiver


@pytest.fixture
def old(tmp_path):
    return unpack(tmp_path / "old", "before_rooms")


@pytest.fixture
def node(old):
    with World(old / "receiver").node() as opened:
        yield opened


def test_a_receiver_has_its_files_its_schema_and_its_keys(node: Node):
    files = [
        *list_files(node.operator).files,
        *list_files(node.operator, state="quarantined").files,
    ]
    states = {each.path: each.state for each in files}
    assert states[path_of(1)] == "live"
    assert states[path_of(2)] == "retired"
    assert states[path_of(3)] == "quarantined"
    assert fsck_of(node).found == []
    assert EmbeddedKV(node.engine).load("a key") == "its value"
    rows = {row[0]: row for row in execute(node.engine, "show timeseries root.sg.**")}
    assert rows["root.sg.made.s1"][1] == "speed"
    (found,) = execute(node.engine, "show timeseries where place = hall")
    assert found[0] == "root.sg.made.s1"
    (found,) = execute(node.engine, "show timeseries where unit = f")
    assert found[0] == "root.sg.made.s2"


def test_a_receiver_goes_on_loading(node: Node):
    edge = Sender(node, B)
    edge.check()
    assert results(edge.round({path_of(9): tsfile("root.other.d9")})) == {path_of(9): "loaded"}


def test_a_sender_keeps_its_lists_and_ships_what_a_cut_off_task_had(old):
    with ScriptedReceiver() as receiver:
        edge = Edge(old / "new", receiver.url)
        (old / "new").rename(old / "unused")
        (old / "sender").rename(old / "new")
        name = edge.config.receivers[0].directory  # the port is another one
        for parent in (edge.data / "sync-sender", edge.schema / "sync"):
            (was,) = (each for each in parent.iterdir() if each.is_dir())
            was.rename(parent / name)
        edge.uuid = (edge.schema / "sync/uuid.txt").read_text().strip()
        remembered = json.loads((edge.schema / f"sync/{name}/receiver.json").read_bytes())
        receiver.epoch = remembered["epoch"]
        listed = edge.listed
        for path in listed:
            receiver.loaded[path] = edge.content(path)
        remote = edge.remote()
        ahead, stands = dry_run(remote, accept_source=False), standing(remote)
        remote.close()
        wanted = [each["file"] for task in ahead["tasks"] for each in task["additions"]]
        assert [path.split("-")[-3] for path in sorted(wanted)] == ["4", "5"]
        assert [each["kind"] for each in stands.troubles] == ["quarantined"]
        assert stands.pending_files == 3
        report = edge.round()
        assert report.error is None, report.error
        assert sorted(wanted) == sorted(each.path for each in receiver.plans)
        assert len(listed) == 2
        assert sorted(receiver.loaded) == sorted([*listed, *wanted])
        assert [each.file for each in report.quarantined] == [stands.troubles[0]["file"]]
        assert edge.leftovers == []
