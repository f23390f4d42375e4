"""The tree of loaded files as it is or was, as operators see it."""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from common.errors import NotFoundError
from receiver.metadata.query.file_tree import DirectoryName, directories_of, ends_of
from receiver.metadata.query.row_source import Look
from receiver.metadata.query.seen_files import SeenFile, seen_files, with_inside
from receiver.metadata.sql.executing import moment
from receiver.operator.views.tree_views import TreeNodeView, TreePage
from receiver.transfer.said_lists.listing import page_limit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from receiver.metadata.engine import Engine
    from receiver.operator.directories import ReceiverDirectories

__all__ = ["list_tree"]


class _Directory:
    __slots__ = ("begun", "ended", "files", "place", "size")

    def __init__(self, place: tuple[str | int, ...], begun: int) -> None:
        self.place = place
        self.begun, self.files, self.size = begun, 0, 0
        self.ended: list[str] | None = []
        """Its files, while all of them have ended since."""

    def add(self, each: SeenFile) -> None:
        self.files += 1
        self.size += each.row.size
        self.begun = min(self.begun, each.row.created)
        if not each.ended:
            self.ended = None
        elif self.ended is not None:
            self.ended.append(each.row.physical)


def list_tree(
    there: ReceiverDirectories,
    *,
    path: str | None = None,
    at: str | None = None,
    files: bool = False,
    after: str | None = None,
    limit: int | None = None,
) -> TreePage:
    """Directories with what is in them, or a page of the files.

    Args:
        there: what to look at.
        path: only what is there, above it and below it: of a database, storage group, partition or
            file; all, if left out.
        at: a commit timestamp or a time; now, if left out.
        files: the files in place of the directories.
        after: the cursor of the page before.
        limit: files of the page; as many as the configuration allows, if left out.

    Raises:
        NotFoundError: nothing is at the path.
        HistoryGoneError: the time is before the kept history.
        UsageError: it is no time.
    """
    engine = there.engine
    look = Look(engine, engine.at(moment(at)))
    may_be_in = None if path is None else partial(_may_be_in, path)
    seen = seen_files(look, after, may_be_in)
    found = (each for each in seen if path is None or _is_below(each, path))
    if files:
        limit = page_limit(limit, there.config.limits.max_page_items)
        some = list(islice(found, limit + 1))
        nodes = [_file(each, engine) for each in with_inside(look, some[:limit])]
        following = some[limit - 1].row.physical if len(some) > limit else None
    else:
        nodes, following = _directories(found, look, engine), None
    if path is not None and not nodes and after is None:
        raise NotFoundError(f"{path}: no file that readers see is there at {look.ts}")
    return TreePage(
        commit=look.ts, commit_at=engine.times.seconds(look.ts), nodes=nodes, next=following
    )


def _may_be_in(path: str, directory: str) -> bool:
    """Whether what is at a path, a directory of any kind or a file, may be in one of a file."""
    inside = f"{directory}/"
    return path.startswith(inside) or any(each.path == path for each in directories_of(inside))


def _is_below(each: SeenFile, path: str) -> bool:
    physical = each.row.physical
    return physical == path or any(name.path == path for name in directories_of(physical))


def _directories(found: Iterator[SeenFile], look: Look, engine: Engine) -> list[TreeNodeView]:
    every: dict[DirectoryName, _Directory] = {}
    for each in found:
        names = directories_of(each.row.physical)
        for name in names:
            if name not in every:
                every[name] = _Directory(_place(name, names[0].path), each.row.created)
            every[name].add(each)
    doubtful = {name: each.ended for name, each in every.items() if each.ended}
    ended = ends_of(doubtful, engine.log_since(look.ts)) if doubtful else {}
    return [
        TreeNodeView(
            kind=name.kind,
            path=name.path,
            parent=name.parent,
            created=each.begun,
            created_at=engine.times.seconds(each.begun),
            deleted=ended.get(name, 0),
            deleted_at=_moment(engine, ended.get(name, 0)),
            files=each.files,
            size=each.size,
        )
        for name, each in sorted(every.items(), key=lambda pair: pair[1].place)
    ]


def _place(name: DirectoryName, database: str) -> tuple[str | int, ...]:
    """So that what is in a directory comes behind it, partitions by their numbers."""
    if name.kind == "database":
        return (database,)
    group, *inner = name.path.split("/")
    return (database, group, *map(int, inner))


def _file(each: SeenFile, engine: Engine) -> TreeNodeView:
    row = each.row
    return TreeNodeView(
        kind="file",
        path=row.physical,
        parent=directories_of(row.physical)[-1].path,
        created=row.created,
        created_at=engine.times.seconds(row.created),
        deleted=each.ended,
        deleted_at=_moment(engine, each.ended),
        files=1,
        size=row.size,
        first_time=row.first,
        last_time=row.last,
        series=row.series,
        points=row.points,
        inside=each.inside,
    )


def _moment(engine: Engine, ts: int) -> float | None:
    return engine.times.seconds(ts) if ts else None
