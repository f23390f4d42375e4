"""What SQL on the command line is put to: the server that runs, or the directories of none."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from common.console.progress_bar import WorkProgress
from common.errors import TsferryError, UnreachableError, UsageError
from receiver.operator.client import NotRunningError, OperatorClient, segment
from receiver.web.sql_wire import SqlAnswer, SqlRequest
from receiver.web.txn_client import TxnClient

if TYPE_CHECKING:
    from receiver.config import ReceiverConfig
    from receiver.metadata.model.true_times import TrueTimes

__all__ = ["SqlReply", "SqlRow", "SqlSource"]

SqlRow = Sequence[Any]
_LOAD_WAIT: Final = 1.0
"""Seconds that the server waits with the answer of a load: then it is shown how far it is."""


@dataclass(frozen=True)
class SqlReply:
    """What a statement gave.

    Attributes:
        columns: of the rows; none for a statement that asks nothing.
        message: what was done, of one that does something.
        commit: that holds it, or that the answer is as of; 0 for none yet, in a transaction.
        pages: of the answer, fetched as they are taken; close it to have the rest forgotten.
        times: which times commits stand for.
        offline: whether it comes from the directories.
        code: that a command ends with: not 0 if a file was not loaded.
    """

    columns: Sequence[str]
    message: str | None
    commit: int
    pages: Generator[Sequence[SqlRow], None, None]
    times: TrueTimes
    offline: bool = False
    code: int = 0


class SqlSource:
    """Takes statements; finds out anew for each whether a server runs.

    The connection goes on from one to the next: a script has thousands. All are one session.

    Args:
        config: of the receiver.
        quiet: show nothing of how far a load is.
    """

    def __init__(self, config: ReceiverConfig, *, quiet: bool = False) -> None:
        self._config = config
        self._quiet = quiet
        self._kept: OperatorClient | None = None
        self._session = TxnClient(self._server)

    @property
    def txn(self) -> str | None:
        """The transaction that the session is in, None for none."""
        return self._session.txn

    def close(self) -> None:
        """The session's end: what is not committed is rolled back."""
        self._session.close()

    def run(self, statement: str, at: int | str | None = None, size: int | None = None) -> SqlReply:
        """Carry a statement out.

        Args:
            statement: one.
            at: as of when it asks, where it does not say.
            size: rows of a page.

        Raises:
            NotRunningError: no server runs, and the statement is not one that only asks.
            UsageError: it is no Unicode text.
            TsferryError: as it was refused.
        """
        try:
            f"{statement}{at}".encode()
        except UnicodeEncodeError as error:
            raise UsageError("the statement is no UTF-8 text") from error
        within = self.txn
        try:
            with _told_what_may_remain(statement):
                first = self._session.run(statement, at, size, _LOAD_WAIT)
            server = self._server()
            if first.load is not None:
                return self._load_goes_on(server, first, first.load)
        except NotRunningError as not_running:
            if within is not None:
                raise
            request = SqlRequest(statement=statement, at=at, fetch_size=size)
            return _from_directories(self._config, request, not_running)
        from receiver.metadata.model.true_times import TrueTimes

        pages = _pages(server, first)
        times = TrueTimes(first.clock)
        code = _code(first.columns, first.rows)
        return SqlReply(first.columns, first.message, first.commit, pages, times, code=code)

    def _load_goes_on(self, server: OperatorClient, first: SqlAnswer, task: str) -> SqlReply:
        from receiver.cli.awaited_load import await_load
        from receiver.metadata.model.true_times import TrueTimes
        from receiver.operator.sql_loads import loaded_by_sql

        answer = await_load(server, task, None, WorkProgress(quiet=self._quiet))
        columns, rows, message, _ = loaded_by_sql(answer)
        pages: Generator[Sequence[SqlRow], None, None] = (page for page in [rows])
        times, code = TrueTimes(first.clock), _code(columns, rows)
        return SqlReply(columns, message, first.commit, pages, times, code=code)

    def _server(self) -> OperatorClient:
        # One that was started anew has another address and another token.
        server = self._kept
        if server is None or not server.is_connected:
            server = self._kept = OperatorClient(self._config, keep=True)
        return server


@contextmanager
def _told_what_may_remain(statement: str) -> Iterator[None]:
    """Say of a load that was let go of before its id came back where it is to be seen."""
    try:
        yield
    except (KeyboardInterrupt, UnreachableError) as error:
        if not isinstance(error, NotRunningError) and _loads(statement):
            said = "a load that was handed over goes on at the receiver: tsferry-receiver status"
            click.echo(f"{said} has it, and tsferry-receiver tasks cancel ends it", err=True)
        raise


def _loads(statement: str) -> bool:
    from receiver.metadata.sql.parser import parse
    from receiver.metadata.sql.statements import LoadFiles

    try:
        return isinstance(parse(statement), LoadFiles)
    except TsferryError:
        return False


def _code(columns: Sequence[str], rows: Sequence[SqlRow]) -> int:
    """What a command ends with: a load loads all of its files, or none."""
    from receiver.operator.sql_loads import LOAD_COLUMNS

    if tuple(columns) != LOAD_COLUMNS:
        return 0
    from receiver.cli.awaited_load import exit_code_of

    return exit_code_of(row[0] for row in rows)


def _pages(server: OperatorClient, answer: SqlAnswer) -> Generator[Sequence[SqlRow], None, None]:
    cursor: str | None = None
    try:
        while True:
            cursor = answer.next
            yield answer.rows
            if cursor is None:
                return
            answer = server.ask("GET", f"/v1/sql/{segment(cursor)}", SqlAnswer)
    except GeneratorExit:
        if cursor is not None:
            _forget(server, cursor)
        raise


def _forget(server: OperatorClient, cursor: str) -> None:
    try:
        server.tell("DELETE", f"/v1/sql/{segment(cursor)}")
    except TsferryError:  # it forgets by itself, after a while
        return


def _from_directories(
    config: ReceiverConfig, request: SqlRequest, not_running: NotRunningError
) -> SqlReply:
    from receiver.metadata.sql.executing import execute, moment
    from receiver.metadata.sql.parser import parse
    from receiver.metadata.sql.statements import is_query
    from receiver.open_engine import options_of, read_told

    statement = parse(request.statement)
    if not is_query(statement):
        raise not_running
    options = options_of(config)
    engine = read_told(config, options=options)
    result = execute(engine, statement, at=moment(request.at))
    size = request.fetch_size or engine.options.fetch_size

    def pages() -> Generator[Sequence[SqlRow], None, None]:
        with engine:
            while rows := result.fetch(size):
                yield rows

    columns, times = result.columns, engine.times
    return SqlReply(columns, result.message, result.commit, pages(), times, offline=True)
