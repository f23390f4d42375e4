"""Copies that the master has found to have other bytes: they count again by bytes alone.

That a node gave other bytes than a file has is committed, so that whoever is master later knows it
as well: one that starts anew, and one that takes the place of another. What the node says of itself
ends no doubt, nor does its next start: a node that calls its copy good did so before. It ends when
the node has given all bytes of the file and they were the right ones (`doubted_reader`).
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from common.errors import TsferryError
from receiver.metadata.model import records
from receiver.metadata.model.errors import RefusedCommitError

if TYPE_CHECKING:
    from receiver.metadata.engine import Engine
    from receiver.metadata.state.state import State

__all__ = ["DoubtedCopies"]

log = logging.getLogger(__name__)


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
