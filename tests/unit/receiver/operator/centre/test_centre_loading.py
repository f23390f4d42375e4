from __future__ import annotations

import secrets
from pathlib import Path

import pytest

from common.errors import (
    DigestError,
    ForbiddenError,
    NoSpaceError,
    NotATsFileError,
    NotFoundError,
    UsageError,
)
from common.tsfile.deletion_records import whole_records
from receiver.load import incoming_space
from receiver.load.deciding.change import decide_change
from receiver.metadata.model.centre_source import centre_uuid
from receiver.metadata.model.ranks import stands_above
from receiver.metadata.model.timestamps import COUNTER_BITS
from receiver.node import Node
from receiver.operator.centre import centre_loading, centre_looks, load_carrier, load_judge
from receiver.operator.edges.owners import set_owner
from receiver.operator.edges.tokens import make_token
from receiver.operator.stored.files import list_files
from receiver.operator.views.load_wire import CentreLoadAnswer, CentreLoadRequest
from receiver.operator.views.step_now import StepNow
from tests.support.node_world import (
    OPERATOR,
    A,
    B,
    Edge,
    World,
    fsck_of,
    path_of,
    results,
    sender,
    tsfile,
)
from tests.support.tsfile_bytes import build
from tests.support.writing_world import config_of, rows_of

DELETION = f"DELETION,root.sg.d1.*,{2**63 - 1},2,3\n".encode()


def lay(root: Path, files: dict[str, bytes]) -> Path:
    for path, content in files.items():
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    return root


def load(node: Node, *paths: Path, **more: object) -> CentreLoadAnswer:
    request = CentreLoadRequest(
        task=secrets.token_hex(16),
        paths=list(map(str, paths)),
        **more,  # type: ignore[arg-type]
    )
    return node.operator.centre.load(request)


def said(answer: CentreLoadAnswer, root: Path) -> dict[str, str]:
    return {str(Path(each.source).relative_to(root)): each.result for each in answer.files}


def tables(node: Node) -> int:
    return node.engine.newest_commit


def test_a_directory_of_another_instance_is_loaded_in_one_commit_as_it_is(
    world: World, node: Node, tmp_path: Path
) -> None:
    files = {
        path_of(1): tsfile(),
        path_of(1) + ".resource": b"its resource",
        "un" + path_of(2): tsfile(salt=1),
        path_of(3, sg="root.other"): tsfile("root.other.x"),
    }
    old = lay(tmp_path / "old" / "data", files)
    answer = load(node, old)
    assert set(said(answer, old).values()) == {"loaded"}
    rows = list_files(node.operator).files
    assert len({each.created for each in rows}) == 1
    placed = world.loaded()
    assert sorted(placed[each.physical] for each in rows) == sorted(
        content for path, content in files.items() if not path.endswith(".resource")
    )
    assert b"its resource" in placed.values()
    assert {path: (old / path).read_bytes() for path in files} == files
    assert fsck_of(node).found == []


def test_files_of_one_load_rank_among_themselves_as_their_database_ranks_them(
    node: Node, tmp_path: Path
) -> None:
    paths = ["un" + path_of(1), path_of(10), path_of(9), "un" + path_of(2)]
    old = lay(tmp_path / "old", {path: tsfile(salt=at) for at, path in enumerate(paths)})
    answer = load(node, old, on_duplicate="keep")
    names = {each.path: str(Path(each.source).relative_to(old)) for each in answer.files}
    with node.engine.reading() as state:
        ranks = {names[row.path]: row.rank for row in state.files.values()}
    order = [path_of(9), path_of(10), "un" + path_of(1), "un" + path_of(2)]
    for at, low in enumerate(order):
        assert all(stands_above(ranks[high], ranks[low]) for high in order[at + 1 :])


def test_content_that_anyone_brought_is_here_already_under_whatever_name(
    node: Node, tmp_path: Path
) -> None:
    Edge(node).round({path_of(1): tsfile()})
    old = lay(tmp_path / "old", {path_of(7): tsfile(), path_of(8): tsfile(first=50)})
    (old / path_of(9)).write_bytes(tsfile(first=50))
    expected = {path_of(7): "already", path_of(8): "loaded", path_of(9): "already"}
    assert said(load(node, old, owner=A), old) == expected
    before = tables(node)
    again = load(node, old)
    assert set(said(again, old).values()) == {"already"}
    assert tables(node) == before


def test_a_dry_run_says_what_a_load_does_and_changes_nothing(
    world: World, node: Node, tmp_path: Path
) -> None:
    old = lay(tmp_path / "old", {path_of(1): tsfile(), path_of(2): tsfile(first=90)})
    before = tables(node)
    dry = load(node, old, dry_run=True)
    assert tables(node) == before
    assert world.loaded() == {}
    assert not list((world.data / "sync-receiver").iterdir())
    assert said(dry, old) == said(load(node, old), old)


def test_another_owners_device_is_refused_by_name_and_taken_in_its_name(
    node: Node, tmp_path: Path
) -> None:
    edge = Edge(node)
    edge.round({path_of(1): tsfile()})
    files = {path_of(1): tsfile(first=100), path_of(2): tsfile("root.sg.new", first=100)}
    old = lay(tmp_path / "old", files)
    for dry in (True, False):
        refused = load(node, old, dry_run=dry)
        assert set(said(refused, old).values()) == {"refused"}
        reasons = {each.device: each.reason or "" for each in refused.files}
        assert f"--as {A}" in reasons["root.sg.d1"]
        assert path_of(1).rpartition("-")[0].rpartition("/")[2] in (reasons[None])
    assert len(list_files(node.operator).files) == 1
    assert set(said(load(node, old, owner=A), old).values()) == {"loaded"}
    with node.engine.reading() as state:
        assert {row.sender for row in state.owners.values()} == {A}
    # its devices are the edge's, the new ones too, which goes on with them
    more = {path_of(3): tsfile("root.sg.new", first=500)}
    assert results(edge.round(more)) == {path_of(3): "loaded"}


def test_a_third_senders_device_is_refused_in_the_name_of_another(
    node: Node, tmp_path: Path
) -> None:
    Edge(node).round({path_of(1): tsfile()})
    Edge(node, B).round({path_of(2): tsfile("root.sg.b")})
    old = lay(tmp_path / "old", {path_of(1): tsfile("root.sg.b", first=100)})
    assert said(load(node, old, owner=A), old) == {path_of(1): "refused"}


def two_owners(node: Node, tmp_path: Path) -> Path:
    """Files with devices of A and of B, one of them with both, and with new ones."""
    Edge(node).round({path_of(1): tsfile("root.sg.a")})
    Edge(node, B).round({path_of(2): tsfile("root.sg.b")})
    return lay(
        tmp_path / "old",
        {
            path_of(1): several("root.sg.a", "root.sg.b", "root.sg.new"),
            path_of(2): tsfile("root.sg.newer"),
        },
    )


def several(*devices: str) -> bytes:
    """A file of several devices, as another instance has them in one."""
    return build({each: {"s1": [(100, 1), (101, 2)]} for each in devices})


@pytest.mark.parametrize("named", [(A, [B]), (A, ["*"]), ("", ["*"]), (B, [A, "centre"])])
def test_devices_of_several_owners_come_in_one_load_and_stay_theirs(
    node: Node, tmp_path: Path, named: tuple[str, list[str]]
) -> None:
    owner, others = named
    old = two_owners(node, tmp_path)
    for more in ({}, {"owner": A}, {"owner": B}, {"owner": B, "others": ["centre"]}):
        assert set(said(load(node, old, **more), old).values()) == {"refused"}  # type: ignore[arg-type]
    assert len(list_files(node.operator).files) == 2
    answer = load(node, old, owner=owner, others=others)
    assert set(said(answer, old).values()) == {"loaded"}
    rows = [each for each in list_files(node.operator).files if each.sender not in (A, B)]
    assert len({each.created for each in rows}) == 1
    first = owner or centre_uuid(node.engine.uuid)
    with node.engine.reading() as state:
        assert {name: row.sender for name, row in state.owners.items()} == {
            "root.sg.a": A, "root.sg.b": B, "root.sg.new": first, "root.sg.newer": first,
        }  # fmt: skip
    assert fsck_of(node).found == []


def test_what_becomes_another_owners_meanwhile_refuses_the_load(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a third one that was not named, between the decision and the commit."""
    third = "c" * 32
    old = two_owners(node, tmp_path)
    Edge(node, third).round({path_of(3): tsfile("root.sg.c")})
    copied = load_carrier.LoadCarrier._copied

    def overtaken(*given: object) -> object:
        done = copied(*given)  # type: ignore[arg-type]
        set_owner(node.engine, OPERATOR, "root.sg.b", third)
        return done

    monkeypatch.setattr(load_carrier.LoadCarrier, "_copied", overtaken)
    assert set(said(load(node, old, owner=A, others=[B]), old).values()) == {"refused"}
    monkeypatch.undo()
    assert set(said(load(node, old, owner=A, others=[third]), old).values()) == {"loaded"}


def test_what_overlaps_refuses_the_whole_load_whatever_directory_it_lies_in(
    node: Node, tmp_path: Path
) -> None:
    Edge(node).round({path_of(1, sg="root.sg"): tsfile()})
    place = f"sequence/root.sg/9/4/{path_of(1).rpartition('/')[2]}"
    old = lay(tmp_path / "old", {place: tsfile(first=5, salt=3), path_of(2): tsfile(first=80)})
    before = tables(node)
    refused = load(node, old, owner=A)
    assert set(said(refused, old).values()) == {"refused"}
    (named,) = [each for each in refused.files if each.device is not None]
    assert named.device == "root.sg.d1"
    assert named.source.endswith(place)
    assert "series s1: time 5 is in sequence/root.sg/0/0/" in (named.reason or "")
    assert tables(node) == before


@pytest.mark.parametrize("policy", ["keep", "replace"])
def test_what_overlaps_is_loaded_above_what_is_there_and_below_what_is_seen_later(
    world: World, node: Node, tmp_path: Path, policy: str
) -> None:
    edge = Edge(node)
    edge.round({path_of(99): tsfile()})
    old = lay(tmp_path / "old", {path_of(1): tsfile(first=3, salt=3)})
    (loaded,) = load(node, old, owner=A, on_duplicate=policy).files
    with node.engine.reading() as state:
        ranks = {row.path: row.rank for row in state.files.values()}
    here, there = ranks[loaded.path], ranks[path_of(99)]
    assert stands_above(here, there)
    assert stands_above(here, there._replace(first=here.first - (1001 << COUNTER_BITS)))
    world.clock.now += 2  # type: ignore[attr-defined]
    edge.check()
    edge.round({path_of(98): tsfile("root.sg.d9")})
    assert stands_above(there._replace(first=node.engine.newest_commit), here)


def test_what_overlaps_where_no_reader_merges_it_is_not_loaded_above_either(
    node: Node, tmp_path: Path
) -> None:
    Edge(node).round({path_of(1, sg="root.sg.d1"): tsfile()})
    old = lay(tmp_path / "old", {path_of(2): tsfile(first=3, salt=3)})
    (refused,) = load(node, old, owner=A, on_duplicate="keep").files
    assert refused.result == "refused"
    assert "another storage group" in (refused.reason or "")


def test_a_file_of_several_partitions_of_this_receiver_refuses_the_load(
    node: Node, tmp_path: Path
) -> None:
    old = lay(tmp_path / "old", {path_of(2): tsfile(first=604_800_000 - 2)})
    with pytest.raises(UsageError, match="partitions 0 to 1"):
        load(node, old)


def points_of(node: Node, tmp_path: Path) -> dict[int, int]:
    """What a reader gets of root.sg.d1: values by time."""
    config = config_of(node, tmp_path / "receiver.toml")
    _, batches = rows_of(catalog=config, devices="root.sg.d1")
    return {row["time"]: row["s1"] for batch in batches for row in batch.to_pylist()}


def test_what_is_loaded_below_gives_only_what_nothing_else_gives(
    world: World, node: Node, tmp_path: Path
) -> None:
    edge = Edge(node)
    edge.round({path_of(9): tsfile(first=3, points=3)})  # times 3 to 5
    one = lay(tmp_path / "one", {path_of(1): tsfile(first=1, points=6, salt=1)})
    two = lay(tmp_path / "two", {"un" + path_of(8): tsfile(first=5, points=4, salt=2)})
    for old in (one, two):
        assert set(said(load(node, old, owner=A, on_duplicate="skip"), old).values()) == {"loaded"}
    there = {1: 11, 2: 21, 3: 30, 4: 40, 5: 50, 6: 61}
    assert points_of(node, tmp_path) == there | {7: 72, 8: 82}
    world.clock.now += 2  # type: ignore[attr-defined]
    edge.check()
    edge.round({path_of(2): tsfile(first=8, points=1, salt=3)})  # of an older name, seen later
    three = lay(tmp_path / "three", {path_of(3): tsfile(first=7, points=3, salt=4)})
    load(node, three, owner=A, on_duplicate="keep")
    assert points_of(node, tmp_path) == there | {7: 74, 8: 84, 9: 94}


def test_what_is_loaded_below_is_below_the_files_of_a_former_owner_too(
    node: Node, tmp_path: Path
) -> None:
    Edge(node).round({path_of(1): tsfile(points=3)})
    Edge(node, B).round({path_of(2): tsfile("root.sg.b")})
    set_owner(node.engine, OPERATOR, "root.sg.d1", B)
    old = lay(tmp_path / "old", {path_of(3): tsfile(points=5, salt=1)})
    assert set(said(load(node, old, owner=B, on_duplicate="skip"), old).values()) == {"loaded"}
    assert points_of(node, tmp_path) == {1: 10, 2: 20, 3: 30, 4: 41, 5: 51}


def test_what_is_to_become_of_duplicates_is_one_of_four(node: Node, tmp_path: Path) -> None:
    old = lay(tmp_path / "old", {path_of(1): tsfile()})
    with pytest.raises(UsageError, match="expected one of"):
        load(node, old, on_duplicate="perhaps")


def test_what_was_committed_since_the_look_decides(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The edge loads a file that overlaps while the load at the centre is copied."""
    edge = Edge(node)
    edge.round({path_of(1): tsfile()})
    old = lay(tmp_path / "old", {path_of(1): tsfile(first=100), path_of(2): tsfile(first=200)})
    copied = load_carrier.LoadCarrier._copied

    def overtaken(*given: object) -> object:
        done = copied(*given)  # type: ignore[arg-type]
        edge.round({path_of(3): tsfile(first=102, salt=5)})
        return done

    monkeypatch.setattr(load_carrier.LoadCarrier, "_copied", overtaken)
    assert set(said(load(node, old, owner=A), old).values()) == {"refused"}
    assert {each.sender for each in list_files(node.operator).files} == {A}
    folder = node.load.centre_folder()
    assert folder.staged.all() == []
    assert folder.task is None
    assert fsck_of(node).found == []


def test_what_is_committed_between_decision_and_commit_is_seen(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from common import crash

    edge = Edge(node)
    edge.round({path_of(1): tsfile()})
    old = lay(tmp_path / "old", {path_of(1): tsfile(first=100)})
    due = [True]

    def hook(name: str) -> None:
        if name == "load.decided" and due and node.load.centre_folder().task is not None:
            due.clear()
            edge.round({path_of(3): tsfile(first=102, salt=5)})

    with crash.arm(hook):
        assert said(load(node, old, owner=A), old) == {path_of(1): "refused"}
    assert due == []


def test_inventory_digest_and_epoch_of_an_edge_are_as_they_were(node: Node, tmp_path: Path) -> None:
    edge = Edge(node)
    edge.round({path_of(1): tsfile()})

    def told() -> object:
        with node.engine.reading() as state:
            listed = state.file_table.listed.of(A)
            row = state.senders[A]
        entries = node.listing.inventory(edge.who, A, None, 100).entries
        return listed, row, [each.path for each in entries], edge.check().verified

    before = told()
    old = lay(tmp_path / "old", {path_of(1): tsfile(first=100), path_of(2): tsfile(first=300)})
    load(node, old, owner=A)
    assert told() == before
    assert results(edge.round({path_of(4): tsfile(first=400)})) == {path_of(4): "loaded"}


def test_no_sender_speaks_under_the_uuid_of_the_centre(node: Node, tmp_path: Path) -> None:
    load(node, lay(tmp_path / "old", {path_of(1): tsfile()}))
    uuid = centre_uuid(node.engine.uuid)
    with pytest.raises(ForbiddenError, match="no sender"):
        Edge(node, uuid, sender(uuid)).round({path_of(2): tsfile(first=70)})


def test_where_senders_need_tokens_a_load_at_the_centre_needs_none(
    node: Node, tmp_path: Path
) -> None:
    make_token(node.engine, "sender", sender=A)
    old = lay(tmp_path / "old", {path_of(1): tsfile()})
    assert said(load(node, old), old) == {path_of(1): "loaded"}


def test_deletions_beside_a_file_go_with_it(node: Node, tmp_path: Path) -> None:
    assert whole_records(DELETION, "mods") == len(DELETION)
    files = {path_of(1): tsfile(), path_of(1) + ".mods": DELETION}
    answer = load(node, lay(tmp_path / "old", files))
    with node.engine.reading() as state:
        (row,) = state.files.values()
        (noted,) = state.deletion_table.of_file(row.physical)
    assert len(answer.files) == 1
    assert noted.content == DELETION
    assert all(each.applied for each in noted.segments)


@pytest.mark.parametrize("damage", ["cut", "text", "mods"])
def test_a_file_that_is_bad_refuses_the_load_by_its_name(
    world: World, node: Node, tmp_path: Path, damage: str
) -> None:
    files = {path_of(1): tsfile(), path_of(2): tsfile(first=90)}
    if damage == "mods":
        files[path_of(2) + ".mods"] = DELETION[:-9]
    else:
        files[path_of(2)] = files[path_of(2)][:-20] if damage == "cut" else b"no TsFile at all"
    old = lay(tmp_path / "old", files)
    with pytest.raises(NotATsFileError, match=path_of(2).rpartition("/")[2]):
        load(node, old)
    assert world.loaded() == {}
    assert fsck_of(node).found == []
    (old / path_of(2)).write_bytes(tsfile(first=90))
    (old / (path_of(2) + ".mods")).unlink(missing_ok=True)
    assert set(said(load(node, old), old).values()) == {"loaded"}


def test_a_file_that_changes_while_it_is_copied_refuses_the_load(
    world: World, node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = lay(tmp_path / "old", {path_of(1): tsfile(), path_of(2): tsfile(first=90)})
    carry_out = load_carrier.LoadCarrier.carry_out

    def changed(*given: object) -> object:
        (old / path_of(2)).write_bytes(tsfile(first=90, salt=1))
        return carry_out(*given)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(load_carrier.LoadCarrier, "carry_out", changed)
        with pytest.raises(DigestError, match="somebody writes to it"):
            load(node, old)
    folder = node.load.centre_folder()
    assert (folder.task, folder.staged.all()) == (None, [])
    assert node.load.disks.roomiest().listing(folder.uploads) == []
    assert world.loaded() == {}
    assert set(said(load(node, old), old).values()) == {"loaded"}


def test_without_room_nothing_is_begun(tmp_path: Path) -> None:
    world = World(tmp_path / "world", limits={"max_unloaded_bytes": 100})
    with world.node() as node:
        old = lay(tmp_path / "old", {path_of(1): tsfile()})
        with pytest.raises(NoSpaceError):
            load(node, old)
        assert node.load.centre_folder().task is None


def test_a_load_that_there_was_no_room_for_leaves_the_receiver_as_ready_as_it_was(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who asked for it was told, and nothing comes again by itself."""
    old = lay(tmp_path / "old", {path_of(1): tsfile()})
    monkeypatch.setattr(incoming_space, "free_bytes", lambda _: 100)
    with pytest.raises(NoSpaceError, match="100 are free"):
        load(node, old)
    assert node.problem() is None
    monkeypatch.undo()
    assert set(said(load(node, old), old).values()) == {"loaded"}


def test_files_side_by_side_belong_to_the_group_that_is_said(node: Node, tmp_path: Path) -> None:
    week = 604_800_000
    old = lay(tmp_path / "flat", {"a.tsfile": tsfile(), "b.tsfile": tsfile(first=week)})
    with pytest.raises(UsageError, match="--sg"):
        load(node, old)
    answer = load(node, old, storage_group="root.sg")
    places = {each.path.rpartition("/")[0] for each in answer.files}
    assert places == {"sequence/root.sg/0/0", "sequence/root.sg/0/1"}


def test_what_is_not_there_is_said(node: Node, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no such file"):
        load(node, tmp_path / "nowhere")
    with pytest.raises(NotFoundError, match="no TsFile"):
        load(node, lay(tmp_path / "old", {"readme": b""}))
    old = lay(tmp_path / "old", {path_of(1): tsfile()})
    with pytest.raises(NotFoundError, match="no sender"):
        load(node, old, owner="plant 7")
    with pytest.raises(UsageError, match="absolute"):
        load(node, Path("old"))


def test_a_deletion_file_that_files_share_refuses_the_load(node: Node, tmp_path: Path) -> None:
    old = lay(tmp_path / "old", {path_of(1): tsfile()})
    (old / path_of(1)).with_name("0-1.mods2").write_bytes(b"\x00")
    with pytest.raises(UsageError, match="share"):
        load(node, old)


def test_whoever_asks_for_a_load_that_is_not_over_hears_how_far_it_is(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {path_of(number): tsfile(salt=number) for number in (1, 2, 3)}
    old = lay(tmp_path / "old", files)
    sizes = list(map(len, files.values()))
    request = CentreLoadRequest(task="3" * 32, paths=[str(old)])
    steps: list[StepNow | None] = []
    centre = node.operator.centre

    def asked_of(module: object, name: str) -> None:
        real = getattr(module, name)

        def asking(*given: object, **more: object) -> object:
            steps.append(centre.answer(request.task, 0).progress)
            return real(*given, **more)

        monkeypatch.setattr(module, name, asking)

    asked_of(centre_looks, "looked_at")
    asked_of(load_carrier, "copy_in")
    asked_of(centre_loading.LoadJudge, "outcomes")
    asked_of(node.load.loader, "submit")
    centre.begin(request)
    answer = centre.answer(request.task, 60)
    assert answer.done
    assert answer.progress is None
    told = [(each.step, each.done, each.bytes) for each in steps if each is not None]
    done = [(number, sum(sizes[:number])) for number in range(3)]
    assert told == [
        *(("reading files", *each) for each in done),
        ("comparing with what is loaded", 0, 0),
        *(("copying", *each) for each in done),
        ("copying", 3, sum(sizes)),
    ]
    assert {(each.total, each.total_bytes) for each in steps if each and each.total} == {
        (3, sum(sizes))
    }


def test_a_load_is_decided_by_the_function_that_decides_for_senders() -> None:
    assert load_judge.decide_change is decide_change
