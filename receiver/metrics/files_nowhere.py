"""How many released files no storage node has now, found out a piece at each scrape.

Where nodes are silent that is a look at the disks for each file that has left them: of millions it
would take longer than a scrape may, and just then the measures are wanted.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["FilesNowhere"]

_LOOKS: Final = 20_000
"""Of a scrape: some 100 ms."""


class FilesNowhere:
    """Passes over the released files; one at a time may ask.

    Args:
        looks: begins a pass: true for each file that is nowhere, false for what is somewhere.
        most: looks of one time.
    """

    def __init__(self, looks: Callable[[], Iterator[bool]], most: int = _LOOKS) -> None:
        self._looks = looks
        self._most = most
        self._pass: Iterator[bool] | None = None
        self._found = 0
        self._known = 0

    def count(self) -> int:
        """As of the last pass that is over, or as many as were found since, if that is more."""
        if self._pass is None:
            self._pass, self._found = self._looks(), 0
        looked = 0
        for is_nowhere in islice(self._pass, self._most):
            looked += 1
            self._found += is_nowhere
        if looked < self._most:
            self._pass, self._known = None, self._found
        return max(self._known, self._found)
