"""What root made by mistake, or is about to: a daemon of another user cannot change it."""

from __future__ import annotations

import itertools
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from common.errors import NotPermittedError
from common.system_errors import user_name

__all__ = ["root_mistakes", "telling_of_root"]

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
    found = list(_of_root(below))
    return [_roots(found, us)] if found else []


@contextmanager
def telling_of_root(
    places: Iterable[Path], *, below: Sequence[Path], warn: Callable[[str], None]
) -> Iterator[None]:
    """Begin to use directories: what root made there by mistake is the one thing that is said.

    Root itself is warned before anything is made. Another user is warned if all went well; where
    the system refused what root made, the error is that, and has its way out.

    Args:
        places: as of `root_mistakes`.
        below: the same.
        warn: takes a warning.

    Raises:
        NotPermittedError: a call below one of `below` was refused, and root made something there.
    """
    found = root_mistakes(places, below=below)
    if os.geteuid() == 0:
        for each in found:
            warn(each)
        yield
        return
    try:
        yield
    except PermissionError as error:
        refused = Path(os.path.abspath(os.fsdecode(error.filename or "/")))
        if found and any(refused.is_relative_to(each.absolute()) for each in below):
            raise NotPermittedError("; ".join(found)) from error
        raise
    for each in found:
        warn(each)


def _made_by_root(places: Iterable[Path]) -> Iterator[str]:
    for place in places:
        found = _stat(place)
        if found is not None and found.st_uid != 0:
            owner = user_name(found.st_uid)
            yield (
                f"this runs as root, and {place} belongs to {owner}: a daemon of {owner} cannot "
                f"change what is made now; run it by sudo -u {owner}"
            )


def _of_root(below: Iterable[Path]) -> Iterator[tuple[Path, Path]]:
    """What root made and we cannot change, the first of each place, with its place."""
    for place in below:
        for each in itertools.islice(_things(place, 2), _LOOKED_AT):
            found = _stat(each)
            if found is None or found.st_uid != 0 or stat.S_ISLNK(found.st_mode):
                continue
            if not os.access(each, os.W_OK, effective_ids=True):
                yield each, place
                break


def _roots(found: Sequence[tuple[Path, Path]], us: int) -> str:
    name = user_name(us)
    owned = ", ".join(str(each) for each, _ in found)
    return (
        f"root owns {owned}, and the user {name} cannot change that; if a command was run as root "
        f"by mistake: sudo chown -R {name} {' '.join(str(place) for _, place in found)}"
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
