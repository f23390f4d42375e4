"""`mtree`: the schema as its tree, in the text form of Apache IoTDB's snapshots."""

from __future__ import annotations

from pathlib import Path

import click

from common.cli import Invocation
from common.schemaitems import encode_items
from receiver.cli.mlog import tlog_option, write_tlog
from receiver.config import ReceiverConfig
from receiver.metadata.text.schema_dump import Slots, tree_lines
from receiver.operator.schema import whole_schema

__all__ = ["mtree"]


@click.group()
def mtree() -> None:
    """The tree of storage groups, devices and series."""


@mtree.command(
    epilog="Example: tsferry-receiver mtree dump > mtree.txt. Works without a server too. "
    "Exit codes: 0 done; 2 there is no engine; 4 the receiver refuses."
)
@tlog_option
@click.option("--json", "as_json", is_flag=True, help="Write storage groups and series as JSON.")
@click.pass_obj
def dump(invocation: Invocation[ReceiverConfig], tlog: Path | None, as_json: bool) -> None:
    """Write a line for each node, children before their parent, as in mtree.snapshot.

    0,NAME,CHILDREN; 1,NAME,TTL,CHILDREN for a storage group; 2,NAME,ALIAS,TYPE,ENCODING,
    COMPRESSION,PROPERTIES,OFFSET,CHILDREN for a series. Without --tlog the offsets are those of the
    engine's own tlog. With --json each line is an object as docs/protocol.md has it.
    """
    whole = whole_schema(invocation.load().value)
    if as_json:
        for item in whole:
            click.echo(encode_items((item,)), nl=False)
        return
    slots = Slots()
    place = slots.place if tlog is not None else lambda series: series.tags_at
    for line in tree_lines(whole, place):
        click.echo(line, nl=False)
    write_tlog(tlog, slots)
