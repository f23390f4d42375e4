"""Copies that the master has found to have other bytes: they count again by bytes alone.

That a node gave other bytes than a file has is committed, so that whoever is master later knows it
as well: one that starts anew, and one that takes the place of another. What the node says of itself
ends no doubt, nor does its next start: a node that calls its copy good did so before. It ends when
the node has given all bytes of the file and they were the right ones (`doubted_reader`).

An earlier state of this release kept them in a file, `doubted-copies.json` in the schema directory:
`{"v": 1, "nodes": {uuid: {"boot": ..., "files": [[tablet, name], ...]}}}`, without a name for all
of a tablet. What stands there is committed at the start, and the file goes.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Final

import msgspec

from common.decoders import from_json
from common.durable import Tree
from common.errors import TsferryError
from receiver.metadata.model import records
from receiver.metadata.model.errors import RefusedCommitError
from receiver.placement.copies_there.tablet_files import rows_behind

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from receiver.metadata.engine import Engine
    from receiver.metadata.state.state import State

__all__ = ["DoubtedCopies"]

log = logging.getLogger(__name__)

_FILE: Final = "doubted-copies.json"


class _OfNode(msgspec.Struct, frozen=True, kw_only=True):
    files: list[tuple[str, str]]


class _Kept(msgspec.Struct, frozen=True, kw_only=True):
    nodes: dict[str, _OfNode]


class DoubtedCopies:
    """What is doubted; any thread may call."""

    def __init__(self, engine: Engine) -> None:
        """Know what is committed."""
        self._engine = engine
        self._lock = threading.Lock()
        self._unsaid: dict[tuple[str, str], str] = {}

    def doubt(self, node: str, tablet: str, physical: str) -> None:
        """A node gave other bytes than a file has; nobody may call who reads the state.

        From now on, though it cannot be committed now: then that is tried again.
        """
        with self._lock:
            self._unsaid[node, physical] = tablet
        self.say()

    def take_over(self, directory: Path) -> None:
        """Commit what an earlier state of this release kept in a file of the schema directory.

        Before anybody is told what is at nodes.
        """
        with Tree(directory) as home:
            if not home.exists(_FILE):
                return
            try:
                kept = from_json(home.read(_FILE), _Kept)
                for node, tablet, physical in self._each(kept):
                    self.doubt(node, tablet, physical)
                if not self._unsaid:
                    home.unlink(_FILE)
            except (msgspec.MsgspecError, UnicodeDecodeError, OSError, TsferryError) as error:
                told = {"file": _FILE, "error": str(error)}
                log.warning("which copies were doubted is not known any more", extra=told)

    def _each(self, kept: _Kept) -> Iterator[tuple[str, str, str]]:
        for node, of_node in kept.nodes.items():
            for tablet, physical in of_node.files:
                for name in [physical] if physical else self._names(tablet):
                    yield node, tablet, name

    def _names(self, tablet: str) -> list[str]:
        """Of all files of a tablet that nodes are to have."""
        with self._engine.reading() as state:
            row = state.tablet_table.rows.get(tablet)
            if row is None:
                return []
            name = state.loaded_tables.rows[row.table].name
            return [each.physical for each in rows_behind(state, row, name, None)]

    def say(self) -> None:
        """Commit what could not be committed before."""
        with self._lock:
            unsaid = list(self._unsaid.items())
        for (node, physical), tablet in unsaid:
            with self._engine.reading() as state:
                known = (node, physical) in state.doubted_table.rows
            try:
                if not known:
                    self._engine.commit([records.CopyDoubted(node, tablet, physical)])
            except RefusedCommitError:
                pass  # there is no such file or node any more
            except TsferryError as error:
                told = {"node": node, "file": physical, "error": error.message}
                log.warning("that a copy is doubted is not committed yet", extra=told)
                return
            with self._lock:
                self._unsaid.pop((node, physical), None)

    def trust(self, node: str, physical: str) -> None:
        """A node has just given the right bytes of a file; nobody may call who reads the state."""
        with self._lock:
            self._unsaid.pop((node, physical), None)
        with self._engine.reading() as state:
            row = state.doubted_table.rows.get((node, physical))
        if row is not None:
            op = records.CopyDoubted(node, row.tablet, physical, doubted=False)
            try:
                self._engine.commit([op])
            except TsferryError as error:  # it is doubted, until it gives them once more
                log.warning("a copy is doubted still", extra={"error": error.message})

    def of_node(self, state: State, node: str) -> dict[str, str]:
        """Files that a node does not count for, and their tablets."""
        found = {each.physical: each.tablet for each in state.doubted_table.of_node(node).values()}
        with self._lock:
            unsaid = list(self._unsaid.items())
        return found | {name: tablet for (uuid, name), tablet in unsaid if uuid == node}

    def count(self) -> int:
        """How many copies are doubted, of those that are to be where they are."""
        with self._engine.reading() as state:
            placed = state.placement_table.rows
            return sum(
                row.tablet in placed and row.node in placed[row.tablet].nodes
                for row in state.doubted_table.rows.values()
            )

    def of_file(self, state: State, node: str, physical: str) -> bool:
        """Whether a node does not count for a file."""
        return (node, physical) in state.doubted_table.rows or (node, physical) in self._unsaid

    def of_tablet(self, state: State, node: str, tablet: str) -> bool:
        """Whether it does not count for one of a tablet, so that it has not all of that."""
        if state.doubted_table.of_tablet(node, tablet):
            return True
        with self._lock:
            return any(key[0] == node and at == tablet for key, at in self._unsaid.items())
