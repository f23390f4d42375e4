"""How far a round has come: counted by the threads that send, shown by whoever watches."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import asdict

from common.console.progress_bar import WorkProgress

__all__ = ["Meter", "RoundEvent", "RoundProgress", "ShownRounds", "Told"]


class RoundProgress(msgspec.Struct, frozen=True):
    """A moment of a round.

    Attributes:
        receiver: its name.
        step: what is being done: `check`, `scan`, `plan`, `send`, `load`.
        files: of the round, planned.
        files_done: of these, done with.
        bytes: of the round, planned.
        bytes_done: of these, at the receiver.
    """

    receiver: str
    step: str = ""
    files: int = 0
    files_done: int = 0
    bytes: int = 0
    bytes_done: int = 0

    def as_event(self) -> dict[str, Any]:
        """For the control socket."""
        return asdict(self)


class RoundEvent(msgspec.Struct, frozen=True):
    """Something that happened in a round, for logs.

    Attributes:
        receiver: its name.
        happened: `planned`, `sent`, `loaded`, `refused`.
        members: what there is to say of it.
    """

    receiver: str
    happened: str
    members: dict[str, Any]

    def as_event(self) -> dict[str, Any]:
        """For the control socket."""
        return asdict(self)


Told = RoundProgress | RoundEvent
"""What a listener hears."""


class Meter:
    """Counts, and tells a listener at most every `every` seconds.

    With `events` the listener hears of each file as well.
    """

    def __init__(
        self,
        receiver: str,
        tell: Callable[[Told], None] = lambda progress: None,
        *,
        events: bool = False,
        every: float = 0.2,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._receiver = receiver
        self._tell = tell
        self._events = events
        self._every = every
        self._clock = clock
        self._lock = threading.Lock()
        self._next = 0.0
        self._now: dict[str, Any] = {}

    @property
    def now(self) -> RoundProgress:
        """How far it is."""
        with self._lock:
            return RoundProgress(self._receiver, **self._now)

    def step(self, name: str) -> None:
        """Another step begins; told at once."""
        with self._lock:
            self._now["step"] = name
            progress = RoundProgress(self._receiver, **self._now)
        self._tell(progress)

    def happened(self, what: str, **members: Any) -> None:
        """Something happened that a log has a line for."""
        if self._events:
            self._tell(RoundEvent(self._receiver, what, members))

    def expect(self, files: int, size: int) -> None:
        """So much is to be done."""
        self._add("files", files, "bytes", size)

    def sent(self, size: int) -> None:
        """Bytes have arrived."""
        self._add("bytes_done", size)

    def done(self, files: int = 1) -> None:
        """Files are done with."""
        self._add("files_done", files)

    def _add(self, *pairs: Any) -> None:
        with self._lock:
            for key, more in zip(pairs[::2], pairs[1::2], strict=True):
                self._now[key] = self._now.get(key, 0) + more
            now = self._clock()
            if now < self._next:
                return
            self._next = now + self._every
            progress = RoundProgress(self._receiver, **self._now)
        self._tell(progress)


class ShownRounds:
    """Rounds as people see them, a row for each receiver."""

    def __init__(self, progress: WorkProgress) -> None:
        self._progress = progress

    def show(self, told: Told) -> None:
        """Show how far one is."""
        if isinstance(told, RoundEvent):
            return
        if told.step != "send":
            self._progress.say(f"{told.receiver}: {told.step}", row=told.receiver)
            return
        self._progress.show(
            f"{told.receiver}: send",
            told.bytes_done,
            told.bytes,
            size=True,
            note=f"{told.files_done} of {told.files} files",
            row=told.receiver,
        )
