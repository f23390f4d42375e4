"""Which files of the receiver's machine may be loaded on the word of somebody elsewhere.

Whoever loads a file has its content read by all readers. On the machine itself that takes the user
that the server runs as, who can read them all the same; a statement, or a call with an operator's
token, comes over the network, and by it come files below directories that the configuration names.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from common.errors import ForbiddenError, UsageError

__all__ = ["allowed_path"]


def allowed_path(text: str, allowed: Sequence[Path]) -> str:
    """A path with no link in it, if it may be read; whether there is anything is not said before.

    Args:
        text: the path.
        allowed: directories below which files may lie.

    Raises:
        ForbiddenError: it may not be.
        UsageError: it is none.
    """
    try:
        if not Path(text).is_absolute():
            raise UsageError(f"{text!a}: expected an absolute path of the receiver's machine")
        path = Path(text).resolve()
    except (OSError, RuntimeError, ValueError) as error:
        raise UsageError(f"{text!a}: no path: {error}") from error
    if not any(path.is_relative_to(each.resolve()) for each in allowed):
        raise ForbiddenError(
            f"{text}: not below a directory of load.paths in the receiver's configuration, which "
            "says what may be loaded in SQL or by a token"
        )
    return str(path)
