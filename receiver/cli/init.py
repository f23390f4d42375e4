"""`init`: a configuration to start from, and its directories."""

from __future__ import annotations

from pathlib import Path

import click

from common.cli import Invocation, emit_json
from common.durable import Tree
from common.errors import UsageError
from common.terminal import printable
from receiver.cli.example import configuration
from receiver.config import ReceiverConfig

__all__ = ["init"]

_DEFAULT = "receiver.toml"


@click.command(
    epilog="Example: tsferry-receiver init --data-dir /srv/tsferry/data centre/receiver.toml. "
    "Exit codes: 0 done; 2 the file is there already."
)
@click.argument("file", type=click.Path(path_type=Path), required=False)
@click.option("--schema-dir", default="schema", show_default=True, help="Metadata engine.")
@click.option(
    "--data-dir",
    "data_dirs",
    multiple=True,
    default=("data",),
    show_default=True,
    help="Loaded files. May be repeated; relative to the file.",
)
@click.option("--json", "as_json", is_flag=True, help="Write JSON.")
@click.pass_obj
def init(
    invocation: Invocation[ReceiverConfig],
    file: Path | None,
    schema_dir: str,
    data_dirs: tuple[str, ...],
    as_json: bool,
) -> None:
    """Write a commented configuration and make its directories; nothing is overwritten.

    FILE is receiver.toml in the working directory, unless --config names another.
    """
    target = (file or invocation.file or Path(_DEFAULT)).absolute()
    with Tree(target.parent, create=True) as tree:
        try:
            with tree.create(target.name) as written:
                written.write(configuration(schema_dir, data_dirs).encode())
                written.sync()
        except FileExistsError as error:
            raise UsageError(f"{target} is there already; nothing was changed") from error
        tree.sync_dir()
    directories = [target.parent / each for each in (schema_dir, *data_dirs)]
    for each in directories:
        Tree(each, create=True).close()
    if as_json:
        emit_json({"config": str(target), "directories": [str(each) for each in directories]})
        return
    click.echo(f"wrote {printable(str(target))}")
    for each in directories:
        click.echo(f"made  {printable(str(each))}")
    click.echo(f"next: tsferry-receiver --config {printable(str(target))} serve")
