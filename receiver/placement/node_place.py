"""Storage nodes as the place of files: what may leave the master's disks for them, and comes back.

A file may leave when all nodes that its tablet is placed at are known to have it, as many as are
wanted and each on a host of its own, and each has just proved it: it is given a number that nobody
knew before, and has to answer with the digest of that and of the file's bytes, read from its disk.
The master makes the same of its own bytes, whose MD5 it compares with the catalogue meanwhile. So
no word of a node is believed, nor anything that was known before. Then a commit says which nodes
have proved it, guarded by the file and by the generation of the placement; then the file goes.
"""

from __future__ import annotations

import hashlib
import logging
import os
import secrets
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from common import crash
from common.digests import md5, read_blocks
from common.errors import TsferryError, UnreachableError
from receiver.datadirs.disks import disk_room
from receiver.eviction_place import PlaceWord
from receiver.load.placing import tree_of
from receiver.metadata.commit.guards import Guard
from receiver.metadata.model import records
from receiver.metadata.model.errors import GuardFailed, RefusedCommitError
from receiver.metadata.model.merged_names import is_merged
from receiver.metadata.state.placed_files import placed_nodes, placement_of
from receiver.tablet_copies.copies_wire import ProofAsked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from concurrent.futures import Executor

    from common.durable import Tree
    from common.names import FilePath
    from receiver.metadata.engine import Engine
    from receiver.metadata.state.state import State
    from receiver.metadata.state.table_rows import FileRow
    from receiver.metadata.state.tables.place_tables.placements import PlacementRow
    from receiver.metadata.state.tables.sender_tables.released import ReleasedRow
    from receiver.placement.copies_there.copies_back import CopiesBack
    from receiver.placement.copies_there.doubted_copies import DoubtedCopies
    from receiver.placement.copies_there.held_copies import HeldCopiesBook
    from receiver.placement.placeable_nodes import PlaceableNode

__all__ = ["AsksForProofs", "NodePlace", "NodeSource"]

log = logging.getLogger(__name__)

_PIECE: Final = 64 << 20
"""Bytes of one question: a slow disk answers it within the time that a call has."""


class AsksForProofs(Protocol):
    """Asks a node to prove that it has bytes; raises errors of the common tree, or `OSError`."""

    def proof(self, node: PlaceableNode, asked: ProofAsked) -> str:
        """The digest, in hex."""

    def doubt(self, node: PlaceableNode, tablet: str, physical: str) -> None:
        """It has other bytes than a file has: it is to read its copy; never raises."""


class _Held(NamedTuple):
    """A file, and the nodes that are known to have it."""

    row: FileRow
    placement: PlacementRow
    nodes: tuple[PlaceableNode, ...]


class _Sure(NamedTuple):
    """What was proved: by these starts of these nodes, as they are placed by a generation."""

    changed: int
    generation: int
    boots: Mapping[str, str]


class NodePlace:
    """See `EvictionPlace`."""

    def __init__(
        self,
        engine: Engine,
        book: HeldCopiesBook,
        doubts: DoubtedCopies,
        nodes: Callable[[], Mapping[str, PlaceableNode]],
        asks: AsksForProofs,
        trees: Callable[[], Sequence[Tree]],
        *,
        wanted: int,
        seems_here: Callable[[str], bool],
    ) -> None:
        """Prepare.

        Args:
            engine: of the master.
            book: of what nodes have.
            doubts: copies that had other bytes.
            nodes: as they are now, by uuid.
            asks: asks them.
            trees: gives the data directories of the master that count now.
            wanted: nodes that have to prove it, 2 at least.
            seems_here: whether a file lies in a data directory; asked of many.
        """
        self._engine = engine
        self._book = book
        self._doubts = doubts
        self._nodes = nodes
        self._asks = asks
        self._trees = trees
        self._wanted = wanted
        self._seems_here = seems_here
        self._sure: dict[str, _Sure] = {}

    def may_go(self, state: State, physical: str) -> bool:
        """See `EvictionPlace`."""
        return self._held(state, physical) is not None and self._seems_here(physical)

    def begin(self) -> None:
        """See `EvictionPlace`."""
        self._sure.clear()

    def leaving(self, path: FilePath) -> Sequence[str]:
        """See `EvictionPlace`: nodes keep no `.resource`, so that stays here."""
        return (path.text,)

    def may_leave(self, state: State, physical: str) -> bool:
        """See `EvictionPlace`."""
        sure, held = self._sure.get(physical), self._held(state, physical)
        if sure is None or held is None or physical not in state.released_table.rows:
            return False
        if any(self._doubts.of_file(state, each.uuid, physical) for each in held.nodes):
            return False
        now = {each.uuid: each.boot for each in held.nodes}
        return (
            held.row.changed == sure.changed
            and held.placement.generation == sure.generation
            and now == sure.boots
        )

    def _held(self, state: State, physical: str) -> _Held | None:
        """A file that enough nodes are known to have; None of any other."""
        row, found = state.files.get(physical), placement_of(state, physical)
        if row is None or found is None or not row.visible or is_merged(physical):
            return None
        placement = found[1]
        # One that gave other bytes may prove by now that it has the right ones.
        have = set(self._book.nodes_with(state, row, doubted=True)) if placement.running else set()
        if have != set(placement.nodes):
            return None
        nodes = self._nodes()
        there = [node for each in placement.nodes if (node := nodes.get(each)) is not None]
        if len(there) != len(placement.nodes):
            return None
        if not all(each.counts and not each.is_draining and each.boot for each in there):
            return None
        if len({each.host for each in there}) < max(self._wanted, len(there)):
            return None
        return _Held(row, placement, tuple(there))

    # -- proofs ------------------------------------------------------------------------------

    def confirmed(self, physicals: Sequence[str], pool: Executor) -> Iterable[PlaceWord]:
        """See `EvictionPlace`; what is sure is committed when this returns."""
        proved = list(pool.map(self._proved, physicals))
        sure = [held for held, word in proved if held is not None and word is PlaceWord.SURE]
        if not self._commit(sure):
            return [PlaceWord.UNKNOWN if word is PlaceWord.SURE else word for _, word in proved]
        for held in sure:
            boots = {each.uuid: each.boot for each in held.nodes}
            generation = held.placement.generation
            self._sure[held.row.physical] = _Sure(held.row.changed, generation, boots)
        return [word for _, word in proved]

    def _commit(self, sure: Sequence[_Held]) -> bool:
        """Say which nodes have proved it, where that is not said already."""
        crash.point("copies.release_proved")
        with self._engine.reading() as state:
            said = state.released_table.rows
            new = [each for each in sure if _differs(each, said.get(each.row.physical))]
        if new:
            ops = [
                records.FileReleased(
                    each.row.physical,
                    each.placement.tablet,
                    each.placement.generation,
                    tuple(sorted(node.uuid for node in each.nodes)),
                )
                for each in new
            ]
            guards = [Guard("file", each.row.physical, each.row.changed) for each in new]
            try:
                self._engine.commit(ops, guards)
            except (GuardFailed, RefusedCommitError) as error:
                log.info("files stay here for now", extra={"why": error.message})
                return False
        crash.point("copies.released")
        return True

    def _proved(self, physical: str) -> tuple[_Held | None, PlaceWord]:
        with self._engine.reading() as state:
            held = self._held(state, physical)
        if held is None:
            return None, PlaceWord.UNKNOWN
        tree = tree_of(self._trees(), held.row)
        if tree is None:
            return None, PlaceWord.UNKNOWN
        try:
            fd = tree.open_read(physical)
            try:
                wrong = self._compare(held, fd)
            finally:
                os.close(fd)
        except (TsferryError, OSError) as error:
            log.info("a file stays here for now", extra={"file": physical, "why": str(error)})
            return held, PlaceWord.UNKNOWN
        if wrong:
            log.error("a file stays here", extra={"file": physical, "why": wrong})
            return held, PlaceWord.DOUBTFUL
        return held, PlaceWord.SURE

    def _compare(self, held: _Held, fd: int) -> str:
        """Why the bytes here, or of a node, are not those of the file; empty if all are.

        What has rotted here is no measure: of a node nothing is said then.

        Raises:
            TsferryError, OSError: nobody knows.
        """
        row, digest, wrong = held.row, md5(), set[str]()
        if os.fstat(fd).st_size != row.size:
            return "it has another size here"
        for begin in range(0, max(row.size, 1), _PIECE):
            length = min(_PIECE, row.size - begin)
            nonces = {each.uuid: secrets.token_bytes(32) for each in held.nodes}
            own = {uuid: hashlib.sha256(nonce) for uuid, nonce in nonces.items()}
            for block in read_blocks(fd, start=begin, end=begin + length):
                digest.update(block)
                for each in own.values():
                    each.update(block)
            for node in held.nodes:
                if node.uuid in wrong:
                    continue
                asked = ProofAsked(
                    boot=node.boot,
                    tablet=held.placement.tablet,
                    generation=held.placement.generation,
                    physical=row.physical,
                    size=row.size,
                    md5=row.md5,
                    begin=begin,
                    length=length,
                    nonce=nonces[node.uuid].hex(),
                )
                if self._asks.proof(node, asked) != own[node.uuid].hexdigest():
                    wrong.add(node.uuid)
        if digest.hexdigest() != row.md5:
            return "it has another MD5 here"
        self._judge(held, wrong)
        return "".join(f"the node {each} has other bytes" for each in sorted(wrong)[:1])

    def _judge(self, held: _Held, wrong: set[str]) -> None:
        """Heed what nodes have come to prove, by bytes here that are those of the file."""
        tablet, physical = held.placement.tablet, held.row.physical
        for node in held.nodes:
            if node.uuid in wrong:
                self._doubts.doubt(node.uuid, tablet, physical)
                self._asks.doubt(node, tablet, physical)
            else:
                self._doubts.trust(node.uuid, physical)


def _differs(held: _Held, said: ReleasedRow | None) -> bool:
    if said is None:
        return True
    nodes = {each.uuid for each in held.nodes}
    place = held.placement
    return set(said.nodes) != nodes or (said.tablet, said.generation) != (
        place.tablet,
        place.generation,
    )


class NodeSource:
    """See `FetchSource`."""

    def __init__(self, engine: Engine, back: CopiesBack, *, every: bool = True) -> None:
        """Prepare.

        Args:
            engine: of the master.
            back: fetches from nodes.
            every: whether files are asked for that nodes are to have and have not proved to have.
        """
        self._engine = engine
        self._back = back
        self._every = every

    def room_for(self, state: State, row: FileRow) -> int | None:
        """See `FetchSource`."""
        released = row.physical in state.released_table.rows
        if not released and not (self._every and placed_nodes(state, row.physical)):
            return None
        return disk_room(row.size)

    def bring(self, row: FileRow, tree: Tree, brought: list[tuple[str, str]]) -> None:
        """See `FetchSource`."""
        rel = self._back.beside(row, tree)
        if rel is not None:
            brought.append((rel, row.physical))
            return
        with self._engine.reading() as state:
            released = row.physical in state.released_table.rows
        if released:
            raise UnreachableError(f"no storage node gives {row.physical} now", retry_after=10.0)
