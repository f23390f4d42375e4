"""The catalogue that the last query of this process was planned by, for the next one.

Spark plans query after query in the same process, which ends when it has been idle for a minute.
A catalogue of thousands of files that nothing was committed to is not read again.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from receiver.spark.local_catalogue import StoreCatalogue

if TYPE_CHECKING:
    from receiver.spark.catalogue import Catalogue
    from receiver.spark.finder import DataFile

__all__ = ["KeptCatalogue", "of_planner"]


class KeptCatalogue:
    """One catalogue at a time; any thread may ask."""

    def __init__(self) -> None:
        """Begin with none."""
        self._lock = threading.Lock()
        self._key: object = None
        self._catalogue: Catalogue | None = None
        self._files: tuple[tuple[object, ...], list[DataFile]] | None = None

    @contextmanager
    def opened(
        self, where: str, asked: object, make: Callable[[], Catalogue]
    ) -> Iterator[KeptCatalogue]:
        """Have a catalogue, as it is now; others wait meanwhile.

        Args:
            where: what names it; of a file its content counts.
            asked: all else that it is made by.
            make: opens it.

        Raises:
            UsageError, TsferryError: it cannot be opened.
        """
        key = where, _identity(where), asked
        with self._lock:
            done = False
            try:
                if self._catalogue is not None and key == self._key:
                    self._catalogue.refresh()
                else:
                    self._drop()
                    self._catalogue, self._key = make(), key
                yield self
                # The copies of a store lie in a directory that goes with it.
                done = not isinstance(self._catalogue, StoreCatalogue)
            finally:
                if not done:
                    self._drop()

    @property
    def catalogue(self) -> Catalogue:
        """It, within `opened`."""
        assert self._catalogue is not None
        return self._catalogue

    def files(self, at: int, without: frozenset[str] = frozenset()) -> list[DataFile]:
        """What was visible at a commit; see `Catalogue.files`."""
        asked = self.catalogue.mark, at, without
        if self._files is None or self._files[0] != asked:
            self._files = asked, self.catalogue.files(at, without=without)
        return self._files[1]

    def close(self) -> None:
        """Let go of it."""
        with self._lock:
            self._drop()

    def _drop(self) -> None:
        catalogue, self._catalogue = self._catalogue, None
        self._key = self._files = None
        if catalogue is not None:
            catalogue.close()


def _identity(where: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(where)
    except (OSError, ValueError):
        return None
    if stat.S_ISDIR(found.st_mode):  # what is in it the catalogue looks at
        return found.st_ino, 0, 0
    return found.st_ino, found.st_size, found.st_mtime_ns


of_planner = KeptCatalogue()
