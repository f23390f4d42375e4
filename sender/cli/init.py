"""`tsferry-sender init`: a starting configuration, an identity, the markers, a systemd unit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from common.console.cli import Invocation, emit_json
from common.console.examples import taken_back_on_failure
from common.console.terminal import printable
from common.errors import UsageError
from common.system_errors import said_of
from sender.cli.program import PROGRAM, json_option, warn_of_root
from sender.config import ReceiverEntry, SenderConfig

if TYPE_CHECKING:
    from common.console.examples import WrittenUnit

__all__ = ["init"]

_UNIT = "tsferry-sender.service"


@click.command(
    epilog="Example: tsferry-sender --config sender.toml init --schema-dir data/system/schema "
    "--data-dir data/data --url https://dc1.example.org:8443 --token-file dc1.token",
)
@click.option("--schema-dir", type=click.Path(path_type=Path), help="For a new configuration.")
@click.option(
    "--data-dir",
    "data_dirs",
    type=click.Path(path_type=Path),
    multiple=True,
    help="For a new configuration; may be repeated.",
)
@click.option("--url", help="Address of the receiver, for a new configuration.")
@click.option("--token-file", type=click.Path(path_type=Path), help="For a new configuration.")
@click.option(
    "--ca-file",
    type=click.Path(path_type=Path),
    help="PEM that the receiver's certificate is checked against, for a new configuration.",
)
@click.option("--label", help="What receivers call this edge, for a new configuration.")
@click.option(
    "--adopt", is_flag=True, help="Take data directories over that another sender has marked."
)
@click.option(
    "--new-identity",
    is_flag=True,
    help="Make this machine another sender: after it was copied from one that lives on.",
)
@click.option(
    "--units",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Write tsferry-sender.service there, as in /etc/systemd/system, of the configuration that "
    "is there, or of a new one with --schema-dir, --data-dir and --url.",
)
@json_option("sender.cli.command_views:IdentityMade")
@click.pass_obj
def init(
    invocation: Invocation[SenderConfig],
    schema_dir: Path | None,
    data_dirs: tuple[Path, ...],
    url: str | None,
    token_file: Path | None,
    ca_file: Path | None,
    label: str | None,
    adopt: bool,
    new_identity: bool,
    units: Path | None,
    as_machine: bool,
) -> int:
    """Write a starting configuration unless there is one, make the identity and the markers.

    Can be run again: what is there stays, and a configuration that this command wrote goes again
    if the rest of it fails. Without --schema-dir, --data-dir and --url a new
    configuration has examples in their place; edit it and run init again. What --set says
    before `init` is written into a new one.
    """
    file = (invocation.file or PROGRAM.default_file).absolute()
    written = not file.exists()
    given = _given(schema_dir, data_dirs, url, token_file, ca_file, label)
    found: dict[str, object] = {
        "config": str(file),
        "written": written,
        "uuid": None,
        "marked": [],
        "unit": None,
        "unit_user": None,
        "old_tool": None,
    }
    unit: WrittenUnit | None = None
    is_example = not (schema_dir and data_dirs and url) and (written or bool(given))
    ready = False
    with taken_back_on_failure(file) as writes:
        if written:
            writes(file)
            _write_example(file, invocation.settings_as_toml() | given)
        elif given and not _is_as_given(file, invocation.settings_as_toml() | given):
            raise UsageError(f"{file} is there already: change it there")
        if units is not None and is_example:
            raise UsageError(
                f"{file} {'is not there' if written else 'is an example as yet'}, and a unit is "
                "that of a whole configuration: name it with --config, or give --schema-dir, "
                "--data-dir and --url"
            )
        if not is_example:
            config = replace(invocation, file=file).load(secrets=False).value
            invocation.start(config.log)
            warn_of_root(config)
            ready = all(map(_has_credential, config.receivers))
            with taken_back_on_failure(*_made(config, units)) as writes:
                found["uuid"], found["marked"] = _identify(config, adopt, new_identity, writes)
                if units is not None:
                    writes(units / _UNIT)
                    unit = _unit(units, file, config)
                    found |= {"unit": str(unit.file), "unit_user": unit.user}
            found["old_tool"] = _old_tool(config, found["uuid"])
    _tell(as_machine, found, unit, ready=ready)
    if is_example and not as_machine:
        click.echo("now put your directories and the receiver into it, and run init again")
    return 0


def _made(config: SenderConfig, units: Path | None) -> list[Path]:
    """What the rest of it makes, where it is not there."""
    from sender.kept.identity import UUID_FILE
    from sender.select.data_dirs import MARKER

    unit = [] if units is None else [units / _UNIT]
    markers = [each / MARKER for each in config.data_dirs if each.is_dir()]
    return [config.schema_dir / "sync" / UUID_FILE, *markers, *unit]


def _given(
    schema_dir: Path | None,
    data_dirs: tuple[Path, ...],
    url: str | None,
    token_file: Path | None,
    ca_file: Path | None,
    label: str | None,
) -> dict[str, str]:
    """What was said of the new configuration: its keys, as TOML."""
    from common.console.examples import toml

    said: dict[str, str | Path | list[str] | None] = {
        "schema_dir": schema_dir,
        "data_dirs": [str(each.absolute()) for each in data_dirs],
        "label": label,
        "[receiver].url": url,
        "[receiver].token_file": token_file,
        "[receiver].ca_file": ca_file,
    }
    return {key: toml(value) for key, value in said.items() if value}


def _is_as_given(file: Path, given: dict[str, str]) -> bool:
    """Whether a call like this one wrote it, and it was not changed: then the rest is to be done.

    So what could not be done the first time needs no other words the second time.
    """
    from common.console.examples import configuration

    try:
        return file.read_text(encoding="utf-8") == configuration("sender", given)
    except (OSError, UnicodeDecodeError):
        return False


def _write_example(file: Path, values: dict[str, str]) -> None:
    from common.console.examples import configuration
    from common.durable import Tree

    content = configuration("sender", values)
    try:
        with Tree(file.absolute().parent, create=True) as tree:
            tree.write_atomic(file.name, content.encode(), mode=0o640)
    except OSError as error:
        raise UsageError(
            f"{file} cannot be written: {said_of(error)}; name another with --config"
        ) from error


def _unit(units: Path, file: Path, config: SenderConfig) -> WrittenUnit:
    from common.console.examples import write_unit

    # The owner of the TsFiles runs it, whoever owns the schema directory.
    files = (config.log.file, config.daemon.pid_file)
    others = [each.parent for each in files if each is not None]
    places = [*config.data_dirs, config.schema_dir, *others]
    reads = [
        path
        for each in config.receivers
        for path in (each.token_file, each.ca_file, each.client_cert, each.client_key)
    ]
    return write_unit(units, "tsferry-sender", "run", file, places, reads)


def _identify(
    config: SenderConfig, adopt: bool, new_identity: bool, writes: Callable[[Path], None]
) -> tuple[str, list[str]]:
    """Make what is missing; the uuid, and the directories that were marked now."""
    from contextlib import ExitStack

    from sender.kept import identity
    from sender.kept.receiver_file import ReceiverFile
    from sender.select.data_dirs import MARKER, mark

    def marks(path: Path) -> bool:
        writes(path / MARKER)
        return mark(path, uuid, adopt=adopt or new_identity)

    with ExitStack() as stack:
        sync = stack.enter_context(identity.open_sync_dir(config.schema_dir))
        writes(config.schema_dir / "sync" / identity.UUID_FILE)
        if new_identity:
            # No round may run under the old name while the new one is made.
            for entry in config.receivers:
                lock = identity.take_lock(config.schema_dir, entry.directory)
                stack.callback(lock.release)
            uuid = identity.renew(config.schema_dir)
            for entry in config.receivers:
                memory = ReceiverFile.open(sync, entry.directory)
                memory.update(engine=None, epoch=None, last_task=None, newest_commit=0)
        else:
            uuid = identity.create(config.schema_dir)
        marked = [str(path) for path in config.data_dirs if marks(path)]
    return uuid, marked


def _old_tool(config: SenderConfig, uuid: object) -> str | None:
    """Who the old sync tool was here, if this sender is somebody else so far."""
    from sender.kept.old_tool_state import old_identity

    found = old_identity(config.schema_dir.parent)
    return None if found == uuid else found


def _has_credential(entry: ReceiverEntry) -> bool:
    """Whether what the receiver asks for is here: a new box may have got it before this."""
    if entry.token is not None:
        return True
    for file in (entry.token_file, entry.client_cert):
        with suppress(OSError):
            if file is not None and file.stat().st_size:
                return True
    return False


def _next(found: dict[str, object], *, ready: bool) -> Iterator[str]:
    """What whoever called this does then, in its order."""
    if not ready:
        uuid = found["old_tool"] or found["uuid"]
        yield f"at the receiver `tsferry-receiver token create --sender {uuid}`"
    if found["old_tool"]:
        yield "here `tsferry-sender adopt`, before anything is sent (docs/adopting.md)"
    else:
        yield "`tsferry-sender check`" if ready else "here `tsferry-sender check`"
    if found["unit"]:
        yield "`systemctl daemon-reload && systemctl enable --now tsferry-sender`"


def _tell(
    as_machine: bool, found: dict[str, object], unit: WrittenUnit | None, *, ready: bool
) -> None:
    if as_machine:
        from sender.cli.command_views import IdentityMade

        emit_json(found, IdentityMade)
        return
    lines = [f"wrote {found['config']}"] if found["written"] else []
    if found["uuid"]:
        lines.append(f"this sender is {found['uuid']}")
    marked = found["marked"]
    assert isinstance(marked, list)
    lines += [f"marked {each}" for each in marked]
    if unit is not None:
        lines.append(unit.line())
    if found["old_tool"]:
        lines.append(
            f"the old sync tool was sender {found['old_tool']} here: by another identity all that "
            "it has sent would be sent again"
        )
    if found["uuid"]:
        steps = _next(found, ready=ready)
        lines.append(f"next: {', then '.join(steps)}")
    click.echo("\n".join(map(printable, lines)))
