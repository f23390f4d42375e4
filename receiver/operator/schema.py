"""Where commands about the schema as a whole get it from: a running server, or the directories."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from common.schemaitems import Group, Item, SchemaChanges, encode_items
from common.wire import BASE, SchemaFailure
from receiver.operator.client import NotRunningError, Server
from receiver.operator.wire import ImportAnswer, ImportRequest

if TYPE_CHECKING:
    from receiver.config import ReceiverConfig

__all__ = ["import_items", "whole_schema"]

_PAGE_ITEMS = 5000
_PAGE_BYTES = 1 << 20


def whole_schema(config: ReceiverConfig) -> Iterator[Item]:
    """All storage groups, then all series by path, as of one commit."""
    try:
        server = Server(config)
        page = server.ask("GET", _CHANGES, SchemaChanges)
    except NotRunningError:
        yield from _from_directories(config)
        return
    yield from page.items
    while page.next is not None:
        page = server.ask("GET", _CHANGES, SchemaChanges, query={"cursor": page.next})
        yield from page.items


_CHANGES = f"{BASE}/schema/changes"


def _from_directories(config: ReceiverConfig) -> Iterator[Item]:
    from receiver.metadata.engine import Engine
    from receiver.transfer.schemachanges import SchemaReader

    with Engine.read_only(config.schema_dir) as engine:
        yield from SchemaReader(engine).every()


def import_items(config: ReceiverConfig, items: Sequence[Item], *, dry_run: bool) -> ImportAnswer:
    """Make what is missing, in the running server or in the directories of none."""
    try:
        server = Server(config)
        return _by_server(server, items, dry_run)
    except NotRunningError:
        return _in_directories(config, items, dry_run)


def _by_server(server: Server, items: Sequence[Item], dry_run: bool) -> ImportAnswer:
    applied = changes = 0
    failed: list[SchemaFailure] = []
    # What was not really made is not there for the next page: there the groups are told again.
    groups = [each for each in items if isinstance(each, Group)] if dry_run else []
    for number, page in enumerate(_pages(items)):
        again = groups if number else []
        answer = server.ask(
            "POST",
            "/v1/schema/import",
            ImportAnswer,
            body=ImportRequest(items=[*again, *page], dry_run=dry_run),
        )
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


def _in_directories(config: ReceiverConfig, items: Sequence[Item], dry_run: bool) -> ImportAnswer:
    from receiver.load.schema.task_schema import import_items as apply
    from receiver.open_engine import open_engine

    with open_engine(config) as engine:
        done = apply(engine, items, dry_run=dry_run)
    failed = [SchemaFailure(record=record, reason=why) for record, why in done.failed]
    return ImportAnswer(applied=done.applied, changes=len(done.ops), failed=failed)
