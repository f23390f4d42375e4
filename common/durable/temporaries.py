"""Files that get their real names when they are whole, and have names of their own kind until then.

What a killed process left of them is known by that, and swept by who holds the lock under which all
writers work (`Tree.sweep_temporaries`).
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from common import crash
from common.beneath import open_beneath
from common.durable.flushing import meaning
from common.durable.open_files import WriteFile

__all__ = ["is_temporary", "new_file", "temporary", "temporary_name"]

_TEMPORARY = re.compile(r"\.[0-9a-f]{16}\.tmp\Z")


def temporary_name() -> str:
    """A fresh name for a file that gets its real one when it is whole."""
    return f".{secrets.token_hex(8)}.tmp"


def is_temporary(name: str) -> bool:
    """Whether a file name is one of ours for a write that has not been finished."""
    return _TEMPORARY.match(name) is not None


def new_file(root: int, rel: str, what: str, mode: int) -> WriteFile:
    """A new file beneath an open directory."""
    with meaning(what):
        return WriteFile(open_beneath(root, rel, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode), what)


@contextmanager
def temporary(parent: int, what: str, mode: int) -> Iterator[tuple[str, WriteFile]]:
    """A new file to be renamed within the block; removed if the block fails."""
    name = temporary_name()
    made = new_file(parent, name, what, mode)
    try:
        with made as file:
            yield name, file
    except crash.SimulatedCrash:
        raise
    except BaseException:
        with suppress(OSError):
            os.unlink(name, dir_fd=parent)
        raise
