"""`tables` and `tablets`: what is loaded, cut where it can be placed."""

from __future__ import annotations

from collections.abc import Sequence

import click

from common.console.cli import Invocation, emit_json
from common.console.json_option import json_option
from common.console.terminal import printable, size_text, table
from receiver.cli.place_commands.table_changing import TABLE_COMMANDS
from receiver.cli.showing import commit_time
from receiver.config import ReceiverConfig
from receiver.operator.client import OperatorClient, ask, segment
from receiver.operator.namespace.table_lists import list_tables, list_tablets
from receiver.operator.views.table_views import PartitionGap, TablesPage, TabletsPage, TabletView

__all__ = ["tables", "tablets"]

_TABLE_HEADERS = ("TABLE", "ID", "TABLETS", "FILES", "SIZE", "FIRST", "LAST", "STATE")
_TABLET_HEADERS = ("TABLET", "BEGIN", "END", "FILES", "SIZE", "FIRST", "LAST", "NODES")
_GAPS = 20
"""Runs of partitions in no tablet that are shown."""
_at = click.option("--at", help="As of a commit timestamp, or a time.")


@click.group(
    invoke_without_command=True,
    epilog="Example: tsferry-receiver tables --at 2026-01-31T08:00:00Z. Works without a server "
    "too. Exit codes: 0 done; 2 configuration, or no time; 4 the receiver refuses, or the time is "
    "before the kept history.",
)
@_at
@json_option(TablesPage)
@click.pass_context
def tables(context: click.Context, at: str | None, as_json: bool) -> None:
    """Storage groups, and databases of the table model, that files were loaded into.

    Lists them, unless a command says otherwise.
    """
    if context.invoked_subcommand is None:
        _list_tables(context.obj, at, as_json)


for _each in TABLE_COMMANDS:
    tables.add_command(_each)


def _list_tables(invocation: Invocation[ReceiverConfig], at: str | None, as_json: bool) -> None:
    config = invocation.load().value
    found = _tables(config, at, None)
    while found.next is not None:
        page = _tables(config, str(found.commit), found.next)
        found = TablesPage(
            commit=found.commit,
            commit_at=found.commit_at,
            tables=found.tables + page.tables,
            next=page.next,
        )
    if as_json:
        emit_json(found)
        return
    rows = [
        (
            printable(each.name),
            each.id,
            each.tablets,
            each.files,
            size_text(each.size),
            _time(each.first_time),
            _time(each.last_time),
            f"dropped by {each.dropped}" if each.dropped else each.state,
        )
        for each in found.tables
    ]
    click.echo(f"as of commit {found.commit}, {commit_time(found.commit, found.commit_at)}")
    click.echo(table(_TABLE_HEADERS, rows) if rows else "no tables")


@click.command(
    epilog="Example: tsferry-receiver tablets root.wind --from 1769846400000. Works without a "
    "server too. Exit codes: 0 done; 2 configuration, no time, or there is no such table; 4 the "
    "receiver refuses, or the time is before the kept history."
)
@click.argument("table_name", metavar="TABLE")
@click.option("--from", "begin", type=int, help="Only what holds this time or later ones.")
@click.option("--to", "end", type=int, help="Only what holds times before this one.")
@_at
@json_option(TabletsPage)
@click.pass_obj
def tablets(
    invocation: Invocation[ReceiverConfig],
    table_name: str,
    begin: int | None,
    end: int | None,
    at: str | None,
    as_json: bool,
) -> None:
    """The runs of time partitions that TABLE consists of; it may be a name or an id.

    Times are in the unit of the files. A tablet is found by its partitions, and by the least and
    the greatest time of its files, which may lie outside of them.
    """
    config = invocation.load().value
    found = _tablets(config, table_name, begin, end, at, None)
    while found.next is not None:
        page = _tablets(config, found.table, begin, end, str(found.commit), found.next)
        found = TabletsPage(
            commit=found.commit,
            table=found.table,
            name=found.name,
            tablets=found.tablets + page.tablets,
            gaps=found.gaps + page.gaps,
            next=page.next,
        )
    if as_json:
        emit_json(found)
        return
    rows = [
        (
            each.id,
            each.begin,
            each.end,
            each.files,
            size_text(each.size),
            _time(each.first_time),
            _time(each.last_time),
            " ".join([*(uuid[:8] for uuid in each.nodes), *_creating(each)]),
        )
        for each in found.tablets
    ]
    click.echo(f"{printable(found.name)} ({found.table}) as of commit {found.commit}")
    click.echo(table(_TABLET_HEADERS, rows) if rows else "no tablets")
    if found.gaps:
        click.echo(f"in no tablet: {_gaps(found.gaps)}")


def _gaps(gaps: Sequence[PartitionGap]) -> str:
    shown = [
        f"{each.begin}" if each.end - each.begin == 1 else f"{each.begin} to {each.end - 1}"
        for each in gaps[:_GAPS]
    ]
    more = len(gaps) - len(shown)
    return ", ".join(shown) + (f" and {more} more runs" if more else "")


def _creating(each: TabletView) -> list[str]:
    return ["(creating)"] if each.placed == "creating" else []


def _time(time: int | None) -> str:
    return "" if time is None else str(time)


def _tables(config: ReceiverConfig, at: str | None, after: str | None) -> TablesPage:
    query = {"at": at, "after": after}

    def of(server: OperatorClient) -> TablesPage:
        return server.ask("GET", "/v1/tables", TablesPage, query=query)

    return ask(config, of, lambda there: list_tables(there, at=at, after=after))


def _tablets(
    config: ReceiverConfig,
    name: str,
    begin: int | None,
    end: int | None,
    at: str | None,
    after: str | None,
) -> TabletsPage:
    query = {"from": begin, "to": end, "at": at, "after": after}

    def of(server: OperatorClient) -> TabletsPage:
        path = f"/v1/tables/{segment(name)}/tablets"
        return server.ask("GET", path, TabletsPage, query=query)

    return ask(
        config,
        of,
        lambda there: list_tablets(there, name, begin=begin, end=end, at=at, after=after),
    )
