"""The rows of compactions: merged files, and what each stands for.

Inputs are thousands, whose names begin alike: a row keeps them as one packed text, and whoever asks
whether a name is among them asks its marks, of 8 bytes each.
"""

from __future__ import annotations

import zlib
from array import array
from bisect import bisect_left
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from common.digests import xxh3_128
from receiver.metadata.model import records
from receiver.metadata.model.ranks import NameRank
from receiver.metadata.state.ranges import Devices
from receiver.metadata.state.tables.file_tables.retired import PartitionKey

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from receiver.metadata.state.table_rows import FileRow

__all__ = [
    "CompactedOutput",
    "CompactedRow",
    "MergedLeaf",
    "is_marked",
    "mark_of",
    "marks_of",
    "may_give",
    "packed_leaves",
    "packed_names",
]


class MergedLeaf(NamedTuple):
    """A file of a sender, under one of its names, that files merged for good are made of.

    Attributes:
        md5: of its content.
        path: at the sender.
        tail: digest of its tail; empty without points, which have no identity beyond their path,
            and where an earlier release made the compaction.
        into: those of the outputs that may have points of it, a bit each in their order; all bits
            where that is not known.
    """

    md5: str
    path: str
    tail: str = ""
    into: int = -1


class CompactedOutput(msgspec.Struct, frozen=True, gc=False):
    """A file that stands for others; see `records.CompactionOutput`."""

    physical: str
    size: int
    md5: str
    version: int
    devices: Devices
    first: int | None
    last: int | None
    series: int
    points: int
    data_dir: str


class CompactedRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A compaction; see `records.FilesCompacted`.

    Attributes:
        sender: whose the inputs are.
        authors: whose deletions reach them.
        sg: storage group of the partition.
        vsg: virtual storage group of it.
        partition: its number.
        packed: the inputs, see `inputs`.
        count: how many these are.
        top: the highest name that one of them ranks by, where names alone rank them; None if one
            has a name that no database gave, was forwarded, or had ended when another one came:
            then each is looked at, and the end of one may change which of them counts.
        newest_look: the last of the first looks that had them.
        oldest_closed: the first look that had one of them closed.
        created: the commit that made it.
        changed: the commit that the row is from.
        dissolved: the commit that did, 0 while it holds. Of a final one `created`: at no commit are
            its outputs read in place of the inputs any more, which are there as long as anybody can
            ask for a commit before.
        reason: of that.
        final: the commit that made files of the outputs, 0 for none.
        became: physical paths of these; `outputs` is empty then, so nobody takes their bytes away.
        leaves: the files of the sender that they are made of, see `made_of`.
        contents: of each of these in their order its tail and the outputs that it is in, see
            `merged_leaves`.
        dropped: those of `became` that an operator deleted, with the commit that did.
        lowest_look: the first of the first looks that had those; 0 in what earlier ones wrote.
        news: the commit that loaded the last of those: a stream behind it has had all of them.
        verified: the commit that says that the outputs are what readers get of the inputs; 0 for
            none. See `records.CompactionVerified`.
        verifier: who found that.
    """

    created: int
    changed: int
    id: int
    sender: str
    authors: tuple[str, ...]
    sg: str
    vsg: str
    partition: str
    packed: bytes
    count: int
    outputs: tuple[CompactedOutput, ...]
    top: NameRank | None
    newest_look: int
    oldest_closed: int
    dissolved: int = 0
    reason: str = ""
    final: int = 0
    became: tuple[str, ...] = ()
    leaves: bytes = b""
    contents: bytes = b""
    dropped: tuple[tuple[str, int], ...] = ()
    news: int = 0
    verified: int = 0
    verifier: records.MergeVerifier | None = None
    lowest_look: int = 0

    @property
    def key(self) -> PartitionKey:
        """The partition that all of it is in."""
        return PartitionKey(self.sg, self.vsg, self.partition)

    @property
    def inputs(self) -> list[str]:
        """Physical paths of the files that it stands for."""
        return zlib.decompress(self.packed).decode().split("\n")

    @property
    def made_of(self) -> list[tuple[str, str]]:
        """(MD5, path) of the sender's files that a final one is made of, each under each name."""
        lines = zlib.decompress(self.leaves).decode().split("\n") if self.leaves else []
        return [(md5, path) for md5, _, path in (each.partition(" ") for each in lines)]

    @property
    def merged_leaves(self) -> list[MergedLeaf]:
        """The same with all that is known of them."""
        made_of = self.made_of
        if not self.contents:
            return [MergedLeaf(md5, path) for md5, path in made_of]
        lines = zlib.decompress(self.contents).decode().split("\n")
        found = []
        for (md5, path), line in zip(made_of, lines, strict=True):
            tail, _, into = line.partition(" ")
            found.append(MergedLeaf(md5, path, tail, int(into, 16)))
        return found

    def holds_at(self, ts: int) -> bool:
        """Whether readers of a commit read it."""
        return self.created <= ts and (not self.dissolved or ts < self.dissolved)


def may_give(output: CompactedOutput, file: FileRow) -> bool:
    """Whether an output may have times that a file has."""
    if file.first is None or file.last is None or output.first is None or output.last is None:
        return True
    return output.first <= file.last and file.first <= output.last


def packed_names(names: Collection[str]) -> bytes:
    """Names as a row keeps them, in order."""
    return zlib.compress("\n".join(sorted(names)).encode(), 6)


def packed_leaves(leaves: Iterable[MergedLeaf]) -> tuple[bytes, bytes]:
    """`leaves` and `contents` of a row."""
    ordered = sorted(leaves, key=lambda each: f"{each.md5} {each.path}")
    names = packed_names([f"{each.md5} {each.path}" for each in ordered])
    lines = "\n".join(f"{each.tail} {each.into:x}" for each in ordered)
    return names, zlib.compress(lines.encode(), 6)


def marks_of(names: Iterable[str]) -> array[int]:
    """Hashes of names, 64 bits each, in order: what `is_marked` looks into."""
    return array("Q", sorted(map(mark_of, names)))


def is_marked(marks: array[int], name: str) -> bool:
    """Whether a name is among those that have these marks."""
    mark = mark_of(name)
    at = bisect_left(marks, mark)
    return at < len(marks) and marks[at] == mark


def mark_of(name: str) -> int:
    """The hash of a name, 64 bits."""
    return int.from_bytes(xxh3_128(name.encode())[:8])
