from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from common import crash, wire
from common.errors import (
    BusyError,
    CloneError,
    GoneError,
    NameRefusedError,
    NoSpaceError,
    NotFoundError,
    ProtocolError,
    TooLargeError,
)
from receiver.metadata.model import records
from receiver.node import Node
from receiver.transfer.begun.look_numbers import latest_look
from receiver.transfer.intake import Intake
from tests.support import tiers
from tests.support.node_world import (
    A,
    B,
    Edge,
    World,
    batch_of,
    fsck_of,
    manifest_entry,
    path_of,
    plan_entry,
    resource_entry,
    results,
    sender,
    tsfile,
)

CONTENT = tsfile()


@pytest.fixture
def edge(node: Node) -> Edge:
    edge = Edge(node)
    edge.check()
    return edge


def only(decisions: list[wire.PlanDecision]) -> wire.PlanDecision:
    (decision,) = decisions
    return decision


# -- plan ------------------------------------------------


def test_a_new_file_is_to_be_sent(edge: Edge) -> None:
    assert only(edge.plan(edge.start(), [plan_entry(path_of(1), CONTENT)])).action == "send"


@pytest.mark.parametrize("md5", [None, hashlib.md5(CONTENT).hexdigest()])
def test_a_loaded_file_is_not_sent_again(edge: Edge, md5: str | None) -> None:
    edge.round({path_of(1): CONTENT})
    decision = only(edge.plan(edge.start(), [plan_entry(path_of(1), CONTENT, md5=md5)]))
    assert decision.action == "already"
    assert decision.md5 == hashlib.md5(CONTENT).hexdigest()


def test_the_same_tail_with_another_md5_is_other_content(edge: Edge) -> None:
    edge.round({path_of(1): CONTENT})
    entry = plan_entry(path_of(1), CONTENT, md5="0" * 32)
    assert only(edge.plan(edge.start(), [entry])).action == "conflict"


def test_a_retired_file_that_comes_back_is_not_loaded_twice(edge: Edge, world: World) -> None:
    edge.round({path_of(1): CONTENT})
    edge.round({}, [path_of(1)])
    decision = only(edge.plan(edge.start(), [plan_entry(path_of(1), CONTENT)]))
    assert decision.action == "already"
    assert results(edge.round({path_of(1): CONTENT})) == {path_of(1): "already"}
    assert len(world.loaded()) == 1


def test_a_verified_file_of_a_dropped_task_need_not_travel_again(edge: Edge) -> None:
    task = edge.start()
    edge.plan(task, [plan_entry(path_of(1), CONTENT)])
    edge.batch(task, {path_of(1): CONTENT})
    task = edge.start()
    assert only(edge.plan(task, [plan_entry(path_of(1), CONTENT)])).action == "have"
    edge.end(task, {path_of(1): CONTENT})
    assert results(edge.outcome(task)) == {path_of(1): "loaded"}


def test_a_verified_file_is_not_taken_for_other_content(edge: Edge) -> None:
    task = edge.start()
    edge.batch(task, {path_of(1): CONTENT})
    other = plan_entry(path_of(1), tsfile(salt=1))
    assert only(edge.plan(task, [other])).action == "send"


def test_a_partial_upload_of_a_dropped_task_is_resumed(edge: Edge) -> None:
    big = tsfile(points=300)
    task = edge.start()
    edge.plan(task, [plan_entry(path_of(1), big)])
    view = edge.node.uploads.create(edge.who, A, len(big), {"path": path_of(1), "task": task})

    edge.node.uploads.patch(edge.who, view.id, 0, big[:800])
    task = edge.start()
    decision = only(edge.plan(task, [plan_entry(path_of(1), big)]))
    assert (decision.action, decision.offset, decision.upload) == ("resume", 800, view.id)
    other = only(edge.plan(task, [plan_entry(path_of(1), tsfile(points=300, salt=1))]))
    assert other.action == "send"
    edge.plan(task, [plan_entry(path_of(1), big)])
    edge.send(view.id, big, offset=800)
    edge.end(task, {path_of(1): big})
    assert results(edge.outcome(task)) == {path_of(1): "loaded"}


def test_a_device_of_another_is_refused_before_it_travels(edge: Edge) -> None:
    Edge(edge.node, B).round({path_of(1): CONTENT})
    decision = only(edge.plan(edge.start(), [plan_entry(path_of(2), CONTENT)]))
    assert (decision.action, decision.device) == ("conflict", "root.sg.d1")
    assert B not in (decision.reason or "")


def test_a_device_outside_of_the_scope_is_refused(node: Node) -> None:
    edge = Edge(node, A, sender(scope=["root.mine.**"]))
    task = edge.start()
    decision = only(edge.plan(task, [plan_entry(path_of(1), CONTENT)]))
    assert (decision.action, decision.device) == ("refused", "root.sg.d1")


def test_the_scope_is_judged_by_the_receivers_own_reading(node: Node, world: World) -> None:
    edge = Edge(node, A, sender(scope=["root.mine.**"]))
    task = edge.start()
    edge.plan(task, [plan_entry(path_of(1), CONTENT, devices=["root.mine.d1"])])
    edge.batch(task, {path_of(1): CONTENT})
    edge.end(task, {path_of(1): CONTENT})
    (outcome,) = edge.outcome(task).values()
    assert (outcome.result, outcome.device) == ("refused", "root.sg.d1")
    assert world.loaded() == {}


def test_one_bad_name_in_a_page_stops_nothing(edge: Edge) -> None:
    good = plan_entry(path_of(1), CONTENT)
    bad = plan_entry("../../etc/x", CONTENT)
    resource = plan_entry(f"{path_of(2)}.resource", CONTENT)
    decisions = edge.plan(edge.start(), [bad, good, resource])
    assert [each.action for each in decisions] == ["refused", "send", "refused"]


def test_a_file_that_is_too_large_is_refused_with_the_limit(edge: Edge) -> None:
    limit = edge.node.config.limits.max_file_bytes
    entry = plan_entry(path_of(1), CONTENT, size=limit + 1)
    decision = only(edge.plan(edge.start(), [entry]))
    assert decision.action == "refused"
    assert str(limit) in (decision.reason or "")


def test_a_page_has_a_limit(edge: Edge) -> None:
    many = [plan_entry(path_of(1), CONTENT)] * (edge.node.config.limits.max_page_items + 1)
    with pytest.raises(TooLargeError):
        edge.plan(edge.start(), many)


# -- order, replays ------------------------------------------------


def test_a_call_for_a_task_that_is_not_open_is_refused(edge: Edge) -> None:
    edge.start()
    for call in (
        lambda: edge.plan("9" * 32, []),
        lambda: edge.deleted("9" * 32, []),
        lambda: edge.batch("9" * 32, {}),
        lambda: edge.end("9" * 32, {}),
    ):
        with pytest.raises(GoneError):
            call()
    with pytest.raises(NotFoundError):
        edge.outcome("9" * 32)


def test_a_call_with_a_wrong_epoch_is_refused(edge: Edge) -> None:
    task = edge.start()
    edge.epoch = "1.0123456789abcdef"
    with pytest.raises(CloneError):
        edge.plan(task, [])
    edge.epoch = None
    with pytest.raises(ProtocolError):
        edge.plan(task, [])


def test_a_finished_task_answers_every_replay_with_its_outcome(edge: Edge) -> None:
    task = edge.start()
    edge.batch(task, {path_of(1): CONTENT})
    edge.end(task, {path_of(1): CONTENT})
    outcome = edge.outcome(task)
    request = wire.StartRequest(engine=edge.node.engine.uuid, epoch=edge.epoch)
    again = edge.node.tasks.start(edge.who, A, task, request)
    assert again.state is wire.TaskState.DONE
    assert again.epoch == edge.epoch
    edge.end(task, {path_of(1): CONTENT})
    edge.end(task, {path_of(2): CONTENT})  # even one that says something else
    assert edge.outcome(task) == outcome
    with pytest.raises(GoneError):
        edge.plan(task, [])


def test_a_task_that_is_loaded_while_it_is_asked_for_is_known(
    edge: Edge, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The load commits and lets go of the task behind any look of the answer at the tables."""
    task, engine = edge.start(), edge.node.engine
    edge.batch(task, {path_of(1): CONTENT})
    asked, asking, reading = threading.Event(), threading.current_thread(), engine.reading
    loader = edge.node.load.loader

    @contextmanager
    def looks() -> Iterator[Any]:
        with reading() as state:
            yield state
        if threading.current_thread() is asking and not asked.is_set():
            asked.set()
            loader.wait(lambda: loader.waiting == 0, 60)

    with crash.arm(lambda name: name == "load.tables" and asked.wait(60)):
        edge.end(task, {path_of(1): CONTENT})
        monkeypatch.setattr(engine, "reading", looks)
        answer = edge.node.tasks.answer(edge.who, A, task)
    assert answer.state in (wire.TaskState.LOADING, wire.TaskState.DONE)
    assert asked.is_set()


def test_another_sender_sees_nothing_of_a_task(edge: Edge) -> None:
    task = edge.start()
    edge.batch(task, {path_of(1): CONTENT})
    edge.end(task, {path_of(1): CONTENT})
    edge.outcome(task)
    with pytest.raises(NotFoundError):
        Edge(edge.node, B).outcome(task)


def test_a_task_without_an_end_is_dropped_for_a_new_one(edge: Edge, world: World) -> None:
    first = edge.start()
    edge.deleted(first, [path_of(1)])
    second = edge.start()
    with pytest.raises(GoneError):
        edge.plan(first, [])
    edge.end(second, {})
    assert edge.outcome(second) == {}


def test_an_open_task_is_resumed_after_a_restart(world: World) -> None:
    with world.node() as node:
        edge = Edge(node)
        edge.round({path_of(1): CONTENT})
        task = edge.start(propagate=wire.Propagate.ALL)
        new = tsfile(salt=3)
        resource = resource_entry(b"resource")
        edge.plan(task, [plan_entry(path_of(1), new, replaces=True, resource=resource)])
        edge.deleted(task, [path_of(5)])
        edge.batch(task, {path_of(1): new, f"{path_of(1)}.resource": b"resource"})
        epoch = edge.epoch
    with world.node() as node:
        edge = Edge(node, epoch=epoch)
        assert edge.start(task) == task
        assert edge.epoch == epoch
        edge.end(task, {path_of(1): new})
        assert results(edge.outcome(task)) == {path_of(1): "loaded", path_of(5): "deleted"}
        assert b"resource" in world.loaded().values()


def test_a_task_whose_end_found_no_space_takes_other_files_when_it_is_resumed(
    edge: Edge, world: World
) -> None:
    def full(name: str) -> None:
        if name == "task.end.sent":
            raise NoSpaceError("no space to flush sync.log")

    task = edge.start()
    edge.plan(task, [plan_entry(path_of(1), CONTENT)])
    edge.batch(task, {path_of(1): CONTENT})
    with crash.arm(full), pytest.raises(NoSpaceError):
        edge.end(task, {path_of(1): CONTENT})
    assert edge.start(task) == task
    new = tsfile(salt=3)
    edge.plan(task, [plan_entry(path_of(1), CONTENT), plan_entry(path_of(2), new)])
    edge.batch(task, {path_of(2): new})
    edge.end(task, {path_of(1): CONTENT, path_of(2): new})
    assert results(edge.outcome(task)) == {path_of(1): "loaded", path_of(2): "loaded"}


def test_sync_log_has_the_lines_that_users_know(edge: Edge, world: World) -> None:
    task = edge.start()
    edge.deleted(task, [path_of(5)])
    edge.batch(task, {path_of(1): CONTENT, path_of(2): tsfile(first=100)})
    assert (world.folder() / "sync.log").read_text().splitlines() == [
        f"sync start {task}",
        "sync deleted file names start",
        path_of(5),
        "sync deleted file names end",
        "sync tsfile start",
        path_of(1),
        path_of(2),
    ]


def test_deletions_come_before_the_files(edge: Edge) -> None:
    task = edge.start()
    edge.deleted(task, [path_of(5)])
    edge.batch(task, {path_of(1): CONTENT})
    edge.deleted(task, [path_of(5)])  # a replay
    with pytest.raises(ProtocolError):
        edge.deleted(task, [path_of(6)])


def test_deletions_named_at_the_end_count(edge: Edge) -> None:
    edge.round({path_of(1): CONTENT, path_of(2): tsfile(first=100)})
    task = edge.start(propagate=wire.Propagate.ALL)
    edge.batch(task, {path_of(3): tsfile(first=200)})
    edge.end(task, {path_of(3): tsfile(first=200)}, [path_of(1)])
    assert results(edge.outcome(task)) == {path_of(3): "loaded", path_of(1): "deleted"}


@pytest.mark.parametrize("path", ["../x", f"{path_of(1)}.resource", ""])
def test_a_bad_path_among_deletions_or_in_a_manifest_is_refused(edge: Edge, path: str) -> None:
    task = edge.start()
    with pytest.raises((NameRefusedError, ProtocolError)):
        edge.deleted(task, [path])
    entry = wire.ManifestEntry(path=path, size=1, md5="0" * 32, series=0, points=0)
    with pytest.raises((NameRefusedError, ProtocolError)):
        edge.node.tasks.end(edge.who, A, task, edge.epoch, wire.EndRequest(manifest=[entry]))


def test_a_path_twice_in_a_manifest_is_refused(edge: Edge) -> None:
    task = edge.start()
    manifest = [manifest_entry(path_of(1), CONTENT)] * 2
    with pytest.raises(ProtocolError, match="twice"):
        edge.node.tasks.end(edge.who, A, task, edge.epoch, wire.EndRequest(manifest=manifest))


def page(edge: Edge, task: str, number: int, **more: Any) -> None:
    body = wire.ManifestPage(number=number, **more)
    edge.node.tasks.manifest(edge.who, A, task, edge.epoch, body)


def end_behind(edge: Edge, task: str, pages: int, **more: Any) -> None:
    request = wire.EndRequest(**{"manifest": [], **more}, pages=pages)
    edge.node.tasks.end(edge.who, A, task, edge.epoch, request)


def test_a_manifest_in_pages_is_one_commit(world: World) -> None:
    old = [path_of(number) for number in (1, 2, 3)]
    with world.node() as node:
        edge = Edge(node)
        edge.check()
        edge.round({path: tsfile(first=100 * at) for at, path in enumerate(old)})
        task = edge.start()
        new = {path_of(number): tsfile(first=100 * number) for number in (5, 6)}
        edge.batch(task, new)
        entries = [manifest_entry(*each) for each in new.items()]
        page(edge, task, 0, manifest=[entries[1]], deleted=[old[2]])  # of a try that was cut off
        page(edge, task, 1, deleted=[path_of(4)])
        page(edge, task, 0, manifest=entries[:1], deleted=old[:1], last_looks=[7])
        page(edge, task, 1, deleted=[old[1]], last_looks=[8])
        page(edge, task, 1, deleted=[old[1]], last_looks=[8])  # its answer was lost
    with world.node() as node:
        edge.node = node
        with pytest.raises(ProtocolError, match="2 are here"):
            end_behind(edge, task, 3)
        with pytest.raises(ProtocolError, match="page 3"):
            page(edge, task, 3)
        end_behind(edge, task, 2, manifest=entries[1:], deleted=[old[2]], last_looks=[9])
        found = results(edge.outcome(task))
        assert found == dict.fromkeys(new, "loaded") | dict.fromkeys(old, "retired")
        with node.engine.reading() as state:
            rows = {each.path: each for each in state.files.values()}
        assert [rows[path].last_look for path in old] == [7, 8, 9]
        assert len({rows[path].changed for path in [*old, *new]}) == 1


def test_a_path_twice_in_the_pages_of_a_manifest_is_refused(edge: Edge) -> None:
    task = edge.start()
    entry = manifest_entry(path_of(1), CONTENT)
    page(edge, task, 0, manifest=[entry])
    with pytest.raises(ProtocolError, match="twice"):
        end_behind(edge, task, 1, manifest=[entry])


def test_a_task_has_a_limit_and_what_is_told_again_counts_once(world: World) -> None:
    world.limits = {"max_task_items": 1000}
    many = [path_of(number) for number in range(1001)]
    with world.node() as node:
        edge = Edge(node)
        assert edge.check().limits.max_task_items == 1000
        task = edge.start()
        for _ in range(3):
            edge.deleted(task, many[:1000])
        said = "limits.max_task_items is 1000"
        with pytest.raises(TooLargeError, match=said):
            edge.deleted(task, many[1000:])
        entries = [plan_entry(path, CONTENT) for path in many]
        for _ in range(3):
            edge.plan(task, entries[:1000])
        with pytest.raises(TooLargeError, match=said):
            edge.plan(task, entries[1000:])
        page(edge, task, 0, deleted=many[:600])
        with pytest.raises(TooLargeError, match=said):
            page(edge, task, 1, deleted=many[600:])
        with pytest.raises(TooLargeError, match=said):
            end_behind(edge, task, 1, deleted=many[600:])


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_ends_of_a_partition_of_many_files_and_their_product_are_one_commit(
    world: World,
) -> None:
    number, product, step = 201_000 if tiers.is_long() else 11_000, path_of(1, inner=1), 2_000
    paths = [path_of(10 + each) for each in range(number)]
    with world.node() as node:
        edge = Edge(node)
        edge.check()
        for at in range(0, number, step):
            node.engine.commit(
                [
                    records.FileLoaded(
                        sender=A,
                        path=path,
                        physical=f"{path.removesuffix('.tsfile')}.{'0' * 16}.tsfile",
                        size=1,
                        md5=f"{each:032x}",
                        tail=f"{each:032x}",
                        version=4,
                        devices=[records.DeviceRange("root.sg.d1", 10 * each, 10 * each + 5)],
                        first=10 * each,
                        last=10 * each + 5,
                        series=1,
                        points=2,
                        task="1" * 32,
                        first_look=1,
                        closed_look=1,
                    )
                    for each, path in enumerate(paths[at : at + step], at)
                ]
            )
        task = edge.start()
        edge.plan(task, [plan_entry(product, CONTENT)])
        most = node.config.limits.max_page_items
        assert node.config.limits.max_task_items > 201_000
        for at in range(0, number, most):
            edge.deleted(task, paths[at : at + most])
        edge.batch(task, {product: CONTENT})
        for at in range(0, number, step):
            told = paths[at : at + step]
            page(edge, task, at // step, deleted=told, last_looks=[5] * len(told))
        entry = manifest_entry(product, CONTENT)
        end_behind(edge, task, -(-number // step), manifest=[entry])
        edge.outcome(task, wait=900.0)
        with node.engine.reading() as state:
            commits = {each.changed for each in state.files.values()}
            looks = {each.last_look for each in state.files.values() if each.retired}
            assert len(state.files) == number + 1
        assert (len(commits), looks) == (1, {5})


def test_a_file_in_the_manifest_that_never_came_is_missing(edge: Edge) -> None:
    task = edge.start()
    edge.end(task, {path_of(1): CONTENT})
    assert results(edge.outcome(task)) == {path_of(1): "missing"}


def test_a_file_with_another_digest_than_the_manifest_is_missing(edge: Edge) -> None:
    task = edge.start()
    edge.batch(task, {path_of(1): CONTENT})
    edge.end(task, {path_of(1): tsfile(salt=1)})
    (outcome,) = edge.outcome(task).values()
    assert outcome.result == "missing"
    assert "MD5" in (outcome.reason or "")


def with_resource(edge: Edge, world: World, content: bytes) -> records.ResourceMeta:
    """A file is loaded with a resource; what is committed of one that comes behind it."""
    edge.round({path_of(1): CONTENT}, resources={path_of(1): b"resource"})
    loaded = world.loaded()
    again = edge.round({path_of(1): CONTENT}, resources={path_of(1): content})
    assert results(again) == {path_of(1): "already"}
    assert world.loaded().keys() == loaded.keys()
    (entry,) = edge.node.listing.inventory(edge.who, A, None, 9, look=True).entries
    assert entry.stands
    assert entry.resource is not None
    assert fsck_of(edge.node).found == []
    return records.ResourceMeta(entry.resource.size, entry.resource.md5)


def test_a_resource_that_was_written_anew_comes_without_its_file(edge: Edge, world: World) -> None:
    content = b"another resource"
    resource = with_resource(edge, world, content)
    assert resource == records.ResourceMeta(len(content), hashlib.md5(content).hexdigest())
    assert sorted(world.loaded().values()) == sorted([CONTENT, content])
    decision = only(
        edge.plan(
            edge.start(),
            [plan_entry(path_of(1), CONTENT, resource=resource_entry(content))],
        )
    )
    assert (decision.action, decision.resource) == ("already", False)


def test_a_resource_that_is_as_it_was_is_not_wanted(edge: Edge, world: World) -> None:
    resource = with_resource(edge, world, b"resource")
    assert resource.md5 == hashlib.md5(b"resource").hexdigest()


def test_a_first_resource_of_a_loaded_file_is_taken(edge: Edge, world: World) -> None:
    edge.round({path_of(1): CONTENT})
    edge.round({path_of(1): CONTENT}, resources={path_of(1): b"late"})
    assert sorted(world.loaded().values()) == sorted([CONTENT, b"late"])
    assert fsck_of(edge.node).found == []


def test_a_changed_resource_lies_beside_its_file_in_whatever_directory(
    edge: Edge, world: World
) -> None:
    edge.round({path_of(1): CONTENT}, resources={path_of(1): b"resource"})
    (world.data / "sequence").rename(world.root / "data2" / "sequence")
    edge.round({path_of(1): CONTENT}, resources={path_of(1): b"another"})
    (found,) = (world.root / "data2").rglob("*.resource")
    assert found.read_bytes() == b"another"
    assert world.loaded() == {}


@pytest.mark.parametrize(
    ("sent", "problem"),
    [(b"other bytes", "DigestError"), (b"resource that is longer than was said", "DigestError")],
)
def test_a_resource_that_is_not_as_planned_changes_nothing(
    edge: Edge, world: World, sent: bytes, problem: str
) -> None:
    edge.round({path_of(1): CONTENT}, resources={path_of(1): b"resource"})
    before, task = world.loaded(), edge.start()
    decision = only(
        edge.plan(
            task, [plan_entry(path_of(1), CONTENT, resource=resource_entry(b"the new bytes"))]
        )
    )
    assert (decision.action, decision.resource) == ("already", True)
    (result,) = edge.batch(task, {f"{path_of(1)}.resource": sent})
    assert result.problem is not None
    assert result.problem.type == "urn:tsferry:digest-mismatch", problem
    edge.end(task, {path_of(1): CONTENT})
    assert results(edge.outcome(task)) == {path_of(1): "already"}
    assert world.loaded() == before
    assert fsck_of(edge.node).found == []


def test_what_a_token_does_not_cover_is_not_told_a_resource(edge: Edge, world: World) -> None:
    edge.round({path_of(1): CONTENT}, resources={path_of(1): b"resource"})
    before = world.loaded()
    narrow = Edge(edge.node, who=sender(scope=["root.mine.**"]), epoch=edge.epoch)
    task = narrow.start()
    entry = plan_entry(path_of(1), CONTENT, resource=resource_entry(b"another"))
    decision = only(narrow.plan(task, [entry]))
    assert (decision.action, decision.resource) == ("refused", False)
    narrow.batch(task, {f"{path_of(1)}.resource": b"another"})
    narrow.end(task, {path_of(1): CONTENT})
    narrow.outcome(task)
    assert world.loaded() == before


def test_a_file_whose_resource_did_not_come_is_missing(edge: Edge) -> None:
    task = edge.start()
    edge.plan(task, [plan_entry(path_of(1), CONTENT, resource=resource_entry(b"resource"))])
    edge.batch(task, {path_of(1): CONTENT})
    edge.end(task, {path_of(1): CONTENT})
    assert results(edge.outcome(task)) == {path_of(1): "missing"}
    task = edge.start()
    entry = plan_entry(path_of(1), CONTENT, resource=resource_entry(b"resource"))
    decision = only(edge.plan(task, [entry]))
    assert (decision.action, decision.resource) == ("have", True)


def test_while_a_task_is_loading_another_one_has_to_wait(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    from common.errors import DiskError

    def fails(*_: object, **__: object) -> None:
        raise DiskError("the disk is busy dying")

    edge = Edge(node)
    edge.check()
    monkeypatch.setattr("receiver.load.loader.load_task", fails)
    task = edge.start()
    edge.batch(task, {path_of(1): CONTENT})
    edge.end(task, {path_of(1): CONTENT})
    assert node.tasks.answer(edge.who, A, task, 0).state is wire.TaskState.LOADING
    assert edge.check().busy == task
    with pytest.raises(BusyError) as caught:
        edge.start()
    assert caught.value.retry_after
    assert edge.start(task) == task  # the same one is answered
    monkeypatch.undo()
    assert results(edge.outcome(task)) == {path_of(1): "loaded"}  # it heals by itself


# -- batches ------------------------------------------------


def test_each_file_of_a_batch_has_its_own_result(edge: Edge, world: World) -> None:
    task = edge.start()
    body = batch_of({path_of(1): CONTENT, "../x": CONTENT, path_of(3): b"no tsfile"})
    wrong = wire.BatchEntry(path=path_of(4), size=3, md5="0" * 32, xxh3="0" * 16)
    body += wire.encode_batch([(wrong, b"abc")])[5:]
    answer = edge.node.tasks.batch(edge.who, A, task, edge.epoch, body)
    problems = [each.problem.type.rpartition(":")[2] if each.problem else None
                for each in answer.results]  # fmt: skip
    assert problems == [None, "name-refused", "not-a-tsfile", "digest-mismatch"]
    assert [each.quarantined for each in answer.results] == [False, False, True, False]
    edge.end(task, {path_of(1): CONTENT})
    assert results(edge.outcome(task)) == {path_of(1): "loaded"}
    assert not list((world.folder() / "data" / ".uploads").iterdir())


def test_a_bad_file_that_waits_to_be_set_aside_keeps_no_other_sender_waiting(
    edge: Edge, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Edge(edge.node, B)
    other.check()
    mine, theirs = edge.start(), other.start()
    real, beside = Intake.quarantine, []

    def quarantine(intake: Intake, *args: Any) -> None:
        sending = threading.Thread(
            target=lambda: beside.extend(other.batch(theirs, {path_of(2, sg="root.b"): CONTENT}))
        )
        sending.start()
        sending.join(60)
        assert not sending.is_alive()
        real(intake, *args)

    monkeypatch.setattr(Intake, "quarantine", quarantine)
    (bad,) = edge.batch(mine, {path_of(3): b"no tsfile"})
    assert bad.quarantined
    assert [each.problem for each in beside] == [None]


@pytest.mark.parametrize(
    "body", [b"", b"TSFB", b"TSFB\x02", b"XXXX\x01", b"TSFB\x01\xff\xff\xff\xff"]
)
def test_what_is_no_batch_is_refused_whole(edge: Edge, body: bytes) -> None:
    task = edge.start()
    with pytest.raises(ProtocolError):
        edge.node.tasks.batch(edge.who, A, task, edge.epoch, body)


def test_a_batch_cut_off_anywhere_is_refused_whole(edge: Edge, world: World) -> None:
    task = edge.start()
    body = batch_of({path_of(1): CONTENT, path_of(2): tsfile(first=50)})
    whole = {len(batch_of({path_of(1): CONTENT})), 5}
    for cut in range(5, len(body), 7):
        if cut not in whole:
            with pytest.raises(ProtocolError):
                edge.node.tasks.batch(edge.who, A, task, edge.epoch, body[:cut])
    assert not list((world.folder() / "data").rglob("*.tsfile"))


def test_a_batch_has_a_limit(edge: Edge) -> None:
    task = edge.start()
    with pytest.raises(TooLargeError):
        edge.node.tasks.batch(
            edge.who, A, task, edge.epoch, b"x" * (edge.node.config.limits.max_batch_bytes + 1)
        )


@pytest.mark.parametrize("looks", [(21, 21), (20, 21), (1 << 60, 0)])
def test_a_file_of_a_look_to_come_is_refused(edge: Edge, looks: tuple[int, int]) -> None:
    path, content = path_of(1), tsfile()
    edge.round({})
    task = edge.start(look=20)
    edge.plan(task, [plan_entry(path, content)])
    edge.batch(task, {path: content})
    with pytest.raises(ProtocolError, match="behind the task's, 20"):
        edge.end(task, {path: content}, looks={path: looks})
    edge.end(task, {path: content}, looks={path: (20, 20)})
    assert results(edge.outcome(task)) == {path: "loaded"}


def test_a_resumed_task_tells_of_the_look_that_resumed_it(edge: Edge) -> None:
    edge.round({path_of(1): tsfile()})
    path, content = path_of(2), tsfile(salt=2)
    task = edge.start(look=20)
    edge.start(task, look=30)
    edge.plan(task, [plan_entry(path, content)])
    edge.batch(task, {path: content})
    edge.start(task, look=20)  # said once more by a call that was late
    edge.end(task, {path: content}, [path_of(1)], looks={path: (30, 30)}, last_looks=[20])
    assert results(edge.outcome(task)) == {path: "loaded", path_of(1): "retired"}


def test_a_look_that_cannot_have_been_is_refused(edge: Edge, node: Node) -> None:
    edge.round({})
    task = edge.start(look=5)
    latest = latest_look(node.engine)
    for look in (latest, 1 << 60):
        for again in (None, task):
            with pytest.raises(ProtocolError, match=f"look {look} cannot have been"):
                edge.start(again, look=look)
    edge.start(task, look=latest - 1)
    edge.end(task, {})
    edge.outcome(task)


@pytest.mark.parametrize("last", [21, 1 << 60])
def test_what_is_gone_was_not_seen_behind_the_tasks_look(edge: Edge, last: int) -> None:
    edge.round({path_of(1): tsfile()})
    task = edge.start(look=20)
    edge.deleted(task, [path_of(1)])
    with pytest.raises(ProtocolError, match="gone since a look behind the task's, 20"):
        page(edge, task, 0, deleted=[path_of(1)], last_looks=[last])
    with pytest.raises(ProtocolError, match="gone since a look behind the task's, 20"):
        edge.end(task, {}, [path_of(1)], last_looks=[last])
    edge.end(task, {}, [path_of(1)], last_looks=[20])
    edge.outcome(task)
