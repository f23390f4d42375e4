"""The step `schema` of a round: what the schema log has gained goes before the files.

It never keeps files back: what goes wrong with it is noted for `status`, and the round goes on. The
receiver's position says what is applied; nothing is believed to be that it does not say.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from common import crash, wire
from common.durable import Tree
from common.errors import (
    NoSpaceError,
    OffsetError,
    StoppedError,
    TooLargeError,
    TsferryError,
)
from sender.schema.beside import schema_files, unread_files
from sender.schema.notes import SchemaNotes
from sender.schema.standing import SchemaAhead, SchemaReport

if TYPE_CHECKING:
    from pathlib import Path

    from sender.schema.server_log import ServerLog
    from sender.schema.text_log import TextLog, TextPlan
    from sender.schema.upstream_changes import ChangesLog, ChangesPlan
    from sender.send.remote import Remote

__all__ = ["SchemaShip", "look_at_schema", "open_schema"]

_log = logging.getLogger(__name__)


@dataclass
class SchemaShip:
    """The schema of one round: decided once, shipped in its first task.

    Attributes:
        log: None where it could not be opened; there is no plan then.
        report: what came of it.
    """

    remote: Remote
    notes: SchemaNotes
    log: TextLog | ChangesLog | ServerLog | None
    plan: TextPlan | ChangesPlan | None
    limits: wire.Limits
    report: SchemaReport = field(default_factory=SchemaReport)
    _end: wire.SchemaEnd | None = None

    @property
    def due(self) -> bool:
        """Whether there is something to say, and it was not yet tried."""
        return self.plan is not None and self.report.problem is None

    @property
    def pressing(self) -> bool:
        """Whether it is worth a task without files: something changed."""
        return self.due and self.plan is not None and self.plan.size > 0

    def ship(
        self, task: str, epoch: str | None, staged: wire.SchemaStaged | None
    ) -> wire.SchemaEnd | None:
        """Send the blocks that a task brings; None if the task goes without a schema.

        Raises:
            StoppedError: told to stop.
        """
        if not self.due:
            return None
        assert self.plan is not None
        assert self.log is not None
        begin = 0
        try:
            if staged is not None:
                resumed = self.log.goes_on(self.plan, staged, self.notes)  # type: ignore[arg-type]
                if resumed is not None:
                    self.plan, begin = resumed, staged.size
            self.notes.update(shipping=self.plan.shipping)
            crash.point("schemaship.noted")
            try:
                self._send(task, epoch, begin)
            except OffsetError:
                self._send(task, epoch, 0)  # what it has is of another log by now
            self._end = self._ended()
        except StoppedError:
            raise
        except (TsferryError, OSError) as error:
            self.fail(str(error))
            return None
        crash.point("schemaship.sent")
        return self._end

    def _send(self, task: str, epoch: str | None, begin: int) -> None:
        from common.formats.schemawire import encode_schema_block

        plan = self.plan
        assert plan is not None
        assert self.log is not None
        most = min(self.remote.config.transfer.chunk_bytes, self.limits.max_chunk_bytes)
        for at, piece, slots in self.log.blocks(plan, begin, most // 2):  # type: ignore[arg-type]
            body = encode_schema_block(plan.kind, plan.identity, plan.base, at, piece, slots)
            self.remote.patiently(lambda body=body: self._block(task, epoch, body))  # type: ignore[misc]
            self.report.bytes += len(piece)
            crash.point("schemaship.block")

    def _block(self, task: str, epoch: str | None, body: bytes) -> wire.SchemaAnswer:
        """One block; a receiver without room for it is not waited for, the files are."""
        try:
            return self.remote.client.schema_block(task, epoch, body)
        except NoSpaceError as error:
            raise TooLargeError(error.message) from error

    def _ended(self) -> wire.SchemaEnd:
        plan = self.plan
        assert plan is not None
        assert self.log is not None
        return wire.SchemaEnd(
            kind=plan.kind,
            identity=plan.identity,
            base=plan.base,
            size=plan.size,
            offset=plan.offset,
            news=plan.news,
            mark=self.log.mark(plan),  # type: ignore[arg-type]
        )

    def conclude(self, position: wire.SchemaPosition | None) -> None:
        """Remember what the receiver has applied, after a task that is done."""
        end = self._end
        self.report.position = position
        problem = None
        if end is not None and (
            position is None or (position.identity, position.offset) != (end.identity, end.offset)
        ):
            problem = "the receiver did not apply it; it is sent again in the next round"
            self.report.problem = problem
        self.plan = None
        shipping = self.notes.now.shipping if problem else None
        self.notes.update(position=position, shipping=shipping, problem=problem)

    def fail(self, problem: str) -> None:
        """It cannot be shipped in this round."""
        _log.warning("%s: the schema is left: %s", self.remote.name, problem)
        self.report.problem = problem
        self.notes.update(problem=problem)


@contextmanager
def open_schema(
    remote: Remote, sync: Tree, check: wire.CheckAnswer, *, whole: bool
) -> Iterator[SchemaShip | None]:
    """What a round has to do with the schema; None if there is none, or nobody takes it.

    Args:
        remote: to the receiver.
        sync: `<schema dir>/sync`.
        check: the receiver's answer.
        whole: send all of it again.
    """
    with _opened(remote, SchemaNotes.open(sync, remote.directory), check, whole) as ship:
        yield ship


def look_at_schema(
    remote: Remote, sync: Tree, directory: str, check: wire.CheckAnswer
) -> SchemaAhead | None:
    """What a round would do with the schema, for `sync --dry-run`; nothing is noted or sent.

    Returns:
        `bytes` of the log that would travel; `whole`, why all of it would, None if it goes on;
        `problem`, why it cannot. None: there is nothing to do.
    """
    notes = SchemaNotes.open(sync, directory, keep=False)
    notes.update(problem=None)  # of an earlier round
    with _opened(remote, notes, check, whole=False) as ship:
        plan, problem = None if ship is None else ship.plan, notes.now.problem
    if (plan is None or not plan.size) and problem is None:
        return None
    return {
        "bytes": 0 if plan is None else plan.size,
        "whole": None if plan is None else plan.reason,
        "problem": problem,
    }


@contextmanager
def _opened(
    remote: Remote, notes: SchemaNotes, check: wire.CheckAnswer, whole: bool
) -> Iterator[SchemaShip | None]:
    if not check.schema:
        yield None
    elif remote.entry.source == "receiver":
        from sender.schema.upstream_changes import ChangesLog

        client = remote.source_client()
        try:
            yield _planned(remote, notes, check, ChangesLog(client), whole)
        finally:
            client.close()
    elif remote.config.schema.server is not None:
        with _server_log(remote, notes) as server_log:
            yield _planned(remote, notes, check, server_log, whole)
    else:
        with _text_log(remote, notes) as log:
            yield _planned(remote, notes, check, log, whole)


@contextmanager
def _server_log(remote: Remote, notes: SchemaNotes) -> Iterator[ServerLog | None]:
    from sender.schema.database_server import DatabaseServer
    from sender.schema.server_log import ServerLog

    config = remote.config.schema
    try:
        server = DatabaseServer(config, remote.stop)
    except TsferryError as error:
        notes.update(problem=str(error))
        yield None
        return
    try:
        yield ServerLog(server, notes, config.every)
    finally:
        server.close()


@contextmanager
def _text_log(remote: Remote, notes: SchemaNotes) -> Iterator[TextLog | None]:
    with ExitStack() as stack:
        log, problem = None, None
        try:
            if _has_log(remote.config.schema_dir):
                from sender.schema.text_log import TextLog

                log = stack.enter_context(TextLog.open(remote.config.schema_dir, notes))
        except (TsferryError, OSError) as error:
            problem = f"the schema log cannot be read: {error}"
        unread = _unread(remote.config.schema_dir) if log is None else log.unread
        notes.update(unread=unread, **({"problem": problem} if log is None else {}))
        yield log


def _has_log(schema_dir: Path) -> bool:
    with Tree(schema_dir) as tree:
        return bool(schema_files(tree))


def _unread(schema_dir: Path) -> list[str]:
    with suppress(OSError), Tree(schema_dir) as tree:
        return unread_files(tree)
    return []


def _planned(
    remote: Remote,
    notes: SchemaNotes,
    check: wire.CheckAnswer,
    log: TextLog | ChangesLog | ServerLog | None,
    whole: bool,
) -> SchemaShip | None:
    ship = SchemaShip(remote, notes, log, None, check.limits)
    applied = check.schema_position
    ship.report.position = applied
    if log is None:
        ship.report.problem = notes.now.problem  # why it could not be opened
        return None if notes.now.problem is None else ship
    try:
        ship.plan = log.plan(applied, notes, whole=whole)
    except (TsferryError, OSError) as error:
        ship.fail(str(error))
        return ship
    if ship.plan is None:
        notes.update(position=applied, shipping=None, problem=None)
    else:
        ship.report.whole = ship.plan.reason
        notes.update(position=applied)
    return ship
