"""`local_files.state`: the facts beside a list of loaded files.

Format, version 3: a header line, the lists, then the files of one directory after the other.

    {"format":"tsferry.local_files","version":3,"xxh3":"<xxh3-128 of all bytes after this line>"}
    ["<xxh3-128 of a list>", ...]
    ["sequence/root.a/0/0","listed",[1,"<sum>",99],1,16]
    <names><numbers><facts>

The second line has the digests of the lists that these facts were written for, the new one first
and the one that it replaces second: a list that is none of them was cut off or edited. The line
above the files of a directory has

* what they are: `listed` on the new list, `leaving` as they are on the old one only, or `pending`,
  sent in a task whose outcome is not known yet;
* of listed ones, how many count at both ends, their sum (`common.listed`, 32 hex digits)
  and the last time of their data;
* how many files they are, and how many bytes their names have.

Then come the names in order, a newline between two; 24 bytes for each file: size, modification time
in nanoseconds, inode (signed, signed, unsigned); and 49 bytes: what is known (bits 0 and 1 the
state, in the order of `EntryState`; 2 the MD5, 3 the first, 4 the last time), MD5, first and last
time (signed), size and modification time of the resource that the receiver was told of (signed; a
size of -1 where they are not known). All integers of 64 bits are little-endian.

The whole file is replaced at once; a damaged one is refused as a whole, and the receiver's
inventory takes its place. Version 2, which earlier releases wrote, ends before the resource: 33
bytes. Version 1, which earlier releases wrote, has JSON lines of files instead:

    ["sequence/root.a/0/0/1-1-0.tsfile","loaded",1024,1581324718762000000,77,"<md5>",1,99]
    [path, state, size, mtime_ns, inode, md5, first time, last time]
"""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING, BinaryIO

import msgspec

from common.decoders import from_json
from common.digests import is_md5, xxh3_128_of
from common.errors import NameRefusedError
from common.names import FilePath
from sender.select.entry import Entry, EntryState
from sender.select.listed_table import LISTED_FILES, Tally, tally_of
from sender.select.path_table import NUMBERS, PathBlock, PathTable, directory_of, directory_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

__all__ = ["ListFacts", "list_digest", "list_pieces", "read_state", "state_pieces"]

_FORMAT = "tsferry.local_files"
_VERSION = 3
_PIECE = 1 << 20
_LONGEST_LINE = 1 << 16


def _none() -> PathTable[Entry]:
    return PathTable(LISTED_FILES)


class ListFacts(msgspec.Struct, frozen=True):
    """What a state file holds.

    Attributes:
        lists: digests of the lists that it was written for.
        listed: the files of the new list.
        leaving: those that are on the old one only.
        pending: what was sent.
        is_exact: whether `listed` has nothing else, which version 1 does not tell.
    """

    lists: tuple[str, ...] = ()
    listed: PathTable[Entry] = msgspec.field(default_factory=_none)
    leaving: PathTable[Entry] = msgspec.field(default_factory=_none)
    pending: PathTable[Entry] = msgspec.field(default_factory=_none)
    is_exact: bool = True


class _Header(msgspec.Struct, forbid_unknown_fields=False):
    format: str
    version: int
    xxh3: str


_Counted = tuple[int, str, int | None]
_BlockLine = tuple[str, str, _Counted | None, int, int]
_decode_block = msgspec.json.Decoder(_BlockLine).decode
_Row = tuple[str, EntryState, int, int, int, str, int | None, int | None]
_decode_row = msgspec.json.Decoder(_Row).decode
_encode = msgspec.json.Encoder().encode


# -- writing -------------------------------------------------------------------------------------


def list_pieces(listed: PathTable[Entry]) -> Iterator[bytes]:
    """The content of a list: its paths, one a line, in order."""
    for block in _in_order(listed):
        begin = f"{directory_text(block.directory)}/".encode()
        yield begin + block.names.replace(b"\n", b"\n" + begin) + b"\n"


def list_digest(pieces: Iterable[bytes]) -> str:
    """How a state file names the list that it was written for."""
    return xxh3_128_of(pieces).hex()


def state_pieces(facts: ListFacts) -> Iterator[bytes]:
    """The content of a state file."""
    header = _Header(_FORMAT, _VERSION, xxh3_128_of(_body(facts)).hex())
    yield _encode(header) + b"\n"
    yield from _body(facts)


def _body(facts: ListFacts) -> Iterator[bytes]:
    yield _encode(facts.lists) + b"\n"
    for what in ("listed", "leaving", "pending"):
        table: PathTable[Entry] = getattr(facts, what)
        for block in _in_order(table):
            counted: _Counted | None = None
            if what == "listed":
                tally = tally_of(table, block)
                counted = (tally.files, f"{tally.total:032x}", tally.last)
            size = len(block.names)
            line = (directory_text(block.directory), what, counted, len(block), size)
            yield _encode(line) + b"\n"
            yield from (block.names, block.numbers, block.rest)


def _in_order(table: PathTable[Entry]) -> Iterator[PathBlock]:
    for directory in sorted(table.directories()):
        yield from table.directories()[directory]


# -- reading -------------------------------------------------------------------------------------


def read_state(file: BinaryIO, data_dir: Path) -> tuple[ListFacts, str | None]:
    """The facts, or none and why the file cannot be used.

    Args:
        file: to be read from its begin to its end, twice.
        data_dir: that it lies in.
    """
    try:
        line = file.readline(_LONGEST_LINE)
        if not line.endswith(b"\n"):
            return ListFacts(), "its header is cut off" if line else "it is missing"
        header = from_json(line, _Header)
        if header.format != _FORMAT or not 1 <= header.version <= _VERSION:
            known = f"format {header.format!r} version {header.version}"
            return ListFacts(), f"{known} is not known here"
        begin = file.tell()
        # First: nothing is believed, and nothing allocated, on the word of what may be damaged.
        if xxh3_128_of(iter(lambda: file.read(_PIECE), b"")).hex() != header.xxh3:
            return ListFacts(), "its checksum does not match"
        file.seek(begin)
        lists = from_json(file.readline(), tuple[str, ...])
        if header.version == 1:
            return _rows(lists, file, data_dir), None
        return _blocks(lists, file, data_dir, header.version), None
    except (msgspec.MsgspecError, UnicodeDecodeError, NameRefusedError, ValueError) as error:
        return ListFacts(), str(error)


_PLAIN_NAMES = re.compile(rb"(?:[0-9A-Za-z][0-9A-Za-z-]{0,60}\.tsfile(?:\n|\Z))+\Z")
"""Nearly all names are like this, and need no closer look."""


_REST_2 = struct.Struct("<B16sqq")
_UNKNOWN = struct.pack("<qq", -1, 0)


def _with_unknown_marks(rest: bytes) -> bytes:
    """What version 2 knew of files, as it is kept now."""
    size = _REST_2.size
    return b"".join(rest[at : at + size] + _UNKNOWN for at in range(0, len(rest), size))


def _blocks(lists: tuple[str, ...], file: BinaryIO, data_dir: Path, version: int) -> ListFacts:
    found: dict[str, list[PathBlock]] = {"listed": [], "leaving": [], "pending": []}
    while line := file.readline(_LONGEST_LINE):
        directory, what, counted, files, size = _decode_block(line)
        place = directory_of(FilePath.parse(f"{directory}/x.tsfile"))
        names = file.read(size)
        form = LISTED_FILES.rest if version == _VERSION else _REST_2
        numbers, rest = (file.read(files * each.size) for each in (NUMBERS, form))
        if version != _VERSION:
            rest = _with_unknown_marks(rest)
        block = PathBlock(place, data_dir, None, names, numbers, rest)
        if what not in found or not _is_sound(directory, block, files):
            raise ValueError(f"the files of {directory} are not as they are written here")
        if counted is not None:
            block.tally = Tally(counted[0], int(counted[1], 16), counted[2])
        found[what].append(block)
    listed, leaving, pending = (PathTable(LISTED_FILES, each) for each in found.values())
    return ListFacts(lists, listed, leaving, pending)


def _is_sound(directory: str, block: PathBlock, files: int) -> bool:
    names = block.list_names()
    if not (
        len(names) == files == len(block) and len(block.rest) == files * LISTED_FILES.rest.size
    ):
        return False
    if _PLAIN_NAMES.match(block.names) is None:
        for each in names:
            FilePath.parse(f"{directory}/{each}")
    return all(map(str.__lt__, names, names[1:]))


def _rows(lists: tuple[str, ...], file: BinaryIO, data_dir: Path) -> ListFacts:
    """Version 1."""
    rows = [_entry(_decode_row(line), data_dir) for line in file]
    pending = [each for each in rows if each.state is EntryState.SENT]
    listed = (each for each in rows if each.state is not EntryState.SENT)
    tables = (PathTable.of(LISTED_FILES, listed), _none(), PathTable.of(LISTED_FILES, pending))
    return ListFacts(lists, *tables, is_exact=False)


def _entry(row: _Row, data_dir: Path) -> Entry:
    path, state, size, mtime_ns, inode, md5, first, last = row
    if md5 and not is_md5(md5):
        raise ValueError(f"{md5!r} is no MD5")
    return Entry(FilePath.parse(path), data_dir, size, mtime_ns, inode, md5, first, last, state)
