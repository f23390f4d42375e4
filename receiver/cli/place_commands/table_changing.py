"""`tables create`, `alter` and `show`: what an operator says of tables before files come."""

from __future__ import annotations

import datetime
import functools
from collections.abc import Callable
from typing import Final, TypedDict

import click

from common.config.units import format_duration, parse_duration
from common.console.cli import Invocation, emit_json
from common.console.json_option import json_option
from common.console.terminal import printable
from common.errors import UsageError
from common.text_numbers import whole_number
from receiver.config import ReceiverConfig
from receiver.operator.client import OperatorClient, segment
from receiver.operator.views.table_views import TableChange, TableRequest, TableStanding

__all__ = ["TABLE_COMMANDS"]

_CODES: Final = (
    "Exit codes: 0 done; 2 no such table, or one that cannot be; 3 not possible as things stand; "
    "4 the receiver does not run or refuses."
)


class _Asked(TypedDict):
    """What both `create` and `alter` say of tablets, as the calls take it."""

    replicas: int | None
    splits: tuple[int, ...]
    begin: int | None
    end: int | None
    every: int | None
    despite_offers: bool


def _of_tablets(command: Callable[..., None]) -> Callable[..., None]:
    """The options that say which tablets are made, handed on as one argument, `asked`."""

    @functools.wraps(command)
    def with_asked(
        *given: object,
        replicas: int | None,
        begin: str | None,
        end: str | None,
        every: str | None,
        splits: tuple[int, ...],
        despite_offers: bool,
        **others: object,
    ) -> None:
        asked = _Asked(
            replicas=replicas,
            splits=splits,
            begin=_time("--from", begin),
            end=_time("--to", end),
            every=None if every is None else round(parse_duration(every) * 1000),
            despite_offers=despite_offers,
        )
        command(*given, asked=asked, **others)

    found: Callable[..., None] = with_asked
    for option in reversed(_OPTIONS):
        found = option(found)
    return found


_OPTIONS: Final = (
    click.option("--replicas", type=int, help="Storage nodes that are to have a tablet."),
    click.option("--from", "begin", metavar="TIME", help="Tablets from this time on."),
    click.option("--to", "end", metavar="TIME", help="The last one ends at this time."),
    click.option(
        "--every",
        metavar="DURATION",
        help="The time of a tablet, such as 28d: a multiple of partition_interval.",
    ),
    click.option(
        "--split",
        "splits",
        type=int,
        multiple=True,
        help="In the place of times: the number of a partition at which a tablet begins; "
        "at the last one it ends. Several times.",
    ),
    click.option(
        "--despite-offers",
        is_flag=True,
        help="Also while nodes have tablets that are not known here.",
    ),
)


@click.command(
    epilog="Example: tsferry-receiver tables create root.wind --replicas 2 --from 2026-01-01 --to "
    f"2027-01-01 --every 28d. {_CODES}"
)
@click.argument("name")
@_of_tablets
@json_option(TableStanding)
@click.pass_obj
def create(invocation: Invocation[ReceiverConfig], name: str, asked: _Asked, as_json: bool) -> None:
    """Make the table NAME, a storage group or a database, before anything is loaded into it.

    Its tablets are placed at storage nodes at once, so that the first files can go there.
    """
    _ask(invocation, "/v1/tables", TableRequest(name=name, **asked), as_json)


@click.command(epilog=f"Example: tsferry-receiver tables alter root.wind --replicas 3. {_CODES}")
@click.argument("table_name", metavar="TABLE")
@_of_tablets
@click.option("--as-configured", is_flag=True, help="As many replicas as nodes.replicas says.")
@json_option(TableStanding)
@click.pass_obj
def alter(
    invocation: Invocation[ReceiverConfig],
    table_name: str,
    asked: _Asked,
    as_configured: bool,
    as_json: bool,
) -> None:
    """Have more or fewer storage nodes keep TABLE, or make further tablets; a name or an id."""
    if as_configured and asked["replicas"] is not None:
        raise UsageError("expected either --replicas or --as-configured")
    change = TableChange(as_configured=as_configured, **asked)
    _ask(invocation, f"/v1/tables/{segment(table_name)}", change, as_json)


@click.command(epilog=f"Example: tsferry-receiver tables show root.wind --json. {_CODES}")
@click.argument("table_name", metavar="TABLE")
@json_option(TableStanding)
@click.pass_obj
def show(invocation: Invocation[ReceiverConfig], table_name: str, as_json: bool) -> None:
    """How TABLE stands: whether its tablets are at the nodes that are to have them."""
    _ask(invocation, f"/v1/tables/{segment(table_name)}", None, as_json)


def _ask(
    invocation: Invocation[ReceiverConfig],
    path: str,
    body: TableRequest | TableChange | None,
    as_json: bool,
) -> None:
    """Have the running server change a table, or with no body tell of it; show how it stands."""
    server = OperatorClient(invocation.load().value)
    how = "GET" if body is None else "POST"
    found = server.ask(how, path, TableStanding, body=body)
    if as_json:
        emit_json(found)
        return
    click.echo(f"{printable(found.name)} ({found.id}): {found.state}")
    ttl = "for ever" if found.ttl is None else format_duration(found.ttl / 1000)
    click.echo(f"files are kept  {ttl}")
    click.echo(f"replicas        {found.replicas}")
    click.echo(
        f"tablets         {found.tablets}, {found.placed} placed, {found.running} running, "
        f"{found.short} short of nodes"
    )
    for what, nodes in (("not confirmed by", found.behind), ("known better by", found.newer)):
        if nodes:
            click.echo(f"{what} {' '.join(uuid[:8] for uuid in nodes)}")


def _time(option: str, text: str | None) -> int | None:
    """Milliseconds since the epoch."""
    if text is None:
        return None
    number = whole_number(text)
    if number is not None:
        return number
    try:
        moment = datetime.datetime.fromisoformat(text).astimezone(datetime.UTC)
    except (ValueError, OverflowError, OSError):
        raise UsageError(f"{option} {text[:40]!a}: expected a time such as 2026-01-31") from None
    return round(moment.timestamp() * 1000)


TABLE_COMMANDS: Final = (create, alter, show)
