"""Verdicts on loaded files, where a storage node or the object store may have a bad one whole.

A file whose bytes are not those that were loaded is bad on this disk alone. It is hidden only if
nobody gives it whole: an edge that has freed it could not send it again. Its bad bytes lose their
name first (to `stray/`, as by `fsck --repair`), so nobody reads them while it comes: readers are
sent to who else has it, or are told that it is not here. What comes is checked by MD5 before it
has its name. A cut behind the first step leaves a file that is only missing here, which whoever
needs it brings, and which a check of the disks finds.

Where the disk is full its bad bytes go first, once a node has given all of it to be compared.
What does not come goes into quarantine, and its bytes back to their name, for an operator to see.
"""

from __future__ import annotations

import logging
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from common import crash
from common.errors import NoSpaceError, TsferryError
from receiver.datadirs.disks import NAMING
from receiver.load.upkeep.fsck_findings import STRAY
from receiver.load.upkeep.verdicts import Recorded, check_number, one_of_each, record_verdicts
from receiver.metadata.state.placed_files import placed_nodes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from common.durable import Tree
    from receiver.load.upkeep.verdicts import Verdict
    from receiver.metadata.engine import Engine
    from receiver.metadata.state.table_rows import FileRow
    from receiver.placement.copies_there.copies_back import CopiesBack

__all__ = ["DamagedFiles", "JudgedFiles"]

log = logging.getLogger(__name__)

_REMEMBERED: Final = 10_000


class JudgedFiles(NamedTuple):
    """What became of verdicts.

    Attributes:
        recorded: of those that were committed.
        mended: bad files that are here as they were loaded, since somebody else had them.
    """

    recorded: Recorded
    mended: int


class DamagedFiles:
    """Takes verdicts at a server; any thread may call."""

    def __init__(
        self,
        engine: Engine,
        trees: Callable[[], Sequence[Tree]],
        back: CopiesBack,
        pinned: Callable[[Sequence[FileRow]], AbstractContextManager[None]],
    ) -> None:
        """Prepare.

        Args:
            engine: the metadata engine.
            trees: gives the data directories that count now.
            back: brings files from storage nodes.
            pinned: has files of the object store here, while it is entered.
        """
        self._engine = engine
        self._trees = trees
        self._back = back
        self._pinned = pinned
        self._lock = threading.Lock()
        self._mended: dict[str, None] = {}

    def judge(self, verdicts: Sequence[Verdict]) -> JudgedFiles:
        """Record verdicts, but those on files that are mended. Twice is once.

        Raises:
            TooLargeError, GuardFailed, TsferryError: see `record_verdicts`; what was mended stays.
        """
        check_number(verdicts)
        several = one_of_each(verdicts)
        changed = [each for each in several if each.bad is not None and not each.as_sent]
        if not changed:
            return JudgedFiles(record_verdicts(self._engine, several), 0)
        aside: list[tuple[Tree, str]] = []
        with self._lock:
            mended = {each for each in changed if self._mend(each, aside)}
            recorded = record_verdicts(
                self._engine, [each for each in several if each not in mended]
            )
            crash.point("damaged.hidden")
            for tree, rel in aside:
                _put_back(tree, rel)
        return JudgedFiles(recorded, len(mended))

    def _mend(self, verdict: Verdict, aside: list[tuple[Tree, str]]) -> bool:
        """Have a file here whole; what bad bytes were put aside for one that is not is added."""
        with self._engine.reading() as state:
            row = state.files.get(verdict.physical)
            if row is None or row.md5 != verdict.md5 or not row.visible:
                return False
            at_nodes = bool(placed_nodes(state, row.physical))
            in_store = state.uploaded_table.parts(row).file
        if not at_nodes and not in_store:
            return False
        put: list[tuple[Tree, str]] = []
        try:
            here = [tree for tree in self._trees() if tree.exists(row.physical)]
            bad = [tree for tree in here if not _is_whole(tree, row)]
            came = len(bad) < len(here)
            if came and not bad:
                # It was mended since it was judged; else its own bytes are what was found bad.
                return row.physical in self._mended
            put += _set_aside(bad, row.physical)
            crash.point("damaged.set_aside")
            came = came or (at_nodes and self._bring(row, put)) or (in_store and self._fetch(row))
        except (TsferryError, OSError) as error:
            log.warning("not mended", extra={"file": row.physical, "error": str(error)})
            came = False
        if not came:
            aside += put
            return False
        self._remember(row.physical)
        for tree, _ in put:
            tree.unlink(_stray(row.physical))
        log.warning("a damaged file was mended", extra={"file": row.physical, "was": verdict.bad})
        return True

    def _bring(self, row: FileRow, put: list[tuple[Tree, str]]) -> bool:
        """Have a file come from a node; its own bad bytes may take the room that it needs.

        They go if a node has it whole. Should others take that room first, it is read at the node,
        as any file that is not here, until there is room.
        """
        try:
            return self._back.bring(row)
        except NoSpaceError as error:
            if not put or not self._back.is_given(row):
                raise
            for tree, rel in put:
                tree.unlink(_stray(rel))
            put.clear()
            crash.point("damaged.made_room")
            told = {"file": row.physical, "error": str(error)}
            log.warning("bad bytes went, for a whole file to come", extra=told)
            with suppress(NoSpaceError):
                self._back.bring(row)
            return True

    def _fetch(self, row: FileRow) -> bool:
        with self._pinned([row]):
            return any(_is_whole(tree, row) for tree in self._trees())

    def _remember(self, physical: str) -> None:
        """A verdict that is told again, or late, is about bytes that are no more."""
        self._mended[physical] = None
        while len(self._mended) > _REMEMBERED:
            del self._mended[next(iter(self._mended))]


def _stray(rel: str) -> str:
    return f"{STRAY}/{rel}"


def _set_aside(trees: Sequence[Tree], rel: str) -> list[tuple[Tree, str]]:
    for tree in trees:
        target = _stray(rel)
        tree.make_dirs(target.rpartition("/")[0])
        with NAMING:
            tree.rename(rel, target)
    return [(tree, rel) for tree in trees]


def _put_back(tree: Tree, rel: str) -> None:
    try:
        with NAMING:
            if not tree.exists(rel):
                tree.rename(_stray(rel), rel)
    except (TsferryError, OSError) as error:  # it is hidden, wherever its bytes are
        log.warning("bad bytes stay aside", extra={"file": rel, "error": str(error)})


def _is_whole(tree: Tree, row: FileRow) -> bool:
    return tree.has_bytes(row.physical, row.size, row.md5, anew=True)
