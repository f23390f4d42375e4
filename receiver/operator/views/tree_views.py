"""What operators are told of the tree of files, and of the chunks of one.

Times are seconds since the epoch, except those that are called commits, which are commit
timestamps (milliseconds << 18 | counter).
"""

from __future__ import annotations

from common.wire import Struct
from common.wire.base import CommitTs, Time

__all__ = [
    "ChunkView",
    "ChunksPage",
    "TreeNodeView",
    "TreePage",
]


class TreeNodeView(Struct, frozen=True, kw_only=True):
    """A node of the tree of files.

    Attributes:
        kind: `database`, `storage_group`, `partition` or `file`.
        path: of a file the physical one.
        parent: path of the directory that it is in; empty for a database.
        created: commit since which it is there; of a directory, that loaded its oldest file.
        created_at: when that was.
        deleted: commit since which it is not there any more, 0 if it is.
        deleted_at: when that was.
        files: below it, itself too.
        size: bytes of those.
        first_time: of a file's points, in its unit; None for a directory.
        last_time: the same.
        series: how many a file has.
        points: how many a file has.
        inside: paths of the merged files that readers read in place of a file, at that commit.
    """

    kind: str
    path: str
    parent: str = ""
    created: CommitTs = 0
    created_at: float | None = None
    deleted: CommitTs = 0
    deleted_at: float | None = None
    files: int = 0
    size: int = 0
    first_time: Time | None = None
    last_time: Time | None = None
    series: int | None = None
    points: int | None = None
    inside: tuple[str, ...] = ()


class ChunkView(Struct, frozen=True, kw_only=True):
    """A chunk of a series in a file, as the index at the file's end has it.

    Attributes:
        device: as in the catalogue.
        measurement: empty for the time column of an aligned device.
        data_type: as in the file.
        chunk: number among the chunks of this series in this file.
        offset: of its first byte.
        length: it ends within so many bytes.
        count: points.
        start_time: of the first point, in the file's unit; None without points.
        end_time: of the last.
        minimum: None where the file says none, or no number.
        maximum: the same.
        sum: the same.
    """

    device: str
    measurement: str
    data_type: str
    chunk: int
    offset: int
    length: int
    count: int
    start_time: Time | None = None
    end_time: Time | None = None
    minimum: int | float | str | None = None
    maximum: int | float | str | None = None
    sum: float | None = None


class TreePage(Struct, frozen=True, kw_only=True):
    """The tree as of a commit: its directories, or files in order of their physical paths.

    Attributes:
        commit: that it is as of.
        commit_at: when that was.
        nodes: each behind the directory that it is in.
        next: the cursor of the page after.
        chunks: of a file that was asked for by `tsferry-receiver tree`; `GET /v1/tree/chunks` has
            them in pages.
        no_chunks: why there are none of this file.
    """

    commit: CommitTs
    commit_at: float | None = None
    nodes: list[TreeNodeView]
    next: str | None = None
    chunks: tuple[ChunkView, ...] = ()
    no_chunks: str | None = None


class ChunksPage(Struct, frozen=True, kw_only=True):
    """Chunks of a file, in the order of its index.

    Attributes:
        commit: as of which readers see the file.
        path: its physical one.
        chunks: of this page.
        next: the cursor of the page after.
    """

    commit: CommitTs
    path: str
    chunks: list[ChunkView]
    next: str | None = None
