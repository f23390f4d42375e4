"""`local_files.state`: the facts beside a list of loaded files.

Format, version 1: a header line, the lists, then one line for each file, all JSON.

    {"format":"tsferry.local_files","version":1,"xxh3":"<xxh3-128 of all bytes after this line>"}
    ["<xxh3-128 of a list>", ...]
    ["sequence/root.a/0/0/1-1-0.tsfile","loaded",1024,1581324718762000000,77,"<md5>",1,99]
    [path, state, size, mtime_ns, inode, md5, first time, last time]

The second line has the digests of the lists that these facts were written for, the new one first
and the one that it replaces second: a list that is none of them was cut off or edited. The whole
file is replaced at once; a damaged one is refused as a whole, and the receiver's inventory takes
its place.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from common.digests import is_md5, xxh3_128
from common.errors import NameRefusedError
from common.names import FilePath
from sender.local import LocalFile, Span

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

__all__ = ["Entry", "EntryState", "Facts", "list_digest", "parse_state", "write_state"]

_FORMAT = "tsferry.local_files"
_VERSION = 1


class EntryState(StrEnum):
    """How sure an entry is."""

    LOADED = "loaded"
    """This sender sent it, or found it loaded with the same content."""
    LISTED = "listed"
    """Only the receiver's inventory says so; no local file was compared with it yet."""
    SENT = "sent"
    """Sent in a task whose outcome is not known yet."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A file as the receiver has it, and the local file that it was.

    Attributes:
        path: its path.
        data_dir: the data directory whose list has it.
        size: bytes.
        mtime_ns: of the local file with this content; 0 where it is not known.
        inode: the same.
        md5: in hex; empty where it is not known (the state file was lost).
        first_time: of its data; None where it is not known.
        last_time: the same.
        state: how sure it is.
    """

    path: FilePath
    data_dir: Path
    size: int
    mtime_ns: int
    inode: int
    md5: str
    first_time: int | None = None
    last_time: int | None = None
    state: EntryState = EntryState.LOADED

    @classmethod
    def of(cls, file: LocalFile, md5: str, span: Span | None) -> Entry:
        """What is to be listed once `file` is loaded with this content."""
        first, last = span or (None, None)
        return cls(file.path, file.data_dir, file.size, file.mtime_ns, file.inode, md5, first, last)

    @classmethod
    def unknown(cls, path: FilePath, data_dir: Path) -> Entry:
        """Listed, and nothing else is known of it."""
        return cls(path, data_dir, 0, 0, 0, "", state=EntryState.LISTED)

    @property
    def identity(self) -> tuple[int, int, int]:
        """(size, mtime_ns, inode), as of `LocalFile`."""
        return (self.size, self.mtime_ns, self.inode)

    @property
    def span(self) -> Span | None:
        """The data times, where they are known."""
        if self.first_time is None or self.last_time is None:
            return None
        return Span(self.first_time, self.last_time)

    def same_facts(self, other: Entry) -> bool:
        """Whether both speak of the same file with the same content."""
        return (self.identity, self.md5, self.data_dir) == (
            other.identity,
            other.md5,
            other.data_dir,
        )


@dataclass(frozen=True, slots=True)
class Facts:
    """What a state file holds."""

    lists: tuple[str, ...] = ()
    entries: Mapping[FilePath, Entry] = field(default_factory=dict)
    pending: Mapping[FilePath, Entry] = field(default_factory=dict)


class _Header(msgspec.Struct, forbid_unknown_fields=False):
    format: str
    version: int
    xxh3: str


_Row = tuple[str, EntryState, int, int, int, str, int | None, int | None]
_decode_row = msgspec.json.Decoder(_Row).decode
_encode = msgspec.json.Encoder().encode


def list_digest(content: bytes) -> str:
    """How a state file names the list that it was written for."""
    return xxh3_128(content).hex()


def write_state(facts: Facts) -> bytes:
    """The content of a state file."""
    rows = [facts.entries[path] for path in sorted(facts.entries)]
    rows += [facts.pending[path] for path in sorted(facts.pending)]
    lines = [_encode(facts.lists), *(_encode(_row(each)) for each in rows)]
    body = b"".join(line + b"\n" for line in lines)
    header = _Header(_FORMAT, _VERSION, xxh3_128(body).hex())
    return _encode(header) + b"\n" + body


def _row(entry: Entry) -> _Row:
    return (
        entry.path.text,
        entry.state,
        entry.size,
        entry.mtime_ns,
        entry.inode,
        entry.md5,
        entry.first_time,
        entry.last_time,
    )


def parse_state(
    content: bytes, data_dir: Path, paths: Iterable[FilePath] = ()
) -> tuple[Facts, str | None]:
    """The facts, or none and why the file cannot be used.

    Args:
        content: of the file.
        data_dir: that it lies in.
        paths: of the list beside it, already parsed: used instead of equal ones.
    """
    known = {path.text: path for path in paths}
    head, newline, body = content.partition(b"\n")
    try:
        if not newline:
            return Facts(), "it is missing" if not content else "its header is cut off"
        header = msgspec.json.decode(head, type=_Header)
        if header.format != _FORMAT or header.version != _VERSION:
            return Facts(), f"format {header.format!r} version {header.version} is not known here"
        if xxh3_128(body).hex() != header.xxh3:
            return Facts(), "its checksum does not match"
        lists, *lines = body.splitlines()
        digests = msgspec.json.decode(lists, type=tuple[str, ...])
        entries: dict[FilePath, Entry] = {}
        pending: dict[FilePath, Entry] = {}
        for line in lines:
            entry = _entry(_decode_row(line), data_dir, known)
            (pending if entry.state is EntryState.SENT else entries)[entry.path] = entry
    except (msgspec.MsgspecError, UnicodeDecodeError, NameRefusedError, ValueError) as error:
        return Facts(), str(error)
    return Facts(digests, entries, pending), None


def _entry(row: _Row, data_dir: Path, known: Mapping[str, FilePath]) -> Entry:
    text, state, size, mtime_ns, inode, md5, first, last = row
    if md5 and not is_md5(md5):
        raise ValueError(f"{md5!r} is no MD5")
    path = known.get(text) or FilePath.parse(text)
    return Entry(path, data_dir, size, mtime_ns, inode, md5, first, last, state)
