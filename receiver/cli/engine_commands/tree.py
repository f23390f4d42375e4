"""`tree`: loaded files as a tree, as it is or was."""

from __future__ import annotations

from functools import partial

import click
import msgspec

from common.console.cli import Invocation, emit_json
from common.console.json_option import json_option
from common.console.terminal import printable, size_text, table
from common.errors import TsferryError
from receiver.cli.showing import commit_time
from receiver.config import ReceiverConfig
from receiver.operator.client import OperatorClient, ask
from receiver.operator.namespace.tree import list_tree
from receiver.operator.namespace.tree_chunks import list_chunks
from receiver.operator.views.tree_views import ChunksPage, ChunkView, TreeNodeView, TreePage

__all__ = ["tree"]

_DEPTH = {"database": 0, "storage_group": 1, "partition": 2, "file": 3}
_CHUNK_HEADERS = (
    "DEVICE", "MEASUREMENT", "TYPE", "CHUNK", "OFFSET", "LENGTH", "POINTS", "FIRST", "LAST", "MIN",
    "MAX", "SUM",
)  # fmt: skip
_HEADERS = ("PATH", "FILES", "SIZE", "CREATED", "AT", "DELETED", "AT")


@click.command(
    epilog="Example: tsferry-receiver tree root.wind --at 2026-01-31T08:00:00Z. Works without a "
    "server too. Exit codes: 0 done; 2 configuration, no time, or nothing is at the path; 4 the "
    "receiver refuses, or the time is before the kept history."
)
@click.argument("path", required=False)
@click.option("--at", help="As of a commit timestamp, or a time.")
@click.option("--files", is_flag=True, help="The files too, where PATH is no partition or file.")
@json_option(TreePage)
@click.pass_obj
def tree(
    invocation: Invocation[ReceiverConfig],
    path: str | None,
    at: str | None,
    files: bool,
    as_json: bool,
) -> None:
    """Loaded files that readers see: databases, storage groups, partitions, files.

    PATH is of one of them, as it is shown here; of a partition, and of a file, the files are shown,
    and of a file the chunks of its series: where each lies, and its statistics.
    Each has the commit since which it is there, and the one since which it is not, if that came
    after the moment that is asked for.
    """
    config = invocation.load().value
    found = _page(config, path=path, at=at)
    if files or (path is not None and "/" in path):
        found = _with_files(config, found, path)
    is_file = any(each.kind == "file" and each.path == path for each in found.nodes)
    if path is not None and is_file:
        found = _with_chunks(config, found, path)
    if as_json:
        emit_json(found)
        return
    rows = [_row(each) for each in found.nodes]
    click.echo(f"as of commit {found.commit}, {commit_time(found.commit, found.commit_at)}")
    click.echo(table(_HEADERS, rows) if rows else "no files")
    if found.no_chunks is not None:
        click.echo(f"no chunks: {printable(found.no_chunks)}")
    elif is_file:
        click.echo(table(_CHUNK_HEADERS, [_chunk_row(each) for each in found.chunks]))


def _page(
    config: ReceiverConfig,
    *,
    path: str | None,
    at: str | None,
    files: bool = False,
    after: str | None = None,
) -> TreePage:
    query = {"path": path, "at": at, "after": after, "files": "true" if files else None}

    def of(server: OperatorClient) -> TreePage:
        return server.ask("GET", "/v1/tree", TreePage, query=query)

    return ask(
        config, of, lambda there: list_tree(there, path=path, at=at, files=files, after=after)
    )


def _with_files(config: ReceiverConfig, found: TreePage, path: str | None) -> TreePage:
    """The same with each file behind its partition, as of the same commit."""
    within: dict[str, list[TreeNodeView]] = {}
    after: str | None = None
    while True:
        page = _page(config, path=path, at=str(found.commit), files=True, after=after)
        for each in page.nodes:
            within.setdefault(each.parent, []).append(each)
        if page.next is None:
            break
        after = page.next
    nodes = []
    for each in found.nodes:
        nodes.append(each)
        if each.kind == "partition":
            nodes += within.get(each.path, [])
    return msgspec.structs.replace(found, nodes=nodes)


def _with_chunks(config: ReceiverConfig, found: TreePage, path: str) -> TreePage:
    """The same with the chunks of a file, whose bytes may have gone since, or be out of reach."""
    try:
        return msgspec.structs.replace(found, chunks=tuple(_chunks(config, path, found.commit)))
    except TsferryError as error:
        return msgspec.structs.replace(found, no_chunks=error.message)


def _chunks(config: ReceiverConfig, path: str, commit: int) -> list[ChunkView]:
    """All chunks of a file, as of the commit that the rest of the answer is as of."""
    found: list[ChunkView] = []
    after: str | None = None
    while True:
        query = {"path": path, "at": str(commit), "after": after}
        page = ask(
            config,
            partial(_ask_chunks, query),
            partial(list_chunks, path=path, at=str(commit), after=after),
        )
        found += page.chunks
        if page.next is None:
            return found
        after = page.next


def _ask_chunks(query: dict[str, str | None], server: OperatorClient) -> ChunksPage:
    return server.ask("GET", "/v1/tree/chunks", ChunksPage, query=query)


def _chunk_row(each: ChunkView) -> tuple[object, ...]:
    measured = (each.count, each.start_time, each.end_time, each.minimum, each.maximum, each.sum)
    return (
        printable(each.device),
        printable(each.measurement) or "time",
        each.data_type,
        each.chunk,
        each.offset,
        each.length,
        *("-" if one is None else printable(str(one)) for one in measured),
    )


def _row(each: TreeNodeView) -> tuple[object, ...]:
    return (
        "  " * _DEPTH[each.kind] + printable(each.path),
        each.files,
        size_text(each.size),
        each.created,
        commit_time(each.created, each.created_at),
        each.deleted or "-",
        commit_time(each.deleted, each.deleted_at),
    )
