"""Where the rows of a question come from: what each kind of question has to say for that.

A source is asked for so many rows from a position on, and gives the position behind them. Positions
are small values, and hold for as long as the questions are about one commit; so an answer of a
million rows needs no more memory than one of its pages.

Commits wait for whoever looks at the state. So a source looks in steps of some milliseconds
(`Look`) and does in between what takes longer. That costs nothing in exactness: what is there at
the commit that the question is about stays as it is, in the same row, while that can be asked about
at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from receiver.metadata.model.paths import format_path

if TYPE_CHECKING:
    from receiver.metadata.model.engine_options import EngineOptions
    from receiver.metadata.model.records import Commit
    from receiver.metadata.query.questions import At
    from receiver.metadata.state.lock import Reading
    from receiver.metadata.state.state import State

__all__ = [
    "STEP",
    "Answering",
    "LabelsAt",
    "Look",
    "Row",
    "RowSource",
    "TakenRows",
    "as_they_are",
    "same",
    "short",
    "text_of",
]

Row = tuple[Any, ...]
LabelsAt = Callable[[int], tuple[dict[str, str], dict[str, str]]]
"""Tags and attributes of a series, by their place in the tag log."""

STEP: Final = 1000
"""Rows taken under one hold of the lock: some milliseconds that commits wait at most."""

text_of: Final = lru_cache(1024)(format_path)
"""The text of a path that many rows have in common, such as a storage group's."""


class Answering(Protocol):
    """What questions need of an engine; see `receiver.metadata.engine.Engine`."""

    @property
    def options(self) -> EngineOptions:
        """What it was told when it was opened."""

    def at(self, when: At = None) -> int:
        """The timestamp that a question is about."""

    def reading(self) -> Reading:
        """The state, standing still."""

    def check_answerable(self, ts: int) -> None:
        """See that a time can be asked about."""

    def tags_of(self, offset: int) -> tuple[dict[str, str], dict[str, str]]:
        """Tags and attributes, by their place in the tlog."""

    @property
    def oldest_answerable(self) -> int:
        """The oldest time that can be asked about."""

    def log_since(self, ts: int) -> Iterator[Commit]:
        """The commits after a time."""


class Look:
    """Looks at the state as of one commit, each time for as long as `with` lasts.

    with look as (state, at):
        rows = state.schema.series.match(pattern, at)
    """

    __slots__ = ("engine", "ts")

    def __init__(self, engine: Answering, ts: int) -> None:
        self.engine = engine
        self.ts = ts

    @property
    def options(self) -> EngineOptions:
        """What the engine was told when it was opened."""
        return self.engine.options

    def __enter__(self) -> tuple[State, int | None]:
        """The state, and `at` for questions to it: None while the commit is the newest.

        Raises:
            HistoryGoneError: history does not reach back to the commit any more.
        """
        reading = self.engine.reading()
        state = reading.__enter__()
        try:
            self.engine.check_answerable(self.ts)
        except BaseException:
            reading.__exit__()
            raise
        return state, None if self.ts >= state.newest else self.ts

    def __exit__(self, *_: object) -> None:
        self.engine.reading().__exit__()


class TakenRows(NamedTuple):
    """Rows and what lies behind them.

    Attributes:
        rows: as `RowSource.describe` wants them; at most as many as were asked for.
        position: behind the last.
        more: whether to ask again from there.
    """

    rows: Sequence[Any]
    position: Any
    more: bool


@dataclass(frozen=True, slots=True)
class RowSource:
    """How a kind of question is answered.

    Attributes:
        columns: of the answer.
        take: rows from a position (None: the beginning) on.
        describe: what `show` needs of rows that are not passed over; called with the lock held.
        show: the answer's form of a row; called without the lock.
        step: rows to be asked for at once; None: it does all its work at the first, however many.
    """

    columns: tuple[str, ...]
    take: Callable[[Look, Any, Any, int], TakenRows]
    describe: Callable[[State, Sequence[Any], int | None], Sequence[Any]]
    show: Callable[[Any, LabelsAt], Row]
    step: int | None = STEP


def as_they_are(_: State, rows: Sequence[Any], __: int | None) -> Sequence[Any]:
    """`RowSource.describe` for rows that need none."""
    return rows


def same(row: Row, _: LabelsAt) -> Row:
    """`RowSource.show` for rows that have their form."""
    return row


def short(columns: tuple[str, ...], rows: Callable[[Look, Any], list[Row]]) -> RowSource:
    """A source that makes its whole answer each time: a short one, or a sum."""

    def take(look: Look, asked: Any, position: int | None, count: int) -> TakenRows:
        begin = position or 0
        found = rows(look, asked)
        taken = found[begin : begin + count]
        return TakenRows(taken, begin + len(taken), begin + count < len(found))

    return RowSource(columns, take, as_they_are, same, step=None)
