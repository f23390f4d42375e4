"""What the copies in a store say, for a job that reads: no receiver, and nothing that stays.

The copy lies in a directory for temporary files and goes with the process. Each look fetches what
came since; where the log does not go on from it, as after a restore, it is made anew.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from common.durable import Closing, ScratchDirectory, Tree
from common.errors import DamagedError, ReadOnlyError
from receiver.follower.followed_store import FollowedStore
from receiver.follower.log_copy import LogCopy
from receiver.follower.log_source import NotContinuedError
from receiver.metadata.following_engine import FollowingEngine

if TYPE_CHECKING:
    from receiver.follower.log_source import SourceLog
    from receiver.storage.stores.object_store import ObjectStore

__all__ = ["StoreView"]


class StoreView(Closing):
    """See the module; for one thread at a time.

    Attributes:
        engine: as of the last look.
    """

    engine: FollowingEngine
    _copy: LogCopy
    _found: SourceLog

    def __init__(self, store: ObjectStore) -> None:
        """Look for the first time.

        Args:
            store: closed with this.

        Raises:
            NotFoundError: nobody has copied anything there.
            DamagedError: nothing there makes a state.
        """
        self._number = 0
        self._source = FollowedStore(store)
        self._scratch = ScratchDirectory("tsferry-catalogue")
        try:
            self._begin(self._source.look())
        except BaseException:
            self.close()
            raise

    def refresh(self) -> None:
        """Look at what was copied since.

        Raises:
            StoreAwayError, StoreRefusedError: of the store.
        """
        found, lsn = self._source.look(), self.engine.published().lsn
        if found.engine == self.engine.uuid and found.incarnation == self._found.incarnation:
            try:
                if found.lsn > lsn:
                    self._copy.grow(found, lsn)
                    self.engine.advance()
                self._found = found
            except (NotContinuedError, DamagedError, ReadOnlyError):
                pass
            else:
                return
        self._begin(found)

    def fetch_older(self) -> None:
        """Fetch the log before the checkpoint: questions about the past need it."""
        while self._copy.fetch_older(self._found):
            pass

    def _begin(self, found: SourceLog) -> None:
        copy = LogCopy(Path(self._scratch.name, str(self._number + 1)), self._source)
        copy.make(found)
        engine = FollowingEngine.follow(copy.directory)
        if self._number:
            self.engine.close()
            _throw_away(self._copy.directory)
        self.engine, self._copy, self._found = engine, copy, found
        self._number += 1

    def close(self) -> None:
        """Remove all of it; closing twice is harmless."""
        if self._number:
            self.engine.close()
        self._source.close()
        self._scratch.close()


def _throw_away(directory: Path) -> None:
    with Tree(directory.parent) as tree:
        for name, _ in list(tree.files(directory.name)):
            tree.unlink(name, sync=False)
        tree.remove_empty(directory.name)
