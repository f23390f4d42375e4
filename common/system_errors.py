"""What the system refused, as one line for people: which path, as which user, and the way out."""

from __future__ import annotations

import errno
import os
import pwd
import socket
import stat
from pathlib import Path

from common.errors import (
    AddressMissingError,
    AddressTakenError,
    ConfigError,
    DiskError,
    NoSpaceError,
    NotPermittedError,
    ReadOnlyDiskError,
    TsferryError,
)

__all__ = [
    "cannot_listen",
    "full_disk",
    "impossible_place",
    "owner_name",
    "read_only_disk",
    "said_of",
    "system_error",
    "user_name",
    "with_path",
]

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_OPEN = frozenset({errno.EMFILE, errno.ENFILE})
_KERNELS = ("/proc/", "/sys/")
_SHOWN = 200


def user_name(number: int) -> str:
    """A user's name; the number of one that has none, as in many containers."""
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def with_path(error: OSError, path: str) -> OSError:
    """The same error; it names the whole path, not what the last call of the system was given."""
    if isinstance(error.filename, str) and not error.filename.startswith("/"):
        error.filename = path
    return error


def system_error(error: OSError) -> TsferryError | None:
    """An error of ours for what the system said; None where nothing can be added to its words."""
    where = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else None
    if isinstance(error, PermissionError):
        return NotPermittedError(_not_permitted(where))
    place = where or "a file"
    if error.errno == errno.EROFS:
        return read_only_disk(place)
    if error.errno in _FULL:
        return full_disk(place)
    if error.errno in _OPEN:
        return DiskError(f"{place}: {error.strerror}: raise LimitNOFILE= of the unit, or ulimit -n")
    return None


def said_of(error: OSError) -> str:
    """What the system said, with the user and the way out where they are known."""
    found = system_error(error) or impossible_place(error)
    return found.message if found is not None else error.strerror or str(error)


def full_disk(what: str, doing: str = "write") -> NoSpaceError:
    """A disk, or the share of it that the user of this process may have, is full."""
    return NoSpaceError(
        f"no space to {doing} {what} for the user {user_name(os.geteuid())}: make room there, or "
        "raise its quota (df -h and df -i show what is full)"
    )


def read_only_disk(what: str) -> ReadOnlyDiskError:
    """A file system takes no writes."""
    return ReadOnlyDiskError(
        f"the file system of {what} is read-only: mount it for writing (findmnt -T {what}; dmesg "
        "says whether a fault made it so; under systemd, ReadWritePaths= of the unit)"
    )


def owner_name(path: Path) -> str | None:
    """Whose a path is, or what lies above it where nobody may look at it; None: not known."""
    return next((found for each in (path, *path.parents) if (found := _owner(each))), None)


def impossible_place(error: OSError) -> TsferryError | None:
    """An error of ours for a path that a command was given and that can be none; None for others.

    Not for a daemon's rounds: there a path that was one may become one again.
    """
    if not isinstance(error.filename, str | bytes):
        return None
    where = os.path.abspath(os.fsdecode(error.filename))
    us = user_name(os.geteuid())
    if error.errno == errno.ENOTDIR:
        file = next((each for each in _above(where) if each.exists() and not each.is_dir()), where)
        return ConfigError(
            f"{where}: the user {us} can have nothing there: {file} is no directory; name another "
            "place, or move that away"
        )
    if error.errno == errno.ELOOP:
        return ConfigError(
            f"{where}: the user {us} can have nothing there: a link on the way leads to itself "
            f"(namei {where} shows which); name another place, or remove the link"
        )
    if error.errno == errno.ENAMETOOLONG:
        return ConfigError(
            f"{where[:_SHOWN]}...: the user {us} can have nothing there: a name is longer than its "
            "file system takes (mostly 255 bytes); name a shorter one"
        )
    if error.errno == errno.ENOENT and where.startswith(_KERNELS):
        return ConfigError(
            f"{where}: the user {us} can make nothing there: /proc and /sys are the kernel's; name "
            "a directory on a disk"
        )
    return None


def _above(where: str) -> list[Path]:
    """A path and those above it, from the root on."""
    path = Path(where)
    return [*reversed(path.parents), path]


def _not_permitted(where: str | None) -> str:
    us = user_name(os.geteuid())
    if where is None:
        return f"the system does not permit it to the user {us}"
    path = Path(os.path.abspath(where))
    shut = next((each for each in reversed(path.parents) if _is_shut(each)), None)
    if shut is not None:
        owner = _owner(shut)
        return (
            f"{where}: the user {us} may not enter {shut} {_of(shut)}: run this as "
            f"{owner or 'its owner'}, or let {us} in (chmod, chgrp)"
        )
    if not os.path.lexists(path) or _may(path, os.R_OK | os.W_OK):
        return _not_made(where, path, us)
    found = f"{where}: the user {us} may not use it {_of(path)}"
    owner = _owner(path)
    if owner == us:
        return f"{found}: change its mode (chmod u+rw {path})"
    if owner == "root":
        return f"{found}: if a command was run as root by mistake, sudo chown {us} {path}"
    return f"{found}: run this as {owner} (sudo -u {owner} ...)"


def _not_made(where: str, path: Path, us: str) -> str:
    """Of what is to be made, or replaced by a rename, in a directory of somebody else."""
    there = next(each for each in path.parents if each.exists())
    return (
        f"{where}: the user {us} may not make anything in {there} {_of(there)}: run this as "
        f"{_owner(there)}, or make a directory for it (sudo install -d -o {us} ...)"
    )


def _may(path: Path, how: int) -> bool:
    return os.access(path, how, effective_ids=True)


def _is_shut(directory: Path) -> bool:
    return _stat(directory) is not None and not _may(directory, os.X_OK)


def _of(path: Path) -> str:
    found = _stat(path)
    if found is None:
        return "(of whom, is not known)"
    return f"(of {user_name(found.st_uid)}, mode {stat.S_IMODE(found.st_mode):04o})"


def _owner(path: Path) -> str | None:
    found = _stat(path)
    return None if found is None else user_name(found.st_uid)


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError:
        return None


def cannot_listen(what: str, port: int, error: OSError) -> TsferryError:
    """Why a port cannot be listened on, as an error that says whether waiting helps.

    Args:
        what: the keys and values of the configuration that ask for it.
        port: as asked for.
        error: of `bind` or `getaddrinfo`.
    """
    if error.errno == errno.EADDRINUSE:
        return AddressTakenError(
            f"{what}: cannot listen there: another process does already (ss -ltnp 'sport = :{port}'"
            " shows it)"
        )
    if error.errno == errno.EADDRNOTAVAIL:
        return AddressMissingError(
            f"{what}: cannot listen there: this machine has no such address (yet); ip address "
            "shows those that it has"
        )
    if isinstance(error, socket.gaierror):
        return AddressMissingError(
            f"{what}: expected an address or a name that can be resolved: {error.strerror}"
        )
    if isinstance(error, PermissionError):
        return ConfigError(
            f"{what}: cannot listen there: ports below 1024 are not the user "
            f"{user_name(os.geteuid())}'s; take a higher one, or AmbientCapabilities="
            "CAP_NET_BIND_SERVICE in the unit"
        )
    return ConfigError(f"{what}: cannot listen there: {error.strerror or error}")
