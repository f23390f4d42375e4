"""Opening paths that cannot leave their directory, whatever the names say or others do meanwhile.

Where the kernel has `openat2` (Linux 5.6), one call resolves the whole path with RESOLVE_BENEATH,
RESOLVE_NO_SYMLINKS and RESOLVE_NO_MAGICLINKS, so a symlink planted between check and open is no
danger: there is no check, only the open. Elsewhere each component is opened by itself with
O_NOFOLLOW under the descriptor of the one before, which holds the same promise in more calls.

Names are checked all the same (`parts`), so that a bad one gives the same answer on both ways.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from functools import cache
from typing import TYPE_CHECKING

from common.errors import NameRefusedError, UnsafePathError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["exclusive_rename", "have_openat2", "open_beneath", "open_regular", "parts"]

_SYS_OPENAT2 = 437
_SYS_RENAMEAT2 = {"x86_64": 316, "aarch64": 276, "riscv64": 276, "armv7l": 382, "armv6l": 382}
_RESOLVE = 0x08 | 0x04 | 0x02  # BENEATH | NO_SYMLINKS | NO_MAGICLINKS
_RENAME_NOREPLACE = 1
_UNSAFE = frozenset({errno.ELOOP, errno.EXDEV, errno.ENXIO})
_NO_SYSCALL = frozenset({errno.ENOSYS, errno.EINVAL, errno.EPERM, errno.E2BIG})


class _OpenHow(ctypes.Structure):
    _fields_ = (
        ("flags", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("resolve", ctypes.c_uint64),
    )


@cache
def _syscall() -> Callable[..., int] | None:
    try:
        function = ctypes.CDLL(None, use_errno=True).syscall
    except (OSError, AttributeError):
        return None
    function.restype = ctypes.c_long
    result: Callable[..., int] = function
    return result


@cache
def have_openat2() -> bool:
    """Whether this kernel resolves a path beneath a directory in one call."""
    if _syscall() is None:
        return False
    here = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.close(_openat2(here, ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, 0))
    except OSError:
        return False
    finally:
        os.close(here)
    return True


def parts(rel: str) -> list[str]:
    """The components of a relative POSIX path; `[]` for the directory itself.

    Raises:
        NameRefusedError: the path is absolute, has an empty, `.` or `..` component, or a NUL.
    """
    if rel in ("", "."):
        return []
    pieces = rel.split("/")
    if "\0" in rel or any(piece in ("", ".", "..") for piece in pieces):
        raise NameRefusedError(f"{rel!r} is no path beneath a directory")
    return pieces


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
        if have_openat2():
            return _openat2(root, rel or ".", flags, mode if flags & os.O_CREAT else 0)
        return _walk(root, pieces, flags, mode)
    except OSError as error:
        if error.errno in _UNSAFE or (error.errno == errno.ENOTDIR and _is_link(root, rel)):
            raise UnsafePathError(f"{rel!r} leads through a symlink or a special file") from error
        raise


def open_regular(root: int, rel: str) -> int:
    """Open a regular file beneath `root` for reading; a FIFO or device never blocks or answers.

    Raises:
        UnsafePathError: what is there is no regular file.
    """
    fd = open_beneath(root, rel, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise UnsafePathError(f"{rel!r} is no regular file")
    return fd


def exclusive_rename(source_dir: int, source: str, target_dir: int, target: str) -> None:
    """Rename between open directories; `FileExistsError` if the target is there already."""
    number = _SYS_RENAMEAT2.get(os.uname().machine)
    call = _syscall()
    if number is not None and call is not None:
        result = call(
            number,
            ctypes.c_int(source_dir),
            os.fsencode(source),
            ctypes.c_int(target_dir),
            os.fsencode(target),
            ctypes.c_uint(_RENAME_NOREPLACE),
        )
        if result == 0:
            return
        code = ctypes.get_errno()
        if code not in _NO_SYSCALL:
            raise OSError(code, os.strerror(code), source, None, target)
    os.link(source, target, src_dir_fd=source_dir, dst_dir_fd=target_dir, follow_symlinks=False)
    os.unlink(source, dir_fd=source_dir)


def _openat2(root: int, rel: str, flags: int, mode: int) -> int:
    call = _syscall()
    assert call is not None
    how = _OpenHow(flags=flags, mode=mode, resolve=_RESOLVE)
    while True:
        fd = call(
            _SYS_OPENAT2,
            ctypes.c_int(root),
            os.fsencode(rel),
            ctypes.byref(how),
            ctypes.c_size_t(ctypes.sizeof(how)),
        )
        if fd >= 0:
            return int(fd)
        code = ctypes.get_errno()
        if code not in (errno.EAGAIN, errno.EINTR):  # EAGAIN: a rename raced the resolution
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
            if here != root:
                os.close(here)
            here = below
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
