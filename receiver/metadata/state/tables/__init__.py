"""The tables of the state, each with what the operations of a commit do to it.

`operations` of a table gives a function for each operation that concerns it; it takes the operation
and the timestamp of the commit, which was checked and is on the disk.

Rooms: `file_tables` what is loaded, `place_tables` where it lies, `sender_tables` who sent it.
"""

from collections.abc import Callable
from typing import Any

__all__ = ["Appliers"]

Appliers = dict[type, Callable[[Any, int], None]]
