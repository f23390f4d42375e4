"""Random commits about files, each of which is possible where it is made."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from receiver.metadata.model import records
from receiver.metadata.state.table_rows import FileState
from tests.support.metadata import A, B, load, path, seen

if TYPE_CHECKING:
    from receiver.metadata.model.records import Op
    from receiver.metadata.state.state import State
    from receiver.metadata.state.table_rows import FileRow

__all__ = ["FileLife"]


class FileLife(ABC):
    """Files of two senders come, change and go.

    Attributes:
        chance: decides.
    """

    def __init__(self, seed: int, *, forgets: bool = True, looks: bool = False) -> None:
        """Begin with the senders alone.

        Args:
            seed: of what happens.
            forgets: whether rows of deleted files go.
            looks: whether each commit tells which look it is from, as they do today.
        """
        self.chance = random.Random(seed)
        self._forgets = forgets
        self._looks = looks
        self._tags = 0
        self.do(seen(), seen(B, "other"))

    @property
    @abstractmethod
    def state(self) -> State:
        """As it is now."""

    @abstractmethod
    def do(self, *ops: Op) -> None:
        """Commit."""

    def commit(self) -> None:
        """Do something, or nothing where that is not possible."""
        rows = sorted(self.state.files.values(), key=lambda row: row.physical)
        row = self.chance.choice(rows) if rows else None
        if row is None or self.chance.random() < 0.4:
            self._load()
        else:
            self._change(row)

    def _load(self) -> None:
        self._tags += 1
        sender, stem = self.chance.choice((A, B)), f"{self.chance.randrange(30)}-1-0"
        logical = path(stem, part=self.chance.randrange(3))
        if self.state.file_table.held(sender, logical) is None:
            devices = {
                f"root.t.{sender}{each}": (each, 99) for each in range(self.chance.randrange(1, 6))
            }
            content = f"{self.chance.randrange(20)}"
            self.do(
                load(
                    logical,
                    self._tags,
                    sender=sender,
                    devices=devices,
                    content=content,
                    first_look=self._look,
                    closed_look=self._look,
                )
            )

    @property
    def _look(self) -> int:
        return self._tags if self._looks else 0

    def _change(self, row: FileRow) -> None:
        at, state = row.physical, row.state
        fresh_path = path(f"{100 + self._tags}-1-0")
        self._tags += 1
        able: list[Op] = []
        if row.visible:
            able += [records.FileVerified([at]), records.SeriesLoaded(at, [])]
            able += [records.FileQuarantined(at, "bad"), records.FileDeleted(at, "operator")]
        if state is FileState.LIVE:
            able += [
                records.FileRetired(at, self._tags),
                records.FileRetired(at),
                records.FileNamed(at, fresh_path, self._look),
                records.ListBegun(row.sender, self._tags),
            ]
            able += [records.FileUnnamed(at, row.path, self._look)] if row.names else []
        if state is FileState.RETIRED:
            able += [records.FileReturned(at, fresh_path, self._look)]
        if state is FileState.QUARANTINED and not row.retired:
            able += [records.FileRestored(at)]
        if state is FileState.DELETED and self._forgets:
            able += [records.FileForgotten(at)]
        if able:
            self.do(self.chance.choice(able))
