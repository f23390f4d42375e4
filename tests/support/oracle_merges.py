"""Histories at a centre that merges files: whatever is merged, no answer is another one.

The judge does not know of merged files: what readers get of these must be what it works out of the
files that they were made of, and what readers get who read those.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from common.errors import TsferryError
from receiver.metadata.sql.executing import execute
from receiver.operator.stored.retired import drop_retired
from tests.support.edge_shapes import ROW, SERIES, SPAN, Points
from tests.support.oracle import difference
from tests.support.oracle_few_values import FewValuesPlay
from tests.support.oracle_host import InProcess, Killable
from tests.support.oracle_play import Play, WrongAnswer
from tests.support.oracle_transfers import TransferLife, TransferPlay

if TYPE_CHECKING:
    _Play = Play
else:
    _Play = object

_MERGE = 8.0
"""How often it merges: as often as there is a whole round."""
_DEADLY = {"deadly_merge": 6.0, "rot": 0.3, "exchange": 0.15}
"""What nobody can read is not merged, nor what two boxes had."""
OPERATED = {"drop": 4.0, "alter": 4.0}
"""What an operator does meanwhile, where the receiver is in this process."""
FINAL = {"fade": 4.0, "final": 3.0}
"""What an edge frees for good, and what is read in its place from then on."""
FINAL_DEATHS = FINAL | {"deadly_final": 4.0}
"""The same where the receiver dies meanwhile."""
_CENTURY = 100 * 365 * 86_400_000
"""Milliseconds: no point of a history is as old."""


class _Merges(_Play):
    """What a history has besides.

    Attributes:
        merged: how many merges readers read when it was looked at, summed up.
        finals: how many took the place of what they were made of.
        more: weights of what happens besides.
    """

    merged = finals = 0
    more: ClassVar[dict[str, float]] = {}

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.weights = self.weights | {"merge": _MERGE} | self.more
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

    def _fade(self, dies_in: int = 0) -> None:
        """All is closed and freed, before or behind its merge; the edge goes on at later times.

        The receiver may die at that crash point of making it final; then that is done once more.
        """
        for file in self.database.opened():
            self.database.close(file)
        self._whole_round()
        if self.chance.random() < 0.5:
            self._merge()
        closed = [each.path(self.database.group) for each in self.database.closed()]
        if not closed or self._is_rotten():
            return
        self.world.free(closed)
        gone = self._noticed()
        self._note("fade", [(f.partition, f.name) for f in gone])
        if gone and self.world.mode == "all":
            raise WrongAnswer("a mirror frees", gone)
        self.head = (self.head // SPAN + 1) * SPAN
        for _ in range(2):
            self.head += 1
            self._note("write", SERIES[0], self.head, self.database.write(SERIES[0], self.head))
            for file in self.database.opened():
                self.database.close(file)
            self._whole_round()
        self._prove()
        self._merge()
        if dies_in:
            self._deadly_final(dies_in)
            self._prove()
        self._final()

    def _final(self) -> None:
        """Merged files take the place of what is gone, and no answer is another one."""
        before = self.world.answer()
        made = self.world.host.make_final()
        self._note("final", made)
        self._finals(before)

    def _deadly_final(self, points: int = 0) -> None:
        """The receiver dies while they do, or behind it."""
        host, before = self.world.host, self.world.answer()
        assert isinstance(host, Killable)
        points = points or self.chance.randint(1, 8)
        host.dies_in(points)
        made = host.make_final()
        died = not host.outlives()
        self._note("deadly final", points, made, died)
        if died:
            self._revive()  # type: ignore[attr-defined]
        self._finals(before)

    def _finals(self, before: Points) -> None:
        """What is merged for good has what was given of its inputs, neither more nor less."""
        view = self.world.view()
        with self.world.host.reading() as state:
            found = {
                row.physical: maker.inputs
                for row in view.rows
                if (maker := state.compacted_table.finals.maker(row.physical)) is not None
                and row.md5 not in view.contents
            }
        self.finals += len(found)
        view.learn(found)
        if (now := view.answer()) != before:
            raise WrongAnswer("what is merged for good changed an answer", difference(now, before))
        self._same()

    def _alter(self) -> None:
        """Tags, attributes and a TTL that nothing is past are no matter of what is read."""
        engine, shape = self._in_process().node.engine, self.database.shape
        number = self.chance.randint(1, 9)
        said = [f"set ttl to root.e {_CENTURY}", "unset ttl to root.e"]
        with self.world.host.reading() as state:
            known = [shape.path(each) for each in SERIES if str(shape.device(each)) in state.owners]
        for path in known:
            said.append(f"alter timeseries {path} upsert tags(t{number} = '{number}')")
            said.append(f"alter timeseries {path} upsert attributes(a{number} = '{number}')")
        statement = self.chance.choice(said)
        before = self.world.answer()
        try:
            execute(engine, statement)
        except TsferryError as error:  # there is no such series yet
            self._note("alter", statement, error.message)
            return
        self._note("alter", statement)
        if self.world.answer() != before:
            raise WrongAnswer("what was altered is no point", statement)
        self._same()

    def _drop(self) -> None:
        """An operator gives up a retired file: what it alone gave is gone, and nothing else."""
        view = self.world.view()
        retired = [row for row in view.visible if row.retired]
        if not retired:
            return
        row, before = self.chance.choice(retired), view.answer()
        drop_retired(self._in_process().node.operator, row.physical)
        now = self.world.view().answer()
        changed = {key for key in before if before[key] != now.get(key)}
        self._note("drop", row.path, sorted(changed))
        if not changed <= view.points(row).keys() or now.keys() - before.keys():
            raise WrongAnswer("a dropped file took others along", row.path, changed)
        for kept in (self.before, self.given):
            for key in changed & kept.keys():
                if key in now:
                    kept[key] = min(kept[key], now[key])
                else:
                    del kept[key]
        self._same()

    def _in_process(self) -> InProcess:
        host = self.world.host
        assert isinstance(host, InProcess)
        return host

    def _weak(self) -> None:
        super()._weak()
        self._same()

    def _same(self) -> None:
        """Readers of merged files get what those get who read what these were made of."""
        with self.world.host.reading() as state:
            held = len(list(state.compacted_table.holding()))
        if not (held or self.finals) or self._is_rotten():
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


def merging(kind: type[Play], **more: float) -> type[Any]:
    """The same kind of history at a centre that merges files.

    Args:
        kind: of history.
        more: weights of what happens besides: see `OPERATED`.
    """
    return type(f"Merging{kind.__name__}", (_Merges, kind), {"more": more})


class MergingTransferLife(TransferLife):
    """Two edges whose devices go from one to the other, at a centre that merges their files."""

    kind = merging(TransferPlay)
