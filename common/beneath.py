"""Opening paths that cannot leave their directory, whatever the names say or others do meanwhile.

Where the kernel has `openat2` (Linux 5.6), one call resolves the whole path with RESOLVE_BENEATH,
RESOLVE_NO_SYMLINKS and RESOLVE_NO_MAGICLINKS, so a symlink planted between check and open is no
danger: there is no check, only the open. Elsewhere each component is opened by itself with
O_NOFOLLOW under the descriptor of the one before, which holds the same promise in more calls. So is
a path of one component, for which it is one call as well, and the cheaper one from here.

Names are checked all the same (`parts`), so that a bad one gives the same answer on both ways.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from functools import cache
from typing import TYPE_CHECKING, Any

from common.errors import NameRefusedError, UnsafePathError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "exclusive_rename",
    "have_openat2",
    "open_beneath",
    "open_regular",
    "parts",
    "require_regular",
]

_SYS_OPENAT2 = 437
_RESOLVE = 0x08 | 0x04 | 0x02  # BENEATH | NO_SYMLINKS | NO_MAGICLINKS
_RENAME_NOREPLACE = 1
_UNSAFE = frozenset({errno.ELOOP, errno.EXDEV, errno.ENXIO})
_NO_SYSCALL = frozenset({errno.ENOSYS, errno.EINVAL, errno.EPERM, errno.E2BIG})
_RACES = 64
"""Tries against EAGAIN. It means that a rename raced the resolution, which passes; but with
O_NONBLOCK also that somebody holds a lease on the file, which may not."""

# A raw openat2 does not add O_LARGEFILE as the C library's open does: without it files of 2 GiB
# could not be opened on 32-bit machines. On 64-bit ones it is 0.
_LARGE = getattr(os, "O_LARGEFILE", 0)

_MAX_COMPONENT = 255
_NO_NAMES = frozenset({"", ".", ".."})
_MAX_PATH = 4095


class _OpenHow(ctypes.Structure):
    _fields_ = (
        ("flags", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("resolve", ctypes.c_uint64),
    )


_NUMBER = ctypes.c_long(_SYS_OPENAT2)
_HOW_SIZE = ctypes.c_size_t(ctypes.sizeof(_OpenHow))


@cache
def _how(flags: int, mode: int) -> object:
    """How to open, by reference; the kernel only reads it."""
    return ctypes.byref(_OpenHow(flags=flags | _LARGE, mode=mode, resolve=_RESOLVE))


@cache
def _syscall() -> Callable[..., int] | None:
    return _libc("syscall", ctypes.c_long)


@cache
def _renameat2() -> Callable[..., int] | None:
    # By the name the C library has for it, not by number: the number differs by architecture, and
    # a 64-bit kernel under a 32-bit system (common on small boards) reports the wrong one.
    return _libc("renameat2", ctypes.c_int)


def _libc(name: str, result: type[ctypes.c_int] | type[ctypes.c_long]) -> Callable[..., int] | None:
    try:
        function: Any = getattr(ctypes.CDLL(None, use_errno=True), name)
    except (OSError, AttributeError):
        return None
    function.restype = result
    found: Callable[..., int] = function
    return found


@cache
def have_openat2() -> bool:
    """Whether this kernel resolves a path beneath a directory in one call."""
    if _syscall() is None:
        return False
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    root = os.open("/", flags)
    try:
        os.close(_openat2(root, ".", flags, 0))
    except OSError as error:
        if error.errno in _NO_SYSCALL:
            return False
        raise  # too many open files, say: no answer, so none that is kept
    finally:
        os.close(root)
    return True


def parts(rel: str) -> list[str]:
    """The components of a relative POSIX path; `[]` for the directory itself.

    Raises:
        NameRefusedError: the path is absolute, has an empty, `.` or `..` component or a NUL, is
            longer than the kernel takes, or cannot be a file name at all.
    """
    if rel in ("", "."):
        return []
    pieces = rel.split("/")
    if "\0" in rel or not _NO_NAMES.isdisjoint(pieces):
        raise NameRefusedError(f"{_shown(rel)} is no path beneath a directory")
    try:
        size = len(rel) if rel.isascii() else len(os.fsencode(rel))
    except UnicodeEncodeError as error:
        raise NameRefusedError(f"{_shown(rel)} is no name that a file can have") from error
    if size > _MAX_PATH or (
        size > _MAX_COMPONENT and max(len(os.fsencode(piece)) for piece in pieces) > _MAX_COMPONENT
    ):
        raise NameRefusedError(f"{_shown(rel)} is too long for a path")
    return pieces


def _shown(rel: str) -> str:
    return ascii(rel if len(rel) <= 80 else rel[:77] + "...")


def open_beneath(root: int, rel: str, flags: int, mode: int = 0o644) -> int:
    """Open `rel` beneath the directory descriptor `root`, following no symlink anywhere in it.

    Raises:
        NameRefusedError: `rel` cannot be beneath anything.
        UnsafePathError: a symlink stands in the way.
        OSError: as `open(2)` has it.
    """
    pieces = parts(rel)
    flags |= os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        if len(pieces) > 1 and have_openat2():
            return _openat2(root, rel, flags, mode if flags & os.O_CREAT else 0)
        return _walk(root, pieces, flags, mode)
    except OSError as error:
        if error.errno in _UNSAFE or (error.errno == errno.ENOTDIR and _is_link(root, rel)):
            raise UnsafePathError(
                f"{_shown(rel)} leads through a symlink or a special file"
            ) from error
        raise


def open_regular(root: int, rel: str, flags: int = os.O_RDONLY) -> int:
    """Open an existing regular file beneath `root`; a FIFO or device never blocks or answers.

    Raises:
        UnsafePathError: what is there is no regular file.
    """
    fd = open_beneath(root, rel, flags | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        require_regular(fd, rel)
    except BaseException:
        os.close(fd)
        raise
    return fd


def require_regular(fd: int, what: str) -> os.stat_result:
    """The stat of an open regular file.

    Raises:
        UnsafePathError: it is a directory, a FIFO, a socket or a device.
    """
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode):
        raise UnsafePathError(f"{_shown(what)} is no regular file")
    return found


def exclusive_rename(source_dir: int, source: str, target_dir: int, target: str) -> None:
    """Rename between open directories; `FileExistsError` if another file has the target's name.

    One atomic call where the kernel and the file system have RENAME_NOREPLACE. Elsewhere it is a
    link and an unlink: the target appears at once and whole or not at all, but a power cut between
    the two leaves the file under both names. To call it again completes it then: a target that is
    the very file to be renamed is no clash, and the source's name goes.
    """
    try:
        if not _rename_noreplace(source_dir, source, target_dir, target):
            os.link(
                source, target, src_dir_fd=source_dir, dst_dir_fd=target_dir, follow_symlinks=False
            )
            os.unlink(source, dir_fd=source_dir)
    except FileExistsError:
        if not _two_names_of_one(source_dir, source, target_dir, target):
            raise
        os.unlink(source, dir_fd=source_dir)


def _rename_noreplace(source_dir: int, source: str, target_dir: int, target: str) -> bool:
    """Whether it is done; False if the C library, the kernel or the file system cannot."""
    call = _renameat2()
    if call is None:
        return False
    result = call(
        ctypes.c_int(source_dir),
        os.fsencode(source),
        ctypes.c_int(target_dir),
        os.fsencode(target),
        ctypes.c_uint(_RENAME_NOREPLACE),
    )
    if result == 0:
        return True
    code = ctypes.get_errno()
    if code in _NO_SYSCALL:
        return False
    raise OSError(code, os.strerror(code), source, None, target)


def _two_names_of_one(source_dir: int, source: str, target_dir: int, target: str) -> bool:
    try:
        here = os.stat(source, dir_fd=source_dir, follow_symlinks=False)
        there = os.stat(target, dir_fd=target_dir, follow_symlinks=False)
    except FileNotFoundError:
        return False
    one_name = source == target and os.path.samestat(os.fstat(source_dir), os.fstat(target_dir))
    return here.st_nlink > 1 and os.path.samestat(here, there) and not one_name


def _openat2(root: int, rel: str, flags: int, mode: int) -> int:
    call = _syscall()
    assert call is not None
    name, how = os.fsencode(rel), _how(flags, mode)
    races = 0
    while True:
        fd = call(_NUMBER, ctypes.c_long(root), name, how, _HOW_SIZE)
        if fd >= 0:
            return int(fd)
        code = ctypes.get_errno()
        races += code == errno.EAGAIN
        if code not in (errno.EAGAIN, errno.EINTR) or races > _RACES:
            raise OSError(code, os.strerror(code), rel)


def _walk(root: int, pieces: list[str], flags: int, mode: int) -> int:
    if not pieces:
        return os.open(".", flags, dir_fd=root)
    here = root
    try:
        for piece in pieces[:-1]:
            below = os.open(
                piece, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=here
            )
            above, here = here, below
            if above != root:
                os.close(above)
        return os.open(pieces[-1], flags, mode, dir_fd=here)
    finally:
        if here != root:
            os.close(here)


def _is_link(root: int, rel: str) -> bool:
    pieces = parts(rel)
    for depth in range(1, len(pieces) + 1):
        try:
            found = os.stat("/".join(pieces[:depth]), dir_fd=root, follow_symlinks=False)
        except OSError:
            return False
        if stat.S_ISLNK(found.st_mode):
            return True
    return False
