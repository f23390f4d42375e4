"""Carries statements out.

    for row in execute(engine, "show timeseries root.sg.** where unit = c"): ...

What a statement changes is one commit; what it asks is answered as of one commit, in pages
(`receiver.metadata.query`).
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, Protocol

from common.config.upload_rules import upload_text
from common.errors import UsageError
from common.text_numbers import whole_number
from receiver.metadata.query.answers import Answer
from receiver.metadata.query.questions import At, Query, ShowUpload
from receiver.metadata.query.row_source import Answering, Row
from receiver.metadata.sql import statements as sql
from receiver.metadata.sql.parser import parse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from receiver.metadata.commit.group_deletion import GroupsDeleted
    from receiver.metadata.commit.operations import Described
    from receiver.metadata.model.alterations import Alteration
    from receiver.metadata.model.paths import Nodes, Pattern

__all__ = ["DELETES_HELD_FROM", "SqlTarget", "StatementResult", "execute", "moment"]

DELETES_HELD_FROM: Final = 10
"""Loaded files that go with their storage group only if somebody names their list."""


class SqlTarget(Answering, Protocol):
    """What statements are put to: an engine (`Engine` says more), or a transaction over one."""

    @property
    def newest_commit(self) -> int:
        """Timestamp of the newest commit."""

    def answering(self, query: Query, at: At) -> Answering:
        """What answers a question, about a time where it says none itself."""

    def checkpoint(self) -> int:
        """Take a checkpoint."""

    def set_storage_group(self, *paths: str | Nodes) -> int:
        """New storage groups."""

    def drop_storage_groups(
        self,
        *patterns: str | Pattern,
        with_data: bool = False,
        held_from: int | None = None,
        allowed: str | None = None,
    ) -> GroupsDeleted:
        """Storage groups go."""

    def create_device(
        self, device: str | Nodes, series: Sequence[Described], *, aligned: bool = False
    ) -> int:
        """New series of a device."""

    def delete_series(self, *patterns: str | Pattern) -> int:
        """Series go."""

    def set_ttl(self, path: str | Nodes, ttl: int | None) -> int:
        """How long files are kept."""

    def set_upload(self, path: str | Nodes, after: int | None) -> int:
        """When files are uploaded."""

    def alter(self, path: str | Nodes, alteration: Alteration) -> int:
        """Alter a series."""


class StatementResult:
    """What a statement gave.

    Attributes:
        statement: as it was understood.
        columns: names of the members of a row; none for a statement that asks nothing.
        message: what was done, of one that does something.
        commit: that holds it, or that the answer is as of; 0 in a transaction, whose own commit
            holds what it does.
        answer: of a statement that asks an engine.
    """

    def __init__(
        self,
        statement: sql.Statement,
        commit: int,
        message: str | None = None,
        answer: Answer | None = None,
        size: int = 1,
        listed: tuple[tuple[str, ...], list[Row]] | None = None,
    ) -> None:
        self.statement = statement
        self._rows: list[Row] = []
        self.columns: tuple[str, ...] = () if answer is None else answer.columns
        if listed is not None:
            self.columns, self._rows = listed
        self.message = message
        self.commit = commit
        self.answer = answer
        self._size = size

    def fetch(self, count: int | None = None) -> list[Row]:
        """The next rows: at most `count`, or the fetch size; none at the end.

        Raises:
            HistoryGoneError: history does not reach back to `commit` any more.
            NotATagError: the condition is on no tag.
            UsageError: `count` is below 1.
        """
        _check_size("count", count)
        if self.answer is None:
            rows, self._rows = self._rows, []
            return rows
        return self.answer.fetch(self._size if count is None else count)

    def __iter__(self) -> Iterator[Row]:
        while rows := self.fetch():
            yield from rows


def _check_size(what: str, size: int | None) -> None:
    if size is not None and size < 1:
        raise UsageError(f"{what}: expected a number from 1 up, not {size}")


def execute(
    engine: SqlTarget,
    statement: str | sql.Statement,
    *,
    at: At | str = None,
    fetch_size: int | None = None,
    held_from: int | None = DELETES_HELD_FROM,
) -> StatementResult:
    """Carry out one statement.

    Args:
        engine: that it is put to.
        statement: its text, or what `parse` made of it.
        at: as of when it asks, where it does not say: a commit timestamp, a moment, or the text of
            either.
        fetch_size: rows of a page of `StatementResult.fetch`.
        held_from: so many loaded files go with their storage group only by the digest of their
            list; None: any number does.

    Raises:
        SqlError: the text is no statement; paths, types, encodings and compressions have errors of
            their own, with the line and column too.
        UsageError: `at` is no time, or stands with a statement that changes something; or there
            would be no rows in a page.
        HistoryGoneError: the time is before the kept history.
        TsferryError: a rule refuses what it would change (`metadata.commit.judging.rules`).
    """
    _check_size("fetch_size", fetch_size)
    if isinstance(statement, str):
        statement = parse(statement)
    if isinstance(statement, ShowUpload) and (at, statement.at) != (None, None):
        raise UsageError("when files are uploaded has no past: `show upload` is as it is now")
    if sql.is_query(statement):
        when = moment(at)
        answer = Answer(engine.answering(statement, when), statement, at=when)
        size = fetch_size or engine.options.fetch_size
        return StatementResult(statement, answer.ts, answer=answer, size=size)
    if isinstance(statement, sql.TxnStatement):
        raise UsageError("transactions are of a session: of the shell, a script, or over HTTP")
    if isinstance(statement, sql.OfReceiver):
        raise UsageError(
            "files are loaded, and tables made, by a receiver that runs: in its shell, or over HTTP"
        )
    if at is not None:
        raise UsageError("the past cannot be changed: `at` is for show and count")
    if isinstance(statement, sql.DeleteStorageGroups):
        commit, message = _delete_groups(engine, statement, held_from)
        return StatementResult(statement, commit, message)
    do = _DO.get(type(statement))
    if do is None:
        raise TypeError(f"expected a statement or its text, not {type(statement).__name__}")
    commit, message = do(engine, statement)
    return StatementResult(statement, commit, message)


def moment(text: At | str) -> At:
    """`at` as a command line or a request has it.

    Raises:
        UsageError: it is neither a commit timestamp nor a time.
    """
    if isinstance(text, datetime.datetime):
        text = text.isoformat()
    if text is None or isinstance(text, int):
        if text is not None and text < 0:
            raise UsageError(f"at: {text} is no commit timestamp")
        return text
    if not isinstance(text, str):
        raise TypeError(f"at: expected a time or the timestamp of a commit, not {text!r}")
    number = whole_number(text)
    if number is not None:
        return number
    try:
        return datetime.datetime.fromisoformat(text).astimezone(datetime.UTC)
    except (ValueError, OverflowError, OSError):
        raise UsageError(
            f"at: {text[:40]!r} is no time; expected 2026-01-31T08:00:00Z, or the timestamp of a "
            "commit"
        ) from None


# -- what changes the schema -----------------------------------------------------------------------


def _create_snapshot(engine: SqlTarget, _: sql.CreateSnapshot) -> tuple[int, str]:
    engine.checkpoint()
    return engine.newest_commit, "checkpoint taken"


def _set_groups(engine: SqlTarget, each: sql.SetStorageGroups) -> tuple[int, str]:
    return engine.set_storage_group(*each.paths), _counted(len(each.paths), "storage group", "set")


def _delete_groups(
    engine: SqlTarget, each: sql.DeleteStorageGroups, held_from: int | None
) -> tuple[int, str]:
    done = engine.drop_storage_groups(
        *each.patterns, with_data=each.with_data, held_from=held_from, allowed=each.allowed
    )
    said = ["storage groups deleted"]
    if done.files:
        said.append(f"with {_counted(done.files, 'loaded file', f'of {done.size} bytes')}")
    said += [f"{path} had a TTL of {ttl} ms" for path, ttl in done.ttls.items()]
    return done.commit, "; ".join(said)


def _create(engine: SqlTarget, each: sql.CreateTimeseries) -> tuple[int, str]:
    return engine.create_device(each.device, [each.series]), "1 timeseries created"


def _create_aligned(engine: SqlTarget, each: sql.CreateAligned) -> tuple[int, str]:
    commit = engine.create_device(each.device, each.series, aligned=True)
    return commit, f"{len(each.series)} timeseries created"


def _delete(engine: SqlTarget, each: sql.DeleteTimeseries) -> tuple[int, str]:
    return engine.delete_series(*each.patterns), "timeseries deleted"


def _set_ttl(engine: SqlTarget, each: sql.SetTtl) -> tuple[int, str]:
    said = "TTL taken away" if each.ttl is None else f"TTL set to {each.ttl} ms"
    return engine.set_ttl(each.path, each.ttl), said


def _set_upload(engine: SqlTarget, each: sql.SetUpload) -> tuple[int, str]:
    when = "as it is configured"
    if each.after is not None:
        when = upload_text(math.inf if each.after < 0 else each.after / 1000)
    return engine.set_upload(each.path, each.after), f"files are uploaded: {when}"


def _alter(engine: SqlTarget, each: sql.AlterTimeseries) -> tuple[int, str]:
    before = engine.newest_commit
    commit = engine.alter(each.path, each.alteration)
    return commit, "timeseries altered" if commit > before else "nothing to alter"


def _counted(count: int, what: str, done: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'} {done}"


_DO: dict[type, Callable[[SqlTarget, Any], tuple[int, str]]] = {
    sql.CreateSnapshot: _create_snapshot,
    sql.SetStorageGroups: _set_groups,
    sql.CreateTimeseries: _create,
    sql.CreateAligned: _create_aligned,
    sql.DeleteTimeseries: _delete,
    sql.SetTtl: _set_ttl,
    sql.SetUpload: _set_upload,
    sql.AlterTimeseries: _alter,
}
