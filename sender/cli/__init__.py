"""`tsferry-sender`: the commands of the sender. One file a command; see `--help` of each."""

from __future__ import annotations

import gc

from common.console.start import enter

__all__ = ["main"]

NAME = "tsferry-sender"


def main() -> int:
    """Run the command line; returns its exit code."""
    return enter(NAME, _run, daemon="run")


def _run() -> int:
    # Nearly all that a command makes stays to its end; the collector, as it comes, looked through
    # it again and again, for a fifth of the time of a start.
    gc.set_threshold(100_000, 20, 20)
    from common.console.cli import run
    from sender.cli.commands import cli

    return run(cli, NAME)
