"""The command `tsferry-receiver`."""

from __future__ import annotations

from common.start import enter

__all__ = ["main"]

NAME = "tsferry-receiver"


def main() -> int:
    """Run the command line; returns its exit code."""
    return enter(NAME, _run, daemon="serve")


def _run() -> int:
    from common.cli import run
    from receiver.cli.commands import cli

    return run(cli, NAME, extra="receiver")
