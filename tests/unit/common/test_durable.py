"""The door to the disk: what each operation promises while the disk does as it is told."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import threading

import pytest

from common import beneath, crash, durable
from common.digests import md5
from common.durable import AppendFile, Tree, is_temporary, temporary_name
from common.errors import (
    DiskError,
    FailedSyncError,
    LockedError,
    NameRefusedError,
    NoSpaceError,
    ReadOnlyError,
    StoppedError,
    TooLargeError,
    UnsafePathError,
)
from tests.support.disk import Faults, heal, no_leak


@pytest.fixture(params=["openat2", "walk"], autouse=True)
def way(request, monkeypatch):
    if request.param == "walk":
        monkeypatch.setattr(beneath, "have_openat2", lambda: False)
        monkeypatch.setattr(beneath, "_renameat2", lambda: None)


@pytest.fixture(autouse=True)
def _healthy(monkeypatch):
    heal(monkeypatch)


@pytest.fixture
def tree(tmp_path):
    with Tree(tmp_path / "tree", create=True) as tree:
        yield tree


def names(tree):
    return sorted(os.listdir(tree.path))


# -- the tree itself -----------------------------------------------------------------------------


def test_a_tree_makes_its_directory_and_those_above(tmp_path):
    with no_leak(), Tree(tmp_path / "a" / "b" / "c", create=True) as tree:
        tree.write_atomic("x", b"1")
    assert (tmp_path / "a" / "b" / "c" / "x").read_bytes() == b"1"


def test_a_tree_is_not_made_unasked(tmp_path):
    with no_leak(), pytest.raises(FileNotFoundError):
        Tree(tmp_path / "missing")


@pytest.mark.parametrize("create", [True, False])
def test_a_tree_over_a_file_is_refused(tmp_path, create):
    (tmp_path / "file").touch()
    with no_leak(), pytest.raises(NotADirectoryError):
        Tree(tmp_path / "file", create=create)


def test_a_tree_may_be_reached_through_a_symlink_which_is_not_followed_again(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "other").mkdir()
    link = tmp_path / "link"
    link.symlink_to("real")
    with Tree(link, create=True) as tree:
        tree.write_atomic("x", b"1")
        link.unlink()
        link.symlink_to("other")
        tree.write_atomic("y", b"2")
    assert sorted(os.listdir(tmp_path / "real")) == ["x", "y"]
    assert os.listdir(tmp_path / "other") == []


def test_a_closed_tree_does_nothing_in_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tree = Tree(tmp_path)
    tree.close()
    tree.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        tree.write_atomic("x", b"1")
    with pytest.raises(OSError, match="Bad file descriptor"):
        tree.listing()
    assert os.listdir(tmp_path) == []


OPERATIONS = {
    "read": lambda tree, rel: tree.read(rel),
    "stat": lambda tree, rel: tree.stat(rel),
    "exists": lambda tree, rel: tree.exists(rel),
    "listing": lambda tree, rel: tree.listing(rel),
    "files": lambda tree, rel: list(tree.files(rel)),
    "make_dirs": lambda tree, rel: tree.make_dirs(rel),
    "write_atomic": lambda tree, rel: tree.write_atomic(rel, b"1"),
    "create": lambda tree, rel: tree.create(rel).close(),
    "open_write": lambda tree, rel: tree.open_write(rel),
    "append_file": lambda tree, rel: tree.append_file(rel),
    "rename to": lambda tree, rel: tree.rename("file", rel),
    "rename from": lambda tree, rel: tree.rename(rel, "there"),
    "link to": lambda tree, rel: tree.link("file", rel),
    "link from": lambda tree, rel: tree.link(rel, "there"),
    "copy to": lambda tree, rel: tree.copy("file", rel),
    "copy from": lambda tree, rel: tree.copy(rel, "there"),
    "unlink": lambda tree, rel: tree.unlink(rel),
    "remove_empty": lambda tree, rel: tree.remove_empty(rel),
    "sync_dir": lambda tree, rel: tree.sync_dir(rel),
    "sync_file": lambda tree, rel: tree.sync_file(rel),
    "lock": lambda tree, rel: tree.lock(rel),
}


@pytest.mark.few(100)
@pytest.mark.parametrize("what", OPERATIONS)
@pytest.mark.parametrize("rel", ["../x", "/x", "a/../x", "a//x", "x\0", "x" * 256, "\udbff\ud800"])
def test_no_operation_takes_a_name_that_leaves_the_tree(tree, tmp_path, what, rel):
    tree.write_atomic("file", b"1")
    (tmp_path / "x").write_bytes(b"outside")
    with no_leak(), pytest.raises(NameRefusedError):
        OPERATIONS[what](tree, rel)
    assert (tmp_path / "x").read_bytes() == b"outside"
    assert names(tree) == ["file"]


@pytest.mark.parametrize("what", OPERATIONS)
def test_no_operation_goes_through_a_symlinked_directory(tree, tmp_path, what):
    tree.write_atomic("file", b"1")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "x").write_bytes(b"outside")
    (tree.path / "link").symlink_to(outside)
    with no_leak(), pytest.raises(UnsafePathError):
        OPERATIONS[what](tree, "link/x")
    assert os.listdir(outside) == ["x"]
    assert (outside / "x").read_bytes() == b"outside"
    assert (outside / "x").stat().st_nlink == 1
    assert names(tree) == ["file", "link"]


FOLLOWING = ["read", "open_write", "append_file", "lock", "sync_file", "copy from"]


@pytest.mark.parametrize("what", FOLLOWING)
def test_no_operation_opens_a_symlink_a_fifo_or_a_directory_as_a_file(tree, tmp_path, what):
    (tmp_path / "x").write_bytes(b"outside")
    (tree.path / "link").symlink_to(tmp_path / "x")
    os.mkfifo(tree.path / "fifo")
    with no_leak():
        for rel in ("link", "fifo"):
            with pytest.raises(UnsafePathError):
                OPERATIONS[what](tree, rel)
        tree.make_dirs("directory")
        with pytest.raises((UnsafePathError, IsADirectoryError)):
            OPERATIONS[what](tree, "directory")
    assert (tmp_path / "x").read_bytes() == b"outside"


@pytest.mark.parametrize("what", ["make_dirs", "listing"])
def test_a_symlink_is_no_directory_of_the_tree(tree, tmp_path, what):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "x").write_bytes(b"outside")
    (tree.path / "link").symlink_to(outside)
    with no_leak(), pytest.raises(UnsafePathError):
        OPERATIONS[what](tree, "link")
    assert (outside / "x").read_bytes() == b"outside"


# -- reading -------------------------------------------------------------------------------------


def test_a_file_that_is_too_large_is_not_read(tree):
    tree.write_atomic("x", b"12345")
    assert tree.read("x", limit=5) == b"12345"
    with no_leak(), pytest.raises(TooLargeError):
        tree.read("x", limit=4)


def test_a_file_that_grows_while_it_is_read_stays_within_the_limit(tree, monkeypatch):
    tree.write_atomic("x", b"1")
    real = os.pread

    def growing(fd, count, at):
        with open(tree.path / "x", "ab") as file:
            file.write(b"more" * 100)
        return real(fd, count, at)

    monkeypatch.setattr(os, "pread", growing)
    with pytest.raises(TooLargeError):
        tree.read("x", limit=10)


def test_what_is_written_is_flushed_if_it_has_its_digest_and_else_told(tree, monkeypatch):
    synced, digest = [], md5(b"abc").hexdigest()
    monkeypatch.setattr(durable.WriteFile, "sync", lambda self: synced.append(self))
    with tree.create("f") as file:
        assert file.write_exactly([b"ab", b"c"], 3, digest) is None
        assert synced == [file]
    assert tree.read("f") == b"abc"
    for number, blocks in enumerate(([b"ab"], [b"abd"], [b"abc", b"d", b"never taken"])):
        with tree.create(f"other{number}") as file:
            size = min(4, len(b"".join(blocks)))
            assert file.write_exactly(iter(blocks), 3, digest).startswith(f"{size} bytes")
    assert len(synced) == 1


@pytest.mark.parametrize("anew", [False, True])
def test_a_file_has_the_bytes_that_are_read_and_nothing_else_has(tree, anew):
    told, digest = [], md5(b"abc").hexdigest()
    tree.write_atomic("f", b"abc")
    tree.write_atomic("other", b"abd")
    (tree.path / "link").symlink_to("f")
    assert tree.has_bytes("f", 3, digest, anew=anew, pace=told.append)
    assert told == [3]
    for name, size in (("other", 3), ("f", 2), ("gone", 3), ("link", 3)):
        assert not tree.has_bytes(name, size, digest, anew=anew)


def test_who_is_told_to_stop_while_bytes_are_read_learns_nothing_of_them(tree):
    def stop(_):
        raise StoppedError("told to stop")

    tree.write_atomic("f", b"abc")
    with pytest.raises(StoppedError):
        tree.has_bytes("f", 3, md5(b"abc").hexdigest(), pace=stop)


def test_a_listing_has_everything_in_name_order_and_a_missing_directory_nothing(tree):
    for name in ("b", "a", "ä", "B"):
        tree.write_atomic(name, b"")
    tree.make_dirs("dir")
    assert [name for name, _ in tree.listing()] == ["B", "a", "b", "dir", "ä"]
    assert tree.listing("missing") == []
    assert tree.listing("a") == []
    assert stat.S_ISDIR(dict(tree.listing())["dir"].st_mode)


def test_files_are_found_depth_first_and_only_regular_ones(tree):
    tree.make_dirs("d/e")
    for rel in ("z", "d/y", "d/e/x"):
        tree.write_atomic(rel, b"")
    (tree.path / "link").symlink_to("z")
    (tree.path / "dirlink").symlink_to("d")
    os.mkfifo(tree.path / "fifo")
    with no_leak():
        assert [rel for rel, _ in tree.files()] == ["z", "d/y", "d/e/x"]
        assert [rel for rel, _ in tree.files("d")] == ["d/y", "d/e/x"]


def test_a_name_that_vanishes_during_a_listing_is_left_out(tree, monkeypatch):
    tree.write_atomic("a", b"")
    monkeypatch.setattr(os, "listdir", lambda _: ["a", "gone"])
    assert [name for name, _ in tree.listing()] == ["a"]


def test_stat_tells_what_is_there_and_none_where_nothing_is(tree):
    tree.write_atomic("x", b"123")
    assert tree.stat("x").st_size == 3
    assert tree.stat("missing") is None
    assert tree.stat("missing/deeper") is None
    assert tree.stat("x/below") is None
    assert stat.S_ISDIR(tree.stat("").st_mode)
    assert tree.exists("x")
    assert not tree.exists("y")


# -- write_atomic --------------------------------------------------------------------------------


def test_a_replaced_file_is_there_whole_and_alone(tree):
    with no_leak():
        tree.write_atomic("x", b"old")
        tree.write_atomic("x", b"new and longer")
    assert tree.read("x") == b"new and longer"
    assert names(tree) == ["x"]


@pytest.mark.parametrize("name", ["x" * 255, "ä" * 127, "\U0001f600" * 63])
def test_the_longest_names_can_be_replaced(tree, name):
    tree.write_atomic(name, b"old")
    tree.write_atomic(name, b"new")
    assert tree.read(name) == b"new"
    assert names(tree) == [name]


def test_an_empty_and_a_large_content_and_any_buffer_can_be_written(tree):
    tree.write_atomic("empty", b"")
    assert tree.read("empty") == b""
    tree.write_atomic("large", memoryview(bytearray(b"x" * (3 << 20))))
    assert tree.read("large") == b"x" * (3 << 20)


def test_a_secret_is_never_readable_by_others(tree):
    seen = []
    with crash.arm(
        lambda name: seen.extend(
            stat.S_IMODE(os.stat(tree.path / each).st_mode) for each in os.listdir(tree.path)
        )
    ):
        tree.write_atomic("token", b"secret", mode=0o600)
    assert set(seen) == {0o600}


def test_a_symlink_at_the_target_is_replaced_and_not_followed(tree, tmp_path):
    (tmp_path / "x").write_bytes(b"outside")
    (tree.path / "x").symlink_to(tmp_path / "x")
    tree.write_atomic("x", b"new")
    assert (tmp_path / "x").read_bytes() == b"outside"
    assert not (tree.path / "x").is_symlink()


def test_a_hard_link_at_the_target_keeps_its_content(tree, tmp_path):
    (tmp_path / "x").write_bytes(b"outside")
    os.link(tmp_path / "x", tree.path / "x")
    tree.write_atomic("x", b"new")
    assert (tmp_path / "x").read_bytes() == b"outside"


def test_a_directory_in_the_way_leaves_nothing_behind(tree):
    tree.make_dirs("x/y")
    with no_leak(), pytest.raises(OSError, match=r"directory|empty"):
        tree.write_atomic("x", b"1")
    assert names(tree) == ["x"]


def test_an_interrupt_leaves_no_temporary_file(tree):
    def interrupt(name):
        if name == "durable.write_atomic.written":
            raise KeyboardInterrupt

    with no_leak(), crash.arm(interrupt), pytest.raises(KeyboardInterrupt):
        tree.write_atomic("x", b"1")
    assert names(tree) == []


def die_at(wanted):
    def hook(name):
        if name == wanted:
            raise crash.SimulatedCrash

    return crash.arm(hook)


def points_of(operation):
    seen = []
    with crash.arm(seen.append):
        operation()
    return seen


def test_a_death_at_any_step_leaves_the_old_or_the_new_content_and_a_sweep_cleans_up(tree):
    tree.write_atomic("x", b"old")
    points = points_of(lambda: tree.write_atomic("x", b"old"))
    assert len(points) >= 4
    for point in points:
        tree.write_atomic("x", b"old")
        with die_at(point), pytest.raises(crash.SimulatedCrash):
            tree.write_atomic("x", b"new")
        assert tree.read("x") in (b"old", b"new")
        tree.sweep_temporaries()
        assert names(tree) == ["x"]


def test_the_sweep_takes_our_leftovers_at_every_depth_and_nothing_else(tree):
    tree.make_dirs("d/.e0123456789abcdef.tmp")
    ours = [temporary_name(), f"d/{temporary_name()}"]
    others = [".x.tmp", "x.tmp", ".0123456789abcdef.tmpx", "0123456789abcdef.tmp", ".tmp"]
    for rel in [*ours, *others]:
        tree.create(rel).close()
    with no_leak():
        assert sorted(tree.sweep_temporaries()) == sorted(ours)
    assert names(tree) == sorted([*others, "d"])
    assert tree.sweep_temporaries() == []
    assert tree.exists("d/.e0123456789abcdef.tmp")


def test_temporary_names_are_recognised_and_differ():
    assert is_temporary(temporary_name())
    assert len({temporary_name() for _ in range(100)}) == 100
    assert not is_temporary("1-1-1-1.tsfile")


# -- files ---------------------------------------------------------------------------------------


def test_a_created_file_takes_no_name_that_is_taken(tree):
    tree.write_atomic("x", b"old")
    with no_leak(), pytest.raises(FileExistsError):
        tree.create("x")
    assert tree.read("x") == b"old"


@pytest.mark.parametrize("at", [None, 5])
def test_a_large_write_goes_in_pieces_for_which_the_kernel_need_not_look_for_room(
    tree, monkeypatch, at
):
    real, sizes, content = os.pwrite, [], os.urandom(3 * 2**20 + 7)

    def pwrite(fd, data, offset):
        sizes.append(len(data))
        return real(fd, data, offset)

    monkeypatch.setattr(os, "pwrite", pwrite)
    with tree.create("x") as file:
        file.write(b"start", at=0)
        assert file.write(content, at=at) == len(content)
    assert max(sizes) <= 2**17
    assert tree.read("x") == b"start" + content


def test_writing_goes_on_at_the_end_of_an_existing_file(tree):
    tree.write_atomic("x", b"123")
    with no_leak(), tree.open_write("x") as file:
        assert file.write(b"45") == 2
        file.write(b"X", at=0)
        file.write(b"6")
        file.truncate(5)
        file.write(b"7")
        file.sync()
    assert tree.read("x") == b"X23457"


def test_a_file_with_a_second_name_is_not_written_to(tree):
    tree.write_atomic("x", b"1")
    tree.link("x", "y")
    with no_leak(), pytest.raises(UnsafePathError):
        tree.open_write("x")


def test_a_missing_file_cannot_be_gone_on_with(tree):
    with no_leak(), pytest.raises(FileNotFoundError):
        tree.open_write("x")
    assert names(tree) == []


@pytest.mark.parametrize("kind", ["create", "append"])
def test_short_writes_are_gone_on_with(tree, monkeypatch, kind):
    for name in ("write", "pwrite"):
        real = getattr(os, name)
        monkeypatch.setattr(
            os, name, lambda fd, data, *at, real=real: real(fd, bytes(data)[:3], *at)
        )
    content = bytes(range(256))
    if kind == "create":
        with tree.create("x") as file:
            assert file.write(content) == 256
    else:
        with tree.append_file("x") as log:
            log.append(content)
    assert tree.read("x") == content


# -- logs ----------------------------------------------------------------------------------------


def test_appends_stand_one_after_the_other_at_the_offsets_told(tree):
    with no_leak(), tree.append_file("log") as log:
        assert [log.append(b"one"), log.append(b""), log.append(b"three")] == [0, 3, 3]
        assert log.size == 8
    with no_leak(), tree.append_file("log") as log:
        assert log.size == 8
        assert log.append(b"4") == 8
    assert tree.read("log") == b"onethree4"


def test_a_log_is_flushed_before_it_is_relied_on(tree, monkeypatch):
    """What a killed process wrote and did not sync may still be in memory only."""
    (tree.path / "log").write_bytes(b"written, not synced")
    faults = Faults(monkeypatch)
    faults.watch("fsync", "fdatasync")
    tree.append_file("log").close()
    assert faults.calls == ["fsync", "fsync"]  # the file and its name
    with no_leak(), tree.append_file("log", settled=True) as log:
        log.append(b";next")
    assert faults.calls == ["fsync", "fsync", "fdatasync"]
    with no_leak(), pytest.raises(FileNotFoundError):
        tree.append_file("never opened", settled=True)


def test_a_torn_tail_is_cut_and_a_log_is_never_lengthened(tree):
    with tree.append_file("log") as log:
        log.append(b"good|torn")
        log.truncate(5)
        assert log.append(b"next") == 5
        with pytest.raises(ValueError, match="9 bytes"):
            log.truncate(10)
    assert tree.read("log") == b"good|next"


def test_appends_of_many_threads_are_whole_and_at_the_offsets_told(tree):
    told = {}
    with tree.append_file("log") as log:

        def work(number):
            for turn in range(25):
                record = f"{number}:{turn};".encode() * 5
                told[log.append(record)] = record

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    content = tree.read("log")
    assert len(told) == 200
    assert b"".join(told[at] for at in sorted(told)) == content


def test_two_who_make_the_same_log_at_once_both_get_it(tree):
    with tree.append_file("log") as one, tree.append_file("log") as two:
        one.append(b"1")
        assert two.append(b"2") in (0, 1)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("call", ["write", "fdatasync"])
def test_a_full_disk_leaves_the_log_as_it_was_and_heals(tree, monkeypatch, code, call):
    faults = Faults(monkeypatch)
    with no_leak(), tree.append_file("log") as log:
        log.append(b"one;")
        faults.fail(code, 1, call)
        with pytest.raises(NoSpaceError):
            log.append(b"two;")
        assert tree.read("log") == b"one;"
        assert durable.failed_sync() is None
        assert log.append(b"three;") == 4
    assert tree.read("log") == b"one;three;"


def test_half_a_record_is_cut_back(tree, monkeypatch):
    real = os.write
    with tree.append_file("log") as log:
        log.append(b"one;")
        calls = []

        def full(fd, data):
            calls.append(1)
            if len(calls) > 1:
                raise OSError(errno.ENOSPC, "full")
            return real(fd, bytes(data)[:2])

        with monkeypatch.context() as patch:
            patch.setattr(os, "write", full)
            with pytest.raises(NoSpaceError):
                log.append(b"two;")
        assert tree.read("log") == b"one;"
        log.append(b"three;")
    assert tree.read("log") == b"one;three;"


def test_a_log_that_could_not_be_cut_back_takes_nothing_until_it_can(tree, monkeypatch):
    faults = Faults(monkeypatch)
    real = os.write
    with tree.append_file("log") as log:
        log.append(b"one;")
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", lambda fd, data: real(fd, bytes(data)[:2]) and _full())
            faults.fail(errno.EIO, 1, "ftruncate", once=False)
            with pytest.raises(NoSpaceError):
                log.append(b"two;")
        assert tree.read("log") == b"one;tw"
        with pytest.raises(DiskError):
            log.append(b"three;")
        faults.off()
        assert log.append(b"three;") == 4
    assert tree.read("log") == b"one;three;"


def _full():
    raise OSError(errno.ENOSPC, "full")


def test_a_cut_is_synced_so_that_a_refused_record_does_not_come_back(tree, monkeypatch):
    faults = Faults(monkeypatch)
    with tree.append_file("log") as log:
        faults.fail(errno.ENOSPC, 1, "fdatasync", "ftruncate", "fsync")
        with pytest.raises(NoSpaceError):
            log.append(b"two;")
        assert faults.calls == ["fdatasync", "ftruncate", "fsync"]


def test_an_interrupt_during_an_append_leaves_no_trace(tree):
    def interrupt(name):
        if name == "durable.append.written":
            raise KeyboardInterrupt

    with tree.append_file("log") as log:
        log.append(b"one;")
        with crash.arm(interrupt), pytest.raises(KeyboardInterrupt):
            log.append(b"two;")
        assert log.append(b"three;") == 4
    assert tree.read("log") == b"one;three;"


def test_a_simulated_death_leaves_what_a_death_leaves(tree):
    with tree.append_file("log") as log:
        with die_at("durable.append.written"), pytest.raises(crash.SimulatedCrash):
            log.append(b"two;")
        with pytest.raises(ReadOnlyError):
            log.append(b"three;")
    assert tree.read("log") == b"two;"


# -- after a failed sync -------------------------------------------------------------------------

CHANGES = {
    "make_dirs": lambda tree, log, file: tree.make_dirs("new"),
    "write_atomic": lambda tree, log, file: tree.write_atomic("x", b"new"),
    "create": lambda tree, log, file: tree.create("new"),
    "open_write": lambda tree, log, file: tree.open_write("x"),
    "append_file": lambda tree, log, file: tree.append_file("log"),
    "rename": lambda tree, log, file: tree.rename("x", "new"),
    "exclusive rename": lambda tree, log, file: tree.rename("x", "new", replace=False),
    "link": lambda tree, log, file: tree.link("x", "new"),
    "copy": lambda tree, log, file: tree.copy("x", "new"),
    "unlink": lambda tree, log, file: tree.unlink("x"),
    "unlink unsynced": lambda tree, log, file: tree.unlink("x", sync=False),
    "remove_empty": lambda tree, log, file: tree.remove_empty("dir/empty"),
    "sweep": lambda tree, log, file: tree.sweep_temporaries(),
    "sync_dir": lambda tree, log, file: tree.sync_dir(),
    "sync_file": lambda tree, log, file: tree.sync_file("x"),
    "append": lambda tree, log, file: log.append(b"new"),
    "truncate log": lambda tree, log, file: log.truncate(0),
    "write": lambda tree, log, file: file.write(b"new"),
    "truncate": lambda tree, log, file: file.truncate(0),
    "sync": lambda tree, log, file: file.sync(),
    "new tree": lambda tree, log, file: Tree(tree.path / "new", create=True),
}


@pytest.mark.few(40)
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("call", ["fsync", "fdatasync"])
def test_after_a_failed_sync_this_process_changes_nothing_any_more(tree, monkeypatch, change, call):
    tree.write_atomic("x", b"old")
    tree.make_dirs("dir/empty")
    tree.create(temporary_name()).close()
    before = sorted(tree.path.rglob("*"))
    with no_leak(), tree.append_file("log") as log, tree.create("file") as file:
        log.append(b"old")
        file.write(b"old")
        faults = Faults(monkeypatch)
        faults.fail(errno.EIO, 1, call)
        with pytest.raises(FailedSyncError):
            file.sync() if call == "fsync" else log.append(b"lost?")
        faults.watch("write", "pwrite", "ftruncate", "rename", "link", "unlink", "mkdir", "rmdir",
                     "fsync", "fdatasync", "renameat2")  # fmt: skip
        with pytest.raises(ReadOnlyError, match="restart"):
            CHANGES[change](tree, log, file)
        assert faults.calls == []
    assert tree.read("x") == b"old"
    assert sorted(tree.path.rglob("*")) == sorted([*before, tree.path / "log", tree.path / "file"])
    assert "Input/output error" in durable.failed_sync()


def test_the_first_failure_is_the_one_that_is_told(tree, monkeypatch):
    faults = Faults(monkeypatch)
    with tree.create("one") as one, tree.create("two") as two:
        faults.fail(errno.EIO, 1, "fsync", once=False)
        with pytest.raises(FailedSyncError):
            one.sync()
        with pytest.raises(ReadOnlyError):
            two.sync()
    assert "one" in durable.failed_sync()
    assert len(faults.calls) == 1


def test_reading_goes_on_after_a_failed_sync(tree, monkeypatch):
    tree.write_atomic("x", b"old")
    monkeypatch.setattr(durable.flushing, "_failure", "x: broken")
    assert tree.read("x") == b"old"
    assert [name for name, _ in tree.listing()] == ["x"]


def test_a_failed_sync_of_a_directory_is_final_even_if_the_disk_is_full(tree, monkeypatch):
    """There is nothing to write again: who retries would be told success for lost names."""
    faults = Faults(monkeypatch)
    faults.fail(errno.ENOSPC, 2, "fsync")
    with pytest.raises(FailedSyncError):
        tree.write_atomic("x", b"1")


def test_a_file_whose_flush_found_no_space_is_not_flushed_again(tree, monkeypatch):
    faults = Faults(monkeypatch)
    with tree.create("x") as file:
        file.write(b"1")
        faults.fail(errno.ENOSPC, 1, "fsync")
        with pytest.raises(NoSpaceError):
            file.sync()
        for again in (file.sync, lambda: file.write(b"2"), lambda: file.truncate(0)):
            with pytest.raises(NoSpaceError, match="afresh"):
                again()
        assert faults.calls == ["fsync"]
        assert file.lost
        file.begin_again()
        file.write(b"3", at=0)
        file.sync()
        assert not file.lost
    with tree.open_write("x") as file:
        file.truncate(0)
        file.write(b"2")
        file.sync()
    assert tree.read("x") == b"2"


# -- rename, link, copy, unlink ------------------------------------------------------------------


@pytest.mark.parametrize("replace", [True, False])
def test_a_file_moves_between_directories(tree, replace):
    tree.make_dirs("a")
    tree.make_dirs("b")
    tree.write_atomic("a/x", b"1")
    with no_leak():
        tree.rename("a/x", "b/y", replace=replace)
    assert tree.read("b/y") == b"1"
    assert not tree.exists("a/x")


def test_a_move_overwrites_only_if_told(tree):
    tree.write_atomic("x", b"1")
    tree.write_atomic("y", b"2")
    with no_leak(), pytest.raises(FileExistsError):
        tree.rename("x", "y", replace=False)
    assert (tree.read("x"), tree.read("y")) == (b"1", b"2")
    tree.rename("x", "y")
    assert tree.read("y") == b"1"


def test_both_directories_of_a_move_are_synced_the_target_first(tree, monkeypatch):
    tree.make_dirs("a")
    tree.make_dirs("b")
    tree.write_atomic("a/x", b"1")
    synced = []
    real = os.fsync
    monkeypatch.setattr(
        os, "fsync", lambda fd: (synced.append(os.readlink(f"/proc/self/fd/{fd}")), real(fd))
    )
    tree.rename("a/x", "b/x")
    assert synced == [str(tree.path / "b"), str(tree.path / "a")]
    synced.clear()
    tree.rename("b/x", "b/y")
    assert synced == [str(tree.path / "b")]
    tree.rename("b/y", "b/z", sync=False)
    assert synced == [str(tree.path / "b")]


def test_a_link_is_a_second_name_and_overwrites_nothing(tree):
    tree.write_atomic("x", b"1")
    tree.write_atomic("z", b"3")
    with no_leak():
        tree.link("x", "y")
        with pytest.raises(FileExistsError):
            tree.link("x", "z")
    assert os.path.samestat(tree.stat("x"), tree.stat("y"))
    assert tree.read("z") == b"3"


def test_a_symlink_or_fifo_is_not_linked(tree):
    (tree.path / "link").symlink_to("/etc/passwd")
    os.mkfifo(tree.path / "fifo")
    for rel in ("link", "fifo"):
        with no_leak(), pytest.raises(UnsafePathError):
            tree.link(rel, "y")
    assert names(tree) == ["fifo", "link"]


def test_a_copy_is_whole_and_another_file(tree):
    tree.write_atomic("x", os.urandom(3 << 20))
    with no_leak():
        tree.copy("x", "y")
    assert tree.read("x") == tree.read("y")
    assert not os.path.samestat(tree.stat("x"), tree.stat("y"))
    assert names(tree) == ["x", "y"]


def test_a_copy_onto_a_name_that_is_taken_harms_nothing(tree):
    tree.write_atomic("x", b"1")
    tree.write_atomic("y", b"2")
    with no_leak(), pytest.raises(FileExistsError):
        tree.copy("x", "y")
    assert tree.read("y") == b"2"
    assert names(tree) == ["x", "y"]


def test_half_a_copy_never_has_the_final_name(tree):
    tree.write_atomic("x", b"1" * 1000)
    for point in points_of(lambda: tree.copy("x", "y")):
        tree.unlink("y")
        with die_at(point), pytest.raises(crash.SimulatedCrash):
            tree.copy("x", "y")
        assert not tree.exists("y") or tree.read("y") == b"1" * 1000
        tree.sweep_temporaries()
    assert set(names(tree)) <= {"x", "y"}


def test_removing_a_file_tells_whether_there_was_one(tree):
    tree.write_atomic("x", b"1")
    with no_leak():
        assert tree.unlink("x") is True
        assert tree.unlink("x") is False
        assert tree.unlink("missing/x") is False


def test_removing_a_symlink_leaves_what_it_points_to(tree, tmp_path):
    (tmp_path / "x").write_bytes(b"outside")
    (tree.path / "link").symlink_to(tmp_path / "x")
    assert tree.unlink("link") is True
    assert (tmp_path / "x").exists()


@pytest.mark.parametrize("rel", ["", "."])
def test_the_tree_itself_is_never_removed(tree, rel):
    tree.write_atomic("x", b"1")
    for remove in (tree.remove_empty, tree.unlink):
        with pytest.raises(IsADirectoryError):
            remove(rel)
    assert names(tree) == ["x"]


def test_only_an_empty_directory_is_removed_as_empty(tree):
    tree.make_dirs("full")
    tree.write_atomic("full/x", b"1")
    tree.make_dirs("empty")
    with no_leak():
        assert tree.remove_empty("full") is False
        assert tree.remove_empty("full/x") is False
        assert tree.remove_empty("empty") is True
        assert tree.remove_empty("empty") is True
    assert names(tree) == ["full"]


# -- directories ---------------------------------------------------------------------------------


def test_each_new_directory_is_synced_into_its_parent_once(tree, monkeypatch):
    faults = Faults(monkeypatch)
    faults.watch("mkdir", "fsync")
    tree.make_dirs("a/b/c")
    assert faults.calls == ["mkdir", "fsync"] * 3
    faults.watch("fsync")
    tree.make_dirs("a/b/c")
    assert faults.calls == []
    for rel in ("a/b/c", "a/b", "a"):
        tree.remove_empty(rel)
    faults.watch("fsync")
    tree.make_dirs("a/b/c")
    assert faults.calls == ["fsync"] * 3


def test_a_directory_of_an_earlier_process_is_synced_into_its_parent(tree, monkeypatch):
    (tree.path / "a").mkdir()
    faults = Faults(monkeypatch)
    faults.watch("fsync")
    tree.make_dirs("a")
    assert faults.calls == ["fsync"]


def test_a_file_in_the_way_of_a_directory_is_said(tree):
    tree.write_atomic("a", b"1")
    for rel in ("a", "a/b"):
        with no_leak(), pytest.raises(NotADirectoryError):
            tree.make_dirs(rel)


# -- locks ---------------------------------------------------------------------------------------


def test_a_lock_is_held_by_one_and_names_its_holder(tree):
    with no_leak():
        with tree.lock("lock"):
            assert tree.read("lock") == f"{os.getpid()}\n".encode()
            with pytest.raises(LockedError, match=str(os.getpid())) as caught:
                tree.lock("lock")
            assert caught.value.extra == {"pid": str(os.getpid())}
            assert tree.read("lock") == f"{os.getpid()}\n".encode()
        lock = tree.lock("lock")
        lock.release()
        lock.release()
        tree.lock("lock").release()


def test_a_lock_outlives_nobody_and_its_pid_is_on_disk_while_it_is_held(tree):
    code = (
        "import sys, pathlib\nfrom common.durable import Tree\n"
        "tree = Tree(pathlib.Path(sys.argv[1]))\nlock = tree.lock('lock')\n"
        "print('held', flush=True)\nsys.stdin.read()"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(tree.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert child.stdout.readline() == b"held\n"
        with pytest.raises(LockedError) as caught:
            tree.lock("lock")
        assert caught.value.extra["pid"] == str(child.pid)
    finally:
        child.kill()
        child.communicate()
    tree.lock("lock").release()


def test_a_lock_is_taken_on_a_full_disk(tree, monkeypatch):
    faults = Faults(monkeypatch)
    faults.fail(errno.ENOSPC, 1, "pwrite", "ftruncate", once=False)
    with no_leak():
        lock = tree.lock("lock")
        with pytest.raises(LockedError, match="unknown"):
            tree.lock("lock")
        lock.release()


def test_a_lock_file_removed_before_it_is_locked_is_made_again(tree, monkeypatch):
    """Otherwise two processes would each hold a lock of the same name."""
    import fcntl

    real = fcntl.flock
    removed = []

    def flock(fd, how):
        if not removed:
            removed.append(1)
            os.unlink(tree.path / "lock")
        real(fd, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    with no_leak():
        lock = tree.lock("lock")
        with pytest.raises(LockedError):
            tree.lock("lock")
        lock.release()


def test_a_lock_that_cannot_be_asked_for_is_not_held_by_anybody(tree, monkeypatch):
    import fcntl

    def flock(_fd, _how):
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr(fcntl, "flock", flock)
    with no_leak(), pytest.raises(OSError, match="no locks"):
        tree.lock("lock")


def test_who_does_not_get_the_lock_does_not_touch_the_file(tree):
    with tree.lock("lock"):
        before = tree.stat("lock")
        with pytest.raises(LockedError):
            tree.lock("lock")
        assert tree.stat("lock").st_mtime_ns == before.st_mtime_ns


# -- limits --------------------------------------------------------------------------------------


def test_a_limit_on_the_size_of_files_is_an_error_and_no_death(tree):
    code = """
import pathlib, resource, sys
from common.durable import Tree
from common.errors import TooLargeError
tree = Tree(pathlib.Path(sys.argv[1]))
log = tree.append_file("log")
log.append(b"one;")
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
for attempt in (
    lambda: log.append(b"x" * 2000),
    lambda: tree.write_atomic("x", b"x" * 2000),
    lambda: tree.create("y").write(b"x", at=2000),
    lambda: tree.create("z").truncate(2000),
):
    try:
        attempt()
    except TooLargeError as error:
        assert "RLIMIT_FSIZE" in str(error), error
    else:
        raise SystemExit("no error")
log.append(b"two;")
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tree.path)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert tree.read("log") == b"one;two;"
    assert not tree.exists("x")


@pytest.mark.few(80)
@pytest.mark.parametrize(
    ("code", "error"),
    [
        (errno.ENOSPC, NoSpaceError),
        (errno.EDQUOT, NoSpaceError),
        (errno.EROFS, ReadOnlyError),
        (errno.EFBIG, TooLargeError),
        (errno.EIO, DiskError),
        (errno.EACCES, PermissionError),
    ],
)
@pytest.mark.parametrize(
    ("what", "calls"),
    [
        ("make_dirs", "mkdir"),
        ("write_atomic", "open"),
        ("write_atomic", "pwrite"),
        ("write_atomic", "rename"),
        ("create", "open"),
        ("append_file", "open"),
        ("append", "write"),
        ("write", "pwrite"),
        ("truncate", "ftruncate"),
        ("truncate log", "ftruncate"),
        ("rename", "rename"),
        ("exclusive rename", "renameat2"),
        ("link", "link"),
        ("copy", "pwrite"),
        ("copy", "renameat2"),
        ("unlink", "unlink"),
        ("remove_empty", "rmdir"),
    ],
)
def test_what_the_disk_says_becomes_an_error_that_fits_and_leaves_nothing(
    request, tree, monkeypatch, what, calls, code, error
):
    if calls == "open" and "walk" in request.node.name:
        pytest.skip("opens by another call")
    tree.write_atomic("x", b"old")
    tree.make_dirs("dir/empty")
    with no_leak(), tree.append_file("log") as log, tree.create("file") as file:
        log.append(b"old")
        before = sorted(tree.path.rglob("*"))
        faults = Faults(monkeypatch)
        at = 2 if (what, calls) == ("make_dirs", "open") else 1
        faults.fail(code, at, calls)
        with pytest.raises(error) as caught:
            CHANGES[what](tree, log, file)
        faults.off()
        assert caught.value.__cause__ is not caught.value
        assert sorted(tree.path.rglob("*")) == before
        assert tree.read("x") == b"old"
        assert tree.read("log") == b"old"
    assert durable.failed_sync() is None


def test_free_space_is_told(tree):
    assert durable.free_bytes(tree.path) > 0


def test_an_append_file_is_one_of_a_regular_file(tree):
    with pytest.raises(OSError, match="Bad file descriptor"):
        AppendFile(-1, "x")


def test_what_seems_to_be_there_is_what_is_there_whatever_it_is(tree, tmp_path):
    tree.make_dirs("a")
    tree.write_atomic("a/file", b"1")
    (tree.path / "a" / "link").symlink_to(tmp_path / "nowhere")
    assert [tree.seems_there(each) for each in ("a", "a/file", "a/link")] == [True] * 3
    assert not tree.seems_there("a/other")
    assert not tree.seems_there("b/file")
    assert not tree.seems_there("a/file/below")
