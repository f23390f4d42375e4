"""What root made by mistake, or is about to: a daemon of another user cannot change it."""

from __future__ import annotations

import itertools
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from common.system_errors import user_name

__all__ = ["root_mistakes"]

_LOOKED_AT = 2000
"""So many files below a place, and so no more than some milliseconds."""


def root_mistakes(places: Iterable[Path], *, below: Iterable[Path] = ()) -> list[str]:
    """Warnings for people, a line each, before something is made or cannot be changed.

    Args:
        places: directories that this process makes files in.
        below: files and directories that are ours alone: each thing in them is looked at, two
            levels deep.
    """
    us = os.geteuid()
    if us == 0:
        return list(dict.fromkeys(_made_by_root(places)))
    return [_roots(each, us) for each in _of_root(below)]


def _made_by_root(places: Iterable[Path]) -> Iterator[str]:
    for place in places:
        found = _stat(place)
        if found is not None and found.st_uid != 0:
            owner = user_name(found.st_uid)
            yield (
                f"this runs as root, and {place} belongs to {owner}: a daemon of {owner} cannot "
                f"change what is made now; run it by sudo -u {owner}"
            )


def _of_root(below: Iterable[Path]) -> Iterator[Path]:
    for place in below:
        for each in itertools.islice(_things(place, 2), _LOOKED_AT):
            found = _stat(each)
            if found is None or found.st_uid != 0 or stat.S_ISLNK(found.st_mode):
                continue
            if not os.access(each, os.W_OK, effective_ids=True):
                yield each
                break


def _roots(path: Path, us: int) -> str:
    return (
        f"{path} belongs to root and cannot be changed by the user {user_name(us)}; if a command "
        f"was run as root by mistake: sudo chown -R {user_name(us)} {path}"
    )


def _things(place: Path, deep: int) -> Iterator[Path]:
    yield place
    if not deep:
        return
    try:
        names = sorted(os.listdir(place))
    except OSError:  # no directory, or one whose reader says more than we could
        return
    for name in names:
        yield from _things(place / name, deep - 1)


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.lstat()
    except OSError:
        return None
