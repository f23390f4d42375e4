"""What the old sync tool keeps at an edge. It is read, and never written.

    <data dir>/sync-sender/<host>_<port>/last_local_files.txt      absolute paths of what is synced
                                         current_local_files.txt   while that is being replaced
                                         sync.log                  while a round is under way
    <system dir>/sync/uuid.txt                                     32 hex digits, no line break
    <system dir>/sync/<host>_<port>/sync_schema_pos                a number, no line break

`<host>_<port>` is the old receiver. The number says how much of the schema log was shipped: lines
of mlog.txt with 0.10 and 0.11, bytes of mlog.bin with 0.12. The tool's lock file tells nothing: it
is unlocked as soon as it is locked. A list that its own recovery would make anew counts as that
would make it: the current one where the last one is gone, else the last one with what sync.log has
of a round that was cut off.
"""

from __future__ import annotations

import stat
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from common.console.terminal import counted
from common.durable import Tree
from common.errors import DamagedError, NameRefusedError, TsferryError, UsageError
from common.names import FilePath, is_sender_uuid
from sender.kept.loaded_list.ledger import SENDER_DIRS

if TYPE_CHECKING:
    import os
    from pathlib import Path

__all__ = ["SET_ASIDE", "OldLists", "OldTool", "old_identity", "old_path", "read_old_tool"]

SET_ASIDE: Final = ".old-tool"
"""What a folder of the old tool is called besides where it was in the way of ours."""
_LAST: Final = "last_local_files.txt"
_CURRENT: Final = "current_local_files.txt"
_LOG: Final = "sync.log"
_OURS: Final = "local_files.state"
"""What the old tool has not beside its list."""
_UUID: Final = "uuid.txt"
_POSITION: Final = "sync_schema_pos"
_LOCK: Final = "sync_lock"
_DELETED: Final = "sync deleted file names start"
_SENT: Final = "sync tsfile start"
_LOGS: Final = ("mlog.bin", "mlog.txt")
_MOST: Final = 4096


class OldLists(msgspec.Struct, frozen=True):
    """The lists of the data directories.

    Attributes:
        receiver: `<host>_<port>` of the old receiver.
        synced: path -> the data directory whose list has it.
        folders: data directories in which the tool has a folder for it under that name.
        odd: what was not whole, or could not be read, in words.
    """

    receiver: str
    synced: Mapping[FilePath, Path]
    folders: tuple[Path, ...]
    odd: tuple[str, ...]


class OldTool(msgspec.Struct, frozen=True):
    """All of it.

    Attributes:
        uuid: the identity; None where there is none.
        lists: what is synced.
        schema: how far the schema log was shipped, in words; empty where nothing says it.
        odd: what is half there, in words.
    """

    uuid: str | None
    lists: OldLists
    schema: str
    odd: tuple[str, ...]


def read_old_tool(
    data_dirs: Iterable[Path],
    system_dir: Path,
    schema_dir: Path,
    receiver: str | None,
    uuid: str | None = None,
) -> OldTool:
    """Read it.

    Args:
        data_dirs: of the database.
        system_dir: of the database; `sync` is in it.
        schema_dir: of the database.
        receiver: `<host>_<port>` of the old receiver; None: the only one.
        uuid: the identity, where that is not to be read.

    Raises:
        DamagedError: the identity is none.
        UsageError: there is nothing of it, or it has several receivers.
    """
    trees = {path: tree for path in data_dirs if (tree := _opened(path)) is not None}
    sync = _opened(system_dir / "sync")
    try:
        lists = _lists(trees, receiver, sync)
    except UsageError:
        if sync is not None:
            sync.close()
        raise
    finally:
        for tree in trees.values():
            tree.close()
    odd = list(lists.odd)
    if sync is None:
        odd.append(f"{system_dir / 'sync'} is not there: say where it is (--system)")
        return OldTool(uuid, lists, "", tuple(odd))
    with sync:
        uuid = uuid or _identity(sync, odd)
        schema = _position(sync, lists.receiver, schema_dir, odd)
    return OldTool(uuid, lists, schema, tuple(odd))


def old_identity(system_dir: Path) -> str | None:
    """Who the old tool was here; None where it was not, or where its identity is no whole one.

    Its lists may be lost: nothing but the tool has made an identity there.

    Args:
        system_dir: of the database; `sync` is in it.
    """
    sync = _opened(system_dir / "sync")
    if sync is None:
        return None
    with sync:
        try:
            return _identity(sync, [])
        except DamagedError:
            return None


def _lists(trees: Mapping[Path, Tree], receiver: str | None, sync: Tree | None) -> OldLists:
    names = {name for tree in trees.values() for name in _folders(tree)}
    if not names and sync is not None:  # all lists are lost, or never were
        names = _schema_receivers(sync) or (
            {receiver} if receiver and sync.exists(_UUID) else set()
        )
    # Cut off between two data directories one folder has its new name, and another not yet.
    aside = {name for name in names if f"{name}{SET_ASIDE}" in names}
    names -= {f"{name}{SET_ASIDE}" for name in aside}
    if receiver is None:
        if len(names) > 1:
            known = ", ".join(sorted(names))
            raise UsageError(f"the old tool has several receivers ({known}): say which (--old)")
        if not names:
            raise UsageError(
                "the old tool has no folder in sync-sender of any data directory: where its lists "
                "are lost, name its receiver (--old); an edge that used none needs none of this: "
                "tsferry-sender init"
            )
        receiver = names.pop()
    elif receiver not in names and f"{receiver}{SET_ASIDE}" in names:
        receiver += SET_ASIDE
    elif receiver not in names:
        raise UsageError(f"the old tool has no folder sync-sender/{receiver} in a data directory")
    synced: dict[FilePath, Path] = {}
    folders, odd = [], []
    for data_dir, tree in trees.items():
        name, here = receiver, _folders(tree)
        if name in here:
            folders.append(data_dir)
        elif name in aside and f"{name}{SET_ASIDE}" in here:
            name += SET_ASIDE
        else:
            odd.append(f"{data_dir}: no {SENDER_DIRS}/{receiver}: nothing counts as synced of it")
            continue
        for path in _synced(tree, f"{SENDER_DIRS}/{name}", odd):
            synced.setdefault(path, data_dir)
    return OldLists(receiver, synced, tuple(folders), tuple(odd))


def _schema_receivers(sync: Tree) -> set[str]:
    """Receivers that the old tool has shipped the schema to."""
    return {
        name
        for name, status in _listing(sync, "")
        if stat.S_ISDIR(status.st_mode)
        and {each for each, _ in _listing(sync, name)} & {_POSITION, _LOCK}
    }


def _folders(tree: Tree) -> list[str]:
    """Receivers of the old tool: folders that have what it keeps, and nothing of ours."""
    found = []
    listed = _listing(tree, SENDER_DIRS)
    aside = {name for name, _ in listed if name.endswith(SET_ASIDE)}
    for name, status in listed:
        if stat.S_ISDIR(status.st_mode) and f"{name}{SET_ASIDE}" not in aside:
            folder = f"{SENDER_DIRS}/{name}"
            inside = {each for each, _ in _listing(tree, folder)}
            if inside & {_LAST, _CURRENT, _LOG, "snapshot"} and not _is_ours(tree, folder, inside):
                found.append(name)
    return found


def _is_ours(tree: Tree, folder: str, inside: Collection[str]) -> bool:
    """Whether a list is ours: its facts are beside it, or, half written, its paths are relative."""
    lists = (_read(tree, f"{folder}/{name}") or b"" for name in (_LAST, _CURRENT) if name in inside)
    return _OURS in inside or any(each.startswith((b"sequence/", b"unsequence/")) for each in lists)


def _listing(tree: Tree, rel: str) -> list[tuple[str, os.stat_result]]:
    try:
        return list(tree.listing(rel))
    except (OSError, TsferryError):
        return []


def _synced(tree: Tree, folder: str, odd: list[str]) -> list[FilePath]:
    """What the tool would take for synced when it starts again."""
    where = tree.path / folder
    last, current = _read(tree, f"{folder}/{_LAST}"), _read(tree, f"{folder}/{_CURRENT}")
    if last is None and current is None:
        odd.append(f"{where}: no {_LAST}: nothing counts as synced of it")
    if last is None and current is not None:
        odd.append(f"{where}: a list that was being replaced; the new one counts, as it is whole")
        return _paths(current, where / _CURRENT, odd)
    listed = dict.fromkeys(_paths(last or b"", where / _LAST, odd))
    log = _read(tree, f"{folder}/{_LOG}")
    if log is not None:
        odd.append(f"{where}: a round was cut off; what {_LOG} has of it counts")
        _play(log, listed, where / _LOG, odd)
    return list(listed)


def _play(log: bytes, listed: dict[FilePath, None], where: Path, odd: list[str]) -> None:
    """Put what a round has done onto the list: all deletions, then all files, as the tool does."""
    deleted: list[bytes] = []
    sent: list[bytes] = []
    into: list[bytes] | None = None
    for line in log.splitlines(keepends=True):
        match line.rstrip(b"\r\n").decode(errors="replace"):
            case text if text == _DELETED:
                into = deleted
            case text if text == _SENT:
                into = sent
            case _ if into is not None:
                into.append(line)
    for path in _paths(b"".join(deleted), where, odd):
        listed.pop(path, None)
    listed.update(dict.fromkeys(_paths(b"".join(sent), where, odd)))


def _paths(content: bytes, where: Path, odd: list[str]) -> list[FilePath]:
    """The files of lines of absolute paths; a last line without its end may be a part of one."""
    lines = content.split(b"\n")
    torn = lines.pop()
    wrong = [torn] if torn else []
    found = []
    for line in lines:
        path = old_path(line)
        if path is None:
            wrong.append(line)
        else:
            found.append(path)
    if wrong:
        first = ascii(wrong[0][:80].decode(errors="replace"))
        odd.append(
            f"{where}: {counted(len(wrong), 'line names', 'lines name')} no file, "
            f"the first is {first}"
        )
    return found


def old_path(line: bytes) -> FilePath | None:
    """The path of a line in its data directory, wherever that was, or is, if the line says so.

    Databases before 0.12 have no regions: what an upgrade makes of their files is in region 0.
    """
    try:
        parts = line.rstrip(b"\r").decode().replace("\\", "/").split("/")
        if len(parts) >= 5 and parts[-5] in ("sequence", "unsequence"):
            return FilePath.parse("/".join(parts[-5:]))
        if len(parts) >= 4 and parts[-4] in ("sequence", "unsequence"):  # without regions
            kind, sg, partition, name = parts[-4:]
            return FilePath.parse(f"{kind}/{sg}/0/{partition}/{name}")
    except (UnicodeDecodeError, NameRefusedError):
        pass
    return None


def _identity(sync: Tree, odd: list[str]) -> str | None:
    content = _read(sync, _UUID)
    where = sync.path / _UUID
    if content is None:
        odd.append(f"{where} is not there: the old tool has never reached a receiver, or lost it")
        return None
    text = content[:_MOST].decode("ascii", "replace").strip()
    if not is_sender_uuid(text):
        raise DamagedError(
            f"{where} is damaged: it must be 32 lower-case hex digits. The old receiver has it in "
            "the name of a folder, sync-receiver/<ip>_<uuid>; name it with --uuid"
        )
    return text


def _position(sync: Tree, receiver: str, schema_dir: Path, odd: list[str]) -> str:
    where = sync.path / receiver / _POSITION
    content = _read(sync, f"{receiver}/{_POSITION}")
    if content is None:
        return ""
    text = content[:_MOST].decode("ascii", "replace").strip()
    if not text.isdigit():
        odd.append(f"{where}: {text[:40]!a} is no position in a schema log")
        return ""
    tree = _opened(schema_dir)
    sizes: dict[str, int] = {}
    if tree is not None:
        with tree:
            sizes = {name: found.st_size for name in _LOGS if (found := tree.stat(name))}
    if "mlog.bin" in sizes:
        if int(text) > sizes["mlog.bin"]:
            odd.append(f"{where}: {text} bytes, and mlog.bin has {sizes['mlog.bin']}")
        return f"{text} of the {sizes['mlog.bin']} bytes of mlog.bin"
    return (
        f"{counted(int(text), 'line')} of mlog.txt"
        if "mlog.txt" in sizes
        else f"{text}, of no log that is here"
    )


def _opened(path: Path) -> Tree | None:
    try:
        return Tree(path)
    except OSError:
        return None


def _read(tree: Tree, rel: str) -> bytes | None:
    try:
        return tree.read(rel)
    except (OSError, TsferryError):
        return None
