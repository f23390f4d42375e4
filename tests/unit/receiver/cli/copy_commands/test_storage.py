"""`storage` and `restore`, with a directory as the store."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from common.digests import md5
from receiver.config import PricesConfig
from receiver.metadata.engine import Engine
from receiver.operator.stored.storage import running_storage
from tests.support.etcd import Etcd
from tests.support.machine import Machine
from tests.support.node_world import B, path_of
from tests.support.web import until


@pytest.fixture
def bucket(tmp_path: Path) -> Path:
    (tmp_path / "bucket").mkdir()
    return tmp_path / "bucket"


@pytest.fixture
def machine(tmp_path: Path, bucket: Path, capsys: pytest.CaptureFixture[str]) -> Machine:
    return Machine(tmp_path / "one", bucket, capsys)


def test_a_check_leaves_nothing_behind_and_says_what_is_wrong(
    machine: Machine, bucket: Path
) -> None:
    found = machine.asked("storage", "check")["findings"]
    assert len(found) == 10
    assert not any(each["problem"] for each in found)
    assert [each for each in bucket.rglob("*") if each.is_file()] == []
    shutil.rmtree(bucket)
    assert "No such file" in machine.command("storage", "check", code=1)


def test_status_without_a_server_tells_what_the_catalogue_knows(machine: Machine) -> None:
    machine.fill()
    found = machine.asked("storage", "status")
    assert (found["uploaded_files"], found["waiting_files"]) == (2, 0)
    said = machine.command("storage", "status")
    assert "in the store: 2 files" in said


def test_a_receiver_is_made_of_the_store_and_the_old_one_is_fenced_until_it_takes_over(
    machine: Machine, tmp_path: Path, bucket: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.fill()
    other = Machine(tmp_path / "two", bucket, capsys)
    assert "2 files" in other.command("restore")
    assert other.asked("restore")["there"] == 2  # said again it goes on
    assert "0 problems found" in other.command("fsck")
    with machine.world.node() as node:
        until(lambda: running_storage(node.operator).fenced)
        assert "storage takeover" in str(running_storage(node.operator).problem)
    assert "incarnation 4 " in machine.command("storage", "takeover")
    machine.fill(B, there=3)
    with other.world.node() as node:
        until(lambda: running_storage(node.operator).fenced)


def test_a_restore_may_leave_the_files_for_when_they_are_needed(
    machine: Machine, tmp_path: Path, bucket: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.fill()
    other = Machine(tmp_path / "two", bucket, capsys)
    assert "--on-demand" in other.command("restore", "--on-demand", "--from", "file:///x", code=2)
    found = other.asked("restore", "--on-demand")
    assert (found["fetched"], found["left"], found["lacking"]) == (0, 2, [])
    with other.world.node() as node:
        with node.engine.reading() as state:
            rows = sorted(state.files.values(), key=lambda row: row.path)
        assert all(row.visible for row in rows)
        first = rows[0]
        assert md5(node.content.read(first, 0, first.size)).hexdigest() == first.md5
        until(lambda: node.storage is not None and node.storage.disk_room.fetch([first], 10.0).here)
    found = other.asked("restore")  # and the rest
    assert (found["fetched"], found["there"]) == (1, 1)


def test_what_is_not_in_the_store_is_named(
    machine: Machine, tmp_path: Path, bucket: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.fill()
    for each in bucket.glob("*/data/*/sequence/**/*.tsfile"):
        if "-2-0" in each.name:
            each.unlink()
    other = Machine(tmp_path / "two", bucket, capsys)
    found = other.asked("restore", code=3)
    assert [each["path"] for each in found["lacking"]] == [path_of(2)]


def test_a_machine_that_was_lost_before_its_first_copy_of_the_log_cannot_be_made_again(
    machine: Machine, tmp_path: Path, bucket: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.fill()
    for each in list(bucket.glob("*/manifests/*")):
        each.unlink()
    other = Machine(tmp_path / "two", bucket, capsys)
    there = sorted(bucket.rglob("*"))
    for more in ((), ("--check",)):
        said = other.command("restore", *more, code=2)
        assert "its machine was lost before the first one had come" in said
    assert not (tmp_path / "two" / "schema").exists(), "nothing is made"
    assert sorted(bucket.rglob("*")) == there, "and nobody is fenced off"
    for each in list(bucket.rglob("*")):
        if each.is_file():
            each.unlink()
    assert "no centre has copied anything there" in other.command("restore", code=2)


def test_what_requests_cost_is_said_where_their_prices_are_known(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.fill()
    prices = PricesConfig(currency="EUR", put=5.0, get=0.4)
    machine.world.storage = {**machine.world.storage, "prices": prices}
    with machine.world.node() as node:
        until(lambda: running_storage(node.operator).shipped)
        assert running_storage(node.operator).costs == {}, "a directory asks no price"
        assert node.storage is not None
        assert node.storage._store is not None
        node.storage._store.requests = {"put": 3000, "get": 500, "head": 7}
        found = running_storage(node.operator)
        assert found.costs == pytest.approx({"put": 15.0, "get": 0.2})
    monkeypatch.setattr("receiver.cli.copy_commands.storage.ask", lambda *_: found)
    said = machine.command("storage", "status")
    assert "cost:         15.2000 EUR (get 0.2000, put 15.0000)" in said
    assert "3000 put" in said


def test_a_restore_touches_no_other_engine(
    machine: Machine, tmp_path: Path, bucket: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.fill()
    (tmp_path / "another").mkdir()
    other = Machine(tmp_path / "two", tmp_path / "another", capsys)
    other.fill()
    before = sorted(each.name for each in (other.world.root / "schema").iterdir())
    said = other.command("restore", "--from", bucket.as_uri(), code=2)
    assert "another engine" in said
    assert sorted(each.name for each in (other.world.root / "schema").iterdir()) == before
    loaded = other.world.loaded()
    shutil.rmtree(other.world.root / "schema")
    said = other.command("restore", "--from", bucket.as_uri(), code=2)
    assert "belongs to the engine" in said
    assert other.world.loaded() == loaded
    assert not (other.world.root / "schema").exists()
    shutil.rmtree(tmp_path / "another")


def test_a_restore_to_a_moment_takes_nothing_back_of_what_is_there(
    machine: Machine, tmp_path: Path, bucket: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.fill()
    for each in bucket.glob("*/data/*/sequence/**/*.tsfile"):
        if "-2-0" in each.name:
            each.unlink()
    with Engine.read_only(machine.world.root / "schema") as engine:
        newest = engine.newest_commit
    other = Machine(tmp_path / "two", bucket, capsys)
    other.asked("restore", "--at", str(newest), code=3)  # which says so by commits of its own
    again = other.asked("restore", "--at", str(newest), code=3)
    assert (again["there"], [each["path"] for each in again["lacking"]]) == (1, [path_of(2)])
    assert "commits of after" in other.command("restore", "--at", str(newest - 1), code=2)
    other.fill(B, there=3)
    assert "commits of after" in other.command("restore", "--at", str(newest), code=2)


def test_a_directory_that_is_older_than_the_copies_is_not_taken_for_restored(
    tmp_path: Path, bucket: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a machine that was turned back has it: what it lacks would be given up unseen."""
    machine = Machine(tmp_path / "centre", bucket, capsys)
    machine.fill()
    schema = tmp_path / "centre" / "schema"
    shutil.copytree(schema, tmp_path / "kept")
    machine.fill(B, there=3)
    shutil.rmtree(schema)
    shutil.copytree(tmp_path / "kept", schema)
    assert "older than the copies" in machine.command("restore", code=2)
    shutil.rmtree(schema)
    assert machine.asked("restore")["lacking"] == []
    assert machine.asked("restore")["there"] == 3


def test_long_work_shows_on_a_terminal_how_far_it_is_and_nowhere_else(
    machine: Machine,
    tmp_path: Path,
    bucket: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine.fill()
    other = Machine(tmp_path / "two", bucket, capsys)
    there = str(tmp_path / "backup")
    work = [
        (machine, "backup", there),
        (machine, "restore", "--check"),
        (machine, "fsck", "--storage"),
        (other, "restore"),
    ]
    assert not any("\r" in at.command(*command) for at, *command in work)
    shutil.rmtree(tmp_path / "two" / "schema")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    shown = {command[0]: at.command(*command) for at, *command in work}
    for said in shown.values():
        assert "\rfiles: " in said
        assert "0 of 2\r" in said
        assert said.endswith(" \r")  # no trace of it stays
    assert "\rpieces of the log: " in shown["restore"]
    assert not any("\r" in at.command(*command, "--json") for at, *command in work)


def test_a_restore_into_an_empty_prefix_of_etcd_begins_its_log_and_may_be_said_again(
    machine: Machine,
    tmp_path: Path,
    bucket: Path,
    capsys: pytest.CaptureFixture[str],
    shared_etcd: Etcd,
) -> None:
    machine.fill()
    settings = shared_etcd.settings()
    other = Machine(tmp_path / "two", bucket, capsys)
    other.over_etcd(settings)
    assert other.asked("restore")["fetched"] == 2
    assert other.asked("restore")["there"] == 2
    shutil.rmtree(tmp_path / "two" / "schema")
    assert other.asked("fsck", "--repair")["files"] == 2  # made anew from etcd


def test_a_restore_where_etcd_has_commits_is_refused_before_it_takes_over(
    machine: Machine,
    tmp_path: Path,
    bucket: Path,
    capsys: pytest.CaptureFixture[str],
    shared_etcd: Etcd,
) -> None:
    """What is there wins at every start: what was restored would be set aside."""
    machine.fill()
    (tmp_path / "another").mkdir()
    third = Machine(tmp_path / "three", tmp_path / "another", capsys)
    settings = shared_etcd.settings()
    third.over_etcd(settings)
    third.command("restore", "--from", bucket.as_uri())
    other = Machine(tmp_path / "two", bucket, capsys)
    other.over_etcd(settings)
    before = sorted(each.name for each in bucket.glob("*/owners/*"))
    assert "commits of engine" in other.command("restore", code=2)
    assert not (tmp_path / "two" / "schema").exists()
    assert sorted(each.name for each in bucket.glob("*/owners/*")) == before


def test_taking_back_is_for_the_store_and_changes_nothing_where_all_is_told(
    machine: Machine,
) -> None:
    machine.fill()
    assert "expected with --storage" in machine.command("fsck", "--adopt", code=2)
    assert machine.asked("fsck", "--storage", "--adopt")["found"] == []
