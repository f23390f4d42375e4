"""When each sender was heard last, and what it said: kept over a restart, at little cost.

All of it is one file, `heard.json` in the schema directory, written as a whole when something is
new: not for each sign of life, of which there may be thousands a second, but once in some seconds,
and less often the larger the file is. What a power cut takes is the last of these spans, and a
sender that lives speaks again; so nothing here is a commit, and nothing that the receiver promises
rests on it. A file that is damaged or missing means that nobody is known to have been heard.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Final

import msgspec

from common.decoders import from_json
from common.durable import Tree
from common.errors import TsferryError
from common.threads import PeriodicThread
from common.wire import Heartbeat

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["HEARD_FILE", "HeardSender", "HeardSenders", "read_heard"]

log = logging.getLogger(__name__)

HEARD_FILE: Final = "heard.json"
_VERSION = 1
_EVERY = 10.0
_BYTES_PER_SECOND = 200_000
"""Written on the average at most: 25 MB, of 100,000 senders, each two minutes."""
_LIMIT = 1 << 30


class HeardSender(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The last signs of life of a sender.

    Attributes:
        sender: its uuid.
        at: when it last made a call that says that it lives: a check or a heartbeat; seconds since
            the epoch, by the receiver's clock.
        version: of the program there.
        beat: its last heartbeat; None if it never sent one.
        beat_at: when that came.
        failing_since: when the first of the heartbeats came that have all told of a round that
            ended early since; None if the last one did not.
        clone_refused_at: when a machine under its uuid was last turned away, since another one had
            used up its epoch; None for never, and once one was let in by an operator.
    """

    sender: str
    at: float
    version: str = ""
    beat: Heartbeat | None = None
    beat_at: float | None = None
    failing_since: float | None = None
    clone_refused_at: float | None = None


class _HeardFile(msgspec.Struct, frozen=True, kw_only=True):
    version: int
    heard: list[HeardSender]


def read_heard(directory: Path) -> dict[str, HeardSender] | None:
    """What was kept in a schema directory, by uuid; None if there is nothing, or it is damaged."""
    try:
        with Tree(directory) as tree:
            data = tree.read(HEARD_FILE, limit=_LIMIT)
        found = from_json(data, _HeardFile)
        if found.version != _VERSION:
            raise ValueError(f"version {found.version} is not known here")
    except FileNotFoundError:
        return None
    except (TsferryError, OSError, ValueError, RecursionError) as error:
        log.warning(
            "it is not known when senders were heard last: %s: %s", directory / HEARD_FILE, error
        )
        return None
    return {each.sender: each for each in found.heard}


class HeardSenders:
    """The senders that were heard; any thread may ask and tell.

    Args:
        directory: the schema directory.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock = threading.Lock()
        self._heard = read_heard(directory) or {}
        self._is_new = False
        self._failed = False
        self._thread = PeriodicThread(
            "heard",
            self._write_again,
            log,
            "when senders were heard cannot be written",
            first=_EVERY,
            retry=_EVERY,
        )

    def start(self) -> None:
        """Write what is new from now on, in a thread of its own."""
        self._thread.start()

    def close(self) -> None:
        """Stop, and write what is new."""
        self._thread.close()
        self.write()

    def checked(self, sender: str, at: float, version: str) -> None:
        """A sender began a round."""
        with self._lock:
            before = self._heard.get(sender)
            self._heard[sender] = (
                HeardSender(sender=sender, at=at, version=version)
                if before is None
                else msgspec.structs.replace(before, at=at, version=version)
            )
            self._is_new = True

    def beaten(self, sender: str, at: float, beat: Heartbeat) -> None:
        """A sender sent a heartbeat."""
        with self._lock:
            before = self._heard.get(sender) or HeardSender(sender=sender, at=at)
            since = before.failing_since or at
            self._heard[sender] = msgspec.structs.replace(
                before,
                at=at,
                version=beat.version,
                beat=beat,
                beat_at=at,
                failing_since=since if beat.problem else None,
            )
            self._is_new = True

    def clone_refused(self, sender: str, at: float | None) -> None:
        """A machine under its uuid was turned away; None: an operator has let one in since."""
        with self._lock:
            before = self._heard.get(sender)
            if before is not None and before.clone_refused_at != at:
                self._heard[sender] = msgspec.structs.replace(before, clone_refused_at=at)
                self._is_new = True

    def of(self, sender: str) -> HeardSender | None:
        """What is known of a sender; None if it was never heard."""
        with self._lock:
            return self._heard.get(sender)

    def all(self) -> Mapping[str, HeardSender]:
        """What is known of all of them, by uuid, as of now."""
        with self._lock:
            return dict(self._heard)

    def write(self) -> int:
        """Write what is new; returns the bytes of the file, 0 if nothing was."""
        with self._lock:
            if not self._is_new:
                return 0
            self._is_new = False
            found = list(self._heard.values())
        data = msgspec.json.encode(_HeardFile(version=_VERSION, heard=found))
        try:
            with Tree(self._directory) as tree:
                tree.write_atomic(HEARD_FILE, data)
        except (TsferryError, OSError) as error:
            if not self._failed:
                log.warning("when senders were heard cannot be written: %s", error)
            self._failed = True
            with self._lock:
                self._is_new = True
            return 0
        self._failed = False
        return len(data)

    def _write_again(self) -> float:
        return max(_EVERY, self.write() / _BYTES_PER_SECOND)
