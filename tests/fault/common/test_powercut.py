"""The door to the disk and true power cuts: what returned is there, what did not is old or new."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import suppress

import pytest

from common.durable import Tree
from common.errors import DiskError, FailedSyncError, NoSpaceError, ReadOnlyError
from common.formats.linelog import Phase, SyncLog, parse_sync
from common.names import FilePath
from tests.support import powercut
from tests.support.architecture import ROOT
from tests.support.disk import heal


@pytest.fixture(autouse=True)
def _healthy(monkeypatch):
    heal(monkeypatch)


@pytest.fixture
def disk(tmp_path):
    with powercut.disk(tmp_path) as disk:
        yield disk


def content(disk):
    return {
        str(path.relative_to(disk.path)): path.read_bytes()
        for path in disk.path.rglob("*")
        if path.is_file()
    }


# -- the rig itself can fail ---------------------------------------------------------------------


def test_the_rig_loses_what_was_not_synced(disk):
    (disk.path / "x").write_bytes(b"1")
    disk.cut()
    assert content(disk) == {}


def test_the_rig_empties_what_was_renamed_before_it_was_synced(disk):
    with Tree(disk.path) as tree:
        tree.write_atomic("x", b"old")
    (disk.path / "y").write_bytes(b"new")
    os.rename(disk.path / "y", disk.path / "x")
    directory = os.open(disk.path, os.O_RDONLY)
    os.fsync(directory)
    os.close(directory)
    disk.cut()
    assert content(disk) == {"x": b""}


def test_the_rig_loses_a_name_whose_directory_was_not_synced(disk):
    with Tree(disk.path) as tree:
        tree.write_atomic("x", b"1")
        tree.link("x", "y", sync=False)
        tree.rename("x", "z", sync=False)
    disk.cut()
    assert content(disk) == {"x": b"1"}


def test_what_is_closed_in_good_order_stays(disk):
    (disk.path / "x").write_bytes(b"1")
    disk.unmount()
    disk.check()
    disk.mount()
    assert content(disk) == {"x": b"1"}


def test_a_disk_comes_back_though_somebody_elses_namespace_keeps_the_dead_one(disk):
    holder = subprocess.Popen(
        ["unshare", "--mount", "sh", "-c", "echo begun; exec cat"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with holder:
        assert holder.stdout.readline() == b"begun\n"  # and no unmounting reaches it
        for number in range(3):
            with Tree(disk.path) as tree:
                tree.write_atomic(f"x{number}", b"1")
            (disk.path / "y").write_bytes(b"2")
            disk.cut()
            assert content(disk) == {f"x{each}": b"1" for each in range(number + 1)}
        holder.stdin.close()
    disk.unmount()
    disk.check()


# -- what returned is there ----------------------------------------------------------------------


def started(tree):
    tree.make_dirs("a/b")
    tree.write_atomic("old", b"old")
    tree.write_atomic("a/old", b"old")


RETURNED = {
    "write_atomic": (
        lambda tree: tree.write_atomic("a/new", b"x" * 100_000),
        {"a/new": b"x" * 100_000},
    ),
    "write_atomic over": (lambda tree: tree.write_atomic("old", b"new"), {"old": b"new"}),
    "make_dirs": (
        lambda tree: (tree.make_dirs("n/e/w"), tree.write_atomic("n/e/w/x", b"1")),
        {"n/e/w/x": b"1"},
    ),
    "rename": (lambda tree: tree.rename("old", "a/b/new"), {"old": None, "a/b/new": b"old"}),
    "rename over": (lambda tree: tree.rename("old", "a/old"), {"old": None, "a/old": b"old"}),
    "exclusive rename": (
        lambda tree: tree.rename("old", "a/new", replace=False),
        {"old": None, "a/new": b"old"},
    ),
    "link": (lambda tree: tree.link("old", "a/new"), {"a/new": b"old"}),
    "copy": (lambda tree: tree.copy("old", "a/new"), {"a/new": b"old"}),
    "unlink": (lambda tree: tree.unlink("old"), {"old": None}),
    "remove_empty": (
        lambda tree: (tree.unlink("a/old"), tree.remove_empty("a/b"), tree.remove_empty("a")),
        {"a/old": None},
    ),
}


@pytest.mark.parametrize("what", RETURNED)
def test_what_returned_survives_a_power_cut(disk, what):
    operation, expected = RETURNED[what]
    with Tree(disk.path) as tree:
        started(tree)
        operation(tree)
    wanted = {"old": b"old", "a/old": b"old"} | expected
    disk.cut()
    assert content(disk) == {key: value for key, value in wanted.items() if value is not None}
    disk.off()
    disk.mount()
    disk.unmount()
    disk.check()


def test_a_synced_file_and_its_name_survive_a_power_cut(disk):
    with Tree(disk.path) as tree:
        tree.make_dirs("a")
        with tree.create("a/x") as file:
            file.write(b"1" * 10_000)
            file.sync()
            tree.sync_dir("a")
            file.write(b"not synced")
    disk.cut()
    assert content(disk)["a/x"][:10_000] == b"1" * 10_000


def test_every_acknowledged_append_survives_a_power_cut(disk):
    records = [f"record {number};".encode() for number in range(20)]
    with Tree(disk.path) as tree:
        tree.make_dirs("a")
        with tree.append_file("a/log") as log:
            for record in records:
                log.append(record)
        os.close(os.open(disk.path / "noise", os.O_CREAT | os.O_WRONLY))
    disk.cut()
    assert content(disk) == {"a/log": b"".join(records)}


def test_a_cut_log_stays_cut(disk):
    with Tree(disk.path) as tree, tree.append_file("log") as log:
        log.append(b"good;torn")
        log.truncate(5)
    disk.cut()
    assert content(disk) == {"log": b"good;"}


def test_a_sync_log_survives_with_everything_that_was_recorded(disk):
    paths = [FilePath.parse(f"sequence/root.a/0/0/{number}-1-0-0.tsfile") for number in range(9)]
    with Tree(disk.path) as tree:
        tree.make_dirs("sync")
        log = SyncLog.open(tree, "sync/sync.log")
        log.start("0" * 32)
        log.deleted(paths[:3])
        log.files(paths[3:])
        log.reach(Phase.ENDED)
        log.close()
    disk.cut()
    state = parse_sync((disk.path / "sync/sync.log").read_bytes())
    assert (state.deleted, state.files, state.ended) == (paths[:3], paths[3:], True)


def test_what_a_killed_process_left_in_memory_is_flushed_before_it_is_relied_on(disk):
    """Written, then killed before the sync; the next process reads it and tells of it."""
    (disk.path / "log").write_bytes(b"written by one that was killed;")
    with Tree(disk.path) as tree:
        with tree.append_file("log") as log:
            assert log.size == 31
        (disk.path / "part").write_bytes(b"received")
        tree.sync_file("part")
        tree.sync_dir()
    disk.cut()
    assert content(disk) == {"log": b"written by one that was killed;", "part": b"received"}


# -- what did not return is old or new -----------------------------------------------------------

PROGRAM = """
import pathlib, sys
from common.durable import Tree
tree = Tree(pathlib.Path(sys.argv[1]))
{operation}
print("returned", flush=True)
sys.stdin.read()
"""
CUT_OFF = {
    "write_atomic": (
        "tree.write_atomic('x', b'new' * 50_000)",
        [{"x": b"old", "log": b"one;"}, {"x": b"new" * 50_000, "log": b"one;"}],
    ),
    "append": (
        "tree.append_file('log').append(b'two;')",
        [{"x": b"old", "log": b"one;"}, {"x": b"old", "log": b"one;two;"}],
    ),
    "rename": (
        "tree.rename('x', 'd/y')",
        [{"x": b"old", "log": b"one;"}, {"d/y": b"old", "log": b"one;"}],
    ),
    "copy": (
        "tree.copy('x', 'd/y')",
        [{"x": b"old", "log": b"one;"}, {"x": b"old", "d/y": b"old", "log": b"one;"}],
    ),
    "link": (
        "tree.link('x', 'd/y')",
        [{"x": b"old", "log": b"one;"}, {"x": b"old", "d/y": b"old", "log": b"one;"}],
    ),
}


@pytest.mark.parametrize("what", CUT_OFF)
def test_a_death_and_a_power_cut_at_any_point_leave_the_old_or_the_new(disk, what):
    operation, states = CUT_OFF[what]
    for number in range(1, 30):
        disk.clear()
        with Tree(disk.path) as tree:
            tree.make_dirs("d")
            tree.write_atomic("x", b"old")
            tree.write_atomic("log", b"one;")
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM.format(operation=operation), str(disk.path)],
            env={**os.environ, "TSFERRY_CRASH_AT": f"*:{number}"},
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        disk.cut()
        with Tree(disk.path) as tree:
            tree.sweep_temporaries()
        found = content(disk)
        if done.stdout == "returned\n":
            assert found == states[1]
            return
        assert done.returncode == -9, done.stderr
        assert found in states, (number, found)
    raise AssertionError("it never came to its end")


# -- full and read-only disks --------------------------------------------------------------------


def fill(tree):
    for size in (65536, 1024):
        with suppress(NoSpaceError), tree.create(f"filler{size}") as file:
            while True:
                file.write(b"x" * size)
                file.sync()


def test_a_full_disk_is_said_loses_nothing_and_heals(tmp_path):
    with powercut.disk(tmp_path, megabytes=4) as disk:
        with Tree(disk.path) as tree, tree.append_file("log") as log:
            tree.write_atomic("x", b"old")
            for _ in range(10):
                log.append(b"record;")
            fill(tree)
            for change in (
                lambda: tree.write_atomic("x", b"new" * 10_000),
                lambda: log.append(b"y" * 100_000),
            ):
                with pytest.raises(NoSpaceError):
                    change()
            assert tree.read("x") == b"old"
            assert tree.read("log") == b"record;" * 10
            assert [name for name, _ in tree.listing() if name.startswith(".")] == []
            tree.unlink("filler65536")
            tree.write_atomic("x", b"new" * 10_000)
            assert log.append(b"y" * 100_000) == 70
        disk.cut()
        found = content(disk)
        assert found["x"] == b"new" * 10_000
        assert found["log"] == b"record;" * 10 + b"y" * 100_000


def test_a_disk_without_inodes_is_full(tmp_path):
    with powercut.disk(tmp_path, megabytes=4, inodes=16) as disk, Tree(disk.path) as tree:
        tree.write_atomic("x", b"old")
        made = 0
        with suppress(NoSpaceError):
            while True:
                tree.create(f"{made}").close()
                made += 1
        with pytest.raises(NoSpaceError):
            tree.write_atomic("x", b"new")
        with pytest.raises(NoSpaceError):
            tree.make_dirs("d")
        assert tree.read("x") == b"old"
        tree.unlink("0")
        tree.write_atomic("x", b"new")


def test_a_disk_that_became_read_only_is_said(disk):
    with Tree(disk.path) as tree, tree.append_file("log") as log:
        tree.write_atomic("x", b"old")
        log.append(b"one;")
        log.close()
        disk.remount(read_only=True)
        for change in (
            lambda: tree.write_atomic("x", b"new"),
            lambda: tree.append_file("log"),
            lambda: tree.append_file("new"),
            lambda: tree.create("new"),
            lambda: tree.open_write("x"),
            lambda: tree.make_dirs("new"),
            lambda: tree.rename("x", "y"),
            lambda: tree.rename("x", "y", replace=False),
            lambda: tree.link("x", "y"),
            lambda: tree.copy("x", "y"),
            lambda: tree.unlink("x"),
            lambda: tree.lock("lock"),
            lambda: Tree(disk.path / "new", create=True),
        ):
            with pytest.raises(ReadOnlyError, match="read-only"):
                change()
        assert tree.read("x") == b"old"
        disk.remount(read_only=False)
        tree.write_atomic("x", b"new")


def test_a_disk_that_went_away_ends_the_writing_and_no_acknowledged_byte(disk):
    with Tree(disk.path) as tree:
        log = tree.append_file("log")
        log.append(b"one;")
        disk.fail()
        with pytest.raises((FailedSyncError, DiskError, ReadOnlyError)):
            log.append(b"two;")
        with pytest.raises((FailedSyncError, DiskError, ReadOnlyError)):
            tree.write_atomic("log", b"")
        log.close()
    disk.unmount()
    disk.mount()
    assert content(disk) == {"log": b"one;"}


def test_a_mount_namespace_made_meanwhile_does_not_keep_a_dead_disk_alive(tmp_path):
    """The rig itself: `ip netns exec` in another test must not spoil this one."""
    if shutil.which("unshare") is None:
        pytest.skip("unshare is not installed")
    with powercut.disk(tmp_path) as disk:
        other = subprocess.Popen(
            ["unshare", "--mount", "--propagation", "slave", "sh", "-c", "echo up; exec sleep 60"],
            stdout=subprocess.PIPE,
        )
        try:
            assert other.stdout is not None
            other.stdout.readline()
            disk.cut()
            (disk.path / "alive").write_bytes(b"1")
        finally:
            other.kill()
            other.wait()
