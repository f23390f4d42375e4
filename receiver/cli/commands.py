"""All commands, and what they share: how to say where, and the codes that they end with."""

from __future__ import annotations

import functools
from dataclasses import replace

import click

import common
from common.console.cli import Invocation, Program, config_group
from common.errors import (
    EXIT_INTERNAL,
    EXIT_LATE,
    EXIT_LOCKED,
    EXIT_NOT_LOADED,
    EXIT_STOPPED,
    EXIT_UNREACHABLE,
    EXIT_USAGE,
    UsageError,
)
from receiver.config import ENV_PREFIX, FILE, NO_DIRECTORY, ReceiverConfig

__all__ = ["PROGRAM", "cli"]

PROGRAM = Program(
    "tsferry-receiver",
    ReceiverConfig,
    ENV_PREFIX,
    FILE,
    {
        0: "done; of `status` and `senders list`: all is well",
        EXIT_INTERNAL: "internal error, or problems were found",
        EXIT_USAGE: "usage or configuration, an extra is not installed, or there is no such thing",
        EXIT_NOT_LOADED: "a file is bad, or something does not stand so that it can be done; of "
        "`status`: files are lost",
        EXIT_UNREACHABLE: "the receiver does not run, takes no files, or refuses",
        EXIT_LOCKED: "another process uses the directories",
        EXIT_LATE: "of `status` and `senders list`: an edge is late",
        EXIT_STOPPED: "interrupted",
    },
    (EXIT_UNREACHABLE, EXIT_NOT_LOADED, EXIT_LATE),
    {"operator.url": {"schema_dir": NO_DIRECTORY, "data_dirs": [NO_DIRECTORY]}},
)
_EPILOG = f"""{PROGRAM.exit_text}

Example: tsferry-receiver --config /etc/tsferry/receiver.toml status
"""


class _Commands(click.Group):
    """Imports its commands when one is asked for: `--version` needs no package of the extra."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        _add_commands()
        return super().list_commands(ctx)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        _add_commands()
        return super().get_command(ctx, cmd_name)


@click.group(
    cls=_Commands, epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(common.__version__, prog_name=PROGRAM.name)
@PROGRAM.options
@click.option(
    "--url",
    metavar="URL",
    help="Speak to the receiver there, on another machine; with commas, to whichever leads of "
    "several. Its token is that of operator.token_file.  [default: operator.url]",
)
def cli(url: str | None) -> None:
    """Take TsFiles in from many senders, verify and load them.

    Commands that ask a running server find it by the configuration, as the user that it runs as.
    """
    context = click.get_current_context()
    if url is not None:
        if not url.strip():
            raise UsageError(
                "--url is empty: expected the address of a receiver (http://HOST:PORT)"
            )
        called: Invocation[ReceiverConfig] = context.obj
        context.obj = replace(called, settings=(*called.settings, f"operator.url={url}"))


@functools.cache
def _add_commands() -> None:
    from receiver.cli.box_commands.background_tasks import tasks
    from receiver.cli.box_commands.clock import clock
    from receiver.cli.box_commands.executor_command import work
    from receiver.cli.box_commands.hook_commands import hooks
    from receiver.cli.box_commands.init import init
    from receiver.cli.box_commands.serve import serve
    from receiver.cli.box_commands.status import status
    from receiver.cli.box_commands.token import token
    from receiver.cli.content_commands.adopt_old_receiver import adopt
    from receiver.cli.content_commands.centre_load import load
    from receiver.cli.content_commands.compact import compact
    from receiver.cli.content_commands.export import export
    from receiver.cli.copy_commands.backup import backup
    from receiver.cli.copy_commands.copies_command import copies
    from receiver.cli.copy_commands.fsck import fsck
    from receiver.cli.copy_commands.restore_command import restore
    from receiver.cli.copy_commands.storage import storage
    from receiver.cli.delivery_commands.deletes import deletes
    from receiver.cli.delivery_commands.files import files
    from receiver.cli.delivery_commands.lost import lost
    from receiver.cli.delivery_commands.owners import owners
    from receiver.cli.delivery_commands.quarantine import quarantine
    from receiver.cli.delivery_commands.retired import retired
    from receiver.cli.delivery_commands.senders import senders
    from receiver.cli.engine_commands.mlog import mlog
    from receiver.cli.engine_commands.mtree import mtree
    from receiver.cli.engine_commands.tree import tree
    from receiver.cli.engine_commands.ttl import ttl
    from receiver.cli.place_commands.node_commands import nodes
    from receiver.cli.place_commands.table_commands import tables, tablets
    from receiver.cli.shell.sql import sql

    every = (
        init,
        serve,
        status,
        senders,
        files,
        tree,
        tables,
        tablets,
        nodes,
        owners,
        load,
        adopt,
        compact,
        copies,
        quarantine,
        retired,
        tasks,
        work,
        deletes,
        lost,
        token,
        clock,
        hooks,
        ttl,
        sql,
        mlog,
        mtree,
        fsck,
        storage,
        backup,
        restore,
        export,
    )
    for command in (*every, config_group(PROGRAM)):
        cli.add_command(command)
