"""A centre under another name: what is remembered of its engine is taken over from the old one.

    <schema dir>/sync/<host>_<port>/takeover.json    only while something is still to be renamed

Folders are named after an address, and what is in them belongs to an engine. Where an engine
answers that another folder is of, that folder gets the new name:

1. takeover.json, beneath the new name: which folders get which names, and where that is to be done
2. the files of `<schema dir>/sync/<old>`, receiver.json last
3. `<data dir>/sync-sender/<old>`, in each data directory that counts now
4. takeover.json without what is done; it stays for data directories that are away

What the new name has of another engine goes first, to `<host>_<port>.<engine>`, and is found there
when that engine answers again. Both names are locked meanwhile. Each step may be done twice, and
what a killed process has renamed is flushed before it counts as done.

Format, version 1: one JSON object, `_Takeover`; replaced as a whole.
"""

from __future__ import annotations

import stat
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from common import crash
from common.decoders import from_json
from common.durable import is_temporary
from common.errors import DamagedError
from sender.kept.loaded_list.ledger import SENDER_DIRS, sender_dir
from sender.kept.receiver_file import RECEIVER_FILE, Receiver, ReceiverFile

if TYPE_CHECKING:
    from common.durable import Tree

__all__ = [
    "Renaming",
    "engines_of",
    "folder_of_lists",
    "folder_of_memory",
    "rename",
    "renamings",
    "under_way",
]

_FILE = "takeover.json"
_VERSION = 1


class Renaming(msgspec.Struct, frozen=True, kw_only=True):
    """A folder that gets another name.

    Attributes:
        source: the name that it has.
        target: the name that it gets.
        memory: whether that in the schema directory is still to be renamed.
        left: data directories in which that is still to be done.
    """

    source: str
    target: str
    memory: bool = True
    left: tuple[str, ...] = ()


class _Takeover(msgspec.Struct, frozen=True, kw_only=True):
    version: int = _VERSION
    renamings: tuple[Renaming, ...] = ()


def engines_of(sync: Tree, directory: str) -> dict[str, Receiver]:
    """What is remembered in other folders than this, of those that know their engine."""
    found = {}
    for name, status in sync.listing():
        if name != directory and stat.S_ISDIR(status.st_mode):
            now = ReceiverFile.open(sync, name).now
            if (now.answered or now.engine) is not None:
                found[name] = now
    return found


def renamings(
    sync: Tree, directory: str, take: str | None = None, dirs: Collection[str] = ()
) -> tuple[Renaming, ...]:
    """What is to be renamed so that a folder has what belongs to it, in this order.

    Args:
        sync: `<schema dir>/sync`.
        directory: `<host>_<port>`.
        take: the folder that is to be taken over now; None: only what is not done yet.
        dirs: data directories that may have lists of one of the two.

    Raises:
        DamagedError: nobody knows what is not done yet.
    """
    begun = _read(sync, directory)
    if take is None:
        return begun
    engine = ReceiverFile.open(sync, directory).now.engine
    left = tuple(dirs)
    if engine is not None:
        aside = Renaming(source=directory, target=f"{directory}.{engine}", left=left)
        begun = (*begun, aside)
    return (*begun, *_read(sync, take), Renaming(source=take, target=directory, left=left))


def under_way(sync: Tree, directory: str) -> bool:
    """Whether something is still to be renamed."""
    return sync.exists(f"{directory}/{_FILE}")


def rename(
    sync: Tree, directory: str, trees: Mapping[Path, Tree], todo: tuple[Renaming, ...]
) -> None:
    """Do it, as far as data directories are there; the lock of `directory` is the caller's.

    Args:
        sync: `<schema dir>/sync`.
        directory: `<host>_<port>`.
        trees: the data directories that count now.
        todo: by `renamings`.

    Raises:
        LockedError: another process works under a name that is to go.
    """
    if todo != _read(sync, directory):
        _write(sync, directory, todo)
        crash.point("takeover.begun")
    else:
        sync.sync_dir(directory)  # what a killed process left is carried out, so it must last
    for number, each in enumerate(todo):
        if not each.memory and not any(Path(data_dir) in trees for data_dir in each.left):
            continue
        with _locked(sync, each.source, directory):
            away = _renamed(sync, directory, trees, each)
        if each.memory or away != each.left:
            done = msgspec.structs.replace(each, memory=False, left=away)
            todo = (*todo[:number], done, *todo[number + 1 :])
            _write(sync, directory, tuple(one for one in todo if one.memory or one.left))
            crash.point("takeover.recorded")


def folder_of_memory(sync: Tree, directory: str, todo: tuple[Renaming, ...]) -> str:
    """Where in `<schema dir>/sync` a folder lies before this is done."""
    left = tuple(each for each in todo if each.memory)
    return _lies(left, directory, lambda name: sync.exists(f"{name}/{RECEIVER_FILE}"))


def folder_of_lists(tree: Tree, data_dir: Path, directory: str, todo: tuple[Renaming, ...]) -> str:
    """Where in `<data dir>/sync-sender` a folder lies before this is done."""
    left = tuple(each for each in todo if str(data_dir) in each.left)
    return _lies(left, directory, lambda name: tree.exists(sender_dir(name)))


def _lies(todo: tuple[Renaming, ...], directory: str, exists: Callable[[str], bool]) -> str:
    name = found = directory
    for each in reversed(todo):
        if each.target == name:
            name = each.source
            found = name if exists(name) else found
    return found


@contextmanager
def _locked(sync: Tree, name: str, own: str) -> Iterator[None]:
    """Keep others from working under a name; ours is locked already."""
    if name == own or not sync.exists(name):
        yield
        return
    lock = sync.lock(f"{name}/sync.lock")
    try:
        yield
    finally:
        lock.release()


# -- renaming ------------------------------------------------------------------------------------


def _renamed(
    sync: Tree, directory: str, trees: Mapping[Path, Tree], each: Renaming
) -> tuple[str, ...]:
    """Rename one folder; returns the data directories in which that is still to be done."""
    if each.memory:
        _rename_memory(sync, each.source, each.target, forget=each.source != directory)
    away = []
    for data_dir in each.left:
        tree = trees.get(Path(data_dir))
        if tree is None or not _rename_lists(tree, each, last=each.target == directory):
            away.append(data_dir)
    return tuple(away)


def _rename_memory(sync: Tree, source: str, target: str, *, forget: bool) -> None:
    sync.make_dirs(target)
    names = [name for name, found in sync.listing(source) if stat.S_ISREG(found.st_mode)]
    for name in sorted(names, key=lambda name: name == RECEIVER_FILE):
        if name != _FILE and not name.endswith(".lock") and not is_temporary(name):
            sync.rename(f"{source}/{name}", f"{target}/{name}", sync=False)
            crash.point("takeover.memory_renamed")
    if forget:
        sync.unlink(f"{source}/{_FILE}", sync=False)  # it is part of ours
    sync.sync_dir(target)
    if sync.exists(source):
        sync.sync_dir(source)
    crash.point("takeover.memory_flushed")


def _rename_lists(tree: Tree, each: Renaming, *, last: bool) -> bool:
    """Rename a folder of lists; False if there is none under either name yet."""
    source, target = sender_dir(each.source), sender_dir(each.target)
    if tree.exists(source):
        if tree.exists(target):
            # Nobody knows whose these are; they are in the way, and nothing is thrown away.
            names = (f"{target}.aside-{number}" for number in count(1))
            tree.rename(target, next(name for name in names if not tree.exists(name)))
        tree.rename(source, target, sync=False)
        crash.point("takeover.lists_renamed")
    elif last and not tree.exists(target):
        return False  # a directory of a receiver has no marker: its disk may not be mounted
    if tree.exists(SENDER_DIRS):
        tree.sync_dir(SENDER_DIRS)
    return True


# -- takeover.json -------------------------------------------------------------------------------


def _read(sync: Tree, directory: str) -> tuple[Renaming, ...]:
    rel = f"{directory}/{_FILE}"
    try:
        found = from_json(sync.read(rel), _Takeover)
    except FileNotFoundError:
        return ()
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise DamagedError(
            f"{sync.path / rel} is damaged: {error}; restore it from a copy"
        ) from error
    if found.version != _VERSION:
        raise DamagedError(f"{sync.path / rel}: version {found.version} is not known here")
    return found.renamings


def _write(sync: Tree, directory: str, todo: tuple[Renaming, ...]) -> None:
    rel = f"{directory}/{_FILE}"
    if todo:
        sync.make_dirs(directory)
        sync.write_atomic(rel, msgspec.json.encode(_Takeover(renamings=todo)))
    else:
        sync.unlink(rel)
