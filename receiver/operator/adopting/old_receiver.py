"""What an old receiver has on its disks: its TsFiles, and who owns which device.

Nothing is changed there.

The receiver of the old sync tool is a database, and what it has loaded lies among its own files:

    <data dir>/sequence|unsequence/<storage group>/[<region>/]<partition>/<name>.tsfile
    <data dir>/sync-receiver/<ip>_<sender uuid>/data/...       received, and not loaded (yet)
    <system dir>/sync/device_owner[.tmp]                       device -> owner (`java_string_map`)

Servers of 0.10 and 0.11 have no region in their paths, and name `<ip>_<sender uuid>` as the owner
of a device. Those of 0.12 take the name of a directory that is another one by then: the owner is
the storage group, and nobody can tell whose the device is. A tree that was copied (rsync) has the
first line alone, and anything may lie elsewhere in it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from common.console.terminal import counted
from common.errors import DamagedError, NameRefusedError, NotFoundError, UsageError
from common.names import SUFFIX, FilePath, Kind, is_sender_uuid
from receiver.operator.adopting.java_string_map import read_string_map
from receiver.operator.centre.centre_files import CentreFile, opened

__all__ = ["FoundFile", "OldReceiver", "OutOfOrder", "read_old_receiver"]

_RECEIVED: Final = "sync-receiver"
_OWNERS: Final = ("device_owner.tmp", "device_owner.log", "device_owner")
"""The first is what the second, and then the third, is replaced by: the newest that is whole."""
_MOST: Final = 1 << 30
"""Bytes of a map of owners; that of a million devices has some 100 MB."""
_KINDS: Final = frozenset(each.value for each in Kind)


@dataclass(frozen=True)
class OutOfOrder:
    """Something that is not as it should be, where it is, and what it means."""

    source: str
    reason: str


@dataclass(frozen=True)
class FoundFile:
    """A TsFile of an old receiver.

    Attributes:
        file: where it lies, and where it belongs; in partition 0 where it does not lie as a
            database lays its files.
        sender: uuid that it came from, where its directory tells; empty otherwise.
        is_placed: whether it lies as a database lays its files.
    """

    file: CentreFile
    sender: str = ""
    is_placed: bool = True


@dataclass(frozen=True)
class OldReceiver:
    """What was found.

    Attributes:
        files: in the order of their paths.
        owners: device -> uuid of the sender that owns it.
        addresses: uuid of each sender that is named anywhere -> its address.
        odd: what is left out, and what is to be known.
    """

    files: tuple[FoundFile, ...]
    owners: Mapping[str, str]
    addresses: Mapping[str, str]
    odd: tuple[OutOfOrder, ...]


@dataclass
class _Search:
    storage_group: str | None
    files: dict[Path, FoundFile] = field(default_factory=dict)
    owners: dict[str, str] = field(default_factory=dict)
    addresses: dict[str, str] = field(default_factory=dict)
    odd: list[OutOfOrder] = field(default_factory=list)

    def walk(self, top: Path) -> None:
        maps: list[Path] = []
        for path in _files(top, self.odd):
            if path.parent.name == _RECEIVED:
                self._sender_of(path.name)
            elif path.name in _OWNERS:
                maps.append(path)
            elif path.name.endswith(SUFFIX):
                self._found(path)
            elif path.name == "sync.log" and _RECEIVED in path.parts:
                self._cut_off(path)
        for directory in sorted({each.parent for each in maps}):
            self._read_owners(sorted(each for each in maps if each.parent == directory))

    def _found(self, path: Path) -> None:
        uuid = ""
        if _RECEIVED in path.parts:
            name = path.parts[path.parts.index(_RECEIVED) + 1]
            uuid = self._sender_of(name)
            if not uuid:
                self.odd.append(OutOfOrder(str(path), f"{name!a} is no directory of a sender"))
                return
        try:
            where = _placed(path, self.storage_group, received=bool(uuid))
        except NameRefusedError as error:
            self.odd.append(OutOfOrder(str(path), f"no name of a TsFile: {error.message}"))
            return
        if where is None:
            why = (
                "not in <sequence|unsequence>/<storage group>/<region>/<partition>/: say which "
                "storage group it belongs to (--sg)"
            )
            self.odd.append(OutOfOrder(str(path), why))
            return
        self.files[path] = FoundFile(CentreFile(path, where[0]), uuid, where[1])

    def _sender_of(self, name: str) -> str:
        """The uuid in `<ip>_<sender uuid>`; empty if it is something else."""
        address, _, uuid = name.rpartition("_")
        if not address or not is_sender_uuid(uuid):
            return ""
        self.addresses.setdefault(uuid, address)
        return uuid

    def _cut_off(self, path: Path) -> None:
        uuid = self._sender_of(path.parent.name)
        if uuid:
            why = (
                f"a round of sender {uuid} was not over: what it had received whole is taken, and "
                "what it was told to delete stays until its sender tells it again"
            )
            self.odd.append(OutOfOrder(str(path), why))

    def _read_owners(self, paths: Iterable[Path]) -> None:
        """The newest map of a directory that is whole: one may be half written beside another."""
        for path in sorted(paths, key=lambda each: _OWNERS.index(each.name)):
            try:
                with opened(path) as fd:
                    found = read_string_map(_content(fd, path), str(path))
            except (DamagedError, UsageError) as error:
                self.odd.append(OutOfOrder(str(path), f"owners are not taken: {error.message}"))
                continue
            groups = set()
            for device, name in found.items():
                uuid = self._sender_of(name)
                if uuid:
                    self.owners.setdefault(device, uuid)
                else:
                    groups.add(name)
            if groups:
                owners = counted(len(groups), "owner")
                why = (
                    f"it names no sender for the devices of {owners}, the first is "
                    f"{min(groups)!a} (a server of 0.12 writes the storage group there): "
                    "--as says whose they are"
                )
                self.odd.append(OutOfOrder(str(path), why))
            return


def read_old_receiver(paths: Iterable[Path], storage_group: str | None) -> OldReceiver:
    """Look for TsFiles and owners in directories; links below them are not followed.

    Args:
        paths: absolute: data directories, system directories, or what they are in.
        storage_group: of TsFiles that do not lie as a database lays them; None: they are left out.

    Raises:
        NotFoundError: a path is not there, or is no directory.
        UsageError: a path is not absolute.
    """
    search = _Search(storage_group)
    for top in paths:
        if not top.is_absolute():
            raise UsageError(f"{top}: not an absolute path")
        if not top.is_dir():
            raise NotFoundError(f"{top}: there is no such directory")
        search.walk(top)
    files = sorted(search.files.values(), key=lambda each: (each.file.path, str(each.file.source)))
    return OldReceiver(tuple(files), search.owners, search.addresses, tuple(search.odd))


def _files(top: Path, odd: list[OutOfOrder]) -> Iterator[Path]:
    """The files that may matter, and the directories of senders."""

    def unreadable(error: OSError) -> None:
        odd.append(OutOfOrder(str(error.filename), f"cannot be read: {error.strerror}"))

    for directory, below, names in os.walk(top, onerror=unreadable):
        below.sort()
        if directory.endswith(f"/{_RECEIVED}"):  # a sender's stays when all of it is loaded
            yield from (Path(directory) / name for name in below)
        for name in sorted(names):
            path = Path(directory) / name
            if name.endswith(SUFFIX) or name in _OWNERS or name == "sync.log":
                if stat.S_ISREG(path.lstat().st_mode):
                    yield path
                else:
                    odd.append(OutOfOrder(str(path), "a link, or no file: it is not followed"))


def _placed(path: Path, group: str | None, *, received: bool) -> tuple[FilePath, bool] | None:
    """Where a file belongs, and whether it lies there; None if nobody knows.

    Raises:
        NameRefusedError: no file may be called so.
    """
    parts = path.parts
    if received:  # <ip>_<uuid>/data/<group>/[<group>/<region>/<partition>/]<name>
        inner = parts[parts.index(_RECEIVED) + 3 :]
        if len(inner) == 5:
            return FilePath.parse("/".join((Kind.SEQUENCE, *inner[1:]))), True
        if len(inner) == 2:
            return FilePath.parse(f"{Kind.SEQUENCE}/{inner[0]}/0/0/{inner[1]}"), False
        raise NameRefusedError("the old receiver lays none there")
    if len(parts) > 5 and parts[-5] in _KINDS:
        return FilePath.parse("/".join(parts[-5:])), True
    if len(parts) > 4 and parts[-4] in _KINDS:  # of servers without regions
        kind, sg, partition, name = parts[-4:]
        return FilePath.parse(f"{kind}/{sg}/0/{partition}/{name}"), True
    if group is None:
        return None
    return FilePath.parse(f"{Kind.SEQUENCE}/{group}/0/0/{path.name}"), False


def _content(fd: int, path: Path) -> bytes:
    size = os.fstat(fd).st_size
    if size > _MOST:
        raise DamagedError(f"{path}: {size} bytes are no map of owners")
    return os.pread(fd, size, 0)
