"""Loads at the centre side by side: one waits, and the others go on; each may be cancelled."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from common import crash
from common.errors import BusyError, ConflictError, NoSpaceError, NotFoundError
from receiver.load import loading
from receiver.node import Node
from receiver.operator.centre import centre_loading, centre_runs
from receiver.operator.stored.files import list_files
from receiver.operator.views.load_wire import CentreLoadAnswer, CentreLoadRequest
from tests.support.node_world import World, path_of, tsfile
from tests.support.web import until

WAIT = 20.0


def request(root: Path, name: str, content: bytes | None = None) -> CentreLoadRequest:
    """A load of one file, which has a device of its own."""
    place = root / name / path_of(1)
    place.parent.mkdir(parents=True)
    place.write_bytes(tsfile(f"root.sg.d{name}") if content is None else content)
    return CentreLoadRequest(task=name * 32, paths=[str(root / name)])


def result(answer: CentreLoadAnswer) -> str:
    assert answer.done
    return answer.files[0].result


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], threading.Event]]:
    """Loads of what lies below a name are read when it is said."""
    gates: dict[str, threading.Event] = {}
    found = centre_loading.find_files

    def finding(paths: list[str], group: str | None) -> object:
        gate = gates.get(Path(paths[0]).name)
        assert gate is None or gate.wait(WAIT)
        return found(paths, group)

    monkeypatch.setattr(centre_loading, "find_files", finding)
    yield lambda name: gates.setdefault(name, threading.Event())
    for each in gates.values():
        each.set()


def test_loads_are_asked_for_by_their_ids_and_are_committed_in_the_order_of_their_begins(
    node: Node, tmp_path: Path, held: Callable[[str], threading.Event]
) -> None:
    first, second = request(tmp_path, "1"), request(tmp_path, "2")
    centre, gate = node.operator.centre, held("1")
    centre.begin(first)
    centre.begin(first)
    with pytest.raises(NotFoundError):
        centre.answer(second.task, 0)
    centre.begin(second)
    until(lambda: centre.answer(second.task, 0).trouble)
    assert f"load {first.task} was begun before" in (centre.answer(second.task, 0).trouble or "")
    assert not centre.is_done(second.task)
    assert [each.task for each in centre.under_way()] == [first.task, second.task]
    gate.set()
    assert {result(centre.answer(each.task, WAIT)) for each in (first, second)} == {"loaded"}
    assert centre.under_way() == []
    with node.engine.reading() as state:
        commits = [state.task_table.get(centre.source, each * 32) for each in "12"]
    assert [row.commit for row in commits if row] == sorted(row.commit for row in commits if row)


def test_a_dry_run_waits_for_no_load(
    node: Node, tmp_path: Path, held: Callable[[str], threading.Event]
) -> None:
    import msgspec

    held("1")
    node.operator.centre.begin(request(tmp_path, "1"))
    dry = msgspec.structs.replace(request(tmp_path, "2"), dry_run=True)
    node.operator.centre.begin(dry)
    assert result(node.operator.centre.answer(dry.task, WAIT)) == "loaded"
    assert list_files(node.operator).files == []


def test_no_more_than_so_many_go_side_by_side(
    node: Node,
    tmp_path: Path,
    held: Callable[[str], threading.Event],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(centre_runs, "_MOST", 2)
    gate = held("1")
    loads = [request(tmp_path, name) for name in "123"]
    for each in loads[:2]:
        node.operator.centre.begin(each)
    with pytest.raises(BusyError, match=loads[0].task):
        node.operator.centre.begin(loads[2])
    gate.set()
    assert result(node.operator.centre.answer(loads[1].task, WAIT)) == "loaded"
    node.operator.centre.begin(loads[2])
    assert result(node.operator.centre.answer(loads[2].task, WAIT)) == "loaded"


def test_the_same_files_by_two_loads_at_once_are_there_once(
    node: Node, tmp_path: Path, held: Callable[[str], threading.Event]
) -> None:
    gate = held("1")
    loads = [request(tmp_path, name, tsfile()) for name in "12"]
    for each in loads:
        node.operator.centre.begin(each)
    gate.set()
    found = [result(node.operator.centre.answer(each.task, WAIT)) for each in loads]
    assert found == ["loaded", "already"]
    assert len(list_files(node.operator).files) == 1


def test_what_overlaps_a_load_that_was_begun_before_is_compared_with_it(
    node: Node, tmp_path: Path, held: Callable[[str], threading.Event]
) -> None:
    gate = held("1")
    loads = [request(tmp_path, "1", tsfile()), request(tmp_path, "2", tsfile(first=3, salt=1))]
    for each in loads:
        node.operator.centre.begin(each)
    gate.set()
    found = [node.operator.centre.answer(each.task, WAIT) for each in loads]
    assert list(map(result, found)) == ["loaded", "refused"]
    assert "time 3 is in" in (found[1].files[0].reason or "")


@pytest.mark.parametrize("which", ["1", "2"])
def test_a_load_that_is_read_or_waits_for_its_turn_is_cancelled_and_leaves_nothing(
    node: Node, tmp_path: Path, held: Callable[[str], threading.Event], which: str
) -> None:
    centre, gate = node.operator.centre, held("1")
    loads = {name: request(tmp_path, name) for name in "12"}
    for each in loads.values():
        centre.begin(each)
    cancelling = threading.Thread(target=centre.cancel, args=(which * 32, "a mistake"))
    cancelling.start()
    if which == "1":
        until(lambda: centre._runs.get("1" * 32).cancelled)
        gate.set()
    cancelling.join()
    with pytest.raises(ConflictError, match="cancelled \\(a mistake\\)"):
        centre.answer(which * 32, WAIT)
    gate.set()
    (other,) = {"1", "2"} - {which}
    assert result(centre.answer(other * 32, WAIT)) == "loaded"
    assert len(list_files(node.operator).files) == 1
    folder = node.load.centre_folder()
    assert (folder.task, folder.staged.all()) == (None, [])


def full(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """The disk is full for the loader until the list is empty."""
    is_full, place = [True], loading._place

    def placing(*given: object) -> object:
        if is_full:
            raise NoSpaceError("the disk is full")
        return place(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(loading, "_place", placing)
    return is_full


def test_a_load_that_the_loader_cannot_do_now_is_cancelled_and_the_next_goes_on(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_full = full(monkeypatch)
    centre, loads = node.operator.centre, [request(tmp_path, name) for name in "12"]
    centre.begin(loads[0])
    until(lambda: centre.answer(loads[0].task, 0).trouble)
    assert centre.answer(loads[0].task, 0).trouble == "the disk is full"
    centre.begin(loads[1])
    is_full.clear()
    centre.cancel(loads[0].task, "no room")
    answer = centre.answer(loads[0].task, WAIT)
    assert (result(answer), answer.files[0].reason) == ("refused", "cancelled: no room")
    assert result(centre.answer(loads[1].task, WAIT)) == "loaded"
    assert len(list_files(node.operator).files) == 1


def test_a_load_that_is_cancelled_ends_though_its_files_cannot_be_read(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unread(_: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(loading.Collected, "read", unread)
    load, centre = request(tmp_path, "1"), node.operator.centre
    centre.begin(load)
    until(lambda: centre.answer(load.task, 0).trouble)
    centre.cancel(load.task, "its disk is ill")
    assert result(centre.answer(load.task, WAIT)) == "refused"
    folder = node.load.centre_folder()
    assert (folder.task, folder.staged.all()) == (None, [])


def test_a_load_that_is_over_or_unknown_is_not_cancelled(node: Node, tmp_path: Path) -> None:
    load, centre = request(tmp_path, "1"), node.operator.centre
    centre.begin(load)
    centre.answer(load.task, WAIT)
    with pytest.raises(ConflictError, match="is over"):
        centre.cancel(load.task, "")
    with pytest.raises(NotFoundError, match="under way"):
        centre.cancel("9" * 32, "")


def test_a_load_that_was_handed_over_when_the_receiver_died_goes_on_and_is_known_by_its_id(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = request(tmp_path, "1")
    with monkeypatch.context() as patch, world.node() as node:
        full(patch)
        node.operator.centre.begin(load)
        until(lambda: node.operator.centre.answer(load.task, 0).trouble)
    is_full = full(monkeypatch)
    with world.node() as node:
        centre = node.operator.centre
        centre.begin(load)  # said again, it is not copied again
        until(lambda: centre.answer(load.task, 0).trouble)
        (shown,) = centre.under_way()
        assert (shown.task, shown.trouble) == (load.task, "the disk is full")
        is_full.clear()
        until(lambda: centre.answer(load.task, 0.5).done)
        assert result(centre.answer(load.task, 0)) == "loaded"
        assert len(list_files(node.operator).files) == 1


def test_what_an_earlier_process_handed_over_is_cancelled(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = request(tmp_path, "1")
    with monkeypatch.context() as patch, world.node() as node:
        full(patch)
        node.operator.centre.begin(load)
        until(lambda: node.operator.centre.answer(load.task, 0).trouble)
    is_full = full(monkeypatch)
    with world.node() as node:
        centre = node.operator.centre
        is_full.clear()
        centre.cancel(load.task, "no more")
        until(lambda: centre.answer(load.task, 0.5).done)
        assert result(centre.answer(load.task, 0)) == "refused"
        assert list_files(node.operator).files == []


def test_a_load_that_was_cut_off_before_it_was_handed_over_is_told_to_be_nowhere(
    world: World, tmp_path: Path
) -> None:
    load = request(tmp_path, "1")

    def hook(name: str) -> None:
        if name == "centre.staged":
            raise NoSpaceError("the disk is full")

    with world.node() as node, crash.arm(hook), pytest.raises(NoSpaceError):
        node.operator.centre.load(load)
    with world.node() as node, pytest.raises(NotFoundError, match="nothing of it is loaded"):
        node.operator.centre.answer(load.task, 0)


def test_what_is_told_to_be_cancelled_while_it_is_decided_is_never_loaded(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files go to their places longer than anybody waits for that, and the receiver ends."""
    placing, gate, place = threading.Event(), threading.Event(), loading._place

    def slow(*given: object) -> object:
        placing.set()
        assert gate.wait(WAIT)
        return place(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(loading, "_place", slow)
    monkeypatch.setattr(centre_loading, "_ENDS_WITHIN", 0.1)
    load = request(tmp_path, "1")
    with world.node() as node:
        centre = node.operator.centre
        centre.begin(load)
        assert placing.wait(WAIT)
        with pytest.raises(BusyError, match=f"load --wait {load.task}"):
            centre.cancel(load.task, "a mistake")
        gate.set()
        answer = centre.answer(load.task, WAIT)
        assert (result(answer), answer.files[0].reason) == ("refused", "cancelled: a mistake")
        assert list_files(node.operator).files == []
        with pytest.raises(ConflictError, match="is over"):
            centre.cancel(load.task, "a mistake")
    with world.node() as node:
        assert list_files(node.operator).files == []


def test_what_an_earlier_process_handed_over_counts_as_cancelled_once_that_is_committed(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = request(tmp_path, "1")
    monkeypatch.setattr(centre_loading, "_ENDS_WITHIN", 0.1)
    with monkeypatch.context() as patch, world.node() as node:
        full(patch)
        node.operator.centre.begin(load)
        until(lambda: node.operator.centre.answer(load.task, 0).trouble)

    def ill(*_: object) -> None:
        raise OSError(5, "Input/output error")

    is_full = full(monkeypatch)
    with monkeypatch.context() as patch, world.node() as node:
        patch.setattr(loading, "_end_with_nothing", ill)
        with pytest.raises(BusyError):
            node.operator.centre.cancel(load.task, "no more")
    is_full.clear()
    with world.node() as node:
        centre = node.operator.centre
        until(lambda: centre.answer(load.task, 0.5).done)
        assert result(centre.answer(load.task, 0)) == "loaded"
