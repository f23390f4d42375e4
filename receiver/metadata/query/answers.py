"""Answers to questions, page by page, all of them as of one commit.

    answer = Answer(engine, ShowTimeseries(pattern=parse_pattern("root.sg.**")))
    while rows := answer.fetch(1000): ...

However long it takes, what is committed meanwhile changes nothing in an answer. It holds no lock
and no rows between pages; once the kept history begins behind its commit, it ends with
`HistoryGoneError`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from receiver.metadata.query import (
    background_tasks,
    nodes,
    seen_cache_slots,
    seen_files,
    seen_nodes,
    seen_tables,
    timeseries,
)
from receiver.metadata.query import questions as ask
from receiver.metadata.query.row_source import STEP, Answering, Look, Row, RowSource

__all__ = ["Answer", "AnswerPlace"]

_SOURCES: Final[dict[type, RowSource]] = {
    ask.ShowTimeseries: timeseries.SHOW_TIMESERIES,
    ask.ShowDevices: nodes.SHOW_DEVICES,
    ask.ShowChildPaths: nodes.SHOW_CHILD_PATHS,
    ask.ShowChildNodes: nodes.SHOW_CHILD_NODES,
    ask.ShowStorageGroups: nodes.SHOW_STORAGE_GROUPS,
    ask.ShowTtl: nodes.SHOW_TTL,
    ask.ShowUpload: nodes.SHOW_UPLOAD,
    ask.ShowFiles: seen_files.SHOW_FILES,
    ask.ShowPartitions: seen_files.SHOW_PARTITIONS,
    ask.ShowTables: seen_tables.SHOW_TABLES,
    ask.ShowTablets: seen_tables.SHOW_TABLETS,
    ask.ShowStorageNodes: seen_nodes.SHOW_NODES,
    ask.ShowCacheSlots: seen_cache_slots.SHOW_CACHE_SLOTS,
    ask.ShowTasks: background_tasks.SHOW_TASKS,
    ask.ShowTagKeys: nodes.SHOW_TAG_KEYS,
    ask.ShowTagValues: nodes.SHOW_TAG_VALUES,
    ask.CountTimeseries: timeseries.COUNT_TIMESERIES,
    ask.CountDevices: nodes.COUNT_DEVICES,
    ask.CountStorageGroups: nodes.COUNT_STORAGE_GROUPS,
    ask.CountNodes: nodes.COUNT_NODES,
}
"""By the class of the question."""


@dataclass(frozen=True, slots=True)
class AnswerPlace:
    """Where an answer goes on; small, and valid as long as its commit can be asked about.

    Attributes:
        position: of the source.
        skip: rows that are still to be left out.
        left: rows that may still be given; None for any number.
        ended: whether there is nothing behind it.
    """

    position: Any = None
    skip: int = 0
    left: int | None = None
    ended: bool = False


class Answer:
    """The answer to a question, as of the commit that was the newest when it was put, or is said.

    Attributes:
        query: the question.
        ts: the commit that it is about.
        columns: names of the members of a row.
        place: where the next page begins; may be set back to a place that it was at.
    """

    def __init__(self, engine: Answering, query: ask.Query, *, at: ask.At = None) -> None:
        """Put a question.

        Args:
            engine: that answers.
            query: the question.
            at: as of when, where the question does not say.

        Raises:
            HistoryGoneError: the time is before the kept history.
        """
        self.query = query
        self.columns = _columns_of(query)
        self.ts = engine.at(at if query.at is None else query.at)
        limit = query.limit if isinstance(query, ask.Listed) else None
        skip = query.offset if isinstance(query, ask.Listed) else 0
        self.place = AnswerPlace(None, skip, limit, limit == 0)
        self._engine = engine
        self._look = Look(engine, self.ts)
        self._source = _SOURCES[type(query)]

    def fetch(self, count: int) -> list[Row]:
        """The next rows, at most `count`; none at the end.

        Raises:
            HistoryGoneError: history does not reach back to `ts` any more.
            NotATagError: the condition is on no tag.
        """
        rows: list[Row] = []
        while not self.place.ended and len(rows) < count:
            place = self.place
            wanted = place.skip or count - len(rows)
            if place.left is not None and not place.skip:
                wanted = min(wanted, place.left)
            if self._source.step is not None:
                wanted = min(wanted, self._source.step)
            taken = self._source.take(self._look, self.query, place.position, wanted)
            if taken.rows and not place.skip:
                with self._look as (state, at):
                    described = self._source.describe(state, taken.rows, at)
                show = self._source.show
                rows += [show(row, self._labels) for row in described]
            self.place = _behind(place, len(taken.rows), taken.position, more=taken.more)
        return rows

    def __iter__(self) -> Iterator[Row]:
        while rows := self.fetch(self._source.step or STEP):
            yield from rows

    def _labels(self, offset: int) -> tuple[dict[str, str], dict[str, str]]:
        return ({}, {}) if offset < 0 else self._engine.tags_of(offset)


def _behind(place: AnswerPlace, got: int, position: Any, *, more: bool) -> AnswerPlace:
    if place.skip:
        return AnswerPlace(position, place.skip - got, place.left, not more)
    left = None if place.left is None else place.left - got
    return AnswerPlace(position, 0, left, not more or left == 0)


def _columns_of(query: ask.Query) -> tuple[str, ...]:
    """Names of the members of a row of the answer."""
    columns = _SOURCES[type(query)].columns
    if isinstance(query, ask.CountTimeseries) and query.level is None:
        return columns[1:]
    return columns
