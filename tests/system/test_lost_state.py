"""Memory that is lost, old, somebody else's, or there twice: the next round puts all right."""

from __future__ import annotations

import json
import shutil
import threading
from pathlib import Path

import pytest

from common import crash
from common.crash import SimulatedCrash
from receiver.metadata.state.table_rows import FileState
from sender.kept import identity
from tests.support import warm
from tests.support.centre import COMMAND as RECEIVER
from tests.support.centre import centre as serving
from tests.support.edge import Edge
from tests.support.faultproxy import FaultProxy
from tests.support.looking import in_sync, loaded, once, states
from tests.system.sender.test_rounds import call

ALL = {"propagate_deletes": "all"}


def save(centre, where: Path) -> None:
    """Copy the directories of a receiver that does not run."""
    for name in ("schema", "data"):
        shutil.copytree(centre.root / name, where / name, symlinks=True)


def restore(centre, where: Path) -> None:
    for name in ("schema", "data"):
        shutil.rmtree(centre.root / name)
        shutil.copytree(where / name, centre.root / name, symlinks=True)


def rest(edge: Edge) -> None:
    """Rounds until there is nothing to do."""
    for _ in range(4):
        report = edge.round()
        assert report.error is None, report.error
        if report.quiet:
            return
    raise AssertionError(report.as_json())


def died(edge: Edge, at: str) -> None:
    def die(here: str) -> None:
        if here == at:
            raise SimulatedCrash(here)

    with crash.arm(die), pytest.raises(SimulatedCrash):
        edge.round()


def operator(centre, *arguments: str) -> int:
    done = warm.run([RECEIVER, "--config", str(centre.config), *arguments])
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode


# -- the receiver's memory -------------------------------------------------------------------------


def test_after_an_old_copy_comes_back_nothing_is_missing_twice_or_deleted_by_mistake(
    centre, make_edge, tmp_path
):
    edge = make_edge(centre.start(), **ALL)
    for number in range(20):
        edge.write(number)
    edge.round()
    centre.stop()
    save(centre, tmp_path / "copy")
    centre.start()
    edge.write(30)
    edge.write(1, points=55)
    for number in range(10, 20):
        edge.remove(edge.path(number))
    product = edge.write(10, level=1, first=10_000, points=10_000)
    assert edge.round().exit_code == 0
    in_sync(edge, centre.root)
    centre.stop()
    restore(centre, tmp_path / "copy")
    centre.start()
    report = edge.round()
    assert report.error is None, report.error
    assert report.deleted == 0, "deletions wait for the round after"
    there = loaded(centre.root, edge.uuid)
    with_ends = {product, edge.path(1)}  # what was made of others, or takes another's place
    originals = {path: md5 for path, md5 in edge.files.items() if path not in with_ends}
    assert {path: there[path] for path in originals} == originals
    assert product not in there
    rest(edge)
    in_sync(edge, centre.root)
    once(centre.root, edge.uuid)


def test_an_old_copy_that_has_what_was_deleted_since_keeps_it_until_the_operator_says_so(
    centre, make_edge, tmp_path
):
    edge = make_edge(centre.start(), **ALL)
    for number in range(3):
        edge.write(number)
    edge.round()
    centre.stop()
    save(centre, tmp_path / "copy")
    centre.start()
    edge.remove(edge.path(0))
    assert edge.round().deleted == 1
    centre.stop()
    restore(centre, tmp_path / "copy")
    centre.start()
    for _ in range(3):
        report = edge.round()
        assert [each.file for each in report.held] == [edge.path(0)]
        assert len(loaded(centre.root, edge.uuid)) == 3
    assert "--accept-source" in report.held[0].reason
    assert edge.round(accept_source=True).deleted == 1
    in_sync(edge, centre.root)


@pytest.mark.few(1)
@pytest.mark.parametrize("step", ["task.file.recorded", "task.ended", "task.end.sent"])
def test_an_old_copy_that_comes_back_in_the_middle_of_a_task_is_put_right(
    centre, make_edge, tmp_path, step
):
    edge = make_edge(centre.start(), **ALL)
    edge.write(1)
    edge.write(2)
    edge.round()
    centre.stop()
    save(centre, tmp_path / "copy")
    centre.start()
    edge.write(3)
    edge.remove(edge.path(2))
    died(edge, step)
    centre.stop()
    restore(centre, tmp_path / "copy")
    centre.start()
    assert edge.round().error is None
    edge.round(accept_source=True)  # the copy has the file that was deleted
    rest(edge)
    in_sync(edge, centre.root)
    once(centre.root, edge.uuid)


@pytest.mark.few(1)
@pytest.mark.parametrize("step", ["task.file.recorded", "task.ended", "task.noted"])
def test_an_empty_receiver_in_the_place_of_the_old_one_gets_everything_once(
    centre, make_edge, step
):
    edge = make_edge(centre.start(), **ALL)
    for number in range(4):
        edge.write(number)
    edge.round()
    edge.write(5)
    edge.remove(edge.path(0))
    died(edge, step)
    centre.stop()
    for name in ("schema", "data"):
        shutil.rmtree(centre.root / name)
    centre.data.mkdir()
    centre.start()
    report = edge.round()
    assert (report.error, report.deleted) == (None, 0)
    rest(edge)
    in_sync(edge, centre.root)
    once(centre.root, edge.uuid)


def test_a_receiver_that_has_the_files_already_gets_no_byte_again(centre, make_edge, tmp_path):
    """The old receiver dies; its address now belongs to one that this edge fed as well."""
    with serving(tmp_path / "standby") as standby:
        standby.start()
        centre.start()
        with FaultProxy(("127.0.0.1", standby.port)) as second:
            edge = make_edge(second.url, **ALL)
            for number in range(5):
                edge.write(number)
            assert edge.round().exit_code == 0
            with FaultProxy(("127.0.0.1", centre.port)) as first:
                edge.with_url(first.url)
                assert edge.round().sent == 5
                centre.stop()
                edge.remove(edge.path(0))
                first.target = ("127.0.0.1", standby.port)
                report = edge.round()  # it is known by its engine, whatever its address
                assert (report.bytes, report.deleted, report.error) == (0, 1, None)
                edge.write(9)
                report = edge.round()
                assert (report.sent, report.deleted, report.error) == (1, 0, None)
        assert loaded(standby.root, edge.uuid) == edge.files
        once(standby.root, edge.uuid)


def test_a_file_lost_from_the_receivers_disk_comes_again_after_fsck(centre, make_edge):
    edge = make_edge(centre.start(), **ALL)
    for number in range(3):
        edge.write(number)
    edge.round()
    centre.stop()
    (lost,) = centre.data.glob("sequence/**/*-1-0-0.*.tsfile")
    lost.unlink()
    assert operator(centre, "fsck") == 1, "it says so"
    assert operator(centre, "fsck", "--repair") in (0, 1)
    centre.start()
    report = edge.round()
    assert (report.sent, report.exit_code) == (1, 0), report.as_json()
    in_sync(edge, centre.root)


# -- the sender's memory ---------------------------------------------------------------------------


LISTS = ["last_local_files.txt", "local_files.state", "receiver.json"]


@pytest.mark.few(4)
@pytest.mark.parametrize("damage", ["lost", "empty", "torn", "garbage"])
@pytest.mark.parametrize("name", LISTS)
def test_a_lost_or_damaged_list_sends_and_deletes_nothing_again(shared, make_edge, name, damage):
    edge = make_edge(shared.url, **ALL)
    for number in range(6):
        edge.write(number)
    edge.round()
    (place,) = [*edge.data.glob(f"sync-sender/*/{name}"), *edge.schema.glob(f"sync/*/{name}")]
    content = place.read_bytes()
    match damage:
        case "lost":
            place.unlink()
        case "empty":
            place.write_bytes(b"")
        case "torn":
            place.write_bytes(content[: len(content) // 2])
        case "garbage":
            place.write_bytes(b"\x00\xff" * 100)
    edge.remove(edge.path(0))
    edge.write(7)
    report = edge.round()
    if name == "receiver.json":
        # The epoch is lost: this might be a clone, which only the operator can tell.
        assert report.exit_code == 4
        assert "senders accept" in report.error.message
        assert operator(shared, "senders", "accept", edge.uuid) == 0
        report = edge.round()
    assert (report.sent, report.error) == (1, None), report.as_json()
    assert report.bytes < 1000, "no other file travels"
    rest_of = loaded(shared.root, edge.uuid)
    assert {path: rest_of[path] for path in edge.files} == edge.files
    edge.round(accept_source=True)
    in_sync(edge, shared.root)
    once(shared.root, edge.uuid)


def test_a_sender_restored_from_an_old_copy_is_put_right_by_the_operators_word(
    shared, make_edge, tmp_path
):
    edge = make_edge(shared.url, **ALL)
    edge.write(1)
    edge.round()
    shutil.copytree(edge.root, tmp_path / "copy")
    for number in (2, 3):
        edge.write(number)
        edge.round()
    files = edge.files
    contents = {path: edge.content(path) for path in files}
    shutil.rmtree(edge.root)
    shutil.copytree(tmp_path / "copy", edge.root)
    for path, content in contents.items():
        edge.put(path, content)
    report = edge.round()
    assert report.exit_code == 4, "it might be a clone"
    assert operator(shared, "senders", "accept", edge.uuid) == 0
    report = edge.round()
    assert (report.bytes, report.deleted, report.exit_code) == (0, 0, 0), report.as_json()
    in_sync(edge, shared.root)
    once(shared.root, edge.uuid)


# -- clones ----------------------------------------------------------------------------------------


@pytest.fixture
def twins(shared, make_edge, tmp_path):
    """An edge and its copy, which have had a round before they became two."""
    edge = make_edge(shared.url)
    edge.write(1)
    assert edge.round().exit_code == 0
    shutil.copytree(edge.root, tmp_path / "twin")
    twin = Edge(tmp_path / "twin", shared.url)
    twin.sg = f"{edge.sg}.twin"
    assert twin.uuid == edge.uuid
    return edge, twin


def test_clones_by_turns_are_noticed_and_a_new_identity_heals(shared, twins):
    edge, twin = twins
    twin.write(10)
    assert twin.round().exit_code == 0, "nobody can know yet"
    edge.write(2)
    report = edge.round()
    assert report.exit_code == 4
    assert report.error.slug == "clone"
    assert "init --new-identity" in report.error.message
    before = loaded(shared.root, edge.uuid)
    assert edge.round().exit_code == 4, "again and again"
    assert loaded(shared.root, edge.uuid) == before
    config = twin.write_config()
    assert call(config, "init", "--new-identity").returncode == 0
    assert identity.read(twin.schema) != edge.uuid
    assert operator(shared, "senders", "accept", edge.uuid) == 0
    report = edge.round()
    # What the twin has sent under this name is not here: it is retired, and stays.
    assert (report.error, report.deleted, report.retired) == (None, 0, 1), report.as_json()
    assert edge.path(2) in loaded(shared.root, edge.uuid)
    assert edge.round().error is None


def test_clones_at_the_same_time_are_noticed(shared, twins):
    edge, twin = twins
    for each in (edge, twin):
        for number in range(20, 40):
            each.write(number)
    reports: dict[str, list] = {"edge": [], "twin": []}
    start = threading.Barrier(2)

    def work(name: str, each: Edge) -> None:
        start.wait()
        for number in range(4):
            each.write(50 + number)
            reports[name].append(each.round())

    threads = [
        threading.Thread(target=work, args=("edge", edge)),
        threading.Thread(target=work, args=("twin", twin)),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    clones = {
        name: [each for each in found if each.error is not None and each.error.slug == "clone"]
        for name, found in reports.items()
    }
    refused = [name for name, found in clones.items() if found]
    assert refused, {name: [each.as_json() for each in found] for name, found in reports.items()}
    assert all("--new-identity" in each.error.message for name in refused for each in clones[name])
    once(shared.root, edge.uuid)
    assert not states(shared.root, edge)[FileState.DELETED]


def test_a_node_that_was_only_restarted_is_no_clone(shared, make_edge):
    edge = make_edge(shared.url)
    for number, step in enumerate(["task.begun", "task.started", "task.epoch", "task.end.sent"]):
        edge.write(number)
        died(edge, step)
        report = edge.round()
        assert report.exit_code == 0, (step, report.as_json())
    in_sync(edge, shared.root)


def test_the_operator_sees_what_became_of_a_clone(shared, twins):
    edge, twin = twins
    twin.write(10)
    twin.round()
    config = edge.write_config()
    edge.write(2)
    done = call(config, "sync")
    assert done.returncode == 4
    assert "--new-identity" in done.stdout + done.stderr
    found = json.loads(call(config, "status", "--json").stdout)["receivers"]["dc1"]
    assert "--new-identity" in json.dumps(found)
