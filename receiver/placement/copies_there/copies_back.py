"""Files that a data directory of the master has lost, brought back from storage nodes.

What comes is checked by the MD5 of the catalogue before it has its name. It goes to the directory
that it was loaded into, or where there is most room if that is gone. Nothing of this is a commit.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from common import crash
from common.durable import free_bytes
from common.errors import DISK_ERRORS, NotFoundError, TsferryError, UnreachableError
from receiver.datadirs.disks import NAMING, home_of
from receiver.load.placing import tree_of
from receiver.metadata.state.table_rows import FileState
from receiver.placement.node_orders import WITHIN
from receiver.tablet_copies.read_tickets import READ_TICKET

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from common.durable import Tree
    from receiver.metadata.engine import Engine
    from receiver.metadata.state.table_rows import FileRow
    from receiver.placement.staged_sources import StagedSources
    from receiver.storage.reading.reader_calls import ReaderCalls
    from receiver.tablet_copies.copies_wire import FilePlace

__all__ = ["BroughtBack", "CopiesBack"]

log = logging.getLogger(__name__)

_AT_ONCE: Final = 1000
_BLOCK: Final = 8 << 20
"""Bytes that are asked for at once."""
_Taken = TypeVar("_Taken")


class BroughtBack(NamedTuple):
    """What came back.

    Attributes:
        files: that came.
        size: their bytes.
        failed: (physical name, why) of those that are in no data directory and did not come.
    """

    files: int
    size: int
    failed: list[tuple[str, str]]


class _OfNode:
    """A file at a node, as `fetch_beside` reads it."""

    def __init__(self, calls: ReaderCalls, place: FilePlace) -> None:
        self.url = place.url
        self._calls = calls
        self._place = place

    def read(self, key: str, offset: int, length: int) -> bytes:
        """So many bytes: one that gives crumbs of what it has would never come to an end."""
        from receiver.storage.reading.copy_reads import CONTENT_OF_NODE

        query: dict[str, str | int | None] = {
            "tablet": self._place.tablet,
            "path": key,
            "begin": offset,
            "length": length,
        }
        try:
            block = self._calls.get(CONTENT_OF_NODE, query, {READ_TICKET: self._place.ticket})
        except (NotFoundError, *DISK_ERRORS) as error:  # at this node; another one may have it
            raise UnreachableError(f"{self.url}: {error.message}") from error
        if len(block) != length:
            raise UnreachableError(f"{self.url}: {len(block)} bytes of {length} came")
        return block

    def gives(self, row: FileRow) -> bool:
        """See that all of a file comes, as it was loaded.

        Raises:
            UnreachableError: not all of it comes.
            ContentChangedError: other bytes do.
        """
        from receiver.storage.stores.object_content import ContentChangedError

        digest = hashlib.md5(usedforsecurity=False)
        for begin in range(0, row.size, _BLOCK):
            digest.update(self.read(row.physical, begin, min(_BLOCK, row.size - begin)))
        if digest.hexdigest() != row.md5:
            raise ContentChangedError(f"{self.url}: {row.physical}: other bytes than were loaded")
        return True


class CopiesBack:
    """Brings files back; any thread may call, and waits for what brings the same file alone.

    Attributes:
        came: called with the name of each file that lies in a data directory again.
        doubted: called with a node that gave other bytes than a file has, and its name.
        gave: called with one that gave all of it.
    """

    def __init__(
        self,
        engine: Engine,
        trees: Callable[[], Sequence[Tree]],
        places: Callable[[str], Sequence[FilePlace]],
        ca_cert: str | None = None,
        staged: StagedSources | None = None,
    ) -> None:
        """Prepare.

        Args:
            engine: the metadata engine.
            trees: gives the data directories that count now.
            places: nodes that give a file, or may.
            ca_cert: PEM file that nodes are checked against.
            staged: what edges have sent to nodes, and no replica has yet.
        """
        self._engine = engine
        self._trees = trees
        self._places = places
        self._ca_cert = ca_cert
        self._staged = staged
        self.came: Callable[[str], None] = lambda physical: None
        self.doubted: Callable[[FilePlace, str], None] = lambda place, physical: None
        self.gave: Callable[[FilePlace, str], None] = lambda place, physical: None
        self._changed = threading.Condition()
        self._coming: set[str] = set()

    def bring(self, row: FileRow) -> bool:
        """Have a file here that may be at nodes alone; whether it is here then.

        Raises:
            NoSpaceError, DiskError, ReadOnlyError, OSError: of the disk that it was to come to.
            NotFoundError: it was deleted meanwhile.
        """
        with self._alone(row):
            return tree_of(self._trees(), row) is not None or self._from_nodes(row)

    def mend(self, row: FileRow) -> bool:
        """Have a file here as it was loaded, in place of a damaged one; whether it is then.

        What is damaged stays where no node gives a whole one.

        Raises:
            NoSpaceError, DiskError, ReadOnlyError, OSError: of the disk that it was to come to.
            NotFoundError: it was deleted meanwhile.
        """
        with self._alone(row):
            tree = tree_of(self._trees(), row)
            if tree is not None and tree.has_bytes(row.physical, row.size, row.md5, anew=True):
                return True
            return self._from_nodes(row, tree)

    @contextmanager
    def _alone(self, row: FileRow) -> Iterator[None]:
        """Keep others from the same file; a node that is slow to give one keeps nobody from all."""
        name = row.physical
        with self._changed:
            self._changed.wait_for(lambda: name not in self._coming)
            self._coming.add(name)
        try:
            yield
        finally:
            with self._changed:
                self._coming.remove(name)
                self._changed.notify_all()

    def beside(self, row: FileRow, tree: Tree) -> str | None:
        """Fetch a file from a node into a directory, checked, under a name that nobody reads.

        Returns:
            that name, whoever asked renames or removes it; None where no node gives the file.

        Raises:
            NoSpaceError, DiskError, ReadOnlyError, OSError: of the disk that it was to come to.
            NotFoundError: there is no such file any more.
        """
        from receiver.storage.cache.object_fetching import fetch_beside

        places = self._places(row.physical)
        rel = self._of_first(
            row,
            places,
            lambda node: fetch_beside(node, tree, row.physical, row.size, row.md5),
        )
        if rel is None and self._staged is not None:
            return self._staged.beside(row, tree, places)
        return rel

    def is_given(self, row: FileRow) -> bool:
        """Whether a node gives all of a file now, as it was loaded; nothing of it is kept.

        Raises:
            NotFoundError: there is no such file any more.
        """
        return bool(self._of_first(row, self._places(row.physical), lambda node: node.gives(row)))

    def _of_first(
        self, row: FileRow, places: Sequence[FilePlace], take: Callable[[_OfNode], _Taken]
    ) -> _Taken | None:
        """What is made of the first node that gives a file; None where none does."""
        from receiver.storage.reading.copy_reads import tell_doubt
        from receiver.storage.reading.reader_calls import ReaderCalls
        from receiver.storage.stores.object_content import ContentChangedError

        for place in places:
            calls = ReaderCalls(
                place.url, token=None, ca_cert=self._ca_cert, what="the node's URL", within=WITHIN
            )
            try:
                found = take(_OfNode(calls, place))
            except (NotFoundError, *DISK_ERRORS, OSError):
                raise  # of the disk here: it says nothing of the node
            except TsferryError as error:
                if isinstance(error, ContentChangedError):
                    self.doubted(place, row.physical)
                    tell_doubt(calls, place, row.physical)
                told = {"file": row.physical, "node": place.url, "error": str(error)}
                log.warning("a file does not come back from a node", extra=told)
                continue
            finally:
                calls.close()
            self.gave(place, row.physical)
            log.info("a node gave a file", extra={"file": row.physical, "node": place.url})
            return found
        return None

    def has_it(self, physical: str) -> dict[str, bool | None]:
        """What nodes that may have a file say of it, by URL; None of one that says nothing.

        A node has it in a replica, or as an edge has sent it.

        Raises:
            NotFoundError: there is no such file.
        """
        from receiver.storage.reading.copy_reads import CONTENT_OF_NODE
        from receiver.storage.reading.reader_calls import ReaderCalls

        said: dict[str, bool | None] = {}
        for place in self._places(physical):
            calls = ReaderCalls(
                place.url, token=None, ca_cert=self._ca_cert, what="the node's URL", within=WITHIN
            )
            query: dict[str, str | int | None] = {
                "tablet": place.tablet,
                "path": physical,
                "begin": 0,
                "length": 1,
            }
            try:
                calls.get(CONTENT_OF_NODE, query, {READ_TICKET: place.ticket})
                said[place.url] = True
            except NotFoundError:
                said[place.url] = False
            except (TsferryError, OSError):
                said[place.url] = None
            finally:
                calls.close()
        if self._staged is not None and False in said.values():
            with self._engine.reading() as state:
                row = state.files.get(physical)
            if row is None:
                raise NotFoundError(f"{physical!a} is no file of the catalogue")
            said |= {url: self._staged.has(url, row) for url, has in said.items() if has is False}
        return said

    def relay(self, physical: str, begin: int, length: int) -> bytes:
        """Bytes of a file as a node gives them, unchecked: whoever asked compares them.

        Raises:
            NotFoundError: there is no such file.
            UnreachableError: no node gives them now.
        """
        from receiver.storage.reading.reader_calls import ReaderCalls

        for place in self._places(physical):
            calls = ReaderCalls(
                place.url, token=None, ca_cert=self._ca_cert, what="the node's URL", within=WITHIN
            )
            try:
                return _OfNode(calls, place).read(physical, begin, length)
            except (TsferryError, OSError) as error:
                told = {"file": physical, "node": place.url, "error": str(error)}
                log.info("a node does not give a file", extra=told)
            finally:
                calls.close()
        raise UnreachableError(f"no storage node gives {physical} now", retry_after=10.0)

    def bring_all(self) -> BroughtBack:
        """Have all files here that readers see and that no data directory has."""
        files = size = 0
        failed: list[tuple[str, str]] = []
        after: str | None = None
        while True:
            with self._engine.reading() as state:
                rows = state.file_table.catalogue(after, _AT_ONCE)
            for row in rows:
                if tree_of(self._trees(), row) is not None:
                    continue
                try:
                    came = self.bring(row)
                except (TsferryError, OSError) as error:
                    failed.append((row.physical, str(error)))
                    continue
                if came:
                    files, size = files + 1, size + row.size
                else:
                    failed.append((row.physical, "no storage node gives it"))
            if len(rows) < _AT_ONCE:
                return BroughtBack(files, size, failed)
            after = rows[-1].physical

    def _from_nodes(self, row: FileRow, into: Tree | None = None) -> bool:
        """Have a file in this directory, or where it was; whether a node gave it."""
        from receiver.storage.cache.object_fetching import settle_fetched

        trees = self._trees()
        tree = (
            into
            or home_of(trees, row)
            or max(trees, key=lambda each: free_bytes(each.path), default=None)
        )
        if tree is None:
            raise NotFoundError(f"{row.physical}: no data directory is there for it to come to")
        rel = self.beside(row, tree)
        if rel is None:
            return False
        directory = row.physical.rpartition("/")[0]
        try:
            tree.make_dirs(directory)
            with NAMING:
                with self._engine.reading() as state:
                    now = state.files.get(row.physical)
                was = row.state
                if now is None or (now.state is FileState.DELETED and now.state is not was):
                    raise NotFoundError(f"{row.physical} was deleted meanwhile")
                tree.rename(rel, row.physical, sync=False)
                crash.point("copies.back_named")
                tree.sync_dir(directory)
                settle_fetched(tree)
        finally:
            tree.unlink(rel, sync=False)
        self.came(row.physical)
        return True
