"""A remote log in memory, and what can go wrong with one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from common.errors import ConflictError, DamagedError, UnreachableError
from receiver.metadata.model.errors import FencedError, UnknownOutcomeError
from receiver.metadata.model.records import decode_commits

__all__ = ["MemoryCheckpoint", "MemoryPlace", "MemoryRemote"]


class MemoryCheckpoint:
    """See `RemoteCheckpoint`."""

    def __init__(self, lsn: int, content: dict[str, bytes]) -> None:
        self.lsn = lsn
        self.content = content

    @property
    def files(self) -> Mapping[str, int]:
        return {name: len(each) for name, each in self.content.items()}

    def read(self, name: str) -> Iterator[bytes]:
        content = self.content[name]
        for begin in range(0, len(content), 1000):
            yield content[begin : begin + 1000]


class MemoryPlace:
    """What outlives a receiver: frames, a checkpoint, who appends.

    Attributes:
        fault: the next append: "before" or "after" raises `UnknownOutcomeError`, nothing or all of
            it kept; "away" raises `UnreachableError`.
    """

    def __init__(self) -> None:
        self.uuid: str | None = None
        self.log: list[tuple[int, int, bytes]] = []
        self.kept: MemoryCheckpoint | None = None
        self.owner: object = None
        self.fault: str | None = None
        self.notes: dict[str, bytes] = {}
        self.away = False


class MemoryRemote:
    """See `RemoteLog`."""

    def __init__(self, place: MemoryPlace) -> None:
        self.place = place
        self._unknown: bool | None = None

    def acquire(self, *, wait: float = 0.0) -> None:
        self.place.owner = self

    @property
    def trouble(self) -> str | None:
        return "away" if self.place.away else None

    def displaced(self) -> FencedError | None:
        gone = self.place.owner is not self
        return FencedError("another receiver has taken over") if gone else None

    @property
    def uuid(self) -> str | None:
        return self.place.uuid

    def begin(self, uuid: str) -> None:
        if self.place.log:
            raise ConflictError("there are commits")
        self.place.uuid = uuid

    def newest(self) -> int:
        log, kept = self.place.log, self.place.kept
        return log[-1][0] + log[-1][1] - 1 if log else (kept.lsn if kept else 0)

    def oldest(self) -> int:
        return self.place.log[0][0] if self.place.log else self.newest() + 1

    def frames(self, first_lsn: int) -> Iterator[tuple[int, bytes]]:
        if first_lsn < self.oldest():
            raise DamagedError(f"frame {first_lsn} is gone")
        for lsn, commits, payload in list(self.place.log):
            if lsn + commits > first_lsn:
                yield lsn, payload

    def append(self, first_lsn: int, commits: int, payload: bytes) -> None:
        if self.place.owner is not self:
            raise FencedError("another receiver has taken over")
        if self.place.away:
            raise UnreachableError("no answer")
        fault, self.place.fault = self.place.fault, None
        if fault == "away":
            raise UnreachableError("no answer")
        assert first_lsn == self.newest() + 1
        assert commits == len(decode_commits(payload))
        if fault != "before":
            self.place.log.append((first_lsn, commits, payload))
        if fault is not None:
            self._unknown = fault == "after"
            raise UnknownOutcomeError("the answer was lost")

    def settle(self) -> bool | None:
        if self.place.away:
            raise UnreachableError("no answer")
        kept, self._unknown = self._unknown, None
        return kept

    def put_checkpoint(self, lsn: int, files: Mapping[str, Path]) -> None:
        content = {name: path.read_bytes() for name, path in files.items()}
        self.place.kept = MemoryCheckpoint(lsn, content)

    def checkpoint(self) -> MemoryCheckpoint | None:
        return self.place.kept

    def trim(self, lsn: int) -> None:
        self.place.log = [each for each in self.place.log if each[0] + each[1] - 1 > lsn]

    def note(self, name: str) -> bytes | None:
        return self.place.notes.get(name)

    def put_note(self, name: str, content: bytes) -> None:
        if self.place.owner is not self:
            raise FencedError("another receiver has taken over")
        self.place.notes[name] = content

    def close(self) -> None:
        if self.place.owner is self:
            self.place.owner = None
