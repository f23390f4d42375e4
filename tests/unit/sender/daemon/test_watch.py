from __future__ import annotations

import errno
import threading

import pytest

from sender.daemon.watch import Watch, fingerprint, network_file_system
from sender.select.eligibility import CHANGING
from tests.support.procs import wait_until


@pytest.fixture
def tree(tmp_path):
    (tmp_path / "sequence" / "root.a" / "0" / "0").mkdir(parents=True)
    return tmp_path / "sequence"


class Counter:
    def __init__(self):
        self.event = threading.Event()

    def __call__(self):
        self.event.set()


@pytest.fixture
def started(tree):
    watches = []

    def start(changed, **settings) -> Watch:
        watch = Watch((tree,), changed, **({"poll": 0.05, "mounts": lambda: ""} | settings))
        watch.start()
        watches.append(watch)
        return watch

    yield start
    for each in watches:
        each.close()


def test_a_new_file_is_noticed(tree, started):
    changed = Counter()
    assert started(changed).polls_because is None
    (tree / "root.a/0/0/1-1-0-0.tsfile").write_bytes(b"x")
    assert changed.event.wait(60)


def test_what_was_closed_or_moved_here_is_told(tree, started):
    closed = []
    started(lambda: None, closed=closed.append)
    place = tree / "root.a/0/0"
    (place / "1-1-0-0.tsfile").write_bytes(b"x")
    (place / "1-1-0-0.tsfile.resource").write_bytes(b"x")
    (place / "2-2-0-0.tsfile.new").write_bytes(b"x")
    (place / "2-2-0-0.tsfile.new").rename(place / "2-2-0-0.tsfile")
    wait_until(lambda: len(closed) >= 2, "both")
    assert closed == [place / "1-1-0-0.tsfile", place / "2-2-0-0.tsfile"]


@pytest.mark.parametrize("suffix", CHANGING)
def test_the_end_of_what_a_file_waits_for_is_noticed(tree, started, suffix):
    beside = tree / f"root.a/0/0/1-1-0-0.tsfile{suffix}"
    beside.write_bytes(b"x")
    changed = Counter()
    started(changed)
    beside.unlink()
    assert changed.event.wait(60)


def test_a_file_in_a_new_directory_is_noticed(tree, started):
    changed = Counter()
    started(changed)
    (tree / "root.b/0/0").mkdir(parents=True)
    assert changed.event.wait(60)


def test_our_own_links_and_other_files_start_no_round(tree, started, tmp_path):
    file = tree / "root.a/0/0/1-1-0-0.tsfile"
    file.write_bytes(b"x")
    changed = Counter()
    started(changed)
    link = tmp_path / "link.tsfile"
    link.hardlink_to(file)
    link.unlink()
    (tree / "root.a/0/0/other.log").write_bytes(b"x")
    file.read_bytes()
    # Events come in order: when this one is there, the others would have been.
    marker = tree / "root.a/0/0/2-2-0-0.tsfile"
    assert not changed.event.is_set()
    marker.write_bytes(b"x")
    assert changed.event.wait(60)


def test_without_watches_the_directories_are_polled_and_it_says_so(tree, started, monkeypatch):
    def none_left(*args, **kwargs):
        raise OSError(errno.ENOSPC, "inotify watch limit reached")

    monkeypatch.setattr("watchdog.observers.inotify.InotifyObserver.start", none_left)
    changed = Counter()
    assert "watch limit" in started(changed).polls_because
    (tree / "root.a/0/0/1-1-0-0.tsfile").write_bytes(b"x")
    assert changed.event.wait(60)


def test_a_network_file_system_is_polled(tree, started):
    mounts = f"server:/x / nfs4 rw 0 0\nproc /proc proc rw 0 0\nserver:/x {tree} nfs4 rw 0 0\n"
    changed = Counter()
    assert "nfs4" in started(changed, mounts=lambda: mounts).polls_because
    (tree / "root.a/0/0/1-1-0-0.tsfile").write_bytes(b"x")
    assert changed.event.wait(60)


def test_polling_takes_over_when_the_watching_thread_dies(tree, started):
    changed = Counter()
    watch = started(changed)
    watch._observer.stop()
    watch._observer.join()
    (tree / "root.a/0/0/1-1-0-0.tsfile").write_bytes(b"x")
    watch.check()
    assert watch.polls_because == "inotify gave up"
    assert changed.event.wait(60), "what came between the death and its discovery"
    changed.event.clear()
    (tree / "root.a/0/0/2-1-0-0.tsfile").write_bytes(b"x")
    assert changed.event.wait(60)


def the_clock_goes_on(path):
    """The times of files go on in steps of some milliseconds."""
    path.write_bytes(b"")
    before = path.stat().st_mtime_ns
    wait_until(lambda: path.write_bytes(b"x") and path.stat().st_mtime_ns != before, "a new time")


def test_a_fingerprint_changes_with_each_name(tree, tmp_path):
    seen = {fingerprint((tree,))}
    at = tree / "root.a/0/0"
    for step in (
        lambda: (at / "1-1-0-0.tsfile").write_bytes(b"x"),
        lambda: (at / "1-1-0-0.tsfile").rename(at / "2-1-0-0.tsfile"),
        lambda: (tree / "root.b").mkdir(),
        lambda: (at / "2-1-0-0.tsfile").unlink(),
    ):
        the_clock_goes_on(tmp_path / "clock")
        step()
        assert fingerprint((tree,)) not in seen
        seen.add(fingerprint((tree,)))


def test_mount_points_with_spaces_are_found(tmp_path):
    directory = tmp_path / "a b"
    directory.mkdir()
    mounts = f"x {str(directory).replace(' ', chr(92) + '040')} fuse.sshfs rw 0 0\n"
    assert network_file_system((directory,), mounts) is not None
    assert network_file_system((directory,), "x / ext4 rw 0 0\n") is None
