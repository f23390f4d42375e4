r"""What senders say of every series of the files of a task, kept for verifications to come.

`<sender's folder>/manifests/<task id>.tsf`, written before the commit that loads the task, removed
when no row of the task is left:

    head       "TSFPROOF", version uint32, bytes of the directory uint32, check uint64
    directory  msgpack [[path at the sender, root, bytes of the table], ...]
    tables     packed, in the order of the directory, back to back (`common.tsfile.proof`)

Numbers are little-endian; the check is xxh3-64 of the directory. What the tables say is believed
only as far as the digest allows that stands in the row of the file (`ManifestMeta.root`): a file of
tables that is lost or damaged costs the names of the series that differ, and nothing else.
"""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import xxhash

from common.durable import Tree
from common.errors import DamagedError
from common.names import is_task_id
from common.tsfile import Corrupt
from common.tsfile.proof import SeriesTable, inflate
from common.tsfile.proving import series_statistics
from receiver.load.folder.sender_folder import FOLDERS_ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from common.tsfile import Tail
    from common.wire import ProofEntry
    from receiver.load.folder.sender_folder import SenderFolder
    from receiver.metadata.state.table_rows import FileRow

__all__ = [
    "agrees",
    "contradiction",
    "damages",
    "kept_tasks",
    "read_table",
    "remove_tables",
    "tables_path",
    "write_tables",
]

_MAGIC = b"TSFPROOF"
_VERSION = 1
_HEAD = struct.Struct("<8sIIQ")
_SUFFIX = ".tsf"
_SPARE = 1 << 16


class _Entry(NamedTuple):
    path: str
    root: str
    size: int


def contradiction(proof: ProofEntry, tail: Tail) -> str | None:
    """How a sender's table differs from a file's tail, in words; None: it does not, or is not here.

    Digests are not looked at: that would take reading all of the file.
    """
    if proof.table is None:
        return None
    own = series_statistics(tail)
    try:
        # An honest table is as long as our own, which is shorter than twice the index; a little
        # more, so that a difference can be named.
        data = inflate(proof.table, limit=2 * (tail.size - tail.meta_offset) + _SPARE)
        table = SeriesTable.decode(data)
    except Corrupt as error:
        return str(error)
    root = xxhash.xxh3_128_hexdigest(data)
    if root != proof.root:
        return f"it has the digest {root}, {proof.root} was sent"
    if table.same_statistics(own):
        return None
    for device, measurement, detail in table.without_digests().differences(own):
        return f"device {device}, series {measurement!r}: {detail}"
    return "devices or series stand in another order"


def agrees(proof: ProofEntry, statistics: str, index_bytes: int) -> bool:
    """Whether a sender's table is that of a file; False: that has to be looked into.

    Args:
        proof: what was sent.
        statistics: root of the file's own table, with zeros for digests.
        index_bytes: of the file.
    """
    if proof.table is None:
        return True
    try:
        data = inflate(proof.table, limit=2 * index_bytes + _SPARE)
    except Corrupt:
        return False
    return (
        xxhash.xxh3_128_hexdigest(data) == proof.root
        and xxhash.xxh3_128_hexdigest(SeriesTable.blank(data)) == statistics
    )


# -- files of tables -----------------------------------------------------------------------------


def tables_path(directory: str, task: str) -> str:
    """Where the tables of a task are, relative to one of the data directories.

    Args:
        directory: of the sender, `SenderRow.directory`.
        task: its id.
    """
    return f"{FOLDERS_ROOT}/{directory}/manifests/{task}{_SUFFIX}"


def write_tables(folder: SenderFolder, task: str, proofs: Mapping[str, ProofEntry]) -> None:
    """Keep the tables of a task, by path; on the disk when this returns.

    Where there is nothing to be kept, or something is in their way, there are none.
    """
    entries, tables = [], []
    for path, proof in proofs.items():
        if proof.table is not None:
            entries.append(_Entry(path, proof.root, len(proof.table)))
            tables.append(proof.table)
    if not entries:
        return
    directory = msgspec.msgpack.encode(entries)
    check = xxhash.xxh3_64_intdigest(directory)
    head = _HEAD.pack(_MAGIC, _VERSION, len(directory), check)
    rel = tables_path(folder.directory, task)
    with folder.beside("manifests"):  # without them a verification names fewer series
        folder.tree.make_dirs(folder.manifests)
        folder.tree.write_atomic(rel, b"".join((head, directory, *tables)), mode=0o640)


def remove_tables(folder: SenderFolder, task: str) -> None:
    """Let the tables of a task go; there may be none."""
    with folder.beside("manifests"):
        folder.tree.unlink(tables_path(folder.directory, task))


def kept_tasks(folder: SenderFolder) -> list[str]:
    """The tasks that tables are kept of."""
    found: list[tuple[str, os.stat_result]] = []
    with folder.beside("manifests"):
        found = folder.tree.listing(folder.manifests)
    names = (name.removesuffix(_SUFFIX) for name, _ in found)
    return [name for name in names if is_task_id(name)]


def read_table(data_dirs: Sequence[Path], directory: str, row: FileRow) -> SeriesTable | None:
    """What the sender of a loaded file said of its series; None where no table is kept.

    Args:
        data_dirs: of the receiver.
        directory: of the sender's folder, `SenderRow.directory`.
        row: of the file.

    Raises:
        DamagedError: the table is not the one that was sent.
    """
    if row.manifest is None or not row.manifest.root:
        return None
    rel = tables_path(directory, row.task)
    for root in data_dirs:
        if not root.is_dir():
            continue
        with Tree(root) as tree:
            if tree.exists(rel):
                return _read(tree, rel, row.path, row.manifest.root)
    return None


def damages(folder: SenderFolder, task: str, roots: Mapping[str, str]) -> Iterator[str]:
    """What is wrong with the tables of a task, in words.

    Args:
        folder: of the sender.
        task: one that tables are kept of.
        roots: path -> digest, of the rows of the task.
    """
    rel = tables_path(folder.directory, task)
    try:
        fd = folder.tree.open_read(rel)
    except FileNotFoundError:
        return  # it has just been removed
    try:
        tables = _Tables(fd, str(folder.tree.path / rel))
        for entry in tables.entries:
            if roots.get(entry.path, entry.root) == entry.root:
                tables.table(entry)
            else:
                yield f"the table of {entry.path} is not the one that the catalogue names"
        tables.check_end()
    except DamagedError as error:
        yield error.message
    finally:
        os.close(fd)


def _read(tree: Tree, rel: str, path: str, root: str) -> SeriesTable | None:
    fd = tree.open_read(rel)
    try:
        tables = _Tables(fd, str(tree.path / rel))
        for entry in tables.entries:
            if (entry.path, entry.root) == (path, root):
                return tables.table(entry)
        return None
    finally:
        os.close(fd)


class _Tables:
    """An open file of tables."""

    def __init__(self, fd: int, what: str) -> None:
        self._fd = fd
        self._what = what
        head = self._bytes(0, _HEAD.size)
        magic, version, size, check = _HEAD.unpack(head)
        if magic != _MAGIC or version != _VERSION:
            raise self._damage(0, f"these are no tables of version {_VERSION}")
        directory = self._bytes(_HEAD.size, size)
        if xxhash.xxh3_64_intdigest(directory) != check:
            raise self._damage(_HEAD.size, "its directory does not match its check")
        try:
            self.entries = msgspec.msgpack.decode(directory, type=list[_Entry])
        except msgspec.MsgspecError as error:
            raise self._damage(_HEAD.size, str(error)) from error
        self._begins: dict[_Entry, int] = {}
        at = _HEAD.size + size
        for entry in self.entries:
            self._begins[entry] = at
            at += entry.size
        self._end = at

    def table(self, entry: _Entry) -> SeriesTable:
        at = self._begins[entry]
        try:
            data = inflate(self._bytes(at, entry.size))
            if xxhash.xxh3_128_hexdigest(data) != entry.root:
                raise self._damage(at, f"the table of {entry.path} does not match its digest")
            return SeriesTable.decode(data)
        except Corrupt as error:
            raise self._damage(at, str(error)) from error

    def check_end(self) -> None:
        size = os.fstat(self._fd).st_size
        if size != self._end:
            raise self._damage(self._end, f"it has {size} bytes, {self._end} are its own")

    def _bytes(self, at: int, size: int) -> bytes:
        if at + size > os.fstat(self._fd).st_size:
            raise self._damage(at, "it ends too early")
        return os.pread(self._fd, size, at)

    def _damage(self, at: int, why: str) -> DamagedError:
        return DamagedError(
            f"{self._what} is damaged at offset {at}: {why}",
            extra={"file": self._what, "offset": at},
        )
