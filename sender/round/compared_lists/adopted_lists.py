"""What the old sync tool has sent, against what a receiver has: the list that goes on from there.

Content decides, not what a list says: a file counts as loaded if the receiver has its size and MD5,
under its path or another one of this sender. What the old tool had synced, and is here no more, was
deleted here since; that the receiver has it is known, so its end is told like any other. What only
the receiver has is not here either, and no list explains it: as after a list that was lost.

In the order in which it lasts: the markers of the data directories, the old tool's folder out of
the way where ours has the same name, the list, and the identity, without which nothing of it
counts. Cut off anywhere, it is done again, and until the last step nobody sends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from common import crash
from common.console.step_progress import StepProgress, stepping, untold
from common.durable import Tree
from common.errors import UsageError
from common.wire import LOADED
from sender.kept import identity
from sender.kept.loaded_list.ledger import Ledger, sender_dir
from sender.kept.loaded_list.rebuilt import Rebuilt, rebuilt
from sender.kept.old_tool_state import SET_ASIDE, old_path
from sender.kept.receiver_file import Receiver, ReceiverFile
from sender.kept.takeover import engines_of
from sender.select.data_dirs import DataDirs, mark, read_marker
from sender.select.entry import Entry, EntryState

if TYPE_CHECKING:
    from pathlib import Path

    from common.console.step_progress import ToldProgress
    from common.names import FilePath
    from common.wire import InventoryEntry
    from sender.config import SenderConfig
    from sender.kept.old_tool_state import OldTool
    from sender.select.facts import ContentFacts
    from sender.select.found import LocalFile, Scan, Waiting
    from sender.send.remote import Remote

__all__ = ["Adopted", "adopted", "carry_out", "check_identity", "look_for_adoption"]


class Adopted(msgspec.Struct, frozen=True):
    """What is there, and what is not.

    Attributes:
        there: local files that the receiver has, with the MD5 of both.
        to_send: local files that it has not, and why, in words.
        gone: files that the old tool had synced, that are not here, and that the receiver has.
        away: paths that the old tool had synced, and that neither side has.
        only_there: files that the receiver alone has, and that no list has.
        waiting: local files that are not read, and so are neither there nor sent nor gone.
        inventory: of the receiver.
    """

    there: Mapping[FilePath, tuple[LocalFile, str]]
    to_send: Mapping[FilePath, tuple[LocalFile, str]]
    gone: Mapping[FilePath, InventoryEntry]
    away: tuple[FilePath, ...]
    only_there: tuple[str, ...]
    waiting: tuple[Waiting, ...]
    inventory: Sequence[InventoryEntry]


def adopted(
    scan: Scan,
    synced: Mapping[FilePath, Path],
    inventory: Sequence[InventoryEntry],
    facts: ContentFacts,
    told: ToldProgress = untold,
) -> Adopted:
    """Compare files by size and MD5 with what the receiver has of this sender.

    Args:
        scan: of the local files.
        synced: what the old tool's lists have.
        inventory: all of it.
        facts: reads the files whose size the receiver has; no others are read.
        told: hears how far that is.
    """
    loaded = {each.path: each for each in inventory if each.state == LOADED}
    contents = {(each.size, each.md5): each.path for each in loaded.values()}
    sizes = {each.size for each in loaded.values()}
    there: dict[FilePath, tuple[LocalFile, str]] = {}
    to_send: dict[FilePath, tuple[LocalFile, str]] = {}
    found: set[str] = set()
    all_files = list(scan.files.items())

    def to_read(each: tuple[FilePath, LocalFile]) -> int:
        return each[1].size if each[1].size in sizes else 0

    for path, file in stepping("comparing", all_files, to_read, told):
        md5 = facts.md5(file) if file.size in sizes else None
        name = None if md5 is None else contents.get((file.size, md5))
        if name is not None and md5 is not None:
            there[path] = file, md5
            found |= {name, path.text}
        else:
            to_send[path] = file, _why(path.text in loaded, path in synced)
            found.add(path.text)
    # A file may stand where only databases before 0.12 have it, under the path that it would get.
    standing = {old_path(each.text.encode(errors="replace")) for each in scan.waiting}
    lost = [path for path in synced if scan.is_missing(path) and path not in standing]
    gone = {path: loaded[path.text] for path in lost if path.text in loaded}
    known = found | {path.text for path in gone}
    return Adopted(
        there,
        to_send,
        gone,
        tuple(path for path in lost if path.text not in loaded),
        tuple(sorted(path for path in loaded if path not in known)),
        scan.waiting,
        inventory,
    )


def _why(is_loaded: bool, was_synced: bool) -> str:
    if is_loaded:
        return "the receiver has other content under its path"
    return "the old tool had sent it, and the receiver has it not" if was_synced else "new"


def check_identity(config: SenderConfig, uuid: str) -> str | None:
    """The identity that this sender has and that gives way to the old one; None: there is none.

    Raises:
        UsageError: it has been used: two would be one machine.
    """
    try:
        mine = identity.read(config.schema_dir)
    except UsageError:
        return None
    if mine == uuid:
        return None
    with Tree(config.schema_dir / "sync") as sync:
        used = sorted(name for name, now in engines_of(sync, "").items() if now.epoch is not None)
    if used:
        raise UsageError(
            f"this sender is {mine}, and has sent to {', '.join(used)} under that name; the old "
            f"tool was {uuid}. Let the receivers give the devices over: tsferry-receiver senders "
            f"adopt {uuid} {mine}"
        )
    return mine


def look_for_adoption(remote: Remote, old: OldTool, told: ToldProgress = untold) -> Adopted:
    """Ask the receiver, and look at the files, as `told` hears; nothing is written here.

    Raises:
        TsferryError: the receiver is out of reach, or refuses.
    """
    known = _remembered(remote)
    check = remote.patiently(lambda: remote.check(remote.check_request(known, 0)))
    inventory = remote.patiently(lambda: list(remote.client.inventory(of=check.engine)))
    told(StepProgress("scanning", 0, 0, 0, 0))
    with DataDirs.unmarked(remote.config.data_dirs) as dirs:
        scan = remote.scanner.scan(dirs, ({},))
        return adopted(scan, old.lists.synced, inventory, remote.scanner.facts(dirs), told)


def _remembered(remote: Remote) -> Receiver:
    """What is remembered of the receiver, where there was a round with it before."""
    try:
        with Tree(remote.config.schema_dir / "sync") as sync:
            return ReceiverFile.open(sync, remote.directory).now
    except FileNotFoundError:
        return Receiver()


def carry_out(remote: Remote, old: OldTool, found: Adopted, previous: str | None) -> None:
    """Go on as the old tool's sender; the remote's lock is held by the caller.

    Args:
        remote: to the receiver, under the old tool's identity.
        old: what it kept.
        found: by `look_for_adoption`.
        previous: the identity that gives way, by `check_identity`.

    Raises:
        UsageError: a data directory is another sender's.
    """
    paths = remote.config.data_dirs
    owners = [_owner_of(path, (remote.uuid, previous)) for path in paths]
    for path, owner in zip(paths, owners, strict=True):
        mark(path, remote.uuid, adopt=previous is not None and owner == previous)
        crash.point("oldtool.marked")
    with DataDirs.open(paths, remote.uuid) as dirs:
        if old.lists.receiver == remote.directory:
            for path, tree in dirs:
                if path in old.lists.folders:
                    _set_aside(tree, sender_dir(remote.directory))
        ledger = Ledger.open(dirs, remote.directory)
        facts = remote.scanner.facts(dirs)
        ledger.become(_list_of(found, old.lists.synced, facts, ledger.home))
    crash.point("oldtool.listed")
    identity.take(remote.config.schema_dir, remote.uuid)
    crash.point("oldtool.identified")


def _owner_of(path: Path, ours: tuple[str, str | None]) -> str | None:
    """Whose a data directory is; all are asked before one is taken.

    Raises:
        UsageError: another sender's.
    """
    try:
        with Tree(path) as tree:
            owner = read_marker(tree)
    except OSError as error:
        raise UsageError(f"data directory {path}: {error.strerror}; mount it first") from error
    if owner is not None and owner not in ours:
        raise UsageError(f"{path} belongs to the sender {owner}, and nothing was changed")
    return owner


def _set_aside(tree: Tree, folder: str) -> None:
    """Let the old tool's folder have another name; ours is to have this one."""
    names = (f"{folder}{SET_ASIDE}{each or ''}" for each in count())
    tree.rename(folder, next(name for name in names if not tree.exists(name)), replace=False)
    crash.point("oldtool.aside")


def _list_of(
    found: Adopted,
    synced: Mapping[FilePath, Path],
    facts: ContentFacts,
    home: Path | None,
) -> Rebuilt:
    """The list that goes on: the inventory, with what the files here and the old lists tell."""
    present = {path: file for path, (file, _) in {**found.there, **found.to_send}.items()}
    base = rebuilt({}, {}, found.inventory, present, home)
    entries = dict(base.entries)
    for path, (file, md5) in found.there.items():
        entry = entries.get(path)
        if entry is not None and entry.md5 == md5:
            entries[path] = Entry.of(file, md5, entry.span or facts.span(file))
    for path in found.gone:
        entries[path] = replace(entries[path], data_dir=synced[path], state=EntryState.LOADED)
    return Rebuilt(entries, base.taken, ())
