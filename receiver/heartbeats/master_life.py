"""Which life of the master this process is, and what a node has heard of lives before it.

A commit is called by the time, so a number that is lower than the newest one says nothing of
whether this engine ever had it: a copy that was restored goes on, and is soon past it. Within the
history that can be looked up. Beyond, it goes by lives: each process that speaks to nodes commits
a random id first, with the newest commit that was there when it opened the engine. Once there is
one, so does every process that commits anything, a command with the server down as well: a life
ends with the first commit that is not its own. A node says which commit it has heard last, and in
which life. A copy has not the lives that came behind it, and of the one in which it was made
nothing behind the moment at which it was opened.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from common.errors import TsferryError
from receiver.metadata.model import records

if TYPE_CHECKING:
    from receiver.metadata.engine import Engine

__all__ = ["MasterLife"]

log = logging.getLogger(__name__)


class MasterLife:
    """See the module; any thread may call that does not read the state."""

    def __init__(self, engine: Engine) -> None:
        """Begin none yet: a receiver without nodes has none."""
        self._engine = engine
        self._life = engine.life
        self._begun = False
        self._lock = threading.Lock()

    def ident(self) -> str:
        """Of this life, committed before anybody hears it; empty while it cannot be committed."""
        if not self._begun:
            with self._lock:
                if not self._begun and not self._begin():
                    return ""
                self._begun = True
        return self._life

    def _begin(self) -> bool:
        """Whether this life is committed: by another commit of this process before, or here."""
        try:
            if not self._is_committed():
                begun = records.MasterLifeBegun(self._life, self._engine.opened_at)
                self._engine.commit([begun])
        except TsferryError as error:
            if not self._is_committed():
                told = {"error": error.message}
                log.warning("nodes copy nothing: this life has not begun", extra=told)
                return False
        return True

    def _is_committed(self) -> bool:
        with self._engine.reading() as state:
            return self._life in state.master_lives.rows

    def has(self, life: str, commit: int) -> bool:
        """Whether this engine had a commit that a node has heard in a life, for certain."""
        end = self._end(life)
        return end is not None and commit <= end

    def lacks(self, life: str, commit: int) -> bool:
        """Whether it never had it, for certain: it is another one's, or was restored since.

        Of what is above its newest commit it says nothing: that it may have missed.
        """
        if commit > self._engine.newest_commit:
            return False
        end = self._end(life)
        return end is None or commit > end

    def _end(self, life: str) -> int | None:
        """The newest commit of a life that this engine has; None where it knows no such life."""
        newest = self._engine.newest_commit
        with self._engine.reading() as state:
            lives = state.master_lives
            if life not in lives.rows:
                return None
            end = lives.end(life)
        if end is not None:
            return end
        # What this process commits comes behind its own life: with none yet, both are the same.
        return newest if life == self._life else self._engine.opened_at
