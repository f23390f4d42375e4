"""The command `tsferry-receiver`."""

from __future__ import annotations

import sys

__all__ = ["main"]

NAME = "tsferry-receiver"
_EXTRA = frozenset({"flask", "lark", "numpy", "prompt_toolkit", "waitress", "werkzeug"})


def main() -> int:
    """Run the command line; returns its exit code."""
    from common.cli import run
    from receiver.cli.commands import cli

    try:
        return run(cli, NAME)
    except ModuleNotFoundError as error:  # pip install tsferry gives the sender alone
        if error.name not in _EXTRA:
            raise
        sys.stderr.write(f"{NAME}: error: {error.name} is missing: pip install tsferry[receiver]\n")
        return 2
