"""All commands of the sender, and the codes that they end with."""

from __future__ import annotations

import click

import common
from common.console.cli import config_group
from sender.cli.program import PROGRAM

__all__ = ["cli"]

_NAMES = (
    "init",
    "sync",
    "run",
    "start",
    "stop",
    "status",
    "free",
    "quarantine",
    "recover",
    "resync",
    "adopt",
    "check",
    "hooks",
    "config",
)
_EPILOG = f"""{PROGRAM.exit_text}

\b
Examples:
  tsferry-sender --config /etc/tsferry/sender.toml init
  tsferry-sender sync --json
"""


def _command(name: str) -> click.Command:
    """A command; its module is loaded for it, as cron starts `sync` all day."""
    match name:
        case "init":
            from sender.cli.init import init as found
        case "sync":
            from sender.cli.sync import sync as found
        case "recover":
            from sender.cli.sync import recover as found
        case "resync":
            from sender.cli.sync import resync as found
        case "run":
            from sender.cli.daemon import run_daemon as found
        case "start":
            from sender.cli.daemon import start as found
        case "stop":
            from sender.cli.daemon import stop as found
        case "status":
            from sender.cli.status import status as found
        case "free":
            from sender.cli.free import free as found
        case "quarantine":
            from sender.cli.quarantine import quarantine as found
        case "hooks":
            from sender.cli.hook_listing import hooks as found
        case "adopt":
            from sender.cli.adopt_old_tool import adopt as found
        case "check":
            from sender.cli.check import check as found
        case _:
            return config_group(PROGRAM)
    return found


class _Commands(click.Group):
    """Knows what there is by name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_NAMES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return _command(cmd_name) if cmd_name in _NAMES else None


@click.group(
    cls=_Commands,
    help="Ships closed TsFiles of this node to its receivers: once, whole, provably.",
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(common.__version__, prog_name="tsferry-sender")
@PROGRAM.options
def cli() -> None:
    """See the help text of the group."""
