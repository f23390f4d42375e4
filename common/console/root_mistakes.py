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

__all__ = ["refuse_of_root", "root_mistakes", "telling_of_root"]

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
        return list(_made_by_root(places))
    found = list(_of_root(below))
    return [_roots(found, us)] if found else []


def refuse_of_root(below: Iterable[Path], in_place: tuple[str, ...]) -> None:
    """Say what root made by mistake where it is certainly in the way, before anything is done.

    A file that is replaced by a rename is nobody's matter; a directory, and a file that is written
    where it is, ends the work of another user in the middle.

    Args:
        below: as of `root_mistakes`.
        in_place: how the names of files end that are written where they are.

    Raises:
        NotPermittedError: there is something of that kind.
    """

    def is_in_the_way(path: Path) -> bool:
        return path.is_dir() or path.name.endswith(in_place)

    found = [] if os.geteuid() == 0 else list(_of_root(below, is_in_the_way))
    if found:
        raise NotPermittedError(_roots(found, os.geteuid()))


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
    """A line for each user whose directories root is about to make something in."""
    theirs: dict[int, list[Path]] = {}
    for place in dict.fromkeys(places):
        found = _stat(place)
        if found is not None and found.st_uid != 0:
            theirs.setdefault(found.st_uid, []).append(place)
    for uid, found_there in theirs.items():
        owner = user_name(uid)
        yield (
            f"this runs as root, and {owner} owns {', '.join(map(str, found_there))}: a daemon of "
            f"{owner} cannot change what is made now; run it by sudo -u {owner}"
        )


def _of_root(
    below: Iterable[Path], counts: Callable[[Path], bool] = lambda path: True
) -> Iterator[tuple[Path, Path]]:
    """What root made and we cannot change, the first of each place, with its place."""
    for place in below:
        for each in itertools.islice(_things(place, 2), _LOOKED_AT):
            found = _stat(each)
            if found is None or found.st_uid != 0 or stat.S_ISLNK(found.st_mode):
                continue
            if counts(each) and not os.access(each, os.W_OK, effective_ids=True):
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
