"""A write at the receiver: nothing of it counts before its commit, and nothing is left of it."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from common.digests import md5, xxh3_64
from common.errors import (
    BusyError,
    ConflictError,
    DigestError,
    ForbiddenError,
    GoneError,
    NoSpaceError,
    NotFoundError,
    OffsetError,
    UsageError,
)
from receiver.load import loading
from receiver.metadata.state.tables.sender_tables import tasks
from receiver.node import Node
from receiver.operator.centre import centre_looks, centre_runs, load_carrier
from receiver.operator.centre.load_owners import LoadRights
from receiver.operator.edges.tokens import make_token, revoke_token
from receiver.operator.stored.files import list_files
from receiver.operator.views.load_wire import CentreLoadAnswer, CentreLoadRequest
from receiver.operator.views.write_wire import KnownDevice, StagedPart, WriteRequest
from tests.support.node_world import A, B, Edge, World, fsck_of, path_of, tsfile
from tests.support.web import until

TASK = "5" * 32


def put(node: Node, content: bytes, attempt: str | None = None, number: int = 0) -> StagedPart:
    attempt = attempt or secrets.token_hex(16)
    writes = node.operator.writes
    for begin in range(0, len(content), 1000):
        block = content[begin : begin + 1000]
        writes.put(TASK, attempt, number, begin, memoryview(block), xxh3_64(block), None)
    return part_of(content, attempt, number)


def part_of(content: bytes, attempt: str, number: int = 0) -> StagedPart:
    return StagedPart(
        attempt=attempt,
        number=number,
        group="root.sg",
        partition=0,
        size=len(content),
        md5=md5(content).hexdigest(),
    )


def opened(node: Node, **given: str) -> None:
    node.operator.writes.open(TASK, WriteRequest(**given), None)


def commit(node: Node, *parts: StagedPart) -> CentreLoadAnswer:
    node.operator.writes.commit(TASK, parts, None)
    while not (answer := node.operator.centre.answer(TASK, 5.0)).done:
        pass
    return answer


def left(node: Node) -> list[str]:
    folder = node.load.centre_folder()
    return [name for name, _ in folder.tree.files(folder.writes)]


@pytest.fixture
def again(world: World) -> Iterator[Node]:
    with world.node() as other:
        yield other


def test_a_commit_loads_what_it_names_and_what_other_attempts_sent_goes(
    world: World, node: Node
) -> None:
    opened(node)
    content = tsfile(points=400)
    put(node, content)  # a task that came second, or failed behind its file
    meant = put(node, content)
    put(node, tsfile("root.sg.other")[:700])
    answer = commit(node, meant)
    assert [each.result for each in answer.files] == ["loaded"]
    assert list(world.loaded().values()) == [content]
    assert left(node) == []
    assert fsck_of(node).found == []


def test_an_end_leaves_nothing_and_what_comes_later_is_refused(node: Node) -> None:
    opened(node)
    part = put(node, tsfile())
    node.operator.writes.drop(TASK, None)
    node.operator.writes.drop(TASK, None)
    assert left(node) == []
    with pytest.raises(GoneError):
        put(node, tsfile())
    with pytest.raises(GoneError):
        node.operator.writes.commit(TASK, [part], None)
    with pytest.raises(GoneError):
        node.operator.writes.known(TASK, ["root.sg.d1"], None)
    assert list_files(node.operator).files == []


def test_what_comes_behind_the_commit_is_refused_too(node: Node) -> None:
    opened(node)
    commit(node, put(node, tsfile()))
    with pytest.raises(GoneError):
        put(node, tsfile(first=50))
    with pytest.raises(GoneError):
        opened(node)
    assert left(node) == []


def test_a_write_that_nobody_ends_goes_when_uploads_do(world: World, node: Node) -> None:
    opened(node)
    put(node, tsfile())
    folder = node.load.centre_folder()
    reaper, expiry = node.load.reaper, world.config.limits.upload_expiry
    now = max(each.st_mtime for _, each in folder.tree.files(folder.writes))
    for chore in reaper.chores:
        chore(now + expiry - 1)
    assert len(left(node)) == 2
    for chore in reaper.chores:
        chore(now + expiry + 1)
    assert left(node) == []


def test_a_commit_that_is_said_again_is_one_load_in_another_process_too(world: World) -> None:
    content = tsfile()
    with world.node() as node:
        opened(node)
        part = put(node, content)
        done = commit(node, part)
        assert commit(node, part) == done
        commit_of_another_load(node)
        assert {each.result for each in commit(node, part).files} == {"loaded"}
    with world.node() as node:
        assert {each.result for each in commit(node, part).files} == {"loaded"}
        assert len(list_files(node.operator).files) == 2


def commit_of_another_load(node: Node) -> None:
    task = "6" * 32
    writes = node.operator.writes
    writes.open(task, WriteRequest(), None)
    content = tsfile("root.sg.d7")
    writes.put(task, "7" * 32, 0, 0, memoryview(content), xxh3_64(content), None)
    writes.commit(task, [part_of(content, "7" * 32)], None)
    while not node.operator.centre.answer(task, 5.0).done:
        pass


def test_a_write_outlives_the_process_of_the_receiver(world: World) -> None:
    with world.node() as node:
        opened(node, owner="")
        part = put(node, tsfile())
    with world.node() as node:
        assert {each.result for each in commit(node, part).files} == {"loaded"}
        assert left(node) == []


def test_a_refused_write_leaves_nothing_visible_and_says_why(node: Node) -> None:
    Edge(node).round({path_of(1): tsfile()})
    opened(node, owner=A)
    answer = commit(node, put(node, tsfile(first=3, salt=1)), put(node, tsfile("root.sg.new")))
    assert {each.result for each in answer.files} == {"refused"}
    assert commit(node, part_of(b"", "8" * 32)) == answer
    assert len(list_files(node.operator).files) == 1
    assert left(node) == []


def test_what_was_loaded_meanwhile_decides(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    edge = Edge(node)
    edge.round({path_of(1): tsfile()})
    opened(node, owner=A)
    part = put(node, tsfile(first=100))
    copied = load_carrier.LoadCarrier._copied

    def overtaken(*given: object) -> object:
        done = copied(*given)  # type: ignore[arg-type]
        edge.round({path_of(3): tsfile(first=102, salt=5)})
        return done

    monkeypatch.setattr(load_carrier.LoadCarrier, "_copied", overtaken)
    assert {each.result for each in commit(node, part).files} == {"refused"}
    assert {each.sender for each in list_files(node.operator).files} == {A}


def test_blocks_may_come_twice_and_none_may_be_missing(node: Node) -> None:
    opened(node)
    content, attempt = tsfile(points=300), "9" * 32
    put(node, content, attempt)
    put(node, content, attempt)
    block = memoryview(content)
    writes = node.operator.writes
    with pytest.raises(OffsetError):
        writes.put(TASK, attempt, 0, len(content) + 1, block, xxh3_64(block), None)
    with pytest.raises(OffsetError):
        writes.put(TASK, attempt, 1, 10, block, xxh3_64(block), None)
    with pytest.raises(DigestError):
        writes.put(TASK, attempt, 1, 0, block, "0" * 16, None)
    assert {each.result for each in commit(node, part_of(content, attempt)).files} == {"loaded"}


def test_a_file_that_is_not_what_was_sent_loads_nothing(node: Node) -> None:
    content = tsfile()
    opened(node)
    good = put(node, tsfile("root.sg.d2"))
    bad = put(node, content)
    with pytest.raises(DigestError, match="bytes came of"):
        node.operator.writes.commit(TASK, [good, part_of(content + b"x", bad.attempt)], None)
    with pytest.raises(GoneError, match="is not here"):
        node.operator.writes.commit(TASK, [good, part_of(content, "a" * 32)], None)
    folder = node.load.centre_folder()
    (place,) = [each for each in left(node) if bad.attempt in each]
    with (Path(folder.tree.path) / place).open("r+b") as file:
        file.seek(40)
        file.write(b"!")
    with pytest.raises(DigestError, match="was sent"):
        commit(node, good, bad)
    assert list_files(node.operator).files == []
    assert left(node) == []


def test_nothing_comes_to_a_write_that_is_being_judged(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(node)
    content = tsfile()
    part = put(node, content)
    judged, refused = centre_looks.looked_at, []

    def overtaken(*given: object, **more: object) -> object:
        try:
            put(node, tsfile(salt=1), part.attempt)
        except GoneError as error:
            refused.append(error)
        return judged(*given, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(centre_looks, "looked_at", overtaken)
    assert {each.result for each in commit(node, part).files} == {"loaded"}
    assert len(refused) == 1


def test_two_writes_of_the_same_points_are_one_or_the_policy_says_which(
    node: Node, world: World
) -> None:
    second = "6" * 32
    writes = node.operator.writes
    for task, policy in ((TASK, "error"), (second, "error"), ("8" * 32, "skip")):
        writes.open(task, WriteRequest(on_duplicate=policy), None)
        content = tsfile(salt=int(task[0]))
        writes.put(task, "7" * 32, 0, 0, memoryview(content), xxh3_64(content), None)
    said = {}
    for task in (second, TASK, "8" * 32):
        writes.commit(task, [part_of(tsfile(salt=int(task[0])), "7" * 32)], None)
        while not (answer := writes.answer(task, 5.0)).done:
            pass
        said[task[0]] = [each.result for each in answer.files]
    assert said == {"6": ["loaded"], "5": ["refused"], "8": ["loaded"]}
    assert sorted(world.loaded().values()) == sorted([tsfile(salt=6), tsfile(salt=8)])
    assert left(node) == []


def test_a_write_beyond_as_many_as_go_at_once_comes_again_and_one_under_way_is_not_dropped(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(node)
    part = put(node, tsfile())
    runs = node.operator.centre._runs
    monkeypatch.setattr(centre_runs, "_MOST", 1)
    runs._runs["1" * 32] = runs.made(CentreLoadRequest(task="1" * 32, paths=[]))
    with pytest.raises(BusyError):
        node.operator.writes.commit(TASK, [part], None)
    del runs._runs["1" * 32]
    mine = runs._runs[TASK] = runs.made(CentreLoadRequest(task=TASK, paths=[]))
    with pytest.raises(BusyError):
        node.operator.writes.drop(TASK, None)
    mine.found = BusyError("not over")
    assert {each.result for each in commit(node, part).files} == {"loaded"}


def test_a_write_says_what_is_wrong_before_its_first_row(node: Node) -> None:
    with pytest.raises(NotFoundError, match="no sender"):
        opened(node, owner="nobody")
    with pytest.raises(UsageError, match="on_duplicate"):
        opened(node, on_duplicate="perhaps")
    with pytest.raises(UsageError, match="no id"):
        node.operator.writes.open("../x", WriteRequest(), None)
    opened(node)
    with pytest.raises(UsageError, match="no id of an attempt"):
        node.operator.writes.put(TASK, "../x", 0, 0, memoryview(b"x"), xxh3_64(b"x"), None)
    with pytest.raises(UsageError, match="without files"):
        node.operator.writes.commit(TASK, [], None)


def test_open_writes_count_as_what_waits_to_be_loaded(tmp_path: Path) -> None:
    content = tsfile(points=400)
    limits = {"max_unloaded_bytes": len(content) * 2, "max_file_bytes": len(content) * 2}
    with World(tmp_path / "small", limits=limits).node() as node:
        opened(node)
        put(node, content)
        with pytest.raises(NoSpaceError):
            put(node, content + content)
        assert node.load.space.at_quota() == [], "its driver is told, and nothing comes again"
        node.operator.writes.drop(TASK, None)
        opened(node)
        put(node, content)


def test_what_is_known_of_devices_is_told(node: Node) -> None:
    Edge(node).round({path_of(1): tsfile()})
    opened(node, owner=A)
    known, other = node.operator.writes.known(TASK, ["root.sg.d1", "/db/plant:x"], None)
    assert (known.group, known.owner, known.aligned) == ("root.sg", A, False)
    assert known.types == {"s1": 2}
    assert (other.group, other.owner, other.aligned, other.types) == (None, "", None, {})
    node.operator.writes.drop(TASK, None)
    opened(node)
    (foreign,) = node.operator.writes.known(TASK, ["root.sg.d1"], None)
    assert "expected option as = " in (foreign.refused or "")
    with pytest.raises(UsageError):
        node.operator.writes.known(TASK, ["/db/plant"], None)
    with pytest.raises(UsageError, match="at most"):
        node.operator.writes.known(TASK, ["x"] * 10_001, None)
    assert os.listdir(node.load.centre_folder().tree.path)


def writer(node: Node, **given: object) -> LoadRights:
    made = make_token(node.engine, "writer", **given)  # type: ignore[arg-type]
    with node.engine.reading() as state:
        row = state.tokens[made.id]
    return LoadRights(row.id, row.owners, row.scope, row.allow_deletes)


def write(node: Node, content: bytes, rights: LoadRights, task: str = TASK, **given: object) -> str:
    """What becomes of a write of one file."""
    writes = node.operator.writes
    writes.open(task, WriteRequest(**given), rights)  # type: ignore[arg-type]
    writes.put(task, "7" * 32, 0, 0, memoryview(content), xxh3_64(content), rights)
    writes.commit(task, [part_of(content, "7" * 32)], rights)
    while not (answer := writes.answer(task, 5.0)).done:
        pass
    (file,) = answer.files
    return file.result if file.reason is None else f"{file.result}: {file.reason}"


def test_a_writer_loads_for_those_it_is_bound_to_and_nobody_else(node: Node) -> None:
    Edge(node).round({path_of(1): tsfile("root.sg.a")})
    Edge(node, B).round({path_of(2): tsfile("root.sg.b")})
    rights = writer(node, owners=[A])
    assert write(node, tsfile("root.sg.a", first=50), rights, "1" * 32) == "loaded"
    assert write(node, tsfile("root.sg.new"), rights, "2" * 32) == "loaded"
    with node.engine.reading() as state:
        assert state.owners["root.sg.new"].sender == A
    assert write(node, tsfile("root.sg.c"), writer(node), "3" * 32) == "loaded"
    before = node.engine.newest_commit
    for at, device in enumerate(("root.sg.b", "root.sg.c")):  # another's, and the centre's own
        said = write(node, tsfile(device, first=50), rights, str(4 + at) * 32)
        assert said == "refused: the device belongs to another sender"
    for given in ({"owner": B}, {"owner": "centre"}, {"others": [B]}, {"owner": "nobody"}):
        with pytest.raises(ForbiddenError, match="may not load as"):
            write(node, tsfile("root.sg.b", first=50), rights, **given)
    said = write(node, tsfile("root.sg.b", first=50), rights, "6" * 32, others=["*"])
    assert said == "refused: the device belongs to another sender"
    anyone = writer(node, owners=["*"])
    assert write(node, tsfile("root.sg.b", first=50), anyone, "8" * 32, others=["*"]) == "loaded"
    with node.engine.reading() as state:
        loaded = [row for row in state.files.values() if row.created > before]
        assert len(loaded) == 1


def test_a_writer_is_told_of_no_device_that_it_may_not_load(node: Node) -> None:
    Edge(node).round({path_of(1): tsfile("root.sg.a"), path_of(3): tsfile("root.out.a")})
    Edge(node, B).round({path_of(2): tsfile("root.sg.b")})
    rights = writer(node, owners=[A], scope=["root.sg.**"])
    node.operator.writes.open(TASK, WriteRequest(), rights)
    names = ["root.sg.a", "root.sg.b", "root.out.a"]
    mine, other, outside = node.operator.writes.known(TASK, names, rights)
    assert (mine.owner, mine.types, mine.refused) == (A, {"s1": 2}, None)
    assert other == KnownDevice(refused="the device belongs to another sender")
    assert outside == KnownDevice(refused="outside of the token's scope")
    said = node.operator.writes.known(TASK, ["root.sg.b"], None)
    assert said == [other], "an operator who looks is told no more than the write may"


def test_rows_outside_of_a_writers_scope_are_refused_by_the_receiver_too(node: Node) -> None:
    rights = writer(node, scope=["root.sg.**"])
    assert write(node, tsfile("root.sg.a"), rights, "1" * 32) == "loaded"
    said = write(node, tsfile("root.out.a"), rights, "2" * 32)
    assert said == "refused: outside of the token's scope"
    assert len(list_files(node.operator).files) == 1


@pytest.mark.parametrize("policy", ["keep", "replace"])
def test_a_writer_that_may_not_overwrite_loads_beside_and_below_alone(
    node: Node, policy: str
) -> None:
    rights = writer(node, allow_deletes=False)
    assert write(node, tsfile(), rights, "1" * 32) == "loaded"
    with pytest.raises(ForbiddenError, match="above points that are there"):
        write(node, tsfile(salt=1), rights, "2" * 32, on_duplicate=policy)
    assert write(node, tsfile(salt=1), rights, "3" * 32, on_duplicate="skip") == "loaded"
    assert write(node, tsfile(salt=2), writer(node), "4" * 32, on_duplicate=policy) == "loaded"


def test_a_write_is_of_the_token_that_opened_it_and_of_operators(node: Node) -> None:
    mine, other = writer(node), writer(node)
    writes, content = node.operator.writes, tsfile()
    writes.open(TASK, WriteRequest(), mine)
    writes.put(TASK, "7" * 32, 0, 0, memoryview(content), xxh3_64(content), mine)
    for call in (
        lambda: writes.open(TASK, WriteRequest(), other),
        lambda: writes.known(TASK, ["root.sg.d1"], other),
        lambda: writes.put(TASK, "8" * 32, 0, 0, memoryview(b"x"), xxh3_64(b"x"), other),
        lambda: writes.commit(TASK, [part_of(content, "7" * 32)], other),
        lambda: writes.drop(TASK, other),
    ):
        with pytest.raises(ForbiddenError, match="not of this token"):
            call()
    assert len(left(node)) == 2
    writes.open(TASK, WriteRequest(), mine)
    writes.drop(TASK, None)
    opened(node)
    with pytest.raises(ForbiddenError):
        writes.put(TASK, "7" * 32, 0, 0, memoryview(content), xxh3_64(content), mine)


def test_a_token_that_is_revoked_before_the_commit_loads_nothing(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    rights = writer(node)
    copied = load_carrier.LoadCarrier._copied

    def revoked(*given: object) -> object:
        done = copied(*given)  # type: ignore[arg-type]
        revoke_token(node.engine, rights.token)
        return done

    monkeypatch.setattr(load_carrier.LoadCarrier, "_copied", revoked)
    assert "was revoked" in write(node, tsfile(), rights)
    assert list_files(node.operator).files == []
    assert left(node) == []
    folder = node.load.centre_folder()
    assert (folder.task, folder.staged.all()) == (None, [])


def test_a_commit_that_the_receiver_died_in_is_asked_for_again_while_it_is_loaded(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was handed over, and its files are not where they came to any more."""
    is_full, place = [True], loading._place

    def placing(*given: object) -> object:
        if is_full:
            raise NoSpaceError("the disk is full")
        return place(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(loading, "_place", placing)
    with world.node() as node:
        opened(node)
        part = put(node, tsfile())
        node.operator.writes.commit(TASK, [part], None)
        until(lambda: node.operator.centre.answer(TASK, 0).trouble)
    with world.node() as node:
        node.operator.writes.commit(TASK, [part], None)
        with pytest.raises(BusyError):
            node.operator.writes.drop(TASK, None)
        is_full.clear()
        answer = commit(node, part)
        assert [each.result for each in answer.files] == ["loaded"]
        assert len(list_files(node.operator).files) == 1
        node.operator.writes.expire(node.clock() + 10**9)
        assert left(node) == []


def test_a_write_of_which_the_outcome_is_kept_no_more_is_not_told_to_be_nowhere(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tasks, "KEPT_TASKS", 1)
    with world.node() as node:
        opened(node)
        part = put(node, tsfile())
        commit(node, part)
        place = tmp_path / "old" / path_of(1)
        place.parent.mkdir(parents=True)
        place.write_bytes(tsfile("root.sg.other"))
        load = CentreLoadRequest(task="6" * 32, paths=[str(tmp_path / "old")])
        node.operator.centre.load(load)
    with world.node() as node:
        with pytest.raises(GoneError, match="is over"):
            node.operator.writes.commit(TASK, [part], None)
        with pytest.raises(ConflictError, match="its files are visible"):
            node.operator.centre.answer(TASK, 0)
        with pytest.raises(NotFoundError, match="nothing of it is loaded"):
            node.operator.centre.answer("4" * 32, 0)
