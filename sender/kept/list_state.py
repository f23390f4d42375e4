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

from typing import TYPE_CHECKING

import msgspec

from common.decoders import from_json
from common.digests import is_md5, xxh3_128
from common.errors import NameRefusedError
from common.names import FilePath
from sender.select.entry import Entry, EntryState

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

__all__ = ["ListFacts", "list_digest", "parse_state", "write_state"]

_FORMAT = "tsferry.local_files"
_VERSION = 1


class ListFacts(msgspec.Struct, frozen=True):
    """What a state file holds."""

    lists: tuple[str, ...] = ()
    entries: Mapping[FilePath, Entry] = msgspec.field(default_factory=dict)
    pending: Mapping[FilePath, Entry] = msgspec.field(default_factory=dict)


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


def write_state(facts: ListFacts) -> bytes:
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
) -> tuple[ListFacts, str | None]:
    """The facts, or none and why the file cannot be used.

    Args:
        content: of the file.
        data_dir: that it lies in.
        paths: of the list beside it, already parsed: used instead of equal ones, as both are in
            one order.
    """
    known = iter(paths)
    begin = content.find(b"\n") + 1
    body = memoryview(content)[begin:]
    try:
        if not begin:
            return ListFacts(), "it is missing" if not content else "its header is cut off"
        header = from_json(content[:begin], _Header)
        if header.format != _FORMAT or header.version != _VERSION:
            return (
                ListFacts(),
                f"format {header.format!r} version {header.version} is not known here",
            )
        if xxh3_128(body).hex() != header.xxh3:
            return ListFacts(), "its checksum does not match"
        lines = _lines(content, begin)
        digests = from_json(next(lines, b""), tuple[str, ...])
        entries: dict[FilePath, Entry] = {}
        pending: dict[FilePath, Entry] = {}
        path = next(known, None)
        for line in lines:
            row = _decode_row(line)
            if path is not None and row[0] == path.text:
                entry, path = _entry(row, data_dir, path), next(known, None)
            else:
                entry = _entry(row, data_dir, FilePath.parse(row[0]))
            (pending if entry.state is EntryState.SENT else entries)[entry.path] = entry
    except (msgspec.MsgspecError, UnicodeDecodeError, NameRefusedError, ValueError) as error:
        return ListFacts(), str(error)
    return ListFacts(digests, entries, pending), None


def _lines(content: bytes, begin: int) -> Iterator[bytes]:
    while (end := content.find(b"\n", begin)) >= 0:
        yield content[begin:end]
        begin = end + 1
    if begin < len(content):
        yield content[begin:]


def _entry(row: _Row, data_dir: Path, path: FilePath) -> Entry:
    _, state, size, mtime_ns, inode, md5, first, last = row
    if md5 and not is_md5(md5):
        raise ValueError(f"{md5!r} is no MD5")
    return Entry(path, data_dir, size, mtime_ns, inode, md5, first, last, state)
