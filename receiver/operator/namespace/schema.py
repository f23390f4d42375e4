"""The schema as a whole: out, and in; of a running server, or of the directories of none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from common.console.step_progress import StepCounter, ToldProgress, untold
from common.formats.schemaitems import Group, Item, SchemaChanges, encode_items
from common.wire import BASE, SchemaFailure
from receiver.load.schema.task_schema import import_items as make_missing
from receiver.metadata.engine import Engine
from receiver.open_engine import open_engine, read_told
from receiver.operator.client import NotRunningError, OperatorClient
from receiver.operator.views.wire import ImportAnswer, ImportRequest
from receiver.transfer.schemachanges import SchemaReader

if TYPE_CHECKING:
    from receiver.config import ReceiverConfig

__all__ = ["import_into", "import_items", "whole_schema"]

_PAGE_ITEMS = 5000
_PAGE_BYTES = 1 << 20
_CHANGES = f"{BASE}/schema/changes"


def whole_schema(config: ReceiverConfig) -> Iterator[Item]:
    """All storage groups, then all series by path, as of one commit."""
    try:
        server = OperatorClient(config)
        page = server.ask("GET", _CHANGES, SchemaChanges)
    except NotRunningError:
        yield from _from_directories(config)
        return
    yield from page.items
    while page.next is not None:
        page = server.ask("GET", _CHANGES, SchemaChanges, query={"cursor": page.next})
        yield from page.items


def _from_directories(config: ReceiverConfig) -> Iterator[Item]:
    with read_told(config) as engine:
        yield from SchemaReader(engine).every()


def import_into(engine: Engine, items: Iterable[Item], *, dry_run: bool) -> ImportAnswer:
    """Make storage groups and series that are missing; nothing is deleted."""
    done = make_missing(engine, items, dry_run=dry_run)
    failed = [SchemaFailure(record=record, reason=why) for record, why in done.failed]
    return ImportAnswer(applied=done.applied, changes=len(done.ops), failed=failed)


def import_items(
    config: ReceiverConfig, items: Sequence[Item], *, dry_run: bool, told: ToldProgress = untold
) -> ImportAnswer:
    """Make what is missing, in the running server or in the directories of none."""
    try:
        return _by_server(OperatorClient(config), items, dry_run, told)
    except NotRunningError:
        with open_engine(config) as engine:
            return import_into(engine, items, dry_run=dry_run)


def _by_server(
    server: OperatorClient, items: Sequence[Item], dry_run: bool, told: ToldProgress
) -> ImportAnswer:
    applied = changes = 0
    failed: list[SchemaFailure] = []
    # What was not really made is not there for the next page: there the groups are told again.
    groups = [each for each in items if isinstance(each, Group)] if dry_run else []
    counter = StepCounter("importing", len(items), 0, told)
    for number, page in enumerate(_pages(items)):
        again = groups if number else []
        answer = server.ask(
            "POST",
            "/v1/schema/import",
            ImportAnswer,
            body=ImportRequest(items=[*again, *page], dry_run=dry_run),
        )
        counter.done(0, len(page))
        known = {each.path for each in again}
        applied += answer.applied - len(again)
        changes += answer.changes - len(again)
        failed += [each for each in answer.failed if each.record not in known]
    return ImportAnswer(applied=max(0, applied), changes=max(0, changes), failed=failed)


def _pages(items: Sequence[Item]) -> Iterator[list[Item]]:
    page: list[Item] = []
    size = 0
    for item in items:
        page.append(item)
        size += len(encode_items((item,)))
        if len(page) >= _PAGE_ITEMS or size >= _PAGE_BYTES:
            yield page
            page, size = [], 0
    if page:
        yield page
