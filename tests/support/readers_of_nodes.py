"""Readers of what nodes have, while these go, come back, or lie: `ReadersOfNodes`.

A reader believes no node: what it has read in ranges, of one node or of several, counts if it is
what the catalogue says. Nothing that it says of a node takes a good copy away.
"""

from __future__ import annotations

import hashlib
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from common.errors import UnreachableError
from receiver.metadata.state.table_rows import FileRow
from receiver.storage.reading.copy_reads import CopyReads
from receiver.tablet_copies.copies_wire import FilePlaces
from tests.support.masters_and_edges import NODE, MastersAndEdges
from tests.support.two_masters import OneOfTwo

__all__ = ["ReadersOfNodes"]

_TIMES = 6


class _Where:
    """What a reader asks whichever master leads."""

    def __init__(self, centre: ReadersOfNodes) -> None:
        self.centre = centre

    def where(self, physical: str) -> FilePlaces:
        found: list[FilePlaces] = []

        def ask(master: OneOfTwo) -> None:
            found.append(FilePlaces(places=master.copies.places(physical), nodes=True))

        self.centre._ask(ask)
        if not found:
            raise UnreachableError("no master answers")
        return found[-1]


class ReadersOfNodes(MastersAndEdges):
    """See the module."""

    def __init__(self) -> None:
        super().__init__()
        where: Any = _Where(self)
        self.reader = CopyReads(where, None, monotonic=self.there.monotonic)
        self.was_read = 0

    @rule(
        pick=st.integers(0, 1 << 16),
        meanwhile=st.sampled_from(("", "stops", "lies", "other leads")),
        node=NODE,
    )
    def somebody_reads_at_nodes(self, pick: int, meanwhile: str, node: int) -> None:
        """In two ranges, between which a node goes, or lies from then on."""
        told = sorted(self.loaded - self.deleted)
        if not told or self.is_turned_back:
            return
        path = told[pick % len(told)]
        holders = self.whole_at(path)
        hosts = [each.host for each in self.there.nodes]
        if holders:  # of the others nobody is asked
            node = hosts.index(holders[node % len(holders)])
        self.nodes_report_and_pull()
        rows: list[FileRow] = []
        self._ask(lambda master: rows.extend(filter(None, [self._row(master, path)])))
        if not rows:
            return
        for _ in range(_TIMES):
            found = self._read_in_ranges(rows[-1], meanwhile, node)
            if found is None:
                return  # a reader goes on to the receiver, or waits
            meanwhile = ""
            if found:
                assert found == self.names_of(path)[rows[-1].physical]
                self.was_read += 1
                return

    def happens_to_a_source(self, what: str, node: int) -> None:
        """While somebody reads: a node stops, or lies from then on, or another master leads."""
        if what == "stops" and self.there.nodes[node].is_up:
            self.there.nodes[node].stop()
        elif what == "lies":
            self.there.nodes[node].lies = True
        elif what == "other leads":
            self.the_other_leads_while_a_master_sleeps(node % 2, 0)

    def _read_in_ranges(self, row: FileRow, meanwhile: str, node: int) -> bytes | None:
        """All bytes; none if they are others than those of the file, None if no node gives any."""
        half = row.size // 2
        first = self.reader.read(row.physical, 0, half)
        if meanwhile:
            self.happens_to_a_source(meanwhile, node)
        second = self.reader.read(row.physical, half, row.size - half)
        if first is None or second is None:
            return None
        if hashlib.md5(first[1] + second[1]).hexdigest() == row.md5:
            return first[1] + second[1]
        for url in {first[0], second[0]}:
            self.reader.distrust(url, row.physical)
        return b""
