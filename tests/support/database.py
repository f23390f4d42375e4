"""A database at an edge whose power may go: some files it flushes, of some it says so too early.

After a cut it does what databases do at their start: a file that is not as its own books have it is
discarded, and so is one that came back because its deletion was not flushed.
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

from tests.support.judge import md5_of
from tests.support.workload import Points, Workload

KINDS = ("sequence", "unsequence")


class Database(Workload):
    """One edge.

    Attributes:
        ended: (path, MD5) of what was deleted, replaced or lost at any time, entered before it was.
    """

    def __init__(self, data: Path, label: str, seed: int, **options: Any) -> None:
        super().__init__(data, label, seed, **options)
        self.ended: set[tuple[str, str]] = set()
        self.flushed: set[tuple[str, str]] = set()
        self.discarded = 0
        self._chance = random.Random(seed ^ 0xD15C)
        self._flushing = True

    def step(self) -> None:
        """One change, flushed or not."""
        self._flushing = self._chance.random() < 0.7
        super().step()

    def recover(self) -> list[str]:
        """Put all right after a power cut; returns what was flushed and is lost all the same."""
        lost = []
        for path in sorted(self._on_disk() | self.files.keys()):
            here, wanted = self._data / path, self.files.get(path)
            beside = here.with_name(f"{here.name}.resource")
            if wanted and (md5_of(here), md5_of(beside)) == (wanted.md5, wanted.resource_md5):
                continue
            # What was being replaced or removed when the power went may be either way.
            if wanted and (path, wanted.md5) in self.flushed - self.ended:
                lost.append(f"{path}: the disk has lost what was flushed")
            self._end(path)
            self.files.pop(path, None)
            self.discarded += 1
            here.unlink(missing_ok=True)
            beside.unlink(missing_ok=True)
        for hidden in self._data.glob("*/**/.*.writing"):
            hidden.unlink()
        for mods in self._data.glob("*/**/*.mods"):
            mods.unlink()
        self._mods.clear()
        return lost

    def _on_disk(self) -> set[str]:
        found = set()
        for kind in KINDS:
            for each in (self._data / kind).glob("**/*.tsfile*"):
                if not each.name.startswith(".") and not each.name.endswith(".mods"):
                    found.add(str(each.relative_to(self._data)).removesuffix(".resource"))
        return found

    def _end(self, path: str) -> None:
        if path in self.files:
            self.ended.add((path, self.files[path].md5))

    def _write(self, path: str, points: Points) -> None:
        self._end(path)
        super()._write(path, points)
        if self._flushing:
            self.flushed.add((path, self.files[path].md5))

    def _put(self, path: str, content: bytes) -> None:
        target = self._data / path
        target.parent.mkdir(parents=True, exist_ok=True)
        hidden = target.with_name(f".{target.name}.writing")
        with open(hidden, "wb") as file:
            file.write(content)
            file.flush()
            if self._flushing:
                os.fsync(file.fileno())
        os.replace(hidden, target)
        if self._flushing:
            self._flush_names(target.parent)

    def _remove(self, path: str) -> None:
        self._end(path)
        super()._remove(path)
        if self._flushing:
            self._flush_names((self._data / path).parent)

    def _flush_names(self, directory: Path) -> None:
        while True:
            fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
            if directory == self._data:
                return
            directory = directory.parent
