"""A disk whose power can be cut: ext4 on a loop device, shut down without flushing its journal.

What had not been synced is gone afterwards, as after a real power cut; about 0.1 s a cycle. The
mount options take away what hides mistakes: ext4 would flush a file that is renamed over another
one by itself (`auto_da_alloc`), and everything every few seconds (`commit`).

What it does not show: torn sectors (cut and flip bytes of files yourself), and a missing sync of
the directory after the creation and fsync of a new file, whose name ext4 keeps (look at the order
of calls in a trace, `tests.support.trace`).

Needs root, mkfs.ext4, losetup and mount; without them tests are skipped and say why.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

import pytest

_EXT4_IOC_SHUTDOWN = 0x8004587D
_NO_LOG_FLUSH = 2
_OPTIONS = "noauto_da_alloc,commit=600,noatime,nodiscard"
_TOOLS = ("mkfs.ext4", "losetup", "mount", "umount")


class Disk:
    """A mounted file system; made by `disk`, which takes it down again."""

    def __init__(self, image: Path, path: Path) -> None:
        self._image = image
        self._device = _run("losetup", "--find", "--show", str(image)).strip()
        self.path = path
        """Where it is mounted; the same before and after a cut."""
        self.mounted = False

    def clear(self) -> None:
        """Remove all that is on it."""
        for path in self.path.iterdir():
            if path.name != "lost+found":
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    def mount(self, *, read_only: bool = False) -> None:
        """Switch the power on: the journal is replayed."""
        if self._is_held():
            self._renew()
        options = _OPTIONS + (",ro" if read_only else "")
        _run("mount", "-t", "ext4", "-o", options, self._device, str(self.path))
        self.mounted = True

    def unmount(self) -> None:
        """Take it off in good order; everything is flushed."""
        if self.mounted:
            _run("umount", str(self.path))
            self.mounted = False

    def remount(self, *, read_only: bool) -> None:
        """Make it read-only, or writable again."""
        _run("mount", "-o", f"remount,{'ro' if read_only else 'rw'}", str(self.path))

    def cut(self) -> None:
        """Cut the power, and switch it on again. Nothing may be open on the disk any more."""
        self.off()
        self.mount()

    def off(self) -> None:
        """Cut the power. Nothing may be open on the disk any more."""
        self.fail()
        self.unmount()

    def fail(self) -> None:
        """From now on every access fails; what is open stays so, and is of no use.

        A flush that is under way just then may tell of success and be lost, as no disk does it:
        ext4 looks whether it is shut down when an fsync begins, and a write that fails behind that
        is not in the journal that the fsync then waits for. Where every acknowledged flush counts,
        let the process stand still meanwhile (SIGSTOP, as `tests.support.schema_lives.stopped`).
        """
        fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(fd, _EXT4_IOC_SHUTDOWN, ctypes.c_uint32(_NO_LOG_FLUSH))
        finally:
            os.close(fd)

    def detach(self) -> None:
        """Give the device back; the image stays."""
        _run("losetup", "--detach", self._device)

    def _is_held(self) -> bool:
        """Whether a mount namespace of somebody else has a copy of the mount.

        Such a copy keeps the dead file system alive, and mounting the device would give that one.
        """
        try:
            os.close(os.open(self._device, os.O_RDONLY | os.O_EXCL))
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            return True
        return False

    def _renew(self) -> None:
        """Go on with a copy of the image: what was flushed is in it, as on a disk without power."""
        image = self._image.with_name(f"{self._image.name}+")
        shutil.copyfile(self._image, image)
        self.detach()  # goes with the last mount
        self._image = image
        self._device = _run("losetup", "--find", "--show", str(image)).strip()

    def check(self) -> None:
        """Fail if the file system itself was harmed; the disk has to be off."""
        done = _tool("fsck.ext4", "-fn", self._device)
        assert done.returncode == 0, done.stdout + done.stderr


def let_go(*places: Path) -> None:
    """Let go of all that is open below directories, as the kernel does of a process that is dead.

    Here the process lives on, and so may objects that have a descriptor and close it when they are
    collected. Their numbers stay taken, by what nobody misses: one that was given out anew would be
    closed beneath somebody else, in whatever test comes then.
    """
    below = tuple(map(str, places))
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    try:
        for name in os.listdir("/proc/self/fd"):
            with suppress(OSError):
                if os.readlink(f"/proc/self/fd/{name}").startswith(below):
                    os.dup2(nothing, int(name), inheritable=False)
    finally:
        os.close(nothing)


@contextmanager
def disk(directory: Path, *, megabytes: int = 16, inodes: int | None = None) -> Iterator[Disk]:
    """A fresh disk, mounted; skips the test where that is impossible."""
    if reason := impossible():
        pytest.skip(reason)
    image, mount_point = directory / "disk.img", directory / "power" / "disk"
    mount_point.mkdir(parents=True)
    with open(image, "wb") as file:
        file.truncate(megabytes << 20)
    extra = ["-N", str(inodes)] if inodes is not None else []
    _run("mkfs.ext4", "-q", "-F", "-m", "0", "-E", "nodiscard", *extra, str(image))
    made = Disk(image, mount_point)
    try:
        with _shared(mount_point.parent):
            made.mount()
            try:
                yield made
            finally:
                if made.mounted:
                    _run("umount", "--lazy", str(mount_point))
    finally:
        made.detach()


@contextmanager
def _shared(directory: Path) -> Iterator[None]:
    """Let unmounting beneath a directory reach the mount namespaces that others make meanwhile.

    `ip netns exec` and the like copy all mounts. A copy would keep a disk alive that has lost its
    power, and mounting it again would give the dead one.
    """
    _run("mount", "--bind", str(directory), str(directory))
    try:
        _run("mount", "--make-shared", str(directory))
        yield
    finally:
        _run("umount", "--lazy", str(directory))


@cache
def impossible() -> str | None:
    """Why there can be no such disk here; None if there can."""
    if os.geteuid() != 0:
        return "cutting the power of a loop device needs root"
    if missing := [each for each in _TOOLS if _which(each) is None]:
        return f"cutting the power of a loop device needs {', '.join(missing)}"
    if not os.path.exists("/dev/loop-control"):
        return "this kernel or container has no loop devices"
    return None


def _which(tool: str) -> str | None:
    return shutil.which(tool, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def _tool(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    program = _which(name)
    assert program is not None, name
    return subprocess.run(
        [program, *arguments], capture_output=True, text=True, check=False, timeout=60
    )


def _run(name: str, *arguments: str) -> str:
    done = _tool(name, *arguments)
    if done.returncode != 0:
        raise RuntimeError(f"{name} {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout
