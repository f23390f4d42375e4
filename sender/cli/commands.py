"""All commands of the sender, and the codes that they end with."""

from __future__ import annotations

import click

import common
from common.cli import config_group
from sender.cli.check import check
from sender.cli.daemon import run_daemon, start, stop
from sender.cli.free import free
from sender.cli.init import init
from sender.cli.program import PROGRAM
from sender.cli.quarantine import quarantine
from sender.cli.status import status
from sender.cli.sync import recover, resync, sync

__all__ = ["cli"]

_EPILOG = """\b
Exit codes:
  0  all that is closed is loaded      4  receiver unreachable, or it refuses
  1  internal error                    5  another sender to this receiver runs, does not answer
  2  usage or configuration            6  deletions held back by the guard
  3  some files were not loaded      130  interrupted
Where several apply, the first of 1, 2, 130, 5, 4, 3, 6 is the one.

\b
Examples:
  tsferry-sender --config /etc/tsferry/sender.toml init
  tsferry-sender sync --json
"""


@click.group(
    help="Ships closed TsFiles of this node to its receivers: once, whole, provably.",
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(common.__version__, prog_name="tsferry-sender")
@PROGRAM.options
def cli() -> None:
    """See the help text of the group."""


for _command in (
    init,
    sync,
    run_daemon,
    start,
    stop,
    status,
    free,
    quarantine,
    recover,
    resync,
    check,
    config_group(PROGRAM),
):
    cli.add_command(_command)
