"""Reads through all that a node holds, slowly: what has rotted is found before it is needed.

    scrub.json     {"begun": 1700000000.0, "tablet": "5d3f...", "file": "sequence/...",
                    "last": 1690000000.0}

It goes by tablet and name, and goes on behind the last file that it noted when the node starts
anew. What somebody has got other bytes of is read before all else. A file that is not as it came,
or cannot be read, counts no more (`TabletReplica.rot`): the master hears that with the next report,
and the file is pulled again.
"""

from __future__ import annotations

import logging
import os
import time
from bisect import bisect_right
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec

from common.decoders import from_json
from common.digests import md5, read_blocks
from common.durable import Closing, Tree
from common.errors import DamagedError, NotFoundError, StoppedError, TsferryError
from common.threads import PeriodicThread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from receiver.tablet_copies.copies_wire import CopiedFile
    from receiver.tablet_copies.replica_store import ReplicaStore
    from receiver.tablet_copies.tablet_replica import TabletReplica

__all__ = ["SCRUB_PLACE", "CopyScrub", "ScrubPlace"]

log = logging.getLogger(__name__)

SCRUB_PLACE: Final = "scrub.json"
_MOST: Final = 1 << 16
_REST: Final = 0.25
"""Seconds that are slept at once, when that many are due."""
_NOTED_EVERY: Final = 60.0
"""Seconds after which it is noted how far it is: what was read since is read again after a kill."""
_ONCE_IN: Final = 600.0
"""Seconds in which a file is read once, however often somebody says that its bytes are others."""
_ASKED: Final = 10_000
"""Files that are remembered as read by such a word; then it begins anew."""
_LATER: Final = 60.0
"""Seconds until it is tried again, after something went wrong."""


class ScrubPlace(msgspec.Struct, frozen=True, kw_only=True):
    """How far it is.

    Attributes:
        begun: when the round began that is under way, seconds since the epoch; 0 for none.
        tablet: that was read last in it.
        file: of that tablet; all up to this name were read.
        last: when the last whole round began; 0 for never.
    """

    begun: float = 0.0
    tablet: str = ""
    file: str = ""
    last: float = 0.0


class CopyScrub(Closing):
    """Reads, in a thread of its own once it is started.

    Attributes:
        place: how far it is.
    """

    def __init__(
        self,
        store: ReplicaStore,
        home: Path,
        *,
        every: float | None,
        rate: int,
        is_there: Callable[[Tree], bool] = lambda _: True,
        clock: Callable[[], float] = time.time,
        wait: Callable[[float], bool] | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Read where it was left.

        Args:
            store: what is here.
            home: the directory of the node, where it is noted how far this is.
            every: seconds between two rounds, None for none.
            rate: bytes a second that are read.
            is_there: whether a data directory is there: on a disk that is not, nothing has rotted.
            clock: seconds since the epoch.
            wait: waits so many seconds; True if it is to stop.
            monotonic: seconds that nobody sets.
        """
        self._store = store
        self._home = home
        self._every = every
        self._rate = rate
        self._is_there = is_there
        self._clock = clock
        self._monotonic = monotonic
        self._asked: deque[tuple[str, str]] = deque()
        self._looked: dict[tuple[str, str], float] = {}
        self._owed = 0.0
        self._since_noted = 0.0
        self._passed_over = 0
        self.place = _read(home)
        self._next: float | None = None
        self._thread = PeriodicThread(
            "scrub", self._step, log, "copies are not read through", retry=_LATER
        )
        self._wait = wait or self._thread.stopping.wait

    def start(self) -> None:
        """Begin: rounds, where they are wanted, and what somebody says of single files."""
        self._plan()
        self._thread.start()

    def close(self) -> None:
        """Stop at the next block, and note how far it is; closing twice is harmless."""
        self._thread.close()

    def _step(self) -> float | None:
        self.look_at_doubted()
        if self._left() == 0.0:
            self.run_once()
            self._plan()
        return self._left()

    def _plan(self) -> None:
        due = self.due()
        self._next = None if due is None else self._monotonic() + due

    def _left(self) -> float | None:
        """Seconds until the next round; None for none."""
        return None if self._next is None else max(0.0, self._next - self._monotonic())

    def due(self) -> float | None:
        """Seconds until there is something to read; None where no rounds are wanted."""
        every = self._every
        if every is None:
            return None
        if self.place.begun:
            return _REST
        # A clock that was set back makes nobody wait for longer than a round.
        return min(max(self.place.last + every - self._clock(), _REST), every)

    def doubt(self, tablet: str, name: str) -> None:
        """Somebody has got other bytes of a file than it has: it is read, and judged by that alone.

        So a word that is not true costs one reading.
        """
        now, key = self._monotonic(), (tablet, name)
        looked = self._looked.get(key)
        if looked is not None and now - looked < _ONCE_IN:
            return
        if len(self._looked) >= _ASKED:
            self._looked.clear()
        self._looked[key] = now
        self._asked.append(key)
        self._thread.wake()

    def look_at_doubted(self) -> int:
        """Read what was doubted; how many files were found rotten, or gone.

        Raises:
            StoppedError: told to stop.
        """
        found = 0
        while self._asked:
            tablet, name = self._asked.popleft()  # calls put more in meanwhile
            with suppress(NotFoundError):  # it was dropped meanwhile
                replica = self._store.replica(tablet)
                file = replica.files().get(name)
                found += file is not None and not self._is_whole(replica, name, file)
        return found

    def run_once(self) -> int:
        """Go on to the end of the round; how many files were found rotten, or gone.

        Raises:
            StoppedError: told to stop.
        """
        if not self.place.begun:
            self._note(ScrubPlace(begun=self._clock(), last=self.place.last))
        found = self._passed_over = 0
        try:
            for tablet, replica in self._behind(self.place.tablet):
                files = replica.files()
                names = sorted(files)
                after = self.place.file if tablet == self.place.tablet else ""
                for name in names[bisect_right(names, after) :]:
                    found += self.look_at_doubted()
                    found += not self._is_whole(replica, name, files[name])
                    self._read_up_to(tablet, name)
        finally:
            self._note(self.place)
        self._note(ScrubPlace(last=self.place.begun))
        if self._passed_over:
            told = {"files": self._passed_over}
            log.warning("copies on disks that are away were not read through", extra=told)
        return found

    def _behind(self, tablet: str) -> Iterator[tuple[str, TabletReplica]]:
        """From a tablet on, in order."""
        for each in self._store.tablets():
            if each < tablet:
                continue
            try:
                yield each, self._store.replica(each)
            except NotFoundError:
                continue  # it was dropped meanwhile

    def _read_up_to(self, tablet: str, name: str) -> None:
        self.place = msgspec.structs.replace(self.place, tablet=tablet, file=name)
        if self._since_noted >= _NOTED_EVERY:
            self._note(self.place)

    # -- a file ------------------------------------------------------------------------------

    def _is_whole(self, replica: TabletReplica, name: str, file: CopiedFile) -> bool:
        """Whether a file is as it came; one that is not counts no more."""
        why = ""
        for _ in range(2):  # what is read wrongly once is read again before it is believed
            try:
                why = self._problem(replica, name, file)
            except NotFoundError:
                # Gone by an order, or lost; `open_file` has told that.
                return name not in replica.missing()
            except DamagedError:
                return False  # of another size: told as well
            except OSError:  # its disk is away, and that of others is not: these are read
                self._passed_over += 1
                return True
            if not why:
                return True
        if replica.rot(name, file):
            told = {"tablet": replica.tablet, "file": name, "why": why}
            log.warning("a copy has rotted, and is pulled again", extra=told)
        return False

    def _problem(self, replica: TabletReplica, name: str, file: CopiedFile) -> str:
        """Why the bytes of a file are not those that came, empty if they are.

        Raises:
            NotFoundError: it is not here any more.
            DamagedError: it has another size.
            OSError: its directory is not there: nobody knows.
            StoppedError: told to stop.
        """
        tree = replica.tree_of(name)
        try:
            fd, _ = replica.open_file(name)
            try:
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)  # from the disk, not from memory
                digest = md5()
                for block in read_blocks(fd):
                    digest.update(block)
                    self._rest(len(block))
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)  # nobody else wants it
            finally:
                os.close(fd)
        except OSError as error:
            if tree is None or not self._is_there(tree):
                raise
            self._rest(1)
            return str(error)
        found = digest.hexdigest()
        return "" if found == file.md5 else f"MD5 {found}, and {file.md5} came"

    def _rest(self, size: int) -> None:
        seconds = size / self._rate
        self._owed += seconds
        self._since_noted += seconds
        if self._owed >= _REST:
            owed, self._owed = self._owed, 0.0
            if self._wait(owed):
                raise StoppedError("told to stop")

    def _note(self, place: ScrubPlace) -> None:
        self.place = place
        self._since_noted = 0.0
        with Tree(self._home) as tree:
            tree.write_atomic(SCRUB_PLACE, msgspec.json.encode(place))


def _read(home: Path) -> ScrubPlace:
    """How far an earlier life was; what cannot be read is no more than a round that begins anew."""
    try:
        with Tree(home) as tree:
            return from_json(tree.read(SCRUB_PLACE, limit=_MOST), ScrubPlace)
    except FileNotFoundError:
        return ScrubPlace()
    except (OSError, TsferryError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        log.warning("copies are read from the first on", extra={"error": str(error)})
        return ScrubPlace()
