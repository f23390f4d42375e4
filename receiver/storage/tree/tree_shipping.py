"""Keeps the tree in the store, behind the copies of the log.

    with DuckDB or Spark: docs/tree.md

Each time the commits since the last are read from the log, what they change is put as tables, and a
manifest names them with those before; who is cut off anywhere has the manifest before, and does it
again. The tree is never ahead of the log in the store: what it shows is in a receiver that is made
of the copies. It begins anew, from the rows of the engine, in each incarnation, and where the
history or a table that is needed has gone: it is made of what the engine has, and nothing of
tsferry reads it to decide anything.
"""

from __future__ import annotations

import logging
import time
import uuid
from typing import TYPE_CHECKING, Any, Final

from common import crash
from common.errors import ConflictError, DamagedError
from receiver.metadata.model.errors import HistoryGoneError
from receiver.storage.stores.incarnation import check_owner
from receiver.storage.tree.chunk_gathering import ChunkGatherer
from receiver.storage.tree.tree_beginning import begin_tree
from receiver.storage.tree.tree_manifests import TreeManifest, newest_tree
from receiver.storage.tree.tree_merging import PART, merged, put_part, standing
from receiver.storage.tree.tree_objects import TreeObjects
from receiver.storage.tree.tree_rows import (
    EngineFile,
    ForgottenError,
    NodeRow,
    TreeFollower,
    known_files,
    newest_of,
)
from receiver.storage.tree.tree_tables import CHUNKS, NODES, concat, newest_rows, table_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from common.durable import Tree
    from receiver.metadata.engine import Engine
    from receiver.metadata.model.records import Commit
    from receiver.storage.stores.incarnation import Incarnation
    from receiver.storage.stores.object_store import ObjectStore
    from receiver.storage.tree.tree_manifests import TreeTable
    from receiver.storage.tree.tree_tables import ArrowTable
    from receiver.storage.tree.unnamed_tables import UnnamedTables

__all__ = ["TreeShipper"]

log = logging.getLogger(__name__)

_ROWS: Final = 50_000
"""Rows of a table that one manifest adds, about; what is behind that comes with the next."""
_PIECE: Final = 2000
"""Rows of chunks that are gathered before a table is made of them."""
_LONGEST: Final = 5.0
"""Seconds that indexes are read before what they gave is put, and the log is followed again: who is
killed has that, and many files that were there before do not hold up what is new."""
_QUIET: Final = 3_600_000 << 18
"""Of commits that change no file a manifest tells after an hour: then readers know, and a start
need not read more of the log, which may not be there any more."""
_TOGETHER: Final = 500
"""Commits whose files are looked up under one hold of the lock, where they have few."""


class _Found:
    """Tables of what is new, a piece each: many rows as tuples would keep the collector busy."""

    def __init__(self) -> None:
        self.nodes: list[ArrowTable] = []
        self.chunks: list[ArrowTable] = []

    def add(self, schema: Any, rows: Sequence[tuple[Any, ...]]) -> None:
        if rows:
            (self.nodes if schema == NODES else self.chunks).append(table_of(schema, rows))

    @property
    def is_any(self) -> bool:
        return bool(self.nodes or self.chunks)

    @property
    def is_full(self) -> bool:
        kinds = (self.nodes, self.chunks)
        return any(sum(each.num_rows for each in kind) >= _ROWS for kind in kinds)


class TreeShipper:
    """Ships what is new, when it is called; one thread at a time.

    Attributes:
        newest: the newest manifest that there is; None before the first.
    """

    def __init__(
        self,
        engine: Engine,
        store: ObjectStore,
        owner: Incarnation,
        trees: Callable[[], Sequence[Tree]],
        *,
        unnamed: UnnamedTables,
        shipped: Callable[[], int],
        go_on: Callable[[], None] = lambda: None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare; the store is not spoken to yet.

        Args:
            engine: the metadata engine.
            store: where the tables go.
            owner: as whom they are put.
            trees: gives the data directories that count now.
            unnamed: tables that were put as this owner, and that no manifest names.
            shipped: gives the newest commit whose log is in the store as ours.
            go_on: called in between; may raise to stop.
            monotonic: seconds.
        """
        self._engine = engine
        self._store = store
        self._owner = owner
        self._shipped = shipped
        self._go_on = go_on
        self._unnamed = unnamed
        self._objects = TreeObjects(store, owner, unnamed)
        self._monotonic = monotonic
        self._chunks = ChunkGatherer(engine, store, trees, go_on, monotonic)
        self._follower: TreeFollower | None = None
        self._at = 0
        self._begun: TreeManifest | None = None
        self._is_stale = True
        self.newest: TreeManifest | None = None

    @property
    def reaches(self) -> int:
        """The newest commit that our tree in the store has; 0 for none."""
        newest = self.newest
        return newest.ts if newest is not None and self._is_ours() else 0

    def ship(self) -> bool:
        """Put what is new; whether there is more to do at once.

        Raises:
            FencedError: another receiver has taken over.
            ConflictError: the tree is ahead of this engine.
            StoreAwayError, StoreRefusedError: of the store.
        """
        try:
            if self._is_stale:
                self.newest = newest_tree(self._store, self._owner.engine)
                self._unnamed.settle(self.newest)
                self._is_stale = False
            return self._ship()
        except (DamagedError, ForgottenError, HistoryGoneError) as error:
            log.warning("the tree of files is made anew", extra={"error": str(error)})
            self._begun = self._follower = None
            self._begin()
            return True
        except BaseException:
            if self._begun is None:
                self._follower = None  # it is ahead of what the store has
                self._is_stale = True  # a manifest may be there whose answer was lost
            raise

    def _ship(self) -> bool:
        if self._begun is None and not self._is_ours():
            self._begin()
        return self._follow() if self._begun is None else self._put_begun()

    def _is_ours(self) -> bool:
        newest = self.newest
        return newest is not None and newest.incarnation == self._owner.number and newest.ts > 0

    # -- beginning ---------------------------------------------------------------------------

    def _begin(self) -> None:
        """Make the tables of all that there is; they count when the log in the store is as far."""
        check_owner(self._store, self._owner)
        number = self._next_number()
        parts: list[TreeTable] = []
        waiting: list[ArrowTable] = []

        def put() -> None:
            if any(each.num_rows for each in waiting):
                parts.append(put_part(self._objects, number, concat(waiting)))
                waiting.clear()

        def take(rows: list[NodeRow]) -> None:
            self._go_on()
            waiting.append(table_of(NODES, rows))
            if sum(each.num_rows for each in waiting) >= PART:
                put()

        begun = begin_tree(self._engine, take)
        put()
        difference = self._objects.make(number, "difference", table_of(NODES, begun.rows))
        chunks = self._objects.make(number, "chunks", CHUNKS.empty_table())  # readers want one
        self._follower, self._at = begun.follower, begun.ts
        self._begun = self._manifest(
            since=begun.ts,
            ts=begun.ts,
            checkpoint=parts,
            differences=[difference],
            chunks=[chunks],
            begun=begun.ts,
            done="",
        )

    def _put_begun(self) -> bool:
        """Put the manifest of what was begun; whether it is there."""
        assert self._begun is not None
        if self._shipped() < self._begun.ts:
            return False
        check_owner(self._store, self._owner)
        self._put(self._begun)
        self._begun = None
        return True

    # -- following ---------------------------------------------------------------------------

    def _follow(self) -> bool:
        newest = self.newest
        assert newest is not None
        if newest.ts > self._engine.newest_commit:
            raise ConflictError(
                f"{self._store.url} has the tree of files up to {newest.ts}, and here the log ends "
                f"with {self._engine.newest_commit}: this directory is older than the copies"
            )
        if self._follower is None:
            self._follower = TreeFollower.of_tables(standing(newest, self._objects))
            self._at = newest.ts
        found, is_more = self._read_log(self._shipped())
        done, until = newest.done, self._monotonic() + _LONGEST
        while done is not None and not found.is_full and self._monotonic() < until:
            rows, done = self._chunks.before(newest.begun, done, _PIECE, until)
            found.add(CHUNKS, rows)
        is_new = found.is_any or done != newest.done
        if not is_new and self._at - newest.ts < _QUIET:
            return is_more
        self._add(newest, found, done)
        return is_more or done is not None

    def _read_log(self, until: int) -> tuple[_Found, bool]:
        """What the commits behind the last bring, and whether there are more."""
        found = _Found()
        if until <= self._at:
            return found, False
        together: list[Commit] = []
        for commit in self._engine.log_since(self._at):
            if commit.ts > until:
                break
            together.append(commit)
            if len(together) >= _TOGETHER:
                self._take(together, found)
                together.clear()
                if found.is_full:
                    return found, True
        self._take(together, found)
        return found, False

    def _take(self, commits: Sequence[Commit], found: _Found) -> None:
        self._go_on()
        follower = self._follower
        assert follower is not None
        known = self._known({each for commit in commits for each in follower.asks_for(commit)})
        rows: list[NodeRow] = []
        for commit in commits:
            more, uploaded = follower.follow(commit, known.get)
            rows += more
            for each in uploaded:
                found.add(CHUNKS, self._chunks.rows(each))
            self._at = commit.ts
        found.add(NODES, newest_of([*rows, *follower.touched_rows()]))

    def _known(self, paths: Iterable[str]) -> dict[str, EngineFile]:
        found: dict[str, EngineFile] = {}
        every = list(paths)
        for at in range(0, len(every), _TOGETHER):
            with self._engine.reading() as state:
                found |= known_files(state, every[at : at + _TOGETHER])
        return found

    def _add(
        self,
        newest: TreeManifest,
        found: _Found,
        done: str | None,
    ) -> None:
        check_owner(self._store, self._owner)
        self._objects.drop_others()
        number = self._next_number()
        differences, packs = list(newest.differences), list(newest.chunks)
        if found.nodes:
            rows = newest_rows(concat(found.nodes))
            differences.append(self._objects.make(number, "difference", rows))
        if found.chunks:
            packs.append(self._objects.make(number, "chunks", concat(found.chunks)))
        made = self._manifest(
            since=newest.since,
            ts=self._at,
            checkpoint=newest.checkpoint,
            differences=differences,
            chunks=packs,
            begun=newest.begun,
            done=done,
        )
        self._put(
            merged(
                made,
                self._objects,
                oldest=self._engine.oldest_answerable,
                forgotten=self._forgotten,
            )
        )

    def _forgotten(self, files: Iterable[str]) -> set[str]:
        every = list(files)
        return set(every) - self._known(every).keys()

    # -- manifests ---------------------------------------------------------------------------

    def _next_number(self) -> int:
        newest = self.newest
        is_own = newest is not None and newest.incarnation == self._owner.number
        return newest.number + 1 if newest is not None and is_own else 1

    def _manifest(self, **members: Any) -> TreeManifest:
        return TreeManifest(
            engine=self._owner.engine,
            incarnation=self._owner.number,
            number=self._next_number(),
            ident=uuid.uuid4().hex,
            parent="" if self.newest is None else self.newest.key,
            **members,
        )

    def _put(self, made: TreeManifest) -> None:
        self._objects.put(made.tables)
        crash.point("storage.tree.tables")
        self._objects.drop_others()
        made.put(self._store)
        crash.point("storage.tree.put")
        check_owner(self._store, self._owner)  # who has taken over since may not have seen it
        self.newest = made
        self._unnamed.settle(made)
