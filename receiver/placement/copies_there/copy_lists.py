"""Lists of files for nodes: what belongs to a tablet, what happened since, what may go.

A list is read in pages, by physical name, as things are when each page is read. Whoever has all
that is on all pages has each file that was in the tablet when the first page was read and still is.
A node that was complete is told what happened since, where that is still remembered; one that began
anew shows the digest of what it has, and mostly is told that this is all.

A file goes from a node when its row is forgotten here: by then no question about the past needs it.
What this engine has never had is not let go: then it is an older copy of the one that had it. That
is known by the commit that the node had heard last, and by the one that brought the file.
"""

from __future__ import annotations

import secrets
from bisect import bisect_left
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Final

from common.errors import NotFoundError, ProtocolError
from receiver.placement.copies_there.tablet_files import rows_behind
from receiver.tablet_copies.copies_wire import (
    CopiedDeletions,
    CopiedFile,
    CopiedOrigin,
    CopyNews,
    CopyPage,
    GoneSaid,
    TableAttributes,
    TabletNews,
    digest_of_list,
    sum_of_file,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from receiver.heartbeats.node_wire import MasterMark
    from receiver.metadata.engine import Engine
    from receiver.metadata.state.state import State
    from receiver.metadata.state.table_rows import FileRow
    from receiver.metadata.state.tables.place_tables.placements import PlacementRow
    from receiver.metadata.state.tables.place_tables.tablets import LoadedTableRow, TabletRow
    from receiver.placement.copies_there.held_copies import HeldCopiesBook
    from receiver.tablet_copies.copies_wire import CopySource, GoneAsked, HeldCopies

__all__ = ["CopyLists", "attributes_of", "copied_file"]

_MARKS: Final = 1000
"""Commits that are remembered as told to a node, however short the history is."""
_PAGE: Final = 1000
"""Files of a page; of a delta it is the most that is told in one."""


class CopyLists:
    """Answers nodes; any thread may call.

    Attributes:
        mark: says which master this is.
    """

    def __init__(
        self,
        engine: Engine,
        book: HeldCopiesBook,
        *,
        mark: Callable[[], MasterMark],
        had: Callable[[str, int], bool] = lambda life, commit: False,
        sources: Callable[[PlacementRow, str], Sequence[CopySource]] = lambda *_: (),
        page: int = _PAGE,
    ) -> None:
        """Prepare.

        Args:
            engine: the master's.
            book: of what nodes have.
            mark: says which master this is; raises where it is none any more.
            had: whether a commit that was heard in a life of the master is this engine's.
            sources: other nodes that a node can pull a tablet from.
            page: files of a page.
        """
        self._engine = engine
        self._book = book
        self.mark = mark
        self._had = had
        self._sources = sources
        self._page = page
        self._life = secrets.token_hex(16)
        self._digests: dict[str, tuple[int, str]] = {}
        self._told: dict[str, deque[int]] = {}

    # -- what is new -------------------------------------------------------------------------

    def news(self, node: str, after: int) -> CopyNews:
        """The tablets of a node that something happened to behind a commit."""
        mark = self.mark()  # first: what comes while the state is read is news again
        with self._engine.reading() as state:
            table = state.placement_table
            touched = None if after <= 0 else table.since(after)
            rows = {row.tablet: row for row in table.of_node(node)} if touched is None else {}
            for tablet in (*(touched or ()), *self._book.again(node)):
                found = table.rows.get(tablet)
                if found is not None and node in found.nodes:
                    rows[tablet] = found
            told = [self._news(state, row) for row in rows.values()]
        commits = self._told.setdefault(node, deque(maxlen=_MARKS))
        if not commits or commits[-1] != mark.commit:
            commits.append(mark.commit)
        return CopyNews(
            master=mark, life=self._life, tablets=[each for each in told if each is not None]
        )

    def _news(self, state: State, row: PlacementRow) -> TabletNews | None:
        tablet = state.tablet_table.rows[row.tablet]
        table = state.loaded_tables.rows[tablet.table]
        if table.dropped or tablet.dropped:
            return None
        return TabletNews(
            tablet=tablet.id,
            generation=row.generation,
            table=table.name,
            begin=tablet.begin,
            end=tablet.end,
            attributes=attributes_of(table),
        )

    # -- lists -------------------------------------------------------------------------------

    def page(self, node: str, tablet: str, after: str | None, digest: str, since: int) -> CopyPage:
        """A page of what belongs to a tablet.

        Args:
            node: that asks.
            tablet: its id.
            after: `next` of the page before; None for the first.
            digest: of all that the node has, empty if it does not say.
            since: what the node has is complete as of this commit, 0 for none.

        Raises:
            NotFoundError: the tablet is not placed at this node, or not any more.
        """
        mark = self.mark()
        with self._engine.reading() as state:
            row, placement, name = self._placed(state, node, tablet)
            touched = state.placement_table.touched(name, row.begin, row.end)
        sources = self._sources(placement, node)
        source, others = next(iter(sources), None), tuple(sources[1:])
        if after is None:
            self._book.gave(node, tablet, placement.generation, mark.commit)
            delta = self._delta(row, name, since) if since and self._has(since) else None
            if delta is not None:
                return CopyPage(
                    master=mark,
                    generation=placement.generation,
                    commit=mark.commit,
                    is_delta=True,
                    files=tuple(delta[0]),
                    ended=tuple(delta[1]),
                    source=source,
                    others=others,
                )
            if digest and self._digest(row, name, touched) == digest:
                return CopyPage(
                    master=mark, generation=placement.generation, commit=mark.commit, same=True
                )
        files = self._files(row, name, after)
        return CopyPage(
            master=mark,
            generation=placement.generation,
            commit=mark.commit,
            files=tuple(files),
            next=files[-1].physical if len(files) == self._page else None,
            source=source,
            others=others,
        )

    def _placed(self, state: State, node: str, tablet: str) -> tuple[TabletRow, PlacementRow, str]:
        row = state.tablet_table.rows.get(tablet)
        placement = state.placement_table.rows.get(tablet)
        if row is None or placement is None or node not in placement.nodes:
            raise NotFoundError(f"the tablet {tablet[:40]!a} is not placed at the node {node}")
        table = state.loaded_tables.rows[row.table]
        if table.dropped:
            raise NotFoundError(f"the table {table.name} of tablet {tablet} was dropped")
        if row.dropped:
            raise NotFoundError(f"the tablet {tablet} of {table.name} was dropped, empty")
        return row, placement, table.name

    def _delta(
        self, row: TabletRow, name: str, since: int
    ) -> tuple[list[CopiedFile], list[str]] | None:
        """What is there and what is not, of all that changed; None where that is not known."""
        with self._engine.reading() as state:
            changed = state.placement_table.changes(name, row, since)
            if changed is None or len(changed) > self._page:
                return None
            files, ended = [], []
            for physical in changed:
                found = state.files.get(physical)
                if found is not None and (found.visible or physical in state.released_table.rows):
                    files.append(copied_file(state, found))
                else:
                    ended.append(physical)
        return files, ended

    def digest_of(self, tablet: str) -> str | None:
        """The digest of the list of a tablet, None where there is no such tablet any more."""
        with self._engine.reading() as state:
            row = state.tablet_table.rows.get(tablet)
            table = None if row is None else state.loaded_tables.rows[row.table]
            if row is None or table is None or table.dropped or row.dropped:
                return None
            touched = state.placement_table.touched(table.name, row.begin, row.end)
        return self._digest(row, table.name, touched)

    def _files(self, row: TabletRow, name: str, after: str | None) -> list[CopiedFile]:
        with self._engine.reading() as state:
            rows = islice(rows_behind(state, row, name, after), self._page)
            return [copied_file(state, each) for each in rows]

    def _digest(self, row: TabletRow, name: str, touched: int) -> str:
        known = self._digests.get(row.id)
        if known is not None and known[0] == touched:
            return known[1]
        total = 0
        after: str | None = None
        while True:
            files = self._files(row, name, after)
            total += sum(map(sum_of_file, files))
            if len(files) < self._page:
                break
            after = files[-1].physical
        with self._engine.reading() as state:
            now = state.placement_table.touched(name, row.begin, row.end)
        found = digest_of_list(total)
        if now == touched:
            self._digests[row.id] = touched, found
        return found

    # -- what nodes have come to have --------------------------------------------------------

    def held(self, said: HeldCopies) -> None:
        """A node says which replicas are complete."""
        node, mine = said.start.uuid, self.mark().life
        for each in said.copies:
            if each.life in ("", mine):
                self._book.said(node, each.tablet, each.generation, each.commit)
            else:  # by the list of another life, whose commit may have the number of one here
                self._book.not_by_us(node, each.tablet)

    # -- what may go -------------------------------------------------------------------------

    def gone(self, node: str, tablet: str, asked: GoneAsked) -> GoneSaid:
        """Which files a node may let go.

        Raises:
            NotFoundError: the tablet is not placed at this node, or not any more.
            ProtocolError: lives are told of some of the files alone.
        """
        mark = self.mark()
        if asked.lives and len(asked.lives) != len(asked.files):
            raise ProtocolError(f"{len(asked.lives)} lives are told of {len(asked.files)} files")
        if asked.unplaced:
            return self._known(mark, asked)
        with self._engine.reading() as state:
            _, placement, _ = self._placed(state, node, tablet)
            forgotten = [each for each in _with_lives(asked) if each[0] not in state.files]
        if asked.generation != placement.generation:
            forgotten = []
        is_ours = (
            self._had(asked.life, asked.seen)
            if asked.life
            else asked.seen in self._told.get(node, ()) or self._has(asked.seen)
        )
        # Nodes may have heard of this engine only since it lacks what they have: each file tells.
        files = [
            name
            for name, commit, life in forgotten
            if (not self._lacks(commit) if is_ours else self._is_of_ours(commit, life))
        ]
        known = set(files)
        return GoneSaid(
            master=mark,
            generation=placement.generation,
            files=files,
            unknown=tuple(name for name, _, _ in forgotten if name not in known),
        )

    def _known(self, mark: MasterMark, asked: GoneAsked) -> GoneSaid:
        """Which files this engine has, or has certainly had."""
        with self._engine.reading() as state:
            rows = [(state.files.get(name), name, commit) for name, commit in asked.files]
            here = {name for row, name, commit in rows if row and row.created == commit}
        known = {
            name
            for name, commit, life in _with_lives(asked)
            if name in here or self._is_of_ours(commit, life)
        }
        return GoneSaid(
            master=mark,
            generation=asked.generation,
            files=sorted(known),
            unknown=tuple(name for name, _ in asked.files if name not in known),
        )

    def _is_of_ours(self, commit: int, life: str) -> bool:
        """Whether a commit that a node has of a life of its master is one of this engine's."""
        return self._had(life, commit) if life else self._has(commit)

    def _lacks(self, commit: int) -> bool:
        """Whether a commit is none of this engine's, though its history goes back as far."""
        with self._engine.reading():
            goes_back = self._engine.window.oldest <= commit
        return goes_back and not self._has(commit)

    def _has(self, commit: int) -> bool:
        """Whether a commit is one of this engine's, within what is kept of its history."""
        with self._engine.reading():
            commits = self._engine.window.commits
            at = bisect_left(commits, commit)
            return at < len(commits) and commits[at] == commit


def _with_lives(asked: GoneAsked) -> Iterator[tuple[str, int, str]]:
    """Name, commit and life of each file; of an earlier state of the node no life is known."""
    lives = asked.lives or ("",) * len(asked.files)
    return ((name, commit, life) for (name, commit), life in zip(asked.files, lives, strict=True))


def attributes_of(table: LoadedTableRow) -> TableAttributes:
    """What nodes are to know of a table."""
    return TableAttributes(version=table.version, ttl=table.ttl, replicas=table.replicas)


def copied_file(state: State, row: FileRow) -> CopiedFile:
    """What a node is told of a file."""
    origin = None
    if row.origin is not None:
        origin = CopiedOrigin(
            sender=row.origin.sender,
            path=row.origin.path,
            below=[
                (each.engine, each.first, each.closed, each.last, each.loaded, each.physical)
                for each in row.origin.below
            ],
        )
    deletions = [
        CopiedDeletions(form=each.form, content=each.content)
        for each in state.deletion_table.of_file(row.physical)
    ]
    return CopiedFile(
        physical=row.physical,
        size=row.size,
        md5=row.md5,
        commit=row.created,
        sender=row.sender,
        path=row.path,
        names=row.names,
        first_look=row.first_look,
        closed_look=row.closed_look,
        last_look=row.last_look,
        retired=row.retired,
        origin=origin,
        deletions=tuple(sorted(deletions, key=lambda each: each.form)),
    )
