from __future__ import annotations

import itertools
import os

import pytest

import common.durable as durable
from common import wire
from common.errors import DiskError, FailedSyncError, GoneError, NoSpaceError, ReadOnlyError
from receiver.node import Node
from tests.support.node_world import A, B, Edge, World, path_of, results, tsfile

CONTENT = tsfile()


class Monotonic:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def still(world: World):
    node = world.still_node()
    node.load.loader._monotonic = Monotonic()
    yield node
    node.close()


def time_of(node: Node) -> Monotonic:
    clock = node.load.loader._monotonic
    assert isinstance(clock, Monotonic)
    return clock


def ended(node: Node, uuid: str = A, content: bytes = CONTENT) -> tuple[Edge, str]:
    edge = Edge(node, uuid)
    task = edge.start()
    edge.batch(task, {path_of(1): content})
    edge.end(task, {path_of(1): content})
    return edge, task


@pytest.mark.parametrize("error", [NoSpaceError("full"), DiskError("EIO"), OSError(5, "EIO")])
def test_a_load_that_cannot_be_done_now_heals_by_itself(
    still: Node, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    edge, task = ended(still)
    import receiver.load.loading as loading

    def fails(*_: object) -> None:
        raise error

    with monkeypatch.context() as broken:
        broken.setattr(loading, "move_in", fails)
        for _ in range(4):
            still.load.loader.run_due()
            time_of(still).now += 100
    answer = still.tasks.answer(edge.who, A, task, 0)
    assert answer.state is wire.TaskState.LOADING
    folder = still.load.folders.find(A)
    assert folder is not None
    assert folder.task is not None
    assert folder.task.trouble
    still.load.loader.run_due()
    assert results(edge.outcome(task)) == {path_of(1): "loaded"}
    assert still.load.loader.waiting == 0


def test_pauses_grow_and_a_load_that_waits_lets_the_others_pass(
    still: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    import receiver.load.loader as loader

    real, tries = loader.load_task, []

    def fails_for_a(
        engine: object, trees: object, folder: object, *rest: object, **more: object
    ) -> None:
        if folder.uuid == A:  # type: ignore[attr-defined]
            tries.append(time_of(still).now)
            raise DiskError("EIO")
        real(engine, trees, folder, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(loader, "load_task", fails_for_a)
    _, _first = ended(still)
    edge, second = ended(still, B, tsfile("root.sg.b"))
    still.load.loader.run_due()
    assert results(edge.outcome(second)) == {path_of(1): "loaded"}
    while len(tries) < 6:
        time_of(still).now += 0.25
        still.load.loader.run_due()
    gaps = [later - earlier for earlier, later in itertools.pairwise(tries)]
    assert gaps == sorted(gaps)
    assert gaps[-1] > 4 * gaps[0]


def test_a_slow_load_is_waited_for_and_never_raced_by_a_retry(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    import threading

    import receiver.load.loading as loading

    go_on, real, loads = threading.Event(), loading.move_in, []

    def slow(tree: object, moves: object) -> dict[str, str]:
        loads.append(1)
        go_on.wait(60)
        return real(tree, moves)  # type: ignore[arg-type]

    monkeypatch.setattr(loading, "move_in", slow)
    edge, task = ended(node)
    for _ in range(3):
        assert node.tasks.answer(edge.who, A, task, 0.05).state is wire.TaskState.LOADING
        assert edge.start(task) == task
        edge.end(task, {path_of(1): CONTENT})
    go_on.set()
    assert results(edge.outcome(task)) == {path_of(1): "loaded"}
    assert loads == [1]


def test_a_large_load_leaves_threads_to_the_small_ones_of_others(
    still: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    import receiver.load.loader as loader

    monkeypatch.setattr(loader, "_LARGE", 1)
    two = {path_of(1): tsfile("root.sg.two"), path_of(2): tsfile("root.sg.two", first=50)}
    tasks = []
    for uuid, files in ((A, two), (B, two), ("c" * 32, {path_of(1): CONTENT})):
        edge = Edge(still, uuid)
        task = edge.start()
        edge.batch(task, files)
        edge.end(task, files)
        tasks.append((edge, task))
    first = still.load.loader._begin()
    assert first is not None
    assert first.folder.uuid == A
    edge, task = tasks[2]
    assert results(edge.outcome(task)) == {path_of(1): "loaded"}
    assert still.load.loader.waiting == 2, "beside a large load a second one was begun"
    still.load.loader._attempt(first)
    edge, task = tasks[1]
    assert set(results(edge.outcome(task)).values()) == {"conflict"}


def test_a_long_decision_lets_others_read_between_two_files(
    still: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    from receiver.load.deciding import decision_pauses

    given: list[bool] = []
    reading = still.engine.reading()
    monkeypatch.setattr(reading, "give_way", lambda **_: given.append(reading.is_mine()))
    now = itertools.count()
    pause = decision_pauses.pauses(reading, lambda: next(now) * decision_pauses._WITHOUT_PAUSE / 2)
    for _ in range(6):
        pause()
    assert len(given) == 3, "not between any two of them"
    monkeypatch.setattr(decision_pauses, "_WITHOUT_PAUSE", -1)
    ended(still, A)
    given.clear()
    still.load.loader.run_due()
    assert given == [True]


def test_the_loads_of_one_sender_go_one_after_the_other(
    still: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(still.load.loader, "wait_for", lambda job: None)
    for number in (1, 2):
        Edge(still, A).upload(None, path_of(number), tsfile(first=number * 50))
    ended(still, B, tsfile("root.sg.b"))
    begun = [still.load.loader._begin() for _ in range(3)]
    assert [each and each.folder.uuid for each in begun] == [A, B, None]


def test_of_two_loads_side_by_side_one_gets_a_device_and_the_other_is_told(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    import threading

    import receiver.load.loading as loading

    both, real = threading.Barrier(2), loading._place
    decided = itertools.count()

    def place(*given: object) -> dict[str, str]:
        if next(decided) < 2:
            both.wait(60)
        return real(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(loading, "_place", place)
    ends = [ended(node, uuid) for uuid in (A, B)]
    came = [results(edge.outcome(task))[path_of(1)] for edge, task in ends]
    assert sorted(came) == ["conflict", "loaded"]


def test_a_call_that_comes_while_its_task_is_loaded_takes_no_thread_until_then(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    import threading

    import receiver.load.loading as loading

    begun, go_on, real = threading.Event(), threading.Event(), loading.move_in

    def slow(tree: object, moves: object) -> dict[str, str]:
        begun.set()
        go_on.wait(60)
        return real(tree, moves)  # type: ignore[arg-type]

    monkeypatch.setattr(loading, "move_in", slow)
    edge, task = ended(node)
    assert begun.wait(60)
    for late in (
        lambda: edge.plan(task, []),
        lambda: edge.batch(task, {path_of(2): CONTENT}),
        lambda: edge.deleted(task, []),
    ):
        with pytest.raises(GoneError):
            late()
    assert node.tasks.answer(edge.who, A, task, 0).state is wire.TaskState.LOADING
    go_on.set()
    assert results(edge.outcome(task)) == {path_of(1): "loaded"}


def test_after_a_failed_sync_nothing_is_taken_and_the_receiver_says_so(
    node: Node, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    edge = Edge(node)
    edge.round({path_of(1): CONTENT})
    task = edge.start()
    monkeypatch.setattr(durable.flushing, "_failure", None)

    def fails(fd: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", fails)
        broken.setattr(os, "fdatasync", fails)
        with pytest.raises((FailedSyncError, ReadOnlyError)):
            edge.batch(task, {path_of(2): tsfile(first=50)})
    with pytest.raises(ReadOnlyError):
        edge.batch(task, {path_of(2): tsfile(first=50)})
    assert node.problem() is not None
    rows = node.listing.inventory(edge.who, A, None, 10).entries  # reading goes on
    assert [each.path for each in rows] == [path_of(1)]


def test_a_full_disk_in_the_middle_of_a_load_heals(
    still: Node, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    edge, task = ended(still)
    real = os.mkdir

    def full(path: object, *rest: object, **more: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(os, "mkdir", full)
        still.load.loader.run_due()
    assert os.mkdir is real
    assert world.loaded() == {}
    time_of(still).now += 100
    assert results(edge.outcome(task)) == {path_of(1): "loaded"}


def test_a_clean_up_that_comes_late_leaves_the_next_task_alone(
    still: Node, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    import receiver.load.loading as loading

    edge, first = ended(still)

    def fails(*_: object) -> None:
        raise DiskError("EIO")

    with monkeypatch.context() as broken:
        broken.setattr(loading, "_write_load_log", fails)
        still.load.loader.run_due()  # committed, not cleaned up; it will be tried again
    second = edge.start()
    edge.batch(second, {path_of(2): tsfile(first=50)})
    time_of(still).now += 100
    still.load.loader.run_due()
    assert still.load.loader.waiting == 0
    assert (world.folder() / "sync.log").read_text().startswith(f"sync start {second}\n")
    assert not (world.folder() / "load.log").exists()
    edge.end(second, {path_of(2): tsfile(first=50)})
    assert results(edge.outcome(second)) == {path_of(2): "loaded"}
    assert results(edge.outcome(first)) == {path_of(1): "loaded"}
