"""Others commit while a load at the centre of very many files is judged and decided."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from common.wire import Propagate
from receiver.load.deciding import decision_pauses
from receiver.metadata.model import records
from receiver.metadata.state.lock import Reading
from receiver.node import Node
from receiver.operator.edges.owners import set_owner
from receiver.operator.stored.files import list_files
from receiver.operator.views.load_wire import CentreLoadRequest
from tests.support.node_world import OPERATOR, A, B, Edge, path_of, tsfile


@pytest.fixture
def beside(node: Node, monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], object]]:
    """What is done, one after the other, when a decision gives way to commits."""
    todo: list[Callable[[], object]] = []
    give_way = Reading.give_way

    def giving(self: Reading, *, stands: bool = True) -> None:
        if stands or not todo:
            return give_way(self, stands=stands)
        work = todo.pop(0)

        def once(_: float) -> None:
            self._sleep = lambda _: None  # what it begins gives way, too
            work()

        self._sleep = once
        return give_way(self, stands=stands)

    monkeypatch.setattr(Reading, "give_way", giving)
    monkeypatch.setattr(decision_pauses, "_WITHOUT_PAUSE", -1)
    return todo


def loaded(node: Node, root: Path, files: dict[str, bytes], **more: object) -> set[str]:
    for path, content in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(content)
    request = CentreLoadRequest(task="7" * 32, paths=[str(root)], **more)  # type: ignore[arg-type]
    return {each.result for each in node.operator.centre.load(request).files}


FILES = {path_of(each): tsfile(f"root.sg.d{each}") for each in (1, 2, 3)}


def test_a_commit_of_others_does_not_wait_for_the_judgement(
    node: Node, tmp_path: Path, beside: list[Callable[[], object]]
) -> None:
    done: list[int] = []

    def commit() -> None:
        done.append(node.engine.commit([records.StorageGroupSet(f"root.other{len(done)}")]))

    beside += [commit] * 4
    assert loaded(node, tmp_path / "old", FILES) == {"loaded"}
    assert (len(done), beside) == (4, [])


@pytest.mark.parametrize("when", range(6))
def test_what_others_load_in_the_middle_of_a_decision_is_seen(
    node: Node, tmp_path: Path, beside: list[Callable[[], object]], when: int
) -> None:
    """The same content, and points of the same times, come by an edge while files are judged."""
    edge = Edge(node)
    edge.round({path_of(9): tsfile(first=500)})
    same, overlapping = FILES[path_of(1)], tsfile("root.sg.d2", salt=1)
    files = {path_of(11): same, path_of(12): overlapping}
    beside += [lambda: None] * when
    beside.append(lambda: edge.round(files, propagate=Propagate.NEVER))
    found = loaded(node, tmp_path / "old", FILES, owner=A)
    rows = list_files(node.operator).files
    if found == {"refused"} or "refused" in found:
        assert {each.sender for each in rows} == {A}
    else:  # it was committed before the edge's files came
        assert beside
        assert len(rows) == 4


@pytest.mark.parametrize("when", range(3, 8))
def test_content_that_others_load_in_the_middle_of_a_decision_is_not_loaded_twice(
    node: Node, tmp_path: Path, beside: list[Callable[[], object]], when: int
) -> None:
    edge = Edge(node)
    edge.round({path_of(9): tsfile("root.sg.d1", first=500)})
    beside += [lambda: None] * when
    beside.append(lambda: edge.round({path_of(11): FILES[path_of(1)]}, propagate=Propagate.NEVER))
    assert loaded(node, tmp_path / "old", FILES, owner=A, on_duplicate="keep") <= {
        "loaded",
        "already",
    }
    assert beside == [], "there is no such moment any more"
    contents = [each.md5 for each in list_files(node.operator).files]
    assert len(contents) == len(set(contents))


@pytest.mark.parametrize("when", range(8))
@pytest.mark.parametrize("policy", ["keep", "error"])
def test_what_came_by_an_owner_that_had_a_device_only_meanwhile_is_seen(
    node: Node, tmp_path: Path, beside: list[Callable[[], object]], when: int, policy: str
) -> None:
    """Nobody owns the device where the decision begins, and nobody where it ends."""
    edge = Edge(node, uuid=B)
    edge.round({path_of(9): tsfile("root.sg.x", first=500)})
    content = FILES[path_of(1)] if policy == "keep" else tsfile("root.sg.d1", salt=1)

    def come_and_go() -> None:
        edge.round({path_of(11): content}, propagate=Propagate.NEVER)
        set_owner(node.engine, OPERATOR, "root.sg.d1", None)

    beside += [lambda: None] * when
    beside.append(come_and_go)
    found = loaded(node, tmp_path / "old", FILES, on_duplicate=policy)
    assert beside == [], "there is no such moment any more"
    assert found == ({"refused"} if policy == "error" else {"already", "loaded"})
    contents = [each.md5 for each in list_files(node.operator).files]
    assert len(contents) == len(set(contents))
