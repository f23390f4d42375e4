"""Histories at a centre that merges files: whatever is merged, no answer is another one.

The judge does not know of merged files: what readers get of these must be what it works out of the
files that they were made of, and what readers get who read those.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.support.edge_shapes import ROW
from tests.support.oracle import difference
from tests.support.oracle_few_values import FewValuesPlay
from tests.support.oracle_host import Killable
from tests.support.oracle_play import Play, WrongAnswer

if TYPE_CHECKING:
    _Play = Play
else:
    _Play = object

_MERGE = 8.0
"""How often it merges: as often as there is a whole round."""
_DEADLY = {"deadly_merge": 6.0, "rot": 0.3, "exchange": 0.15}
"""What nobody can read is not merged, nor what two boxes had."""


class _Merges(_Play):
    """What a history has besides.

    Attributes:
        merged: how many merges readers read when it was looked at, summed up.
    """

    merged = 0

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.weights = self.weights | {"merge": _MERGE}
        if isinstance(self.world.host, Killable):
            self.weights |= _DEADLY

    def _merge(self) -> None:
        """Merge all that can be."""
        found = self.world.host.merge(self.database.group)
        self._note("merge", found)
        self._same()

    def _deadly_merge(self) -> None:
        """The receiver dies while it merges, or behind it."""
        host = self.world.host
        assert isinstance(host, Killable)
        points = self.chance.randint(1, 30)
        host.dies_in(points)
        found = host.merge(self.database.group)
        died = not host.outlives()
        self._note("deadly merge", points, found, died)
        if died:
            self._revive()  # type: ignore[attr-defined]
            host.merge(self.database.group)  # or proofs wait for the work that was cut off
        self._same()

    def _weak(self) -> None:
        super()._weak()
        self._same()

    def _same(self) -> None:
        """Readers of merged files get what those get who read what these were made of."""
        with self.world.host.reading() as state:
            held = len(list(state.compacted_table.holding()))
        if not held or self._is_rotten():
            return
        self.merged += held
        given, inputs = self.world.read(), self.world.read(compacted="false")
        if given != inputs:
            raise WrongAnswer("merged files give another answer", difference(given, inputs))
        if isinstance(self, FewValuesPlay):  # whose points are not told apart by their values
            return
        wanted = {key: value for key, value in self.world.answer().items() if key[0] != ROW}
        if given != wanted:
            raise WrongAnswer("readers of merged files get another", difference(given, wanted))


def merging(kind: type[Play]) -> type[Any]:
    """The same kind of history at a centre that merges files."""
    return type(f"Merging{kind.__name__}", (_Merges, kind), {})
