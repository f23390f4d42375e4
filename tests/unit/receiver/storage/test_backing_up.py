"""A backup is whole whenever it was made, beside whatever goes on, and a receiver is made of it."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from common import crash
from common.durable import Tree
from common.errors import TsferryError
from receiver.cli.commands import cli
from receiver.config import ReceiverConfig
from receiver.metadata.engine import Engine
from receiver.metadata.model import records
from receiver.node import Node
from receiver.operator.directories import look
from receiver.operator.stored.storage import running_storage
from receiver.storage.backing_up import BackedUp, back_up
from receiver.storage.objects.object_check import CopiesReport
from receiver.storage.restore_check import check_restore
from receiver.storage.stores.directory_store import DirectoryStore
from tests.support.copy_nodes import place_tablets
from tests.support.node_world import Edge, World, fsck_of, path_of, tsfile
from tests.support.proving import Site, in_this_process
from tests.support.web import until


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path / "centre", clock=time.time)
    made.root.mkdir()
    write_config(made.root, made.root)
    return made


def write_config(place: Path, root: Path) -> None:
    place.mkdir(exist_ok=True)
    (place / "receiver.toml").write_text(
        f'schema_dir = "{root}/schema"\ndata_dirs = ["{root}/data", "{root}/data2"]\n'
    )


def command(place: Path, *arguments: object, code: int = 0) -> dict[str, Any]:
    given = ["--config", str(place / "receiver.toml"), *map(str, arguments), "--json"]
    done = CliRunner().invoke(cli, given, standalone_mode=False)
    if isinstance(done.exception, TsferryError):
        assert done.exception.exit_code == code, done.exception
        return {}
    assert (done.return_value or 0) == code, (done.output, done.exception)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@contextmanager
def as_it_is(config: ReceiverConfig) -> Iterator[tuple[Engine, Sequence[Tree]]]:
    with look(config) as there:
        yield there.engine, there.trees


def copy(world: World, place: Path) -> BackedUp:
    place.mkdir(exist_ok=True)
    store = DirectoryStore(place)
    try:
        with Tree(world.config.schema_dir) as home:
            return back_up(store, home, lambda: as_it_is(world.config))
    finally:
        store.close()


def check(place: Path, scratch: Path) -> CopiesReport:
    store = DirectoryStore(place)
    try:
        return check_restore(store, scratch, deep=True)
    finally:
        store.close()


def test_a_receiver_is_backed_up_again_and_again_and_made_anew(
    world: World, tmp_path: Path
) -> None:
    place, url = tmp_path / "backup", (tmp_path / "backup").as_uri()
    with world.node() as node:
        edge = Edge(node)
        edge.round({path_of(1): tsfile(), path_of(2): tsfile(salt=2)}, resources={path_of(1): b"r"})
        found = command(world.root, "backup", place)
        assert (found["copied"], found["files"], found["lacking"]) == (2, 2, [])
        edge.round({path_of(3): tsfile(salt=3)})
        node.engine.checkpoint()
        assert command(world.root, "backup", place)["copied"] == 1
    assert command(world.root, "backup", place)["copied"] == 0
    found = command(world.root, "restore", "--from", url, "--check", "--deep")
    assert (found["files"], found["found"]) == (3, [])
    assert sorted(each.name for each in world.root.iterdir() if each.is_dir()) == [
        "data",
        "data2",
        "schema",
    ]
    new = tmp_path / "new"
    write_config(new, new)
    (new / "data2").mkdir()
    found = command(new, "restore", "--from", url)
    assert (found["fetched"], found["lacking"]) == (3, [])
    again = World(new, clock=time.time)
    assert again.loaded() == world.loaded()
    (tmp_path / "bucket").mkdir()
    again.storage = {"url": (tmp_path / "bucket").as_uri(), "lag": 0.1}
    with again.node() as node:
        until(lambda: running_storage(node.operator).uploaded_files == 3)
        edge.node = node
        edge.round({path_of(4): tsfile(salt=4)})
        assert command(new, "backup", place)["copied"] == 1
    command(world.root, "backup", place, code=1)
    assert command(new, "restore", "--from", url, "--check", "--deep")["files"] == 4


def test_what_is_damaged_or_gone_in_a_backup_is_named(world: World, tmp_path: Path) -> None:
    place, url = tmp_path / "backup", (tmp_path / "backup").as_uri()
    with world.node() as node:
        Edge(node).round({path_of(each): tsfile(salt=each) for each in range(1, 4)})
    command(world.root, "backup", place)
    one, two, _ = sorted(place.glob("*/data/*/sequence/**/*.tsfile"))
    one.write_bytes(one.read_bytes()[:-1] + b"?")
    two.unlink()
    found = command(world.root, "restore", "--from", url, "--check", code=1)
    assert [each["kind"] for each in found["found"]] == ["lacking"]
    found = command(world.root, "restore", "--from", url, "--check", "--deep", code=1)
    assert sorted(each["kind"] for each in found["found"]) == ["damaged", "lacking"]
    log = next(each for each in place.glob("*/log/**/mlog-*") if each.is_file())
    log.write_bytes(log.read_bytes()[:-1] + b"?")
    found = command(world.root, "restore", "--from", url, "--check", code=1)
    assert [each["kind"] for each in found["found"]] == ["log"]
    assert command(world.root, "backup", place)["copied"] == 1, "what is gone comes again"


def test_a_file_that_is_bad_here_is_named_and_the_others_are_copied(
    world: World, tmp_path: Path
) -> None:
    with world.node() as node:
        Edge(node).round({path_of(1): tsfile(), path_of(2): tsfile(salt=2)})
    name = sorted(world.loaded())[0]
    (world.data / name).write_bytes(b"bad")
    found = command(world.root, "backup", tmp_path / "backup", code=3)
    assert (found["copied"], len(found["lacking"])) == (1, 1)


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long)])
def test_a_backup_beside_a_receiver_at_work_has_all_files_of_its_commit(
    world: World, tmp_path: Path, seed: int
) -> None:
    play, stop = random.Random(seed), threading.Event()

    def work(node: Node) -> None:
        edge, number, there = Edge(node), 0, list[int]()
        while not stop.is_set():
            number += 1
            gone = [there.pop(0)] if len(there) > 4 else []
            edge.round(
                {path_of(number): tsfile(salt=number)}, deleted=[path_of(each) for each in gone]
            )
            there.append(number)
            if play.random() < 0.3:
                node.engine.checkpoint()

    with world.node() as node:
        thread = threading.Thread(target=work, args=(node,))
        thread.start()
        try:
            for number in range(4):
                made = copy(world, tmp_path / "backup")
                assert made.lacking == []
                report = check(tmp_path / "backup", tmp_path / f"scratch-{number}")
                assert report.found == []
                assert report.commit == made.commit
        finally:
            stop.set()
            thread.join()


def test_what_has_left_for_storage_nodes_comes_by_the_server_checked(
    world: World, tmp_path: Path
) -> None:
    with world.node() as node:
        Edge(node).round({path_of(1): tsfile(salt=1)})
        place_tablets(node.engine)
        with node.engine.reading() as state:
            (physical,), (placed,) = state.files, state.placement_table.rows.values()
        node.engine.commit([records.FileReleased(physical, placed.tablet, 1, placed.nodes)])
        bytes_of = (world.data / physical).read_bytes()
        (world.data / physical).unlink()

    def given(asked: str, begin: int, length: int) -> bytes:
        assert asked == physical
        return content[begin : begin + length]

    for content in (bytes_of[:-1] + b"?", bytes_of):
        with Tree(world.config.schema_dir) as home, closing(_store(tmp_path / "backup")) as store:
            made = back_up(store, home, lambda: as_it_is(world.config), given=given)
        assert [row.physical for row, _ in made.lacking] == ([physical] * (content != bytes_of))
    lacking = copy(world, tmp_path / "other").lacking  # nobody gives it
    assert [why for _, why in lacking] == [f"{physical} is in no data directory"]


def _store(place: Path) -> DirectoryStore:
    place.mkdir(exist_ok=True)
    return DirectoryStore(place)


def test_a_backup_that_was_cut_off_is_the_one_before_and_goes_on(
    world: World, tmp_path: Path
) -> None:
    place = tmp_path / "backup"
    with world.node() as node:
        edge = Edge(node)
        edge.round({path_of(1): tsfile(salt=1)})
        before = copy(world, place)
        edge.round({path_of(number): tsfile(salt=number) for number in (2, 3, 4)})
        seen = list[str]()
        for step in range(0, 200, 7):
            passed = [0]

            def die(name: str, step: int = step, passed: list[int] = passed) -> None:
                passed[0] += 1
                if passed[0] == step + 1:
                    seen.append(name)
                    raise crash.SimulatedCrash

            try:
                with crash.arm(die):
                    copy(world, place)
                break
            except crash.SimulatedCrash:
                report = check(place, tmp_path / f"scratch-{step}")
                assert report.found == []
                assert report.commit >= before.commit
        assert seen
        found = copy(world, place)
        assert (found.files, found.lacking) == (4, [])
        assert check(place, tmp_path / "scratch").commit == node.engine.newest_commit


def test_the_store_of_a_receiver_is_checked_and_put_right_by_command(
    world: World, tmp_path: Path
) -> None:
    bucket = tmp_path / "bucket"
    bucket.mkdir()
    world.storage = {"url": bucket.as_uri(), "lag": 0.1}
    with (world.root / "receiver.toml").open("a") as file:
        file.write(f'[storage]\nurl = "{bucket.as_uri()}"\n')
    with world.node() as node:
        Edge(node).round({path_of(1): tsfile(), path_of(2): tsfile(salt=2)})
        until(lambda: running_storage(node.operator).uploaded_files == 2)
        assert command(world.root, "fsck", "--storage")["found"] == []
        next(bucket.glob("*/data/*/sequence/**/*.tsfile")).unlink()
        (found,) = command(world.root, "fsck", "--storage", code=1)["found"]
        assert (found["kind"], found["repaired"]) == ("missing", False)
        command(world.root, "fsck", "--storage", "--repair", code=5)
    assert command(world.root, "backup", tmp_path / "one")["copied"] == 2
    assert command(world.root, "backup", tmp_path / "two")["copied"] == 2
    (found,) = command(world.root, "fsck", "--storage", "--repair")["found"]
    assert found["repaired"]
    assert command(world.root, "fsck", "--storage", "--deep")["found"] == []
    command(world.root, "fsck", "--deep", code=2)


def test_what_is_superseded_and_in_no_backup_never_comes_back_without_its_bytes(
    world: World, tmp_path: Path
) -> None:
    place = tmp_path / "backup"
    old, kept, product = path_of(1), path_of(2), path_of(1, inner=1)
    with world.node() as node:
        in_this_process(node)
        site = Site(node)
        site.round({old: {"a": {1: 1}}, kept: {"a": {2: 2}}})
        copy(world, place)
        site.round({path_of(3): {"a": {3: 3}}})
        site.round({product: {"a": {1: 1, 2: 2, 3: 3}}}, [old, kept, path_of(3)])
        assert node.prover.run_once() == 3
        upper, lower = site.row(product).physical, site.row(kept).physical
    copy(world, place)
    new = tmp_path / "new"
    write_config(new, new)
    found = command(new, "restore", "--from", place.as_uri())
    assert (found["fetched"], found["lacking"]) == (3, [])
    with World(new).node() as node:
        assert fsck_of(node).found == []
        node.engine.commit([records.FileQuarantined(upper, "by hand")])
        with node.engine.reading() as state:
            seen = {row.physical for row in state.files.values() if row.visible}
        assert lower in seen
        assert {each for each in seen if not (new / "data" / each).exists()} == set()


@pytest.mark.parametrize("there", ["whole", "damaged", "away"])
def test_what_is_in_the_object_store_only_comes_from_there(tmp_path: Path, there: str) -> None:
    bucket, place = tmp_path / "bucket", tmp_path / "backup"
    bucket.mkdir()
    world = World(tmp_path / "centre", clock=time.time, storage={"url": bucket.as_uri()})
    with world.node() as node:
        edge = Edge(node)
        edge.round({path_of(1): tsfile(), path_of(2): tsfile(salt=2)}, resources={path_of(1): b"r"})
        until(lambda: running_storage(node.operator).uploaded_files == 2)
    write_config(world.root, world.root)
    with (world.root / "receiver.toml").open("a") as file:
        file.write(f'[storage]\nurl = "{bucket.as_uri()}"\n')
    (gone,) = world.data.rglob("*-1-0.*.tsfile")
    gone.unlink()
    gone.with_name(f"{gone.name}.resource").unlink()
    if there == "damaged":
        (stored,) = bucket.glob("*/data/**/*-1-0.*.tsfile")
        stored.write_bytes(stored.read_bytes()[:-1] + b"?")
    elif there == "away":
        bucket.rename(tmp_path / "away")
        bucket.mkdir()
    found = command(world.root, "backup", place, code=0 if there == "whole" else 3)
    assert [each["path"] for each in found["lacking"]] == [path_of(1)] * (there != "whole")
    assert check(place, tmp_path / "scratch").good is (there == "whole")
