"""Which engine answers under an address, and what is remembered of it under another name."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

import msgspec

from common.durable import Tree
from common.errors import TsferryError, UsageError
from sender.kept.identity import patient_lock
from sender.kept.loaded_list.ledger import sender_dir
from sender.kept.receiver_file import Receiver, ReceiverFile
from sender.kept.takeover import (
    Renaming,
    engines_of,
    folder_of_lists,
    folder_of_memory,
    rename,
    renamings,
)
from sender.select.data_dirs import DataDirs
from sender.send.remote import Remote

__all__ = ["StateFolders", "claim", "look_for_folders", "look_for_lists", "take_over"]

_log = logging.getLogger(__name__)
_LOCK = "engines.lock"
_NO_ENGINE = "none"
"""No uuid: a check that names another engine than the receiver's is refused to nobody."""


def take_over(remote: Remote, sync: Tree) -> None:
    """Give the folders of the centre that answers the name that it has now; or go on with that.

    Raises:
        UsageError: two of the configured names are of one centre.
        LockedError: another process works under the old name.
    """
    begun = renamings(sync, remote.directory)
    _rename(remote, sync, begun)
    todo = _renamings(remote, sync, lambda: _engine(remote), claiming=True)
    if todo and todo[-1].memory:
        _rename(remote, sync, todo)
        _log.warning(
            "%s: this centre was %s before; what is remembered of it is taken over",
            remote.name,
            todo[-1].source,
        )


def _rename(remote: Remote, sync: Tree, todo: tuple[Renaming, ...]) -> None:
    if todo:
        paths = {Path(path) for each in todo for path in each.left}
        with _open(remote, paths) as dirs:
            rename(sync, remote.directory, dirs.trees, todo)


class StateFolders(msgspec.Struct, frozen=True):
    """For one who only looks: where things lie that a round would rename.

    Attributes:
        memory: the folder in `<schema dir>/sync`.
        todo: what a round would rename.
    """

    memory: str
    todo: tuple[Renaming, ...] = ()


def look_for_folders(remote: Remote, sync: Tree, *, patient: bool) -> StateFolders:
    """Find them.

    Args:
        remote: to the receiver.
        sync: `<schema dir>/sync`.
        patient: whether it must answer; otherwise it is asked once, and only if another folder
            could be its own.

    Raises:
        UsageError: two of the configured names are of one centre.
    """
    ask = (lambda: _engine(remote)) if patient else (lambda: _engine_if_up(remote))
    todo = _renamings(remote, sync, ask, claiming=False)
    return StateFolders(folder_of_memory(sync, remote.directory, todo), todo)


def look_for_lists(remote: Remote, dirs: DataDirs, folders: StateFolders) -> None:
    """Let reads through `dirs` find lists where they lie."""
    for path, tree in dirs:
        name = folder_of_lists(tree, path, remote.directory, folders.todo)
        if name != remote.directory:
            dirs.elsewhere[path] = name


def claim(remote: Remote, sync: Tree, memory: ReceiverFile, engine: str) -> None:
    """Be the one configured name of an engine.

    Raises:
        UsageError: another one is.
    """
    if len(remote.config.receivers) == 1:
        return
    with patient_lock(sync, _LOCK):
        _alone(remote, engines_of(sync, remote.directory), engine)
        memory.update(answered=engine)


def _alone(remote: Remote, others: Mapping[str, Receiver], engine: str) -> None:
    for entry in remote.config.receivers:
        other = others.get(entry.directory)
        if other is not None and (other.answered or other.engine) == engine:
            raise UsageError(
                f"receivers {entry.name} ({entry.url}) and {remote.name} ({remote.entry.url}) are "
                f"one centre, engine {engine}: configure it once; the name that is left takes over "
                "what is remembered under the other"
            )


def _renamings(
    remote: Remote, sync: Tree, ask: Callable[[], str | None], *, claiming: bool
) -> tuple[Renaming, ...]:
    """What is not done yet, and then what the engine that answers makes necessary."""
    begun = renamings(sync, remote.directory)
    if begun and begun[-1].memory:
        return begun
    memory = ReceiverFile.open(sync, remote.directory)
    if memory.problem:
        return begun  # it is no new name
    others = engines_of(sync, remote.directory)
    configured = {entry.directory for entry in remote.config.receivers}
    free = {name: now for name, now in others.items() if name not in configured and now.engine}
    own = memory.now.engine
    strangers = any(now.engine != own for now in free.values())
    if not strangers and (own is not None or len(configured) == 1 or not claiming):
        return begun
    engine = ask()
    if engine is None:
        return begun
    if claiming:
        claim(remote, sync, memory, engine)
    else:
        _alone(remote, others, engine)
    names = [name for name, now in free.items() if now.engine == engine]
    if engine == own or not names:
        return begun
    take = max(names, key=lambda name: free[name].newest_commit)
    theirs = any(each.source == remote.directory for each in renamings(sync, take))
    if own is None and not theirs and _has_lists(remote):
        return begun
    return renamings(sync, remote.directory, take, _dirs(remote, memory.now, free[take]))


def _dirs(remote: Remote, *known: Receiver) -> list[str]:
    """Data directories that may have lists."""
    if remote.entry.source == "receiver":
        return sorted({path for each in known for path in each.data_dirs})
    return [str(path) for path in remote.config.data_dirs]


def _has_lists(remote: Remote) -> bool:
    """Whether there are lists under this name: it is no new one, its memory was lost."""
    if remote.entry.source == "receiver":
        return False  # which directories have lists is only remembered
    with _open(remote, remote.config.data_dirs) as dirs:
        return any(tree.exists(sender_dir(remote.directory)) for _, tree in dirs)


def _open(remote: Remote, paths: Collection[Path]) -> DataDirs:
    if remote.entry.source == "receiver":
        return DataDirs.unmarked(paths)
    return DataDirs.open(paths, remote.uuid)


def _engine(remote: Remote) -> str:
    return remote.patiently(lambda: _asked(remote))


def _engine_if_up(remote: Remote) -> str | None:
    try:
        return _asked(remote)
    except TsferryError:
        return None


def _asked(remote: Remote) -> str:
    request = msgspec.structs.replace(remote.check_request(Receiver(), 0), engine=_NO_ENGINE)
    return remote.check(request, anybody=True).engine
