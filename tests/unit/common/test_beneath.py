"""Opening beneath a directory: nothing leads out of it, on new kernels and on old ones."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import stat
import threading

import pytest

from common import beneath
from common.errors import NameRefusedError, UnsafePathError
from tests.support.disk import no_leak


@pytest.fixture(params=["openat2", "walk"], autouse=True)
def way(request, monkeypatch):
    """Every test here runs with the kernel's call and with the fallback."""
    if request.param == "openat2":
        if not beneath.have_openat2():
            pytest.skip("this kernel has no openat2")
    else:
        monkeypatch.setattr(beneath, "have_openat2", lambda: False)
    return request.param


@pytest.fixture
def outside(tmp_path):
    secret = tmp_path / "outside"
    secret.mkdir()
    (secret / "secret").write_bytes(b"secret")
    return secret


@pytest.fixture
def root(tmp_path):
    here = tmp_path / "root"
    (here / "a" / "b").mkdir(parents=True)
    (here / "a" / "b" / "file").write_bytes(b"content")
    fd = os.open(here, os.O_RDONLY | os.O_DIRECTORY)
    yield fd
    os.close(fd)


@pytest.fixture
def where(tmp_path, root):
    return tmp_path / "root"


def read(root, rel):
    fd = beneath.open_regular(root, rel)
    try:
        return os.read(fd, 100)
    finally:
        os.close(fd)


def test_a_file_beneath_is_opened(root):
    with no_leak():
        assert read(root, "a/b/file") == b"content"


@pytest.mark.parametrize("rel", ["", "."])
def test_the_directory_itself_can_be_opened(root, rel):
    with no_leak():
        fd = beneath.open_beneath(root, rel, os.O_RDONLY | os.O_DIRECTORY)
        assert os.path.samestat(os.fstat(fd), os.fstat(root))
        os.close(fd)


BAD = [
    "../outside/secret",
    "..",
    "a/../../outside/secret",
    "a/..",
    "a/./b",
    "./a",
    "/etc/passwd",
    "//etc/passwd",
    "a//b",
    "a/b/",
    "a/",
    "/",
    "a\0b",
    "\0",
    "a/\udbff\ud800",
    "x" * 256,
    "ä" * 128,
    "a/" * 2047 + "aa",
    "/".join(["x" * 200] * 30),
]


@pytest.mark.parametrize("rel", BAD, ids=lambda rel: ascii(rel[:20]))
def test_a_name_that_leaves_its_directory_is_refused(root, rel):
    with no_leak(), pytest.raises(NameRefusedError):
        beneath.open_beneath(root, rel, os.O_RDONLY)


@pytest.mark.parametrize("rel", BAD, ids=lambda rel: ascii(rel[:20]))
def test_a_refused_name_is_shown_on_one_short_line(rel):
    with pytest.raises(NameRefusedError) as caught:
        beneath.parts(rel)
    assert caught.value.message.isascii()
    assert caught.value.message.isprintable()
    assert len(caught.value.message) < 1000


def test_the_longest_names_are_taken(root):
    assert beneath.parts("x" * 255) == ["x" * 255]
    assert beneath.parts("ä" * 127 + "x") == ["ä" * 127 + "x"]
    assert len(beneath.parts("a/" * 2047 + "a")) == 2048


def test_a_name_that_is_no_utf8_can_be_opened(root, where):
    (where / os.fsdecode(b"\xff\xfe")).write_bytes(b"raw")
    assert read(root, os.fsdecode(b"\xff\xfe")) == b"raw"


def test_normal_forms_are_distinct_names(root, where):
    (where / "e\u0301").write_bytes(b"NFD")
    (where / "\u00e9").write_bytes(b"NFC")
    assert read(root, "e\u0301") == b"NFD"
    assert read(root, "\u00e9") == b"NFC"


@pytest.mark.few(60)
@pytest.mark.parametrize("target", ["../outside", "/", ".", "b", "nowhere", "/proc/self/root"])
@pytest.mark.parametrize("rel", ["a/link", "a/link/secret", "a/link/file", "a/link/x/y"])
@pytest.mark.parametrize(
    "flags",
    [os.O_RDONLY, os.O_RDWR, os.O_RDWR | os.O_CREAT, os.O_RDONLY | os.O_DIRECTORY],
    ids=["read", "write", "create", "directory"],
)
def test_a_planted_symlink_is_never_followed(root, where, outside, target, rel, flags):
    (where / "a" / "link").symlink_to(target)
    with no_leak(), pytest.raises(UnsafePathError):
        beneath.open_beneath(root, rel, flags)
    assert (outside / "secret").read_bytes() == b"secret"
    assert sorted(os.listdir(outside)) == ["secret"]
    assert not (where / "a" / "nowhere").exists()


def test_exclusive_creation_does_not_go_through_a_symlink(root, where, outside):
    (where / "link").symlink_to(outside / "new")
    with no_leak(), pytest.raises(FileExistsError):
        beneath.open_beneath(root, "link", os.O_RDWR | os.O_CREAT | os.O_EXCL)
    assert not (outside / "new").exists()


@pytest.mark.parametrize(
    ("rel", "flags", "error"),
    [
        ("missing", os.O_RDONLY, FileNotFoundError),
        ("missing/file", os.O_RDONLY, FileNotFoundError),
        ("a/missing/file", os.O_RDWR | os.O_CREAT, FileNotFoundError),
        ("a/b/file/below", os.O_RDONLY, NotADirectoryError),
        ("a/b/file", os.O_RDONLY | os.O_DIRECTORY, NotADirectoryError),
        ("a/b/file", os.O_RDWR | os.O_CREAT | os.O_EXCL, FileExistsError),
        ("a/b", os.O_RDWR, IsADirectoryError),
        ("a/b", os.O_RDWR | os.O_CREAT, IsADirectoryError),
    ],
)
def test_both_ways_give_the_same_error(root, rel, flags, error):
    with no_leak(), pytest.raises(error):
        beneath.open_beneath(root, rel, flags)


def test_a_created_file_has_the_mode_asked_for(root, where):
    old = os.umask(0o022)
    try:
        os.close(beneath.open_beneath(root, "new", os.O_RDWR | os.O_CREAT, 0o600))
    finally:
        os.umask(old)
    assert stat.S_IMODE((where / "new").stat().st_mode) == 0o600


def test_descriptors_are_not_inherited(root):
    fd = beneath.open_beneath(root, "a/b/file", os.O_RDONLY)
    assert fcntl.fcntl(fd, fcntl.F_GETFD) & fcntl.FD_CLOEXEC
    os.close(fd)


def test_a_fifo_neither_blocks_nor_counts_as_a_file(root, where):
    os.mkfifo(where / "fifo")
    with no_leak(), pytest.raises(UnsafePathError):
        beneath.open_regular(root, "fifo")
    with no_leak(), pytest.raises(UnsafePathError):
        beneath.open_regular(root, "fifo", os.O_RDWR)


def test_a_socket_or_a_directory_is_no_file(root, where, monkeypatch):
    monkeypatch.chdir(where)  # a socket's address is short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        with no_leak(), pytest.raises(UnsafePathError):
            beneath.open_regular(root, "socket")
    with no_leak(), pytest.raises(UnsafePathError):
        beneath.open_regular(root, "a/b")


@pytest.mark.skipif(os.geteuid() != 0, reason="making a device node needs root")
def test_a_device_is_no_file(root, where):
    os.mknod(where / "zero", stat.S_IFCHR | 0o600, os.makedev(1, 5))
    with no_leak(), pytest.raises(UnsafePathError):
        beneath.open_regular(root, "zero")


def test_a_directory_swapped_for_a_symlink_while_opening_never_leads_out(root, where, outside):
    (outside / "file").write_bytes(b"secret")
    stop = threading.Event()
    link, real = where / "link", where / "real"
    real.mkdir()
    (real / "file").write_bytes(b"content")
    link.symlink_to(outside)
    here = where / "here"
    real.rename(here)

    def swap():
        while not stop.is_set():
            here.rename(real)
            link.rename(here)
            here.rename(link)
            real.rename(here)

    thread = threading.Thread(target=swap)
    thread.start()
    seen = set()
    try:
        for _ in range(3000):
            try:
                seen.add(read(root, "here/file"))
            except (UnsafePathError, FileNotFoundError, NotADirectoryError):
                seen.add(b"")
    finally:
        stop.set()
        thread.join()
    assert seen <= {b"content", b""}


def test_a_lease_on_the_file_ends_the_tries(root, where, way):
    """O_NONBLOCK against a write lease answers EAGAIN until the lease breaks: no busy loop."""
    holder = os.open(where / "a" / "b" / "file", os.O_RDWR)
    f_setlease, f_unlck = 1024, 2
    try:
        fcntl.fcntl(holder, f_setlease, fcntl.F_WRLCK)
    except OSError:
        os.close(holder)
        pytest.skip("no leases on this file system")
    import signal

    before = signal.signal(signal.SIGIO, signal.SIG_IGN)
    try:
        with no_leak(), pytest.raises(BlockingIOError):
            beneath.open_regular(root, "a/b/file")
    finally:
        fcntl.fcntl(holder, f_setlease, f_unlck)
        signal.signal(signal.SIGIO, before)
        os.close(holder)
    assert read(root, "a/b/file") == b"content"


def test_too_many_open_files_is_no_proof_of_an_old_kernel(monkeypatch, way):
    if way == "walk":
        pytest.skip("about the probe")

    def full(*_):
        raise OSError(errno.EMFILE, "full")

    beneath.have_openat2.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(beneath, "_openat2", full)
        with no_leak(), pytest.raises(OSError, match="full"):
            beneath.have_openat2()
    assert beneath.have_openat2()


@pytest.mark.parametrize("code", [errno.ENOSYS, errno.EPERM, errno.EINVAL])
def test_a_kernel_without_the_call_is_noticed(monkeypatch, way, code):
    if way == "walk":
        pytest.skip("about the probe")

    def refuse(*_):
        raise OSError(code, "no")

    beneath.have_openat2.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(beneath, "_openat2", refuse)
        assert beneath.have_openat2() is False
    beneath.have_openat2.cache_clear()


class TestExclusiveRename:
    @pytest.fixture(params=["renameat2", "link"], autouse=True)
    def call(self, request, monkeypatch):
        if request.param == "link":
            monkeypatch.setattr(beneath, "_renameat2", lambda: None)
        elif beneath._renameat2() is None:
            pytest.skip("this C library has no renameat2")

    def test_moves_a_file(self, root, where):
        (where / "old").write_bytes(b"1")
        with no_leak():
            beneath.exclusive_rename(root, "old", root, "new")
        assert (where / "new").read_bytes() == b"1"
        assert not (where / "old").exists()

    def test_never_overwrites(self, root, where):
        (where / "old").write_bytes(b"1")
        (where / "new").write_bytes(b"2")
        with no_leak(), pytest.raises(FileExistsError):
            beneath.exclusive_rename(root, "old", root, "new")
        assert (where / "old").read_bytes() == b"1"
        assert (where / "new").read_bytes() == b"2"

    def test_does_not_overwrite_a_dangling_symlink(self, root, where):
        (where / "old").write_bytes(b"1")
        (where / "new").symlink_to("nowhere")
        with pytest.raises(FileExistsError):
            beneath.exclusive_rename(root, "old", root, "new")
        assert (where / "new").is_symlink()

    def test_a_missing_source_is_said(self, root):
        with pytest.raises(FileNotFoundError):
            beneath.exclusive_rename(root, "old", root, "new")

    def test_a_move_that_was_cut_in_two_is_completed(self, root, where):
        (where / "old").write_bytes(b"1")
        os.link(where / "old", where / "new")
        beneath.exclusive_rename(root, "old", root, "new")
        assert (where / "new").read_bytes() == b"1"
        assert not (where / "old").exists()

    def test_a_file_renamed_to_its_own_name_stays(self, root, where):
        (where / "old").write_bytes(b"1")
        os.link(where / "old", where / "other")
        with pytest.raises(FileExistsError):
            beneath.exclusive_rename(root, "old", root, "old")
        assert (where / "old").read_bytes() == b"1"
