"""`tsferry-sender init`: a starting configuration, an identity, the markers."""

from __future__ import annotations

import json
from pathlib import Path

import click

from common.cli import Invocation, emit_json
from common.errors import UsageError
from common.terminal import printable
from sender.cli.program import PROGRAM
from sender.config import SenderConfig

__all__ = ["init"]

_EXAMPLE = """\
# tsferry-sender. `tsferry-sender config show` shows every key and its value in force.

# Holds sync/ with this sender's identity; the schema directory of the database.
schema_dir = {schema_dir}

# Those that hold sequence/ and unsequence/.
data_dirs = {data_dirs}

# What tells that a file is closed: "resource" (written by the database), or "tail" for files that
# were written by a program.
#closed_by = "resource"

# What a file that is gone here means there: "replaced", "all" or "never".
#propagate_deletes = "replaced"

[[receiver]]
name = "dc1"
url = {url}
# What the receiver knows this sender by: tsferry-receiver token create makes it.
{token}

[transfer]
#bandwidth_limit = "10MiB/s"

[daemon]
#period = "1m"
"""


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
    "--adopt", is_flag=True, help="Take data directories over that another sender has marked."
)
@click.option(
    "--new-identity",
    is_flag=True,
    help="Make this machine another sender: after it was copied from one that lives on.",
)
@click.option("--json", "as_machine", is_flag=True, help="Write JSON.")
@click.pass_obj
def init(
    invocation: Invocation[SenderConfig],
    schema_dir: Path | None,
    data_dirs: tuple[Path, ...],
    url: str | None,
    token_file: Path | None,
    adopt: bool,
    new_identity: bool,
    as_machine: bool,
) -> int:
    """Write a starting configuration unless there is one, make the identity and the markers.

    Can be run again: what is there stays. Without --schema-dir, --data-dir and --url a new
    configuration has examples in their place; edit it and run init again.
    """
    file = invocation.file or PROGRAM.default_file
    written = not file.exists()
    given = (schema_dir, data_dirs, url, token_file)
    if written:
        _write_example(file, schema_dir, data_dirs, url, token_file)
    elif any(given):
        raise UsageError(f"{file} is there already: change it there")
    if written and not (schema_dir and data_dirs and url):
        _tell(as_machine, {"config": str(file), "written": True, "uuid": None, "marked": []})
        if not as_machine:
            click.echo("now put your directories and the receiver into it, and run init again")
        return 0
    loaded = Invocation(
        invocation.program, file, invocation.settings, invocation.verbose, invocation.environ
    ).load(secrets=False)
    invocation.start(loaded.value.log)
    uuid, marked = _identify(loaded.value, adopt, new_identity)
    found = {"config": str(file), "written": written, "uuid": uuid, "marked": marked}
    _tell(as_machine, found)
    return 0


def _write_example(
    file: Path,
    schema_dir: Path | None,
    data_dirs: tuple[Path, ...],
    url: str | None,
    token_file: Path | None,
) -> None:
    from common.durable import Tree

    token = '#token_file = "/etc/tsferry/dc1.token"'  # noqa: S105 - a comment for a file
    if token_file is not None:
        token = f"token_file = {_toml(str(token_file.absolute()))}"
    content = _EXAMPLE.format(
        schema_dir=_toml(str((schema_dir or Path("/var/lib/iotdb/data/system/schema")).absolute())),
        data_dirs=_toml(
            [str(each.absolute()) for each in data_dirs or (Path("/var/lib/iotdb/data/data"),)]
        ),
        url=_toml(url or "https://dc1.example.org:8443"),
        token=token,
    )
    try:
        with Tree(file.absolute().parent, create=True) as tree:
            tree.write_atomic(file.name, content.encode(), mode=0o640)
    except OSError as error:
        raise UsageError(
            f"{file} cannot be written: {error.strerror}; name another with --config"
        ) from error


def _toml(value: str | list[str]) -> str:
    return json.dumps(value, ensure_ascii=False)


def _identify(config: SenderConfig, adopt: bool, new_identity: bool) -> tuple[str, list[str]]:
    """Make what is missing; the uuid, and the directories that were marked now."""
    from contextlib import ExitStack

    from sender.kept import identity
    from sender.kept.receiver_file import Memory
    from sender.select.data_dirs import mark

    with ExitStack() as stack:
        sync = stack.enter_context(identity.open_sync_dir(config.schema_dir))
        if new_identity:
            # No round may run under the old name while the new one is made.
            for entry in config.receivers:
                lock = identity.take_lock(config.schema_dir, entry.directory)
                stack.callback(lock.release)
            uuid = identity.renew(config.schema_dir)
            for entry in config.receivers:
                memory = Memory.open(sync, entry.directory)
                memory.update(engine=None, epoch=None, last_task=None, newest_commit=0)
        else:
            uuid = identity.create(config.schema_dir)
        marked = [
            str(path) for path in config.data_dirs if mark(path, uuid, adopt=adopt or new_identity)
        ]
    return uuid, marked


def _tell(as_machine: bool, found: dict[str, object]) -> None:
    if as_machine:
        emit_json(found)
        return
    lines = [f"wrote {found['config']}"] if found["written"] else []
    if found["uuid"]:
        lines.append(f"this sender is {found['uuid']}")
    marked = found["marked"]
    assert isinstance(marked, list)
    lines += [f"marked {each}" for each in marked]
    if found["uuid"]:
        lines.append(
            f"next: at the receiver `tsferry-receiver token create --sender {found['uuid']}`, "
            "then here `tsferry-sender check`"
        )
    click.echo("\n".join(map(printable, lines)))
