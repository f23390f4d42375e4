"""The journal of a replica in one directory: what was made, which files are whole, what is gone.

    {"made": <CopyOrder>}     the replica, of a generation; again with each higher one
    {"file": <CopiedFile>,    a file is whole and has its name; again when more is known of it
             "life": <life>}  of the master that listed it
    {"known": <TableAttributes>}   more is known of its table than the order said
    {"gone": <name>}          it is going: its bytes may be there or not
    {"kept": <name>}          a master did not know it: it does not go by a master's word
    {"rotten": <name>}        its bytes are not those that came: it does not count, and stays where
                              it is until a whole one has taken its place
    {"unlisted": true}        a master that was doubted is trusted: until one has listed all that is
                              here (false), what is here does not go
    {"dropped": <number>}     the replica of this generation is going, with all it has

One JSON object a line, `copies.log` in the directory of the tablet. Its first member is `check`:
the xxh3-64 of the object without that member, which earlier releases overlook; their lines have
none, and no member that is not above. A line is on the disk before what it says counts: that of a
file behind its name, those of ends before the first byte goes. What is behind the last line feed
never was. A line that says nothing, or not what was written, was damaged: the others hold, and
nothing of the replica goes until a master has listed all of it.
"""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Final

import msgspec

from common.decoders import from_json
from common.digests import xxh3_64
from common.wire import Struct
from receiver.tablet_copies.copies_wire import CopiedFile, CopyOrder, TableAttributes

if TYPE_CHECKING:
    from common.durable import Tree

__all__ = [
    "COPIES_LOG",
    "JournalLine",
    "JournalState",
    "append_lines",
    "journal_line",
    "read_journal",
]

log = logging.getLogger(__name__)

COPIES_LOG = "copies.log"
_CHECK: Final = b'{"check":"'
_HEAD: Final = len(_CHECK) + 16 + len(b'",')


class JournalLine(Struct, frozen=True, kw_only=True):
    """One line; one member is set, but for `life` beside `file`."""

    made: CopyOrder | None = None
    known: TableAttributes | None = None
    file: CopiedFile | None = None
    life: str = ""
    gone: str | None = None
    kept: str | None = None
    rotten: str | None = None
    unlisted: bool | None = None
    dropped: int | None = None


class _UncheckedLine(JournalLine, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of an earlier release; one with another member had a check, and that was damaged."""


class JournalState:
    """What the lines of a journal come to.

    Attributes:
        made: the newest order, None before the first.
        attributes: of the table, those of the highest version.
        files: by physical name.
        lives: of the masters that listed them, by name; of some it is not known.
        going: names of files whose bytes may still be there.
        kept: names of files that a master did not know.
        rotten: what was known of files whose bytes are not those that came.
        is_unlisted: whether no master that is trusted has listed what is here.
        dropped: the generation that is going, 0 for none.
        damaged: lines that say nothing, or not what was written.
        is_doubtful: whether any line says nothing, be it the end that was cut off, or one of which
            this release knows no word.
    """

    def __init__(self) -> None:
        self.made: CopyOrder | None = None
        self.attributes = TableAttributes()
        self.files: dict[str, CopiedFile] = {}
        self.lives: dict[str, str] = {}
        self.going: set[str] = set()
        self.kept: set[str] = set()
        self.rotten: dict[str, CopiedFile] = {}
        self.is_unlisted = False
        self.dropped = 0
        self.damaged = 0
        self.is_doubtful = False

    def take(self, line: JournalLine) -> None:
        """Apply a line."""
        if line == type(line)(life=line.life):
            self.is_doubtful = True
        if line.made is not None:
            self.made = line.made
            if line.made.generation > self.dropped:
                self.dropped = 0
        for each in (None if line.made is None else line.made.attributes, line.known):
            if each is not None and each.version > self.attributes.version:
                self.attributes = each
        if line.file is not None:
            self.files[line.file.physical] = line.file
            self.lives[line.file.physical] = sys.intern(line.life)
            self.going.discard(line.file.physical)
            self.kept.discard(line.file.physical)
            self.rotten.pop(line.file.physical, None)
        if line.gone is not None:
            self.files.pop(line.gone, None)
            self.lives.pop(line.gone, None)
            self.rotten.pop(line.gone, None)
            self.kept.discard(line.gone)
            self.going.add(line.gone)
        if line.kept is not None:
            self.kept.add(line.kept)
        if line.rotten is not None and line.rotten in self.files:
            self.rotten[line.rotten] = self.files.pop(line.rotten)
        if line.unlisted is not None:
            self.is_unlisted = line.unlisted
        if line.dropped is not None:
            self.dropped = line.dropped


def read_journal(tree: Tree, rel: str) -> JournalState:
    """A journal as it is; a torn tail is cut off, and what is damaged before that is left out.

    Args:
        tree: the directory of the node.
        rel: the journal in it.
    """
    state = JournalState()
    with tree.append_file(rel) as file:
        data, at = tree.read(rel, limit=1 << 33), 0
        good: list[bytes] = []
        while (end := data.find(b"\n", at)) >= 0:
            line = _line_of(data[at:end])
            if line is None:
                state.damaged += 1
            else:
                state.take(line)
                good.append(data[at : end + 1])
            at = end + 1
        if at != len(data):
            state.is_doubtful = True
            file.truncate(at)
    if state.damaged:
        _leave_out(tree, rel, good, state)
    return state


def journal_line(line: JournalLine) -> bytes:
    """A line as it is written, with its check and the line feed."""
    body = msgspec.json.encode(line)
    return _head(body) + body[1:] + b"\n"


def _head(body: bytes) -> bytes:
    return b'%s%s",' % (_CHECK, xxh3_64(body).encode())


def _line_of(written: bytes) -> JournalLine | None:
    """What a line says; None where that is nothing, or not what was written."""
    kind: type[JournalLine] = _UncheckedLine
    if written.startswith(_CHECK):
        body = b"{" + written[_HEAD:]
        if _head(body) != written[:_HEAD]:
            return None
        kind, written = JournalLine, body
    try:
        return from_json(written, kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _leave_out(tree: Tree, rel: str, good: list[bytes], state: JournalState) -> None:
    """Go on without the damaged lines. What they said of what goes, or stays, nobody knows."""
    log.error(
        "lines of a journal are damaged: what is here stays until a master has listed all of it",
        extra={"journal": f"{tree.path}/{rel}", "lines": state.damaged},
    )
    unlisted = JournalLine(unlisted=True)
    tree.write_atomic(rel, b"".join([*good, journal_line(unlisted)]))
    state.take(unlisted)


def append_lines(tree: Tree, rel: str, *lines: JournalLine) -> None:
    """Append lines in one write; they are on the disk when this returns."""
    with tree.append_file(rel, settled=tree.exists(rel)) as file:
        file.append(b"".join(map(journal_line, lines)))
