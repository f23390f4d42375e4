"""The command `tsferry-receiver`.

Rooms, a file a command: `box_commands` the box itself, `shell` SQL, `engine_commands` the schema,
`copy_commands` backups and stores, `place_commands` tables, tablets and nodes, `delivery_commands`
what edges deliver, `content_commands` what is loaded, merged and given out here.
"""

from __future__ import annotations

import gc

from common.console.start import enter

__all__ = ["main"]

NAME = "tsferry-receiver"


def main() -> int:
    """Run the command line; returns its exit code."""
    return enter(NAME, _run, daemon="serve")


def _run() -> int:
    # A task makes some dozens of objects a file, and most stay until it is loaded, or for good; the
    # collector, as it comes, went through them for a tenth of the server's time.
    gc.set_threshold(50_000, 20, 20)
    from common.console.cli import run
    from receiver.cli.commands import cli

    return run(cli, NAME, extra="receiver")
