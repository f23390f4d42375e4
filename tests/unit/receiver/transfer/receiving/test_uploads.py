from __future__ import annotations

import hashlib
import threading
from pathlib import Path

import pytest

from common import crash, wire
from common.durable import open_files
from common.errors import (
    BusyError,
    ConflictError,
    DigestError,
    ForbiddenError,
    GoneError,
    NameRefusedError,
    NoSpaceError,
    NotATsFileError,
    NotFoundError,
    OffsetError,
    ProtocolError,
    TooLargeError,
    TsferryError,
)
from receiver.node import Node
from receiver.operator.stored.quarantine import list_quarantine
from receiver.transfer.receiving.register import UploadView
from tests.support.node_world import (
    OPERATOR,
    A,
    B,
    Clock,
    Edge,
    World,
    path_of,
    plan_entry,
    resource_entry,
    results,
    sender,
    tsfile,
)

BIG = tsfile(points=400)


@pytest.fixture
def edge(node: Node) -> Edge:
    edge = Edge(node)
    edge.check()
    return edge


def begun(edge: Edge, path: str = path_of(1), content: bytes = BIG, **plan: object) -> str:
    task = edge.start()
    edge.plan(task, [plan_entry(path, content, **plan)])
    return task


def create(edge: Edge, task: str | None, content: bytes = BIG, path: str = path_of(1)) -> str:
    metadata = {"path": path, **({"task": task} if task else {})}
    return edge.node.uploads.create(edge.who, edge.uuid, len(content), metadata).id


def patch(
    edge: Edge,
    upload: str,
    offset: int,
    block: bytes,
    *,
    at_once: bool = True,
    repr_md5: str | None = None,
) -> UploadView:
    return edge.node.uploads.patch(
        edge.who, upload, offset, block, at_once=at_once, repr_md5=repr_md5
    )


# -- the way it should go ------------------------------------------------


def test_a_file_in_blocks_is_staged_and_loaded(edge: Edge, world: World) -> None:
    task = begun(edge)
    edge.upload(task, path_of(1), BIG, chunk=700)
    edge.end(task, {path_of(1): BIG})
    assert results(edge.outcome(task)) == {path_of(1): "loaded"}
    assert list(world.loaded().values()) == [BIG]


def test_an_acknowledged_offset_survives_a_restart(world: World) -> None:
    with world.node() as node:
        edge = Edge(node)
        task = begun(edge)
        upload = create(edge, task)
        patch(edge, upload, 0, BIG[:1000])
        patch(edge, upload, 1000, BIG[1000:1500])
        epoch = edge.epoch
    with world.node() as node:
        edge = Edge(node, epoch=epoch)
        (decision,) = edge.plan(task, [plan_entry(path_of(1), BIG)])
        assert (decision.action, decision.offset) == (wire.Action.RESUME, 1500)
        assert decision.upload == upload
        assert node.uploads.head(edge.who, upload).offset == 1500
        edge.send(upload, BIG, offset=1500)
        edge.end(task, {path_of(1): BIG})
        assert results(edge.outcome(task)) == {path_of(1): "loaded"}


def test_the_digest_may_come_with_the_last_block(edge: Edge) -> None:
    upload = create(edge, begun(edge))
    patch(edge, upload, 0, BIG[:1000])
    patch(edge, upload, 1000, BIG[1000:], repr_md5=hashlib.md5(BIG).hexdigest())
    assert edge.node.uploads.head(edge.who, upload).complete


def test_creation_with_upload_takes_the_first_bytes(edge: Edge) -> None:
    task = begun(edge)
    view = edge.node.uploads.create(
        edge.who, A, len(BIG), {"path": path_of(1), "task": task},
        BIG[:900],
    )  # fmt: skip
    assert view.offset == 900
    edge.send(view.id, BIG, offset=900)


def test_an_upload_without_a_task_is_committed_when_it_is_answered(edge: Edge) -> None:
    upload = edge.upload(None, path_of(1), BIG, chunk=1000)
    rows = edge.node.listing.inventory(edge.who, A, None, 10).entries
    assert [each.path for each in rows] == [path_of(1)]
    assert edge.node.uploads.head(edge.who, upload).complete  # should the answer have been lost


def test_an_upload_without_a_task_has_no_manifest_to_be_judged_by(edge: Edge) -> None:
    edge.upload(None, path_of(1), BIG)
    with edge.node.engine.reading() as state:
        row = state.file_table.live(A, path_of(1))
    assert row is not None
    assert row.manifest is None


def test_an_upload_without_a_task_twice_is_loaded_once(edge: Edge, world: World) -> None:
    edge.upload(None, path_of(1), BIG)
    edge.upload(None, path_of(1), BIG)
    assert len(world.loaded()) == 1


def test_an_upload_without_a_task_in_conflict_is_told_so(edge: Edge) -> None:
    Edge(edge.node, B).upload(None, path_of(1), tsfile())
    with pytest.raises(ConflictError) as caught:
        edge.upload(None, path_of(1), tsfile())
    assert caught.value.extra["device"] == "root.sg.d1"
    with pytest.raises(ConflictError, match="other content"):
        Edge(edge.node, B).upload(None, path_of(1), tsfile(salt=1))


def test_a_resource_alone_is_refused(edge: Edge) -> None:
    with pytest.raises(NameRefusedError):
        create(edge, None, b"resource", f"{path_of(1)}.resource")


def test_a_resource_is_checked_by_its_digest(edge: Edge) -> None:
    task = begun(edge, resource=resource_entry(b"resource"))
    with pytest.raises(DigestError):
        edge.upload(task, f"{path_of(1)}.resource", b"RESOURCE")
    edge.upload(task, f"{path_of(1)}.resource", b"resource")
    edge.upload(task, path_of(1), BIG)
    edge.end(task, {path_of(1): BIG})
    assert results(edge.outcome(task)) == {path_of(1): "loaded"}


def test_an_empty_resource_is_whole_at_once(edge: Edge) -> None:
    task = begun(edge, resource=resource_entry(b""))
    view = edge.node.uploads.create(
        edge.who, A, 0, {"path": f"{path_of(1)}.resource", "task": task}
    )
    assert view.complete


def test_an_empty_tsfile_is_refused_at_once(edge: Edge) -> None:
    with pytest.raises(NotATsFileError):
        edge.node.uploads.create(edge.who, A, 0, {"path": path_of(1)})


# -- offsets and blocks ------------------------------------------------


@pytest.mark.parametrize(
    "offset", [-1, 1, 999, 1001, len(BIG), len(BIG) + 1, 2**63, 10**5000], ids=lambda _: ""
)
def test_a_block_that_does_not_begin_where_the_copy_ends_is_refused(
    edge: Edge, offset: int
) -> None:
    upload = create(edge, begun(edge))
    patch(edge, upload, 0, BIG[:1000])
    with pytest.raises(OffsetError) as caught:
        patch(edge, upload, offset, b"x" * 10)
    assert caught.value.extra["offset"] == 1000
    edge.send(upload, BIG, offset=1000)


def test_the_same_block_twice_counts_once(edge: Edge) -> None:
    upload = create(edge, begun(edge))
    patch(edge, upload, 0, BIG[:1000])
    with pytest.raises(OffsetError):
        patch(edge, upload, 0, BIG[:1000])
    edge.send(upload, BIG, offset=1000)


def test_a_block_beyond_the_length_is_refused_and_nothing_of_it_counts(edge: Edge) -> None:
    upload = create(edge, begun(edge))
    patch(edge, upload, 0, BIG[:1000])
    with pytest.raises(TooLargeError):
        patch(edge, upload, 1000, BIG[1000:] + b"x")
    assert edge.node.uploads.head(edge.who, upload).offset == 1000


@pytest.mark.parametrize(("at_once", "counts"), [(True, 1000), (False, 1800)])
def test_a_full_disk_keeps_what_counts_and_leaves_no_lock(
    edge: Edge, world: World, monkeypatch: pytest.MonkeyPatch, at_once: bool, counts: int
) -> None:
    monkeypatch.setattr("receiver.transfer.receiving.uploads._BLOCK", 400)
    upload = create(edge, begun(edge))
    patch(edge, upload, 0, BIG[:1000])
    write_all = open_files.write_all

    def full(fd: int, data: bytes, what: str, *, at: int | None = None) -> int:
        if at is None:
            return write_all(fd, data, what)
        write_all(fd, data[: max(0, 1900 - at)], what, at=at)
        if at + len(data) > 1900:
            raise NoSpaceError("full")
        return len(data)

    monkeypatch.setattr(open_files, "write_all", full)
    with pytest.raises(NoSpaceError):
        patch(edge, upload, 1000, BIG[1000:], at_once=at_once)
    assert edge.node.uploads.head(edge.who, upload).offset == counts
    (part,) = world.root.rglob("*.part")
    assert part.stat().st_size == counts
    monkeypatch.setattr(open_files, "write_all", write_all)
    edge.send(upload, BIG, offset=counts)  # stale bytes and digest are not kept


def test_a_second_connection_on_one_upload_is_told_busy_at_once(edge: Edge) -> None:
    upload = create(edge, begun(edge))
    writing, go_on = threading.Event(), threading.Event()

    def wait(point: str) -> None:
        if point == "upload.block_synced":
            writing.set()
            go_on.wait(60)

    thread = threading.Thread(target=lambda: patch(edge, upload, 0, BIG[:500]))
    with crash.arm(wait):
        thread.start()
        writing.wait(60)
        for call in (
            lambda: patch(edge, upload, 0, b"y" * 500),
            lambda: edge.node.uploads.head(edge.who, upload),
            lambda: edge.node.uploads.terminate(edge.who, upload),
        ):
            with pytest.raises(BusyError):
                call()
        go_on.set()
        thread.join()
    assert edge.node.uploads.head(edge.who, upload).offset == 500
    edge.send(upload, BIG, offset=500)


# -- the whole ------------------------------------------------


def test_right_block_checksums_with_a_wrong_whole_digest_are_found(
    edge: Edge, world: World
) -> None:
    task = edge.start()
    view = edge.node.uploads.create(
        edge.who, A, len(BIG), {"path": path_of(1), "task": task, "md5": "0" * 32}
    )
    with pytest.raises(DigestError):
        edge.send(view.id, BIG, chunk=1000)
    with pytest.raises(NotFoundError):
        edge.node.uploads.head(edge.who, view.id)
    assert not list((world.folder() / "data" / ".uploads").iterdir())


def test_other_content_than_planned_is_found_by_its_tail(edge: Edge) -> None:
    task = begun(edge, md5=None)
    other = tsfile(points=400, salt=1)
    assert len(other) == len(BIG)
    with pytest.raises(DigestError, match="tail"):
        edge.upload(task, path_of(1), other)


@pytest.mark.parametrize(
    "content", [b"x" * 500, BIG[:-1], b"TsFile\x03" + b"\0" * 60, b"v0.7.0" + b"\0" * 90]
)
def test_what_is_no_tsfile_is_quarantined_and_the_sender_is_told(
    edge: Edge, world: World, content: bytes
) -> None:
    task = edge.start()
    with pytest.raises(NotATsFileError):
        edge.upload(task, path_of(1), content)
    (entry,) = list_quarantine(edge.node.engine)
    assert (entry.path, entry.hold, entry.kept) == (path_of(1), True, True)
    (kept,) = (world.folder() / "quarantine").iterdir()
    assert kept.read_bytes() == content
    again = plan_entry(path_of(1), content, devices=[])
    (decision,) = edge.plan(task, [again])
    assert (decision.action, decision.hold) == (wire.Action.REFUSED, True)
    (decision,) = edge.plan(task, [plan_entry(path_of(1), content, retry=True)])
    assert decision.action is wire.Action.SEND


def test_other_content_clears_the_quarantine_of_a_path(edge: Edge, world: World) -> None:
    task = edge.start()
    for content in (b"x" * 500, b"y" * 500):
        with pytest.raises(NotATsFileError):
            edge.upload(task, path_of(1), content)
    assert len(list_quarantine(edge.node.engine)) == 1
    assert len(list((world.folder() / "quarantine").iterdir())) == 1
    assert results(edge.round({path_of(1): BIG})) == {path_of(1): "loaded"}
    assert list_quarantine(edge.node.engine) == []
    assert list((world.folder() / "quarantine").iterdir()) == []


def test_bytes_of_refused_files_are_bounded(tmp_path: Path) -> None:
    world = World(tmp_path, limits={"max_file_bytes": 10_000, "max_unloaded_bytes": 16_000})
    with world.node() as node:
        edge = Edge(node)
        task = edge.start()
        for number in range(5):
            with pytest.raises(NotATsFileError):
                edge.upload(task, path_of(number), bytes([number]) * 900)
        assert len(list((world.folder() / "quarantine").iterdir())) == 2
        assert len(list_quarantine(node.engine)) == 5


# -- names, owners, limits ------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "../../etc/x", "..", "", "/etc/passwd", "..\\..\\x", "sequence/root.sg/0/0/a\0.tsfile",
        "sequence/root.sg/0/0/" + "a" * 256 + ".tsfile", "a" * 5000, "sequence/../0/0/a.tsfile",
        "sequence/root.sg/0/0/a\r\nb.tsfile", "sequence/root.sg/0/0/a\x1b[2J.tsfile",
        "sequence/root.sg/0/0/a\u202e.tsfile", "sequence/root.sg/0/0/a\udcff.tsfile",
        "sequence/root.sg/0/0/sync.log", "sequence/root.sg/0/0/uuid.txt", "x.tmp",
        "sequence/root.sg/0/0/x.tmp", "sequence/root.sg/0/../a.tsfile", "sequence//0/0/a.tsfile",
        ".uploads/x.part", "sequence/root.sg/0/0/.tsfile", "sequence/c:/0/0/a.tsfile",
    ],
)  # fmt: skip
def test_a_name_that_is_no_path_is_refused_at_the_door(edge: Edge, world: World, path: str) -> None:
    edge.start()
    before = sorted(world.root.rglob("*"))
    with pytest.raises(NameRefusedError):
        edge.node.uploads.create(edge.who, A, 10, {"path": path})
    assert sorted(world.root.rglob("*")) == before


@pytest.mark.parametrize("uuid", ["../other", "", "A" * 32, "a" * 31, "a" * 33, "a" * 31 + "\n"])
def test_a_uuid_that_is_none_is_refused(node: Node, world: World, uuid: str) -> None:
    with pytest.raises(ProtocolError):
        node.uploads.create(sender(uuid), uuid, 10, {"path": path_of(1)})
    assert list((world.data / "sync-receiver").iterdir()) == []


def test_a_token_speaks_for_its_own_sender_only(edge: Edge) -> None:
    with pytest.raises(ForbiddenError):
        edge.node.uploads.create(edge.who, B, 10, {"path": path_of(1)})
    with pytest.raises(ForbiddenError):
        edge.node.uploads.create(OPERATOR, A, 10, {"path": path_of(1)})


def test_an_upload_belongs_to_the_token_that_made_it(edge: Edge) -> None:
    task = begun(edge)
    upload = create(edge, task)
    patch(edge, upload, 0, BIG[:1000])
    other = Edge(edge.node, A, sender(A, token="another"), epoch=edge.epoch)
    for call in (
        lambda: edge.node.uploads.head(other.who, upload),
        lambda: patch(other, upload, 1000, b"x"),
        lambda: edge.node.uploads.terminate(other.who, upload),
        lambda: edge.node.uploads.head(sender(B), upload),
    ):
        with pytest.raises(ForbiddenError):
            call()
    (decision,) = other.plan(task, [plan_entry(path_of(1), BIG)])
    assert decision.action is wire.Action.SEND


@pytest.mark.parametrize(
    ("length", "metadata", "error"),
    [
        (-1, {"path": path_of(1)}, ProtocolError),
        (2**63, {"path": path_of(1)}, TooLargeError),
        (10**5000, {"path": path_of(1)}, TooLargeError),
        (10, {}, ProtocolError),
        (10, {"path": path_of(1), "size": "11"}, ProtocolError),
        (10, {"path": path_of(1), "md5": "A" * 32}, ProtocolError),
        (10, {"path": path_of(1), "task": "x"}, ProtocolError),
        (10, {"path": path_of(1), "task": "1" * 32}, GoneError),
    ],
    ids=lambda _: "",
)
def test_a_wrong_creation_is_refused(
    edge: Edge, length: int, metadata: dict[str, str], error: type[TsferryError]
) -> None:
    with pytest.raises(error):
        edge.node.uploads.create(edge.who, A, length, metadata)
    assert edge.node.uploads.numbers() == (0, 0)


def test_a_file_that_the_plan_refused_is_not_taken(edge: Edge) -> None:
    Edge(edge.node, B).upload(None, path_of(9), tsfile())
    task = edge.start()
    content = tsfile(first=500)
    (decision,) = edge.plan(task, [plan_entry(path_of(1), content)])
    assert decision.action is wire.Action.CONFLICT
    with pytest.raises(ConflictError):
        edge.upload(task, path_of(1), content)


def test_open_uploads_of_a_sender_are_bounded(tmp_path: Path) -> None:
    world = World(tmp_path, limits={"max_open_uploads": 3})
    with world.node() as node:
        edge, other = Edge(node), Edge(node, B)
        for number in range(3):
            create(edge, None, path=path_of(number))
        with pytest.raises(BusyError):
            create(edge, None, path=path_of(3))
        create(other, None)
        assert node.uploads.numbers(A)[0] == 3


def test_uploads_of_tasks_that_are_over_make_room(tmp_path: Path) -> None:
    world = World(tmp_path, limits={"max_open_uploads": 3})
    with world.node() as node:
        edge = Edge(node)
        task = edge.start()
        for number in range(3):
            create(edge, task, path=path_of(number))
        task = edge.start()
        create(edge, task, path=path_of(7))
        assert node.uploads.numbers(A)[0] == 1


def test_bytes_that_wait_to_be_loaded_are_bounded_and_heal(tmp_path: Path) -> None:
    size = len(BIG)
    world = World(
        tmp_path, limits={"max_file_bytes": size + 10, "max_unloaded_bytes": 2 * size + 10}
    )
    with world.node() as node:
        edge = Edge(node)
        task = edge.start()
        files = {path_of(number): tsfile(points=400, first=1000 * number) for number in range(3)}
        decisions = edge.plan(task, [plan_entry(*each) for each in files.items()])
        assert [each.action for each in decisions] == ["send", "send", "refused"]
        assert "try later" in (decisions[2].reason or "")
        two = dict(list(files.items())[:2])
        for path, content in two.items():
            edge.upload(task, path, content)
        with pytest.raises(NoSpaceError):
            edge.node.uploads.create(edge.who, A, size, {"path": path_of(8), "task": task})
        edge.end(task, two)
        edge.outcome(task)
        assert results(edge.round(files))[path_of(2)] == "loaded"


def test_free_space_is_kept_and_heals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free = [100]
    monkeypatch.setattr("receiver.load.incoming_space.free_bytes", lambda path: free[0])
    world = World(tmp_path, limits={"min_free_bytes": 1000})
    with world.node() as node:
        edge = Edge(node)
        assert node.problem() is not None
        task = edge.start()
        (decision,) = edge.plan(task, [plan_entry(path_of(1), BIG)])
        assert decision.action is wire.Action.REFUSED
        assert "space" in (decision.reason or "")
        with pytest.raises(NoSpaceError) as caught:
            create(edge, None)
        assert caught.value.retry_after
        free[0] = 10**9
        assert node.problem() is None
        assert results(edge.round({path_of(1): BIG})) == {path_of(1): "loaded"}


def test_an_upload_that_nothing_comes_for_expires(tmp_path: Path) -> None:
    clock = Clock()
    world = World(tmp_path, clock=clock, limits={"upload_expiry": 100.0})
    with world.node() as node:
        edge = Edge(node)
        old = create(edge, None)
        clock.now += 90
        young = create(edge, None, path=path_of(2))
        clock.now += 20
        node.load.reaper.run_once()
        with pytest.raises(NotFoundError):
            node.uploads.head(edge.who, old)
        assert node.uploads.head(edge.who, young).expires == clock.now + 80
        names = {each.name for each in (world.folder() / "data" / ".uploads").iterdir()}
        assert names == {f"{young}.part", f"{young}.upload"}


def test_a_terminated_upload_is_gone(edge: Edge, world: World) -> None:
    upload = create(edge, None)
    patch(edge, upload, 0, BIG[:100])
    edge.node.uploads.terminate(edge.who, upload)
    for call in (
        lambda: edge.node.uploads.head(edge.who, upload),
        lambda: patch(edge, upload, 0, b"x"),
    ):
        with pytest.raises(NotFoundError):
            call()
    assert not list((world.folder() / "data" / ".uploads").iterdir())


def test_a_symlink_in_the_way_is_not_followed(edge: Edge, world: World, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    task = begun(edge)
    staged = world.folder() / "data" / "sequence"
    staged.symlink_to(outside)
    with pytest.raises((TsferryError, OSError)):
        edge.upload(task, path_of(1), BIG)
    assert list(outside.iterdir()) == []
    staged.unlink()
    edge.upload(task, path_of(1), BIG)


def test_a_symlink_at_the_partial_upload_is_not_followed(
    edge: Edge, world: World, tmp_path: Path
) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    upload = create(edge, None)
    part = world.folder() / "data" / ".uploads" / f"{upload}.part"
    part.unlink()
    part.symlink_to(victim)
    with pytest.raises((TsferryError, OSError)):
        patch(edge, upload, 0, BIG[:100])
    assert victim.read_bytes() == b"precious"
