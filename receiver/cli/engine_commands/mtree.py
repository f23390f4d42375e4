"""`mtree`: the schema as its tree, in the text form of Apache IoTDB's snapshots."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import click

from common.console.cli import Invocation
from common.console.json_option import JsonForm, json_option
from common.formats.mtreetext import read_tree, tree_log
from common.formats.schemaitems import encode_items
from receiver.cli.command_answers import SchemaLine
from receiver.cli.engine_commands.mlog import make_of_log, tlog_option, whole_file, write_tlog
from receiver.config import ReceiverConfig
from receiver.metadata.text.schema_dump import Slots, tree_lines
from receiver.operator.namespace.schema import whole_schema
from receiver.operator.views.wire import ImportAnswer

__all__ = ["mtree"]

_WRITTEN_OUT: Final = re.compile(r"\\(?:[nrt]|x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8})")


@click.group()
def mtree() -> None:
    """The tree of storage groups, devices and series."""


@mtree.command(
    epilog="Example: tsferry-receiver mtree dump > mtree.txt. Works without a server too. "
    "Exit codes: 0 done; 2 there is no engine; 4 the receiver refuses."
)
@tlog_option
@json_option(
    JsonForm(SchemaLine, shape="lines"),
    text="Write storage groups and series as JSON.",
)
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


@mtree.command(
    "import",
    epilog="Example: tsferry-receiver mtree import mtree.txt --tlog tlog.txt --dry-run. Works "
    "without a server too. Exit codes: 0 all of it is there now; 1 some of it is not (the output "
    "says what and why); 2 wrong usage; 4 the receiver refuses.",
)
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--tlog",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The tags and attributes that the tree refers to.",
)
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@json_option(ImportAnswer)
@click.pass_obj
def import_tree(
    invocation: Invocation[ReceiverConfig],
    file: Path,
    tlog: Path | None,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Make the storage groups and series of FILE: what `mtree dump` wrote, or an mtree.snapshot.

    Nothing is deleted. What is there with another type stays as it is. The tree does not say which
    devices share one time column: their series become plain ones, where they are not there yet.
    A name in which the dump may have written out a line break or the like is left, and named.
    """
    lines = tree_log(read_tree(whole_file(file), file.name), file.name)
    log = "".join(map(_sure, lines)).encode()
    return make_of_log(invocation.load().value, log, tlog, dry_run=dry_run, as_json=as_json)


def _sure(line: str) -> str:
    """The line, or one that is no operation where it may not be what was meant."""
    return f"not sure of the escape in {line!a}\n" if _WRITTEN_OUT.search(line) else line
