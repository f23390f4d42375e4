"""`mlog`: the schema as the text log of Apache IoTDB, out and in; and the engine's own log."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec

from common.console.cli import Invocation, emit_json
from common.console.json_form import json_form
from common.console.json_option import JsonForm, json_option
from common.console.progress_line import showing_progress
from common.console.terminal import printable
from common.durable import Tree
from common.errors import EXIT_INTERNAL, NotFoundError
from common.formats.schemaitems import Item
from receiver.cli.command_answers import LoggedCommit
from receiver.config import ReceiverConfig
from receiver.metadata.text.schema_dump import Slots, log_lines, log_records
from receiver.operator.namespace.schema import import_items, whole_schema
from receiver.operator.views.wire import ImportAnswer

__all__ = ["make_of_log", "mlog", "tlog_option", "whole_file", "write_tlog"]

_SHOWN = 20
_FILE = click.Path(path_type=Path, dir_okay=False)

tlog_option = click.option(
    "--tlog", "tlog", type=_FILE, help="Write tags and attributes to this file, in slots."
)


@click.group()
def mlog() -> None:
    """The log of the schema, and schemas as text logs of Apache IoTDB."""


@mlog.command(
    epilog="Example: tsferry-receiver mlog dump --text --tlog tlog.txt > mlog.txt. Works without a "
    "server too. Exit codes: 0 done; 2 there is no engine; 4 the receiver refuses."
)
@click.option("--text", is_flag=True, help="The schema as it is now, as lines of mlog.txt.")
@tlog_option
@json_option(JsonForm(LoggedCommit, shape="lines"), text="Write JSON lines, as without --text.")
@click.pass_obj
def dump(
    invocation: Invocation[ReceiverConfig], text: bool, tlog: Path | None, as_json: bool
) -> None:
    """Write the commits that the engine's log holds, as JSON lines.

    With --text: the lines that make the schema as it is now, in the form of mlog.txt (a name that
    this cannot hold makes it the wider form of docs/formats.md). Without --tlog the offsets are
    those of the engine's own tlog.
    """
    config = invocation.load().value
    if text and as_json:
        raise click.UsageError("--text and --json are two forms")
    if not text:
        if tlog is not None:
            raise click.UsageError("--tlog goes with --text")
        for line in _commits(config):
            click.echo(line)
        return
    slots = Slots()
    place = slots.place if tlog is not None else lambda series: series.tags_at
    for line in log_lines(log_records(whole_schema(config), place)):
        click.echo(line, nl=False)
    write_tlog(tlog, slots)


def write_tlog(tlog: Path | None, slots: Slots) -> None:
    """Write the slots to a file, if one is wanted."""
    if tlog is None:
        return
    try:
        with Tree(tlog.absolute().parent) as tree:
            tree.write_atomic(tlog.name, slots.content())
    except FileNotFoundError as error:
        raise NotFoundError(f"{tlog.parent}: there is no such directory") from error


def _commits(config: ReceiverConfig) -> Iterator[str]:
    from receiver.open_engine import read_told

    with read_told(config) as engine:
        for commit in engine.log_since(engine.oldest_answerable):
            logged = LoggedCommit(ts=commit.ts, ops=list(commit.ops))
            yield json.dumps(json_form(logged), ensure_ascii=True)


@mlog.command(
    "import",
    epilog="Example: tsferry-receiver mlog import mlog.txt --tlog tlog.txt --dry-run. Works "
    "without a server too. Exit codes: 0 all of it is there now; 1 some of it is not (the output "
    "says what and why); 2 wrong usage; 4 the receiver refuses.",
)
@click.argument("file", type=_FILE)
@click.option("--tlog", type=_FILE, help="The tags and attributes that the log refers to.")
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@json_option(ImportAnswer)
@click.pass_obj
def import_log(
    invocation: Invocation[ReceiverConfig],
    file: Path,
    tlog: Path | None,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Make the storage groups and series that FILE ends with, an mlog.txt of IoTDB 0.10 or 0.11.

    The log is reduced to its end state first; nothing is deleted here. What is there with another
    type stays as it is.
    """
    return make_of_log(
        invocation.load().value, whole_file(file), tlog, dry_run=dry_run, as_json=as_json
    )


def make_of_log(
    config: ReceiverConfig, data: bytes, tlog: Path | None, *, dry_run: bool, as_json: bool
) -> int:
    """Make what a text log ends with, and tell it; the exit code."""
    items, failed, untagged = _reduced(data, tlog)
    with showing_progress(as_json) as told:
        answer = import_items(config, items, dry_run=dry_run, told=told)
    answer = msgspec.structs.replace(answer, failed=[*_failures(failed), *answer.failed])
    if as_json:
        emit_json(answer)
    else:
        _tell(answer, dry_run, untagged)
    return EXIT_INTERNAL if answer.failed else 0


def _reduced(data: bytes, tlog: Path | None) -> tuple[list[Item], list[tuple[str, str]], int]:
    from receiver.load.schema.end_state import reduce_text

    slots = None if tlog is None else _LazySlots(whole_file(tlog))
    reduced = reduce_text(data, slots, news=len(data))
    return reduced.items, reduced.failed, reduced.untagged


class _LazySlots(dict[int, memoryview]):
    """What is at an offset of a tlog."""

    def __init__(self, content: bytes) -> None:
        super().__init__()
        self._content = memoryview(content)

    def get(self, offset: int, default: Any = None) -> Any:
        """The rest of the tlog from there on: a slot says itself where it ends."""
        return self._content[offset:] if 0 <= offset < len(self._content) else default


def whole_file(file: Path) -> bytes:
    """What is in a file that the operator names."""
    try:
        with Tree(file.absolute().parent) as tree:
            return tree.read(file.name, limit=1 << 36)
    except FileNotFoundError as error:
        raise NotFoundError(f"{file}: there is no such file") from error


def _failures(failed: list[tuple[str, str]]) -> list[Any]:
    from common.wire import SchemaFailure

    return [SchemaFailure(record=record, reason=why) for record, why in failed]


def _tell(answer: ImportAnswer, dry_run: bool, untagged: int) -> None:
    would = "would be" if dry_run else "are"
    click.echo(
        f"{answer.applied} storage groups and series {would} there, "
        f"{answer.changes} operations; {len(answer.failed)} not"
    )
    if untagged:
        click.echo(f"{untagged} series have tags in a tlog: give it with --tlog")
    for each in answer.failed[:_SHOWN]:
        click.echo(printable(f"  {each.record}: {each.reason}"))
    if len(answer.failed) > _SHOWN:
        click.echo(f"  ... and {len(answer.failed) - _SHOWN} more (--json lists them all)")
