"""While files are refused for want of space the receiver says that it is not well."""

from __future__ import annotations

import pytest

from common.errors import NoSpaceError
from receiver.load.incoming_space import IncomingSpace
from receiver.node import Node
from receiver.web.app import close, create_app
from tests.support.node_world import A, Edge, World, path_of, plan_entry, results, tsfile

CONTENT = tsfile(points=3000)
PATH = path_of(1)


def health(node: Node, world: World) -> tuple[int, str]:
    app = create_app(world.config, node)
    try:
        answer = app.test_client().get("/readyz")
        document = answer.get_json(force=True)
        return answer.status_code, document.get("detail") or " ".join(document.get("concerns", []))
    finally:
        close(app)


@pytest.fixture
def small_disk(node: Node, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """A disk with room for something, and not for `CONTENT`."""
    disk = {"free": len(CONTENT) - 1}
    monkeypatch.setattr(IncomingSpace, "free_bytes", lambda *_: disk["free"])
    return disk


def test_a_planned_file_that_does_not_fit_is_told_until_it_does(
    node: Node, world: World, small_disk: dict[str, int]
) -> None:
    assert health(node, world)[0] == 200
    edge = Edge(node)
    assert results(edge.round({PATH: CONTENT})) == {}
    status, said = health(node, world)
    assert (status, str(len(CONTENT)) in said) == (503, True)
    small_disk["free"] = 1 << 40
    assert health(node, world)[0] == 200
    small_disk["free"] = len(CONTENT) - 1
    assert results(edge.round({path_of(2): tsfile(first=9000)})) == {path_of(2): "loaded"}
    assert health(node, world)[0] == 200  # the sender does not ask for it any more


def test_an_upload_that_does_not_fit_is_told(
    node: Node, world: World, small_disk: dict[str, int]
) -> None:
    edge = Edge(node)
    with pytest.raises(NoSpaceError):
        edge.upload(None, PATH, CONTENT)
    assert health(node, world)[0] == 503
    small_disk["free"] = 1 << 40
    edge.upload(None, PATH, CONTENT)
    small_disk["free"] = len(CONTENT) - 1
    assert health(node, world)[0] == 200


def test_a_load_that_waits_for_space_is_told(
    node: Node, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    from receiver.load import loading

    def full(*_: object) -> None:
        raise NoSpaceError("no space to write x")

    edge = Edge(node)
    with monkeypatch.context() as broken:
        broken.setattr(loading, "move_in", full)
        task = edge.start()
        edge.batch(task, {PATH: CONTENT})
        edge.end(task, {PATH: CONTENT})
        node.load.loader.wait(lambda: node.problem() is not None, 60)
        assert health(node, world) == (503, "a task waits to be loaded: no space to write x")
    edge.outcome(task)
    assert health(node, world)[0] == 200


def test_a_sender_at_its_quota_is_a_concern_of_its_own(tmp_path) -> None:  # type: ignore[no-untyped-def]
    world = World(
        tmp_path, limits={"max_unloaded_bytes": len(CONTENT), "max_file_bytes": len(CONTENT)}
    )
    with world.node() as node:
        edge = Edge(node)
        task = edge.start()
        other = tsfile(first=90_000)
        edge.plan(task, [plan_entry(path_of(2), other)])
        edge.batch(task, {path_of(2): other})
        (decision,) = edge.plan(task, [plan_entry(PATH, CONTENT)])
        assert "waiting to be loaded" in (decision.reason or "")
        status, said = health(node, world)
        assert (status, said.startswith("1 sender has")) == (200, True)
        edge.end(task, {path_of(2): other})
        edge.outcome(task)
        edge.round({PATH: CONTENT})
        assert health(node, world) == (200, "")
        assert node.load.folders.find(A) is not None
