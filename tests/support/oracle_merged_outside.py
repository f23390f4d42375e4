"""Histories as those of `tests.support.oracle_outside`, at a centre that merges.

A content that was merged for good is there as long as what it was merged into is, and is given up
with that. What a merged file is made of the judge knows from what was there when it was made.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from receiver.metadata.state.table_rows import FileRow, FileState
from tests.support.edge_shapes import Points
from tests.support.oracle import Oracle
from tests.support.oracle_host import Killable
from tests.support.oracle_merges import FINAL, merging
from tests.support.oracle_outside import THERE, OutsidePlay

__all__ = ["MergedOutsidePlay"]

_Merged: Any = merging(OutsidePlay, **FINAL, deadly_final=2.0)


class MergedOutsidePlay(_Merged):
    """One history; see the module.

    Attributes:
        inside: contents that a merged one is made of, by its MD5.
    """

    def __init__(self, world: Oracle, host: Killable, seed: int) -> None:
        super().__init__(world, host, seed)
        del self.weights["rot"]
        self.weights |= {"exchange": 0.3, "condemn": 2.0, "undelete": 1.5}
        self.inside: dict[str, set[str]] = {}

    def _revive(self) -> None:
        assert self.host.start()

    def contents(self, rows: Sequence[FileRow]) -> set[str]:
        """What some files at the centre are; of those that were merged what they are made of."""
        found = super().contents(rows)
        return set().union(*(self.inside.get(each, {each}) for each in found))

    def look(self) -> list[FileRow]:
        """What is proved to be given by others may go, and its sender need not remember it."""
        there = super().look()
        gone = {row.md5 for row in there if row.state is FileState.SUPERSEDED}
        self.seen -= gone
        self.freed -= gone
        return there

    def listed(self, visible: Sequence[FileRow]) -> set[str]:
        """What is in a file that was merged for good is not sent again."""
        merged = [row for row in visible if row.md5 in self.inside]
        return super().listed(visible) | self.contents(merged)

    def lost(self) -> set[str]:
        """What is bad and was merged takes what it is made of along."""
        with self.host.reading() as state:
            return super().lost() | self.contents(
                [row for row in state.file_table.lost() if row.state is FileState.QUARANTINED]
            )

    # -- operators -------------------------------------------------------------------------

    def _bring_back(self) -> None:
        """It is said of files as they are: one that was touched since is refused anew first."""
        self._whole_round()
        super()._bring_back()

    def _condemn(self) -> None:
        """A verification finds a file bad, which may be one that was merged for good."""
        if rows := self.world.view().visible:
            row = self.chance.choice(rows)
            self.host.condemn(row.physical, row.md5, "bad")
            self._note("condemned", row.path, row.md5 in self.inside)

    def _undelete(self) -> None:
        """An operator calls back some of what was deleted, where its bytes are there yet."""
        deleted = [row for row in self.world.view().rows if row.state is FileState.DELETED]
        rows = {row.physical: row for row in self.chance.sample(deleted, min(2, len(deleted)))}
        back = [rows[each] for each in self.host.undelete([*rows])]
        self.given_up -= self.contents(back)
        self._note("called back", [row.path for row in back])

    # -- what is merged --------------------------------------------------------------------

    def _noticed(self) -> list[Any]:
        gone = super()._noticed()
        for file in gone:
            self.freed.add(file.md5)
        return gone

    def _finals(self, before: Points) -> None:
        with self.host.reading() as state:
            for row in state.files.values():
                maker = state.compacted_table.finals.maker(row.physical)
                if row.state in THERE and maker is not None and row.md5 not in self.inside:
                    made_of = [state.files[each] for each in maker.inputs if each in state.files]
                    assert len(made_of) == len(maker.inputs)
                    self.inside[row.md5] = self.contents(made_of)
        super()._finals(before)
