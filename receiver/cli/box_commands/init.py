"""`init`: a configuration to start from, its directories, and a systemd unit.

Directories get their markers (`receiver.datadirs.directory_markers`) when the receiver is first
started; what is lost or exchanged later is taken in by `init --adopt` alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import click

from common.console.cli import Invocation, emit_json
from common.console.examples import (
    WrittenUnit,
    configuration,
    taken_back_on_failure,
    toml,
    write_alerts,
    write_unit,
)
from common.console.json_option import json_option
from common.console.terminal import printable
from common.durable import Tree
from common.errors import NotFoundError, UsageError
from receiver.cli.command_answers import InitDone
from receiver.config import ReceiverConfig
from receiver.datadirs.directory_finding import adopt as adopt_directories
from receiver.metadata.engine import Engine
from receiver.open_engine import MADE, open_engine
from receiver.operator.edges.tokens import require_tokens

__all__ = ["init"]

_DEFAULT = "receiver.toml"
_SCHEMA, _DATA = "schema", "data"


@click.command(
    epilog="Example: tsferry-receiver init --data-dir /srv/tsferry/data centre/receiver.toml. "
    "Exit codes: 0 done; 2 the file is there already, or with --adopt, or --units alone, is not."
)
@click.argument("file", type=click.Path(path_type=Path), required=False)
@click.option(
    "--schema-dir",
    type=click.Path(path_type=Path),
    help="Metadata engine.  [default: schema, beside the file]",
)
@click.option(
    "--data-dir",
    "data_dirs",
    type=click.Path(path_type=Path),
    multiple=True,
    help="Loaded files. May be repeated.  [default: data, beside the file]",
)
@click.option("--host", help="Address to listen on.  [default: loopback]")
@click.option("--allow", multiple=True, help="Network that may connect. May be repeated.")
@click.option("--tls-cert", type=click.Path(path_type=Path), help="PEM: its certificate.")
@click.option("--tls-key", type=click.Path(path_type=Path), help="PEM: the key of that.")
@click.option(
    "--units",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Write tsferry-receiver.service there, as in /etc/systemd/system, of the configuration "
    "that is there. With options of a new one that is written too.",
)
@click.option(
    "--alerts",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Write tsferry-alerts.yml there, rules for Prometheus, as in /etc/prometheus; alone it "
    "needs no configuration.",
)
@click.option(
    "--adopt",
    is_flag=True,
    help="Take the directories of a configuration that is there as they are: new ones, empty disks "
    "in the place of lost ones, those of an engine that is lost. What was on them comes again "
    "from its senders.",
)
@json_option(InitDone)
@click.pass_obj
def init(
    invocation: Invocation[ReceiverConfig],
    file: Path | None,
    schema_dir: Path | None,
    data_dirs: tuple[Path, ...],
    host: str | None,
    allow: tuple[str, ...],
    tls_cert: Path | None,
    tls_key: Path | None,
    units: Path | None,
    alerts: Path | None,
    adopt: bool,
    as_json: bool,
) -> None:
    """Write a commented configuration and make its directories; nothing is overwritten.

    What --set says before `init` is written into a new configuration.

    With --adopt the configuration is there already, and its data directories get the marker that
    makes them this receiver's. Start a server that runs anew after that.

    FILE is receiver.toml in the working directory, unless --config names another.
    """
    target = (file or invocation.file or Path(_DEFAULT)).absolute()
    directories: list[Path] = []
    marked: list[Path] = []
    listen = _listen(host, allow, tls_cert, tls_key)
    given = bool(schema_dir or data_dirs or listen)
    only_beside = bool(units or alerts) and not given and not adopt
    if units is not None and only_beside and not target.exists():
        raise UsageError(
            f"{target} is not there, and a unit is that of a configuration: name it with --config, "
            "or write it by `tsferry-receiver init` first"
        )
    schema, data = _places(target, schema_dir, data_dirs)
    units_file = None if units is None else units / "tsferry-receiver.service"
    rules_file = None if alerts is None else alerts / "tsferry-alerts.yml"
    beside = [each for each in (units_file, rules_file) if each is not None]
    with taken_back_on_failure(target, schema, *data, *beside) as writes:
        if adopt:
            if given or not target.exists():
                raise UsageError(
                    f"--adopt takes the directories that {target} names, as it is there"
                )
            marked = _adopt(target, invocation)
        elif not only_beside:
            keys = _settings(invocation) | _keys(schema_dir, data_dirs) | listen
            directories = _begin(target, schema, data, keys, writes)
        for each in beside:
            writes(each)
        unit = None if units is None else _unit(units, target, invocation)
        rules = None if alerts is None else write_alerts(alerts)
    if as_json:
        emit_json(
            InitDone(
                config=str(target) if target.exists() else None,
                directories=[str(each) for each in directories],
                unit=None if unit is None else str(unit.file),
                unit_user=None if unit is None else unit.user,
                alerts=None if rules is None else str(rules),
                marked=[str(each) for each in marked],
            )
        )
        return
    if not only_beside and not adopt:
        click.echo(f"wrote {printable(str(target))}")
    for each in directories:
        click.echo(f"made  {printable(str(each))}")
    for each in marked:
        click.echo(f"marked {printable(str(each))}")
    if unit is not None:
        click.echo(printable(unit.line()))
    if rules is not None:
        click.echo(f"wrote {printable(str(rules))}")
    click.echo(f"next: {_next(target, unit, rules, only_beside=only_beside)}")


def _next(target: Path, unit: WrittenUnit | None, rules: Path | None, *, only_beside: bool) -> str:
    """What whoever called this does then: of a configuration that was there only what is new."""
    if unit is not None:
        return printable(f"systemctl daemon-reload && systemctl enable --now {unit.file.stem}")
    if rules is not None and only_beside:
        return printable(f"name {rules} in rule_files of prometheus.yml")
    return printable(f"tsferry-receiver --config {target} serve")


def _listen(
    host: str | None, allow: tuple[str, ...], tls_cert: Path | None, tls_key: Path | None
) -> dict[str, str]:
    """What was said of who reaches it: keys as TOML."""
    said: dict[str, str | Path | list[str] | None] = {
        "listen.host": host,
        "listen.allow": list(allow),
        "listen.tls_cert": tls_cert,
        "listen.tls_key": tls_key,
    }
    return {key: toml(value) for key, value in said.items() if value}


def _keys(schema_dir: Path | None, data_dirs: tuple[Path, ...]) -> dict[str, str]:
    """What was said of the directories: keys as TOML.

    What was typed is relative to the working directory, as the shell completes it; what stands in
    the file is relative to the file.
    """
    schema = _SCHEMA if schema_dir is None else str(schema_dir.absolute())
    data = [str(each.absolute()) for each in data_dirs] or [_DATA]
    return {"schema_dir": toml(schema), "data_dirs": toml(data)}


def _settings(invocation: Invocation[ReceiverConfig]) -> dict[str, str]:
    """What ``--set`` said of other keys than those that this command makes directories for."""
    said = invocation.settings_as_toml()
    for key in ("schema_dir", "data_dirs"):
        if key in said:
            option = "--schema-dir" if key == "schema_dir" else "--data-dir"
            raise UsageError(f"--set {key}: init makes that directory; name it with {option}")
    return said


def _places(
    target: Path, schema_dir: Path | None, data_dirs: tuple[Path, ...]
) -> tuple[Path, list[Path]]:
    """The directories that those keys come to."""
    schema = target.parent / _SCHEMA if schema_dir is None else schema_dir.absolute()
    return schema, [each.absolute() for each in data_dirs] or [target.parent / _DATA]


def _begin(
    target: Path,
    schema: Path,
    data: list[Path],
    keys: dict[str, str],
    writes: Callable[[Path], None],
) -> list[Path]:
    """Make the directories, then write the configuration."""
    content = configuration("receiver", keys)
    directories = [schema, *data]
    with Tree(target.parent, create=True) as tree:
        if tree.exists(target.name):
            raise UsageError(f"{target} is there already; nothing was changed")
        for each in directories:
            Tree(each, create=True).close()
        writes(target)
        tree.write_atomic(target.name, content.encode())
    return directories


def _adopt(target: Path, invocation: Invocation[ReceiverConfig]) -> list[Path]:
    """Mark the data directories; without an engine one is made, which lets nobody in by itself.

    So does one that was made and that nothing was committed to: a call before this one made it, and
    was cut off.
    """
    config = replace(invocation, file=target).load(secrets=False).value
    config.must_have_directories()
    try:
        with Engine.read_only(config.schema_dir) as engine:
            if engine.published().lsn > MADE:
                with engine.reading() as state:
                    nodes = dict(state.node_table.rows)
                return adopt_directories(config, engine.uuid, nodes)
    except NotFoundError:
        pass
    with open_engine(config, anew=True) as engine:
        # Whether the one that is lost had tokens is not known any more.
        require_tokens(engine)
        return adopt_directories(config, engine.uuid)


def _unit(units: Path, target: Path, invocation: Invocation[ReceiverConfig]) -> WrittenUnit:
    config = replace(invocation, file=target).load(secrets=False).value
    config.must_have_directories()
    logs = [] if config.log.file is None else [config.log.file.parent]
    places = [config.schema_dir, *config.data_dirs, *logs]
    listen = config.listen
    reads = [listen.tls_cert, listen.tls_key, listen.client_ca, listen.client_crl]
    return write_unit(units, "tsferry-receiver", "serve", target, places, reads)
