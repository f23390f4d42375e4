"""`tsferry-sender`: the commands of the sender. One file a command; see `--help` of each."""

from __future__ import annotations

from common.start import enter

__all__ = ["main"]

NAME = "tsferry-sender"


def main() -> int:
    """Run the command line; returns its exit code."""
    return enter(NAME, _run, daemon="run")


def _run() -> int:
    from common.cli import run
    from sender.cli.commands import cli

    return run(cli, NAME)
