from __future__ import annotations

import secrets
from pathlib import Path

import pytest

from common import crash, wire
from common.durable import Tree
from common.errors import BusyError, DigestError, NoSpaceError, NotFoundError, UsageError
from receiver.metadata.model import records
from receiver.metadata.model.centre_source import centre_uuid
from receiver.metadata.sql.executing import execute
from receiver.node import Node
from receiver.operator.adopting import bringing_in
from receiver.operator.edges.owners import set_owner
from receiver.operator.stored.files import list_files
from receiver.operator.views.load_wire import AdoptionAnswer, AdoptionRequest
from receiver.operator.views.step_now import StepNow
from receiver.transfer.intake import Intake
from tests.support.metadata import load
from tests.support.node_world import OPERATOR, A, Edge, World, fsck_of, path_of, plan_entry, tsfile
from tests.support.old_tool import OTHER, UUID, OldReceiverTree, name_of, tree_of
from tests.support.tsfile_bytes import build


@pytest.fixture
def old(tmp_path: Path) -> OldReceiverTree:
    return OldReceiverTree(tmp_path / "iotdb")


def adopt(node: Node, old: OldReceiverTree, **more: object) -> AdoptionAnswer:
    request = AdoptionRequest(
        task=secrets.token_hex(16),
        paths=[str(old.root)],
        commit=bool(more.pop("commit", True)),
        **more,  # type: ignore[arg-type]
    )
    before = tree_of(old.home)
    answer = node.operator.adoptions.adopt(request)
    if not request.move:
        assert tree_of(old.home) == before
    return answer


def said(answer: AdoptionAnswer, old: OldReceiverTree) -> dict[str, str]:
    top = old.root / "data"
    return {str(Path(each.source).relative_to(top)): each.result for each in answer.files}


def entries(files: dict[str, bytes]) -> list[wire.PlanEntry]:
    return [plan_entry(path, content) for path, content in files.items()]


FILES = {
    path_of(1): tsfile(),
    path_of(1) + ".resource": b"its resource",
    "un" + path_of(2): tsfile(salt=1),
    path_of(3, sg="root.other"): tsfile("root.other.x"),
}
DELETION = f"DELETION,root.sg.d1.*,{2**63 - 1},2,3\n".encode()
OWNERS = {"root.sg.d1": name_of(), "root.other.x": name_of(OTHER, "10.0.0.9")}


def test_files_become_those_of_the_senders_that_the_old_receiver_had_them_from(
    world: World, node: Node, old: OldReceiverTree
) -> None:
    old.loaded(FILES)
    old.owners(OWNERS | {"root.sg.idle": name_of()})
    answer = adopt(node, old)
    assert (answer.committed, answer.odd) == (True, [])
    rows = list_files(node.operator).files
    assert {(each.path, each.sender, each.adopted) for each in rows} == {
        (path_of(1), UUID, True),
        ("un" + path_of(2), UUID, True),
        (path_of(3, sg="root.other"), OTHER, True),
    }
    assert sorted(world.loaded().values()) == sorted(FILES.values())
    with node.engine.reading() as state:
        owners = {device: row.sender for device, row in state.owners.items()}
        assert state.senders[UUID].propagate is None
    assert owners == {"root.sg.d1": UUID, "root.sg.idle": UUID, "root.other.x": OTHER}
    assert world.folder(UUID).name.startswith("192.168.130.14_")
    assert fsck_of(node).found == []


def test_a_dry_run_says_what_an_adoption_does_and_changes_nothing(
    world: World, node: Node, old: OldReceiverTree
) -> None:
    old.loaded(FILES)
    old.owners(OWNERS)
    before = node.engine.newest_commit
    dry = adopt(node, old, commit=False)
    assert not dry.committed
    assert node.engine.newest_commit == before
    assert world.loaded() == {}
    assert said(dry, old) == said(adopt(node, old), old)


def test_whoever_asks_for_an_adoption_that_is_not_over_hears_how_far_it_is(
    node: Node, old: OldReceiverTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {path: content for path, content in FILES.items() if path.endswith(".tsfile")}
    old.loaded(files)
    old.owners(OWNERS)
    request = AdoptionRequest(task="4" * 32, paths=[str(old.root)], commit=True)
    steps: list[StepNow | None] = []
    adoptions = node.operator.adoptions
    real = bringing_in.copy_in

    def copying(*given: object) -> object:
        steps.append(adoptions.answer(request.task, 0).progress)
        return real(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(bringing_in, "copy_in", copying)
    adoptions.begin(request)
    answer = adoptions.answer(request.task, 60)
    assert answer.committed
    assert answer.progress is None
    told = [each for each in steps if each is not None]
    assert [(each.done, each.total) for each in told] == [(0, 1), (0, 2), (1, 2)]
    assert {each.step for each in told} == {f"files of {UUID[:8]}", f"files of {OTHER[:8]}"}
    assert sum({each.step: each.total_bytes for each in told}.values()) == sum(
        map(len, files.values())
    )


def test_its_sender_sends_nothing_of_what_was_adopted(node: Node, old: OldReceiverTree) -> None:
    old.loaded(FILES)
    old.owners(OWNERS)
    adopt(node, old)
    edge = Edge(node, UUID)
    edge.check()
    edge.start(task := secrets.token_hex(16))
    plan = edge.plan(task, entries({path_of(1): tsfile(), path_of(9): tsfile(first=100)}))
    assert [each.action for each in plan] == [wire.Action.ALREADY, wire.Action.SEND]


def test_what_is_verified_is_adopted_no_more(node: Node, old: OldReceiverTree) -> None:
    old.loaded(FILES)
    old.owners(OWNERS)
    adopt(node, old)
    first = list_files(node.operator).files[0]
    node.engine.commit([records.FileVerified([first.physical])])
    assert [each.adopted for each in list_files(node.operator).files] == [False, True, True]


def test_said_again_it_takes_nothing_twice(node: Node, old: OldReceiverTree) -> None:
    old.loaded(FILES)
    old.owners(OWNERS)
    adopt(node, old)
    before = node.engine.newest_commit
    assert set(said(adopt(node, old), old).values()) == {"already"}
    assert node.engine.newest_commit == before


def test_devices_that_belong_to_another_sender_here_keep_all_of_it_away_by_name(
    node: Node, old: OldReceiverTree
) -> None:
    Edge(node).round({path_of(7): tsfile()})
    old.loaded(FILES)
    old.owners(OWNERS)
    answer = adopt(node, old)
    assert not answer.committed
    assert {each.device for each in answer.files if each.result == "conflict"} == {"root.sg.d1"}
    assert f"belongs to sender {UUID} there, and to {A} here" in answer.odd[-1].reason
    assert {each.sender for each in list_files(node.operator).files} == {A}


def test_a_device_without_files_that_is_anothers_here_keeps_all_of_it_away(
    node: Node, old: OldReceiverTree
) -> None:
    Edge(node).round({path_of(7): tsfile("root.sg.idle")})
    old.loaded(FILES)
    old.owners(OWNERS | {"root.sg.idle": name_of()})
    assert not adopt(node, old).committed
    set_owner(node.engine, OPERATOR, "root.sg.idle", None)
    assert adopt(node, old).committed


def test_a_server_of_0_12_names_no_sender_and_whoever_asks_does(
    node: Node, old: OldReceiverTree
) -> None:
    old.loaded(FILES)
    old.owners({"root.sg.d1": "root.sg", "root.other.x": "root.other"})
    answer = adopt(node, old)
    assert answer.files == []
    assert sum("nobody knows which sender" in each.reason for each in answer.odd) == 3
    with pytest.raises(NotFoundError):
        adopt(node, old, owner="plant-7")
    answer = adopt(node, old, owner=UUID, groups={"root.other": OTHER})
    assert {each.path: each.sender for each in answer.files} == {
        path_of(1): UUID,
        "un" + path_of(2): UUID,
        path_of(3, sg="root.other"): OTHER,
    }


def test_the_only_sender_that_the_old_receiver_knew_is_whose_files_are(
    node: Node, old: OldReceiverTree
) -> None:
    old.loaded({path_of(1): tsfile()})
    old.owners({"root.sg.d1": "root.sg"})
    old.received(UUID, "192.168.130.14", {path_of(2): tsfile(first=50)})
    answer = adopt(node, old)
    assert {(each.path, each.sender, each.result) for each in answer.files} == {
        (path_of(1), UUID, "loaded"),
        (path_of(2), UUID, "loaded"),
    }


def test_a_senders_folder_says_whose_files_are_when_all_of_them_are_loaded(
    node: Node, old: OldReceiverTree
) -> None:
    old.loaded({path_of(1): tsfile()})
    old.owners({"root.sg.d1": "root.sg"})
    folders = old.root / "data" / "sync-receiver"
    (folders / name_of()).mkdir(parents=True)
    assert [each.sender for each in adopt(node, old).files] == [UUID]
    old.loaded({path_of(2): tsfile(first=50)})
    (folders / name_of(OTHER)).mkdir()
    assert [each.path for each in adopt(node, old).files] == []


def test_what_is_odd_is_left_out_and_named_and_the_rest_is_taken(
    node: Node, old: OldReceiverTree
) -> None:
    two = build({"root.sg.d1": {"s": [(1, 1)]}, "root.other.x": {"s": [(1, 1)]}})
    old.loaded(
        FILES
        | {
            path_of(4): tsfile(first=9)[:-5],
            path_of(5): tsfile(),
            path_of(6): two,
            path_of(7): b"",
            path_of(8): b"TsFile000002" + bytes(40),
            path_of(9): tsfile(first=70),
            path_of(9) + ".mods": DELETION[:-9],
        }
    )
    old.owners(OWNERS)
    answer = adopt(node, old)
    assert answer.committed
    assert set(said(answer, old)) == {each for each in FILES if each.endswith(".tsfile")}
    odd = {Path(each.source).name: each.reason for each in answer.odd}
    names = [Path(path_of(number)).name for number in range(4, 10)]
    assert set(odd) == set(names)
    for name, said_of_it in zip(
        names,
        ("", "the same content as", "devices of several senders", "", "", "--with-deleted"),
        strict=True,
    ):
        assert said_of_it in odd[name]
    again = adopt(node, old, with_deleted=True)
    assert said(again, old)[path_of(9)] == "loaded"


def test_what_the_old_server_has_deleted_of_a_file_comes_with_it(
    world: World, node: Node, old: OldReceiverTree
) -> None:
    old.loaded(FILES | {path_of(1) + ".mods": DELETION, path_of(4): tsfile(first=90)})
    old.owners(OWNERS)
    dry = adopt(node, old, commit=False)
    assert {each.path for each in dry.files if each.deletions} == {path_of(1)}
    assert dry.odd == []
    assert adopt(node, old).committed
    with node.engine.reading() as state:
        row = state.file_table.held(UUID, path_of(1))
        assert row is not None
        (noted,) = state.deletion_table.of_file(row.physical)
        assert list(state.deletion_table.of_sender(UUID)) == [noted]
    assert noted.content == DELETION
    assert [(each.applied, each.held, each.floor) for each in noted.segments] == [(True, "", 0)]
    assert fsck_of(node).found == []
    before = node.engine.newest_commit
    assert {each.result for each in adopt(node, old).files} == {"already"}
    assert node.engine.newest_commit == before


def test_what_it_has_deleted_is_not_of_a_file_that_has_come_since(
    node: Node, old: OldReceiverTree
) -> None:
    old.loaded({path_of(1): tsfile(), path_of(1) + ".mods": DELETION})
    old.owners(OWNERS)
    came = [load(path_of(1), sender=UUID, devices={"root.sg.d1": (1, 9)}, content="other")]

    def comes(name: str) -> None:
        if name == "adoption.begun" and came:
            node.engine.commit([came.pop()])

    with crash.arm(comes):
        answer = adopt(node, old)
    assert [each.result for each in answer.files] == ["conflict"]
    with node.engine.reading() as state:
        assert list(state.deletion_table.of_sender(UUID)) == []


def test_most_of_what_comes_may_be_deleted_already_and_is_held_for_nobody(
    node: Node, old: OldReceiverTree
) -> None:
    numbers = range(1, 30)
    every = f"DELETION,root.sg.d1.*,{2**63 - 1},0,{2**62}\n".encode()
    files = {path_of(each): tsfile(first=each * 100) for each in numbers}
    old.loaded(files | {f"{path}.mods": every for path in files})
    old.owners(OWNERS)
    assert adopt(node, old).committed
    with node.engine.reading() as state:
        rows = list(state.deletion_table.of_sender(UUID))
    assert len(rows) == len(numbers)
    assert all(each.applied and not each.held for row in rows for each in row.segments)


def test_what_was_deleted_is_moved_with_its_file(node: Node, old: OldReceiverTree) -> None:
    old.loaded({path_of(1): tsfile(), path_of(1) + ".mods": DELETION})
    old.owners(OWNERS)
    assert adopt(node, old, move=True).committed
    assert not list((old.root / "data").rglob("*.mods"))


def test_a_copied_tree_without_any_state_is_adopted_by_its_content(
    node: Node, old: OldReceiverTree
) -> None:
    old.loaded({"plant/a.tsfile": tsfile(), path_of(2): tsfile(first=99)})
    answer = adopt(node, old, owner=UUID, storage_group="root.sg")
    assert {each.path: each.result for each in answer.files} == {
        "sequence/root.sg/0/0/a.tsfile": "loaded",
        path_of(2): "loaded",
    }
    edge = Edge(node, UUID)
    edge.check()
    edge.start(task := secrets.token_hex(16))
    plan = edge.plan(task, entries({"sequence/root.sg/0/0/a.tsfile": tsfile()}))
    assert [each.action for each in plan] == [wire.Action.ALREADY]


def test_directories_of_this_receiver_are_not_adopted(world: World, node: Node) -> None:
    for path in (world.data, world.root, world.data / "sequence", world.config.schema_dir):
        path.mkdir(exist_ok=True)
        request = AdoptionRequest(task=secrets.token_hex(16), paths=[str(path)], commit=True)
        with pytest.raises(UsageError, match="directory of this receiver"):
            node.operator.adoptions.adopt(request)


def test_a_link_to_itself_is_no_directory_to_adopt(world: World, node: Node) -> None:
    loop = world.root / "loop"
    loop.symlink_to("loop")
    request = AdoptionRequest(task=secrets.token_hex(16), paths=[str(loop)], commit=True)
    with pytest.raises(NotFoundError):
        node.operator.adoptions.adopt(request)


def test_the_centre_itself_is_no_sender_of_adopted_files(node: Node, old: OldReceiverTree) -> None:
    old.loaded(FILES)
    for name in ("centre", centre_uuid(node.engine.uuid)):
        with pytest.raises(UsageError, match="came from a sender"):
            adopt(node, old, owner=name)


def test_a_sender_that_is_at_work_is_not_disturbed(node: Node, old: OldReceiverTree) -> None:
    edge = Edge(node, UUID)
    edge.check()
    edge.start(task := secrets.token_hex(16))
    old.loaded(FILES)
    old.owners(OWNERS)
    with pytest.raises(BusyError, match="a task that is not over"):
        adopt(node, old)
    edge.plan(task, entries({path_of(9): tsfile(first=100)}))


def test_many_files_go_in_several_tasks_that_tell_of_one_look(
    node: Node, old: OldReceiverTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bringing_in, "_TASK_FILES", 2)
    old.loaded({path_of(number): tsfile(first=number * 10) for number in range(5)})
    adopt(node, old, owner=UUID)
    rows = list_files(node.operator).files
    assert len({each.task for each in rows}) == 3
    with node.engine.reading() as state:
        assert len({row.rank.first for row in state.files.values()}) == 1
    assert all(each.adopted for each in rows)


def test_files_that_are_moved_are_the_old_ones_and_have_one_name_in_the_end(
    world: World, node: Node, old: OldReceiverTree
) -> None:
    half = {path_of(4): b"half"}
    old.loaded(FILES | half)
    owners = old.owners(OWNERS)
    inodes = {each.stat().st_ino for each in old.root.rglob("*.tsfile") if each.name != "x"}
    before = tree_of(old.home)
    assert not adopt(node, old, commit=False, move=True).committed
    assert tree_of(old.home) == before
    assert adopt(node, old, move=True).committed
    kept = {f"data/data/{path}": content for path, content in half.items()}
    assert tree_of(old.home) == {
        **kept,
        owners.relative_to(old.home).as_posix(): owners.read_bytes(),
    }
    assert sorted(world.loaded().values()) == sorted(FILES.values())
    placed = [each.stat() for each in world.data.rglob("*.tsfile")]
    assert {each.st_nlink for each in placed} == {1}
    assert {each.st_ino for each in placed} < inodes
    assert fsck_of(node).found == []


def test_a_file_that_has_another_name_is_not_moved(node: Node, old: OldReceiverTree) -> None:
    old.loaded({path_of(1): tsfile()})
    source = old.root / "data" / path_of(1)
    (old.root / "backup").hardlink_to(source)
    with pytest.raises(UsageError, match="another name"):
        adopt(node, old, owner=UUID, move=True)
    assert source.exists()
    assert adopt(node, old, owner=UUID).committed


def test_a_copy_that_was_made_before_leaves_the_old_file_when_the_rest_is_moved(
    node: Node, old: OldReceiverTree
) -> None:
    old.loaded({path_of(1): tsfile()})
    adopt(node, old, owner=UUID)
    old.loaded({path_of(2): tsfile(first=50)})
    adopt(node, old, owner=UUID, move=True)
    assert set(tree_of(old.home)) == {f"data/data/{path_of(1)}"}


def test_a_file_that_is_moved_is_flushed_before_it_is_in_its_place(
    node: Node, old: OldReceiverTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    old.loaded({path_of(1): tsfile()})
    passed: list[str] = []
    flush = Tree.sync_file

    def sync_file(tree: Tree, rel: str) -> None:
        flush(tree, rel)
        passed.append("flushed" if rel.endswith(".part") else "other")

    monkeypatch.setattr(Tree, "sync_file", sync_file)
    with crash.arm(passed.append):
        adopt(node, old, owner=UUID, move=True)
    linked, moved = passed.index("durable.link.after"), passed.index("intake.moved")
    assert "flushed" in passed[linked:moved]


@pytest.mark.parametrize("where", ["link_in", "stage"])
def test_files_that_are_moved_come_when_it_is_said_again_after_a_refusal_in_the_middle(
    world: World, node: Node, old: OldReceiverTree, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    files = {path_of(number): tsfile(first=50 * number) for number in (1, 2, 3)}
    old.loaded(files)
    calls: list[object] = []
    link = bringing_in.link_in

    def refusing(*given: object) -> object:
        calls.append(given)
        if where == "stage" or len(calls) == 3:
            raise NoSpaceError("no room")
        return link(*given)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        if where == "stage":
            patched.setattr(Intake, "stage", refusing)
        else:
            patched.setattr(bringing_in, "link_in", refusing)
        with pytest.raises(NoSpaceError):
            adopt(node, old, owner=UUID, move=True)
    assert list(Path(world.folder(UUID), "data", ".uploads").iterdir()) == []
    links = {name.stat().st_nlink for name in (old.root / "data").rglob("*.tsfile")}
    assert links == {1}
    assert adopt(node, old, owner=UUID, move=True).committed
    assert sorted(world.loaded().values()) == sorted(files.values())


def test_a_copy_of_a_file_that_somebody_writes_to_leaves_nothing(
    world: World, node: Node, old: OldReceiverTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    old.loaded({path_of(1): tsfile()})
    source = old.root / "data" / path_of(1)
    bring = bringing_in.copy_in

    def written(*given: object) -> object:
        source.write_bytes(tsfile(salt=1))
        return bring(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(bringing_in, "copy_in", written)
    request = AdoptionRequest(task="7" * 32, paths=[str(old.root)], commit=True, owner=UUID)
    with pytest.raises(DigestError):
        node.operator.adoptions.adopt(request)
    assert list(Path(world.folder(UUID), "data", ".uploads").iterdir()) == []


def test_what_is_being_adopted_while_its_storage_group_is_deleted_is_refused(
    node: Node, old: OldReceiverTree
) -> None:
    """And comes when it is said again: nothing of the old receiver has gone."""
    edge = Edge(node)
    edge.check()
    edge.round({path_of(9, sg="root.other"): tsfile("root.other.y")})
    old.loaded(FILES)
    old.owners(OWNERS)

    deleted: list[str] = []

    def delete(place: str) -> None:
        if place == "adoption.brought" and not deleted:
            deleted.append(place)
            execute(node.engine, "delete storage group root.other with data")

    other = path_of(3, sg="root.other")
    with crash.arm(delete):
        answer = adopt(node, old, move=True)
    [there] = [each for each in answer.files if each.path == other]
    assert (there.result, "was deleted while it" in (there.reason or "")) == ("refused", True)
    assert Path(there.source).exists()
    again = adopt(node, old)
    assert {each.result for each in again.files if each.path == other} == {"loaded"}
